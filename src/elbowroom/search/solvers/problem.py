"""What a solver sees: margins that must not be negative, and the geometry of the region. No network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from elbowroom.search.regions.base import Placed
from elbowroom.search.regions.input_set import InputSet

# From (input set, which inputs of the batch it stands for) to margins less delta, `b x g`.
Margins = Callable[[InputSet, Tensor], Tensor]


@dataclass
class Work:
    """What was spent on each input: evaluations of the bounds, evaluations with gradient, rows differentiated."""

    evaluations: Tensor
    gradients: Tensor
    rows: Tensor

    @staticmethod
    def none(batch: int) -> Work:
        return Work(*(torch.zeros(batch, dtype=torch.long) for _ in range(3)))


@dataclass
class Problem:
    """Maximise `region.objective(theta)` subject to `margins(theta) >= 0`, for some inputs of a batch.

    `index`: which inputs of the whole batch these are. `at_input`: `b`, the smallest margin of the input
    alone (a region of no size), positive.
    """

    region: Placed
    evaluate: Margins
    index: Tensor
    at_input: Tensor
    work: Work = field(repr=False)

    def take(self, chosen: Tensor) -> Problem:
        """The same problem for some of its inputs; `chosen`: positions."""
        return Problem(self.region.take(chosen), self.evaluate, self.index[chosen], self.at_input[chosen], self.work)

    def __len__(self) -> int:
        return len(self.index)

    def margins(self, theta: Tensor) -> Tensor:
        """Margins, `b x g`; what cannot be computed counts as violated."""
        self.work.evaluations[self.index.cpu()] += 1
        with torch.no_grad():
            found = self.evaluate(self.region.input_set(self.region.sides(theta)), self.index)
        return torch.nan_to_num(found, nan=-torch.inf)

    def smallest(self, theta: Tensor) -> Tensor:
        return self.margins(theta).amin(1)

    def jacobian(self, theta: Tensor, step: int = 0) -> tuple[Tensor, Tensor]:
        """Margins, `b x g`, and their derivatives by the region's sides, `b x g x s`; `step`: see `Placed.sharpness`.

        One evaluation serves all margins: the bounds keep their Jacobians between the calls of autograd.
        """
        positions = self.index.cpu()
        self.work.evaluations[positions] += 1
        self.work.gradients[positions] += 1
        sides = self.region.sides(theta).detach().requires_grad_()
        with torch.enable_grad():
            inputs = replace(self.region.input_set(sides), sharpness=self.region.sharpness(step))
            margins = self.evaluate(inputs, self.index)
        rows = []
        groups = margins.shape[1]
        for j in range(groups):
            (row,) = torch.autograd.grad(margins[:, j].sum(), sides, retain_graph=j + 1 < groups)
            rows.append(row)
        self.work.rows[positions] += groups
        jacobian = torch.stack(rows, 1)
        return margins.detach(), torch.nan_to_num(jacobian, nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class Solution:
    """`theta`: `b x d`, feasible as far as the solver's own precision goes; `message`: how it ended, in words."""

    theta: Tensor
    message: str


class Solver(Protocol):
    """Makes regions larger: from a problem and a feasible start, `b x d`, to parameters that are feasible, too."""

    def solve(self, problem: Problem, start: Tensor) -> Solution: ...
