"""Data frames: inputs whose columns have names, matched by these with the features of a network.

A frame is what pandas or pyarrow call so, or whatever has `columns` and gives one by its name; a row of one (a pandas
Series with text as its index) counts as well. None of them needs to be installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elbowroom.arguments.names import Names, few, places, printable
from elbowroom.errors import InputError, warn
from elbowroom.network.graph import Network

_BY_PLACE = (
    "the network does not name its features, so the columns of {} are taken in the order they stand in; name them with "
    "er.load(..., features=...), or give an array"
)


def by_name(net: Network, value: Any, name: str) -> Any:
    """A frame, or a row of one, as an array with the network's features in the network's order; others as they are.

    Frames whose columns are only counted, 0 to n - 1, have no names, and are taken as arrays are.
    """
    found = _names_of(value)
    if found is None or not isinstance(net, Network):
        return value
    known = net.about.features
    order: Sequence[int] = range(len(found))
    if known is not None:
        order, notes = places(known, found, name)
        for note in notes:
            warn(note)
    elif len(set(found)) != len(found):
        raise InputError(f"{name}: there are columns of the same name among {few(found)}")
    else:
        warn(_BY_PLACE.format(name))
    if getattr(value, "ndim", 2) == 1:
        array = _numbers(np.asarray(value)[list(order)], name)
        return array.reshape(net.input_shape) if len(array) == net.n_inputs else array
    columns = _columns(value)
    array = np.stack([_numbers(columns[k], f"{name}: the column {found[k]!r}") for k in order], axis=1)
    return array.reshape(-1, *net.input_shape) if array.shape[1] == net.n_inputs else array


def _names_of(value: Any) -> Names | None:
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


__all__ = ["by_name"]
