"""Certificates as a tidy table: a row per input and column of the data, in the data's own terms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.network.levels import named, words
from elbowroom.network.table import Column, Table

CATEGORY, ANY_OF, FROZEN, CAPPED, IMPUTED = "as it is", "any of ", "frozen", "at its cap", "imputed"
_NUMBERS = ("low", "high", "room", "alone_low", "alone_high", "seen_low", "seen_high")
_TEXTS = ("label", "status", "feature", "levels", "unit", "note")


def columns_of(net: Network) -> Table:
    """The columns that a network takes: those of its table, or a number for each feature."""
    if net.about.table is not None:
        return net.about.table
    names = net.about.features or tuple(f"feature {k}" for k in range(net.n_inputs))
    return Table(tuple(Column(name) for name in names))


def levels_allowed(certs: Certificates, row: int) -> dict[str, list[str]]:
    """By column of categories the levels that an input's region has; without sets of levels, the input's own."""
    table = None if certs.network is None else certs.network.about.table
    found: dict[str, list[str]] = {}
    first, x = 0, certs.x[row].flatten().numpy()
    for column, place in zip(table.columns, table.places) if table is not None else ():
        if column.levels is None:
            continue
        last = first + len(column.levels) + (column.unknown is not None)
        if certs.allowed is not None and certs.status[row] == "certified":
            found[column.name] = named(column, certs.allowed[row, first:last].tolist())
        else:
            found[column.name] = [] if np.isnan(x[place]).any() else [words(column, x[place])]
        first = last
    return found


def note_of(certs: Certificates, row: int, column: Column, place: slice) -> str:
    """What holds a column of an input, or stands for its value, in words."""
    found = []
    if column.levels is not None:
        levels = levels_allowed(certs, row)[column.name]
        found.append(f"{ANY_OF}{', '.join(levels)}" if len(levels) > 1 else CATEGORY)
    elif certs.status[row] == "certified":
        if bool(certs.capped[row].flatten()[place].any()):
            found.append(CAPPED)
        elif not bool(certs.eps[row].flatten()[place].any()):
            found.append(FROZEN)
    if certs.imputed is not None and bool(certs.imputed[row].flatten()[place].any()):
        found.append(IMPUTED)
    return "; ".join(found)


def rows_of(certs: Certificates, alone: Any = None) -> dict[str, list[Any]]:
    """The columns of the tidy table, see `Certificates.to_frame`; values as they are."""
    net = certs.network
    if net is None:
        raise InputError("the certificates do not know their network, which says what the columns are")
    if certs.basis is not None:
        raise InputError("the regions lie along other directions than features, which have no ranges of their own")
    table, count = columns_of(net), len(certs)
    numbers = _numbers(certs, alone)
    x = certs.x.flatten(1).numpy()
    classes = net.about.classes or ()
    found: dict[str, list[Any]] = {name: [] for name in _ORDER}
    for row in range(count):
        label = int(certs.labels[row])
        finite = bool(np.isfinite(x[row]).all())  # else nothing was decided here
        called = "" if label < 0 or not finite else classes[label] if label < len(classes) else str(label)
        allowed = levels_allowed(certs, row)
        good, number, status = certs.status[row] == "certified", certs.number(row), certs.status[row]
        for column, place in zip(table.columns, table.places):
            k, is_number = place.start, column.levels is None
            value: Any = float(x[row, k]) if is_number else _level(column, x[row, place])
            note = "; ".join(filter(None, [note_of(certs, row, column, place), "" if good else certs.message[row]]))
            levels = "" if is_number else " | ".join(allowed[column.name])
            cells = (number, called, status, column.name, value, levels)
            ends = [float(numbers[name][row, k]) if good and is_number else math.nan for name in _NUMBERS]
            for name, cell in zip(_ORDER, (*cells, *ends, column.unit, note)):
                found[name].append(cell)
    return found


_ORDER = ("input", "label", "status", "feature", "value", "levels", *_NUMBERS, "unit", "note")


def _level(column: Column, code: np.ndarray) -> Any:
    return None if np.isnan(code).any() else words(column, code)


def _numbers(certs: Certificates, alone: Any) -> dict[str, np.ndarray]:
    """`b x n` each, NaN for what is not known."""
    nothing = np.full((len(certs), certs.x[0].numel() if len(certs) else 0), math.nan)

    def flat(value: Tensor | None) -> np.ndarray:
        return nothing if value is None else value.detach().cpu().double().flatten(1).numpy()

    low, high = certs.lower, certs.upper
    if low is None or high is None:  # of a shape in which the range of a feature depends on the others
        low = high = None
    found = {"low": flat(low), "high": flat(high), "room": flat(certs.room)}
    if alone is None:
        seen = (certs.seen_lower, certs.seen_upper)
        found.update(alone_low=nothing, alone_high=nothing)
    else:
        seen = (alone.seen_lower, alone.seen_upper)
        for name, value in (("alone_low", alone.lower), ("alone_high", alone.upper)):
            found[name] = flat(value)
            if found[name].shape != nothing.shape:
                raise InputError(f"alone is about {len(found[name])} inputs, not {len(certs)}, or about other features")
    for name, value in zip(("seen_low", "seen_high"), seen):
        ends = flat(value)
        found[name] = np.where(np.isfinite(ends), ends, math.nan)
    return found


def arrow_of(certs: Certificates, alone: Any = None) -> Any:
    """See `Certificates.to_arrow`."""
    import pyarrow as pa

    found = rows_of(certs, alone)
    assert certs.network is not None
    as_text = not columns_of(certs.network).moves.all()
    values = [_text(value) if as_text else value for value in found["value"]]
    kinds: dict[str, Any] = {"input": pa.int64(), "value": pa.string() if as_text else pa.float64()}
    kinds.update({name: pa.float64() for name in _NUMBERS} | {name: pa.string() for name in _TEXTS})
    found["value"] = values
    return pa.table({name: pa.array(column, kinds[name]) for name, column in found.items()})


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return None if math.isnan(value) else repr(value)


def frame_of(certs: Certificates, alone: Any = None) -> Any:
    """See `Certificates.to_frame`."""
    try:
        import pandas
    except ImportError:
        raise InputError(
            "to_frame needs pandas: pip install 'elbowroom[data]'; to_arrow gives a table of pyarrow without"
        ) from None
    return pandas.DataFrame(rows_of(certs, alone))


__all__ = ["IMPUTED", "arrow_of", "columns_of", "frame_of", "levels_allowed", "note_of", "rows_of"]
