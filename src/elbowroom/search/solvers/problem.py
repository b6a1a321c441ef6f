"""What a solver sees: margins that must not be negative, and the geometry of the region. No network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from elbowroom.search.derivatives import Derivatives, derivatives, least_left
from elbowroom.search.regions.base import Placed
from elbowroom.search.regions.input_set import InputSet, long_dot
from elbowroom.search.regions.objective import Objective, Volume

_MOST = 16  # margins that are linearised: those of which the smallest share is left

# From (input set, which inputs of the batch it stands for) to margins less delta, `b x g`.
Margins = Callable[[InputSet, Tensor], Tensor]


@runtime_checkable
class Differentiated(Protocol):
    """Margins that know their derivatives."""

    def derivatives(self, sets: InputSet, index: Tensor, at_input: Tensor, most: int) -> Derivatives | None:
        """Margins less delta, and derivatives of the `most` that have least left, beside what they are `at_input`, `b x
        g`; None where autograd has to find them."""
        ...


@runtime_checkable
class Rough(Protocol):
    """Margins that may be wrong by a few parts in ten thousand."""

    @property
    def precise(self) -> Margins | None:
        """The same as precise as their type, and slower; None where these are so themselves."""
        ...


@dataclass
class Work:
    """What was spent on each input: evaluations of the bounds, evaluations with gradient, rows differentiated."""

    evaluations: Tensor
    gradients: Tensor
    rows: Tensor

    @staticmethod
    def none(batch: int) -> Work:
        return Work(*(torch.zeros(batch, dtype=torch.long) for _ in range(3)))


@dataclass(frozen=True, eq=False)
class Linearised:
    """`margins`: `b x g`; `index`: `b x k`, which of them are linearised; `jacobian`: their derivatives by the region's
    sides, `b x k x s`."""

    margins: Tensor
    index: Tensor
    jacobian: Tensor

    def along(self, sides: Tensor) -> Tensor:
        """Derivatives of the margins along a ray through `sides`, `b x s`, at factor one: `b x g`, NaN where
        unknown."""
        slopes = long_dot(self.jacobian, sides)
        return torch.full_like(self.margins, torch.nan).scatter(1, self.index, slopes)


@dataclass
class Problem:
    """Maximise `objective.value(region, theta)` subject to `margins(theta) >= 0`, for some inputs of a batch.

    `index`: which inputs of the whole batch these are. `at_input`: `b x g`, the margins of the input alone (a region
    of no size), positive.
    """

    region: Placed
    evaluate: Margins
    index: Tensor
    at_input: Tensor
    work: Work = field(repr=False)
    objective: Objective = field(default_factory=Volume)

    def take(self, chosen: Tensor) -> Problem:
        """The same problem for some of its inputs; `chosen`: positions, in order."""
        if len(chosen) == len(self):
            return self
        return replace(self, region=self.region.take(chosen), index=self.index[chosen], at_input=self.at_input[chosen])

    def precise(self) -> Problem:
        """The same problem with margins as precise as their type."""
        found = self.evaluate.precise if isinstance(self.evaluate, Rough) else None
        return self if found is None else replace(self, evaluate=found)

    @cached_property
    def _positions(self) -> Tensor:
        """`index` where the work is counted."""
        return self.index.cpu()

    def __len__(self) -> int:
        return len(self.index)

    def margins(self, theta: Tensor) -> Tensor:
        """Margins, `b x g`; what cannot be computed counts as violated."""
        self.work.evaluations[self._positions] += 1
        with torch.no_grad():
            found = self.evaluate(self.region.input_set(self.region.sides(theta)), self.index)
        return torch.nan_to_num(found, nan=-torch.inf)

    def recorded(self, theta: Tensor) -> Tensor:
        """Margins, `b x g`, differentiable by `theta`; counted as an evaluation with the gradient of one row."""
        positions = self._positions
        self.work.evaluations[positions] += 1
        self.work.gradients[positions] += 1
        self.work.rows[positions] += 1
        return self.evaluate(self.region.input_set(self.region.sides(theta)), self.index)

    def size(self, theta: Tensor) -> Tensor:
        """How good regions are, `b`."""
        return self.objective.value(self.region, theta)

    def respond(self, found: Linearised, theta: Tensor, step: int) -> Tensor:
        """The best region under margins as linearised at `theta`. Uses up what was `found`: of many features its
        derivatives are the largest thing there is."""
        # Where growing would add to a margin it costs nothing, no more.
        prices, left = found.jacobian.neg_().clamp_min_(0), found.margins.gather(1, found.index).clamp_min(0)
        return self.region.respond(self.objective, prices, left, theta, step)

    def smallest(self, theta: Tensor) -> Tensor:
        return self.margins(theta).amin(1)

    def jacobian(self, theta: Tensor, step: int = 0) -> Linearised:
        """The margins, and derivatives of those that may bind by the region's sides; `step`: see `Placed.sharpness`.

        Those of which the region has taken least need not be differentiated: should one bind later on, the next
        linearisation has it. One evaluation and one backward pass serve all.
        """
        positions = self._positions
        self.work.evaluations[positions] += 1
        self.work.gradients[positions] += 1
        sides = self.region.sides(theta).detach().requires_grad_()
        with torch.enable_grad():
            made = self.region.input_set(sides)
        radius, center = (t.detach().requires_grad_(t.requires_grad) for t in (made.radius, made.center))
        inputs = replace(made, radius=radius, center=center, sharpness=self.region.sharpness(step))
        margins, index, by_center, by_radius = self._derivatives(inputs)
        rows = self.region.by_sides(sides, by_radius, by_center).contiguous()
        del by_center, by_radius  # of many features as large as what was made of them
        self.work.rows[positions] += index.shape[1]
        rows = rows.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0).transpose(0, 1)
        return Linearised(margins, index, rows)

    def _derivatives(self, inputs: InputSet) -> Derivatives:
        if isinstance(self.evaluate, Differentiated):
            known = self.evaluate.derivatives(inputs, self.index, self.at_input, _MOST)
            if known is not None:
                return known
        with torch.enable_grad():
            recorded = self.evaluate(inputs, self.index)
        margins = recorded.detach()
        index = least_left(margins, self.at_input, _MOST)
        by = [t for t in (inputs.radius, inputs.center) if t.requires_grad]
        by_radius, *rest = derivatives(recorded.gather(1, index), by)
        return Derivatives(margins, index, rest[0] if rest else None, by_radius)
