"""Tables: CSV files, held in memory as numbers, and Parquet files, of which one row group at a time is in memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elbowroom.arguments.names import places
from elbowroom.data.dataset import Dataset, Rows, number_labels, seen_as
from elbowroom.data.reading import file_size, hash_files, one_line, refuse_bomb, require
from elbowroom.errors import InputError
from elbowroom.files import digest

LABEL_COLUMNS = ("label", "target", "class", "y")
_INDEX_COLUMNS = ("", "__index_level_0__")  # what pandas calls the index it writes beside the data
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_BLOCK = 1 << 24  # bytes of a CSV file at a time; a row must fit
_MOST_TEXTS = 10_000  # entries of a CSV file that are not numbers and are kept for messages


def open_table(
    path: Path,
    label_column: str | None,
    feature_columns: Sequence[str] | None,
    input_shape: Sequence[int] | None,
    model_features: Sequence[str] | None = None,
) -> Dataset:
    """Inputs, a row each, `f` (or `input_shape`), with the names of their columns, and labels if there are any.

    Entries that are missing or no numbers become NaN. `label_column`: by default the one column named label, target,
    class or y, if there is exactly one beside the features; "" for no labels. `feature_columns`: by default all others.
    `model_features`: the features as a model names them, which are found by these names and come in this order; other
    columns are left out.
    """
    read = _read_csv if path.suffix.lower() == ".csv" else _read_parquet
    columns, load, count, texts, instead = read(path, _Wanted(label_column, feature_columns, model_features))
    label, features = columns.label, columns.features
    if not count:
        raise InputError(f"{path} has no rows")
    shape = seen_as((len(features),), input_shape, f"{path}")
    labels, classes = (None, None) if texts is None else number_labels(texts, f"{path}: {label}")
    content = digest({"table": hash_files([path]), "label": label, "features": features, "shape": shape})
    return Dataset(
        path.name, shape, count, content, load, labels, classes, tuple(features),
        labelled_by=None if label is None else f"column {label!r}", instead=instead, own_numbers=classes is None,
        notes=columns.notes,
    )  # fmt: skip


@dataclass(frozen=True)
class _Wanted:
    """What `open_table` was told about columns."""

    label_column: str | None
    feature_columns: Sequence[str] | None
    model_features: Sequence[str] | None


@dataclass(frozen=True)
class _Columns:
    """The label's column, if any, the features' columns, and notes on how these were found."""

    label: str | None
    features: list[str]
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
            raise InputError(f"{path} has no column {name!r}; it has {_shown(names)}")
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
        return _Columns(label, chosen)
    order, notes = places(known, chosen, path.name)
    return _Columns(label, [chosen[k] for k in order], notes)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _refuse_columns(path: Path, names: Sequence[str], found: str | None = None) -> None:
    """`found`: what the first of these columns holds instead."""
    if names:
        seen = "" if found is None else f" ({found})" if len(names) == 1 else f" ({names[0]!r}: {found})"
        raise InputError(
            f"{path}: no numbers in the column{'s' * (len(names) > 1)} {_shown(names)}{seen}; features must be "
            "numbers: name the label by `label_column`, or the features by `feature_columns`"
        )


# The columns, how to load rows, how many there are, the labels, what is not a number.
Read = tuple[_Columns, Any, int, list[str | None] | None, "Texts | None"]


# ---------------------------------------------------------------------------------------------------------------
# CSV


def _read_csv(path: Path, asked: _Wanted) -> Read:
    """All entries are read as text, so that a label 007 keeps its zeros and one bad entry does not spoil a column."""
    pa, csv = _arrow("pyarrow"), _arrow("pyarrow.csv")
    reading = csv.ReadOptions(block_size=_BLOCK)
    parsing = csv.ParseOptions(newlines_in_values=True)
    try:
        with csv.open_csv(path, reading, parsing) as file:
            names = list(file.schema.names)
        if asked.model_features is None or not set(asked.model_features) <= set(names):
            _refuse_numbers_as_names(path, names)
        found = _choose(path, names, asked)
        label, features = found.label, found.features
        wanted = features if label is None else [*features, label]
        converting = csv.ConvertOptions(column_types={name: pa.string() for name in wanted}, include_columns=wanted)
        blocks: list[np.ndarray] = []
        texts: list[str | None] = []
        instead, first = Texts(), 0
        with csv.open_csv(path, reading, parsing, converting) as file:
            for batch in file:
                columns = [_numbers(batch.column(k)) for k in range(len(features))]
                blocks.append(np.stack(columns, axis=1))
                instead.note(batch, blocks[-1], first)
                first += batch.num_rows
                if label is not None:
                    texts += batch.column(len(features)).to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a table of comma-separated values: {one_line(error)}") from None
    values = np.concatenate([np.empty((0, len(features))), *blocks])
    if len(values):
        bad = np.flatnonzero(np.isnan(values).all(axis=0)).tolist()
        _refuse_columns(path, [features[k] for k in bad], instead(0, bad[0]) if bad else None)
    return found, Rows(values), len(values), None if label is None else texts, instead


@dataclass(eq=False)
class Texts:
    """Entries that are not numbers, by row and feature, the first ones of a file; called with both, says what is there
    and in which row below the names of the columns, counted from 1."""

    found: dict[tuple[int, int], str | None] = field(default_factory=dict)

    def note(self, batch: Any, values: np.ndarray, first: int) -> None:
        """Keeps those of a block whose first row has the number `first`."""
        for row, feature in np.argwhere(np.isnan(values))[: _MOST_TEXTS - len(self.found)].tolist():
            self.found[first + row, feature] = batch.column(feature)[row].as_py()

    def __call__(self, row: int, feature: int) -> str | None:
        if (row, feature) not in self.found:
            return None
        text = (self.found[row, feature] or "").strip()
        what = repr(text[:40] + "..." * (len(text) > 40)) if text else "nothing"
        return f"{what} in row {row + 1} below the header"


def _numbers(column: Any) -> np.ndarray:
    """Text to float64, correctly rounded; NaN for what is not a number."""
    compute = _arrow("pyarrow.compute")
    text = compute.utf8_trim_whitespace(column)
    numbers = compute.if_else(compute.match_substring_regex(text, _NUMBER), text, None)
    parsed: np.ndarray = compute.cast(numbers, "float64").to_numpy(zero_copy_only=False)
    return parsed


def _refuse_numbers_as_names(path: Path, names: list[str]) -> None:
    """A file without a row of names would lose its first row. Columns simply counted are names that pandas gives."""
    if not all(re.match(_NUMBER, name.strip(), re.ASCII) for name in names):
        return
    if names not in [[str(k + start) for k in range(len(names))] for start in (0, 1)]:
        raise InputError(f"{path}: the first row must name the columns; it holds {_shown(names)}")


# ---------------------------------------------------------------------------------------------------------------
# Parquet


@dataclass(eq=False)
class ParquetRows:
    """Rows of a Parquet file's columns; remembers the row group it read last."""

    path: Path
    features: list[str]
    rows: list[int]  # of every row group
    _last: tuple[int, np.ndarray] | None = field(default=None, repr=False)

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        starts = np.cumsum([0, *self.rows])
        groups = np.searchsorted(starts, indices, side="right") - 1
        found = np.empty((len(indices), len(self.features)))
        for group in np.unique(groups).tolist():
            here = groups == group
            found[here] = self._group(group)[indices[here] - starts[group]]
        return found

    def _group(self, group: int) -> np.ndarray:
        if self._last is None or self._last[0] != group:
            self._last = None  # not two in memory
            table = _read_columns(self.path, [group], self.features, self.rows[group])
            values = np.empty((table.num_rows, len(self.features)))
            for k, column in enumerate(table.columns):
                values[:, k] = _decoded(column).cast("float64", safe=False).to_numpy()
            self._last = group, values
        return self._last[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}


def _read_parquet(path: Path, asked: _Wanted) -> Read:
    pa, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    file_size(path)
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            names = list(schema.names)
            rows = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
            stated = file.metadata.num_rows
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"{path} is damaged, or no Parquet file: {one_line(error)}") from None
    if min(rows, default=0) < 0 or sum(rows) != stated:
        raise InputError(f"{path} is damaged: its row groups have {rows} rows, {stated} in all")
    found = _choose(path, names, asked)
    label, features = found.label, found.features
    types = pa.types

    def is_number(kind: Any) -> bool:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return any(test(kind) for test in (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean))

    _refuse_columns(path, [name for name in features if not is_number(schema.field(name).type)])
    refuse_bomb(path, max(rows, default=0) * len(features) * 8, "write it with smaller row groups")
    refuse_bomb(path, stated * 8, "write it in several files")
    texts = None
    if label is not None:
        column = _decoded(_read_columns(path, range(len(rows)), [label], stated).column(0))
        if types.is_nested(column.type):
            raise InputError(f"{path}: the column {label!r} holds {column.type}, not labels")
        texts = [None if value is None else str(value) for value in column.to_pylist()]
    return found, ParquetRows(path, features, rows), stated, texts, None


def _read_columns(path: Path, groups: Sequence[int], names: list[str], rows: int) -> Any:
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


def _decoded(column: Any) -> Any:
    """A dictionary-encoded column as plain values."""
    is_dictionary = _arrow("pyarrow").types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_dictionary else column


def _arrow(module: str) -> Any:
    return require(module, "pyarrow", "reading tables")
