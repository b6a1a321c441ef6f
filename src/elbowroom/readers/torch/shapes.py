"""ATen's operations that move values and compute nothing: shapes, axes, pieces, padding."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.readers.reading import refuse
from elbowroom.readers.torch.step import At, Step, axis_of


def same(to: Step, x: At, *_: Any, **__: Any) -> At:
    """Operations that give the values as they are, or in another floating-point type that holds them."""
    if not to.dtype.is_floating_point:
        refuse(f"a conversion to {to.dtype}")
    return x


def dropout(to: Step, x: At, p: float, train: bool) -> At:
    return x if not train or p == 0 else refuse("drops values at random; use training=self.training")


def reshape(to: Step, x: At, *_: Any) -> At:
    return x if x.shape == to.shape else to.add(ops.Reshape(to.shape), x)


def expand(to: Step, x: At, *_: Any, **__: Any) -> At:
    return x if x.shape == to.shape else refuse("repeats values")


def permute(to: Step, x: At, dims: Any) -> At:
    return to.add(ops.Transpose(tuple(axis_of(x, d) for d in dims[1:])), x)


def transpose(to: Step, x: At, a: int, b: int) -> At:
    axes = list(range(len(x.shape)))
    i, j = axis_of(x, a), axis_of(x, b)
    if i != j:
        axes[i], axes[j] = j, i
    return to.add(ops.Transpose(tuple(axes)), x)


def _piece(to: Step, x: At, axis: int, start: int, stop: int, step: int = 1) -> At:
    if start >= stop:
        refuse("an empty piece")
    return x if (start, stop, step) == (0, x.shape[axis], 1) else to.add(ops.Slice(axis, start, stop, step), x)


def slice_(to: Step, x: At, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> At:
    axis = axis_of(x, dim)
    # A slice of the batch that keeps its size keeps all of it.
    return x if axis < 0 else _piece(to, x, axis, *slice(start, end, step).indices(x.shape[axis]))


def select(to: Step, x: At, dim: int, index: int) -> At:
    axis = axis_of(x, dim)
    index %= x.shape[axis]
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return to.add(ops.Reshape(shape), _piece(to, x, axis, index, index + 1))


def split(to: Step, x: At, _: Any, dim: int = 0) -> tuple[At, ...]:
    axis = axis_of(x, dim)
    if axis < 0:
        refuse("splits the batch")
    ends = list(itertools.accumulate(part.shape[axis + 1] for part in to.node.meta["val"]))
    return tuple(_piece(to, x, axis, start, end) for start, end in itertools.pairwise([0, *ends]))


def unbind(to: Step, x: At, dim: int = 0) -> tuple[At, ...]:
    if axis_of(x, dim) < 0:
        refuse("splits the batch")
    return tuple(select(to, x, dim, i) for i in range(x.shape[axis_of(x, dim)]))


def pick(to: Step, x: At, dim: int, index: Any) -> At:
    """The entries of one axis with these numbers, in this order."""
    axis = axis_of(x, dim)
    fixed = isinstance(index, Tensor) and index.dtype in (torch.int64, torch.int32)
    if not fixed or axis < 0 or index.dim() > 1 or index.numel() == 0:
        refuse("picks nothing, or by a mask, by computed positions, along several axes, or from the batch")
    n, found = x.shape[axis], index.reshape(-1).tolist()
    weight = torch.zeros(len(found), n, dtype=to.dtype if to.dtype.is_floating_point else torch.float32)
    weight[range(len(found)), [k % n for k in found]] = 1
    axes = list(range(len(x.shape)))
    axes[axis], axes[-1] = axes[-1], axes[axis]
    if axis < len(x.shape) - 1:
        x = to.add(ops.Transpose(tuple(axes)), x)
    x = to.add(ops.Linear(weight), x)
    x = to.add(ops.Transpose(tuple(axes)), x) if axis < len(axes) - 1 else x
    return reshape(to, x)  # a single position drops its axis


def index(to: Step, x: At, indices: Any) -> At:
    given = [dim for dim, index in enumerate(indices) if index is not None]
    return pick(to, x, given[0] if len(given) == 1 else 0, indices[given[0]])


def flip(to: Step, x: At, dims: Any) -> At:
    for dim in dims:
        x = pick(to, x, dim, torch.arange(x.shape[axis_of(x, dim)]).flip(0))
    return x


def getitem(to: Step, values: Any, index: int) -> At:
    value: At | None = values[index]
    return value if value is not None else refuse("uses positions or statistics, not values")


def cat(to: Step, xs: Any, dim: int = 0) -> At:
    if not all(isinstance(x, At) for x in xs):
        refuse("joins constants with computed values")
    return to.add(ops.Concat(axis_of(xs[0], dim)), *xs)


def stack(to: Step, xs: Any, dim: int = 0) -> At:
    axis = dim % len(to.node.meta["val"].shape) - 1
    shape = (*to.shape[:axis], 1, *to.shape[axis + 1 :])
    return to.add(ops.Concat(axis), *(to.add(ops.Reshape(shape), x) for x in xs))


def pad(to: Step, x: At, pads: Any, mode: str = "constant", value: float | None = None) -> At:
    if mode != "constant":
        refuse(f"padding mode {mode!r}; only constant padding is supported")
    pads, batch, value = tuple(pads[: 2 * len(x.shape)]), pads[2 * len(x.shape) :], to.number(value or 0)
    if any(batch) or not math.isfinite(value):
        refuse("pads the batch axis, or with infinite values")
    return to.add(ops.Pad(pads, value), x) if any(pads) else x
