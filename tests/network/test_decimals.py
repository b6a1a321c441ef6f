"""Numbers of so many decimals, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.network.decimals import inwards, is_multiple
from support import cases


@given(st.integers(-(10**9), 10**9), st.integers(0, 9))
@cases(2)
def test_what_text_reads_as_is_a_multiple(number: int, decimals: int) -> None:
    value = float(f"{number}e-{decimals}")
    assert is_multiple(np.array([value, float(np.float32(value))]), decimals).all()
    assert not is_multiple(np.array([value + 0.3 * 10.0**-decimals]), decimals).any()


@given(st.floats(-1e7, 1e7), st.floats(0, 1e3), st.floats(0, 1), st.integers(0, 8))
@cases(4)
def test_ends_are_the_nearest_multiples_inside(low: float, width: float, share: float, decimals: int) -> None:
    high = low + width
    x = min(max(low + share * width, low), high)
    found = [float(v[0]) for v in inwards(np.array([low]), np.array([high]), np.array([x]), decimals)]
    assert low <= found[0] <= x <= found[1] <= high
    assert all(math.copysign(1, end) > 0 for end in found if end == 0)
    for end, limit, away in ((found[0], low, -1), (found[1], high, 1)):
        if end == x:  # a multiple, or there is none on this side
            continue
        assert bool(is_multiple(np.array([end]), decimals).all())
        number = round(Fraction(end) * 10**decimals)
        beyond = float(Fraction(number + away, 10**decimals))
        assert beyond < limit if away < 0 else beyond > limit


@given(st.floats(-1e4, 1e4), st.floats(0, 1e2), st.floats(0, 1), st.integers(0, 3))
@cases(2)
def test_ends_are_inside_in_float32_too(low: float, width: float, share: float, decimals: int) -> None:
    high = low + width
    x = min(max(low + share * width, low), high)
    found = [float(v[0]) for v in inwards(np.array([low]), np.array([high]), np.array([x]), decimals, float32=True)]
    assert low <= found[0] <= x <= found[1] <= high
    for end in found:
        value = float(f"{end:.{decimals}f}")
        assert end == x or all(found[0] <= v <= found[1] for v in (value, float(np.float32(value))))


def test_what_is_too_large_to_tell_stays() -> None:
    x = np.array([2.0**60])
    assert inwards(x - 2.0**10, x + 2.0**10, x, 3) == (x, x)
    assert is_multiple(x, 0).all() and not is_multiple(np.array([np.nan, np.inf]), 0).any()
