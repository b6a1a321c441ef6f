"""The model of arithmetic behind the strict check. See docs/soundness.md for the derivations.

IEEE float64, round to nearest, subnormals kept. A sum of n products, added up in any order and with or without fused
multiply-add, is off by at most `gamma(n) sum |a||b| + n ETA`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.errors import ElbowroomError

U = 2.0**-53  # unit roundoff of float64
ETA = 2.0**-1074  # an underflowing operation is off by at most this

# Bounds on errors are themselves computed in float64, as sums and products of numbers that are not negative. With fewer
# than 2^20 operations behind each, they come out too small by less than a factor 1 - 2^-32; this makes up for it.
SAFE = 1 + 2.0**-30
MOST_TERMS = 1 << 20


@dataclass(frozen=True)
class Format:
    """A floating-point format: unit roundoff, largest error of an operation that underflows, largest number."""

    name: str
    u: float
    eta: float
    largest: float

    def gamma(self, n: int) -> float:
        """A bound on the relative error of n roundings in a row: `n u / (1 - n u)`."""
        if n * self.u > 0.25:
            raise ElbowroomError(f"a sum of {n} terms is too long for {self.name}")
        return n * self.u / (1 - n * self.u) * (1 + 8 * U)


FLOAT64 = Format("float64", U, ETA, torch.finfo(torch.float64).max)
# Subnormals may be flushed to zero, on the way in and on the way out.
FLOAT32 = Format("float32", 2.0**-24, 2.0**-126, torch.finfo(torch.float32).max)


def gamma(n: int) -> float:
    if n >= MOST_TERMS:
        raise ElbowroomError(f"a sum of {n} terms is longer than the analysis allows ({MOST_TERMS})")
    return FLOAT64.gamma(n)


def down(t: Tensor) -> Tensor:
    """The next number towards minus infinity: below the exact result of one rounded operation."""
    return torch.nextafter(t, torch.full_like(t, -torch.inf))


def up(t: Tensor) -> Tensor:
    """The next number towards infinity."""
    return torch.nextafter(t, torch.full_like(t, torch.inf))
