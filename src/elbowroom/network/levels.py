"""What codes of a table's categories stand for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elbowroom.network.table import Column, Level

OTHERS = "none of the levels"
NOTHING = "missing"  # a value that is missing, as a level of its own


def levels_of(column: Column, code: Sequence[float] | np.ndarray) -> list[Level]:
    """The levels that have this code, also where it was rounded to float32."""
    return [level for level, own in zip(column.levels or (), alike(column, code)) if own]


def is_strange(column: Column, code: Sequence[float] | np.ndarray) -> bool:
    """Whether values that are none of the levels have this code."""
    return column.unknown is not None and alike(column, code)[-1]


def words(column: Column, code: Sequence[float] | np.ndarray) -> str:
    """What a code stands for, for people: a level, or all that have this code."""
    return listed(named(column, alike(column, code)), " or ") or "?"


def named(column: Column, chosen: Sequence[bool]) -> list[str]:
    """The levels of a category that are chosen, for people; `OTHERS`, last, where the model has a code for
    values that are none of the levels."""
    names = [_text(column, level) for level in column.levels or ()]
    names += [] if column.unknown is None else [OTHERS]
    return [name for name, own in zip(names, chosen) if own]


def listed(names: Sequence[str], between: str) -> str:
    """Names in a line; those that hold what stands between are quoted, since they would read as several."""
    if len(names) == 1:
        return names[0]
    sign = between if between.strip().isalpha() else between.strip()
    return between.join(repr(name) if sign in name else name for name in names)


def _text(column: Column, level: Level) -> str:
    if level is None:
        return NOTHING
    if isinstance(level, str):  # in quotes where it would read as something else
        return repr(level) if level == OTHERS or (level == NOTHING and None in (column.levels or ())) else level
    return str(int(level)) if isinstance(level, float) and level.is_integer() and abs(level) < 1e15 else str(level)


def alike(column: Column, code: Sequence[float] | np.ndarray) -> list[bool]:
    """Which levels, and last values that are none of them, have this code; only where it is of none at all, those of
    which it is the code rounded to float32: two may be alike there that are not."""
    known = np.array([*column.codes, *(() if column.unknown is None else (column.unknown,))], dtype=np.float64)
    given = np.asarray(code, dtype=np.float64)
    same = (known == given).all(1)
    if not same.any():
        same = (known.astype(np.float32).astype(np.float64) == given).all(1)
    found: list[bool] = same.tolist()
    return found


__all__ = ["NOTHING", "OTHERS", "alike", "is_strange", "levels_of", "listed", "named", "words"]
