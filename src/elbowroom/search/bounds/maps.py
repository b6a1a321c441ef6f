"""The linear maps of the search: one row per affine operation, looked up by its exact type.

An affine operation is `f(x) = L x + b`; the operation itself is `f`, and what the search makes of its `L` is here.
(The proof has maps of its own: nothing in here decides whether anything is certified.) Shapes leave out the leading
axis n, which is whatever is batched: inputs, or rows of coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Node
from elbowroom.network.operations import Operation, Shape
from elbowroom.search.bounds.windows import Window, cut_constant, margins

_CONV = (F.conv1d, F.conv2d, F.conv3d)
_CONV_TRANSPOSE = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


class Map:
    """What the search knows of one type of affine operation. Here: of one without offset, whose coefficients are not
    negative, and of which nothing else is known.

    `elementwise`: a number of the output is made of at most one number of the input, so that an interval maps to an
    interval exactly. `broadcasts`: where the output is larger than the input, its numbers are repeated, and move
    together.
    """

    elementwise = False
    broadcasts = False

    def linear(self, op: Any, *xs: Tensor) -> Tensor:
        """`L x`, `n x *output`."""
        found: Tensor = op(*xs)
        return found

    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        """`|L| r`: radii of intervals to radii of intervals."""
        return self.linear(op, *radii)

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        """`a @ L`, one tensor per input: coefficients over the output become coefficients over the inputs.

        `a`: `n x *output`; `shapes`: those of the inputs.
        """
        points = [a.new_zeros(a.shape[0], *s) for s in shapes]
        pull = torch.func.vjp(partial(self.linear, op), *points)[1]
        found: tuple[Tensor, ...] = pull(a)
        return found

    def reach(self, op: Any, at: Window, shape: Shape, shapes: Sequence[Shape]) -> Window | None:
        """The places of the inputs (of `shapes`) that the places `at` of the output (of `shape`) depend on; None where
        no window is known."""
        return None

    def adjoint_at(self, op: Any, a: Tensor, at: Window, below: Window, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        """The same as `adjoint`, from the places `at` of the output to the places `below`, which `reach` gave."""
        raise NotImplementedError

    def products(self, op: Any) -> int:
        """How many products each number of the output takes; moves not counted."""
        return 0

    def matrix(self, op: Any) -> Tensor | None:
        """`L` for inputs of one axis, `out x in`, where it is stored so."""
        return None


class _Linear(Map):
    def linear(self, op: Any, *xs: Tensor) -> Tensor:
        return F.linear(xs[0], op.weight)

    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        return F.linear(radii[0], op.weight.abs())

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (a @ op.weight,)

    def products(self, op: Any) -> int:
        return int(op.weight.shape[1])

    def matrix(self, op: Any) -> Tensor | None:
        weight: Tensor = op.weight
        return weight


class _Sliding(Map):
    """A window that slides over the image: convolutions and average pooling."""

    def window(self, op: Any) -> tuple[Shape, Shape, Shape]:
        """Kernel, padding and dilation."""
        raise NotImplementedError

    def _extents(self, op: Any, at: Window) -> list[slice]:
        """The places under the windows of the places `at`, those in the padding (negative ones) included."""
        return [
            slice(s.start * step - p, (s.stop - 1) * step - p + d * (k - 1) + 1)
            for s, step, k, p, d in zip(at, op.stride, *self.window(op))
        ]

    def reach(self, op: Any, at: Window, shape: Shape, shapes: Sequence[Shape]) -> Window | None:
        found = tuple(slice(max(0, s.start), min(n, s.stop)) for s, n in zip(self._extents(op, at), shapes[0][1:]))
        return found if all(s.start < s.stop for s in found) else None  # places that see the padding alone

    def adjoint_at(self, op: Any, a: Tensor, at: Window, below: Window, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        extents = self._extents(op, at)
        local = (shapes[0][0], *(s.stop - s.start for s in extents))
        (found,) = self.adjoint(replace(op, padding=(0,) * len(extents)), a, [local])
        return (F.pad(found, margins(extents, below)),)


class _Conv(_Sliding):
    def linear(self, op: Any, *xs: Tensor) -> Tensor:
        return self._apply(op, xs[0], op.weight)

    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        return self._apply(op, radii[0], op.weight.abs())

    def _apply(self, op: Any, x: Tensor, weight: Tensor) -> Tensor:
        conv = _CONV[weight.dim() - 3]
        return conv(x, weight, None, op.stride, op.padding, op.dilation, op.groups)

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        if max(op.stride) > 1 and op.groups == 1 and max(op.dilation) == 1:
            return (self._adjoint_by_phases(op, a, shapes[0]),)
        spatial, kernel = shapes[0][1:], op.weight.shape[2:]
        # Pixels at the end that no stride reaches get coefficient zero through `output_padding`.
        extra = tuple(
            n - ((o - 1) * s - 2 * p + d * (k - 1) + 1)
            for n, o, s, p, d, k in zip(spatial, a.shape[2:], op.stride, op.padding, op.dilation, kernel)
        )
        transpose = _CONV_TRANSPOSE[op.weight.dim() - 3]
        return (transpose(a, op.weight, None, op.stride, op.padding, extra, op.groups, op.dilation),)

    def _adjoint_by_phases(self, op: Any, a: Tensor, shape: Shape) -> Tensor:
        """The same as one plain convolution: on a CPU some ten times faster than a strided transposed one.

        Along an axis with stride s, input position `s u + r - padding` meets the kernel at `r + s t` only, under
        output `u - t`: for each phase r a convolution with every s-th entry of the kernel. All phases together are one
        convolution with s times the channels, whose results are then interleaved.
        """
        dims, (out, into) = len(op.stride), op.weight.shape[:2]
        lengths = [-(-k // s) for k, s in zip(op.weight.shape[2:], op.stride)]
        ends = [n for k, s, t in zip(op.weight.shape[2:], op.stride, lengths) for n in (t * s - k, 0)]
        kernel = F.pad(op.weight, ends[::-1])
        kernel = kernel.reshape(out, into, *(n for pair in zip(lengths, op.stride) for n in pair))
        steps, phases = [2 + 2 * d for d in range(dims)], [3 + 2 * d for d in range(dims)]
        kernel = kernel.flip(steps).permute(1, *phases, 0, *steps).flatten(0, dims)
        found = _CONV[dims - 1](a, kernel, None, 1, [t - 1 for t in lengths])
        places = found.shape[2:]
        found = found.reshape(len(a), into, *op.stride, *places)
        pairs = [axis for d in range(dims) for axis in (2 + dims + d, 2 + d)]
        found = found.permute(0, 1, *pairs).reshape(len(a), into, *(u * s for u, s in zip(places, op.stride)))
        # Off with the padding; positions at the end that no window reaches have coefficient zero.
        cuts = [n for have, p, want in zip(found.shape[2:], op.padding, shape[1:]) for n in (want + p - have, -p)]
        return F.pad(found, cuts[::-1])

    def window(self, op: Any) -> tuple[Shape, Shape, Shape]:
        return tuple(op.weight.shape[2:]), op.padding, op.dilation

    def products(self, op: Any) -> int:
        return int(op.weight[0].numel())


class _AvgPool(_Sliding):
    def window(self, op: Any) -> tuple[Shape, Shape, Shape]:
        return op.kernel, op.padding, (1,) * len(op.kernel)

    def reach(self, op: Any, at: Window, shape: Shape, shapes: Sequence[Shape]) -> Window | None:
        # Windows at the edge count fewer places, and no longer look like the others.
        plain = not op.ceil_mode and max(op.padding) == 0
        return super().reach(op, at, shape, shapes) if plain else None


class _BatchNorm(Map):
    elementwise = True

    def linear(self, op: Any, *xs: Tensor) -> Tensor:
        return self._times(xs[0], op.scale())

    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        return self._times(radii[0], op.scale().abs())

    def _times(self, x: Tensor, factor: Tensor) -> Tensor:
        return x * factor.reshape(1, -1, *([1] * (x.dim() - 2)))

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (self.linear(op, a),)

    def reach(self, op: Any, at: Window, shape: Shape, shapes: Sequence[Shape]) -> Window | None:
        return at

    def adjoint_at(self, op: Any, a: Tensor, at: Window, below: Window, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (self.linear(op, a),)


class _WithConstant(Map):
    """Element-wise with a constant, which broadcasts against the input from the right."""

    elementwise = True
    broadcasts = True

    def times(self, op: Any, x: Tensor, at: Window | None = None) -> Tensor:
        """`L x` where the input has the output's shape; of the places `at`, or of all."""
        raise NotImplementedError

    def linear(self, op: Any, *xs: Tensor) -> Tensor:
        return self.times(op, xs[0])

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (self.times(op, a),) if a.shape[1:] == shapes[0] else super().adjoint(op, a, shapes)

    def reach(self, op: Any, at: Window, shape: Shape, shapes: Sequence[Shape]) -> Window | None:
        return at if shapes[0] == shape else None

    def adjoint_at(self, op: Any, a: Tensor, at: Window, below: Window, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (self.times(op, a, at),)


class _Scale(_WithConstant):
    def times(self, op: Any, x: Tensor, at: Window | None = None) -> Tensor:
        return x * (op.factor if at is None else cut_constant(op.factor, at))

    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        scaled: Tensor = radii[0] * op.factor.abs()
        return scaled


class _Divide(_WithConstant):
    def times(self, op: Any, x: Tensor, at: Window | None = None) -> Tensor:
        return x / (op.divisor if at is None else cut_constant(op.divisor, at))

    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        scaled: Tensor = radii[0] / op.divisor.abs()
        return scaled


class _Shift(_WithConstant):
    def times(self, op: Any, x: Tensor, at: Window | None = None) -> Tensor:
        return x

    def linear(self, op: Any, *xs: Tensor) -> Tensor:
        return xs[0].expand(len(xs[0]), *op.output_shape(tuple(xs[0].shape[1:])))


class _Add(Map):
    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        return ops.Add(tuple(map(abs, op.signs)))(*radii)

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        if all(s == tuple(a.shape[1:]) for s in shapes):
            return tuple(a if sign == 1 else a * sign for sign in op.signs)
        return super().adjoint(op, a, shapes)

    def reach(self, op: Any, at: Window, shape: Shape, shapes: Sequence[Shape]) -> Window | None:
        return at if all(s == shape for s in shapes) else None

    def adjoint_at(self, op: Any, a: Tensor, at: Window, below: Window, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return tuple(a if sign == 1 else a * sign for sign in op.signs)


class _Concat(Map):
    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        sizes = [s[op.axis] for s in shapes]
        pieces: tuple[Tensor, ...] = a.split(sizes, dim=op.axis + 1 if op.axis >= 0 else op.axis + a.dim())
        return pieces

    def reach(self, op: Any, at: Window, shape: Shape, shapes: Sequence[Shape]) -> Window | None:
        return at if op.axis in (0, -len(shape)) else None  # channels beside channels

    def adjoint_at(self, op: Any, a: Tensor, at: Window, below: Window, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        pieces: tuple[Tensor, ...] = a.split([s[0] for s in shapes], dim=1)
        return pieces


class _Reshape(Map):
    elementwise = True

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (a.reshape(a.shape[0], *shapes[0]),)


class _Transpose(Map):
    elementwise = True

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        back = sorted(range(len(op.axes)), key=lambda d: op.axes[d])
        return (a.permute(0, *(d + 1 for d in back)),)


class _Slice(Map):
    elementwise = True


class _Pad(Map):
    elementwise = True

    def linear(self, op: Any, *xs: Tensor) -> Tensor:
        return F.pad(xs[0], op.pads)

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (F.pad(a, [-p for p in op.pads]),) if min(op.pads) >= 0 else super().adjoint(op, a, shapes)


MAPS: dict[type[Operation], Map] = {
    ops.Linear: _Linear(),
    ops.Conv: _Conv(),
    ops.AvgPool: _AvgPool(),
    ops.BatchNorm: _BatchNorm(),
    ops.Scale: _Scale(),
    ops.Divide: _Divide(),
    ops.Shift: _Shift(),
    ops.Add: _Add(),
    ops.Concat: _Concat(),
    ops.Reshape: _Reshape(),
    ops.Transpose: _Transpose(),
    ops.Slice: _Slice(),
    ops.Pad: _Pad(),
    ops.Mean: Map(),
}


def map_of(node: Node) -> Map:
    """The row of the node's operation."""
    try:
        return MAPS[type(node.op)]
    except KeyError:
        raise UnsupportedError(f"node {node.name}: the search knows no linear map of {node.op.name}") from None


__all__ = ["MAPS", "Map", "map_of"]
