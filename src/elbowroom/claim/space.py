"""The frame of a search: where inputs are valid, which features may move, how far, and how much each counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.features import named, spread
from elbowroom.claim.categories import Categories
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.network.table import Table


@dataclass(frozen=True, eq=False)
class Held:
    """Features whose ends are settled, while others are still looked for, `b x n` each: `features`, which these are;
    `lower`, `upper`; `uniform`: half of what they count in the uniform region; `capped`: whether their ends are as far
    out as they may be."""

    features: Tensor
    lower: Tensor
    upper: Tensor
    uniform: Tensor
    capped: Tensor

    def part(self, index: Tensor) -> Held:
        return Held(**{name: t[index] for name, t in vars(self).items()})

    def spread(self, rows: Tensor, count: int) -> Held:
        """The same for `count` inputs of which these are the `rows`; nothing is held for the others."""
        return Held(**{name: t.new_zeros(count, t.shape[1]).index_copy(0, rows, t) for name, t in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Space:
    """Where inputs may be, and what of it counts: `b x n` each, in float64.

    `lowest`, `highest`: the domain's ends, infinite where there is none. `cap`: how far each feature may move from its
    input at most. `free`: features that may move. `importance`: their weights in the objective, zero for the others.
    `categories`: whose entries do not move, but are codes of the levels `allowed`, `b x c`: at first the input's own.
    `may`: levels that a set may have, `b x c`; `weights`: of the log of how many it has, `b x g` for `g` categories.
    `decimals`: of features that are multiples of 10^-decimals, -1 for all others, `b x n`; None where all are others.
    `held`: features that count as not free, since their ends are settled. `float32`: whether values are what a network
    executed in float32 is given.
    """

    lowest: Tensor
    highest: Tensor
    cap: Tensor
    free: Tensor
    importance: Tensor
    categories: Categories | None = None
    allowed: Tensor | None = None
    may: Tensor | None = None
    weights: Tensor | None = None
    decimals: Tensor | None = None
    held: Held | None = None
    float32: bool = False

    def part(self, index: Tensor) -> Space:
        """That of some of the inputs."""
        cut: dict[str, Any] = {name: t[index] for name, t in vars(self).items() if isinstance(t, Tensor)}
        return replace(self, **cut, held=None if self.held is None else self.held.part(index))

    def holding(self, held: Held) -> Space:
        """The same with some features that stay between the ends they have."""
        free = self.free & ~held.features
        return replace(self, free=free, importance=torch.where(free, self.importance, 0.0), held=held)

    def of_numbers(self) -> Space:
        """The same with numbers alone, which may be any: no sets of levels, no values that count."""
        return replace(self, categories=None, allowed=None, may=None, weights=None, decimals=None)

    def allowing(self, allowed: Tensor) -> Space:
        """The same with other sets of levels, `b x c`."""
        return replace(self, allowed=allowed)

    def executable(self) -> Space:
        """The same for a network executed in float32, without levels that it cannot be given."""
        if self.categories is None or self.may is None or self.allowed is None:
            return replace(self, float32=True)
        return replace(self, may=self.may & self.categories.of_float32() | self.allowed, float32=True)

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
    finite: bool = False, sets: bool = False,
) -> Space:  # fmt: skip
    """What `certify` was told, spread out over `points`, `b x *input_shape`. `finite`: whether features that may move
    are to have all of a domain that ends. `sets`: whether sets of levels may grow, where no number may move."""
    low, high = _ends(domain)
    lowest = spread(net, points, low, "domain", -torch.inf).double()
    highest = spread(net, points, high, "domain", torch.inf).double()
    table = net.about.table or Table(())
    declared = domain_of(table)
    if declared is not None:
        lowest, highest = torch.maximum(lowest, declared[0].to(lowest)), torch.minimum(highest, declared[1].to(highest))
    if not bool((lowest <= highest).all()):
        raise InputError("the domain's lowest value is above its highest (or NaN)")
    caps = spread(net, points, torch.inf if max_eps is None else max_eps, "max_eps", torch.inf).double()
    if not bool((caps >= 0).all()):
        raise InputError("max_eps must not be negative or NaN")
    given = spread(net, points, named(net, False if frozen is None else frozen), "frozen").bool()
    given = given | torch.tensor([c.kind == "fixed" for c in table.columns for _ in range(c.width)] or False).to(given)
    free = ~(given | held(net, points)) & (caps > 0) & (lowest < highest)
    weight = spread(net, points, 1.0 if importance is None else importance, "importance", 1.0).double()
    if not bool(((weight > 0) & weight.isfinite())[free].all()):
        raise InputError("importance must be positive and finite for every free feature")
    space = Space(lowest, highest, caps, free, torch.where(free, weight, 0.0))
    if finite:
        _must_be_finite(space)
    decimals = [-1 if c.decimals is None else c.decimals for c in table.columns for _ in range(c.width)]
    if any(own >= 0 for own in decimals):
        space = replace(space, decimals=torch.where(free, torch.tensor(decimals, device=free.device), -1))
    space = _with_categories(space, Categories.of(net.about.table), points.flatten(1), given, weight)
    moves = free.any(1)
    if sets and space.may is not None and space.allowed is not None:
        moves = moves | (space.may & ~space.allowed).any(1)
    if not bool(moves.all()):
        why = "" if table.moves.all() or sets else " (those of categories are held as they are)"
        raise InputError(f"every feature is frozen{why}: there is nothing to certify")
    return space


def _with_categories(space: Space, categories: Categories | None, x: Tensor, frozen: Tensor, weight: Tensor) -> Space:
    """The space with sets of levels: the inputs' own, and those that may be added to them, in the domain and where the
    category is not frozen."""
    if categories is None:
        return space
    categories = categories.to(x.device)
    own = categories.sets_of(x)
    may = categories.inside(torch.ones_like(own), space.lowest.expand_as(x), space.highest.expand_as(x))
    for one, place in categories:
        may[:, place] &= ~frozen.expand_as(x)[:, one.entries].any(1, keepdim=True)
    weights = torch.stack([weight.expand_as(x)[:, one.first] for one, _ in categories], 1)
    return replace(space, categories=categories, allowed=own, may=may | own, weights=weights)


def domain_of(table: Table | None) -> tuple[Tensor, Tensor] | None:
    """The ends that columns of a table are declared to have, `n` each, infinite where there are none; None where no
    column has any."""
    columns = () if table is None else table.columns
    if not any(column.domain for column in columns):
        return None
    ends = [column.domain or (-math.inf, math.inf) for column in columns for _ in range(column.width)]
    lowest, highest = torch.tensor(ends, dtype=torch.float64).unbind(1)
    return lowest, highest


def held(net: Network, points: Tensor) -> Tensor:
    """Features that are codes of categories, and so do not move, `1 x n` booleans."""
    table = net.about.table
    moves = torch.ones(net.n_inputs, dtype=torch.bool) if table is None else torch.from_numpy(table.moves)
    return ~moves[None].to(points.device)


def _ends(domain: Any) -> tuple[Any, Any]:
    """The lowest and the highest values, whatever they are."""
    if domain is None:
        return -torch.inf, torch.inf
    pairs = domain.values() if isinstance(domain, Mapping) else [domain]
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise InputError(f"domain must be a pair (lowest, highest), or a mapping from names to pairs; got {pair!r}")
    if isinstance(domain, Mapping):
        return {k: pair[0] for k, pair in domain.items()}, {k: pair[1] for k, pair in domain.items()}
    return domain[0], domain[1]


__all__ = ["Held", "Space", "domain_of", "held", "space_of"]
