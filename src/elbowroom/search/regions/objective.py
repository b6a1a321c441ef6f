"""What makes a region good: the volume, in logs. Another objective: `smallest.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from elbowroom.machine.recorder import Rounds
from elbowroom.search.regions.subproblem import largest_widths

if TYPE_CHECKING:
    from elbowroom.search.regions.base import Placed


class Objective(Protocol):
    """What a region is good for."""

    def value(self, region: Placed, theta: Tensor) -> Tensor:
        """How good regions are, `b`; larger is better."""
        ...

    def of(self, widths: Tensor, full: Tensor, free: Tensor, importance: Tensor) -> Tensor:
        """The same by half-widths, those that they have at most, which features may move, and what each counts, all `b
        x n`."""
        ...

    def respond(self, region: Placed, a: Tensor, margins: Tensor, theta: Tensor, step: int) -> Tensor:
        """The parameters, `b x d`, of the best regions under linearised margins, see `Placed.program`."""
        ...


class Volume:
    """`sum_k importance_k log width_k` over the free features (the paper's objective, weighted)."""

    def __init__(self) -> None:
        self._rounds: Rounds | None = None  # of the sub-problem's steps, on a GPU

    def value(self, region: Placed, theta: Tensor) -> Tensor:
        return volume_of(region.widths(theta), region.free, region.importance)

    def of(self, widths: Tensor, full: Tensor, free: Tensor, importance: Tensor) -> Tensor:
        return volume_of(widths, free, importance)

    def respond(self, region: Placed, a: Tensor, margins: Tensor, theta: Tensor, step: int) -> Tensor:
        if self._rounds is None and a.is_cuda:
            self._rounds = Rounds(a.device)
        program = region.program(a, margins, theta, step, self._rounds)
        own = program.a, program.budget, program.cap, program.weight, program.already
        found = largest_widths(*own, self._rounds)
        return program.theta(found)


def volume_of(widths: Tensor, free: Tensor, importance: Tensor) -> Tensor:
    """The weighted sum of the logs of widths, `b`."""
    return (importance * torch.where(free, widths, 1.0).log()).sum(1)
