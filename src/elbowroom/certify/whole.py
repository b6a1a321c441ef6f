"""Whole numbers, and numbers of so many decimals: ends that are values, and what rounding leaves over.

A region is found as if all numbers could be anything. Its ends are then rounded inwards to values that the features can
have, which leaves room. That is given to features that fall short of one value more by least, as long as the values
gained are worth more than what the other features lose: a step from k values to k + 1 is worth `log((k + 1) / k)`
times the feature's importance, as a set of k levels is worth `log k`. What is left then, the others take; also those
with many values, cents say, which are settled last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from elbowroom.claim.space import Held
from elbowroom.claim.specification import Specification
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Trees
from elbowroom.network.decimals import inwards
from elbowroom.search.find import Found, Inputs, Search
from elbowroom.search.regions.box import Box, PlacedBox

_ROUNDS = 40  # in which values are added
_FEW = 50  # values of a feature beyond which one more or less makes little difference
_SAFE = 0.995  # of a factor that a chord promises
_WORTH = 1e-3  # the least gain that values are taken for
_SHRUNK = (1.0, 0.999, 0.99, 0.9, 0.5, 0.1, 0.0)  # of a region, tried in turn where the rounded one is not proved

# Of some inputs, `m`: which they are, the ends of the features whose values count, `m x n`, and by how much the extents
# of the others are scaled, `m`; to the margins that are proved, `m x g`.
Margins = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass
class Settled:
    """`lower`, `upper`: ends of the features whose values count, `b x n`; `factor`: by how much the extents of the
    others are scaled, `b`; `good`: where that is proved, `b`; `capped`: features that may have no further value, `b x
    n`."""

    lower: Tensor
    upper: Tensor
    factor: Tensor
    good: Tensor
    capped: Tensor = field(init=False)


def rounded(decimals: Tensor, x: Tensor, lower: Tensor, upper: Tensor, float32: bool = False) -> tuple[Tensor, Tensor]:
    """Ends rounded inwards to multiples of 10^-decimals, where these are not negative; all `b x n`. They stay on their
    sides of `x`, which may be none itself, where a model fills it in. `float32`: see `inwards`."""
    kinds, arrays = decimals.cpu().numpy(), [t.detach().cpu().double().numpy() for t in (lower, upper, x)]
    low, high = arrays[0].copy(), arrays[1].copy()
    for own in np.unique(kinds[kinds >= 0]).tolist():
        here = kinds == own
        low[here], high[here] = inwards(arrays[0][here], arrays[1][here], arrays[2][here], own, float32)
    return torch.from_numpy(low).to(lower), torch.from_numpy(high).to(upper)


def values_in(decimals: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """How many values there are between ends, of features with decimals, `b x n`; ends count, also where they are none.
    One where there are no decimals."""
    count = ((upper - lower) / step_of(decimals)).round() + 1
    return torch.where(decimals >= 0, count, 1.0)


def step_of(decimals: Tensor) -> Tensor:
    """From one value to the next, `b x n`; 1 where there are none."""
    return torch.where(decimals >= 0, 1.0 / 10.0 ** decimals.double(), 1.0)


def coarse_ones(decimals: Tensor, x: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Decimals of features that have few values in regions, `b x n`, -1 for all others; and which regions have
    others as well, with many, `b`: these are better taken for numbers until the coarse ones are settled."""
    few = values_in(decimals, *rounded(decimals, x, lower, upper)) <= _FEW
    coarse = torch.where(few, decimals, -1)
    return coarse, (coarse >= 0).any(1) & ((decimals >= 0) & ~few).any(1)


class Settling:
    """Looks for values.

    Args:
        inputs: `b` inputs, whose space has `decimals`.
        corners: Lower and upper ones of regions that are proved, `b x n` each.
        limits: How far features may reach down and up, `b x n` each.
        margins: What is proved of regions, see `Margins`.
        passes: Which margins are a certificate's.
        at_once: Whether both sides of a feature move together.
    """

    def __init__(
        self, inputs: Inputs, corners: tuple[Tensor, Tensor], limits: tuple[Tensor, Tensor], margins: Margins,
        passes: Callable[[Tensor], Tensor], at_once: bool,
    ) -> None:  # fmt: skip
        decimals = inputs.space.decimals
        assert decimals is not None
        self.decimals, self.counts, self.x = decimals, decimals >= 0, inputs.x
        self.importance, self.step = inputs.space.importance, step_of(decimals)
        self.others = torch.where(self.counts, 0.0, self.importance).sum(1)
        self.wish, self.margins, self.passes, self.at_once = corners, margins, passes, at_once
        self.ends = torch.maximum(limits[0], inputs.space.lowest), torch.minimum(limits[1], inputs.space.highest)
        self.float32 = inputs.space.float32
        self.found = self._inside()

    def _inside(self) -> Settled:
        """The regions rounded inwards, and where these are not proved smaller ones."""
        x, one = self.x, self.x.new_ones(len(self.x))
        found = Settled(*rounded(self.decimals, x, *self.wish, self.float32), one, one.bool() & False)
        for share in _SHRUNK:
            left = (~found.good).nonzero().squeeze(1)
            if not len(left):
                break
            wished = [x[left] + share * (end[left] - x[left]) for end in self.wish]
            low, high = rounded(self.decimals[left], x[left], wished[0], wished[1], self.float32)
            scaled = torch.full_like(one[left], max(share, 1e-3))
            good = self.passes(self.margins(left, low, high, scaled))
            at = left[good]
            found.lower[at], found.upper[at], found.factor[at] = low[good], high[good], scaled[good]
            found.good[at] = True
        return found

    def add(self) -> None:
        """Adds values, those first that the regions come nearest to."""
        closed = ~self._steps(self.found.lower, self.found.upper)[0]  # b x n x s: steps that are not looked at any more
        for _ in range(_ROUNDS):
            going = (self.found.good & (~closed).flatten(1).any(1)).nonzero().squeeze(1)
            if not len(going):
                return
            self._round(going, closed)

    def settled(self) -> Settled:
        """What was found."""
        possible, _, _ = self._steps(self.found.lower, self.found.upper)
        self.found.capped = self.counts & ~possible.any(2)
        return self.found

    def _steps(self, low: Tensor, high: Tensor, index: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Which steps there are, `m x n x s`, of a side each, or of both at once, and the ends after them, likewise."""
        chosen = torch.arange(len(self.x), device=self.x.device) if index is None else index
        step, counts = self.step[chosen], self.counts[chosen]
        # Rounded to a value: the middle between the next one and that after it lies safely beyond it.
        down = rounded(self.decimals[chosen], low, low - 1.5 * step, low, self.float32)[0]
        up = rounded(self.decimals[chosen], high, high, high + 1.5 * step, self.float32)[1]
        room_down = counts & (down < low) & (down >= self.ends[0][chosen])
        room_up = counts & (up > high) & (up <= self.ends[1][chosen])
        if self.at_once:  # of a box that is the same on both sides, except where it is cut
            after = torch.where(room_down, down, low)[..., None], torch.where(room_up, up, high)[..., None]
            return (room_down | room_up)[..., None], *after
        possible = torch.stack([room_down, room_up], 2)
        return possible, torch.stack([down, low], 2), torch.stack([high, up], 2)

    def _round(self, going: Tensor, closed: Tensor) -> None:
        """Takes for some inputs, `m`, the best of the first 1, 2, 4, ... steps, in the order of how near they are."""
        low, high = self.found.lower[going], self.found.upper[going]
        possible, after_low, after_high = self._steps(low, high, going)
        closed[going] |= ~possible
        near = self._nearness(going, after_low, after_high)
        near = torch.where(closed[going], -torch.inf, near).flatten(1)
        order, most = near.argsort(1, descending=True), int(near.isfinite().sum(1).max())
        if not most:
            return
        sizes = [1 << k for k in range(most.bit_length())]
        rank = order.argsort(1)
        best = torch.full_like(self.others[going], _WORTH)
        taken = self.found.lower[going].clone(), self.found.upper[going].clone(), self.found.factor[going].clone()
        for size in sizes:
            picks = ((rank < size) & near.isfinite()).reshape(possible.shape)
            new_low = torch.where(picks, after_low, low[..., None]).amin(2)
            new_high = torch.where(picks, after_high, high[..., None]).amax(2)
            factor = self._factor(going, new_low, new_high)
            score = self._worth(going, new_low, new_high) - self._worth(going, low, high)
            score = score + torch.where(factor > 0, self.others[going] * factor.log(), -torch.inf).nan_to_num(nan=0.0)
            score = torch.where((factor > 0) & (picks.flatten(1).sum(1) > size // 2), score, -torch.inf)
            better = score > best
            best = torch.where(better, score, best)
            for own, new in zip(taken, (new_low, new_high, self.found.factor[going] * factor)):
                own[better] = new[better]
        some = best > _WORTH
        good = torch.zeros_like(some)
        if bool(some.any()):
            good[some] = self.passes(self.margins(going[some], *(t[some] for t in taken)))
        at = going[good]
        self.found.lower[at], self.found.upper[at], self.found.factor[at] = (t[good] for t in taken)
        # Where nothing was gained, the nearest step is given up.
        lost = (~good).nonzero().squeeze(1)
        flat = closed.flatten(1)
        flat[going[lost], order[lost, 0]] = True
        closed.copy_(flat.reshape(closed.shape))

    def _nearness(self, going: Tensor, after_low: Tensor, after_high: Tensor) -> Tensor:
        """By how little regions fall short of steps, `m x n x s`, in values; more is nearer."""
        step = self.step[going][..., None]
        low, high = (end[going][..., None] for end in self.wish)
        return -torch.maximum((low - after_low) / step, (after_high - high) / step)

    def _worth(self, going: Tensor, low: Tensor, high: Tensor) -> Tensor:
        counts = values_in(self.decimals[going], low, high)
        return (self.importance[going] * counts.log()).sum(1)

    def _factor(self, going: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """By how much the extents of the others must shrink with these ends, `m`: 1 where they need not, 0 where
        nothing would do."""
        own = self.found.factor[going]
        whole = self.margins(going, low, high, own)
        fits = self.passes(whole)
        factor = torch.where(fits, 1.0, 0.0).to(own)
        left = (~fits & (self.others[going] > 0)).nonzero().squeeze(1)
        if len(left):
            alone = self.margins(going[left], low[left], high[left], torch.zeros_like(own[left]))
            chord = (alone / (alone - whole[left]).clamp_min(torch.finfo(alone.dtype).tiny)).clamp(0, 1).amin(1)
            factor[left] = torch.where(self.passes(alone), _SAFE * chord, 0.0)
        return factor


def values_of(
    search: Search,
    part: Inputs,
    found: Found,
    corners: tuple[Tensor, Tensor],
    prove: Callable[[Stated, Specification, Trees | None], Tensor],
    passes: Callable[[Tensor], Tensor],
    trees: Trees | None,
) -> tuple[Held, Tensor]:
    """Ends of the features whose values count, for regions that were `found` and are proved, and by how much the
    extents of the others are scaled, `b`.

    `corners`: of the regions, `b x n` each; `prove`: from regions, what must hold and trees to margins; `passes`: which
    of these are a certificate's; `trees`: of the regions.
    """
    decimals, shape = part.space.decimals, search.region
    assert decimals is not None
    counts, none = decimals >= 0, torch.zeros_like(part.x)

    def margins(index: Tensor, low: Tensor, high: Tensor, factor: Tensor) -> Tensor:
        own = part.take(index)
        held = Held(counts[index], low, high, none[index], none[index].bool())
        placed = search.place(replace(own, space=own.space.holding(held)), found.cap[index], torch.float64)
        region = placed.stated(torch.minimum(found.theta[index] * factor[:, None], placed.caps))
        return prove(region, own.spec, None if trees is None else [trees[k] for k in index.tolist()])

    limits = part.x - found.cap, part.x + found.cap
    at_once = not (isinstance(shape, Box) and shape.asymmetric)
    work = Settling(part, corners, limits, margins, passes, at_once)
    if not shape.one_radius and not search.smallest:
        work.add()
    done = work.settled()
    placed = search.place(part, found.cap, torch.float64)
    assert isinstance(placed, PlacedBox)
    down, up = placed.extents(torch.minimum(found.uniform, placed.caps))
    uniform = values_in(decimals, *rounded(decimals, part.x, part.x - down, part.x + up)) * step_of(decimals) / 2
    return Held(counts, done.lower, done.upper, uniform, done.capped), done.factor


__all__ = ["Settled", "Settling", "coarse_ones", "rounded", "step_of", "values_in", "values_of"]
