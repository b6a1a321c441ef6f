"""Rows that end in a wide input: the last product and what is asked of it, a block of features at a time.

Of an image of 150,000 features a hundred rows are 60 MB, written, read, and read again by every step that follows. But
nobody needs them whole: the support of a row over a box, its derivative by the radius, and the point where it is
attained are sums over features, or belong to one of them. So a block of features, small enough to stay in the cache,
goes through all steps before the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from elbowroom.network.operations import Shape
from elbowroom.search.bounds.coefficients import Coefficients, Columns, numbers
from elbowroom.search.bounds.front import Entrance, Nodes
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.regions.input_set import InputSet, dot

_WIDE = 1 << 13  # features: from where on rows do not fit the cache
_BLOCK = 200_000  # numbers of a block of rows
_LEAST = 256  # features of a block


def is_wide(net: Nodes, inputs: InputSet) -> bool:
    """Whether rows over the input do not fit the cache. (A GPU has no such cache.)"""
    return net.nodes[0].size >= _WIDE and inputs.center.device.type == "cpu"


@dataclass(frozen=True, eq=False)
class Entry:
    """The one operation that reads the input: `node`, with its matrix `weight`, `out x n`. (What stands before it is
    in the radius, see `front`.)"""

    node: int
    weight: Tensor

    @staticmethod
    def of(net: Nodes, inputs: InputSet) -> Entry | None:
        """None where the input is not wide, is read by others, or is no box."""
        if not inputs.is_box or not is_wide(net, inputs):
            return None
        entrance = Entrance.of(net)
        if entrance is None or entrance.before:
            return None
        node = net.nodes[entrance.node]
        weight = MAPS[type(node.op)].matrix(node.op)
        return Entry(entrance.node, weight) if weight is not None and len(node.shape) == 1 else None

    def _blocks(self, c: Coefficients) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows over the operation's output, carried to its input: features, the matrix there, and `b x r x block`. Each
        is where the block before was."""
        a = numbers(c)
        size = max(_LEAST, _BLOCK // (a.shape[0] * a.shape[1]) // 64 * 64)
        room = min(size, self.weight.shape[1])
        rows = a.new_empty(a.shape[0] * a.shape[1] * room)
        index = c.index.clamp_min(0).flatten() if isinstance(c, Columns) else None
        own = None if index is None else a.new_empty(len(index) * room)
        for start in range(0, self.weight.shape[1], size):
            at = slice(start, start + size)
            weight = self.weight[:, at]
            found = rows[: a.shape[0] * a.shape[1] * weight.shape[1]].view(*a.shape[:2], -1)
            if index is None or own is None:
                torch.mm(a.flatten(0, 1), weight, out=found.view(-1, weight.shape[1]))
            else:  # what stands at -1 is zero
                # (Rows copied whole take a fraction of the time of indexing.)
                place = own[: len(index) * weight.shape[1]].view(len(index), -1)
                weight = torch.index_select(weight, 0, index, out=place).view(len(a), -1, weight.shape[1])
                torch.bmm(a, weight, out=found)
            yield at, weight, found

    def support(self, c: Coefficients, inputs: InputSet) -> Tensor:
        """How far rows fall below their value at the centre, `b x r`."""
        radius, total = inputs.radius.flatten(1), None
        for at, _, rows in self._blocks(c):
            part = dot(rows.abs_(), radius[:, at])
            total = part if total is None else total.add_(part)
        assert total is not None
        return total

    def attained(self, c: Coefficients, inputs: InputSet) -> Coefficients:
        """The point of the box, from its centre, where rows over the operation are least, and what the operation makes
        of it: `b x r x out`, or the entries that count."""
        radius, total = inputs.radius.flatten(1), torch.zeros_like(numbers(c))
        for at, weight, rows in self._blocks(c):
            torch.copysign(radius[:, None, at], rows, out=rows)
            total -= rows @ weight.mT
        return Columns(torch.where(c.index[:, None] >= 0, total, 0.0), c.index) if isinstance(c, Columns) else total

    def by_radius(self, weight: Tensor, c: Coefficients, shape: Shape) -> Tensor:
        """Derivatives by the radius, `b x k x *shape`, of sums of rows' bounds: those of `c`, `b x r`, weighted by
        `weight`, `b x k x r`."""
        found = weight.new_empty(*weight.shape[:2], self.weight.shape[1])
        for at, _, rows in self._blocks(c):
            found[:, :, at] = torch.bmm(weight, rows.abs_().neg_())
        return found.reshape(*weight.shape[:2], *shape)


class Through(NamedTuple):
    """Derivatives of rows' bounds by the radius that are not written out: `c`, rows over the operation that reads the
    input."""

    entry: Entry
    c: Coefficients

    def collected(self, weight: Tensor, shape: Shape) -> Tensor:
        """See `coefficients.collected`."""
        return self.entry.by_radius(weight, self.c, shape)


__all__ = ["Entry", "Through", "is_wide"]
