"""What codes of a table's categories stand for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elbowroom.network.table import Column, Level

OTHERS = "none of the levels"


def levels_of(column: Column, code: Sequence[float] | np.ndarray) -> list[Level]:
    """The levels that have this code, also where it was rounded to float32."""
    return [level for level, own in zip(column.levels or (), column.codes) if _same(own, code)]


def is_strange(column: Column, code: Sequence[float] | np.ndarray) -> bool:
    """Whether values that are none of the levels have this code."""
    return column.unknown is not None and _same(column.unknown, code)


def words(column: Column, code: Sequence[float] | np.ndarray) -> str:
    """What a code stands for, for people: a level, or all that have this code."""
    found = [_text(level) for level in levels_of(column, code)]
    if is_strange(column, code):
        found.append(OTHERS)
    return " or ".join(found) if found else "?"


def named(column: Column, chosen: Sequence[bool]) -> list[str]:
    """The levels of a category that are chosen, for people; `OTHERS`, last, where the model has a code for
    values that are none of the levels."""
    names = [*map(_text, column.levels or ()), *(() if column.unknown is None else (OTHERS,))]
    return [name for name, own in zip(names, chosen) if own]


def _text(level: Level) -> str:
    if level is None:
        return "missing"
    return str(int(level)) if isinstance(level, float) and level.is_integer() and abs(level) < 1e15 else str(level)


def _same(own: Sequence[float], code: Sequence[float] | np.ndarray) -> bool:
    exact, given = np.asarray(own, dtype=np.float64), np.asarray(code, dtype=np.float64)
    return bool((exact == given).all() or (exact.astype(np.float32).astype(np.float64) == given).all())


__all__ = ["OTHERS", "is_strange", "levels_of", "named", "words"]
