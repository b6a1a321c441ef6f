"""How a network is compared with the model it was read from: at which inputs, in which batches, and how closely.

A comparison shows that both give the same at these inputs, in batches of these sizes. It does not show that they do
elsewhere: a model that decides by its input's values, or by batches of a hundred, may still be another function than
the network. That it is not rests on the reader, which refuses what it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Node
from elbowroom.network.operations import Operation, Shape

SCALES = (0.01, 1.0, 100.0)
SIZES = (1, 2, 3)  # of batches
MOST_WORK = 1 << 37  # multiplications in all: some 20 seconds in float64 on one core
MOST_NUMBERS = 1 << 28  # held at a time, in float64: 2 GiB

# Functions that bend have sizes of their own: e^x - 1 is computed with the digits of 1.
_BENDS = (ops.Sigmoid, ops.Tanh, ops.Arctan, ops.ELU, ops.Softplus, ops.SiLU, ops.GELU)


@dataclass(frozen=True)
class Tolerance:
    """What rounding may cost: a share of the result, one of the numbers that it was computed from, and a number that
    is next to nothing in the type that rounds."""

    result: float
    on_the_way: float
    underflow: float


# In float64, with the same constants on both sides. Rounding is some 1e-15 of the largest number; a constant rounded
# to half precision or to float32 is seen.
EXACT = Tolerance(1e-9, 1e-12, 2.0**-1000)
# In float64, where constants have been rounded to float32: anywhere on the way, or in one operation.
ROUNDED = Tolerance(1e-5, 1e-6, 2.0**-120)
ONE_ROUNDED = Tolerance(2.0**-22, 2.0**-22, 2.0**-120)
# In the model's own type: units of roundoff, many for the long sums of wide and deep networks.
OWN = {
    torch.float64: EXACT,
    torch.float32: Tolerance(2.0**-15, 2.0**-15, 2.0**-120),
    torch.float16: Tolerance(2.0**-5, 2.0**-5, 2.0**-16),
    torch.bfloat16: Tolerance(2.0**-2, 2.0**-2, 2.0**-120),
}


def inputs(shape: Shape, count: int = 4) -> Tensor:
    """Inputs to compare at, `count x *shape`, the same ones every time: of all scales in turn, each fourth mostly 0."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, *shape, generator=generator, dtype=torch.float64)
    kept = torch.rand(count, *shape, generator=generator, dtype=torch.float64) < 0.2
    for i, scale in enumerate(SCALES):
        x[i :: len(SCALES) + 1] *= scale
    x[len(SCALES) :: len(SCALES) + 1] *= kept[len(SCALES) :: len(SCALES) + 1]
    return x


def batches(count: int, size: int | None = None) -> list[list[int]]:
    """How `count` inputs, by number, are put together in batches: of all `SIZES` they fill, or of the only `size`.

    Some inputs appear alone, beside others, beside others again, and at several places.
    """
    if size is None:
        found = [[i] for i in range(min(count, 3))]
        if count > 1:
            found += [[0, 1], [1, count - 1]]
        return found + [list(range(start, start + 3)) for start in range(0, count - 2, 3)]
    found = [[(start + i) % count for i in range(size)] for start in range(0, count, size)]
    return [*found, [0, *((i + 1) % count for i in range(1, size))]] if size > 1 else found


def size(op: Operation, sizes: Sequence[Tensor], y: Tensor) -> Tensor:
    """How large the numbers are that each entry of `y = op(...)` was computed from, partial sums included, like `y`.

    `sizes`: the same of the inputs. An entry's rounding is a few units of roundoff of its own size: one entry that is
    huge (a mask, say) excuses no other.
    """
    if isinstance(op, ops.Affine):
        way = _absolute(op)(*sizes)
    elif isinstance(op, ops.MaxPool):
        way = op(*sizes)
    else:
        steepest = torch.as_tensor(getattr(op, "slope", 1.0)).abs().clamp_min(1.25)  # GELU's is 1.13
        way = sizes[0] * torch.clamp_min(steepest, float(getattr(op, "alpha", 1.0)))
    if isinstance(op, _BENDS):
        way = way + (op.alpha if isinstance(op, ops.ELU) else 1 / op.beta if isinstance(op, ops.Softplus) else 1.0)
    return torch.maximum(way, y.abs())


def _absolute(op: Operation) -> Operation:
    """The affine operation with absolute parameters, which adds up sizes: every coefficient is a product of them."""
    if type(op) is ops.Add:
        return ops.Add(tuple(map(abs, op.signs)))
    if type(op) is ops.Pad:
        return ops.Pad(op.pads, abs(op.value))
    if type(op) is ops.BatchNorm:  # which subtracts its mean
        positive = op.map_tensors(lambda t: t.abs())
        assert isinstance(positive, ops.BatchNorm)
        return replace(positive, mean=-positive.mean)
    return op.map_tensors(lambda t: t.abs())


def difference(found: Tensor, expected: Tensor) -> Tensor:
    """By how much each entry differs; infinite where one is NaN or infinite and not the other."""
    same = (found == expected) | (found.isnan() & expected.isnan())
    gap = torch.where(same, 0.0, found - expected).abs()
    return torch.where(gap.isnan(), math.inf, gap)


def allowed(expected: Tensor, way: Tensor, tolerance: Tolerance) -> Tensor:
    """What two results may differ by, entry by entry; `way`: the size of what they were computed from."""
    own, way = (torch.nan_to_num(t, 0.0, 0.0, 0.0).abs() for t in (expected, way))
    return tolerance.result * own + tolerance.on_the_way * way + tolerance.underflow


def work(nodes: Sequence[Node]) -> int:
    """Multiplications for one input, and numbers that are written."""
    return sum(node.size * (1 + _terms(node.op)) for node in nodes)


def _terms(op: Operation) -> int:
    return math.prod(op.weight.shape[1:]) if isinstance(op, ops.Linear | ops.Conv) else 0


__all__ = [
    "EXACT", "MOST_NUMBERS", "MOST_WORK", "ONE_ROUNDED", "OWN", "ROUNDED", "SCALES", "SIZES", "Tolerance", "allowed",
    "batches", "difference", "inputs", "size", "work",
]  # fmt: skip
