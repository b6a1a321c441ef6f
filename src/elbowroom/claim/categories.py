"""Categories inside a region: sets of levels, each a fixed vector of numbers that stands for it.

The entries of an input that belong to one category are the code of one of its levels, nothing in between (see
`elbowroom.network.table`). Over a set of levels a linear form is least at one of them, so bounds need no more than
that minimum; the box around the codes, in which one-hot entries would move freely of each other, is much looser.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network.table import Table


@dataclass(frozen=True, eq=False)
class Category:
    """The entries `first`, `first + 1`, ... of an input, and the codes they may be, `l x w`, float64. `ordered`: how
    many of the levels, the first ones, stand in an order that sets of them keep: they have no gaps."""

    first: int
    codes: Tensor
    ordered: int = 0

    @property
    def entries(self) -> slice:
        return slice(self.first, self.first + self.codes.shape[1])


@dataclass(frozen=True, eq=False)
class Categories:
    """All categories of an input of `n` entries. Sets are `b x c` booleans, `c` levels of all of them side by side."""

    each: tuple[Category, ...]
    n: int

    def __post_init__(self) -> None:
        taken: set[int] = set()
        for one in self.each:
            entries = set(range(*one.entries.indices(1 << 62)))
            if one.codes.dim() != 2 or not one.codes.numel() or one.codes.dtype != torch.float64:
                raise InputError("the codes of a category must be a matrix of float64 numbers")
            if not bool(torch.isfinite(one.codes).all()):
                raise InputError("the codes of a category must be finite")
            if min(entries) < 0 or max(entries) >= self.n or entries & taken:
                raise InputError("the entries of two categories overlap, or are not in the input")
            taken |= entries

    @staticmethod
    def of(table: Table | None) -> Categories | None:
        """Those of a table; a value that is none of the levels, where there is a code for it, is one more. None where
        there are none."""
        found = []
        for column, place in zip(table.columns, table.places) if table is not None else ():
            if column.levels is not None:
                codes = [*column.codes, *(() if column.unknown is None else (column.unknown,))]
                found.append(Category(place.start, torch.tensor(codes, dtype=torch.float64), column.ordered))
        return Categories(tuple(found), table.width) if table is not None and found else None

    @property
    def count(self) -> int:
        """Of all levels, `c`."""
        return sum(len(one.codes) for one in self.each)

    @property
    def places(self) -> tuple[slice, ...]:
        """Which levels, of all, are of each category."""
        ends = itertools.accumulate((len(one.codes) for one in self.each), initial=0)
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))

    def __iter__(self) -> Iterator[tuple[Category, slice]]:
        """Each category, and which levels of all are its own."""
        return iter(zip(self.each, self.places))

    @cached_property
    def moves(self) -> Tensor:
        """Which entries belong to no category, `n`."""
        moves = torch.ones(self.n, dtype=torch.bool)
        for one in self.each:
            moves[one.entries] = False
        return moves

    def to(self, device: torch.device | str) -> Categories:
        """In another place."""
        return Categories(tuple(replace(one, codes=one.codes.to(device)) for one in self.each), self.n)

    def alike(self, other: Categories) -> bool:
        """Whether both have the same entries and codes."""
        return (
            self.n == other.n
            and [one.first for one in self.each] == [one.first for one in other.each]
            and all(torch.equal(a.codes.cpu(), b.codes.cpu()) for a, b in zip(self.each, other.each))
        )

    # --- sets of levels

    def sets_of(self, x: Tensor) -> Tensor:
        """The levels whose code is what stands in `x`, `b x n`: `b x c`; several where levels have the same code."""
        return torch.cat([(x[:, None, one.entries] == one.codes.to(x.device)).all(-1) for one in self.each], 1)

    def beside(self, allowed: Tensor) -> Tensor:
        """The levels that may be the next in sets, `b x c`: any; of ordered ones, those beside one that is there."""
        found = torch.ones_like(allowed)
        for one, place in self:
            if one.ordered:
                here, near = allowed[:, place][:, : one.ordered], torch.zeros_like(allowed[:, place])
                near[:, 1 : one.ordered] |= here[:, :-1]
                near[:, : one.ordered - 1] |= here[:, 1:]
                found[:, place] = near
        return found

    def sensible(self, allowed: Tensor) -> Tensor:
        """Which sets have a level of every category, `b`."""
        return torch.stack([allowed[:, place].any(1) for _, place in self]).all(0)

    def hull(self, allowed: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Corners `b x n` with, at the entries of categories, the least and largest numbers of codes that are allowed.
        Where a category has no level left, what stood there."""
        lower, upper = lower.clone(), upper.clone()
        for one, place in self:
            here = allowed[:, place, None]
            some = here.any(1)
            least = torch.where(here, one.codes.to(lower), torch.inf).amin(1)
            most = torch.where(here, one.codes.to(lower), -torch.inf).amax(1)
            lower[:, one.entries] = torch.where(some, least, lower[:, one.entries])
            upper[:, one.entries] = torch.where(some, most, upper[:, one.entries])
        return lower, upper

    def inside(self, allowed: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """The levels of sets whose codes lie in the boxes `[lower, upper]`, `b x n` each: `b x c`."""
        found = allowed.clone()
        for one, place in self:
            codes = one.codes.to(lower.device)
            low, high = lower[:, None, one.entries], upper[:, None, one.entries]
            found[:, place] &= ((low <= codes) & (codes <= high)).all(-1)
        return found

    def of_float32(self) -> Tensor:
        """The levels whose codes are float32 numbers, `c`."""
        return torch.cat([(one.codes.float().double() == one.codes).all(1) for one in self.each])

    def holds(self, allowed: Tensor, x: Tensor) -> Tensor:
        """Whether the points `x`, `b x n`, have at every category the code of a level of the sets, `b`."""
        same = self.sets_of(x) & allowed
        return torch.stack([same[:, place].any(1) for _, place in self]).all(0)


def must_fit(categories: Categories | None, allowed: Tensor | None, batch: int, n: int) -> None:
    """Raises `InputError` where sets of levels do not fit regions of `batch` inputs of `n` entries."""
    if (categories is None) != (allowed is None):
        raise InputError("a region needs both categories and the levels that are allowed, or neither")
    if categories is None or allowed is None:
        return
    if categories.n != n or allowed.dtype != torch.bool or tuple(allowed.shape) != (batch, categories.count):
        raise InputError(f"the region needs a set of {categories.count} levels per input")


__all__ = ["Categories", "Category", "must_fit"]
