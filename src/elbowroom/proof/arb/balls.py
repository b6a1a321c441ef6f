"""Balls of 128 bits and matrices of them, and the sums and extremes that are taken of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from elbowroom.errors import ElbowroomError

BITS = 128
Balls = list[Any]  # of flint.arb


def flint() -> Any:
    try:
        import flint
    except ImportError:
        raise ElbowroomError('the proof in ball arithmetic needs python-flint: pip install "elbowroom[arb]"') from None
    return flint


@contextmanager
def precision(bits: int) -> Iterator[None]:
    context = flint().ctx
    before, context.prec = context.prec, bits
    try:
        yield
    finally:
        context.prec = before


def as_balls(t: Tensor) -> Balls:
    arb = flint().arb
    return [arb(v) for v in t.detach().double().flatten().tolist()]


def matrix_of(balls: Sequence[Balls]) -> Any:
    return flint().arb_mat(len(balls), len(balls[0]), [v for row in balls for v in row])


def rows_of(matrix: Any) -> list[Balls]:
    entries, n = matrix.entries(), matrix.ncols()
    return [entries[i : i + n] for i in range(0, len(entries), n)]


def float_below(value: Any) -> float:
    if not value.is_finite():
        return -math.inf
    found = float(value.lower())
    return math.nextafter(found, -math.inf) if not math.isnan(found) else -math.inf


def dot(a: Balls, b: Balls) -> Any:
    total = flint().arb(0)
    for x, y in zip(a, b):
        total += x * y
    return total


def least(row: Balls, lower: Balls, upper: Balls) -> Any:
    """The least of `row . z` over a box."""
    total = flint().arb(0)
    for a, l, u in zip(row, lower, upper):
        if a == 0:
            continue
        total += a * l if a >= 0 else a * u if a <= 0 else a * l.union(u)
    return total


def largest(balls: Balls) -> Any:
    best = balls[0]
    for v in balls[1:]:
        best = best.max(v)
    return best


def smallest(balls: Balls) -> Any:
    return -largest([-v for v in balls])
