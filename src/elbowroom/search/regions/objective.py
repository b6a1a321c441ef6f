"""What makes a region good: the volume, in logs. Other objectives come in here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from elbowroom.search.regions.subproblem import Program, largest_widths

if TYPE_CHECKING:
    from elbowroom.search.regions.base import Placed


class Objective(Protocol):
    """`value`: how good regions are, `b`, larger is better. `solve`: the parameters, `b x d`, of the best one under
    linearised margins."""

    def value(self, region: Placed, theta: Tensor) -> Tensor: ...

    def solve(self, program: Program) -> Tensor: ...


class Volume:
    """`sum_k importance_k log width_k` over the free features (the paper's objective, weighted)."""

    def value(self, region: Placed, theta: Tensor) -> Tensor:
        log = torch.where(region.free, region.widths(theta), 1.0).log()
        return (region.importance * log).sum(1)

    def solve(self, program: Program) -> Tensor:
        found = largest_widths(program.a, program.budget, program.cap, program.weight, program.already)
        return program.theta(found)
