"""The frame of a search: where inputs are valid, which features may move, how far, and how much each counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.features import named, spread
from elbowroom.errors import InputError
from elbowroom.network.graph import Network


@dataclass(frozen=True, eq=False)
class Space:
    """Where inputs may be, and what of it counts: `b x n` each, in float64.

    `lowest`, `highest`: the domain's ends, infinite where there is none. `cap`: how far each feature may move from its
    input at most. `free`: features that may move. `importance`: their weights in the objective, zero for the others.
    """

    lowest: Tensor
    highest: Tensor
    cap: Tensor
    free: Tensor
    importance: Tensor

    def part(self, index: Tensor) -> Space:
        """That of some of the inputs."""
        return Space(*(t[index] for t in vars(self).values()))

    def capped(self, cap: Tensor) -> Space:
        """The same with other caps."""
        return replace(self, cap=cap)

    def without_domain(self) -> Space:
        return replace(
            self, lowest=torch.full_like(self.lowest, -torch.inf), highest=torch.full_like(self.highest, torch.inf)
        )

    def farthest(self) -> Tensor:
        """The farthest a feature may move, wherever its input is, `b x n`; infinite where nothing was said of it."""
        return torch.minimum(self.cap, self.highest - self.lowest)

    def around(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """How far each feature may move down and up from `x`, `b x n` each."""
        return torch.minimum(x - self.lowest, self.cap), torch.minimum(self.highest - x, self.cap)


def _must_be_finite(space: Space) -> None:
    """Refuses a space in which a feature that may move has no ends, or is held to less than its domain."""
    far = space.free & ~(space.lowest.isfinite() & space.highest.isfinite())
    if bool(far.any()):
        raise InputError(
            f'objective="free" lets features take any value of their domain: feature {int(far.nonzero()[0, 1])} has '
            "none that is finite; give a domain, or freeze it"
        )
    if bool((space.free & (space.cap < space.highest - space.lowest)).any()):
        raise InputError('objective="free" lets features take any value of their domain: leave out max_eps')


def space_of(
    net: Network, points: Tensor, domain: Any = None, frozen: Any = None, importance: Any = None, max_eps: Any = None,
    finite: bool = False,
) -> Space:  # fmt: skip
    """What `certify` was told, spread out over `points`, `b x *input_shape`. `finite`: whether features that may move
    are to have all of a domain that ends."""
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
    space = Space(lowest, highest, caps, free, torch.where(free, weight, 0.0))
    if finite:
        _must_be_finite(space)
    return space


__all__ = ["Space", "space_of"]
