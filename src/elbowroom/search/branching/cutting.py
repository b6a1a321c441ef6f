"""The largest box around an input that holds none of the counterexamples that are known.

A counterexample is out of a box if one face at least lies before it. Which one, is a choice for each of them; a few
hundred boxes are kept that exclude more and more counterexamples, the largest first, until one is left that excludes
all. With very few features that is the largest there is, or nearly so.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.search.regions.base import Placed
from elbowroom.search.regions.objective import volume_of

_KEPT = 256  # boxes
_LEVELS = 400  # counterexamples that one box is cut at, at most
_INSIDE = 1 - 1e-9
_HAIR = 1e-5  # of the largest extents


def needed(placed: Placed, points: Tensor, most: Tensor) -> Tensor:
    """How large each parameter of a box around one input, at most `most`, `d`, must be to hold points, `m x n`: `m x
    d`; -1 for a side on which a point does not lie, or by a hair, so that this side cannot keep it out: cut again and
    again at points ever closer to the input, a box would have no end."""
    moved = points - placed.x
    away = torch.where(placed.free, moved.abs(), -1.0)
    if len(most) > moved.shape[1]:
        away = torch.cat([torch.where(moved < 0, away, -1.0), torch.where(moved > 0, away, -1.0)], 1)
    return torch.where(away > _HAIR * most, away, -1.0)


@dataclass
class Numbers:
    """How many numbers may still be looked at, and until when: what bounds the search."""

    left: float
    until: float = math.inf

    def take(self, count: int) -> bool:
        """Whether so many more may be looked at."""
        self.left -= count
        return self.left >= 0 and time.monotonic() < self.until


def undominated(need: Tensor) -> Tensor:
    """Those of some points, by what they need, `m x d`, that matter: a box that keeps one out keeps out all that need
    as much or more."""
    need = need.unique(dim=0)
    by = (need[:, None] <= need).all(2)  # the first is at most the second
    by.fill_diagonal_(False)
    return need[~by.any(0)]


def largest_without(placed: Placed, need: Tensor, most: Tensor, numbers: Numbers) -> Tensor | None:
    """The parameters, `d`, of a large box around one input, none larger than `most`, `d`, that holds none of some
    points, `m x d` by what they need; None where a point is in all boxes, or no box was found in time."""
    sizes = _Sizes(placed, len(most))
    found, best = None, -torch.inf
    boxes = most[None]
    for _ in range(_LEVELS):
        if not numbers.take(boxes.numel() * (1 + len(need))):
            break
        inside = (need < _INSIDE * boxes[:, None]).all(2)
        whole = (~inside.any(1)).nonzero().squeeze(1)
        if len(whole):
            size = sizes.of(boxes[whole])
            at = int(size.argmax())
            if float(size[at]) > best:
                found, best = boxes[whole[at]], float(size[at])
        open_ = inside.any(1) & (sizes.of(boxes) > best)
        boxes, inside = boxes[open_], inside[open_]
        if not len(boxes):
            break
        boxes = _cut(sizes, boxes, need, inside)
        size = sizes.of(boxes)
        order = size.argsort(descending=True)[:_KEPT]
        boxes = boxes[order[size[order] > best]]
    return found


def _cut(sizes: _Sizes, boxes: Tensor, need: Tensor, inside: Tensor) -> Tensor:
    """Boxes in place of some, `m x d`: each is cut, in all ways, at the point inside that costs most."""
    cost = sizes.cost(boxes, need)
    least = torch.where(inside, cost.amin(2), -1.0)
    at = need[least.argmax(1)]
    d = boxes.shape[1]
    every = torch.arange(d, device=boxes.device)
    cut = boxes[:, None].repeat(1, d, 1)
    cut[:, every, every] = at
    found: Tensor = cut[at >= 0].unique(dim=0)
    return found


class _Sizes:
    """The weighted sum of the logs of widths of boxes around one input, and what cuts take of it."""

    def __init__(self, placed: Placed, d: int) -> None:
        self.sides = d // placed.x.shape[1]
        self.below, self.above, self.weight = placed.below[0], placed.above[0], placed.importance[0]
        self.free = placed.free[0]

    def _width(self, boxes: Tensor) -> Tensor:
        """Per parameter, that of its feature as far as this parameter makes it."""
        return boxes if self.sides == 2 else torch.minimum(boxes, self.below) + torch.minimum(boxes, self.above)

    def of(self, boxes: Tensor) -> Tensor:
        return volume_of(torch.stack(self._width(boxes).chunk(self.sides, 1)).sum(0), self.free, self.weight)

    def cost(self, boxes: Tensor, need: Tensor) -> Tensor:
        """Of every cut at a point, `b x m x d`; infinite where there is none."""
        own, cut = self._width(boxes), self._width(need.clamp_min(0))
        rest = torch.cat(own.chunk(2, 1)[::-1], 1) if self.sides == 2 else torch.zeros_like(own)
        weight = self.weight.repeat(self.sides)
        cost = weight * ((own + rest).log()[:, None] - (cut + rest[:, None]).log())
        return torch.where(need >= 0, cost, torch.inf)
