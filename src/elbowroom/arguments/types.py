"""What the types of a frame's columns say of a network's features: whole numbers, yes or no, ordered levels.

Only of columns of which nothing was declared, and only where it makes a region no larger: ends of whole numbers are
rounded inwards, levels keep to an order, and a column of truth values is either of two values instead of all between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from elbowroom.arguments.frames import BY_PLACE, columns_by_name
from elbowroom.arguments.kinds import declared
from elbowroom.arguments.names import few
from elbowroom.arguments.values import is_arrow
from elbowroom.errors import warn
from elbowroom.network.graph import Network
from elbowroom.network.table import Column, Table, key_of

_WORDS = (  # for people, and what takes it back
    ("whole numbers", "whole number", "number"),
    ("yes or no", "yes/no", "number"),
    ("ordered levels", "ordered levels", "category"),
)


def with_kinds(net: Network, x: Any, features: Any, name: str = "x") -> Network:
    """The network with what `features` declares, see `elbowroom.arguments.kinds`, and for all other features what the
    types of the columns of `x` say, where it is a frame; a note says what these said."""
    if features is not None and net.about.features is None:
        net = _named_by(net, x)
    if features is not None:
        net = declared(net, features)
    given = columns_by_name(x)
    if given is None or net.about.features is None:
        return net
    table = net.about.table or Table(tuple(map(Column, net.about.features)))
    said = set() if not isinstance(features, Mapping) else {str(key) for key in features}
    found = {}
    for column in table.columns:
        if column.name in given and column.name not in said and not column.kind and not column.parts:
            said_by_type = _kind(column, given[column.name])
            if said_by_type is not None:
                found[column.name] = said_by_type
    if not found:
        return net
    for words, kind, other in _WORDS:
        own = [one for one, told in found.items() if told["kind"] == kind]
        if own:
            are, columns = ("is", "its column") if len(own) == 1 else ("are", "their columns")
            otherwise = f"features={{{own[0]!r}: {other!r}}} says otherwise"
            warn(f"{name}: by the type of {columns}, {few(own)} {are} taken as {words}; {otherwise}")
    return declared(net, found)


def _named_by(net: Network, x: Any) -> Network:
    """A network without names, with those of the columns of a frame that it takes in their order."""
    given = columns_by_name(x)
    if given is None or len(given) != net.n_inputs:
        return net
    warn(BY_PLACE.format("x"))
    return Network(net.nodes, net.decision, replace(net.about, features=tuple(given)), net.source)


def _kind(column: Column, values: Any) -> dict[str, Any] | None:
    """What the type of a column's values says, as it is declared; None where that is nothing."""
    if column.levels is None:
        name = _type_of(values)
        if name.startswith(("int", "uint")):
            return {"kind": "whole number"}
        # The model takes 0 and 1 for them, and what it fills in must be one of these.
        if name.startswith("bool") and (not column.fills or column.missing in (0.0, 1.0)):
            return {"kind": "yes/no"}
        return None
    order = _order(values)
    if order is None or len(column.levels) < 2:
        return None
    levels = [level for level in order if key_of(level) in {key_of(own) for own in column.levels}]
    whole = {key_of(own) for own in column.levels if own is not None} == {key_of(level) for level in levels}
    return {"kind": "ordered levels", "levels": levels} if whole else None


def _type_of(values: Any) -> str:
    """The name of a column's type: of numpy, pandas or Arrow."""
    if is_arrow(values):
        return str(values.type)
    kind = getattr(values, "dtype", None)
    if kind is None:
        return ""
    return np.dtype(kind).name if isinstance(kind, np.dtype) else str(kind).lower()


def _order(values: Any) -> list[Any] | None:
    """The levels of an ordered categorical column, in their order."""
    if is_arrow(values):
        if not getattr(values.type, "ordered", False):
            return None
        chunk = values.chunk(0) if hasattr(values, "num_chunks") and values.num_chunks else values
        return chunk.dictionary.to_pylist() if hasattr(chunk, "dictionary") else None
    kind: Any = getattr(values, "dtype", None)
    if not getattr(kind, "ordered", False):
        return None
    return [getattr(level, "item", lambda level=level: level)() for level in kind.categories]


__all__ = ["with_kinds"]
