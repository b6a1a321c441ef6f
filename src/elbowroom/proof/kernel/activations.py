"""What the proof knows of each activation, one row per type.

Of piecewise linear ones the kinks; of smooth ones values, slopes, inflection points, and how wrong float64 may be about
them. What follows from a row, enclosures and lines, is in `enclosures`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.proof.kernel.rounding import U

# What is trusted of the mathematical library: exp, expm1, log1p, tanh, atan, erfc, pow (`support.py`) and
# divisions built on them are within this relative error, and within TINY absolutely where they underflow.
LIBRARY = 16 * U
TINY = 1e-300


@dataclass(frozen=True)
class Smooth:
    """A smooth activation. `value` and `slope`: computed, with relative errors `error(op, x)` of each value.

    `bends(op)`: inflection points in order; `convex`: whether the piece left of the first one is convex.
    `least(op)`: (where, value rounded down) of the minimum inside, for functions that are not monotone.
    `kinks(op)`: where the slope jumps. `slope_terms(op, x)`: the size of what is added up to get the slope.
    `factor(op)`: what the result of a library function, and so its underflow, may be multiplied by.
    """

    value: Callable[[Any, Tensor], Tensor]
    slope: Callable[[Any, Tensor], Tensor]
    bends: Callable[[Any], tuple[float, ...]]
    convex: bool
    error: Callable[[Any, Tensor], Tensor] = lambda op, x: torch.full_like(x, LIBRARY)
    least: Callable[[Any], tuple[float, float] | None] = lambda op: None
    kinks: Callable[[Any], tuple[float, ...]] = lambda op: ()
    slope_terms: Callable[[Any, Tensor], Tensor] | None = None
    factor: Callable[[Any], float] = lambda op: 1.0

    def tiny(self, op: Any) -> float:
        """An absolute error where something underflowed."""
        return TINY * max(1.0, self.factor(op))


def row_of(op: ops.Activation) -> Any:
    """The activation's row of `TABLE`, by its exact type."""
    try:
        return TABLE[type(op)]
    except KeyError:
        raise UnsupportedError(f"the strict check has no enclosure of the activation {op.name}") from None


def _sigmoid_slope(op: Any, x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)


def _tanh_slope(op: Any, x: Tensor) -> Tensor:
    return 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)


def _gelu_slope(op: ops.GELU, x: Tensor) -> Tensor:
    if not op.tanh:
        return 0.5 * torch.erfc(-x * math.sqrt(0.5)) + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    y, p = x.clamp(-1e4, 1e4), _gelu_inner(x)
    s = torch.sigmoid(p)
    return s + y * s * torch.sigmoid(-p) * math.sqrt(8 / math.pi) * (1 + 0.134145 * y * y)


def _gelu_error(op: ops.GELU, x: Tensor) -> Tensor:
    """The argument's rounding grows in the left tail: by x^2 (erfc), by the cubic in it (tanh)."""
    y = (-x).clamp(0, 1e3)
    growth = 4 * y * y if not op.tanh else 16 * (y + y**3)
    return LIBRARY * (2 + growth)


def _silu_slope(op: Any, x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s + x * s * torch.sigmoid(-x)


def _silu_terms(op: Any, x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s + x.abs() * s * torch.sigmoid(-x)


def _gelu_terms(op: ops.GELU, x: Tensor) -> Tensor:
    positive = 0.5 * torch.erfc(-x * math.sqrt(0.5)) if not op.tanh else torch.sigmoid(_gelu_inner(x))
    return positive + (_gelu_slope(op, x) - positive).abs()


def _gelu_inner(x: Tensor) -> Tensor:
    y = x.clamp(-1e4, 1e4)
    return math.sqrt(8 / math.pi) * (y + 0.044715 * y**3)


def _elu_slope(op: ops.ELU, x: Tensor) -> Tensor:
    return torch.where(x > 0, 1.0, op.alpha * torch.exp(x.clamp_max(0)))


def _argument_error(op: Any, x: Tensor) -> Tensor:
    """Relative error of functions that are like e^x in the left tail and whose argument is itself rounded (beta x)."""
    return LIBRARY * (2 + (-getattr(op, "beta", 1.0) * x).clamp(0, 1e3))


def _plain(op: Any, x: Tensor) -> Tensor:
    value: Tensor = op(x)
    return value


def _zero(op: Any) -> tuple[float, ...]:
    return (0.0,)


def _none(op: Any) -> tuple[float, ...]:
    return ()


_BEND = {"silu": 2.3993572805154677, "gelu": math.sqrt(2), "gelu tanh": 1.4185040087908284}
# Minima, their values rounded down.
_LEAST = {
    "silu": (-1.2784645427610738, -0.27846454276107385),
    "gelu": (-0.7517915246935645, -0.1699712074799037),
    "gelu tanh": (-0.7524614220710163, -0.1700407505712541),
}


def _gelu_name(op: ops.GELU) -> str:
    return "gelu tanh" if op.tanh else "gelu"


# Piecewise linear activations are given by their kinks, smooth ones by a `Smooth` row.
TABLE: dict[type[ops.Activation], Any] = {
    ops.ReLU: _zero,
    ops.LeakyReLU: _zero,
    ops.Clip: lambda op: tuple(k for k in (op.low, op.high) if math.isfinite(k)),
    ops.Sigmoid: Smooth(_plain, _sigmoid_slope, _zero, convex=True),
    ops.Tanh: Smooth(_plain, _tanh_slope, _zero, convex=True),
    ops.Arctan: Smooth(_plain, lambda op, x: 1 / (1 + x * x), _zero, convex=True),
    ops.Softplus: Smooth(
        _plain,
        lambda op, x: torch.sigmoid(op.beta * x),
        _none,
        convex=True,
        error=_argument_error,
        factor=lambda op: 1 / op.beta,
    ),
    ops.ELU: Smooth(_plain, _elu_slope, _none, convex=True, kinks=_zero, factor=lambda op: op.alpha),
    ops.SiLU: Smooth(
        _plain,
        _silu_slope,
        lambda op: (-_BEND["silu"], _BEND["silu"]),
        convex=False,
        error=_argument_error,
        least=lambda op: _LEAST["silu"],
        slope_terms=_silu_terms,
    ),
    ops.GELU: Smooth(
        _plain,
        _gelu_slope,
        lambda op: (-_BEND[_gelu_name(op)], _BEND[_gelu_name(op)]),
        convex=False,
        error=_gelu_error,
        least=lambda op: _LEAST[_gelu_name(op)],
        slope_terms=_gelu_terms,
    ),
}
