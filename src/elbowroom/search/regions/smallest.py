"""The least width of a box as an objective: what is raised first, and the volume after it.

Of a symmetric box that no domain cuts this is the uniform region. Where it is cut, features near an edge reach farther
to the other side; where the sides are free, each feature takes its width on the side that costs less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from elbowroom.search.regions.input_set import long_dot
from elbowroom.search.regions.objective import volume_of
from elbowroom.search.regions.subproblem import largest_widths

if TYPE_CHECKING:
    from elbowroom.search.regions.base import Placed

_ROUNDS = 100  # of prices
_EAGER = 20  # rounds after which prices change half as fast
_HALVINGS, _OCTAVES = 30, 2.0**20  # of an interval of levels, and how wide it is
_LATER, _NEAR = 4, 1.15  # the same in later rounds
_FULL = 1 - 1e-3  # of all the room there is: a feature that has it does not hold the others back
_AFTER = 1e-3  # what a log width counts in the volume, beside the log of the least


@dataclass(frozen=True, eq=False)
class Smallest:
    """The least width of a box, then its volume. `unit`: what the widths of features are measured in, `n`.

    Features that have all the room there is count no more: one with a narrow domain would be the least for ever.
    """

    unit: Tensor

    def value(self, region: Placed, theta: Tensor) -> Tensor:
        return self.of(region.widths(theta), region.widths(region.caps), region.free, region.importance)

    def of(self, widths: Tensor, full: Tensor, free: Tensor, importance: Tensor) -> Tensor:
        unit = self.unit.to(widths)
        most = torch.where(free, full / unit, 0.0).amax(1, keepdim=True)
        shares = torch.where(free & (widths < _FULL * full), widths / unit, most)
        least: Tensor = importance.sum(1) * shares.amin(1).log()
        return least + _AFTER * volume_of(widths, free, importance)

    def respond(self, region: Placed, a: Tensor, margins: Tensor, theta: Tensor, step: int) -> Tensor:
        budget = (margins + long_dot(a, region.sides(theta))).double().clamp_min(1e-300)
        rows = (a.double() / budget[..., None]).nan_to_num(posinf=1e300)
        levels = _Levels(region, self.unit.to(rows), rows)
        held = levels.best()
        # What costs nothing of what is used up may grow.
        program = region.growth(rows, 1 - levels.used(held), held)
        added = largest_widths(program.a, program.budget, program.cap, program.weight, program.already)
        return torch.minimum(program.theta(added).to(theta.dtype), region.caps)


class _Levels:
    """The regions of a shape whose widths are all at a level, in units, or full; under rows of costs of the sides, `b x
    g x s`, in budgets."""

    def __init__(self, region: Placed, unit: Tensor, rows: Tensor) -> None:
        self.region, self.unit, self.rows = region, unit, rows
        self.full = torch.where(region.free, region.widths(region.caps), 0.0).double()
        self.top = (self.full / unit).amax(1)

    def at(self, level: Tensor, lean: Tensor) -> Tensor:
        """The region of a level, `b`. `lean`: `b x n`, see `Placed.of_widths`."""
        return self.region.of_widths(torch.minimum(level[:, None] * self.unit, self.full), lean)

    def used(self, theta: Tensor) -> Tensor:
        """What a region takes of each budget, `b x g`."""
        return torch.bmm(self.rows, self.region.sides(theta).double()[..., None]).squeeze(-1)

    def best(self) -> Tensor:
        """The region of the highest level found within all budgets."""
        lean = self._leaning()

        def fits(level: Tensor) -> Tensor:
            return (self.used(self.at(level, lean)) <= 1).all(1)

        return self.at(_highest(fits, self.top / _OCTAVES, self.top, _HALVINGS), lean)

    def _leaning(self) -> Tensor:
        """How much of each width should lie below the input, `b x n`: by prices of the budgets, which rise where one is
        used more than the others (multiplicative weights), each feature on its cheaper side at the level that costs one
        budget in the mean; then as it was on average over later rounds."""
        b, g, s = self.rows.shape
        lean = self.rows.new_full((b, len(self.unit)), 0.5)
        if self.region.caps.shape[1] == lean.shape[1]:  # a symmetric box has no choice
            return lean
        weights, total = self.rows.new_full((b, g), 1 / g), self.rows.new_zeros(b, s)
        low, high, steps = self.top / _OCTAVES, self.top, _HALVINGS
        for k in range(_ROUNDS):
            prices = torch.bmm(weights[:, None], self.rows).squeeze(1)
            down, up = prices.chunk(2, 1)
            lean = torch.where(down < up, 1.0, torch.where(down > up, 0.0, 0.5))

            def fits(level: Tensor, prices: Tensor = prices, lean: Tensor = lean) -> Tensor:
                return (prices * self.at(level, lean)).sum(1) <= 1

            level = _highest(fits, low, high, steps)
            low, high, steps = level / _NEAR, torch.minimum(level * _NEAR, self.top), _LATER
            theta = self.at(level, lean)
            more = (self.used(theta) - 1).clamp(-4, 4) / (1 + k / _EAGER)
            weights = torch.softmax(weights.clamp_min(1e-300).log() + more, 1)
            total = total + theta if k >= _ROUNDS // 2 else total
        below, above = total.chunk(2, 1)  # not leanings: where there is no room, a width does not lie as it leans
        return below / (below + above).clamp_min(1e-300)


def _highest(fits: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, steps: int) -> Tensor:
    """The highest level between two, `b`, that fits, by halving in logs; the lower one where none does."""
    low = torch.where(fits(high), high, low)
    for _ in range(steps):
        middle = (low * high).sqrt()
        good = fits(middle)
        low, high = torch.where(good, middle, low), torch.where(good, high, middle)
    return low
