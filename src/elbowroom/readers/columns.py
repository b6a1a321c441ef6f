"""The columns of a network's table as its user calls them: names, units, and what may stand in front of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from elbowroom.arguments.names import Names, feature_names, few, printable
from elbowroom.errors import InputError
from elbowroom.network.table import Column, Table


def with_names(
    own: Names | None, table: Table | None, features: Any, units: Any, count: int
) -> tuple[Names | None, Table | None]:
    """What `count` inputs of a network are called, and its table, with the names and units that were given.

    `own`: the model's own names. Of a table, columns are renamed, and its entries after them. A network without one
    that is given units gets one, of numbers.
    """
    if table is None:
        names = feature_names(own, features, count)
        if units is None:
            return names, None
        if names is None:
            raise InputError("units: the model does not name its features; name them with features")
        table = Table(tuple(Column(name) for name in names))
    else:
        names = feature_names(table.names, features, len(table.columns))
        table = Table(tuple(replace(column, name=name) for column, name in zip(table.columns, names or ())))
    table = _with_units(table, units)
    return table.entries, table


def _with_units(table: Table, units: Any) -> Table:
    if units is None:
        return table
    if not isinstance(units, Mapping) or not all(isinstance(unit, str) for unit in units.values()):
        raise InputError(f'units must be a mapping such as {{"age": "years"}}, got {units!r:.80}')
    given = dict(zip(printable(units), printable(units.values())))
    for name in given:
        if name not in table.names:
            raise InputError(f"units: there is no feature {name!r}; there are {few(table.names)}")
        if table.columns[table.names.index(name)].levels is not None:
            raise InputError(f"units: {name!r} has categories, which have no unit")
    return Table(tuple(replace(column, unit=given.get(column.name, column.unit)) for column in table.columns))


def refuse_in_front(table: Table | None, channels: str | None, **given: Any) -> None:
    """Nothing stands between a table and its codes: a category times a scale is none, nor is an imputed value."""
    told = [name for name, value in given.items() if value is not None]
    if table is None or not (told or channels):
        return
    for column in table.columns:
        filled = column.levels is not None or not (isinstance(column.missing, float) and math.isnan(column.missing))
        if filled or channels:
            what = "holds categories" if column.levels is not None else "has a value for what is missing"
            raise InputError(
                f"{', '.join(told) or 'layout'}: nothing can be put in front of a model of tables, whose column "
                f"{column.name!r} {what}; put it into the model"
            )


__all__ = ["refuse_in_front", "with_names"]
