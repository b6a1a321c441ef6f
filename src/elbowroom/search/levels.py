"""Sets of categories made larger: level by level, the one that gains most beside what it costs in widths.

What a set of `k` levels is worth is `log k`, times the category's weight, as a width is worth its log: the volume of a
region is counted in values. A level that the bounds allow as the region is costs nothing; for another, all features
are made narrower by the share that the chord from the input alone says is needed. One that is not even allowed at the
input's own numbers is not looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from elbowroom.claim.space import Space
from elbowroom.search.find import Inputs, Search
from elbowroom.search.regions.base import Placed

_AT_ONCE = 256  # regions in one evaluation
_SAFE = 0.995  # of a factor that a chord promises
_WORTH = 1e-3  # the least gain that a level is taken for


@dataclass
class Grown:
    """Sets of levels, `b x c`, and the regions' parameters they were found with, `b x d`."""

    allowed: Tensor
    theta: Tensor


def worth_of(space: Space, allowed: Tensor) -> Tensor:
    """What sets of levels, `b x c`, add to the log of a volume, `b`."""
    total = space.importance.new_zeros(len(allowed))
    if space.categories is not None and space.weights is not None:
        for k, (_, place) in enumerate(space.categories):
            total = total + space.weights[:, k] * allowed[:, place].sum(1).clamp_min(1).log()
    return total


def grow(search: Search, inputs: Inputs, theta: Tensor, cap: Tensor, dtype: torch.dtype) -> Grown:
    """Larger sets for inputs around which the regions `theta`, `b x d`, were proved; `cap`: `b x n`."""
    space = inputs.space
    assert space.categories is not None and space.allowed is not None and space.may is not None
    work = _Growing(search, inputs, search.place(inputs, cap, dtype), dtype)
    found = Grown(space.allowed.clone(), theta.to(dtype).clone())
    going = torch.arange(len(inputs), device=theta.device)
    hopeless = torch.zeros_like(found.allowed)
    while len(going):
        going = work.round(found, going, hopeless)
    return Grown(found.allowed, found.theta.double())


class _Growing:
    def __init__(self, search: Search, inputs: Inputs, placed: Placed, dtype: torch.dtype) -> None:
        self.search, self.placed, self.space = search, placed, inputs.space
        self.net = search.cast(dtype, inputs.x.device)
        self.spec = inputs.spec.cast(dtype, inputs.x.device)
        assert self.space.categories is not None
        sizes = torch.tensor([len(one.codes) for one, _ in self.space.categories])
        self.category = torch.repeat_interleave(torch.arange(len(sizes)), sizes).to(inputs.x.device)  # of each level
        self.total = self.space.importance.sum(1).to(dtype)

    def margin(self, index: Tensor, theta: Tensor, allowed: Tensor) -> Tensor:
        """The least margin of some inputs, with these regions and sets, `m`."""
        found = [theta.new_zeros(0)]
        for part in torch.arange(len(index), device=index.device).split(_AT_ONCE) if len(index) else ():
            own = self.placed.take(index[part])
            sets = replace(own.input_set(own.sides(theta[part])), allowed=allowed[part])
            with torch.no_grad():
                margins = self.search.evaluate(self.net, sets, self.spec.part(index[part]))
            found.append(margins.amin(1) - self.search.delta)
        return torch.cat(found)

    def round(self, found: Grown, going: Tensor, hopeless: Tensor) -> Tensor:
        """Adds what gains most to each of the sets; the inputs for which there may be more."""
        assert self.space.may is not None and self.space.weights is not None and self.space.categories is not None
        here = found.allowed[going]
        open_ = self.space.may[going] & ~here & ~hopeless[going] & self.space.categories.beside(here)
        of, level = open_.nonzero(as_tuple=True)
        if not len(of):
            return going[:0]
        of = going[of]
        allowed = found.allowed[of].clone()
        allowed[torch.arange(len(of), device=of.device), level] = True
        theta = found.theta[of]
        alone = self.margin(of, torch.zeros_like(theta), allowed)
        hopeless[of[alone <= 0], level[alone <= 0]] = True
        factor = self._factor(alone, self.margin(of, theta, allowed))
        before = self._counts(found.allowed[of]).gather(1, self.category[level][:, None]).squeeze(1)
        weight = self.space.weights[of, self.category[level]].to(theta.dtype)
        gain = weight * ((before + 1) / before).log() + self.total[of] * factor.log()
        score = torch.full(open_.shape, -torch.inf, dtype=theta.dtype, device=theta.device)
        place = torch.full((len(found.allowed),), -1, device=theta.device)
        place[going] = torch.arange(len(going), device=theta.device)
        score[place[of], level] = gain.to(score)
        factors = torch.ones_like(score)
        factors[place[of], level] = factor
        return self._take(found, going, score, factors)

    def _take(self, found: Grown, going: Tensor, score: Tensor, factors: Tensor) -> Tensor:
        """The best level of every category that gains, all of them where they do together, else the best alone."""
        assert self.space.categories is not None
        picks = torch.zeros_like(score, dtype=torch.bool)
        for _, place in self.space.categories:
            best, at = score[:, place].max(1)
            rows = (best > _WORTH).nonzero().squeeze(1)
            picks[rows, place.start + at[rows]] = True
        some = picks.any(1)
        going, picks, score, factors = going[some], picks[some], score[some], factors[some]
        least = torch.where(picks, factors, 1.0).amin(1)
        single = torch.zeros_like(picks)
        single[torch.arange(len(going), device=going.device), score.argmax(1)] = True
        accepted = torch.zeros(len(going), dtype=torch.bool, device=going.device)
        for chosen, share in ((picks, least), (single, factors.gather(1, score.argmax(1, keepdim=True)).squeeze(1))):
            left = (~accepted).nonzero().squeeze(1)
            of = going[left]
            allowed, theta = found.allowed[of] | chosen[left], found.theta[of] * share[left, None]
            good = self.margin(of, theta, allowed) > 0
            found.allowed[of[good]], found.theta[of[good]] = allowed[good], theta[good]
            accepted[left[good]] = True
        return going[accepted]

    def _counts(self, allowed: Tensor) -> Tensor:
        """How many levels each category has, `m x g`."""
        assert self.space.categories is not None
        return torch.stack([allowed[:, place].sum(1) for _, place in self.space.categories], 1).clamp_min(1).double()

    @staticmethod
    def _factor(alone: Tensor, whole: Tensor) -> Tensor:
        """By how much extents must shrink for a margin to stay positive, from what it is without any and with all."""
        chord = _SAFE * alone / (alone - whole).clamp_min(torch.finfo(alone.dtype).tiny)
        return torch.where(alone <= 0, 0.0, torch.where(whole > 0, 1.0, chord))


__all__ = ["Grown", "grow", "worth_of"]
