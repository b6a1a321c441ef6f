"""Sums that know how far they are from the true ones."""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.proof.kernel.rounding import SAFE, U, down, up


class Total:
    """A running sum of computed terms, `b x r`, and a bound on how far it is from the true one."""

    def __init__(self, value: Tensor, error: Tensor) -> None:
        self.value, self.error = value, error

    def add(self, term: Tensor) -> None:
        self.value = self.value + term
        self.error = self.error + U * self.value.detach().abs()

    def doubt(self, error: Tensor) -> None:
        self.error = self.error + error

    def below(self) -> Tensor:
        """A number below the true sum; minus infinity where something overflowed."""
        result = down(self.value - up(self.error * SAFE))
        return torch.where(torch.isfinite(self.value) & torch.isfinite(self.error), result, -torch.inf)
