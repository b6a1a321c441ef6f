"""How a network takes the rows of a table: which numbers stand for the values of each column.

A column of numbers is one entry of the network's input. A column of categories is as many entries as its encoder
makes: a category has a fixed vector of numbers, its code (one-hot, all zeros where an encoder drops it, a single number
for an ordinal encoder). So a network needs no texts, and a region over codes is a set of categories.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elbowroom.errors import InputError
from elbowroom.network.kinds import KINDS, Kind

Level = str | float | bool | None  # of a category; None: a missing value that counts as one of its own
Code = tuple[float, ...]

MOST_DECIMALS = 15


@dataclass(frozen=True)
class Column:
    """One column of a table.

    `levels`: the categories, None for a column of numbers. `codes`: the numbers that stand for each of them, all of
    one length. `unknown`: those of a value that is none of the levels; None where it is refused. `missing`: what is
    taken where a value is missing, a number or one of the levels; NaN where a row without it is refused. `unit`: of
    numbers, for people. `input`: of a model that takes several tensors, what the one is called that it is a column of.

    `kind`: what was declared, or follows from the data: levels of "ordered levels" stand in their order, a missing
    value as a level last. `decimals`: of numbers that are multiples of 10^-decimals, 0 for whole ones; None: any.
    `domain`: between which ends numbers lie. `parts`: where data have a column of numbers for each of its entries, the
    names of these; else they have its values in one column, by its own name.
    """

    name: str
    levels: tuple[Level, ...] | None = None
    codes: tuple[Code, ...] = ()
    unknown: Code | None = None
    missing: Level = math.nan
    unit: str = ""
    input: str = ""
    kind: Kind = ""
    decimals: int | None = None
    domain: tuple[float, float] | None = None
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"the column {self.name!r}"
        self._check_kind(where)
        if self.levels is None:
            if self.codes or self.unknown is not None or not isinstance(self.missing, float):
                raise InputError(f"{where} holds numbers, which have no codes")
            return
        lengths = {len(code) for code in (*self.codes, *(() if self.unknown is None else (self.unknown,)))}
        if not self.levels or len(self.codes) != len(self.levels) or len(lengths) != 1 or lengths == {0}:
            raise InputError(f"{where}: {len(self.levels)} levels need as many codes, of one length")
        if not all(math.isfinite(v) for code in self.codes for v in code):
            raise InputError(f"{where}: codes must be finite numbers")
        if len({key_of(level) for level in self.levels}) != len(self.levels):
            raise InputError(f"{where}: two of the levels {self.levels!r:.80} are the same")
        if not _is_nan(self.missing) and key_of(self.missing) not in {key_of(level) for level in self.levels}:
            raise InputError(f"{where}: {self.missing!r} is taken where a value is missing, but is none of the levels")
        if self.parts and len(self.parts) != self.width:
            raise InputError(f"{where}: {len(self.parts)} columns of data stand for {self.width} numbers")

    def _check_kind(self, where: str) -> None:
        of_numbers = self.levels is None
        fits = {"": True, "fixed": True, "number": of_numbers, "whole number": of_numbers and self.decimals == 0}
        if self.kind not in KINDS or not fits.get(self.kind, not of_numbers):
            raise InputError(f"{where} cannot be of the kind {self.kind!r}")
        if self.kind == "yes/no" and len(self.levels or ()) != 2:
            raise InputError(f"{where} has {len(self.levels or ())} levels, and yes/no has two")
        if self.kind == "ordered levels" and None in (self.levels or ())[:-1]:
            raise InputError(f"{where}: a missing value has no place among ordered levels, but after them")
        if self.decimals is not None and (
            not of_numbers or type(self.decimals) is not int or not 0 <= self.decimals <= MOST_DECIMALS
        ):
            raise InputError(f"{where}: decimals are a whole number from 0 to {MOST_DECIMALS}, of a column of numbers")
        if self.domain is not None and (not of_numbers or not self.domain[0] <= self.domain[1]):
            raise InputError(f"{where}: a domain is (lowest, highest), of a column of numbers")
        if self.parts and of_numbers:
            raise InputError(f"{where} holds numbers, of which there is one")

    @property
    def ordered(self) -> int:
        """How many of the levels, the first ones, stand in an order that sets of them must keep; 0 where none do."""
        return sum(level is not None for level in self.levels or ()) if self.kind == "ordered levels" else 0

    @property
    def step(self) -> float:
        """From one of the values that it may have to the next; 0 where it may have any."""
        return 0.0 if self.decimals is None else 1.0 / 10.0**self.decimals

    @property
    def width(self) -> int:
        """How many entries of the network's input it takes."""
        return 1 if self.levels is None else len(self.codes[0])

    @property
    def fills(self) -> bool:
        """Whether something is taken where a value is missing."""
        return not _is_nan(self.missing)

    @property
    def entries(self) -> tuple[str, ...]:
        """What these entries are called: a one-hot one by its level."""
        if self.parts:
            return self.parts
        if self.levels is None or self.width == 1:
            return (self.name,)
        names = []
        for k in range(self.width):
            own = [_shown(level) for level, code in zip(self.levels, self.codes) if code[k] != 0]
            names.append(f"{self.name}={' or '.join(own)}" if own else f"{self.name}[{k}]")
        # Only of one-hot codes, or codes of zeros, do levels name entries.
        named = all(sum(v != 0 for v in code) <= 1 for code in self.codes)
        return tuple(names) if named else tuple(f"{self.name}[{k}]" for k in range(self.width))

    def level_of(self, code: Sequence[float]) -> int | None:
        """The number of the level that a code stands for; None where it is of none, or of several alike."""
        found = [k for k, own in enumerate(self.codes) if own == tuple(code)]
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class Table:
    """The columns of a table, in the order in which a network takes them."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        twice = {name for name, times in Counter(column.name for column in self.columns).items() if times > 1}
        if twice:
            raise InputError(f"the column {min(twice)!r} is there twice")
        runs = [name for name, _ in itertools.groupby(column.input for column in self.columns)]
        if len(set(runs)) != len(runs) or (len(runs) > 1 and "" in runs):
            raise InputError("the columns of one of several inputs must stand side by side, and all be of some")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    @property
    def entries(self) -> tuple[str, ...]:
        """A name per entry of the network's input."""
        return tuple(name for column in self.columns for name in column.entries)

    @property
    def places(self) -> tuple[slice, ...]:
        """Which entries are of each column."""
        ends = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))

    @property
    def inputs(self) -> dict[str, int]:
        """Of a model that takes several tensors: what each is called, in order, and how many columns it has."""
        return dict(Counter(column.input for column in self.raw.columns if column.input))

    @property
    def raw(self) -> Table:
        """The columns as they stand in data: numbers, in the place of a column that has them as its `parts`."""
        if not any(column.parts for column in self.columns):
            return self
        return Table(tuple(own for column in self.columns for own in _parts_of(column)))

    @property
    def moves(self) -> np.ndarray:
        """Which entries are numbers, and may move in a region, `n` booleans."""
        return np.array([column.levels is None for column in self.columns for _ in range(column.width)], dtype=bool)


def _parts_of(column: Column) -> tuple[Column, ...]:
    if not column.parts:
        return (column,)
    if len(column.parts) > 1 or not column.fills:
        return tuple(Column(part, input=column.input) for part in column.parts)
    code = column.codes[[key_of(level) for level in column.levels or ()].index(key_of(column.missing))]
    return (Column(column.parts[0], missing=code[0], input=column.input),)


def kind_of(column: Column) -> Kind:
    """What a column is: as it was declared, else what the model takes it as."""
    return column.kind or ("number" if column.levels is None else "category")


def key_of(level: Any) -> Any:
    """What two values have in common that are the same level: numbers and booleans by their value, texts as such."""
    if level is None or _is_nan(level):
        return None
    if isinstance(level, bool | int | float | np.bool_ | np.number):
        return float(level)
    return str(level)


def _shown(level: Level) -> str:
    """As an entry's name has it: whole numbers without a point."""
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | np.floating) and math.isnan(value)


__all__ = ["MOST_DECIMALS", "Code", "Column", "Level", "Table", "key_of", "kind_of"]
