"""How much of a margin is left at the extreme points of regions that are no boxes: the table of docs/shapes.md.

    python benchmarks/extremes.py [--rows m100,m100pgd] [--inputs 8] [--efforts fast] [--shared DIR]

Rows: the reference networks of DIR/reference. Shapes: l1, ellipsoids, and boxes along the right singular vectors of the
first layer (`Oblique(basis)`, extents at most 1). Per shape and effort: the mean log-volume per feature, the median of
`reach`, and the least margin found in each region, from the least to the largest of all inputs: at all vertices (l1),
or by 40 steps of projected descent from its centre. A bound that loses nothing would leave 0.

It asks nothing of the package but `Network.chain`, `certify` and shapes, so that earlier versions can be measured by it
(`git worktree add ../before COMMIT`, then PYTHONPATH=../before/src); what they lack is left out.
"""

from __future__ import annotations

import argparse
import inspect
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import elbowroom as er

try:
    from elbowroom.network.operations import Linear, ReLU
except ImportError:
    from elbowroom.network import Linear, ReLU  # type: ignore[attr-defined,no-redef]

SHARED = Path(os.environ.get("ELBOWROOM_SHARED", "shared"))
STEPS = 40


def reference(path: Path) -> tuple[er.Network, Tensor, Tensor]:
    data = np.load(path)
    layers = [Linear(torch.tensor(data[f"W{i}"]).float(), torch.tensor(data[f"b{i}"]).float()) for i in range(4)]
    net = er.Network.chain((784,), [op for layer in layers for op in (layer, ReLU())][:-1])
    right = data["correct"].astype(bool)
    return net, torch.tensor(data["x"][right]).reshape(-1, 784).double(), layers[0].weight.double()


def margins(outputs: Tensor, label: Tensor) -> Tensor:
    """The least margin of the label, `m`."""
    own = outputs.gather(1, label[:, None])
    rest = outputs.scatter(1, label[:, None], -torch.inf)
    return (own - rest.amax(1, keepdim=True)).squeeze(1)


def at_vertices(net: er.Network, x: Tensor, eps: Tensor, label: Tensor) -> Tensor:
    """Of l1 regions, `b`."""
    found = []
    for k in range(len(x)):
        moved = torch.cat([torch.diag(eps[k]), -torch.diag(eps[k])])
        found.append(margins(net((x[k] + moved).float()).double(), label[k].expand(len(moved))).min())
    return torch.stack(found)


def by_descent(net: er.Network, x: Tensor, eps: Tensor, label: Tensor, basis: Tensor | None, p: float) -> Tensor:
    """Of other regions, `b`: the least margin on the way of projected steps from the centre."""
    v, least = torch.zeros_like(x), torch.full((len(x),), torch.inf).double()
    for _ in range(STEPS + 1):
        v = v.detach().requires_grad_()
        moved = v * eps
        moved = moved if basis is None else moved @ basis.T
        now = margins(net((x + moved).float()).double(), label)
        least = torch.minimum(least, now.detach())
        (slope,) = torch.autograd.grad(now.sum(), v)
        if p == 2:
            v = v.detach() - 0.25 * slope / slope.norm(dim=1, keepdim=True).clamp_min(1e-30)
            v = v / v.norm(dim=1, keepdim=True).clamp_min(1.0)
        else:
            v = (v.detach() - 0.25 * slope.sign()).clamp(-1, 1)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="m100,m100pgd")
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--efforts", default="fast")
    parser.add_argument("--shared", type=Path, default=SHARED)
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = inspect.signature(er.certify).parameters
    print("| network | shape | effort | log-volume per feature | counterexample at | margin left | seconds |")
    print(7 * "|---" + "|")
    for name in options.rows.split(","):
        net, x, weight = reference(options.shared / "reference" / f"mnist_{name}.npz")
        x = x[: options.inputs]
        basis = torch.linalg.svd(weight, full_matrices=True).Vh.T.contiguous()
        for shape, region, more in (
            ("l1", er.L1(), {}), ("ellipsoid", er.Ellipsoid(), {}), ("oblique", er.Oblique(basis), {"max_eps": 1.0}),
        ):  # fmt: skip
            for effort in options.efforts.split(","):
                told: dict[str, Any] = {**more, "effort": effort, "reach": True}
                started = time.process_time()
                certs = er.certify(net, x, region=region, **{k: v for k, v in told.items() if k in known})
                seconds = (time.process_time() - started) / len(x)
                good = certs.certified
                at = certs.x[good], certs.eps[good], certs.labels[good]
                turned = basis if shape == "oblique" else None
                left = at_vertices(net, *at) if shape == "l1" else by_descent(net, *at, turned, region.p)
                size = (certs.log_volume[good] / 784).mean()
                reach = f"{certs.reach[good].median():.3f}" if "reach" in known else "-"
                ends = f"{left.min():.2f} to {left.max():.2f}"
                print(
                    f"| {name} | {shape} | {effort} | {size:.3f} | {reach} | {ends} | {seconds:.2g} |", flush=True
                )  # fmt: skip


if __name__ == "__main__":
    main()
