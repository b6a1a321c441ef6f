"""Rows as a model of tables takes them, from inputs of the network that was read from it; and some to compare at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from elbowroom.arguments.encoding import stranger
from elbowroom.network.table import Column, Table, key_of
from elbowroom.readers import compare
from elbowroom.readers.flow import Plan


@dataclass(frozen=True, eq=False)
class Rows:
    """`plan`: how columns are read; `table`: what it makes of them; `names`: those that the model was fitted to, as it
    holds them itself, None where it was fitted to an array."""

    plan: Plan
    table: Table | None
    names: Any

    def fault(self, x: np.ndarray) -> str | None:
        """In words, the first entries of `x`, `b x n`, that stand for no category."""
        for column, place in _parts(self.table):
            if column.levels is not None and len(lost := np.flatnonzero(_levels(column, x[:, place]) == _LOST)):
                code = ", ".join(f"{v:g}" for v in x[lost[0], place][:8])
                return f"the entries {code} of {column.name!r} stand for none of its categories"
        return None

    def columns(self, x: np.ndarray, missing: np.ndarray | None = None) -> list[np.ndarray]:
        """Values of every column of the model, `b` each, of which the network makes `x`, `b x n`. `missing`: which
        columns of the network, `b x c`, are to be missing."""
        found: list[Any] = [self._unread(k, len(x)) for k in range(self.plan.count)]
        for k, number in enumerate(self.plan.columns):
            if self.table is None:
                values = x[:, number].copy()
            else:
                values = self._values(number, self.table.columns[k], x[:, self.table.places[k]])
            if missing is not None and missing[:, k].any():
                values = values.astype(np.float64 if values.dtype.kind in "fiu" else object)
                values[missing[:, k]] = np.nan
            found[number] = values
        return found

    def raw(self, x: np.ndarray, missing: np.ndarray | None = None) -> Any:
        """The same as a frame where the model was fitted to one (and pandas is there), else as an array."""
        columns = self.columns(x, missing)
        if self.names is not None:
            try:
                import pandas
            except ImportError:
                pass
            else:
                # Of its own accord pandas would make NaN of None among texts.
                series = {k: pandas.Series(column, dtype=column.dtype) for k, column in enumerate(columns)}
                return pandas.DataFrame(series).set_axis(list(self.names), axis=1)
        plain = all(column.dtype.kind in "fiu" for column in columns)
        return np.stack([column.astype(np.float64 if plain else object) for column in columns], axis=1)

    def _unread(self, column: int, count: int) -> np.ndarray:
        value = self.plan.constant.get(column, 0.0)
        return _array([value] * count, [value])

    def _values(self, number: int, column: Column, part: np.ndarray) -> np.ndarray:
        coding = self.plan.coding(number)
        if coding is None:
            return part[:, 0].copy()
        # Of an imputer's own level, which the encoder does not know, there is no raw one.
        own = dict(zip(coding.levels, coding.raw))
        assert column.levels is not None
        raw = [own.get(level, level) for level in column.levels]
        values = [stranger(column) if k == _STRANGE else raw[k] for k in _levels(column, part)]
        return _array(values, raw)


_STRANGE, _LOST = -1, -2


def _levels(column: Column, part: np.ndarray) -> np.ndarray:
    """The number of a level that has each code, `b x w`: the first of several; _STRANGE for a value that is none of
    them, _LOST for none at all."""
    found = np.full(len(part), _LOST)
    codes = [(k, code) for k, code in enumerate(column.codes)]
    if column.unknown is not None:
        codes.append((_STRANGE, column.unknown))
    for k, code in reversed(codes):
        exact = np.array(code)
        rounded = exact.astype(np.float32).astype(np.float64)  # of inputs that came in float32
        found[(part == exact).all(1) | (part == rounded).all(1)] = k
    return found


def _parts(table: Table | None) -> list[tuple[Column, slice]]:
    return [] if table is None else list(zip(table.columns, table.places))


def _array(values: list[Any], levels: list[Any]) -> np.ndarray:
    """Values of a column with these levels: numbers and truth values as such where all are, else objects."""
    if all(isinstance(v, bool | np.bool_) for v in (*values, *levels)):
        return np.array(values, dtype=bool)
    if all(isinstance(v, int | float | np.integer | np.floating) and not isinstance(v, bool) for v in levels):
        return np.array(values, dtype=np.float64)
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


# --- where to compare

ROWS = 6  # of each kind
_MOST_LEVELS = 4096  # of one column that are tried


def tried(rows: Rows, n: int) -> Iterator[tuple[np.ndarray, np.ndarray | None, bool]]:
    """Inputs to compare at, which of their columns are missing to the model, and whether in batches of every size."""
    rng = np.random.default_rng(0)
    for scale in compare.SCALES:
        plain = scale * rng.normal(size=(ROWS, n))
        for around in (False, True):  # in raw units, and around what the scalers were fitted to
            yield _placed(rows, plain, rng, around), None, scale == 1.0
    if rows.table is None:
        return
    most = max((len(column.levels) for column in rows.table.columns if column.levels), default=0)
    if most:
        yield _placed(rows, rng.normal(size=(min(most, _MOST_LEVELS), n)), rng, True, every=True), None, False
    filled = np.array([_filled(column) is not None for column in rows.table.columns])
    if filled.any():
        x = _placed(rows, rng.normal(size=(ROWS, n)), rng, True)
        missing = filled & (rng.random((ROWS, len(filled))) < 0.5)
        missing[0] = filled
        for column, place, gone in zip(rows.table.columns, rows.table.places, missing.T):
            if (code := _filled(column)) is not None:
                x[gone, place] = code
        yield x, missing, False


def _placed(rows: Rows, plain: np.ndarray, rng: np.random.Generator, around: bool, every: bool = False) -> np.ndarray:
    """Inputs with `plain` for their numbers, or around where scalers have their centre, and categories at random."""
    x = plain.copy()
    typical = rows.plan.typical
    for k, number in enumerate(rows.plan.columns):
        column = None if rows.table is None else rows.table.columns[k]
        place = slice(k, k + 1) if rows.table is None else rows.table.places[k]
        if column is None or column.levels is None:
            if around and number in typical:
                x[:, place] = typical[number][0] + typical[number][1] * x[:, place]
            continue
        codes = [
            *column.codes,
            *([] if column.unknown is None or bool in map(type, column.levels) else [column.unknown]),
        ]
        chosen = np.arange(len(x)) % len(codes) if every else rng.integers(len(codes), size=len(x))
        x[:, place] = np.array(codes)[chosen]
    return x


def _filled(column: Column) -> tuple[float, ...] | None:
    """The code of what is taken where a value is missing; None where a row without one is refused."""
    if column.levels is None:
        return None if np.isnan(float(column.missing or 0.0)) else (float(column.missing or 0.0),)
    if isinstance(column.missing, float) and np.isnan(column.missing):
        return None
    if column.missing is None:  # a category of its own, tried as such
        return None
    return column.codes[[key_of(level) for level in column.levels].index(key_of(column.missing))]


def has_levels(rows: Rows) -> bool:
    return rows.table is not None and any(column.levels is not None for column in rows.table.columns)


__all__ = ["Rows", "has_levels", "tried"]
