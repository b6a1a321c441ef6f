"""Operations that slide a window over an image: convolution and pooling, in 1, 2 or 3 dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network.operations.affine import check_bias
from elbowroom.network.operations.base import Affine, Operation, Shape

_CONV = (F.conv1d, F.conv2d, F.conv3d)
_AVG_POOL = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_MAX_POOL = (F.max_pool1d, F.max_pool2d, F.max_pool3d)


@dataclass(frozen=True, eq=False, repr=False)
class Conv(Affine):
    """Convolution in 1, 2 or 3 dimensions, `weight`: `out x in/groups x *kernel`."""

    weight: Tensor
    bias: Tensor | None = None
    stride: Shape = (1,)
    padding: Shape = (0,)
    dilation: Shape = (1,)
    groups: int = 1

    def _check(self) -> None:
        dims = self.weight.dim() - 2
        if not 1 <= dims <= 3:
            raise InputError(f"Conv weight must have 3 to 5 axes, got shape {tuple(self.weight.shape)}")
        _check_windows(self, dims, stride=1, padding=0, dilation=1)
        if self.groups < 1 or len(self.weight) % self.groups:
            raise InputError(f"Conv: {len(self.weight)} output channels cannot be in {self.groups} groups")
        check_bias(self, len(self.weight))

    def output_shape(self, *shapes: Shape) -> Shape:
        channels = self.weight.shape[1] * self.groups
        fits = len(shapes) == 1 and len(shapes[0]) == self.weight.dim() - 1 and shapes[0][0] == channels
        self._must(fits, shapes)
        sizes = zip(shapes[0][1:], self.weight.shape[2:], self.stride, self.padding, self.dilation)
        found = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
        self._must(min(found) > 0, shapes)
        return (len(self.weight), *found)

    def __call__(self, *xs: Tensor) -> Tensor:
        conv = _CONV[self.weight.dim() - 3]
        return conv(xs[0], self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


@dataclass(frozen=True, eq=False, repr=False)
class AvgPool(Affine):
    """Average pooling in 1, 2 or 3 dimensions."""

    kernel: Shape
    stride: Shape
    padding: Shape = (0,)
    ceil_mode: bool = False
    count_include_pad: bool = True

    def _check(self) -> None:
        _check_pooling(self)

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1 and len(shapes[0]) == len(self.kernel) + 1, shapes)
        return self._probe(*shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        pool = _AVG_POOL[len(self.kernel) - 1]
        return pool(xs[0], self.kernel, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


@dataclass(frozen=True, eq=False, repr=False)
class MaxPool(Operation):
    """Max-pooling in 1, 2 or 3 dimensions."""

    kernel: Shape
    stride: Shape
    padding: Shape = (0,)
    dilation: Shape = (1,)
    ceil_mode: bool = False

    def _check(self) -> None:
        _check_pooling(self, dilation=1)

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1 and len(shapes[0]) == len(self.kernel) + 1, shapes)
        return self._probe(*shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        pool = _MAX_POOL[len(self.kernel) - 1]
        return pool(xs[0], self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)


def _check_windows(op: Any, dims: int, **least: int) -> None:
    """Fields with a number per spatial axis, each at least `least`; one number stands for all axes."""
    for name, minimum in least.items():
        value = getattr(op, name)
        value = value * dims if len(value) == 1 else value
        if len(value) != dims or min(value) < minimum:
            raise InputError(
                f"{op.name}: {name} must hold {dims} whole number{'s' * (dims > 1)} of at least {minimum}, or one for "
                f"all axes, got {getattr(op, name)}"
            )
        object.__setattr__(op, name, value)


def _check_pooling(op: Any, **least: int) -> None:
    if not 1 <= len(op.kernel) <= 3 or min(op.kernel) < 1:
        raise InputError(f"{op.name}: kernel must hold 1 to 3 positive sizes, got {op.kernel}")
    _check_windows(op, len(op.kernel), stride=1, padding=0, **least)
    dilation = getattr(op, "dilation", (1,) * len(op.kernel))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(op.kernel, dilation))
    if any(2 * p > r for p, r in zip(op.padding, reach)):
        raise InputError(f"{op.name}: padding {op.padding} is more than half of a window of {reach}")
