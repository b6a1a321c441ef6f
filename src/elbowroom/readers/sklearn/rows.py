"""Rows as a model takes them, from inputs of the network that was read from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from elbowroom.arguments.encoding import stranger
from elbowroom.network.table import Column, Table
from elbowroom.readers.sklearn.flow import Plan


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

    def raw(self, x: np.ndarray, missing: np.ndarray | None = None) -> Any:
        """Rows of which the network makes `x`, `b x n`: a frame where the model was fitted to one (and pandas is
        there), else an array. `missing`: which columns of the network, `b x c`, are to be missing."""
        columns: list[Any] = [self._unread(k, len(x)) for k in range(self.plan.count)]
        for k, number in enumerate(self.plan.columns):
            if self.table is None:
                values = x[:, number].copy()
            else:
                values = self._values(number, self.table.columns[k], x[:, self.table.places[k]])
            if missing is not None and missing[:, k].any():
                values = values.astype(np.float64 if values.dtype.kind in "fiu" else object)
                values[missing[:, k]] = np.nan
            columns[number] = values
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
        return _array([value] * count)

    def _values(self, number: int, column: Column, part: np.ndarray) -> np.ndarray:
        coding = self.plan.coding(number)
        if coding is None:
            return part[:, 0].copy()
        # Of an imputer's own level, which the encoder does not know, there is no raw one.
        own = dict(zip(coding.levels, coding.raw))
        assert column.levels is not None
        raw = [own.get(level, level) for level in column.levels]
        values = [stranger(column) if k == _STRANGE else raw[k] for k in _levels(column, part)]
        return _array(values, texts=any(isinstance(level, str) for level in column.levels))


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


def _array(values: list[Any], texts: bool = False) -> np.ndarray:
    """Numbers and truth values as such, all else as objects, as are columns of texts."""
    if all(isinstance(v, bool | np.bool_) for v in values):
        return np.array(values, dtype=bool)
    numbers = all(isinstance(v, int | float | np.integer | np.floating) and not isinstance(v, bool) for v in values)
    if numbers and not texts:
        return np.array(values, dtype=np.float64)
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


__all__ = ["Rows"]
