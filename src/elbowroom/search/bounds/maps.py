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
from elbowroom.search.bounds.absolute import absolute_product
from elbowroom.search.bounds.coefficients import (
    Geometry,
    Patch,
    channels_last,
    cleaned,
    images_of,
    laid_out,
    windows,
)  # fmt: skip
from elbowroom.search.bounds.phases import is_faster_plain, transposed

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

    def reach(self, op: Any, at: Geometry, shape: Shape, shapes: Sequence[Shape]) -> Geometry | None:
        """The windows over the inputs (of `shapes`) that windows `at` over the output (of `shape`) depend on; None
        where they are not known."""
        return None

    def adjoint_at(self, op: Any, c: Patch, shape: Shape, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        """The same as `adjoint` over windows, `c` of the output: numbers over those of the inputs that `reach`
        gives."""
        raise NotImplementedError

    def linear_at(self, op: Any, xs: Sequence[Tensor], c: Patch, shape: Shape) -> Tensor:
        """The same as `linear` over windows: `xs` over those that `reach` gives (zero outside of the inputs), to
        numbers over those of `c`, of which only the places count."""
        raise NotImplementedError

    def matrix(self, op: Any) -> Tensor | None:
        """`L` for inputs of one axis, `out x in`, where it is stored so."""
        return None


class _Linear(Map):
    def linear(self, op: Any, *xs: Tensor) -> Tensor:
        return F.linear(xs[0], op.weight)

    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        return absolute_product(radii[0], op.weight)

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (a @ op.weight,)

    def matrix(self, op: Any) -> Tensor | None:
        weight: Tensor = op.weight
        return weight


class _Sliding(Map):
    """A window that slides over the image: convolutions and average pooling."""

    def window(self, op: Any) -> tuple[Shape, Shape, Shape]:
        """Kernel, padding and dilation."""
        raise NotImplementedError

    def reach(self, op: Any, at: Geometry, shape: Shape, shapes: Sequence[Shape]) -> Geometry | None:
        kernel, padding, dilation = self.window(op)
        return Geometry(
            tuple(step * s for step, s in zip(at.step, op.stride)),
            tuple(shift * s - p for shift, s, p in zip(at.shift, op.stride, padding)),
            tuple((n - 1) * s + d * (k - 1) + 1 for n, s, k, d in zip(at.size, op.stride, kernel, dilation)),
        )

    def adjoint_at(self, op: Any, c: Patch, shape: Shape, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        reached = self.reach(op, c.at, shape, shapes)
        assert reached is not None
        local = (shapes[0][0], *reached.size)
        (found,) = self.adjoint(_unpadded(op), images_of(cleaned(c, shape[1:])), [local])
        return (channels_last(found, c.a.shape[:2]),)

    def linear_at(self, op: Any, xs: Sequence[Tensor], c: Patch, shape: Shape) -> Tensor:
        return channels_last(self.linear(_unpadded(op), laid_out(images_of(xs[0]))), xs[0].shape[:2])


def _unpadded(op: Any) -> Any:
    return op if max(op.padding) == 0 else replace(op, padding=(0,) * len(op.padding))


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
        if is_faster_plain(op, a) and all(p < k for p, k in zip(op.padding, op.weight.shape[2:])):
            return (self._plain(op, a, op.padding),)
        spatial, kernel = shapes[0][1:], op.weight.shape[2:]
        # Pixels at the end that no stride reaches get coefficient zero through `output_padding`.
        extra = tuple(
            n - ((o - 1) * s - 2 * p + d * (k - 1) + 1)
            for n, o, s, p, d, k in zip(spatial, a.shape[2:], op.stride, op.padding, op.dilation, kernel)
        )
        transpose = _CONV_TRANSPOSE[op.weight.dim() - 3]
        return (transpose(a, op.weight, None, op.stride, op.padding, extra, op.groups, op.dilation),)

    def _by_phases(self, op: Any, a: Tensor) -> Tensor:
        """The transposed convolution as one plain convolution, see `phases`: on a CPU some ten times faster where there
        are strides. `n x *phases x c x *places`, to be interleaved."""
        dims, into = len(op.stride), op.weight.shape[1]
        if max(op.stride) > 1 or is_faster_plain(op, a):
            found = self._plain(op, a, (0,) * dims)
        else:
            found = _CONV_TRANSPOSE[dims - 1](a, op.weight)
        return found.reshape(len(a), *op.stride, into, *found.shape[2:])

    def _plain(self, op: Any, a: Tensor, padding: Shape) -> Tensor:
        kernel = transposed(op)
        return _CONV[a.dim() - 3](a, kernel, None, 1, [t - 1 - p for t, p in zip(kernel.shape[2:], padding)])

    def _adjoint_by_phases(self, op: Any, a: Tensor, shape: Shape) -> Tensor:
        found, dims = self._by_phases(op, a), len(op.stride)
        pairs = [axis for d in range(dims) for axis in (2 + dims + d, 1 + d)]
        whole = [u * s for u, s in zip(found.shape[2 + dims :], op.stride)]
        found = found.permute(0, 1 + dims, *pairs).reshape(len(a), shape[0], *whole)
        # Off with the padding; positions at the end that no window reaches have coefficient zero.
        cuts = [n for have, p, want in zip(found.shape[2:], op.padding, shape[1:]) for n in (want + p - have, -p)]
        return F.pad(found, cuts[::-1])

    def adjoint_at(self, op: Any, c: Patch, shape: Shape, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        if op.groups > 1 or max(op.dilation) > 1:
            return super().adjoint_at(op, c, shape, shapes)
        dims = len(op.stride)
        found = self._by_phases(op, laid_out(images_of(cleaned(c, shape[1:]))))
        pairs = [axis for d in range(dims) for axis in (2 + dims + d, 1 + d)]
        whole = [u * s for u, s in zip(found.shape[2 + dims :], op.stride)]
        found = found.permute(0, *pairs, 1 + dims).reshape(*c.a.shape[:2], *whole, shapes[0][0])
        reached = self.reach(op, c.at, shape, shapes)
        assert reached is not None
        return (found[(slice(None), slice(None), *(slice(n) for n in reached.size))],)

    def window(self, op: Any) -> tuple[Shape, Shape, Shape]:
        return tuple(op.weight.shape[2:]), op.padding, op.dilation


class _AvgPool(_Sliding):
    def window(self, op: Any) -> tuple[Shape, Shape, Shape]:
        return op.kernel, op.padding, (1,) * len(op.kernel)

    def reach(self, op: Any, at: Geometry, shape: Shape, shapes: Sequence[Shape]) -> Geometry | None:
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

    def reach(self, op: Any, at: Geometry, shape: Shape, shapes: Sequence[Shape]) -> Geometry | None:
        return at

    def adjoint_at(self, op: Any, c: Patch, shape: Shape, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        return (c.a * op.scale(),)

    def linear_at(self, op: Any, xs: Sequence[Tensor], c: Patch, shape: Shape) -> Tensor:
        scaled: Tensor = xs[0] * op.scale()
        return scaled


class _WithConstant(Map):
    """Element-wise with a constant, which broadcasts against the input from the right."""

    elementwise = True
    broadcasts = True

    def factor(self, op: Any) -> Tensor | None:
        """What the input is multiplied by; None where it stays as it is."""
        raise NotImplementedError

    def times(self, op: Any, x: Tensor) -> Tensor:
        """`L x` where the input has the output's shape."""
        factor = self.factor(op)
        return x if factor is None else x * factor

    def linear(self, op: Any, *xs: Tensor) -> Tensor:
        return self.times(op, xs[0])

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (self.times(op, a),) if a.shape[1:] == shapes[0] else super().adjoint(op, a, shapes)

    def reach(self, op: Any, at: Geometry, shape: Shape, shapes: Sequence[Shape]) -> Geometry | None:
        return at if shapes[0] == shape else None

    def adjoint_at(self, op: Any, c: Patch, shape: Shape, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        return (self.linear_at(op, [c.a], c, shape),)

    def linear_at(self, op: Any, xs: Sequence[Tensor], c: Patch, shape: Shape) -> Tensor:
        factor = self.factor(op)
        if factor is None:
            return xs[0]
        return xs[0] * windows(factor.expand(len(c.place), *shape), c.place, c.at)


class _Scale(_WithConstant):
    def factor(self, op: Any) -> Tensor | None:
        factor: Tensor = op.factor
        return factor

    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        scaled: Tensor = radii[0] * op.factor.abs()
        return scaled


class _Divide(_WithConstant):
    def factor(self, op: Any) -> Tensor | None:
        factor: Tensor = 1 / op.divisor
        return factor

    def times(self, op: Any, x: Tensor) -> Tensor:
        scaled: Tensor = x / op.divisor
        return scaled

    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        scaled: Tensor = radii[0] / op.divisor.abs()
        return scaled


class _Shift(_WithConstant):
    def factor(self, op: Any) -> Tensor | None:
        return None

    def linear(self, op: Any, *xs: Tensor) -> Tensor:
        return xs[0].expand(len(xs[0]), *op.output_shape(tuple(xs[0].shape[1:])))


class _Add(Map):
    def absolute(self, op: Any, *radii: Tensor) -> Tensor:
        return ops.Add(tuple(map(abs, op.signs)))(*radii)

    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        if all(s == tuple(a.shape[1:]) for s in shapes):
            return tuple(a if sign == 1 else a * sign for sign in op.signs)
        return super().adjoint(op, a, shapes)

    def reach(self, op: Any, at: Geometry, shape: Shape, shapes: Sequence[Shape]) -> Geometry | None:
        return at if all(s == shape for s in shapes) else None

    def adjoint_at(self, op: Any, c: Patch, shape: Shape, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        return [c.a if sign == 1 else c.a * sign for sign in op.signs]

    def linear_at(self, op: Any, xs: Sequence[Tensor], c: Patch, shape: Shape) -> Tensor:
        found: Tensor = op(*xs)
        return found


class _Concat(Map):
    def adjoint(self, op: Any, a: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        sizes = [s[op.axis] for s in shapes]
        pieces: tuple[Tensor, ...] = a.split(sizes, dim=op.axis + 1 if op.axis >= 0 else op.axis + a.dim())
        return pieces

    def reach(self, op: Any, at: Geometry, shape: Shape, shapes: Sequence[Shape]) -> Geometry | None:
        return at if op.axis in (0, -len(shape)) else None  # channels beside channels

    def adjoint_at(self, op: Any, c: Patch, shape: Shape, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        pieces: Sequence[Tensor] = c.a.split([s[0] for s in shapes], dim=-1)
        return pieces

    def linear_at(self, op: Any, xs: Sequence[Tensor], c: Patch, shape: Shape) -> Tensor:
        return torch.cat(list(xs), -1)


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
