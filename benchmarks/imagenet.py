"""Inputs of ImageNet's size: how long one takes, which docs/scaling.md multiplies by 50,000.

    python benchmarks/imagenet.py [mlp] [resnet] [--device cuda] [--size 224] [--width 1024] [--inputs 4]

- mlp: size x size x 3 features, three layers of `width` ReLUs, ten classes; the paper's bounds, and the defaults.
  Seconds per input, uniform and non-uniform region and the proof included.
- resnet: ResNet-18 (He and others, 2016), a thousand classes: one bound, and one with the derivative of the smallest
  margin, by the cheapest method. Weights are random: it has the work of a trained one, not its regions.

On a CPU it takes minutes; `--size 32 --width 64` shows what it does.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

import elbowroom as er
from elbowroom.claim.specification import label_stays
from elbowroom.network.graph import Graph
from elbowroom.network.operations import Add, BatchNorm, Conv, Linear, MaxPool, Mean, Operation, ReLU
from speed import SHARED, Bench, bound_of, network

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, and the stride of the first of two blocks


def resnet(size: int, classes: int = 1000) -> er.Network:
    """ResNet-18."""
    draw = torch.Generator().manual_seed(0)
    g = Graph((3, size, size))

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw) * (2 / torch.tensor(shape[1:]).prod()) ** 0.5

    def conv(at: int, into: int, out: int, k: int, stride: int, scale: float = 1.0) -> int:
        at = g.add(Conv(weight(out, into, k, k), None, (stride,) * 2, (k // 2,) * 2), at)
        return g.add(
            BatchNorm(torch.zeros(out), torch.ones(out), torch.full((out,), scale), torch.zeros(out), 1e-5), at
        )

    def then(op: Operation, *at: int) -> int:
        return g.add(op, *at)

    at = then(MaxPool((3, 3), (2, 2), (1, 1)), then(ReLU(), conv(g.input, 3, 64, 7, 2)))
    into = 64
    for out, first in STAGES:
        for stride in (first, 1):
            branch = conv(then(ReLU(), conv(at, into, out, 3, stride)), out, out, 3, 1, 0.5)
            around = at if into == out and stride == 1 else conv(at, into, out, 1, stride)
            at, into = then(ReLU(), then(Add(), branch, around)), out
    at = then(Mean((1, 2)), at)
    return g.network(then(Linear(weight(classes, into), torch.zeros(classes)), at))


def bound(name: str, net: er.Network, x: torch.Tensor, bench: Bench) -> None:
    """One bound of all margins of one input, and one with the derivative of the smallest."""
    work, x = net.cast(torch.float32, bench.device), x.to(bench.device)
    spec = label_stays(work.decide(work(x)), net.n_outputs).cast(torch.float32, bench.device)
    value, gradient = bound_of(work, x, torch.full_like(x, 1e-6), spec, method="fast")
    taken = [bench.seconds(run, 2) / len(x) for run in (value, gradient)]
    print(f"{name}: a bound {taken[0]:.3f} s per input, with the derivative {taken[1]:.3f} s", flush=True)


def measure(name: str, net: er.Network, x: torch.Tensor, device: str, **options: Any) -> None:
    def clock() -> float:
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()

    er.certify(net, x[:1], device=device, domain=(0, 1), **options)
    started = clock()
    certs = er.certify(net, x, device=device, domain=(0, 1), **options)
    taken = (clock() - started) / len(x)
    peak = "" if device == "cpu" else f", {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at most"
    print(
        f"{name}: {taken:.3f} s per input, {float(certs.evaluations.double().mean()):.1f} evaluations and "
        f"{float(certs.gradients.double().mean()):.1f} gradients, {int(certs.certified.sum())} of {len(x)} certified, "
        f"half-width {float(certs.geomean.mean()):.2e}{peak}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["mlp", "resnet", []])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--inputs", type=int, default=4)
    given = parser.parse_args()
    parts, n = given.parts or ("mlp", "resnet"), given.size
    x = torch.rand(given.inputs, 3, n, n, generator=torch.Generator().manual_seed(1))
    if "mlp" in parts:
        net = network([3 * n * n, given.width, given.width, given.width, 10])
        paper: dict[str, Any] = {"bounds": "combined", "margin": "logits"}
        for name, options in (("the paper's bounds", paper), ("defaults", {})):
            measure(f"{3 * n * n}-{given.width}x3-10, {name}", net, x.flatten(1), given.device, **options)
    if "resnet" in parts:
        bound('ResNet-18, bounds="fast"', resnet(n), x[:1], Bench(given.device, SHARED))


if __name__ == "__main__":
    main()
