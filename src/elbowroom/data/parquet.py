"""Parquet files, of which one row group at a time is in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elbowroom.arguments.encoding import Encoded, Told, encode
from elbowroom.data.reading import file_size, one_line, refuse_bomb, require
from elbowroom.errors import InputError
from elbowroom.network.table import Table


@dataclass(eq=False)
class ParquetRows:
    """Rows of a Parquet file as a table takes them; remembers the row group it read last. `columns`: the file's names
    for those of the table; `rows`: of every row group."""

    path: Path
    table: Table
    columns: list[str]
    rows: list[int]
    _last: tuple[int, Encoded] | None = field(default=None, repr=False)

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        return self._gathered(indices, np.empty((len(indices), self.table.width)), lambda found: found.values)

    def filled(self, indices: np.ndarray) -> np.ndarray:
        """Which values are what is taken for missing ones, `b x c`."""
        marks = np.empty((len(indices), len(self.columns)), dtype=bool)
        return self._gathered(indices, marks, lambda found: found.filled)

    def fault(self, index: int) -> str | None:
        """Why a row cannot be taken, in words."""
        group = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self.group(group).faults.get(index - int(self._starts[group]))

    def told(self) -> Told:
        """What was taken as something else, over all rows."""
        found = Told(self.table.raw)
        for group in range(len(self.rows)):
            found.add(self.group(group))
        return found

    def group(self, group: int) -> Encoded:
        """All rows of a row group."""
        if self._last is None or self._last[0] != group:
            self._last = None  # not two in memory
            table = read_columns(self.path, [group], self.columns, self.rows[group])
            first = int(self._starts[group])
            self._last = group, encode(self.table, table.columns, lambda row: f"row {first + row + 1}, counted from 1")
        return self._last[1]

    def _gathered(self, indices: np.ndarray, found: np.ndarray, part: Any) -> np.ndarray:
        groups = np.searchsorted(self._starts, indices, side="right") - 1
        for group in np.unique(groups).tolist():
            here = groups == group
            found[here] = part(self.group(group))[indices[here] - self._starts[group]]
        return found

    @property
    def _starts(self) -> np.ndarray:
        return np.cumsum([0, *self.rows])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}


@dataclass(frozen=True)
class ParquetFile:
    """What the footer of a file says: its schema, and the rows of every row group."""

    path: Path
    schema: Any
    rows: list[int]

    @staticmethod
    def open(path: Path) -> ParquetFile:
        pa, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
        file_size(path)
        try:
            with parquet.ParquetFile(path) as file:
                schema = file.schema_arrow
                rows = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
                stated = file.metadata.num_rows
        except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
            raise InputError(f"{path} is damaged, or no Parquet file: {one_line(error)}") from None
        if min(rows, default=0) < 0 or sum(rows) != stated:
            raise InputError(f"{path} is damaged: its row groups have {rows} rows, {stated} in all")
        return ParquetFile(path, schema, rows)

    def rows_of(self, table: Table, columns: list[str]) -> ParquetRows:
        """Those of some columns; types that cannot be taken are refused by name."""
        refuse_bomb(self.path, max(self.rows, default=0) * table.width * 8, "write it with smaller row groups")
        refuse_bomb(self.path, sum(self.rows) * 8, "write it in several files")
        try:
            encode(table, [_arrow("pyarrow").array([], self.schema.field(name).type) for name in columns])
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None
        return ParquetRows(self.path, table, columns, self.rows)

    def without_numbers(self, columns: Sequence[str]) -> list[str]:
        """Those of these columns that cannot hold numbers, other than dates, of which more can be said."""
        types = _arrow("pyarrow").types
        tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_temporal)
        kinds = {name: self.schema.field(name).type for name in columns}
        plain = {name: kind.value_type if types.is_dictionary(kind) else kind for name, kind in kinds.items()}
        return [name for name, kind in plain.items() if not any(test(kind) for test in tests)]

    def texts(self, name: str) -> list[str | None]:
        """All values of one column, as text."""
        types = _arrow("pyarrow").types
        column = read_columns(self.path, range(len(self.rows)), [name], sum(self.rows)).column(0)
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if types.is_nested(column.type):
            raise InputError(f"{self.path}: the column {name!r} holds {column.type}, not labels")
        known: dict[Any, str] = {}  # one text for all that are the same
        return [None if value is None else known.setdefault(value, str(value)) for value in column.to_pylist()]


def read_columns(path: Path, groups: Sequence[int], names: list[str], rows: int) -> Any:
    """A table of these columns, in this order."""
    pa, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            table = file.read_row_groups(list(groups), columns=names)
        table.validate(full=True)
        table = table.select(names)
    except (pa.ArrowException, OSError, ValueError, OverflowError, KeyError, MemoryError) as error:
        raise InputError(f"{path} cannot be read: {one_line(error)}") from None
    if table.num_rows != rows:
        raise InputError(f"{path} is damaged: {table.num_rows} rows where its footer states {rows}")
    return table


def _arrow(module: str) -> Any:
    return require(module, "pyarrow", "reading tables")
