"""One bound of ours beside CROWN of auto_LiRPA (optional, from its own authors), on one thread, in turns.

    python benchmarks/peer.py [--shared DIR] [--runs 5] [--only NAME ...] [--json FILE]

Both get the same network, inputs, eps and rows of the specification, in float32; a "value" is the lower bounds of all
margins, a "gradient" also the derivative of the smallest of them by the radii. Times are the least of several, of the
thread's own CPU clock. The peer works with both of its ways to carry convolutions (`patches`, `matrix`); the
faster one counts. Margins are printed beside each other: ours are intersected with intervals, and no smaller.

DIR (default: ELBOWROOM_SHARED, or ../shared) holds `models/*.onnx`; networks that are called random are made here.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import elbowroom as er
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.network import operations as ops
from speed import EPS, PIXELS, SHARED, Bench, bound_of, network

WAYS = ("patches", "matrix")


class Module(nn.Module):
    """A network of ours as a module of torch."""

    def __init__(self, net: er.Network) -> None:
        super().__init__()
        self.net, self.parts = net, nn.ModuleList()
        self.parts.extend(_part(node.op) for node in net.nodes[1:])

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for node, part in zip(self.net.nodes[1:], self.parts):
            found.append(part(*(found[j] for j in node.inputs)))
        return found[-1]


class _Sum(nn.Module):
    def forward(self, *xs: Tensor) -> Tensor:
        return xs[0] + xs[1]


def _part(op: Any) -> nn.Module:
    match op:
        case ops.Linear():
            linear = nn.Linear(op.weight.shape[1], op.weight.shape[0], bias=op.bias is not None)
            return _filled(linear, op)
        case ops.Conv():
            out, into = op.weight.shape[:2]
            conv = nn.Conv2d(into, out, tuple(op.weight.shape[2:]), op.stride, op.padding, bias=op.bias is not None)
            return _filled(conv, op)
        case ops.ReLU() | ops.Tanh() | ops.Sigmoid():
            made: nn.Module = getattr(nn, op.name)()
            return made
        case ops.MaxPool():
            return nn.MaxPool2d(op.kernel, op.stride, op.padding)
        case ops.Reshape():
            return nn.Flatten()
        case ops.Add() if op.signs == (1.0, 1.0):
            return _Sum()
    raise SystemExit(f"no module for {op}")


def _filled(module: Any, op: Any) -> nn.Module:
    module.weight.data = op.weight.float()
    if op.bias is not None:
        module.bias.data = op.bias.float()
    filled: nn.Module = module
    return filled


def theirs(
    net: er.Network, x: Tensor, radius: Tensor, spec: Specification, way: str
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    from auto_LiRPA import BoundedModule, BoundedTensor
    from auto_LiRPA.perturbations import PerturbationLpNorm

    module = Module(net.cast(torch.float32)).requires_grad_(False)
    model = BoundedModule(module, x, bound_opts={"conv_mode": way}, verbose=False)
    rows = spec.rows.expand(len(x), -1, -1).contiguous()

    def margins(r: Tensor) -> Tensor:
        box = PerturbationLpNorm(norm=float("inf"), x_L=x - r, x_U=x + r)
        found = model.compute_bounds(x=(BoundedTensor(x, box),), C=rows, method="CROWN", bound_upper=False)[0]
        lower: Tensor = found
        return lower

    def value() -> Tensor:
        with torch.no_grad():
            return margins(radius)

    def gradient() -> Tensor:
        at = radius.clone().requires_grad_()
        return torch.autograd.grad(margins(at).amin(1).sum(), at)[0]

    return value, gradient


def cases(bench: Bench) -> Iterator[tuple[str, er.Network, Tensor, Tensor | float]]:
    draw = torch.Generator().manual_seed(1)
    yield "784-300x3-10, batch 16", network([784, 300, 300, 300, 10]), 2 * torch.rand(16, 784, generator=draw) - 1, 0.01
    for name, front in PIXELS.items():
        path = bench.shared / "models" / f"{name}.onnx"
        if path.exists():  # pixels are normalised here: the peer takes no constants of a channel
            mean, std = (torch.tensor(front[key])[:, None, None] for key in ("mean", "std"))
            x = (bench.images(name, 2).float() - mean) / std
            yield f"{name}, batch 2", er.load(path), x, EPS.get(name, 2 / 255) / std
    yield "random 500-400-200-10, batch 8", network([500, 400, 200, 10]), torch.rand(8, 500, generator=draw), 0.01
    x = 2 * torch.rand(16, 784, generator=draw) - 1
    yield "random 784-300x3-10 of tanh, batch 16", network([784, *[300] * 3, 10], ops.Tanh()), x, 0.01
    yield "random 784-200x6-10 of sigmoid, batch 16", network([784, *[200] * 6, 10], ops.Sigmoid()), x, 0.01
    x = torch.rand(4, 1, 28, 28, generator=draw)
    for name, net in (
        ("", convolutional()),
        (" of tanh", convolutional(ops.Tanh())),
        (", pooled", convolutional(pool=2)),
    ):
        yield f"random convolutional{name}, batch 4", net, x, 0.01


def convolutional(activation: ops.Operation | None = None, pool: int = 1) -> er.Network:
    """Three convolutions, the first of them perhaps pooled, and two matrices, random, of ReLUs unless told."""
    draw, activation = torch.Generator().manual_seed(0), activation or ops.ReLU()
    layers: list[ops.Operation] = []
    for out, into, k, stride in ((8, 1, 3, 1), (16, 8, 4, 2), (16, 16, 4, 2)):
        weight = torch.randn(out, into, k, k, generator=draw) * (2 / (into * k * k)) ** 0.5
        layers += [ops.Conv(weight, torch.zeros(out), (stride,) * 2, (1, 1)), activation]
        if stride < pool:
            layers.append(ops.MaxPool((pool, pool), (pool, pool)))
    layers.append(ops.Reshape((-1,)))
    size = er.Network.chain((1, 28, 28), layers).n_outputs
    for out, into in ((64, size), (10, 64)):
        layers += [ops.Linear(torch.randn(out, into, generator=draw) * (2 / into) ** 0.5, torch.zeros(out)), activation]
    return er.Network.chain((1, 28, 28), layers[:-1])


def compare(name: str, net: er.Network, x: Tensor, eps: Tensor | float, runs: int) -> dict[str, Any]:
    spec = label_stays(net.decide(net(x)), net.n_outputs).cast(torch.float32, "cpu")
    radius = eps * torch.ones_like(x)
    sides = {"ours": bound_of(net.cast(torch.float32), x, radius, spec)}
    for way in WAYS:
        try:
            made = theirs(net, x, radius, spec, way)
            made[1]()
        except (RuntimeError, NotImplementedError, AssertionError, AttributeError, TypeError, ValueError) as error:
            print(f"  {name}: auto_LiRPA ({way}) does not run: {type(error).__name__}: {str(error)[:80]}")
            continue
        sides[way] = made
    least = {side: [float("inf")] * 2 for side in sides}
    for _ in range(runs):
        for side, pair in sides.items():
            for kind, run in enumerate(pair):
                started = time.thread_time()
                run()
                least[side][kind] = min(least[side][kind], time.thread_time() - started)
    row: dict[str, Any] = {"network": name, "ours": [1e3 * t for t in least["ours"]]}
    peers = [side for side in sides if side != "ours"]
    if peers:
        row["peer"] = [1e3 * min(least[side][kind] for side in peers) for kind in range(2)]
        row["ratio"] = [a / b for a, b in zip(row["ours"], row["peer"])]
        a, b = sides["ours"][0](), sides[peers[0]][0]()
        row["margins"] = {"ours": float(a.mean()), "peer": float(b.mean()), "least difference": float((a - b).min())}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if importlib.util.find_spec("auto_LiRPA") is None:
        raise SystemExit("auto_LiRPA is not installed: without it there is nothing to compare with")
    torch.set_num_threads(1)
    bench, found = Bench("cpu", given.shared), []
    print(f"a product in float32: {bench.product() / 1e9:.0f} Gflop/s; value / gradient, ms of one thread")
    for name, net, x, eps in cases(bench):
        if not any(part in name for part in given.only):
            continue
        row = compare(name, net, x, eps, given.runs)
        found.append(row)
        print(name)
        for side in ("ours", "peer", "ratio"):
            if side in row:
                print(f"  {side:6}{row[side][0]:9.3g} / {row[side][1]:.3g}")
        print(f"  mean margins {row.get('margins')}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
