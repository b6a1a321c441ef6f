"""Slopes and multipliers of many leaves raised together, until each leaf's bound is positive or hopeless.

The bound is concave in what they do to the row, and every value is valid: a few steps of Adam, the best of each leaf
kept. All along it is the bound for slopes and multipliers *as they will be stored* that is computed, so that what is
found positive is what the proof will see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.claim.tree import STEPS
from elbowroom.search.branching.carry import Carrier, Rectified, Sweep
from elbowroom.search.branching.leaves import Leaves, rounded_multipliers, rounded_slopes, stored_slopes

_SLOPE_STEP, _MULTIPLIER_STEP, _LAST = 0.25, 0.25, 0.15  # first lengths; the last one's share of them
_FORGET, _FORGET_SQUARE = 0.8, 0.98
_LARGEST = 2.0**14  # of multipliers, in their unit: what is stored has so many binades to spare
_PATIENCE = 4  # steps before a leaf may be called hopeless
_HOPE = 1.0  # times its gain of the last step, for each that is left
_FEWER = 0.7  # of the leaves left: then the others are taken out of the work

# From leaves to what bounds them, and how large each bound must be, `l`.
Prepare = Callable[[Leaves], tuple[Carrier, Tensor]]


@dataclass
class Climbed:
    """What was reached: `leaves` with their slopes and multipliers as stored; `bound`, `l`; `proved`, `l`; `empty`,
    `l`: leaves without any point, by their intervals alone; `used`, `l x u`: the ReLUs whose slopes matter to the
    bound; `point`, `l x *input_shape`: where it was attained."""

    leaves: Leaves
    bound: Tensor
    proved: Tensor
    empty: Tensor
    used: Tensor
    point: Tensor

    def take(self, index: Tensor) -> Climbed:
        rest = (self.bound, self.proved, self.empty, self.used, self.point)
        return Climbed(self.leaves.take(index), *(t[index] for t in rest))


class _Ascent:
    """The real numbers behind slopes and multipliers, and Adam's moments of them, for the leaves still at work."""

    def __init__(self, leaves: Leaves, dtype: torch.dtype) -> None:
        self.slope = leaves.slope.to(dtype) / STEPS
        self.multiplier = leaves.multiplier.to(dtype)
        self.unit = torch.ones_like(self.multiplier)  # a step's length: multipliers are coefficients' size
        self.moments = [torch.zeros_like(t) for t in (self.slope, self.slope, self.multiplier, self.multiplier)]

    def take(self, index: Tensor) -> None:
        self.slope, self.multiplier, self.unit = self.slope[index], self.multiplier[index], self.unit[index]
        self.moments = [m[index] for m in self.moments]

    def step(self, by_slope: Tensor, by_multiplier: Tensor, t: int, decay: float) -> None:
        self.slope += _SLOPE_STEP * decay * self._direction(0, by_slope, t)
        self.slope.clamp_(0, 1)
        # In proportion, where they have grown: a leaf that is nearly empty needs large ones.
        length = _MULTIPLIER_STEP * decay * torch.maximum(self.unit, self.multiplier)
        self.multiplier += length * self._direction(2, by_multiplier, t)
        torch.minimum(self.multiplier.clamp_(min=0), _LARGEST * self.unit, out=self.multiplier)

    def _direction(self, k: int, gradient: Tensor, t: int) -> Tensor:
        mean, square = self.moments[k], self.moments[k + 1]
        mean.mul_(_FORGET).add_(gradient, alpha=1 - _FORGET)
        square.mul_(_FORGET_SQUARE).addcmul_(gradient, gradient, value=1 - _FORGET_SQUARE)
        size = (square / (1 - _FORGET_SQUARE ** (t + 1))).sqrt()
        tiny = torch.finfo(gradient.dtype).tiny
        return mean / (1 - _FORGET ** (t + 1)) / size.clamp_min(tiny)


def climb(prepare: Prepare, leaves: Leaves, steps: int) -> Climbed:
    """Raises the bounds of leaves in at most so many steps (none: just computes them)."""
    carrier, need = prepare(leaves)
    ascent = _Ascent(leaves, need.dtype)
    found = Climbed(
        leaves.with_(slope=leaves.slope.clone(), multiplier=leaves.multiplier.clone()),
        torch.full_like(need, -torch.inf),
        carrier.empty.clone(),
        carrier.empty,
        torch.zeros_like(leaves.slope, dtype=torch.bool),
        carrier.sets.center.clone(),
    )
    index = torch.arange(len(leaves), device=need.device)
    history: list[Tensor] = []
    for t in range(steps + 1):
        slope, multiplier = rounded_slopes(ascent.slope), rounded_multipliers(ascent.multiplier)
        sweep = carrier.down(slope, multiplier)
        reached = carrier.up(sweep)
        _keep(found, index, carrier, sweep, slope, multiplier, reached)
        found.proved[index] |= found.bound[index] > need
        working = ~found.proved[index]
        history.append(found.bound.clone())
        if t >= _PATIENCE:
            gain = (history[t] - history[t - _PATIENCE])[index] / _PATIENCE
            working &= found.bound[index] + _HOPE * gain * (steps - t) > need
        if t == steps or not bool(working.any()):
            break
        if t == 0:
            ascent.unit = _units(carrier, sweep, multiplier)
        ascent.step(*carrier.gradient(sweep, reached, multiplier), t, _LAST ** (t / steps))
        if int(working.sum()) < _FEWER * len(working):
            index = index[working]
            ascent.take(working)
            carrier, need = prepare(leaves.take(index))
    return found


def _keep(
    found: Climbed,
    index: Tensor,
    carrier: Carrier,
    sweep: Sweep,
    slope: Tensor,
    multiplier: Tensor,
    reached: dict[int, Tensor],
) -> None:
    """Notes what is better than before, of the leaves `index`."""
    better = (sweep.bound > found.bound[index]).nonzero().squeeze(1)
    if not len(better):
        return
    at = index[better]
    found.bound[at] = sweep.bound[better]
    found.leaves.slope[at] = stored_slopes(slope[better])
    found.leaves.multiplier[at] = multiplier[better].float()
    used = []
    for i in carrier.neurons.first:
        lines = carrier.lines[i]
        assert isinstance(lines, Rectified)
        used.append((lines.bent[better] & (sweep.coefficients[i][better] > 0)).flatten(1))
    if used:
        found.used[at] = torch.cat(used, 1)
    found.point[at] = carrier.point(reached)[better]


def _units(carrier: Carrier, sweep: Sweep, multiplier: Tensor) -> Tensor:
    """By how much a multiplier moves in a step: the mean size of the coefficients where it counts, `l x d`."""
    unit = torch.zeros_like(multiplier)
    for i, splits in carrier.splits.items():
        above = [k for k in carrier.lines if i in carrier.net.nodes[k].inputs]
        size = torch.stack([sweep.coefficients[k].abs().flatten(1).mean(1) for k in above]).amax(0)
        unit[splits.leaf, splits.depth] = size[splits.leaf]
    return unit
