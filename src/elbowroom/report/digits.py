"""Numbers in few digits, rounded to the side on which what they state stays true."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any

_FEW, _MOST = 6, 15  # a float64 holds any decimal of 15 digits and gives it back
_WHOLE = 1e15  # values of so many decimals are written out below
_LOST = 0.01  # share of an extent that may be lost by rounding before more digits are shown


def at_most(value: float, digits: int = _FEW) -> str:
    """The number, rounded down."""
    return _rounded(value, digits, ROUND_FLOOR)


def at_least(value: float, digits: int = _FEW) -> str:
    """The number, rounded up."""
    return _rounded(value, digits, ROUND_CEILING)


def between(low: float, high: float, decimals: int | None = None, fewest: int = _FEW) -> tuple[str, str]:
    """Both ends, rounded inwards, in as many digits as their distance needs, `fewest` or more; a single point to the
    nearest. Values of so many decimals, as float64 has them, with all of these."""
    exact = _decimal(low, decimals), _decimal(high, decimals)
    if exact[0] is not None and exact[1] is not None:
        return exact[0], exact[1]
    if low == high:
        return near(low, 0.0), near(high, 0.0)
    for digits in range(fewest, _MOST + 1):
        ends = _rounded(low, digits, ROUND_CEILING), _rounded(high, digits, ROUND_FLOOR)
        if float(ends[1]) - float(ends[0]) >= (1 - _LOST) * (high - low):
            return ends
    return repr(low), repr(high)


def around(
    low: float, value: float, high: float, decimals: int | None = None, fewest: int = _FEW
) -> tuple[str, str, str]:
    """Both ends of a range as in `between`, and between them a value of it, in as many digits as show that it lies
    there. An end that is the value reads as the value does."""
    for digits in range(fewest, _MOST + 1):
        text = near(value, (high - low) / 2, decimals)
        ends = between(low, high, decimals, digits)
        low_text, high_text = (text if end == value == float(text) else own for end, own in zip((low, high), ends))
        if not low <= value <= high or float(low_text) <= float(text) <= float(high_text):
            return low_text, text, high_text
    return repr(low), repr(value), repr(high)


def where_open(low: float | None, high: float | None, width: float) -> str:
    """An interval of which nothing is known, rounded inwards: what is said of it is not true of what lies beside it.
    None for an end that it does not have. `width`: of the range beside it, which digits are to tell from others."""
    if low is not None and high is not None:
        return "between {} and {}".format(*between(low, high))
    if low is not None:
        return f"above {_beyond(low, width, ROUND_CEILING)}"
    return "anywhere" if high is None else f"below {_beyond(high, width, ROUND_FLOOR)}"


def _beyond(value: float, extent: float, rounding: str) -> str:
    for digits in range(_FEW, _MOST + 1):
        text = _rounded(value, digits, rounding)
        if abs(float(text) - value) <= _LOST * extent:
            return text
    return repr(value)


def near(value: float, extent: float, decimals: int | None = None) -> str:
    """The number in as many digits as to tell it from others within `extent`; with all of its `decimals`, where it is
    one of so many."""
    exact = _decimal(value, decimals)
    if exact is not None:
        return exact
    for digits in range(_FEW, _MOST + 1):
        text = _rounded(value, digits, ROUND_HALF_EVEN)
        if not abs(float(text) - value) > _LOST * extent > 0:
            return text
    return repr(value)


def extent_text(feature: dict[str, Any]) -> str:
    """Of a feature as `elbowroom.runs.one_input` has it, rounded down; of values of so many decimals exactly."""
    if feature["decimals"] is not None and feature.get("lower") is not None:
        exact = _decimal((feature["upper"] - feature["lower"]) / 2, feature["decimals"] + 1)
        if exact is not None:
            return exact.rstrip("0").rstrip(".")
    return at_most(feature["extent"])


def moved(feature: dict[str, Any], side: str, digits: int = _FEW) -> str:
    """How far a feature may move "down" or "up", rounded down; between values of so many decimals exactly."""
    end, decimals = feature["lower" if side == "down" else "upper"], feature["decimals"]
    texts = [_decimal(feature["value"], decimals), _decimal(end, decimals)]
    if texts[0] is None or texts[1] is None:
        return at_most(feature[side], digits)
    return f"{abs(Decimal(texts[1]) - Decimal(texts[0])):f}"


def _decimal(value: float, decimals: int | None) -> str | None:
    """A number of so many decimals, that reads as the same float64 number; None where it is none. Zero has no sign."""
    text = None if decimals is None or not abs(value) < _WHOLE else f"{value + 0.0:.{decimals}f}"
    return text if text is not None and float(text) == value else None


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return str(value)
    if 1 <= abs(value) < 10**_FEW:  # all whole digits, so that no power of ten is written
        digits = max(digits, len(str(int(abs(value)))))
    return f"{float(Context(prec=digits, rounding=rounding).create_decimal(Decimal(value))):.{digits}g}"
