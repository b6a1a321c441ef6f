"""One chunk of rows on their way down to the input and, for the derivative, up again. See `linear`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from elbowroom.network.operations import Shape
from elbowroom.search.bounds.coefficients import (
    Coefficients,
    Columns,
    Patch,
    Places,
    are_few,
    cleaned,
    columns_of,
    dotted,
    embedded,
    like,
    numbers,
    own_windows,
    total,
)  # fmt: skip
from elbowroom.search.bounds.dense import adjoint_at, linear_at
from elbowroom.search.bounds.front import Nodes
from elbowroom.search.bounds.fused import attained, lines_at, past_lines, past_planes, rows_of, support, whole
from elbowroom.search.bounds.maps import MAPS, map_of
from elbowroom.search.bounds.planes import Lines
from elbowroom.search.bounds.route import Plan
from elbowroom.search.bounds.wide import Entry, Through
from elbowroom.search.regions.input_set import InputSet

_FEW_OPEN = 0.8  # of the active entries: from where on products with these alone save nothing


class Term(NamedTuple):
    """A term of a relaxation: the node it reads, and its `source` there."""

    node: int
    source: Tensor | None


class Relaxation(NamedTuple):
    """The planes of a node: terms, and lines, `Planes.gaps` (parallel) or `pairs`. `active`: the entries that are not
    zero throughout, `b x m`, filled up with -1; None where rows are not cut to them. `open`: so many of these, the
    first, are all whose lines differ, if that is known."""

    terms: list[Term]
    lines: Lines
    active: Tensor | None
    open: int | None


class Steps:
    """Coefficients over a node become coefficients over its inputs."""

    def __init__(self, net: Nodes, plan: Plan) -> None:
        self.net, self.plan = net, plan

    def affine(self, i: int, coefficients: dict[int, Coefficients]) -> None:
        node, c = self.net.nodes[i], coefficients.pop(i)
        row, shapes = map_of(node), [self.net.nodes[j].shape for j in node.inputs]
        weight = row.matrix(node.op)
        if weight is not None and not isinstance(c, Patch) and len(node.shape) == 1:
            index, columns = c.index if isinstance(c, Columns) else None, self.columns(node.inputs[0])
            a = numbers(c)
            if columns is not None and len(a) != len(columns):
                columns = None
            if isinstance(c, Columns) and are_few(c, len(weight)):
                a = _kept(whole(c, node.shape) @ weight, columns)
            else:
                a = a @ self.matrix(i, weight, index, columns)
            self.give(node.inputs[0], a if columns is None else Columns(a, columns), coefficients)
            return
        if isinstance(c, Patch):
            reached = row.reach(node.op, c.at, node.shape, shapes)
            if reached is not None:
                clean = c.clean and reached == c.at
                for j, part in zip(node.inputs, adjoint_at(node, c, shapes)):
                    self.give(j, Patch(part, c.place, reached, clean), coefficients)
                return
        a = whole(c, node.shape)
        for j, part, shape in zip(node.inputs, row.adjoint(node.op, a.flatten(0, 1), shapes), shapes):
            self.give(j, part.reshape(*a.shape[:2], *shape), coefficients)

    def columns(self, j: int) -> Tensor | None:
        """The entries of node j, `b x m`, that its planes leave; None for all."""
        return None

    def matrix(self, i: int, weight: Tensor, index: Tensor | None, columns: Tensor | None) -> Tensor:
        """Of the matrix of node i, what rows over entries `index` have to do with `columns`."""
        return rows_of(weight, index, columns)

    def give(self, j: int, c: Coefficients, coefficients: dict[int, Coefficients]) -> None:
        """Coefficients arrive at node j, and add up there."""
        at, shape = self.plan[j], self.net.nodes[j].shape
        if isinstance(c, Patch):
            c = whole(c, shape) if at is None else replace(c, a=embedded(c.a, c.at, at), at=at)
        coefficients[j] = total(coefficients[j], c, shape) if j in coefficients else c


class Walk(Steps):
    """`relaxed`: planes by node. `trace`: what is kept for the way up. `entry`: where rows end, if not at the input."""

    def __init__(
        self, net: Nodes, plan: Plan, inputs: InputSet, relaxed: dict[int, Relaxation], parallel: bool, trace: bool,
        entry: Entry | None = None,
    ) -> None:  # fmt: skip
        super().__init__(net, plan)
        self.inputs, self.relaxed, self.parallel, self.entry = inputs, relaxed, parallel, entry
        self.trace: dict[int, Coefficients] | None = {} if trace else None
        self.place: Places | None = None  # where rows over windows began
        self._matrices: dict[int, tuple[Tensor | None, Tensor | None, Tensor]] = {}
        self.lines: dict[int, list[Tensor]] = {}  # where the coefficients are, if they were looked up

    def matrix(self, i: int, weight: Tensor, index: Tensor | None, columns: Tensor | None) -> Tensor:
        # Rows go down some at a time, all with the same part of the matrix.
        known = self._matrices.get(i)
        if known is None or known[0] is not index or known[1] is not columns:
            known = self._matrices[i] = index, columns, rows_of(weight, index, columns)
        return known[2]

    def columns(self, j: int) -> Tensor | None:
        known = self.relaxed.get(j)
        return None if known is None or any(term.source is not None for term in known.terms) else known.active

    def _lines(self, i: int, c: Coefficients) -> list[Tensor]:
        """The lines of node i where the coefficients are."""
        lines = self.lines.pop(i, None)
        if lines is None:
            lines = lines_at(c, self.relaxed[i].lines)
            if self.trace is not None:
                self.lines[i] = lines
        return lines

    def down(self, coefficients: dict[int, Coefficients]) -> Tensor:
        """The rows' lower bounds, `b x r`. Coefficients: of all inputs of the chunk, or `1 x ...` for all the same."""
        sum_: Tensor | float = 0.0
        self.place = next((c.place for c in coefficients.values() if isinstance(c, Patch)), None)
        while True:
            i = max(coefficients)
            if i == 0 or (self.entry is not None and i == self.entry.node):
                return sum_ - self._support(i, coefficients.pop(i))
            if i not in self.relaxed:
                found = self._to_input(i, coefficients)
                if found is not None:
                    return sum_ - found
                self.affine(i, coefficients)
                continue
            terms, _, active, _ = self.relaxed[i]
            c = coefficients.pop(i)
            if any(term.source is not None for term in terms):
                c = whole(c, self.net.nodes[i].shape)
            elif active is not None and isinstance(c, Tensor):
                c = _cut_to(c, active)
            if self.trace is not None:
                self.trace[i] = c
            parts, added = past_lines(c, self.relaxed[i].lines, self.parallel, partial(self._lines, i, c))
            sum_ = sum_ + added
            for term, below in zip(terms, parts):
                if term.source is not None:
                    below = _scattered(below, term.source, self.net.nodes[term.node].shape)
                self.give(term.node, like(c, below), coefficients)

    def has_pairs(self, i: int) -> bool:
        """Whether single entries of node i are rows of a matrix over a relaxed node, and `down_both` saves anything."""
        node = self.net.nodes[i]
        row = MAPS.get(type(node.op)) if len(node.shape) == 1 else None
        if row is None or row.matrix(node.op) is None or self.entry is not None:
            return False
        below = self.relaxed.get(node.inputs[0])
        if below is None or below.active is None or below.open is None:
            return False
        return below.open <= _FEW_OPEN * below.active.shape[1]

    def down_both(self, i: int, c: Columns) -> Tensor:
        """As `down`, of rows over a relaxed node and, behind each, its negative: `b x 2 r`; see `has_pairs`.

        Past the lines a row `a` becomes `a m + |a| d`, m the mean of the slopes above and below and d half of their
        difference, and `-a` becomes `-a m + |a| d`. But d is zero for entries that are not open. So behind the lines,
        in place of two products with all of a matrix, one serves, and one with the few rows of the open ones.
        """
        (term,), lines, _, few = self.relaxed[i]
        node = self.net.nodes[term.node]
        weight, columns = map_of(node).matrix(node.op), self.columns(node.inputs[0])
        assert weight is not None
        own, a, size = self.matrix(term.node, weight, c.index, columns), c.a, c.a.abs()
        every = lines_at(c, lines)
        if self.trace is not None:
            self.trace[i], self.lines[i] = Columns(torch.stack([a, -a], 2).flatten(1, 2), c.index), every
        upper, step, end, end_step = every
        step, end_step = step / 2, end_step / 2
        mean = torch.bmm(a * (upper + step), own)
        bent = torch.bmm((size * step)[..., :few], own[:, :few])
        both = mean.new_empty(*mean.shape[:2], 2, mean.shape[2])
        torch.add(bent, mean, out=both[:, :, 0])
        torch.sub(bent, mean, out=both[:, :, 1])
        found, below = both.flatten(1, 2), node.inputs[0]
        coefficients: dict[int, Coefficients] = {below: found if columns is None else Columns(found, columns)}
        odd, even = dotted(c, a, end + end_step), dotted(c, size, end_step)
        return self.down(coefficients) + torch.stack([even + odd, even - odd], 2).flatten(1)

    def _to_input(self, i: int, coefficients: dict[int, Coefficients]) -> Tensor | None:
        """The largest value of rows over the input, `b x r`, straight from a layer that reads it, where that is faster:
        on a GPU, where reading rows once more takes as long as making them. The radius then belongs to the matrix."""
        node, c = self.net.nodes[i], coefficients[i]
        weight = map_of(node).matrix(node.op)
        if len(coefficients) > 1 or node.inputs != (0,) or weight is None or len(node.shape) > 1:
            return None
        if self.trace is not None or not self.inputs.is_box or isinstance(c, Patch) or not _reads_slowly(numbers(c)):
            return None
        a, radius = numbers(c), self.inputs.radius
        if a.dtype != radius.dtype:  # a radius may be too small for half precision
            return None
        if len(a) != len(radius) or a.shape[1] < a.shape[2]:  # a matrix for each input must be less than its rows
            return None
        scaled = rows_of(weight, c.index if isinstance(c, Columns) else None, None, radius)
        found: Tensor = torch.linalg.vector_norm(a @ scaled, ord=1, dim=-1)
        return found

    def _support(self, i: int, c: Coefficients) -> Tensor:
        """The largest value of rows over the input, or the entry."""
        if self.trace is not None:
            self.trace[i] = c
        if i and self.entry is not None:
            return self.entry.support(c, self.inputs)
        if isinstance(c, Patch) or (self.inputs.is_box and _reads_slowly(numbers(c))):
            return support(c, self.inputs.radius)
        return self.inputs.support(whole(c, self.net.nodes[0].shape).flatten(2), self.parallel)

    # --- derivatives

    def rest(self) -> None:
        """Between the ways down and up: lets go of what can be looked up again."""
        self.lines.clear()
        self._matrices.clear()

    def up(self, ancestors: Sequence[int]) -> list[Coefficients | Through]:
        """After a traced `down`: derivatives of the rows by the radius and the planes of every relaxed node, in the
        order of `linear._parameters`. (Coefficients, too: per row, over a part of a node or all of it.) Of a pair,
        those by the upper one are by both together, so that fewer numbers are written."""
        assert self.trace is not None
        first = 0 if 0 in self.trace or self.entry is None else self.entry.node
        start = self.trace[first]
        at: Coefficients
        by_radius: Coefficients | Through
        if first and self.entry is not None:
            by_radius = Through(self.entry, start)
            at = self.entry.attained(start, self.inputs)
        elif isinstance(start, Patch) or (self.inputs.is_box and _reads_slowly(numbers(start))):
            start = start if isinstance(start, Patch) else whole(start, self.net.nodes[0].shape)
            at, by_radius = (like(start, t) for t in attained(start, self.inputs.radius))
        else:
            flat = whole(start, self.net.nodes[0].shape).flatten(2)
            point, by = self.inputs.support_gradient(flat, self.parallel)
            by_radius, at = by.neg_(), point.neg_().reshape(*point.shape[:2], *self.net.nodes[0].shape)
        # g[i]: the derivative of each row's bound by its coefficients over node i.
        g = {first: at}
        found: dict[int, list[Coefficients]] = {}
        last = max(self.trace)
        self._cut_to_open(last)
        for i in ancestors[1:]:
            if i > last:
                break
            if i <= first:
                continue
            if any(j not in g for j in self.net.nodes[i].inputs):
                continue
            if i in self.relaxed:
                g[i], found[i] = self._past_planes(i, g)
            else:
                g[i] = self._past_affine(i, g)
        return [by_radius, *(c for i in self.relaxed for c in found[i])]

    def _past_affine(self, i: int, g: dict[int, Coefficients]) -> Coefficients:
        node, at = self.net.nodes[i], self.plan[i]
        row, shapes = map_of(node), [self.net.nodes[j].shape for j in node.inputs]
        reached = None if at is None else row.reach(node.op, at, node.shape, shapes)
        if at is not None and reached is not None and self.place is not None:
            parts = []
            for j, shape in zip(node.inputs, shapes):
                below = g[j]
                if isinstance(below, Patch):
                    parts.append(embedded(cleaned(below, shape[1:]), below.at, reached))
                else:
                    parts.append(own_windows(whole(below, shape), self.place, reached))
            patch = Patch(parts[0], self.place, at, False)
            return replace(patch, a=linear_at(node, parts, patch, shapes))
        weight = row.matrix(node.op)
        if weight is not None and len(node.shape) == 1:
            below, index = g[node.inputs[0]], self._columns_above(i)
            if isinstance(below, Columns) and are_few(below, weight.shape[1]):
                found = _kept(whole(below, shapes[0]) @ weight.mT, index)
                return found if index is None else Columns(found, index)
            columns = below.index if isinstance(below, Columns) else None
            found = numbers(below) @ self.matrix(i, weight, index, columns).mT
            return found if index is None else Columns(torch.where(index[:, None] >= 0, found, 0.0), index)
        read = [whole(g[j], shape) for j, shape in zip(node.inputs, shapes)]
        pushed = row.linear(node.op, *(t.flatten(0, 1) for t in read))
        pushed = pushed.reshape(*read[0].shape[:2], *node.shape)
        if at is None or self.place is None:
            return pushed
        return Patch(own_windows(pushed, self.place, at), self.place, at, True)

    def _columns_above(self, i: int) -> Tensor | None:
        """The entries of node i that matter, where its only reader was cut to them."""
        assert self.trace is not None
        for k, c in self.trace.items():
            if isinstance(c, Columns) and self.net.nodes[k].inputs == (i,):
                return c.index
        return None

    def _past_planes(self, i: int, g: dict[int, Coefficients]) -> tuple[Coefficients, list[Coefficients]]:
        """Past a relaxed node: g there, and the derivatives of the rows by its planes."""
        assert self.trace is not None
        c, shape = self.trace[i], self.net.nodes[i].shape
        few = self.relaxed[i].open if isinstance(c, Columns) else None
        below = [self._below(g[term.node], c, term, shape) for term in self.relaxed[i].terms]
        here, by = past_planes(c, below, self.relaxed[i].lines, self.parallel, partial(self._lines, i, c), few)
        if isinstance(c, Columns):
            return like(c, here), [Columns(t, c.index[:, :few]) for t in by]
        return like(c, here), [like(c, t) for t in by]

    def _cut_to_open(self, i: int) -> None:
        """Above the last relaxed node nothing is asked for but the derivatives by its planes, and those of entries that
        are not open do not move: there the way up ends at the others."""
        assert self.trace is not None
        c, few = self.trace[i], self.relaxed[i].open if i in self.relaxed else None
        if few is None or not isinstance(c, Columns):
            return
        index = c.index[:, :few]
        if i in self.lines:
            self.lines[i] = [t[..., :few] for t in self.lines[i]]
        below = self.net.nodes[i].inputs[0]
        known = self._matrices.get(below)
        if known is not None and known[0] is c.index:
            self._matrices[below] = index, known[1], known[2][:, :few]
        self.trace[i] = Columns(c.a[..., :few], index)

    def _below(self, g: Coefficients, c: Coefficients, term: Term, shape: Shape) -> Tensor:
        """The derivative by coefficients over the node that a term reads, where the coefficients `c` above it are."""
        if isinstance(c, Patch):
            if isinstance(g, Patch):
                return embedded(g.a, g.at, c.at)
            return own_windows(whole(g, shape), c.place, c.at)
        if isinstance(c, Columns):
            # (Where rows end at an entry, what comes from there is not cut to those that are open, which come first.)
            return g.a[..., : c.a.shape[2]] if isinstance(g, Columns) else numbers(_cut_to(whole(g, shape), c.index))
        below = whole(g, self.net.nodes[term.node].shape)
        if term.source is None:
            return below
        index = term.source[:, None].expand(-1, below.shape[1], -1)
        return below.flatten(2).gather(2, index).reshape(*below.shape[:2], *shape)


def relaxations(
    terms: dict[int, list[tuple[int, Tensor | None]]],
    lines: dict[int, Lines],
    active: dict[int, tuple[Tensor, int | None]],
    part: slice | Tensor,
) -> dict[int, Relaxation]:
    """Planes by node, of a part of the batch, whose entries `active` count, see `Relaxation`."""
    found = {}
    for i, known in terms.items():
        own = [Term(j, None if s is None else s[part]) for j, s in known]
        found[i] = Relaxation(own, lines[i].take(part), *active.get(i, (None, None)))
    return found


def _reads_slowly(a: Tensor) -> bool:
    """Whether rows take as long to read as to make."""
    return a.is_cuda or a.dtype == torch.float16


def _kept(a: Tensor, index: Tensor | None) -> Tensor:
    """Of coefficients over a node of one axis, `b x r x n`, some entries, where these are given."""
    return a if index is None else columns_of(a, index)


def _cut_to(a: Tensor, index: Tensor) -> Columns:
    """Coefficients over a node of one axis, cut to some entries."""
    return Columns(columns_of(a.expand(len(index), -1, -1), index), index)


def _scattered(a: Tensor, source: Tensor, shape: Shape) -> Tensor:
    """Coefficients, `b x r x *output`, added up at the places of a node of this shape that they belong to."""
    flat = a.flatten(2)
    zeros = flat.new_zeros(*flat.shape[:2], math.prod(shape))
    at = source[:, None].expand(-1, flat.shape[1], -1)
    return zeros.scatter_add_(2, at, flat).reshape(*flat.shape[:2], *shape)


__all__ = ["Relaxation", "Steps", "Term", "Walk", "relaxations"]
