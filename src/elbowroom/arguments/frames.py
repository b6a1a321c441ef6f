"""Data frames: inputs whose columns have names, matched by these with the features of a network.

A frame is what pandas or pyarrow call so, or whatever has `columns` and gives one by its name; a row of one (a pandas
Series with text as its index) counts as well. None of them needs to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from elbowroom.arguments.codes import uncoded
from elbowroom.arguments.encoding import Told, encode
from elbowroom.arguments.names import Names, few, places, printable
from elbowroom.arguments.values import is_arrow
from elbowroom.errors import InputError, warn
from elbowroom.network.graph import Network
from elbowroom.network.table import Table

BY_PLACE = (
    "the network does not name its features, so the columns of {} are taken in the order they stand in; name them with "
    "er.load(..., features=...), or give an array"
)
_NONE = "row {}: {!r} is None (or NA), which models tell from NaN among texts and objects: give NaN for what is missing"


@dataclass(frozen=True, eq=False)
class Taken:
    """Inputs as they were given: `values`, what is to become a tensor; `faults`: why some rows, which are NaN, could
    not be taken, in words; `imputed`: which entries are what the model takes for a missing value, `b x n`, None where
    nothing is; `of_table`: whether they come from a table; `encoded`: whether as the values of its columns."""

    values: Any
    faults: dict[int, str] = field(default_factory=dict)
    imputed: np.ndarray | None = None
    of_table: bool = False
    encoded: bool = False


def inputs_of(net: Network, value: Any, name: str, points: bool = True) -> Taken:
    """Inputs as a network takes them: frames by the names of their columns, and the values of a table by its codes.

    A tensor holds the network's own entries; or, where there are other than as many of these as the table has columns,
    rows of as many columns. A model that takes several tensors is given a tuple of them, or a mapping from their names.
    Frames whose columns are only counted, 0 to n - 1, have no names,
    and are taken as arrays are. `points`: whether entries of categories must be codes of some, as those of corners
    need not.
    """
    table = net.about.table if isinstance(net, Network) else None
    if table is None:
        found = by_name(net, value, name)
        return Taken(found, of_table=found is not value)
    raw = table.raw
    value = _side_by_side(raw, value, name)
    if _is_entries(raw, value):
        return _entries(table, value) if points else Taken(value, of_table=True)
    columns = _raw_columns(raw, value, name)
    found = encode(table, columns)
    told = Told(raw)
    told.add(found)
    for note in told.notes():
        warn(f"{name}: {note}")
    values, faults = found.values, dict(found.faults)
    for column, given, filled in zip(raw.columns, columns, found.filled.T):
        for row in _nones(given, filled) if column.levels is not None else ():
            # An imputer fills NaN alone, so that the model itself would decide on something else.
            faults.setdefault(row, _NONE.format(row, column.name))
            values[row] = np.nan
    widths = [column.width for column in raw.columns]
    imputed = np.repeat(found.filled, widths, axis=1) if found.filled.any() else None
    return Taken(values.reshape(-1, *net.input_shape), faults, imputed, of_table=True, encoded=True)


def _nones(given: Any, filled: np.ndarray) -> list[int]:
    """The rows where something else than NaN stands for what is missing, in a column whose values stay what they are:
    of numbers pandas and scikit-learn make NaN themselves, and Arrow knows nothing but null."""
    if not filled.any() or str(getattr(given, "dtype", "object")) not in ("object", "string") or is_arrow(given):
        return []
    own = np.asarray(given, dtype=object)
    return [row for row in np.flatnonzero(filled).tolist() if not isinstance(own[row], float | np.floating)]


def _entries(table: Table, value: Any) -> Taken:
    """A network's own entries, of which those of categories must be codes, those of whole numbers whole."""
    plain = all(column.levels is None and column.decimals is None for column in table.columns)
    if plain or np.ndim(value) not in (1, 2) or np.shape(value)[-1] != table.width:
        return Taken(value, of_table=True)  # what does not fit is said elsewhere
    array = value.detach().cpu().double().numpy() if isinstance(value, Tensor) else np.asarray(value, dtype=np.float64)
    array = np.atleast_2d(array).copy()
    faults = {row: f"row {row}: {why}" for row, why in uncoded(table, array).items()}
    array[list(faults)] = np.nan
    kept = value if not faults else value.new_tensor(array) if isinstance(value, Tensor) else array
    return Taken(kept, faults, of_table=True)


def _raw_columns(table: Table, value: Any, name: str) -> list[Any]:
    """The values of every column of the table, `b` each, of a frame, a row of one, or an array."""
    found = names_of(value)
    if found is None:
        try:
            array = value.detach().cpu().double().numpy() if isinstance(value, Tensor) else value
            array = array if isinstance(array, np.ndarray) else np.asarray(array, dtype=object)
        except ValueError:
            raise InputError(f"{name}: rows of one length are needed") from None
        array = array[None] if array.ndim == 1 else array
        if array.ndim != 2 or array.shape[1] != len(table.columns):
            raise InputError(
                f"{name}: rows of {len(table.columns)} values are needed, those of the columns {few(table.names)}; got "
                f"an array of shape {np.shape(value)}"
            )
        return [array[:, k] for k in range(array.shape[1])]
    order, notes = places(table.names, found, name)
    for note in notes:
        warn(note)
    if getattr(value, "ndim", 2) == 1:
        row = list(value)
        return [[row[k]] for k in order]
    columns = _columns(value)
    return [columns[k] for k in order]


def by_name(net: Network, value: Any, name: str) -> Any:
    """Numbers of a frame, or a row of one, as an array with the network's features in the network's order; others as
    they are. Of a network that takes rows of a table, columns are the table's, and one of categories has its number
    for all its entries."""
    found = names_of(value)
    if found is None or not isinstance(net, Network):
        return value
    known, table = net.about.features, net.about.table
    if table is not None and not set(known or ()) <= set(found):
        known = table.names
    else:
        table = None
    order: Sequence[int] = range(len(found))
    if known is not None:
        order, notes = places(known, found, name)
        for note in notes:
            warn(note)
    elif len(set(found)) != len(found):
        raise InputError(f"{name}: there are columns of the same name among {few(found)}")
    else:
        warn(BY_PLACE.format(name))
    if getattr(value, "ndim", 2) == 1:
        array = _numbers(np.asarray(value)[list(order)], name)
    else:
        columns = _columns(value)
        array = np.stack([_numbers(columns[k], f"{name}: the column {found[k]!r}") for k in order], axis=1)
    if table is not None:
        array = np.repeat(array, [column.width for column in table.columns], axis=-1)
    batch = array.shape[:-1]
    return array.reshape(*batch, *net.input_shape) if array.shape[-1] == net.n_inputs else array


def columns_by_name(value: Any) -> dict[str, Any] | None:
    """The columns of a frame by their names; None where there are none, or two of a name."""
    found = names_of(value)
    if found is None or getattr(value, "ndim", 2) == 1 or len(set(found)) != len(found):
        return None
    return dict(zip(found, _columns(value)))


def names_of(value: Any) -> Names | None:
    """The names of a frame's columns, or of a row's entries; None where there are none."""
    if isinstance(value, np.ndarray | str) or not hasattr(type(value), "__getitem__"):
        return None
    names = getattr(value, "column_names", None)  # pyarrow's, whose columns are arrays
    if names is None:
        names = getattr(value, "columns", None)
    if names is None:
        index = getattr(value, "index", None)  # of a row; text and lists have a method of that name
        if index is None or callable(index) or not all(isinstance(n, str) for n in index):
            return None
        names = index
    if list(names) == list(range(len(names))):
        return None
    return printable(names)


def _columns(frame: Any) -> list[Any]:
    """A frame's columns, by their places, since pandas allows a name twice."""
    if hasattr(frame, "iloc"):
        return [frame.iloc[:, k] for k in range(len(frame.columns))]
    return [frame[k] for k in getattr(frame, "column_names", frame.columns)]


def _numbers(column: Any, where: str) -> np.ndarray:
    array = np.asarray(column)
    if array.dtype.kind == "O" and all(isinstance(v, int | float | np.number) for v in array):  # a row beside text
        array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{where} holds no numbers, but {array.dtype}, and features must be numbers")
    return array


def _is_entries(table: Table, value: Any) -> bool:
    """Whether these are numbers that stand for the network's own entries, not for values of a table's columns. Never
    both: where there are as many of these as of those, an array holds values; a tensor entries."""
    last = np.shape(value)[-1:] if isinstance(value, Tensor | np.ndarray) else ()
    if isinstance(value, Tensor):
        return value.dim() not in (1, 2) or last != (len(table.columns),) or last == (table.width,)
    is_numbers = isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.ndim in (1, 2)
    return is_numbers and last == (table.width,) != (len(table.columns),)


def _side_by_side(table: Table, value: Any, name: str) -> Any:
    """The inputs of a model that takes several, `b x k` or `b` each, as one array of all their columns; others as they
    are."""
    wanted = table.inputs
    if not wanted or not isinstance(value, tuple | Mapping):
        return value
    told = ", ".join(f"{key!r} of {count}" for key, count in wanted.items())
    if isinstance(value, Mapping) and set(value) != set(wanted):
        raise InputError(f"{name}: the model takes {told} columns; got {few([str(key) for key in value])}")
    given = [value[key] for key in wanted] if isinstance(value, Mapping) else list(value)
    arrays = [one.detach().cpu().double().numpy() if isinstance(one, Tensor) else np.asarray(one) for one in given]
    arrays = [one[:, None] if one.ndim == 1 else one for one in arrays]
    shapes = [one.shape for one in arrays]
    if any(len(shape) != 2 for shape in shapes) or [shape[1] for shape in shapes] != list(wanted.values()):
        raise InputError(
            f"{name}: the model takes {told} columns, in this order; got arrays of shapes {', '.join(map(str, shapes))}"
        )
    if len({shape[0] for shape in shapes}) != 1:
        raise InputError(f"{name}: as many rows in each input are needed; got {', '.join(map(str, shapes))}")
    return np.concatenate(arrays, axis=1)


__all__ = ["BY_PLACE", "Taken", "by_name", "columns_by_name", "inputs_of", "names_of"]
