"""What the proof knows of each affine operation `f(x_1, ..., x_k) = L (x_1, ..., x_k) + b`: one row per type.

The operation itself says what it computes (`op(*xs)`); everything else is the proof's own: how many numbers are added
up, the transpose `a @ L`, the map with absolute coefficients `|L| r`, and the size of the offset. The search has maps
of its own, and neither sees the other's. `selfcheck` holds these to the forward pass, once per network.

Rows are looked up by exact type: of a subclass nothing is known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.operations import Shape
from elbowroom.proof.kernel.rounding import ETA, SAFE, U

_CONV = (F.conv1d, F.conv2d, F.conv3d)
_PART = 1 << 17  # numbers of a matrix at a time
_INSIDE = (1e-290, 1e290)  # where derived factors keep to relative errors


@dataclass(frozen=True)
class Terms:
    """`forward`, `back`: how many roundings lie behind one output of `f(x)` and of `a @ L`; 0 if exact.

    Neither is less than the number of products behind that output, each of which may underflow.
    """

    forward: int
    back: int


class AffineRow:
    """One affine operation. `shape`: of the output, `shapes`: of the inputs, both without the leading axis."""

    def unfit(self, op: Any) -> str | None:
        """Why the analysis does not cover these numbers."""
        return None

    def terms(self, op: Any, shape: Shape, shapes: Sequence[Shape]) -> Terms:
        """Counts of roundings, generously: products, sums, the offset, and roundings of derived constants."""
        raise NotImplementedError

    def back(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        """`a @ L`, one tensor per input; `a`: `n x *shape`. Direct sums only: a library may choose transforms
        (Winograd, FFT), whose rounding is another matter."""
        raise NotImplementedError

    def sizes(self, op: Any, *radii: Tensor) -> Tensor:
        """`|L| r`: the largest size of `L x` where `|x| <= r`, entry by entry. Nothing of it is negative."""
        raise NotImplementedError

    def offset_size(self, op: Any, like: Tensor) -> Tensor | None:
        """The size of everything that is added besides `L x`, to broadcast against `like`, `n x *shape`: what the
        forward pass rounds with it. None where there is no offset."""
        return None

    def offset_error(self, op: Any, size: Tensor) -> Tensor:
        """How far the computed `f(0)` may be from the true one; `size`: see `offset_size`."""
        return torch.zeros_like(size)

    def keeps_apart(self, op: Any, shape: Shape, shapes: Sequence[Shape]) -> bool:
        """Whether every output depends on one entry of one input at most, and no two on the same."""
        return False


# --- sums of products


def _channels(t: Tensor, like: Tensor) -> Tensor:
    """A vector over the first axis, to broadcast against `n x c x ...`."""
    return t.reshape(1, -1, *[1] * (like.dim() - 2))


def _in_turn(parts: Sequence[Tensor], dtype: torch.dtype) -> Iterator[Tensor]:
    """Copies of parts of a matrix, the first the largest, in a type as wide as theirs or wider, one after the other in
    one place: each is gone with the next."""
    place = parts[0].new_empty(parts[0].numel(), dtype=dtype)
    for part in parts:
        yield place[: part.numel()].view(part.shape).copy_(part)


class _Linear(AffineRow):
    def terms(self, op: ops.Linear, shape: Shape, shapes: Sequence[Shape]) -> Terms:
        out, into = op.weight.shape
        return Terms(into + 2, out + 1)

    def back(self, op: ops.Linear, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        if not op.is_long:
            return (a @ op.weight,)
        # Some columns at a time: it may be stored in a narrower type, and is widened on the way, which is exact.
        parts = op.weight.split(max(1, _PART // op.weight.shape[0]), 1)
        return (torch.cat([a @ part for part in _in_turn(parts, a.dtype)], -1),)

    def sizes(self, op: ops.Linear, *radii: Tensor) -> Tensor:
        # Some rows at a time: of a large matrix no second one is written.
        parts = op.weight.split(max(1, _PART // op.weight.shape[1]))
        return torch.cat([radii[0] @ part.abs_().T for part in _in_turn(parts, radii[0].dtype)], -1)

    def offset_size(self, op: ops.Linear, like: Tensor) -> Tensor | None:
        return None if op.bias is None else op.bias.abs()


class _Conv(AffineRow):
    def terms(self, op: ops.Conv, shape: Shape, shapes: Sequence[Shape]) -> Terms:
        window = math.prod(op.weight.shape[2:])
        return Terms(op.weight.shape[1] * window + 2, op.weight.shape[0] // op.groups * window + 1)

    def back(self, op: ops.Conv, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        # Output q meets the input at stride q + dilation k - padding through the kernel's entry k.
        per_group, into = len(op.weight) // op.groups, shapes[0][0]
        if a.dim() == 4:
            # Images: all entries of the kernel in one product, whose columns `fold` adds up.
            kernels = op.weight.reshape(op.groups, per_group, -1).transpose(1, 2)
            columns = (kernels @ a.reshape(len(a), op.groups, per_group, math.prod(a.shape[2:]))).flatten(1, 2)
            return (F.fold(columns, shapes[0][1:], op.weight.shape[2:], op.dilation, op.padding, op.stride),)
        # Others: channels last, so that every entry of the kernel is one product.
        rows = a.movedim(1, -1).reshape(len(a), math.prod(a.shape[2:]), op.groups, per_group).transpose(1, 2)
        kernel = op.weight.movedim((0, 1), (-2, -1))

        def part(k: tuple[int, ...]) -> Tensor:
            entry = kernel[k].reshape(op.groups, per_group, op.weight.shape[1])
            return (rows @ entry).transpose(1, 2).reshape(len(a), *a.shape[2:], into)

        found = _gathered(part, a, op.weight.shape[2:], op.stride, op.padding, op.dilation, shapes[0])
        return (found.movedim(-1, 1),)

    def sizes(self, op: ops.Conv, *radii: Tensor) -> Tensor:
        conv = _CONV[op.weight.dim() - 3]
        return conv(radii[0], op.weight.abs(), None, op.stride, op.padding, op.dilation, op.groups)

    def offset_size(self, op: ops.Conv, like: Tensor) -> Tensor | None:
        return None if op.bias is None else _channels(op.bias.abs(), like)


def _gathered(
    part: Any, a: Tensor, kernel: Sequence[int], stride: Shape, padding: Shape, dilation: Shape, shape: Shape
) -> Tensor:
    """Sums over the entries k of a window what `part(k)`, `n x *outputs x c`, brings to the places under it:
    `n x *places x c`, the padding cut off."""
    starts = [tuple(range(n)) for n in kernel]
    ends = [max(p + n, d * (k - 1) + s * (o - 1) + 1 - p) + p for p, n, d, k, s, o in zip(
        padding, shape[1:], dilation, kernel, stride, a.shape[2:])]  # fmt: skip
    found = a.new_zeros(len(a), *ends, shape[0])
    for k in itertools.product(*starts):
        at = tuple(slice(d * i, d * i + s * (o - 1) + 1, s) for i, d, s, o in zip(k, dilation, stride, a.shape[2:]))
        found[(slice(None), *at)] += part(k)
    inside = tuple(slice(p, p + n) for p, n in zip(padding, shape[1:]))
    return found[(slice(None), *inside)]


class _BatchNorm(AffineRow):
    def _factor(self, op: ops.BatchNorm) -> Tensor:
        factor = torch.rsqrt(op.var + op.eps)
        return factor if op.weight is None else factor * op.weight

    def unfit(self, op: ops.BatchNorm) -> str | None:
        # The factor is derived, with relative errors only: none of its steps may leave float64's range.
        wide = op.map_tensors(lambda t: t.double())
        assert isinstance(wide, ops.BatchNorm)
        inside, factor = wide.var + wide.eps, self._factor(wide)
        weight = torch.ones_like(factor) if wide.weight is None else wide.weight
        good = (inside > _INSIDE[0]) & (inside < _INSIDE[1]) & ((factor.abs() > _INSIDE[0]) | (weight == 0))
        return None if bool(good.all()) else "BatchNorm's variance plus eps, or its factor, is too small or too large"

    def terms(self, op: ops.BatchNorm, shape: Shape, shapes: Sequence[Shape]) -> Terms:
        return Terms(16, 12)  # variance plus eps, root, quotient, weight, mean, product, bias

    def back(self, op: ops.BatchNorm, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (a * _channels(self._factor(op), a),)

    def sizes(self, op: ops.BatchNorm, *radii: Tensor) -> Tensor:
        return radii[0] * _channels(self._factor(op).abs(), radii[0])

    def offset_size(self, op: ops.BatchNorm, like: Tensor) -> Tensor | None:
        size = op.mean.abs() * self._factor(op).abs()
        return _channels(size if op.bias is None else size + op.bias.abs(), like)

    def offset_error(self, op: ops.BatchNorm, size: Tensor) -> Tensor:
        return 16 * U * SAFE * size + 2 * ETA

    def keeps_apart(self, op: ops.BatchNorm, shape: Shape, shapes: Sequence[Shape]) -> bool:
        return True


# --- a constant for every entry


def _summed_to(a: Tensor, shape: Shape) -> Tensor:
    """The transpose of a broadcast from `shape`: adds up what was spread out. `a`: `n x ...`."""
    extra = a.dim() - 1 - len(shape)
    a = a.sum(dim=tuple(range(1, 1 + extra))) if extra else a
    spread = [1 + d for d, n in enumerate(shape) if n == 1 and a.shape[1 + d] != 1]
    return a.sum(dim=spread, keepdim=True) if spread else a


def _spread(sizes: Tensor, shape: Shape) -> Tensor:
    """Broadcast from the right to `n x *shape`."""
    lead = [1] * (len(shape) - (sizes.dim() - 1))
    return sizes.reshape(len(sizes), *lead, *sizes.shape[1:]).expand(len(sizes), *shape)


class _WithConstant(AffineRow):
    def terms(self, op: Any, shape: Shape, shapes: Sequence[Shape]) -> Terms:
        return Terms(2, math.prod(shape) // max(1, math.prod(shapes[0])) + 1)  # what was spread out is added up

    def keeps_apart(self, op: Any, shape: Shape, shapes: Sequence[Shape]) -> bool:
        return math.prod(shape) == math.prod(shapes[0])  # more: some entries are repeated


class _Scale(_WithConstant):
    def back(self, op: ops.Scale, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (_summed_to(a * op.factor, shapes[0]),)

    def sizes(self, op: ops.Scale, *radii: Tensor) -> Tensor:
        return radii[0] * op.factor.abs()


class _Divide(_WithConstant):
    def back(self, op: ops.Divide, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (_summed_to(a / op.divisor, shapes[0]),)

    def sizes(self, op: ops.Divide, *radii: Tensor) -> Tensor:
        return radii[0] / op.divisor.abs()


class _Shift(_WithConstant):
    def back(self, op: ops.Shift, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (_summed_to(a, shapes[0]),)

    def sizes(self, op: ops.Shift, *radii: Tensor) -> Tensor:
        return _spread(radii[0], tuple(torch.broadcast_shapes(radii[0].shape[1:], op.offset.shape)))

    def offset_size(self, op: ops.Shift, like: Tensor) -> Tensor | None:
        return op.offset.abs()


class _Add(AffineRow):
    def terms(self, op: ops.Add, shape: Shape, shapes: Sequence[Shape]) -> Terms:
        spread = max(math.prod(shape) // max(1, math.prod(s)) for s in shapes)
        return Terms(2 * len(op.signs), spread + 2)

    def back(self, op: ops.Add, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return tuple(_summed_to(a if sign == 1 else a * sign, s) for sign, s in zip(op.signs, shapes))

    def sizes(self, op: ops.Add, *radii: Tensor) -> Tensor:
        shape = tuple(torch.broadcast_shapes(*(r.shape[1:] for r in radii)))
        total = torch.zeros((), dtype=radii[0].dtype, device=radii[0].device)
        for sign, r in zip(op.signs, radii):
            total = total + abs(sign) * _spread(r, shape)
        return total


# --- averages


class _Mean(AffineRow):
    def _count(self, op: ops.Mean, shape: Shape) -> int:
        return math.prod(shape[d] for d in op.axes)

    def terms(self, op: ops.Mean, shape: Shape, shapes: Sequence[Shape]) -> Terms:
        return Terms(self._count(op, shapes[0]) + 4, 4)

    def back(self, op: ops.Mean, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        kept = [1 if d in op.axes else n for d, n in enumerate(shapes[0])]
        return ((a / self._count(op, shapes[0])).reshape(len(a), *kept).expand(len(a), *shapes[0]),)

    def sizes(self, op: ops.Mean, *radii: Tensor) -> Tensor:
        return op(radii[0])  # no coefficient is negative


class _AvgPool(AffineRow):
    def _divisor(self, op: ops.AvgPool, outputs: Shape, shape: Shape, like: Tensor) -> Tensor:
        """What the sum under each output's window is divided by, `*outputs`; a window ends at the padding's edge."""
        found = like.new_ones(())
        for o, n, k, s, p in zip(outputs, shape[1:], op.kernel, op.stride, op.padding):
            first = torch.arange(o, device=like.device) * s - p
            last = (first + k).clamp_max(n + p)
            if not op.count_include_pad:
                first, last = first.clamp_min(0), last.clamp_max(n)
            found = found[..., None] * (last - first).to(like.dtype)
        return found

    def terms(self, op: ops.AvgPool, shape: Shape, shapes: Sequence[Shape]) -> Terms:
        window = math.prod(op.kernel)
        return Terms(window + 4, window + 4)

    def back(self, op: ops.AvgPool, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        share = (a / self._divisor(op, tuple(a.shape[2:]), shapes[0], a)).movedim(1, -1)
        one = (1,) * len(op.kernel)
        found = _gathered(lambda k: share, a, op.kernel, op.stride, op.padding, one, shapes[0])
        return (found.movedim(-1, 1),)

    def sizes(self, op: ops.AvgPool, *radii: Tensor) -> Tensor:
        return op(radii[0])


# --- operations that only move numbers about


class _Move(AffineRow):
    def terms(self, op: Any, shape: Shape, shapes: Sequence[Shape]) -> Terms:
        return Terms(0, 0)

    def sizes(self, op: Any, *radii: Tensor) -> Tensor:
        found: Tensor = op(*radii)
        return found

    def keeps_apart(self, op: Any, shape: Shape, shapes: Sequence[Shape]) -> bool:
        return len(shapes) == 1


class _Reshape(_Move):
    def back(self, op: ops.Reshape, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (a.reshape(len(a), *shapes[0]),)


class _Transpose(_Move):
    def back(self, op: ops.Transpose, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        found = a.new_empty(len(a), *shapes[0])
        found.permute(0, *(d + 1 for d in op.axes)).copy_(a)
        return (found,)


class _Slice(_Move):
    def back(self, op: ops.Slice, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        found = a.new_zeros(len(a), *shapes[0])
        found[(slice(None),) * (op.axis + 1) + (slice(op.start, op.stop, op.step),)] = a
        return (found,)


class _Pad(_Move):
    def back(self, op: ops.Pad, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (F.pad(a, [-p for p in op.pads]),)  # what was padded is cut off, what was cut off had no say

    def sizes(self, op: ops.Pad, *radii: Tensor) -> Tensor:
        return F.pad(radii[0], op.pads)

    def offset_size(self, op: ops.Pad, like: Tensor) -> Tensor | None:
        return like.new_full((), abs(op.value)) if op.value else None


class _Concat(_Move):
    def back(self, op: ops.Concat, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        axis = op.axis % len(shapes[0])
        pieces: tuple[Tensor, ...] = a.split([s[axis] for s in shapes], dim=1 + axis)
        return pieces


AFFINE: dict[type[ops.Operation], AffineRow] = {
    ops.Linear: _Linear(),
    ops.Conv: _Conv(),
    ops.BatchNorm: _BatchNorm(),
    ops.Scale: _Scale(),
    ops.Divide: _Divide(),
    ops.Shift: _Shift(),
    ops.Add: _Add(),
    ops.Mean: _Mean(),
    ops.AvgPool: _AvgPool(),
    ops.Reshape: _Reshape(),
    ops.Transpose: _Transpose(),
    ops.Slice: _Slice(),
    ops.Pad: _Pad(),
    ops.Concat: _Concat(),
}


def offset(op: ops.Operation, shape: Shape, shapes: Sequence[Shape], like: Tensor) -> tuple[Tensor, Tensor] | None:
    """`f(0)` and a bound on its error, `1 x *shape` each; None where it is zero. `like`: for type and place."""
    row = AFFINE[type(op)]
    size = row.offset_size(op, like.new_empty(1, *shape))
    if size is None:
        return None
    value = op(*(like.new_zeros(1, *s) for s in shapes))
    return value, row.offset_error(op, size).expand_as(value)


def size_of_offset(op: ops.Operation, like: Tensor) -> Tensor:
    """`AffineRow.offset_size`, zero where there is none."""
    found = AFFINE[type(op)].offset_size(op, like)
    return like.new_zeros(()) if found is None else found
