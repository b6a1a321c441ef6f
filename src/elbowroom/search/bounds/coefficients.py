"""Rows of coefficients over a node: over all of it, over windows, each row's own, or over some of its entries.

A place of a convolutional layer depends on a small part of the image, and an inactive neuron passes nothing on: rows
that are kept over what they can reach save the products with zeros, which are nearly all of them. Windows are stored
with channels last, so that what lies under them is copied in runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.network.operations import Shape

_TABLE = 1 << 18  # positions under the windows of all places of an image: from where on they are not kept
_PRODUCTS = 64  # in the time of which a CPU copies a number
_LARGE_IMAGE, _MANY_CHANNELS = 49, 32  # places and channels, from where on convolutions take images as they are


@dataclass(frozen=True)
class Geometry:
    """Where windows lie over a node: that of a row which began at `place` has `size` positions along each axis, from
    `step * place + shift` on. Some may be outside of the node."""

    step: Shape
    shift: tuple[int, ...]
    size: Shape

    @staticmethod
    def point(dims: int) -> Geometry:
        """Of the rows' own places."""
        return Geometry((1,) * dims, (0,) * dims, (1,) * dims)

    def hull(self, other: Geometry) -> Geometry | None:
        """The smallest windows around both; None where they do not move together."""
        if self.step != other.step:
            return None
        shift = tuple(map(min, self.shift, other.shift))
        ends = (max(a + n, b + m) for a, n, b, m in zip(self.shift, self.size, other.shift, other.size))
        return Geometry(self.step, shift, tuple(end - start for start, end in zip(shift, ends)))

    def numbers(self, channels: int) -> int:
        """How many numbers a row has."""
        return channels * math.prod(self.size)

    def margins(self, outer: Geometry) -> list[int]:
        """What `F.pad` must add (or, negative, cut off) to get from windows with channels last to others."""
        ends = [(a - b, b + m - a - n) for a, n, b, m in zip(self.shift, self.size, outer.shift, outer.size)]
        return [0, 0, *(n for pair in reversed(ends) for n in pair)]


class Places:
    """Where rows began, `b x s x dims`, and what lies under their windows, which is asked for again and again.
    `numbers`, `b x s`: the same places of an image of the shape `began`, where that is known, as flat positions."""

    def __init__(self, place: Tensor, numbers: Tensor | None = None, began: Shape = ()) -> None:
        self.place, self.numbers, self.began = place, numbers, began
        self._known: dict[tuple[Geometry, Shape], Tensor] = {}

    @staticmethod
    def of(numbers: Tensor, began: Shape) -> Places:
        """From flat positions, `b x s`, in an image of the shape `began`."""
        places, left = [], numbers
        for n in reversed(began):
            places.append(left % n)
            left = left // n
        return Places(torch.stack(places[::-1], -1), numbers, began)

    def __len__(self) -> int:
        return len(self.place)

    @property
    def rows(self) -> int:
        return self.place.shape[1]

    def under(self, at: Geometry, spatial: Shape) -> Tensor:
        """The flat positions under each window, `b x s x numbers`; those outside of the node are one past its last."""
        found = self._known.get((at, spatial))
        if found is None:
            found = self._known[at, spatial] = self._look(at, spatial)
        return found

    def _look(self, at: Geometry, spatial: Shape) -> Tensor:
        # On a CPU it takes longer to find out than to copy what was found for all places of such an image.
        if self.numbers is not None and not self.place.is_cuda and _is_small(at, self.began):
            found = _under_all(at, spatial, self.began).index_select(0, self.numbers.flatten())
            return found.reshape(*self.numbers.shape, math.prod(at.size))
        index: Tensor | None = None
        outside = math.prod(spatial)
        for d, n in enumerate(spatial):
            offset = torch.arange(at.shift[d], at.shift[d] + at.size[d], device=self.place.device)
            along = (self.place[..., d] * at.step[d])[..., None] + offset
            # What is outside along one axis is so whatever is added along the others.
            along = torch.where((along >= 0) & (along < n), along * math.prod(spatial[d + 1 :]), outside)
            index = along if index is None else (index[..., None] + along[..., None, :]).flatten(2)
        assert index is not None
        return index.clamp_max_(outside)

    def each(self, batch: int) -> Places:
        """The same where every row of a batch of so many counts as an input of its own: `batch s x 1 x dims`."""
        numbers = None if self.numbers is None else self.numbers.expand(batch, -1).flatten()[:, None]
        return Places(self.place.expand(batch, -1, -1).flatten(0, 1)[:, None], numbers, self.began)


def _is_small(at: Geometry, began: Shape) -> bool:
    return math.prod(at.size) * math.prod(began) <= _TABLE


@lru_cache(maxsize=64)
def _under_all(at: Geometry, spatial: Shape, began: Shape) -> Tensor:
    """What lies under the windows of all places of an image, `n x numbers`."""
    every = Places.of(torch.arange(math.prod(began), device="cpu")[None], began).place
    return Places(every).under(at, spatial)[0]


@dataclass(frozen=True, eq=False)
class Patch:
    """Coefficients `b x s x *size x c` over windows of a node, zero elsewhere. `place`: where the rows began. `clean`:
    the coefficients of positions outside of the node are zero; else they mean nothing."""

    a: Tensor
    place: Places
    at: Geometry
    clean: bool


@dataclass(frozen=True, eq=False)
class Columns:
    """Coefficients `b x r x m` over the entries `index`, `b x m`, of a node of one axis; zero over the others. What
    stands where `index` is -1 is zero."""

    a: Tensor
    index: Tensor


Coefficients = Tensor | Patch | Columns  # the first over the whole node, `b x r x *shape`


def numbers(c: Coefficients) -> Tensor:
    return c if isinstance(c, Tensor) else c.a


def wide(a: Tensor) -> Tensor:
    """Numbers to compute with: those in half precision (see `rough`) in float32."""
    return a.float() if a.dtype == torch.float16 else a


def like(c: Coefficients, a: Tensor) -> Coefficients:
    """Other numbers over the same places; over nothing else where there were none."""
    if isinstance(c, Patch):
        return replace(c, a=a, clean=True)
    return Columns(a, c.index) if isinstance(c, Columns) else a


def cut(t: Tensor, c: Coefficients) -> Tensor:
    """Of `t`, `b x *shape`, what the coefficients are about, in their order, with an axis for the rows: zero where they
    mean nothing."""
    if isinstance(c, Patch):
        return windows(t, c.place, c.at)
    if isinstance(c, Columns):
        return columns_of(t[:, None], c.index)
    return t[:, None]


def columns_of(t: Tensor, index: Tensor) -> Tensor:
    """Of `t`, `b x r x n`, the entries `index`, `b x m`, zero where that is -1: `b x r x m`."""
    at = index[:, None]
    return torch.where(at >= 0, t.gather(2, at.clamp_min(0).expand(-1, t.shape[1], -1)), 0.0)


def part_of(matrix: Tensor, index: Tensor | None, columns: Tensor | None) -> Tensor:
    """Rows and columns of a matrix, `out x in`, for each input: `b x m x k`, or the matrix where neither is given.
    Columns at -1 are zero; rows at -1 mean nothing."""
    if not matrix.is_cuda:
        return _copied(matrix, index, columns)
    if columns is None:
        return matrix if index is None else matrix[index.clamp_min(0)]
    padded = F.pad(matrix, (0, 1))
    columns = torch.where(columns >= 0, columns, matrix.shape[1])
    if index is None:
        return padded.T[columns].mT
    return padded[index.clamp_min(0)[:, :, None], columns[:, None]]


def _copied(matrix: Tensor, index: Tensor | None, columns: Tensor | None) -> Tensor:
    """The same on a CPU, where rows that are copied whole take a quarter of the time."""
    if index is not None:
        rows = matrix.index_select(0, index.clamp_min(0).flatten()).reshape(*index.shape, matrix.shape[1])
    if columns is None:
        return matrix if index is None else rows
    at = columns.clamp_min(0)
    if index is None:
        found = matrix.index_select(1, at.flatten()).reshape(len(matrix), *at.shape).transpose(0, 1)
    elif len(rows) == len(at) == 1:
        found = rows[0].index_select(1, at[0])[None]
    else:
        found = rows.gather(2, at[:, None].expand(-1, rows.shape[1], -1))
    return found.mul_((columns >= 0).to(found.dtype)[:, None])  # in half of the time of `where`


def are_few(c: Columns, size: int) -> bool:
    """Whether there are so few rows over entries of a node of this size that a product with its whole matrix takes less
    time than copying the part of it that each input has to do with. (On a GPU a kernel copies it, fast.)"""
    return not c.a.is_cuda and c.a.shape[1] * size <= _PRODUCTS * c.a.shape[2]


def whole(c: Coefficients, shape: Shape) -> Tensor:
    """Coefficients over all of a node of this shape."""
    if isinstance(c, Tensor):
        return c
    if isinstance(c, Columns):
        # What stands at -1 is zero: adding it somewhere changes nothing.
        at = c.index.clamp_min(0)[:, None].expand_as(c.a)
        return c.a.new_zeros(*c.a.shape[:2], *shape).scatter_add_(2, at, c.a)
    lead, positions = c.a.shape[:2], math.prod(shape[1:])
    at = c.place.under(c.at, tuple(shape[1:]))
    at = at.expand(*lead, -1) + _each(lead, positions + 1, at.device)
    rows = c.a.new_zeros(lead[0] * lead[1] * (positions + 1), shape[0])
    rows.index_copy_(0, at.flatten(), c.a.reshape(-1, shape[0]))
    found = rows.reshape(*lead, positions + 1, shape[0])[:, :, :positions]
    # (Contiguous: what comes after is twice as fast.)
    return found.transpose(2, 3).contiguous().reshape(*lead, *shape)


def total(x: Coefficients, y: Coefficients, shape: Shape) -> Coefficients:
    """The sum of coefficients that arrive at one node on two ways."""
    if isinstance(x, Patch) and isinstance(y, Patch) and x.at == y.at:
        return replace(x, a=x.a + y.a, clean=x.clean and y.clean)
    return whole(x, shape) + whole(y, shape)


def collected(weight: Tensor, c: Coefficients, shape: Shape) -> Tensor:
    """`sum_s weight[b, k, s] c[b, s]` over all of a node, `b x k x *shape`."""
    batch, count = weight.shape[:2]
    if isinstance(c, Tensor):
        return _weighted(weight, c.flatten(2)).reshape(batch, count, *shape)
    if isinstance(c, Columns):
        found = _weighted(weight, c.a)
        at = c.index.clamp_min(0)[:, None].expand_as(found)
        return found.new_zeros(batch, count, *shape).scatter_add_(2, at, found)
    positions = math.prod(shape[1:])
    at = c.place.under(c.at, tuple(shape[1:]))
    at = (at.expand(batch, c.a.shape[1], -1) + _each((batch,), positions + 1, at.device)[:, None]).flatten()
    totals = []
    for own in weight.unbind(1):
        values = c.a * own.reshape(*own.shape, *[1] * (c.a.dim() - 2))
        rows = values.new_zeros(batch * (positions + 1), shape[0]).index_add_(0, at, values.reshape(-1, shape[0]))
        totals.append(rows.reshape(batch, positions + 1, shape[0])[:, :positions].transpose(1, 2))
    return torch.stack(totals, 1).reshape(batch, count, *shape)


def _weighted(weight: Tensor, a: Tensor) -> Tensor:
    if len(a) == 1:
        return (weight.to(a.dtype).flatten(0, 1) @ a[0]).to(weight.dtype).reshape(*weight.shape[:2], -1)
    return torch.bmm(weight.to(a.dtype), a).to(weight.dtype)


def dotted(c: Coefficients, a: Tensor, t: Tensor) -> Tensor:
    """`sum a t` over the node for each row, `b x r`; `a`: numbers over the places of `c`, `t`: what `cut` gave."""
    if isinstance(c, Patch):
        return (a * t).flatten(2).sum(-1)
    a, t = a.flatten(2), t.flatten(2)
    if a.shape[0] == 1:
        return t[:, 0] @ a[0].T
    return torch.bmm(a, t.transpose(1, 2)).squeeze(-1)


# --- windows


def windows(t: Tensor, place: Places, at: Geometry) -> Tensor:
    """Of `t`, `b x c x *spatial`, what lies under each row's window, zero outside: `b x s x *size x c`."""
    lead, channels, positions = (len(t), place.rows), t.shape[1], math.prod(t.shape[2:])
    index = place.under(at, tuple(t.shape[2:]))
    index = index.expand(*lead, -1) + _each(lead[:1], positions + 1, index.device)[:, None]
    rows = F.pad(t.flatten(2).transpose(1, 2), (0, 0, 0, 1)).reshape(-1, channels)
    return rows.index_select(0, index.flatten()).reshape(*lead, *at.size, channels)


def own_windows(t: Tensor, place: Places, at: Geometry) -> Tensor:
    """The same where each row has numbers of its own: `t`, `b x s x c x *spatial`."""
    lead = t.shape[:2]
    return windows(t.flatten(0, 1), place.each(lead[0]), at).reshape(*lead, *at.size, t.shape[2])


def embedded(a: Tensor, inner: Geometry, outer: Geometry) -> Tensor:
    """Numbers over windows as numbers over others: zero where these are larger, cut off where they are smaller."""
    return a if inner == outer else F.pad(a, inner.margins(outer))


def cleaned(c: Patch, spatial: Shape) -> Tensor:
    """The patch's numbers, zero outside of the node."""
    if c.clean:
        return c.a
    return c.a * windows(c.a.new_ones(len(c.place), 1, *spatial), c.place, c.at)


def images_of(a: Tensor) -> Tensor:
    """`b x s x *size x c` as images, `n x c x *size`."""
    return a.flatten(0, 1).movedim(-1, 1)


def laid_out(images: Tensor) -> Tensor:
    """Images of which the channels come last in memory as a convolution on a CPU takes them best: small ones not so."""
    large = math.prod(images.shape[2:]) >= _LARGE_IMAGE and images.shape[1] >= _MANY_CHANNELS
    return images if large and images.dim() == 4 and not images.is_cuda else images.contiguous()


def channels_last(images: Tensor, lead: Sequence[int]) -> Tensor:
    """And back."""
    return images.movedim(1, -1).contiguous().reshape(*lead, *images.shape[2:], images.shape[1])


def _each(lead: Sequence[int], size: int, device: torch.device) -> Tensor:
    """Where each row's numbers begin if every row has `size`: `*lead x 1`."""
    return (torch.arange(math.prod(lead), device=device) * size).reshape(*lead, 1)


__all__ = [
    "Coefficients", "Columns", "Geometry", "Patch", "Places", "are_few", "channels_last", "cleaned", "collected",
    "columns_of", "cut", "dotted", "embedded", "images_of", "laid_out", "like", "numbers", "own_windows", "part_of",
    "total", "whole", "wide", "windows",
]  # fmt: skip
