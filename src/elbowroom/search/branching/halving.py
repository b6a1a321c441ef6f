"""Splits of the input: boxes of few free features are halved, and bounded anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from elbowroom.claim.tree import STEPS
from elbowroom.search.branching.choose import Choice
from elbowroom.search.branching.leaves import Leaves
from elbowroom.search.branching.roots import Roots
from elbowroom.search.regions.input_set import InputSet

if TYPE_CHECKING:
    from elbowroom.search.branching.engine import Search

_MOST_TRIED = 6  # features


class Halving:
    """Halves the boxes of a search's leaves, across the feature that gains most."""

    def __init__(self, search: Search) -> None:
        self.search = search

    def split(self, leaves: Leaves) -> tuple[Leaves, Tensor]:
        """The sides of the leaves that can be halved, and which these are, `l`."""
        search, roots = self.search, self.search.roots
        carrier, need = search.prepare(leaves)
        slope = leaves.slope.to(need.dtype) / STEPS
        sweep = carrier.down(slope, leaves.multiplier.to(need.dtype))
        radius = carrier.sets.radius.flatten(1)
        share = sweep.coefficients[0].abs() * radius
        count = min(_MOST_TRIED, share.shape[1])
        missing = (need - sweep.bound).clamp_min(torch.finfo(need.dtype).tiny)
        most = torch.full_like(need, -torch.inf)
        chosen = share.argmax(1)
        for k in range(count):
            across = share.topk(count, 1).indices[:, k]
            choice, halves = self._halves(leaves, across)
            bound = self._bounds(leaves, halves, slope)
            gains = ((bound - sweep.bound) / missing).clamp(1e-3, 1.0)
            merit = torch.where(choice.found, gains[0] * gains[1], -1.0)
            chosen = torch.where(merit > most, across, chosen)
            most = torch.maximum(merit, most)
        choice, halves = self._halves(leaves, chosen)
        found = choice.found
        sides = search.forest.split(leaves.take(found), choice.take(found))
        numbers = roots.add(halves)[found.repeat(2)]
        sides = sides.with_(root=numbers)
        return search.best_rows(sides), found

    def _bounds(self, leaves: Leaves, halves: Roots, slope: Tensor) -> Tensor:
        """`2 x l`: bounds of the halves with the slopes at hand."""
        sides = leaves.with_(root=torch.arange(len(leaves), device=slope.device))
        found = []
        for first in (0, len(leaves)):
            carrier, _ = self.search.prepare(sides.with_(root=sides.root + first), halves)
            found.append(carrier.down(slope, leaves.multiplier.to(slope.dtype)).bound)
        return torch.stack(found)

    def _halves(self, leaves: Leaves, across: Tensor) -> tuple[Choice, Roots]:
        """The halves across one feature each, `l`: the split, and bounds on the low halves, then the high ones, `2 l`.
        `found`: where there is a number between the ends."""
        roots = self.search.roots
        sets, shape = roots.sets, roots.sets.center.shape[1:]
        center, radius = (t[leaves.root].flatten(1) for t in (sets.center, sets.radius))
        lower, upper = center - radius, center + radius
        at = across[:, None]
        cut = center.gather(1, at)
        inside = ((lower.gather(1, at) < cut) & (cut < upper.gather(1, at))).squeeze(1)
        corners = torch.cat([lower, lower.scatter(1, at, cut)]), torch.cat([upper.scatter(1, at, cut), upper])
        low, high = (t.reshape(-1, *shape) for t in corners)
        halves = Roots(roots.net, InputSet.box(low, high), roots.of[leaves.root].repeat(2), roots.budget)
        none, cut = torch.zeros_like(center[:, 0]), cut.squeeze(1)
        return Choice(torch.zeros_like(across), across, cut.double(), none, none, inside), halves
