"""Values of a table's columns as the numbers that a network takes for them, and back.

Nothing is guessed. A text is one of a column's categories where it is the same text, a number where it is the same
number. What a model fills in for a missing value, and values for which it has no category of their own, are taken as
the model takes them, and said (`Encoded.filled`, `Encoded.strange`); all else is NaN, with a sentence that says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from elbowroom.arguments.codes import too_fine, uncoded
from elbowroom.arguments.values import (
    NUMBER,
    array_of,
    holds_text,
    identity,
    is_arrow,
    is_missing,
    parsed,
    shown,
)
from elbowroom.errors import InputError
from elbowroom.network.decimals import is_multiple
from elbowroom.network.levels import is_strange, levels_of
from elbowroom.network.names import counted
from elbowroom.network.table import Code, Column, Level, Table, key_of

# What stands in a file of text for a missing value: pandas and Arrow both read these so.
MISSING = frozenset(
    ["", "NA", "N/A", "n/a", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None", "<NA>"]
)
_TRUTH = {"True": True, "true": True, "TRUE": True, "False": False, "false": False, "FALSE": False}
_MOST_FAULTS = 10_000  # sentences that are kept; rows beyond have NaN without one
_LEVELS_SHOWN = 5
_MOST_DIGITS = 400  # of whole numbers; beyond, all are infinite as float64

# What a value is, if it is no code: missing, none of the levels, no number, or one of more decimals than it may have.
_NOTHING, _STRANGE, _NO_NUMBER, _INFINITE, _BETWEEN = 1, 2, 3, 4, 5


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows of a table as inputs of a network.

    `values`: `b x n`, float64, NaN where a value could not be taken. `faults`: why, in words, by row, with the value
    and the column; of the first rows only where there are many. `refused`: which values could not be taken. `filled`:
    which were missing, and are what the model takes for them. `strange`: which are none of the levels, and have the
    code that the model gives to all such. These three are `b x c`, by column as it stands in data (`Table.raw`).
    `examples`: the first strange value of a column, by its number.
    """

    values: np.ndarray
    faults: dict[int, str]
    refused: np.ndarray
    filled: np.ndarray
    strange: np.ndarray
    examples: dict[int, str]


@dataclass(eq=False)
class Told:
    """Counts, over all rows of some data, of values that were taken as something else than what stands there."""

    table: Table
    filled: dict[int, int] = field(default_factory=dict)
    strange: dict[int, int] = field(default_factory=dict)
    examples: dict[int, str] = field(default_factory=dict)

    def add(self, found: Encoded) -> None:
        """Counts those of some rows as well."""
        for counts, marks in ((self.filled, found.filled), (self.strange, found.strange)):
            for k, count in enumerate(marks.sum(0).tolist()):
                counts[k] = counts.get(k, 0) + count
        self.examples = {**found.examples, **self.examples}

    def notes(self) -> tuple[str, ...]:
        """Sentences about them, for people."""
        found = []
        for k, column in enumerate(self.table.columns):
            if self.filled.get(k):
                taken = "the category of its own" if column.missing is None else shown(column.missing)
                found.append(
                    f"the value of {column.name!r} is missing in {counted(self.filled[k], 'row')}, for which the model "
                    f"takes {taken}"
                )
            if self.strange.get(k):
                found.append(
                    f"the value of {column.name!r} is none of its levels in {counted(self.strange[k], 'row')} (the "
                    f"first: {self.examples[k]}), which the model takes all alike"
                )
        return tuple(found)


def encode(
    table: Table, columns: Sequence[Any], row: Callable[[int], str] = "row {}".format, *, written: bool = False
) -> Encoded:
    """Rows of a table as a network takes them.

    `columns`: the values of every column of `table.raw`, `b` each, in its order: lists, arrays, or columns of pandas or
    Arrow. `row`: how a row, counted from 0, is called. `written`: whether texts may stand for numbers, truth values and
    missing ones, as they do in a file of text; elsewhere a text in a column of categories is a text. Columns that hold
    dates, or what is neither text nor number, are refused whole.
    """
    raw = table.raw.columns
    if len(columns) != len(raw):
        raise InputError(f"the table has {len(raw)} columns, not {len(columns)}")
    found = [_encode(column, given, written) for column, given in zip(raw, columns)]
    lengths = {len(one.values) for one in found}
    if len(lengths) > 1:
        raise InputError(f"columns of a table must have as many values each; these have {sorted(lengths)}")
    states = {name: np.stack([one.state == name for one in found], axis=1) for name in (_NOTHING, _STRANGE)}
    refused = np.stack([np.isnan(one.values).any(1) for one in found], axis=1)
    examples = {}
    for k, one in enumerate(found):
        rows = np.flatnonzero(states[_STRANGE][:, k] & ~refused[:, k])
        if len(rows):
            examples[k] = f"{shown(one.value(int(rows[0])))} in {row(int(rows[0]))}"
    faults = {}
    for r in np.flatnonzero(refused.any(1))[:_MOST_FAULTS].tolist():
        bad = np.flatnonzero(refused[r])
        told = "; ".join(_fault(raw[k], found[k], r) for k in bad[:_LEVELS_SHOWN])
        more = f"; and {len(bad) - _LEVELS_SHOWN} more" if len(bad) > _LEVELS_SHOWN else ""
        faults[r] = f"{row(r)}: {told}{more}"
    values = np.concatenate([one.values for one in found], axis=1)
    for r, why in uncoded(table, values, only_parts=True).items():
        faults[r] = f"{row(r)}: {why}"
        values[r] = math.nan
    return Encoded(values, faults, refused, states[_NOTHING] & ~refused, states[_STRANGE] & ~refused, examples)


def decode(table: Table, x: np.ndarray) -> list[np.ndarray]:
    """Values of every column that a network takes as `x`, `b x n`: `b` each, float64 for numbers, objects for levels.

    Where several levels have one code, the first of them. Where a code is that of values that are none of the levels,
    such a value (`stranger`). None where it stands for nothing.
    """
    found: list[np.ndarray] = []
    for column, place in zip(table.columns, table.places):
        part = np.asarray(x, dtype=np.float64)[:, place]
        if column.levels is None:
            found.append(part[:, 0].copy())
            continue
        values = np.empty(len(part), dtype=object)
        for r, code in enumerate(part):
            levels = levels_of(column, code)
            values[r] = levels[0] if levels else stranger(column) if is_strange(column, code) else None
        found.append(values)
    return found


def stranger(column: Column) -> Level:
    """A value that is none of a column's levels, of the same kind as they are."""
    levels = column.levels or ()
    if any(isinstance(level, str) for level in levels):
        name = "unknown"
        while name in levels:
            name += "_"
        return name
    numbers = {float(level) for level in levels if isinstance(level, bool | int | float)}
    value = 1.0 + max(map(abs, numbers), default=0.0)
    while value in numbers:  # beyond 2^53 one more is the same
        value = value * 1.5 if value < 1e300 else value / 3
    return value


# ---------------------------------------------------------------------------------------------------------------
# One column


@dataclass(frozen=True, eq=False)
class _Found:
    """A column: `values` `b x w`; `state`: what a value is that is no code, `b`, else 0; `value`: what stands in a
    row."""

    values: np.ndarray
    state: np.ndarray
    value: Callable[[int], Any]


def _encode(column: Column, given: Any, written: bool) -> _Found:
    found = _encode_any(column, given, written)
    if column.decimals is None:
        return found
    numbers = found.values[:, 0]
    bad = np.isfinite(numbers) & (found.state == 0) & ~is_multiple(numbers, column.decimals)
    if not bad.any():
        return found
    state, values = np.where(bad, _BETWEEN, found.state), np.where(bad, math.nan, numbers)[:, None]
    return _Found(values, state, lambda r: float(numbers[r]) if bad[r] else found.value(r))


def _encode_any(column: Column, given: Any, written: bool) -> _Found:
    if is_arrow(given) and holds_text(given.type):
        return _encode_texts(column, given, written)
    plain = array_of(given, column.name)
    if column.levels is None and plain.dtype.kind in "fiub":
        return _encode_numbers(column, plain)
    different: dict[Any, int] = {}
    inverse = np.array([different.setdefault(identity(v), len(different)) for v in plain.tolist()], dtype=np.int64)
    codes, states = _codes(column, [value for _, value in different], written)
    return _Found(codes[inverse], states[inverse], plain.__getitem__)


def _encode_numbers(column: Column, plain: np.ndarray) -> _Found:
    values = plain.astype(np.float64)
    empty, infinite = np.isnan(values), np.isinf(values)
    state = np.where(empty, _NOTHING, np.where(infinite, _INFINITE, 0)).astype(np.int8)
    taken = np.where(infinite, math.nan, np.where(empty, _instead(column, _NOTHING) or math.nan, values))
    return _Found(taken.astype(np.float64)[:, None], state, plain.__getitem__)


def _encode_texts(column: Column, given: Any, written: bool) -> _Found:
    """Arrow's texts: those that are numbers at once, others once for each that is different."""
    import pyarrow as pa
    import pyarrow.compute as compute

    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if pa.types.is_dictionary(given.type):
        given = given.cast(given.type.value_type)
    values = np.full((len(given), column.width), math.nan)
    state = np.zeros(len(given), dtype=np.int8)
    rest = np.arange(len(given))
    if column.levels is None:
        text = compute.utf8_trim_whitespace(given)
        text = compute.if_else(compute.match_substring_regex(text, NUMBER), text, None)
        values[:, 0] = compute.cast(text, "float64").to_numpy(zero_copy_only=False)
        rest = np.flatnonzero(~np.isfinite(values[:, 0]))
        if not len(rest):
            return _Found(values, state, lambda r: None)
        given = given.take(pa.array(rest))
    different = given.dictionary_encode(null_encoding="encode")
    inverse = different.indices.to_numpy(zero_copy_only=False)
    codes, states = _codes(column, different.dictionary.to_pylist(), written)
    values[rest], state[rest] = codes[inverse], states[inverse]
    place = np.full(len(values), -1)
    place[rest] = np.arange(len(rest))
    return _Found(values, state, lambda r: given[int(place[r])].as_py())


def _codes(column: Column, different: list[Any], written: bool) -> tuple[np.ndarray, np.ndarray]:
    """The codes of some values, `m x w`, and their states, `m`."""
    take = _taker(column, written)
    codes = np.full((len(different), column.width), math.nan)
    states = np.zeros(len(different), dtype=np.int8)
    for k, value in enumerate(different):
        got = take(value)
        if isinstance(got, int):
            states[k] = got
        code = _instead(column, got) if isinstance(got, int) else got
        if code is not None:
            codes[k] = code
    return codes, states


def _instead(column: Column, state: int) -> Code | None:
    """What the model takes for a value that is missing, or none of the levels; None where it takes nothing."""
    if state == _STRANGE:
        return column.unknown
    if state != _NOTHING or (isinstance(column.missing, float) and math.isnan(column.missing)):
        return None
    if column.levels is None:
        return (float(column.missing),) if isinstance(column.missing, float) else None
    return column.codes[[key_of(level) for level in column.levels].index(key_of(column.missing))]


def _taker(column: Column, written: bool) -> Callable[[Any], Code | int]:
    """From a value to its code, or to what it is instead."""
    if column.levels is None:
        return lambda value: _number(value, written)
    texts = {level: code for level, code in zip(column.levels, column.codes) if isinstance(level, str)}
    numbers = {key_of(level): k for k, level in enumerate(column.levels) if isinstance(level, bool | int | float)}
    truths = any(isinstance(level, bool) for level in column.levels)

    def of_number(value: Any) -> Code | None:
        k = numbers.get(key_of(value))
        # Whole numbers beyond 2^53 are not what they are as float64.
        return None if k is None or column.levels is None or column.levels[k] != value else column.codes[k]

    def take(value: Any) -> Code | int:
        if is_missing(value):
            return _NOTHING
        if not isinstance(value, str):
            return of_number(_plain(value)) or _STRANGE
        if value in texts:
            return texts[value]
        if written:
            if truths and value in _TRUTH:
                return of_number(_TRUTH[value]) or _STRANGE
            number = parsed(value)
            code = None if number is None else of_number(number)
            if code is not None:
                return code
            if value in MISSING:
                return _NOTHING
        return _STRANGE

    return take


def _plain(value: Any) -> Any:
    """A decimal number as float64 has it, a whole one exactly."""
    if not isinstance(value, Decimal):
        return value
    whole = value.is_finite() and value.adjusted() < _MOST_DIGITS and value == value.to_integral_value()
    return int(value) if whole else float(value)


def _number(value: Any, written: bool) -> Code | int:
    if is_missing(value):
        return _NOTHING
    if isinstance(value, str):
        if written and value.strip() in MISSING:
            return _NOTHING
        number = _TRUTH.get(value) if written and value in _TRUTH else parsed(value)
        if number is None:
            return _NO_NUMBER
        value = number
    try:
        found = float(value)
    except OverflowError:
        return _INFINITE
    return (found,) if math.isfinite(found) else _INFINITE


# ---------------------------------------------------------------------------------------------------------------
# Words


def _fault(column: Column, found: _Found, row: int) -> str:
    state, value = found.state[row], found.value(row)
    if state == _NOTHING:
        written = f" ({shown(value)})" if isinstance(value, str) and value.strip() else ""
        return f"{column.name!r} is missing{written}"
    if state == _INFINITE:
        return f"{column.name!r} is {shown(value)}, which is not finite"
    if state == _NO_NUMBER:
        return f"{column.name!r} is {shown(value)}, which is no number"
    if state == _BETWEEN:
        return f"{column.name!r} is {shown(value)}, {too_fine(column)}"
    levels = column.levels or ()
    told = ", ".join(map(shown, levels[:_LEVELS_SHOWN]))
    more = f" and {len(levels) - _LEVELS_SHOWN} more" if len(levels) > _LEVELS_SHOWN else ""
    return f"{column.name!r} is {shown(value)}, which is none of its levels {told}{more}"


__all__ = ["MISSING", "Encoded", "Told", "decode", "encode", "stranger"]
