"""Splits of the input: boxes of few free features are halved, and bounded anew.

A box is halved for all groups at once: its halves' bounds serve them all. It is halved across the feature that costs
its worst leaf most, by the derivative of that leaf's bound, hidden bounds included, and its halves by the same one.
(Trying every feature gives trees that are hardly smaller.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from elbowroom.search.branching.choose import Choice
from elbowroom.search.branching.derivative import by_set
from elbowroom.search.branching.leaves import Leaves, worst_first
from elbowroom.search.branching.roots import Roots
from elbowroom.search.regions.input_set import InputSet

if TYPE_CHECKING:
    from elbowroom.search.branching.engine import Search

_NARROW = 4  # roundings of the centre
_GRAIN = 8  # of a radius: boxes are cut at a multiple of such a part, a number of few digits, which packs well


def halve(search: Search, leaves: Leaves, bounds: Tensor) -> tuple[Leaves, Tensor]:
    """The sides of the leaves whose boxes can be halved, and which these are, `l`. `bounds`: the leaves', `l`."""
    roots = search.roots
    root, box = leaves.root.unique(return_inverse=True)
    order = worst_first(box, bounds)
    worst = order[torch.searchsorted(box[order], torch.arange(len(root), device=root.device))]
    across, then = _across(search, leaves.take(worst))
    cut = _cut(roots, root, across.clamp_min(0))
    found = (across >= 0)[box]
    halves = _halves(roots, root, across.clamp_min(0), cut)
    halves.across = then.repeat(2)
    first = roots.add(halves)
    leaves, box = leaves.take(found), box[found]
    none = torch.zeros_like(bounds[found])
    choice = Choice(torch.zeros_like(box), across[box], cut[box].double(), none, none, torch.ones_like(box).bool())
    sides = search.grown(leaves, choice, torch.cat([first[box], first[len(root) + box]]))
    return sides, found


def _across(search: Search, leaves: Leaves) -> tuple[Tensor, Tensor]:
    """Across which feature each leaf's box is to be halved (-1: there is no number between its ends), and across which
    its halves are (-1: that is not known yet)."""
    sets = search.roots.sets
    center, radius = (t[leaves.root].flatten(1) for t in (sets.center, sets.radius))
    # Centre and radius are rounded: of a box as narrow as that the halves are no smaller.
    divisible = (radius > _NARROW * torch.finfo(radius.dtype).eps * center.abs()) & (radius > 0)
    divisible &= (center - radius < center) & (center < center + radius)
    across = search.roots.across[leaves.root].clone()
    then = torch.full_like(across, -1)
    across[~divisible.gather(1, across.clamp_min(0)[:, None]).squeeze(1)] = -1
    new = (across < 0).nonzero().squeeze(1)
    if not len(new):
        return across, then
    divisible, radius = divisible[new], radius[new]
    share = (by_set(search, leaves.take(new))[1].flatten(1) * radius).abs()
    # Where no feature has a share, as where bounds overflowed: the widest.
    share = torch.where((share * divisible).amax(1, keepdim=True) > 0, share, radius)
    for told in (across, then):
        most, feature = torch.where(divisible, share, -1.0).max(1)
        told[new] = torch.where(most >= 0, feature, -1)
        share = share.scatter(1, feature[:, None], most[:, None] / 2)
    return across, then


def _cut(roots: Roots, root: Tensor, across: Tensor) -> Tensor:
    """Where boxes are cut, `m`."""
    sets = roots.sets
    middle, radius = (t[root].flatten(1).gather(1, across[:, None]).squeeze(1) for t in (sets.center, sets.radius))
    return _short(middle, radius)


def _short(middle: Tensor, radius: Tensor) -> Tensor:
    """Numbers of few digits near the middles of intervals, `m`, and inside of them. A grain is a power of 2: what is
    rounded to a multiple of it is exact, or as it was where middles are too coarse for it."""
    grain = torch.ldexp(torch.full_like(radius, 1 / _GRAIN), torch.frexp(radius).exponent - 1)
    short = (middle / grain).round() * grain
    return torch.where((short - middle).abs() < radius / 2, short, middle)  # not where anything overflowed


def _halves(roots: Roots, root: Tensor, across: Tensor, cut: Tensor) -> Roots:
    """Bounds on the low halves of boxes, then on the high ones: `2 m`."""
    sets, shape = roots.sets, roots.sets.center.shape[1:]
    center, radius = (t[root].flatten(1) for t in (sets.center, sets.radius))
    lower, upper = center - radius, center + radius
    at, cut = across[:, None], cut[:, None]
    corners = torch.cat([lower, lower.scatter(1, at, cut)]), torch.cat([upper.scatter(1, at, cut), upper])
    return Roots(roots.net, InputSet.box(*(t.reshape(-1, *shape) for t in corners)), roots.budget, roots.sharpened)
