"""Activations: element-wise functions that are not affine."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network.operations.base import Activation, Shape, broadcast, finite, within


@dataclass(frozen=True, eq=False, repr=False)
class ReLU(Activation):
    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0].clamp_min(0)


@dataclass(frozen=True, eq=False, repr=False)
class LeakyReLU(Activation):
    """`x` above zero, `slope * x` below; `slope` is a number, or a tensor that broadcasts (PReLU)."""

    slope: float | Tensor = 0.01

    def _check(self) -> None:
        finite(self, "slope")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1, shapes)
        slope = torch.as_tensor(self.slope)
        if slope.dim() > len(shapes[0]) or broadcast(self.name, shapes[0], tuple(slope.shape)) != shapes[0]:
            raise InputError(f"LeakyReLU: slopes of shape {tuple(slope.shape)} do not fit {shapes[0]}")
        return shapes[0]

    def __call__(self, *xs: Tensor) -> Tensor:
        return torch.where(xs[0] > 0, xs[0], xs[0] * self.slope)


@dataclass(frozen=True, eq=False, repr=False)
class Clip(Activation):
    """`min(max(x, low), high)`: hardtanh, ReLU6 and the like. Either end may be infinite."""

    low: float = -1.0
    high: float = 1.0

    def _check(self) -> None:
        if not self.low < self.high:
            raise InputError(f"Clip needs low < high, got {self.low} and {self.high}")

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0].clamp(*(within(end, xs[0].dtype, math.inf) for end in (self.low, self.high)))


@dataclass(frozen=True, eq=False, repr=False)
class Sigmoid(Activation):
    def __call__(self, *xs: Tensor) -> Tensor:
        return torch.sigmoid(xs[0])


@dataclass(frozen=True, eq=False, repr=False)
class Tanh(Activation):
    def __call__(self, *xs: Tensor) -> Tensor:
        return torch.tanh(xs[0])


@dataclass(frozen=True, eq=False, repr=False)
class Arctan(Activation):
    def __call__(self, *xs: Tensor) -> Tensor:
        return torch.atan(xs[0])


@dataclass(frozen=True, eq=False, repr=False)
class ELU(Activation):
    """`x` above zero, `alpha (e^x - 1)` below, alpha > 0."""

    alpha: float = 1.0

    def _check(self) -> None:
        finite(self, "alpha")
        if not self.alpha > 0:
            raise InputError(f"ELU needs alpha > 0, got {self.alpha}")

    def __call__(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        return torch.where(x > 0, x, self.alpha * torch.expm1(x.clamp_max(0)))


@dataclass(frozen=True, eq=False, repr=False)
class Softplus(Activation):
    """`log(1 + e^(beta x)) / beta`, the function itself.

    (torch returns `x` where beta x is over its threshold, 20 by default: a difference of at most
    2.1e-9 / beta.)
    """

    beta: float = 1.0

    def _check(self) -> None:
        finite(self, "beta")
        if not self.beta > 0:
            raise InputError(f"Softplus needs beta > 0, got {self.beta}")

    def __call__(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        # (x + |x|) / 2 is max(x, 0), with derivative 1/2 at zero, which is softplus's own there.
        return (x + x.abs()) / 2 + torch.log1p(torch.exp(-(self.beta * x).abs())) / self.beta


@dataclass(frozen=True, eq=False, repr=False)
class SiLU(Activation):
    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0] * torch.sigmoid(xs[0])


@dataclass(frozen=True, eq=False, repr=False)
class GELU(Activation):
    """`x Phi(x)`, or its tanh approximation. Through `erfc`, which keeps its digits for negative x."""

    tanh: bool = False

    def __call__(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        if self.tanh:  # (1 + tanh(y)) / 2 = sigmoid(2 y)
            return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        return 0.5 * x * torch.erfc(x * -math.sqrt(0.5))
