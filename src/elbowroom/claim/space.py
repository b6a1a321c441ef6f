"""The frame of a search: where inputs are valid, which features may move, how far, and how much each counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.features import named, spread
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.search.regions.shapes import Room


@dataclass
class Limits:
    """`b x n` each: the domain's ends, caps on the extents, free features, weights of the free features."""

    lowest: Tensor
    highest: Tensor
    max_eps: Tensor
    free: Tensor
    importance: Tensor

    def part(self, index: Tensor) -> Limits:
        return Limits(*(getattr(self, name)[index] for name in vars(self)))

    def farthest(self, rotated: bool) -> Tensor:
        """The farthest a feature may move by what was said of it; infinite where nothing was."""
        return self.max_eps if rotated else torch.minimum(self.max_eps, self.highest - self.lowest)

    def room(self, x: Tensor, cap: Tensor, rotated: bool) -> Room:
        """A domain limits features, not the directions of a rotated shape: those have the cap alone."""
        below = cap if rotated else torch.minimum(x - self.lowest, cap)
        above = cap if rotated else torch.minimum(self.highest - x, cap)
        return Room(x, below, above, self.free, self.importance)


def limits_of(
    net: Network, points: Tensor, domain: Any = None, frozen: Any = None, importance: Any = None, max_eps: Any = None
) -> Limits:
    """What `certify` was told, spread out over `points`, `b x *input_shape`."""
    inf = float("inf")
    if domain is not None and not (isinstance(domain, tuple | list) and len(domain) == 2):
        raise InputError(f"domain must be a pair (lowest, highest), got {domain!r}")
    low, high = domain if domain is not None else (-inf, inf)
    lowest, highest = (spread(net, points, v, "domain").double() for v in (low, high))
    if not bool((lowest <= highest).all()):
        raise InputError("the domain's lowest value is above its highest (or NaN)")
    caps = spread(net, points, inf if max_eps is None else max_eps, "max_eps").double()
    if not bool((caps >= 0).all()):
        raise InputError("max_eps must not be negative or NaN")
    fixed = spread(net, points, named(net, False if frozen is None else frozen), "frozen").bool()
    free = ~fixed & (caps > 0) & (lowest < highest)
    if not bool(free.any(1).all()):
        raise InputError("every feature is frozen: there is nothing to certify")
    weight = spread(net, points, 1.0 if importance is None else importance, "importance").double()
    if not bool(((weight > 0) & weight.isfinite())[free].all()):
        raise InputError("importance must be positive and finite for every free feature")
    return Limits(lowest, highest, caps, free, torch.where(free, weight, 0.0))


__all__ = ["Limits", "limits_of"]
