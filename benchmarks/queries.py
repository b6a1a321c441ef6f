"""Queries as verifiers know them: is a decision the same on a box around a digit? How many are decided, in which time.

    python benchmarks/queries.py [NETWORK ...] [--seconds 20] [--digits 6] [--part 0/1] [--shared DIR]

NETWORK: 256x2 (the public mnist-net_256x2), 256x4 and 256x6 (trained here: 2 epochs, seed 0), conv (two convolutions
and two layers, likewise), cifar_base_kw; all by default. DIR (default: ELBOWROOM_SHARED, or ../shared) holds `models/`
and `data/`. --part k/n: every n-th query, from the k-th on.

Per digit that is classified right there are boxes of seven radii, cut to [0, 1]: 0.9, 1.1, 1.3, 1.6 and 2 times the
radius that `certify` proves with plain bounds, and 1 and 1.15 times the least at which 20 descents of 100 steps find
a counterexample. So of the first the answer is known to be yes, of those that hold that point no; nothing may be
answered otherwise, and what is answered in between is proved, or shown by a point. Seconds are CPU time of one thread.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import elbowroom as er
from elbowroom.search.attack import pgd
from gpu import mnist
from speed import SHARED, Bench

FACTORS, BROKEN = (0.9, 1.1, 1.3, 1.6, 2.0), (1.0, 1.15)
_STARTS, _STEPS = 20, 100


def trained(layers: list[nn.Module], shared: Path) -> er.Network:
    torch.manual_seed(0)
    model = nn.Sequential(*layers)
    x, y = mnist(shared / "data" / "MNIST" / "raw", "train", "cpu")
    x = (x.float().reshape(-1, 1, 28, 28) + 1) / 2
    adam = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(2):
        for part in torch.randperm(len(x)).split(256):
            adam.zero_grad()
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            adam.step()
    return er.load(model, input_shape=(1, 28, 28))


def dense(depth: int) -> list[nn.Module]:
    sizes = [784, *[256] * depth]
    hidden = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.ReLU())]  # noqa: RUF007
    return [nn.Flatten(), *hidden, nn.Linear(256, 10)]


def convolutional() -> list[nn.Module]:
    return [
        nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 4, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10),
    ]  # fmt: skip


def network(name: str, bench: Bench, shared: Path, digits: int) -> tuple[er.Network, Tensor]:
    """A network and inputs in [0, 1]."""
    if name == "cifar_base_kw":
        return dict(bench.public())[name], bench.images(name, digits)
    if name == "256x2":
        net = er.load(shared / "models" / "mnist-net_256x2.onnx")
    else:
        net = trained(convolutional() if name == "conv" else dense(int(name[-1])), shared)
    return net, bench.digits(digits).reshape(-1, *net.input_shape)


def box(x: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    return (x - radius).clamp(0, 1), (x + radius).clamp(0, 1)


def nearest(net: er.Network, x: Tensor, label: int) -> tuple[float, Tensor] | None:
    """The least radius at which descents meet another class, to a per cent, and the point they met."""
    held, found = 0.0, None
    radius = 0.2
    work = net.cast(torch.float64)
    while radius - held > 0.01 * radius:
        lower, upper = (t.expand(_STARTS, *x.shape) for t in box(x, radius))
        start = lower + torch.rand(lower.shape, generator=torch.Generator().manual_seed(0)).double() * (upper - lower)
        met: list[Tensor] = []

        def value(x: Tensor) -> tuple[Tensor, Tensor]:
            z = work.values(x)[-1]
            others = torch.cat([z[:, :label], z[:, label + 1 :]], 1).amax(1)
            return (others - z[:, label]).sum(), (z[:, label] - others).detach()

        def seen(x: Tensor, margin: Tensor, met: list[Tensor] = met) -> None:
            met += list(x[margin < 0][:1].clone())

        lengths = (0.3 * 0.01 ** (t / _STEPS) * (upper - lower) for t in range(_STEPS))
        pgd(value, start, lower, upper, lengths, seen)
        if met:
            found, radius = (radius, met[0]), (held + radius) / 2
        elif found is None:
            return None
        else:
            held = radius
            radius = (held + found[0]) / 2
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--digits", type=int, default=6)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--shared", type=Path, default=SHARED)
    given = parser.parse_args()
    torch.set_num_threads(1)
    first, every = map(int, given.part.split("/"))
    bench = Bench("cpu", given.shared)
    for name in given.networks or ("256x2", "256x4", "256x6", "conv", "cifar_base_kw"):
        net, x = network(name, bench, given.shared, given.digits)
        counts: Counter[str] = Counter()
        for number, one in enumerate(queries(net, x)):
            if number % every != first:
                continue
            answer, seconds = decided(net, *one[:3], given.seconds)
            counts[answer] += 1
            wrong = one[3] is not None and answer not in (one[3], "undecided")
            counts["WRONG"] += wrong
            print(f"{name}  query {number}  {answer}  known {one[3]}  {seconds:.1f} s{'  WRONG' * wrong}", flush=True)
        said = ", ".join(f"{counts[what]} {what}" for what in ("proved", "refuted", "undecided", "WRONG"))
        print(f"{name}, {given.seconds:g} s: {said}", flush=True)


def queries(net: er.Network, x: Tensor) -> list[tuple[Tensor, Tensor, int, str | None]]:
    """Corners, decision, and the answer where that is known."""
    found: list[tuple[Tensor, Tensor, int, str | None]] = []
    plain = er.certify(net, x, region=er.Uniform(), domain=(0, 1))
    for k, label in enumerate(net.decide(net(x)).tolist()):
        radius, broken = float(plain.uniform[k]), nearest(net, x[k], label)
        sizes: list[tuple[float, Any]] = [(factor * radius, "proved" if factor < 1 else None) for factor in FACTORS]
        sizes += [] if broken is None else [(factor * broken[0], "refuted") for factor in BROKEN]
        for size, answer in sizes:
            lower, upper = box(x[k], size)
            inside = broken is not None and bool(((lower <= broken[1]) & (broken[1] <= upper)).all())
            found.append((lower, upper, label, "refuted" if inside else answer))
    return found


def decided(net: er.Network, lower: Tensor, upper: Tensor, label: int, seconds: float) -> tuple[str, float]:
    started = time.thread_time()
    out = er.verify(net, lower, upper, torch.tensor([label]), seconds=seconds)
    taken = time.thread_time() - started
    answer = "proved" if out else "undecided" if out.counterexamples[0] is None else "refuted"
    return answer, taken


if __name__ == "__main__":
    main()
