"""Numbers that are multiples of 10^-k, as float64 has them: which these are, and which lie between two ends.

A multiple is the float64 number next to the decimal one, what reading its text gives: `j / 10^k` rounds but once, since
10^k is a float64 number and so is j, up to 2^53.
"""

from __future__ import annotations

import numpy as np

_MOST = 2.0**53  # whole numbers beyond are not all float64 numbers


def nearest_multiple(values: np.ndarray, decimals: int) -> np.ndarray:
    """The multiple of 10^-decimals nearest to each of the values; NaN where they are too large to tell."""
    scale = 10.0**decimals
    number = np.round(np.asarray(values, dtype=np.float64) * scale)
    return np.where(np.abs(number) < _MOST, number / scale, np.nan)


def is_multiple(values: np.ndarray, decimals: int) -> np.ndarray:
    """Which values are multiples of 10^-decimals, as float64 has them or rounded to float32."""
    values = np.asarray(values, dtype=np.float64)
    near = nearest_multiple(values, decimals)
    with np.errstate(over="ignore"):
        found: np.ndarray = (values == near) | (values == near.astype(np.float32).astype(np.float64))
    if decimals == 0:
        found |= np.isfinite(values) & (np.abs(values) >= _MOST)  # where float64 has no others
    return found


def inwards(
    low: np.ndarray, high: np.ndarray, x: np.ndarray, decimals: int, float32: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest multiple of 10^-decimals between `low` and `high`; `x`, which lies between them, where
    there is none on its side, or where it is too large to tell. `float32`: whether what such a multiple is as a float32
    number must lie there, too; the ends are then the outer one of both."""
    return _least(low, x, decimals, float32), 0.0 - _least(-high, -x, decimals, float32)


def _least(low: np.ndarray, x: np.ndarray, decimals: int, float32: bool) -> np.ndarray:
    """The least multiple that is not below `low`, or `x` where that is above it."""
    scale = 10.0**decimals
    with np.errstate(invalid="ignore", over="ignore"):
        number = np.floor(low * scale) - 1  # a product rounds, so that one more or less is tried
        found = np.full_like(low, np.nan)
        for _ in range(4):
            value = number / scale
            if float32:
                value = np.minimum(value, value.astype(np.float32).astype(np.float64))
            found = np.where(np.isnan(found) & (value >= low), value, found)
            number = number + 1
        usable = (np.abs(number) < _MOST) & (found <= x)
    return np.where(usable, found, x) + 0.0  # no zero with a sign


__all__ = ["inwards", "is_multiple", "nearest_multiple"]
