"""A stated region in balls, and the least values of rows over it."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Split
from elbowroom.errors import InputError
from elbowroom.proof.arb.balls import Balls, as_balls, dot, flint, largest, least, matrix_of, rows_of

Codes = list[tuple[float, ...]]


def _levels(stated: Stated, b: int) -> list[tuple[int, Codes]]:
    """Per category its first entry and the codes that are allowed."""
    if stated.categories is None or stated.allowed is None:
        return []
    return [
        (one.first, [tuple(code) for code in one.codes[stated.allowed[b, place].cpu()].tolist()])
        for one, place in stated.categories
    ]


class Region:
    """One input's region in balls: a box by its corners, or `center + basis (radius * v)`, `||v||_p <= 1`."""

    def __init__(self, stated: Stated, b: int) -> None:
        self.p = stated.p
        self.basis = None if stated.basis is None else matrix_of([as_balls(row) for row in stated.basis])
        if stated.lower is not None and stated.upper is not None:
            self.lower, self.upper = as_balls(stated.lower[b]), as_balls(stated.upper[b])
            self.center: Balls | None = None
            self.levels = _levels(stated, b)
            return
        assert stated.center is not None and stated.radius is not None
        self.levels = []
        self.center, self.radius = as_balls(stated.center[b]), as_balls(stated.radius[b])
        units = [[flint().arb(int(i == k)) for k in range(len(self.center))] for i in range(len(self.center))]
        self.lower = [v.lower() for v in self.least(units)]
        self.upper = [(-v).upper() for v in self.least([[-v for v in row] for row in units])]

    def cut(self, splits: Sequence[Split]) -> Region | None:
        """A box, cut by splits of the input; None where nothing is left."""
        if not splits:
            return self
        arb, part = flint().arb, copy.copy(self)
        part.lower, part.upper = list(self.lower), list(self.upper)
        for split in splits:
            if split.high:
                part.lower[split.entry] = part.lower[split.entry].max(arb(split.value))
            else:
                part.upper[split.entry] = part.upper[split.entry].min(arb(split.value))
        if any(l > u for l, u in zip(part.lower, part.upper)):
            return None
        part.levels = [(first, part._left(first, codes)) for first, codes in self.levels]
        if not all(codes for _, codes in part.levels):
            return None
        for first, codes in part.levels:
            for k, column in enumerate(zip(*codes)):
                part.lower[first + k], part.upper[first + k] = arb(min(column)), arb(max(column))
        return part

    def _left(self, first: int, codes: Codes) -> Codes:
        """The codes, at the entries from `first` on, that lie between the corners."""
        arb = flint().arb
        return [
            code
            for code in codes
            if all(self.lower[first + k] <= arb(v) <= self.upper[first + k] for k, v in enumerate(code))
        ]

    def least(self, rows: list[Balls]) -> Balls:
        """Each row's least value over the region."""
        if self.center is None:
            return [self._least_of_box(row) for row in rows]
        turned = rows if self.basis is None else rows_of(matrix_of(rows) * self.basis)
        return [dot(row, self.center) - self._reach(t) for row, t in zip(rows, turned)]

    def _least_of_box(self, row: Balls) -> Any:
        if not self.levels:
            return least(row, self.lower, self.upper)
        arb, of_codes = flint().arb, set()
        total = arb(0)
        for first, codes in self.levels:
            entries = range(first, first + len(codes[0]))
            of_codes |= set(entries)
            values = [dot([row[k] for k in entries], [arb(v) for v in code]) for code in codes]
            total -= largest([-value for value in values])
        rest = [k for k in range(len(row)) if k not in of_codes]
        return total + least(*([t[k] for k in rest] for t in (row, self.lower, self.upper))) if rest else total

    def _reach(self, row: Balls) -> Any:
        scaled = [abs(a) * r for a, r in zip(row, self.radius)]
        if self.p == math.inf:
            return sum(scaled[1:], scaled[0])
        if self.p == 2:
            return dot(scaled, scaled).sqrt()
        if self.p == 1:
            return largest(scaled)
        if not self.p > 1:
            raise InputError(f"the proof in ball arithmetic knows the norms from 1 to infinity, not {self.p}")
        # A float64 number is exact, and so is p - 1 in 128 bits, or enclosed.
        q = flint().arb(self.p) / (flint().arb(self.p) - 1)
        powers = [_power(v, q) for v in scaled]
        return _power(sum(powers[1:], powers[0]), 1 / q)


def _power(v: Any, exponent: Any) -> Any:
    """What a number that is not negative, enclosed by `v`, may give; balls that hold zero have no logarithm."""
    zero, most = flint().arb(0), v.upper()
    if not v.is_finite() or most <= 0:
        return v if not v.is_finite() else zero
    if v > 0:
        return v**exponent
    return zero.union(most**exponent)
