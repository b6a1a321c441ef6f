"""Affine operations on entries where they are: layers, constants, sums, averages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network.operations.base import Affine, Shape, broadcast, finite

_LONG, _PART = 1 << 15, 1 << 12  # features of an input that is split, and of a part


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Affine):
    """`W x + b` on the last axis. `weight`: `out x in`; `bias`: `out`.

    Of a very long input, on a CPU, one part of the features goes after the other: in float32 one long sum is off by
    several times as much. There the weight may also be of a narrower type than the input, in which its numbers are
    exact, too: it is widened part by part, and no second matrix is written.
    """

    weight: Tensor
    bias: Tensor | None = None

    def _check(self) -> None:
        if self.weight.dim() != 2:
            raise InputError(f"Linear: weight must have 2 axes, got shape {tuple(self.weight.shape)}")
        check_bias(self, len(self.weight))

    def output_shape(self, *shapes: Shape) -> Shape:
        out, into = self.weight.shape
        self._must(len(shapes) == 1 and shapes[0][-1:] == (into,), shapes)
        return (*shapes[0][:-1], out)

    def __call__(self, *xs: Tensor) -> Tensor:
        if not self.is_long:
            return F.linear(xs[0], self.weight, self.bias)
        found: Tensor = _InParts.apply(xs[0], self.weight)  # type: ignore[no-untyped-call]
        return found if self.bias is None else found + self.bias

    @property
    def is_long(self) -> bool:
        """Whether it is computed in parts."""
        return self.weight.shape[1] >= _LONG and self.weight.device.type == "cpu"


class _InParts(torch.autograd.Function):
    """`x W^T`, some features at a time. The plain sum of parts would keep each of them, widened, for its derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        parts = zip(x.split(_PART, -1), _widened(weight, x.dtype), strict=True)
        return torch.stack([F.linear(part, own) for part, own in parts]).sum(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return torch.cat([grads[0] @ own for own in _widened(weight, grads[0].dtype)], -1), None


def _widened(weight: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    """Its parts in a type, one after the other in one place: each is gone with the next. (Had each its own, an
    allocator would lay what is computed of one where that was, the next elsewhere: a second matrix in the end.)"""
    parts = weight.split(_PART, 1)
    place = None if weight.dtype == dtype else parts[0].new_empty(parts[0].numel(), dtype=dtype)
    for part in parts:
        yield part if place is None else place[: part.numel()].view(part.shape).copy_(part)


def check_bias(op: Any, outputs: int) -> None:
    if op.bias is not None and tuple(op.bias.shape) != (outputs,):
        raise InputError(f"{op.name}: bias must have the shape ({outputs},), got {tuple(op.bias.shape)}")


def _channelwise(t: Tensor, like: Tensor) -> Tensor:
    """A per-channel vector shaped to broadcast against `n x c x ...`."""
    return t.reshape(1, -1, *([1] * (like.dim() - 2)))


@dataclass(frozen=True, eq=False, repr=False)
class BatchNorm(Affine):
    """Batch norm in eval mode, `(x - mean) / sqrt(var + eps) * weight + bias` per channel (first axis)."""

    mean: Tensor
    var: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None
    eps: float = 1e-5

    def _check(self) -> None:
        finite(self, "eps")
        if self.eps < 0:
            raise InputError(f"BatchNorm: eps must not be negative, got {self.eps}")
        for name, tensor in self.tensors().items():
            if tuple(tensor.shape) != (self.mean.numel(),):
                raise InputError(
                    f"BatchNorm: {name} must have one number for each of {self.mean.numel()} channels, got shape "
                    f"{tuple(tensor.shape)}"
                )

    def refuse_values(self) -> None:
        super().refuse_values()
        if bool((self.var < 0).any()):
            raise InputError("BatchNorm has a negative running variance; the model file is damaged")
        if not bool((self.var.double() + self.eps > 0).all()):
            raise InputError("BatchNorm divides by zero: a variance and eps are both 0")

    def output_shape(self, *shapes: Shape) -> Shape:
        if len(shapes) != 1 or not shapes[0] or shapes[0][0] != self.mean.numel():
            raise InputError(
                f"BatchNorm over {self.mean.numel()} channels got an input of shape {', '.join(map(str, shapes))}"
            )
        return shapes[0]

    def scale(self) -> Tensor:
        scale = torch.rsqrt(self.var + self.eps)
        return scale if self.weight is None else scale * self.weight

    def __call__(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        y = (x - _channelwise(self.mean, x)) * _channelwise(self.scale(), x)
        return y if self.bias is None else y + _channelwise(self.bias, x)


class WithConstant(Affine):
    """An element-wise operation with a constant, which broadcasts against the input from the right."""

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1, shapes)
        (constant,) = self.tensors().values()
        if constant.dim() > len(shapes[0]):
            raise InputError(
                f"{self.name}: a constant of shape {tuple(constant.shape)} has more axes than the input "
                f"{shapes[0]}; reshape one of them"
            )
        return broadcast(self.name, shapes[0], tuple(constant.shape))


@dataclass(frozen=True, eq=False, repr=False)
class Scale(WithConstant):
    """Element-wise product with a constant."""

    factor: Tensor

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0] * self.factor


@dataclass(frozen=True, eq=False, repr=False)
class Divide(WithConstant):
    """Element-wise quotient by a constant. Kept apart from `Scale`: 1/std would be a rounded number."""

    divisor: Tensor

    def refuse_values(self) -> None:
        super().refuse_values()
        if bool((self.divisor == 0).any()):
            raise InputError("Divide by a constant that contains zero; check std (no entry may be 0)")

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0] / self.divisor


@dataclass(frozen=True, eq=False, repr=False)
class Shift(WithConstant):
    """Adds a constant."""

    offset: Tensor

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0] + self.offset


@dataclass(frozen=True, eq=False, repr=False)
class Add(Affine):
    """Sum of the inputs, each with its own sign: `Add((1, -1))` is a subtraction."""

    signs: tuple[float, ...] = (1.0, 1.0)

    def _check(self) -> None:
        if not self.signs or not all(map(math.isfinite, self.signs)):
            raise InputError(f"Add: signs must be finite numbers, one for each input, got {self.signs}")

    def output_shape(self, *shapes: Shape) -> Shape:
        if len(shapes) != len(self.signs):
            raise InputError(f"Add with {len(self.signs)} signs got {len(shapes)} inputs")
        return broadcast(self.name, *shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        rank = max(x.dim() for x in xs)  # shapes align from the right; the leading axis must stay leading
        xs = tuple(x.reshape(x.shape[0], *[1] * (rank - x.dim()), *x.shape[1:]) for x in xs)
        total = xs[0] * self.signs[0] if self.signs[0] != 1 else xs[0]
        for sign, x in zip(self.signs[1:], xs[1:]):
            total = torch.add(total, x, alpha=sign)
        return total


@dataclass(frozen=True, eq=False, repr=False)
class Mean(Affine):
    """Average over some axes, counted without the batch axis. An average of everything keeps an axis of size 1."""

    axes: Shape
    keepdim: bool = False

    def _check(self) -> None:
        if min(self.axes, default=-1) < 0 or len(set(self.axes)) != len(self.axes):
            raise InputError(f"Mean needs different axes >= 0 (the batch axis not counted), got {self.axes}")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1 and max(self.axes) < len(shapes[0]), shapes)
        return self._probe(*shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        found = xs[0].mean(dim=[d + 1 for d in self.axes], keepdim=self.keepdim)
        return found if found.dim() > 1 else found[:, None]
