"""Numbers in few digits, rounded to the side on which what they state stays true."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

_FEW, _MOST = 6, 15  # a float64 holds any decimal of 15 digits and gives it back
_LOST = 0.01  # share of an extent that may be lost by rounding before more digits are shown


def at_most(value: float, digits: int = _FEW) -> str:
    """The number, rounded down."""
    return _rounded(value, digits, ROUND_FLOOR)


def at_least(value: float, digits: int = _FEW) -> str:
    """The number, rounded up."""
    return _rounded(value, digits, ROUND_CEILING)


def between(low: float, high: float, fewest: int = _FEW) -> tuple[str, str]:
    """Both ends, rounded inwards, in as many digits as their distance needs, `fewest` or more; a single point to the
    nearest."""
    if low == high:
        return near(low, 0.0), near(high, 0.0)
    for digits in range(fewest, _MOST + 1):
        ends = _rounded(low, digits, ROUND_CEILING), _rounded(high, digits, ROUND_FLOOR)
        if float(ends[1]) - float(ends[0]) >= (1 - _LOST) * (high - low):
            return ends
    return repr(low), repr(high)


def around(low: float, value: float, high: float, fewest: int = _FEW) -> tuple[str, str, str]:
    """Both ends of a range as in `between`, and between them a value of it, in as many digits as show that it lies
    there. An end that is the value reads as the value does."""
    for digits in range(fewest, _MOST + 1):
        text = near(value, (high - low) / 2)
        ends = between(low, high, digits)
        low_text, high_text = (text if end == value == float(text) else own for end, own in zip((low, high), ends))
        if not low <= value <= high or float(low_text) <= float(text) <= float(high_text):
            return low_text, text, high_text
    return repr(low), repr(value), repr(high)


def near(value: float, extent: float) -> str:
    """The number in as many digits as to tell it from others within `extent`."""
    for digits in range(_FEW, _MOST + 1):
        text = _rounded(value, digits, ROUND_HALF_EVEN)
        if not abs(float(text) - value) > _LOST * extent > 0:
            return text
    return repr(value)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return str(value)
    if 1 <= abs(value) < 10**_FEW:  # all whole digits, so that no power of ten is written
        digits = max(digits, len(str(int(abs(value)))))
    return f"{float(Context(prec=digits, rounding=rounding).create_decimal(Decimal(value))):.{digits}g}"
