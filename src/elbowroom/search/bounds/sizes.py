"""How many rows there are: a number that depends on numbers, so that a device has to be waited for.

A pass that is recorded (see `recorded`) cannot wait: it has room for a fixed number of rows, by what passes before it
had, and says whether that was enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

Key = tuple[str, int]  # what is counted, and at which node
_SPARE, _STEP = 1.25, 16  # room for more than there were, in steps of so many
_EVEN = 8  # on a GPU, products whose sides are no multiples of this are much slower


class Sizes:
    """As many as there are, which the device is asked for."""

    fixed = False

    def most(self, key: Key, counts: Tensor, limit: int) -> int:
        """Room for the largest of `counts`, `b`, none above `limit`."""
        return even(int(counts.max()), counts) if counts.numel() else 0


class Noted(Sizes):
    """The same, written down: `seen`, the most so far."""

    def __init__(self, seen: dict[Key, int]) -> None:
        self.seen = seen

    def most(self, key: Key, counts: Tensor, limit: int) -> int:
        found = super().most(key, counts, limit)
        self.seen[key] = max(found, self.seen.get(key, 0))
        return found


class Fixed(Sizes):
    """As many as were `seen`, and some to spare; `exceeded`, a single boolean: whether there were more."""

    fixed = True

    def __init__(self, seen: dict[Key, int], device: torch.device) -> None:
        self._seen = seen
        self.exceeded = torch.zeros((), dtype=torch.bool, device=device)

    def most(self, key: Key, counts: Tensor, limit: int) -> int:
        room = min(even(limit, counts), room_for(self._seen.get(key, 0)))
        if room < limit:
            self.exceeded = self.exceeded | (counts > room).any()
        return room


def even(count: int, like: Tensor) -> int:
    """As many or a few more, where that is faster."""
    return -(-count // _EVEN) * _EVEN if like.is_cuda else count


def room_for(seen: int) -> int:
    """How many there should be room for where so many were seen."""
    return -(-int(_SPARE * seen) // _STEP) * _STEP


class Active(NamedTuple):
    """The entries of a node that are not zero throughout: `entries`, `b x m`, filled up with -1. The first `open`, `b`,
    are those whose lines differ, if the others' do not move (see `Relaxed.straight`); on a GPU, which would have to be
    waited for, that is not known."""

    entries: Tensor
    open: Tensor | None

    @staticmethod
    def of(index: Tensor, differ: Tensor | None) -> Active:
        """`differ`, `b x n`: of which entries the lines do, if that matters."""
        if index.is_cuda or differ is None:
            return Active(index, None)
        open_ = differ.gather(1, index.clamp_min(0)) & (index >= 0)
        first = open_.to(torch.uint8).argsort(dim=1, stable=True, descending=True)
        return Active(index.gather(1, first), open_.sum(1))


def numbers_of(mask: Tensor, sizes: Sizes, key: Key) -> Tensor:
    """The positions that are set in each line of `mask`, `b x most`, filled up with -1. (What there is no room for is
    left out.)"""
    batch, limit = mask.shape
    most = sizes.most(key, mask.sum(1), limit)
    place = mask.cumsum(1) - 1
    place = torch.where(mask & (place < most), place, most)  # the others go to one place more, which is cut off
    found = torch.full((batch, most + 1), -1, dtype=torch.long, device=mask.device)
    return found.scatter_(1, place, torch.arange(limit, device=mask.device).expand(batch, -1))[:, :most]


def alike(index: Tensor, room: Sizes, most: int) -> Iterator[tuple[slice | Tensor, int]]:
    """Inputs that have about as many rows each, `index`, `b x s`, -1 for none, so that few are computed for
    nothing: which, and the largest count of them; at most `most` rows at a time, or one input."""
    batch, width = index.shape
    if room.fixed or batch * width <= most:
        step = max(1, most // max(width, 1))
        yield from ((slice(first, min(first + step, batch)), width) for first in range(0, batch, step))
        return
    sizes, order = (index >= 0).sum(1).sort(descending=True, stable=True)
    listed, first = sizes.tolist(), 0
    while first < batch and listed[first]:
        last = first + max(1, most // listed[first])
        yield order[first:last], listed[first]
        first = last


__all__ = ["Active", "Fixed", "Key", "Noted", "Sizes", "alike", "numbers_of", "room_for"]
