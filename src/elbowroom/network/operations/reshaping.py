"""Operations that move entries and compute nothing: shapes, axes, pieces, padding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network.operations.base import Affine, Shape, finite, within


@dataclass(frozen=True, eq=False, repr=False)
class Concat(Affine):
    """Joins the inputs along `axis` (counted without the batch axis)."""

    axis: int = 0

    def output_shape(self, *shapes: Shape) -> Shape:
        rank = len(shapes[0]) if shapes else 0
        self._must(all(len(s) == rank for s in shapes) and -rank <= self.axis < rank, shapes)
        others = [s[: self.axis % rank] + s[self.axis % rank + 1 :] for s in shapes]
        self._must(all(s == others[0] for s in others), shapes)
        return self._probe(*shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        return torch.cat(xs, dim=self._dim(xs[0].dim()))

    def _dim(self, rank: int) -> int:
        return self.axis + 1 if self.axis >= 0 else self.axis + rank


@dataclass(frozen=True, eq=False, repr=False)
class Reshape(Affine):
    """Gives the input another shape; one entry may be -1. A single number keeps an axis, since bounds are taken over
    the entries of axes: the shape () means (1,)."""

    shape: Shape

    def _check(self) -> None:
        object.__setattr__(self, "shape", self.shape or (1,))
        if self.shape.count(-1) > 1 or any(n < 1 and n != -1 for n in self.shape):
            raise InputError(f"Reshape needs positive sizes, of which one may be -1, got {self.shape}")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1, shapes)
        known, count = math.prod(n for n in self.shape if n != -1), math.prod(shapes[0])
        self._must(count % known == 0 if -1 in self.shape else count == known, shapes)
        return tuple(count // known if n == -1 else n for n in self.shape)

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0].reshape(xs[0].shape[0], *self.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Transpose(Affine):
    """Permutes the axes; `axes` counts without the batch axis."""

    axes: Shape

    def _check(self) -> None:
        if sorted(self.axes) != list(range(len(self.axes))):
            raise InputError(f"Transpose: axes must name every axis once (the batch not counted), got {self.axes}")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1 and len(shapes[0]) == len(self.axes), shapes)
        return tuple(shapes[0][d] for d in self.axes)

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0].permute(0, *(d + 1 for d in self.axes))


@dataclass(frozen=True, eq=False, repr=False)
class Slice(Affine):
    """`x[start:stop:step]` along one axis, counted without the batch axis; `step` is positive."""

    axis: int
    start: int
    stop: int
    step: int = 1

    def _check(self) -> None:
        if self.axis < 0 or self.step < 1 or not 0 <= self.start < self.stop:
            raise InputError(
                f"Slice needs axis >= 0 (the batch axis not counted), 0 <= start < stop and step >= 1, got {self!r}"
            )

    def output_shape(self, *shapes: Shape) -> Shape:
        fits = len(shapes) == 1 and self.axis < len(shapes[0]) and self.start < shapes[0][self.axis]
        self._must(fits, shapes)
        return self._probe(*shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        index = [slice(None)] * xs[0].dim()
        index[self.axis + 1] = slice(self.start, self.stop, self.step)
        return xs[0][tuple(index)]


@dataclass(frozen=True, eq=False, repr=False)
class Pad(Affine):
    """Pads with a constant; `pads` in the order of `torch.nn.functional.pad` (last axis first)."""

    pads: Shape
    value: float = 0.0

    def _check(self) -> None:
        finite(self, "value")
        if not self.pads or len(self.pads) % 2:
            raise InputError(f"Pad: pads must hold two numbers for each padded axis, the last axis first: {self.pads}")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1 and len(self.pads) <= 2 * len(shapes[0]), shapes)
        pairs = list(zip(self.pads[::2], self.pads[1::2]))[::-1]
        padded = shapes[0][len(shapes[0]) - len(pairs) :]
        # What is cut off must be there, so that no entry of the output is neither the input's nor padding.
        self._must(all(n + min(a, 0) + min(b, 0) > 0 for n, (a, b) in zip(padded, pairs)), shapes)
        return (*shapes[0][: len(shapes[0]) - len(pairs)], *(n + a + b for n, (a, b) in zip(padded, pairs)))

    def __call__(self, *xs: Tensor) -> Tensor:
        largest = torch.finfo(xs[0].dtype).max
        return F.pad(xs[0], self.pads, value=within(self.value, xs[0].dtype, largest))
