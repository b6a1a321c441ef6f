"""Tables: CSV and Parquet files, a row per input, of which the rows that are asked for are in memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elbowroom.arguments.encoding import Told, encode
from elbowroom.arguments.names import nearest_of, places
from elbowroom.arguments.values import NUMBER
from elbowroom.data.dataset import Dataset, number_labels, seen_as
from elbowroom.data.parquet import ParquetFile
from elbowroom.data.reading import hash_files, one_line, require
from elbowroom.data.spool import Spool
from elbowroom.errors import InputError
from elbowroom.files import digest
from elbowroom.network.table import Column, Table

LABEL_COLUMNS = ("label", "target", "class", "y")
_INDEX_COLUMNS = ("", "__index_level_0__")  # what pandas calls the index it writes beside the data
# Bytes of a CSV file at a time, of which some 30 are read ahead: a row must fit into the second where few fit into the
# first.
_BLOCK, _LARGE_BLOCK = 1 << 22, 1 << 24
_FEW_ROWS = 8
_MOST_FAULTS = 10_000  # rows that cannot be taken, of which it is kept why


def open_table(
    path: Path,
    label_column: str | None,
    feature_columns: Sequence[str] | None,
    input_shape: Sequence[int] | None,
    model: Sequence[str] | Table | None = None,
) -> Dataset:
    """Inputs, a row each, `f` (or `input_shape`), with the names of their columns, and labels if there are any.

    Entries that are missing or no numbers become NaN, and `Dataset.fault` says what stands there. `label_column`: by
    default the one column named label, target, class or y, if there is exactly one beside the features; "" for no
    labels. `feature_columns`: by default all others. `model`: the features as a model names them, which are found by
    these names and come in this order, other columns being left out; or the table that it takes rows of, as which
    values are then taken.
    """
    table = model if isinstance(model, Table) else None
    known = model.raw.names if isinstance(model, Table) else model
    read = _read_csv if path.suffix.lower() == ".csv" else _read_parquet
    found = read(path, _Wanted(label_column, feature_columns, known, table))
    columns, label = found.columns, found.columns.label
    if not found.count:
        raise InputError(f"{path} has no rows")
    features = columns.table.entries
    shape = seen_as((len(features),), input_shape, f"{path}")
    labels, classes = (None, None) if found.texts is None else number_labels(found.texts, f"{path}: {label}")
    content = {"table": hash_files([path]), "label": label, "features": columns.features, "shape": shape}
    if table is not None:
        content["read"] = repr(table)
    return Dataset(
        path.name, shape, found.count, digest(content), found.load, labels, classes, features,
        labelled_by=None if label is None else f"column {label!r}", own_numbers=classes is None, fault=found.fault,
        imputed=found.imputed, notes=(*columns.notes, *found.notes),
    )  # fmt: skip


@dataclass(frozen=True)
class _Wanted:
    """What `open_table` was told about columns."""

    label_column: str | None
    feature_columns: Sequence[str] | None
    model_features: Sequence[str] | None
    table: Table | None


@dataclass(frozen=True)
class _Columns:
    """The label's column, if any, the features' columns, as which table they are read, and notes on how these were
    found."""

    label: str | None
    features: list[str]
    table: Table
    notes: tuple[str, ...] = ()


def _choose(path: Path, names: list[str], wanted: _Wanted) -> _Columns:
    label_column, feature_columns, known = wanted.label_column, wanted.feature_columns, wanted.model_features
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(f"{path}: the column {repeated[0]!r} appears twice; does the first row name the columns?")
    if isinstance(feature_columns, str):
        raise InputError(f"feature_columns must be a list of names, got the text {feature_columns!r}")
    chosen = None if feature_columns is None else list(feature_columns)
    for name in [*(chosen or ()), *([label_column] if label_column else ())]:
        if name not in names:
            raise InputError(f"{path} has no column {name!r}{nearest_of(name, names)}; it has {_shown(names)}")
    label = label_column or None
    if label_column is None:
        likely = [name for name in LABEL_COLUMNS if name in names and name not in (*(chosen or ()), *(known or ()))]
        label = likely[0] if len(likely) == 1 else None
    if chosen is None:
        chosen = [name for name in names if name != label]
        for name in chosen if known is None else ():
            if name in _INDEX_COLUMNS:
                raise InputError(
                    f"{path}: the column {names.index(name) + 1}, named {name!r}, looks like an index that was saved "
                    "with the data; give `feature_columns`"
                )
    elif len(set(chosen)) != len(chosen):
        raise InputError("`feature_columns` names a column twice")
    if label is not None and label in (*chosen, *(known or ())):
        raise InputError(f"the column {label!r} cannot be both the label and a feature")
    if not chosen:
        raise InputError(f"{path} has no columns for features; it has {_shown(names)}")
    if known is None:
        return _Columns(label, chosen, _plain(chosen))
    order, notes = places(known, chosen, path.name)
    features = [chosen[k] for k in order]
    return _Columns(label, features, wanted.table or _plain(features), notes)


def _plain(names: Sequence[str]) -> Table:
    """Of numbers alone."""
    return Table(tuple(Column(name) for name in names))


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _refuse_columns(path: Path, names: Sequence[str], found: str | None = None) -> None:
    """`found`: what was wrong about the first row."""
    if names:
        seen = "" if found is None else f" ({found})"
        raise InputError(
            f"{path}: no numbers in the column{'s' * (len(names) > 1)} {_shown(names)}{seen}; features must be "
            "numbers: name the label by `label_column`, or the features by `feature_columns`"
        )


@dataclass(frozen=True, eq=False)
class _Read:
    """What was read: the columns, how to load rows, how many there are, the labels, why rows cannot be taken, which
    entries are taken for missing ones (None where none is), and notes."""

    columns: _Columns
    load: Callable[[np.ndarray], np.ndarray]
    count: int
    texts: list[str | None] | None
    fault: Callable[[int], str | None]
    imputed: Callable[[np.ndarray], np.ndarray] | None
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Imputed:
    """Which entries are taken for missing values, `b x n`, from which columns are, `b x c`."""

    table: Table
    filled: Callable[[np.ndarray], np.ndarray]

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        return np.repeat(self.filled(indices), [column.width for column in self.table.raw.columns], axis=1)


# ---------------------------------------------------------------------------------------------------------------
# CSV


def _read_csv(path: Path, asked: _Wanted) -> _Read:
    """All entries are read as text, so that a label 007 keeps its zeros and one bad entry does not spoil a column."""
    pa, csv = _arrow("pyarrow"), _arrow("pyarrow.csv")
    reading = csv.ReadOptions(block_size=_block(path))
    parsing = csv.ParseOptions(newlines_in_values=True)
    try:
        with csv.open_csv(path, reading, parsing) as file:
            names = list(file.schema.names)
        _refuse_other_separators(path, names)
        named = (*(asked.model_features or ()), *(asked.feature_columns or ()))
        if not named or not set(named) <= set(names):
            _refuse_numbers_as_names(path, names)
        found = _choose(path, names, asked)
        label, features = found.label, found.features
        wanted = features if label is None else [*features, label]
        converting = csv.ConvertOptions(column_types={name: pa.string() for name in wanted}, include_columns=wanted)
        rows = _Gathered(found.table)
        with csv.open_csv(path, reading, parsing, converting) as file:
            for batch in file:
                rows.add(batch, label is not None)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a table of comma-separated values: {one_line(error)}") from None
    rows.refuse_columns(path)
    imputed = None if rows.filled is None else _Imputed(found.table, rows.filled.rows())
    texts = None if label is None else rows.texts
    return _Read(found, rows.values.rows(), rows.values.count, texts, rows.faults.get, imputed, rows.told.notes())


class _Gathered:
    """What is kept of a CSV file's blocks: numbers, which of them stand for missing values, labels, faults."""

    def __init__(self, table: Table) -> None:
        raw = table.raw.columns
        fills = any(column.fills for column in raw)
        self.table, self.told = table, Told(table.raw)
        self.values = Spool(table.width)
        self.filled = Spool(len(raw), "bool") if fills else None
        self.texts: list[str | None] = []
        self.faults: dict[int, str] = {}
        self._taken = np.zeros(len(raw), dtype=bool)
        self._labels: dict[str, str] = {}  # one text for all that are the same

    def add(self, batch: Any, labelled: bool) -> None:
        first = self.values.count
        columns = [batch.column(k) for k in range(len(self._taken))]
        found = encode(self.table, columns, lambda row: f"row {first + row + 1} below the header", written=True)
        self.values.add(found.values)
        if self.filled is not None:
            self.filled.add(found.filled)
        self.told.add(found)
        self._taken |= ~found.refused.all(0)
        for row, why in found.faults.items():
            if len(self.faults) < _MOST_FAULTS:
                self.faults[first + row] = why
        if labelled:
            for text in batch.column(len(columns)).to_pylist():
                self.texts.append(None if text is None else self._labels.setdefault(text, text))

    def refuse_columns(self, path: Path) -> None:
        """Refuses columns of numbers of which not one could be taken."""
        raw = self.table.raw
        numbers = [k for k, column in enumerate(raw.columns) if column.levels is None and not self._taken[k]]
        for k in numbers if self.values.count else ():
            if raw.columns[k].decimals is not None:
                told = f" ({self.faults[0]})" if 0 in self.faults else ""
                raise InputError(f"{path}: not one value of the column {raw.names[k]!r} is as it is declared{told}")
        if self.values.count:
            _refuse_columns(path, [raw.names[k] for k in numbers], self.faults.get(0))


def _block(path: Path) -> int:
    """Bytes to read at a time; refuses a file without any."""
    try:
        with open(path, "rb") as file:
            start = file.read(_BLOCK)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    if not start.strip(b"\xef\xbb\xbf\r\n\t "):
        raise InputError(f"{path} is empty: not even names of columns are in it")
    return _BLOCK if len(start) < _BLOCK or start.count(b"\n") >= _FEW_ROWS else _LARGE_BLOCK


def _refuse_other_separators(path: Path, names: list[str]) -> None:
    for mark, called in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(names) == 1 and mark in names[0]:
            raise InputError(
                f"{path}: the first row, {names[0][:80]!r}, has no commas but {called}; a table of values with commas "
                f"between them is needed (pandas.read_csv(..., sep={mark!r}) reads such a file, to_csv writes one)"
            )


def _refuse_numbers_as_names(path: Path, names: list[str]) -> None:
    """A file without a row of names would lose its first row. Columns simply counted are names that pandas gives."""
    numbers = [name for name in names if re.match(NUMBER, name.strip(), re.ASCII)]
    counted = [[str(k + start) for k in range(len(numbers))] for start in (0, 1)]
    if 2 * len(numbers) >= len(names) and numbers not in counted:
        raise InputError(f"{path}: the first row must name the columns; it holds {_shown(names)}")


# ---------------------------------------------------------------------------------------------------------------
# Parquet


def _read_parquet(path: Path, asked: _Wanted) -> _Read:
    file = ParquetFile.open(path)
    found = _choose(path, list(file.schema.names), asked)
    raw = found.table.raw.columns
    fills = [column.fills for column in raw]
    numbers = [n for n, c, fill in zip(found.features, raw, fills) if c.levels is None and not fill]
    _refuse_columns(path, file.without_numbers(numbers))
    rows = file.rows_of(found.table, found.features)
    texts = None if found.label is None else file.texts(found.label)
    replaced = any(fills) or any(column.unknown is not None for column in raw)
    notes = rows.told().notes() if replaced else ()
    imputed = _Imputed(found.table, rows.filled) if any(fills) else None
    return _Read(found, rows, sum(file.rows), texts, rows.fault, imputed, notes)


def _arrow(module: str) -> Any:
    return require(module, "pyarrow", "reading tables")
