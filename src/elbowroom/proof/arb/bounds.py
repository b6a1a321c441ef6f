"""Bounds of a network over one region: forward intervals, backward rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from elbowroom.claim.hints import Hints
from elbowroom.claim.tree import Split
from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.arb.affine import Layer, single_entries
from elbowroom.proof.arb.balls import Balls, flint, largest, least, matrix_of, rows_of, smallest
from elbowroom.proof.arb.curves import CURVES, relax
from elbowroom.proof.arb.region import Region
from elbowroom.proof.arb.slopes import Proposals


class Own(NamedTuple):
    """What each row has of its own: slopes of ReLUs' lower lines, by node; of ReLUs that it takes by cases, by node and
    entry, whether they are on their high side."""

    slopes: Mapping[int, list[list[float]]]
    sides: Sequence[Mapping[tuple[int, int], bool]]


class _Lines(NamedTuple):
    """`k_l x_s + m_l <= y <= k_u x_s + m_u` per output, `s` the input it depends on."""

    k_l: Balls
    m_l: Balls
    k_u: Balls
    m_u: Balls
    source: list[int]


class Cut(NamedTuple):
    """What a leaf of a tree says: its splits, and slopes of lower lines of ReLUs by node and entry."""

    path: Sequence[Split]
    slopes: dict[tuple[int, int], Any]


class Bounds:
    """Intervals of every node (exact ends) and lines of every activation, over one region; `cut`: over the part of it
    where splits hold, `empty` where those contradict the intervals. `sharpened`: how often slopes are improved for each
    row of the hidden nodes; `cases`: how many ReLUs are then taken by cases for each of them."""

    def __init__(
        self, net: Network, layers: list[Layer | None], region: Region, hints: Hints, cut: Cut | None = None,
        sharpened: int = 0, cases: int = 0,
    ) -> None:  # fmt: skip
        self.net, self.layers, self.region, self.hints, self.cut = net, layers, region, hints, cut
        self.sharpened, self.cases = sharpened, cases
        self.lower, self.upper = [region.lower], [region.upper]
        self.empty = False
        self.lines: dict[int, _Lines] = {}
        targets = set(net.preactivations) if hints.hidden else set()
        # Nodes whose entries move freely of each other, and nodes whose interval is their very range.
        apart = region.center is None and not region.levels
        free, exact = [apart], [apart]
        for i in range(1, len(net.nodes)):
            low, high = self._forward(i)
            j, layer = net.nodes[i].inputs[0], layers[i]
            single = layer is not None and len(layer.matrices) == 1
            alone, once = single_entries(layer.matrices[0]) if layer is not None and single else (False, False)
            free.append(free[j] and alone and once)
            exact.append(single and (free[j] or (exact[j] and alone)))
            if i in targets and not exact[i]:
                below, above = self._unit_rows(i)
                low = [a.max(b) for a, b in zip(low, below)]
                high = [a.min(b) for a, b in zip(high, above)]
            self.lower.append([v.lower() for v in low])
            self.upper.append([v.upper() for v in high])
            self._clamp(i)

    def part(self, cut: Cut) -> Bounds:
        """These bounds where splits of hidden nodes hold: their intervals are clamped, and lines on them follow."""
        part = copy.copy(self)
        part.cut, part.lines = cut, dict(self.lines)
        part.lower, part.upper = list(self.lower), list(self.upper)
        split, tilted = {s.node for s in cut.path}, {node for node, _ in cut.slopes}
        for i in split:
            part._clamp(i)
        for i in self.lines:
            if i in tilted or not split.isdisjoint(self.net.nodes[i].inputs):
                part._forward(i)  # for its lines; intervals above stay those of the whole
        return part

    def _clamp(self, i: int) -> None:
        """Cuts the intervals of node i; where nothing is left of one, the part is empty."""
        arb = flint().arb
        low, high = list(self.lower[i]), list(self.upper[i])
        for split in self.cut.path if self.cut is not None else ():
            if split.node == i:
                value, k = arb(split.value), split.entry
                if split.high and value > low[k]:
                    low[k] = value
                if not split.high and value < high[k]:
                    high[k] = value
                self.empty = self.empty or bool(low[k] > high[k])
        if not self.empty:
            self.lower[i], self.upper[i] = low, high

    def _forward(self, i: int) -> tuple[Balls, Balls]:
        node = self.net.nodes[i]
        layer = self.layers[i]
        if layer is not None:
            low, high = list(layer.offset), list(layer.offset)
            for j, matrix in zip(node.inputs, layer.matrices):
                for k, row in enumerate(rows_of(matrix)):
                    low[k] += least(row, self.lower[j], self.upper[j])
                    high[k] -= least([-v for v in row], self.lower[j], self.upper[j])
            return low, high
        l, u = self.lower[node.inputs[0]], self.upper[node.inputs[0]]
        if type(node.op) is ops.MaxPool:
            return self._pool(i, node.op, l, u)
        curve = CURVES[type(node.op)]
        found = [relax(curve, a, b, self.hints.parallel) for a, b in zip(l, u)]
        k_l, m_l, k_u, m_u = (list(t) for t in zip(*found))
        for (k, c), slope in self.cut.slopes.items() if self.cut is not None else ():
            if k == i and l[c] < 0 and u[c] > 0:  # below a ReLU lies every line through the origin with such a slope
                k_l[c], m_l[c] = slope, flint().arb(0)
        self.lines[i] = _Lines(k_l, m_l, k_u, m_u, list(range(len(l))))
        return [curve.value(v) for v in l], [curve.value(v) for v in u]

    def _pool(self, i: int, op: ops.MaxPool, l: Balls, u: Balls) -> tuple[Balls, Balls]:
        node = self.net.nodes[i]
        channels, *spatial = self.net.nodes[node.inputs[0]].shape
        arb, size = flint().arb, math.prod(spatial)
        found, seen = [], _windows(op, spatial)
        for c in range(channels):
            for window in seen:
                places = [c * size + w for w in window]
                if not places:
                    raise UnsupportedError(f"{node.name}: a window of this MaxPool lies in the padding alone")
                j = max(places, key=lambda p: float(l[p]))
                v = largest([l[j], *(u[p] for p in places if p != j)])
                top = u[j].max(v)
                # A line above max(x_j, v), which is convex in x_j: above both of its ends.
                slope = arb(1)
                if not self.hints.parallel and v > l[j]:
                    slope = (top - v) / (u[j] - l[j]) if u[j] > l[j] else arb(0)
                shift = arb(0) if v <= l[j] else (v - slope * l[j]).max(top - slope * u[j])
                found.append((arb(1), arb(0), slope, shift, j, largest([l[p] for p in places]), top))
        k_l, m_l, k_u, m_u, source, low, high = (list(t) for t in zip(*found))
        self.lines[i] = _Lines(k_l, m_l, k_u, m_u, source)
        return low, high

    def _unit_rows(self, i: int) -> tuple[Balls, Balls]:
        arb, size = flint().arb, self.net.nodes[i].size
        units = [[arb(int(r == c)) for c in range(size)] for r in range(size)]
        rows = units + [[-v for v in row] for row in units]
        found = self.rows_below(i, rows)
        if self.sharpened or self.cases:
            readers = [node.op for node in self.net.nodes if i in node.inputs]
            index = list(range(2 * size))
            if readers and all(type(op) is ops.ReLU for op in readers):  # which ask nothing of entries on one side
                index = [k for k in index if not found[k] >= 0 and not found[(k + size) % (2 * size)] >= 0]
            for k, better in zip(index, self._improved(i, index, [rows[k] for k in index])):
                found[k] = found[k].max(better) if found[k].is_finite() and better.is_finite() else found[k]
        return found[:size], [-v for v in found[size:]]

    def _improved(self, i: int, index: list[int], rows: list[Balls]) -> Balls:
        """Balls whose lower ends are below some of the unit rows: with slopes of their own, then case by case."""
        if not rows:
            return []
        proposals = Proposals(self, i, index)
        slopes = proposals.best(self.sharpened)
        found = self.rows_below(i, rows, own=Own(slopes, [{}] * len(rows)))
        if not self.cases:
            return found
        taken = proposals.worst(self.cases)
        cases = []
        for case in range(2 ** max(map(len, taken))):
            sides = [{place: bool(case >> bit & 1) for bit, place in enumerate(row)} for row in taken]
            cases.append(self.rows_below(i, rows, own=Own(slopes, sides)))
        # The least of all cases, where none is lost.
        return [a.max(smallest(of)) if all(b.is_finite() for b in of) else a
                for a, *of in zip(found, *cases)]  # fmt: skip

    def rows_below(
        self, i: int, rows: list[Balls], intervals: bool = False, others: Mapping[int, Balls] | None = None,
        own: Own | None = None,
    ) -> Balls:  # fmt: skip
        """Balls whose lower ends are below `rows . z_i`; `intervals`: stop at the first activations; `others`: of one
        row, coefficients of other nodes up to i, which are added; `own`: what each row has of its own."""
        arb = flint().arb
        total = [arb(0)] * len(rows)
        waiting = {i: matrix_of(rows)}
        for j, row in (others or {}).items():
            waiting[j] = waiting[j] + matrix_of([row]) if j in waiting else matrix_of([row])
        while waiting:
            k = max(waiting)
            matrix = waiting.pop(k)
            node, layer = self.net.nodes[k], self.layers[k]
            if k == 0:
                total = [a + b for a, b in zip(total, self.region.least(rows_of(matrix)))]
            elif layer is not None:
                total = [a + b for a, b in zip(total, (matrix * matrix_of([[v] for v in layer.offset])).entries())]
                for j, part in zip(node.inputs, layer.matrices):
                    through = matrix * part
                    waiting[j] = waiting[j] + through if j in waiting else through
            elif intervals:
                ends = self.lower[k], self.upper[k]
                total = [a + least(row, *ends) for a, row in zip(total, rows_of(matrix))]
            else:
                j = node.inputs[0]
                constants, below = self._past(k, rows_of(matrix), self.net.nodes[j].size, own)
                total = [a + b for a, b in zip(total, constants)]
                waiting[j] = waiting[j] + below if j in waiting else below
        return total

    def _past(self, k: int, rows: list[Balls], size: int, own: Own | None = None) -> tuple[Balls, Any]:
        """Rows over an activation become constants and rows over its input."""
        arb, usual = flint().arb, self.lines[k]
        constants, out = [], []
        for number, row in enumerate(rows):
            line = usual if own is None or k not in own.slopes else self._tilted(k, own, number)
            constant, below = arb(0), [arb(0)] * size
            for c, a in enumerate(row):
                if a == 0:
                    continue
                s = line.source[c]
                if a >= 0:
                    constant += a * line.m_l[c]
                    below[s] += a * line.k_l[c]
                elif a <= 0:
                    constant += a * line.m_u[c]
                    below[s] += a * line.k_u[c]
                else:  # a coefficient whose sign is lost is next to zero: its whole term is enclosed
                    constant += a * self.lower[k][c].union(self.upper[k][c])
            constants.append(constant)
            out.append(below)
        return constants, matrix_of(out)

    def _tilted(self, k: int, own: Own, number: int) -> _Lines:
        """The lines of node k, a ReLU, as a row has them. Where it is bent: below it lies every line through the origin
        with a slope from 0 to 1. Where it is taken on one side, it is its input, or 0."""
        arb, line = flint().arb, self.lines[k]
        j = self.net.nodes[k].inputs[0]
        k_l, m_l, k_u, m_u = (list(t) for t in line[:4])
        for c, (low, high, slope) in enumerate(zip(self.lower[j], self.upper[j], own.slopes[k][number])):
            if low < 0 and high > 0 and 0 <= slope <= 1:
                k_l[c], m_l[c] = arb(slope), arb(0)
        for (node, c), above in own.sides[number].items():
            if node == k:
                k_l[c], m_l[c], k_u[c], m_u[c] = arb(int(above)), arb(0), arb(int(above)), arb(0)
        return _Lines(k_l, m_l, k_u, m_u, line.source)

    def margins(self, rows: list[list[float]], offset: list[float]) -> Balls:
        arb, last = flint().arb, len(self.net.nodes) - 1
        exact = [[arb(v) for v in row] for row in rows]
        found = [self.rows_below(last, exact, intervals) for intervals in (False, True)]
        if self.hints.logits:
            below, above = self._unit_rows(last)
            low = [a.max(b).lower() for a, b in zip(below, self.lower[last])]
            high = [a.min(b).upper() for a, b in zip(above, self.upper[last])]
            found.append([least(row, low, high) for row in exact])
        best = []
        for d, *ways in zip(offset, *found):
            finite = [v.lower() for v in ways if v.is_finite()]
            best.append(largest(finite) + arb(d) if finite else arb("nan"))
        return best


def _windows(op: ops.MaxPool, spatial: Sequence[int]) -> list[list[int]]:
    """The places that each output of one channel looks at: those where a one among zeros is the largest."""
    size = math.prod(spatial)
    seen = op(torch.eye(size, dtype=torch.float64).reshape(size, 1, *spatial)).flatten(1)
    return [column.nonzero().flatten().tolist() for column in (seen == 1).T]
