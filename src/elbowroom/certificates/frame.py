"""Certificates as a tidy table: a row per input and column of the data, in the data's own terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.network.levels import listed, named, words
from elbowroom.network.table import Column, Table

CATEGORY, ANY_OF, FROZEN, CAPPED, IMPUTED = "as it is", "any of ", "frozen", "at its cap", "imputed"
STUCK = "no further value proved"  # of a whole number that may move: by itself it might, beside the others it was not
_NUMBERS = ("low", "high", "room", "alone_low", "alone_high", "seen_low", "seen_high")
_TEXTS = ("label", "status", "feature", "levels", "unit", "note")


def columns_of(net: Network) -> Table:
    """The columns that a network takes: those of its table, or a number for each feature."""
    if net.about.table is not None:
        return net.about.table
    names = net.about.features or tuple(f"feature {k}" for k in range(net.n_inputs))
    return Table(tuple(Column(name) for name in names))


def levels_allowed(certs: Certificates, column: Column) -> list[list[str]]:
    """The levels of a category that the region of each input has, `b`; of inputs without sets of them, their own."""
    assert certs.network is not None and certs.network.about.table is not None
    table = certs.network.about.table
    at = table.names.index(column.name)
    counts = [0 if c.levels is None else len(c.levels) + (c.unknown is not None) for c in table.columns]
    first, last = sum(counts[:at]), sum(counts[: at + 1])
    codes = certs.x.flatten(1)[:, table.places[at]].numpy()
    own = [[] if np.isnan(code).any() else [words(column, code)] for code in codes]
    if certs.allowed is None:
        return own
    sets = certs.allowed[:, first:last].tolist()
    return [named(column, chosen) if any(chosen) else alone for chosen, alone in zip(sets, own)]


def notes_of(certs: Certificates, table: Table) -> np.ndarray:
    """What holds each column of the inputs, or stands for its value, in words, `b x c`."""
    starts = [place.start for place in table.places]
    capped, extent = (t.flatten(1).numpy()[:, starts].astype(bool) for t in (certs.capped, certs.eps))
    stuck = np.zeros_like(capped) if certs.stuck is None else certs.stuck.flatten(1).numpy()[:, starts]
    held = np.where(capped, 1, np.where(extent, 0, np.where(stuck, 3, 2)))
    found = _objects(("", CAPPED, FROZEN, STUCK))[np.where(certs.certified.numpy()[:, None], held, 0)]
    for k, column in enumerate(table.columns):
        if column.levels is not None:
            sets = levels_allowed(certs, column)
            found[:, k] = _objects([f"{ANY_OF}{listed(s, ', ')}" if len(s) > 1 else CATEGORY for s in sets])
    if certs.imputed is not None:
        filled = np.logical_or.reduceat(certs.imputed.flatten(1).numpy(), starts, axis=1)
        for row, k in np.argwhere(filled).tolist():
            found[row, k] = "; ".join(filter(None, (found[row, k], IMPUTED)))
    return found


def rows_of(certs: Certificates, alone: Any = None) -> dict[str, Any]:
    """The columns of the tidy table, see `Certificates.to_frame`, as arrays; values as they are."""
    net = certs.network
    if net is None:
        raise InputError("the certificates do not know their network, which says what the columns are")
    if certs.basis is not None:
        raise InputError("the regions lie along other directions than features, which have no ranges of their own")
    table, x = columns_of(net), certs.x.flatten(1).numpy()
    count, each = len(certs), len(table.columns)
    good, moves = certs.certified.numpy(), np.array([column.levels is None for column in table.columns], dtype=bool)
    entries = [place.start for place in table.places]
    known = good[:, None] & moves
    found: dict[str, Any] = {
        "input": np.repeat(np.array([certs.number(row) for row in range(count)], dtype=np.int64), each),
        "label": np.repeat(_objects(_labels(certs, net, x)), each),
        "status": np.repeat(_objects(certs.status), each),
        "feature": np.tile(_objects(table.names), count),
        "value": _values(table, x).reshape(-1),
        "levels": _levels(certs, table).reshape(-1),
        **{name: np.where(known, n[:, entries], math.nan).reshape(-1) for name, n in _numbers(certs, alone).items()},
        "unit": np.tile(_objects([column.unit for column in table.columns]), count),
    }
    notes = notes_of(certs, table)
    for row in np.flatnonzero(~good).tolist():
        notes[row] = ["; ".join(filter(None, (note, certs.message[row]))) for note in notes[row]]
    return {**found, "note": notes.reshape(-1)}


def _labels(certs: Certificates, net: Network, x: np.ndarray) -> list[str]:
    classes, finite = net.about.classes or (), np.isfinite(x).all(1).tolist()
    return [
        "" if label < 0 or not decided else classes[label] if label < len(classes) else str(label)
        for label, decided in zip(certs.labels.tolist(), finite)  # at NaN nothing was decided
    ]


def _values(table: Table, x: np.ndarray) -> np.ndarray:
    """Raw values, `b x c`: numbers, or objects where there are levels."""
    if table.moves.all():
        return x
    found = np.empty((len(x), len(table.columns)), dtype=object)
    for k, (column, place) in enumerate(zip(table.columns, table.places)):
        if column.levels is None:
            found[:, k] = x[:, place.start].tolist()
        else:
            codes, inverse = np.unique(x[:, place], axis=0, return_inverse=True)
            levels = [None if np.isnan(code).any() else words(column, code) for code in codes]
            found[:, k] = _objects([levels[j] for j in inverse.reshape(-1).tolist()])
    return found


def _levels(certs: Certificates, table: Table) -> np.ndarray:
    """Of categories the levels that regions have, as texts, `b x c`; "" of numbers."""
    found = np.full((len(certs), len(table.columns)), "", dtype=object)
    for k, column in enumerate(table.columns):
        if column.levels is not None:
            found[:, k] = _objects([listed(levels, " | ") for levels in levels_allowed(certs, column)])
    return found


def _objects(values: Sequence[Any]) -> np.ndarray:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _numbers(certs: Certificates, alone: Any) -> dict[str, np.ndarray]:
    """`b x n` each, NaN for what is not known."""
    nothing = np.full(tuple(certs.x.flatten(1).shape), math.nan)

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
    return {name: found[name] for name in _NUMBERS}


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


__all__ = ["IMPUTED", "STUCK", "arrow_of", "columns_of", "frame_of", "levels_allowed", "notes_of", "rows_of"]
