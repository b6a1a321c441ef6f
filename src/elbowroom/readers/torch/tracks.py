"""Follows the columns of a module's inputs through what only moves them about, to the embeddings that look them up.

What moves columns is run on their numbers in place of their values, so that there is no second account of slices and
axes here. Two inputs of a batch are followed, by numbers far apart: what mixes them is not followed, nor what takes
pieces of the batch, which two inputs need not show.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from elbowroom.readers.reading import RefusalError, refuse, refuse_many_codes

aten = torch.ops.aten

LOOKUPS = (aten.embedding.default, aten.one_hot.default)
_FAR = 1 << 40  # between the numbers of the two inputs
_MOVES = {
    aten.clone.default, aten.alias.default, aten.detach.default, aten.contiguous.default, aten.view.default,
    aten._unsafe_view.default, aten.reshape.default, aten.flatten.using_ints, aten.unflatten.int, aten.squeeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, aten.expand.default, aten.permute.default,
    aten.transpose.int, aten.slice.Tensor, aten.select.int, aten.split.Tensor, aten.split_with_sizes.default,
    aten.chunk.default, aten.unbind.int, aten.index_select.default, aten.index.Tensor, aten.flip.default,
    aten.cat.default, aten.stack.default, operator.getitem,
}  # fmt: skip
_JOINS = {aten.cat.default, aten.stack.default}
# Where operations on pieces of an axis have its number among their arguments.
_ALONG: dict[Any, int] = {
    aten.cat.default: 1, aten.stack.default: 1, aten.slice.Tensor: 1, aten.select.int: 1, aten.split.Tensor: 2,
    aten.split_with_sizes.default: 2, aten.chunk.default: 2, aten.unbind.int: 1, aten.index_select.default: 1,
    aten.flip.default: 1,
}  # fmt: skip
_CASTS = {aten._to_copy.default, aten.to.dtype, aten.type_as.default}
_ROUNDS = {aten.round.default, aten.floor.default, aten.ceil.default, aten.trunc.default}
# Whose arguments may be computed from the batch size: shapes, which are compared with the trace's.
_SHAPED = {
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unflatten.int, aten.expand.default,
}  # fmt: skip
_SHIFTS: dict[Any, int] = {aten.add.Tensor: 1, aten.add.Scalar: 1, aten.sub.Tensor: -1, aten.sub.Scalar: -1}


@dataclass(frozen=True)
class Source:
    """What stands at one place of a tensor: a column, by number, on its way through the types `kinds` (rounding counts
    as the type int64), plus the whole number `shift`; `least`, `most`: the extremes of that on the way."""

    column: int
    kinds: frozenset[torch.dtype] = frozenset()
    shift: int = 0
    least: int = 0
    most: int = 0

    def moved(self, by: int) -> Source:
        now = self.shift + by
        return replace(self, shift=now, least=min(self.least, now), most=max(self.most, now))


class Tracks:
    """Walks through the nodes of a program in order. `columns`: of its inputs, the numbers of their columns, `*shape`;
    `constants`: its stored tensors.

    Attributes:
        held: What stands where in the nodes that only hold columns: sources, flat. Of a node that gives several such
            tensors, None.
        levels: Of columns that are looked up: the least and the largest code.
        refused: Lookups that cannot be read, and why.
        restricted: Whether codes were held to those between one offset and the next.
    """

    def __init__(
        self, nodes: Sequence[fx.Node], columns: dict[fx.Node, Tensor], constants: dict[fx.Node, Tensor]
    ) -> None:
        self.held: dict[fx.Node, tuple[Source, ...] | None] = {}
        self.levels: dict[int, tuple[int, int]] = {}
        self.refused: dict[fx.Node, str] = {}
        self.restricted = False
        self._batch = str(next(iter(columns)).meta["val"].shape[0])
        self._sources: list[Source] = []
        self._numbers: dict[Source, int] = {}
        self._sized: set[fx.Node] = set()  # what is computed from the batch size
        self._known: dict[fx.Node, Any] = {n: t for n, t in constants.items() if not t.is_floating_point()}
        for node, places in columns.items():
            one = torch.tensor([self._number(Source(c)) for c in places.flatten().tolist()]).reshape(places.shape)
            self._keep(node, torch.stack([one, one + _FAR]))
        for node in nodes:
            if node.op == "call_function" and all(n in self._known for n in node.all_input_nodes):
                self._follow(node)
        for node in nodes:
            if node.target in LOOKUPS:
                try:
                    self._look_up(node)
                except RefusalError as refusal:
                    self.refused[node] = str(refusal)

    def _number(self, source: Source) -> int:
        if source not in self._numbers:
            self._numbers[source] = len(self._sources)
            self._sources.append(source)
        return self._numbers[source]

    def _follow(self, node: fx.Node) -> None:
        given = [n for n in node.all_input_nodes if n in self.held]
        args: Any
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self._known[n])
        value = node.meta.get("val")
        number = not isinstance(value, Tensor | tuple | list)
        sized = any(n in self._sized for n in node.all_input_nodes)
        if sized and given and not number and node.target not in _SHAPED:
            return  # in another batch it would be another column, or another code
        if number or (sized and not given):
            self._sized.add(node)
        try:
            if number or (not given and _is_whole(value)):
                if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
                    self._known[node] = node.target(*args, **kwargs)  # type: ignore[operator]
                return
            if not given:
                return
            if node.target in _MOVES:
                if _leaves_batch(node):
                    found = node.target(*args, **kwargs)  # type: ignore[operator]
                    if node.target in _JOINS:  # which may be of several types
                        found = self._changed(found, lambda s: replace(s, kinds=s.kinds | {node.meta["val"].dtype}))
                    self._keep(node, found)
            elif node.target in _CASTS or (node.target in _ROUNDS and len(args) == 1):
                kind = torch.int64 if node.target in _ROUNDS else node.meta["val"].dtype
                self._keep(node, self._changed(args[0], lambda s: replace(s, kinds=s.kinds | {kind})))
            elif node.target in _SHIFTS and _counts(value) and kwargs.get("alpha", 1) == 1 and len(args) == 2:
                self._shift(node, given, *args)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return  # then it is not followed

    def _keep(self, node: fx.Node, found: Any) -> None:
        several = isinstance(found, tuple | list)
        shapes = node.meta["val"] if several else [node.meta["val"]]
        for one, like in zip(found if several else [found], shapes, strict=True):
            apart = one.dim() > 0 and len(one) == 2 and bool((one[1] == one[0] + _FAR).all())
            if not apart or tuple(one.shape[1:]) != tuple(like.shape[1:]) or str(like.shape[0]) != self._batch:
                return
        self._known[node] = found
        self.held[node] = None if several else tuple(self._sources[k] for k in found[0].flatten().tolist())

    def _changed(self, numbers: Tensor, change: Any) -> Tensor:
        one = [self._number(change(self._sources[k])) for k in numbers[0].flatten().tolist()]
        found = torch.tensor(one, dtype=torch.int64).reshape(numbers.shape[1:])
        return torch.stack([found, found + _FAR])

    def _shift(self, node: fx.Node, given: list[fx.Node], a: Any, b: Any) -> None:
        """A whole number, or one for each place, added to codes or subtracted from them."""
        sign, swapped = _SHIFTS[node.target], node.args[0] not in given
        if len(given) != 1 or (swapped and sign < 0):
            return
        codes, by = (b, a) if swapped else (a, b)
        codes, by = torch.broadcast_tensors(codes, torch.as_tensor(by))
        if by.is_floating_point() or not bool((by[0] == by[1]).all()):
            return
        found = [
            self._number(self._sources[k].moved(sign * int(v)))
            for k, v in zip(codes[0].flatten().tolist(), by[0].flatten().tolist())
        ]
        one = torch.tensor(found).reshape(codes.shape[1:])
        self._keep(node, torch.stack([one, one + _FAR]))

    def _look_up(self, node: fx.Node) -> None:
        """Which codes a lookup has rows for: those of a column are all that every lookup of it has."""
        embeds = node.target is aten.embedding.default
        index, count = node.args[1 if embeds else 0], _rows(node, embeds)
        sources = self.held.get(index) if isinstance(index, fx.Node) else None
        if not sources or count is None:
            return  # the codes are computed, which is said when it is translated
        offsets = sorted({source.shift for source in sources})
        split = len(offsets) > 1 and offsets[0] >= 0  # one table of rows for several columns, each with its own part
        self.restricted |= split
        found = dict(self.levels)
        for source in sources:
            ends = [*offsets[offsets.index(source.shift) + 1 :], count]
            low, high = (0, ends[0] - 1 - source.shift) if split else (-source.shift, count - 1 - source.shift)
            before = found.get(source.column, (low, high))
            low, high = found[source.column] = max(low, before[0]), min(high, before[1])
            if low > high:
                refuse("has no row for any code of a column that another lookup has one for")
            refuse_many_codes(high - low + 1)
        self.levels = found


def _leaves_batch(node: fx.Node) -> bool:
    """Whether an operation that moves values takes all of the batch, by its arguments."""
    if node.target is aten.index.Tensor:
        indices: Any = node.args[1]
        return indices[0] is None
    if node.target not in _ALONG:
        return True
    if set(node.kwargs) - {"memory_format"}:
        return False
    place, first = _ALONG[node.target], node.args[0]
    rank = (first if isinstance(first, fx.Node) else first[0]).meta["val"].dim()  # type: ignore[index,union-attr]
    rank += node.target is aten.stack.default
    along: Any = node.args[place] if len(node.args) > place else 0
    dims = along if isinstance(along, list | tuple) else [along]
    if all(int(dim) % rank != 0 for dim in dims):
        return True
    given: list[Any] = [*node.args[2:5], None, None, None]
    start, end, step = given[:3]
    whole = start in (None, 0) and (end is None or (isinstance(end, int) and end >= sys.maxsize)) and step in (None, 1)
    return node.target is aten.slice.Tensor and whole


def _rows(node: fx.Node, embeds: bool) -> int | None:
    if not embeds:
        return node.args[1] if type(node.args[1]) is int and node.args[1] > 0 else None
    weight = node.args[0]
    return int(weight.meta["val"].shape[0]) if isinstance(weight, fx.Node) else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point() and not value.is_complex()


def _counts(value: Any) -> bool:
    return _is_whole(value) and value.dtype != torch.bool  # of which a sum is something else


__all__ = ["LOOKUPS", "Source", "Tracks"]
