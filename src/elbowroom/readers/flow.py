"""What flows through a model of tables: columns as they come, and numbers computed from them.

Which columns are numbers and which are categories is known only when the whole pipeline has been walked through: an
encoder may come late. So what is computed is first written down as `Value`s, and becomes a graph once the table is
known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.names import Names, few
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph
from elbowroom.network.table import Code, Column, Level, Table, key_of
from elbowroom.readers.reading import refuse

_MOST = 1 << 20  # numbers in the codes of a column, as a network's file may hold them
NOTHING: Any = object()  # no imputer has said what to take where a value is missing


@dataclass(frozen=True)
class Raw:
    """A column of the table, by number, as it comes; `fill`: what an imputer takes where its value is missing."""

    column: int
    fill: Any = NOTHING


@dataclass(frozen=True, eq=False)
class Value:
    """Numbers, `width` of them: an operation on others, or (without one) the entries of some columns."""

    width: int
    op: ops.Operation | None = None
    inputs: tuple[Value, ...] = ()
    columns: tuple[int, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One of the numbers of a value."""

    value: Value
    place: int


Flow = tuple[Raw | Entry, ...]  # a row on its way through the pipeline, feature by feature


@dataclass(frozen=True)
class Coding:
    """The codes of a column's categories, see `Column`. `raw`: the levels as the encoder itself holds them."""

    levels: tuple[Level, ...]
    codes: tuple[Code, ...]
    unknown: Code | None
    raw: tuple[Any, ...] = field(compare=False)

    @property
    def width(self) -> int:
        return len(self.codes[0])


def refuse_many(levels: int, width: int, name: str = "a column") -> None:
    """Codes are written out, one for each level."""
    if levels * width > _MOST:
        refuse(
            f"makes {width:,} columns of the {levels:,} categories of {name}, which is more than can be held: take "
            "rare ones together (max_categories, min_frequency)"
        )


def tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, order="C"))  # a copy, so that nobody else holds it


def apply(op: ops.Operation, *inputs: Value) -> Value:
    (width,) = op.output_shape(*((value.width,) for value in inputs))
    return Value(width, op, inputs)


def chain(value: Value, operations: Sequence[ops.Operation]) -> Value:
    for op in operations:
        value = apply(op, value)
    return value


def selected(value: Value, places: Sequence[int]) -> Value:
    """Some of a value's numbers, in this order."""
    op = _selection(places, value.width)
    return value if op is None else apply(op, value)


def joined(values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else apply(ops.Concat(), *values)


def entries(value: Value) -> Flow:
    return tuple(Entry(value, place) for place in range(value.width))


def _selection(places: Sequence[int], width: int) -> ops.Operation | None:
    """The operation that takes these of `width` numbers; None where they are all of them, in order."""
    if list(places) == list(range(width)):
        return None
    if all(b == a + 1 for a, b in pairwise(places)):
        return ops.Slice(0, places[0], places[-1] + 1)
    return ops.Linear(torch.eye(width, dtype=torch.float64)[list(places)])


@dataclass
class _Use:
    """How a column is read: by which part of the model, what stands for its missing values, and its categories."""

    where: str
    fills: list[Any]
    coding: Coding | None


class Plan:
    """How each column is read, gathered on the way through the pipeline.

    Args:
        count: How many columns there are.
        names: What they are called; None where the model saw no names.

    Attributes:
        typical: Of columns that a scaler reads: its centre and width.
        constant: Of columns that an encoder looks at and drops: a category of theirs.
        notes: For people.
    """

    def __init__(self, count: int, names: Names | None) -> None:
        self.count = count
        self.given = names
        self.names: Names = names or tuple(f"x{k}" for k in range(count))
        self.typical: dict[int, tuple[float, float]] = {}
        self.constant: dict[int, Any] = {}
        self.notes: list[str] = []
        self._uses: dict[int, _Use] = {}

    def start(self) -> Flow:
        return tuple(Raw(column) for column in range(self.count))

    def numbers(self, flow: Flow, where: str) -> Value:
        """The features as numbers: columns that come as they are become numbers of the table."""
        parts = []
        for value, items in groupby(flow, lambda item: item.value if isinstance(item, Entry) else None):
            run = list(items)
            if value is not None:
                parts.append(selected(value, [item.place for item in run if isinstance(item, Entry)]))
                continue
            raw = [item for item in run if isinstance(item, Raw)]
            for item in raw:
                self.use(item, None, where)
            parts.append(Value(len(raw), columns=tuple(item.column for item in raw)))
        if not parts:
            refuse("gets no features at all")
        return joined(parts)

    def coded(self, item: Raw, coding: Coding, where: str) -> Flow:
        """The entries of a column of categories."""
        self.use(item, coding, where)
        return entries(Value(coding.width, columns=(item.column,)))

    def use(self, item: Raw, coding: Coding | None, where: str) -> None:
        name = self.names[item.column]
        if coding is None and item.fill is not NOTHING and not _is_number(item.fill):
            refuse(f"takes {name!r} for numbers, but its missing values are filled with {item.fill!r}")
        use = self._uses.setdefault(item.column, _Use(where, [], coding))
        if (use.coding is None) != (coding is None):
            refuse(
                f"reads the column {name!r} as {'a number' if coding is None else 'categories'}, and {use.where} as "
                f"{'categories' if coding is None else 'a number'}: it cannot be both; give it twice, under two names"
            )
        if use.coding != coding:
            refuse(f"encodes the column {name!r} otherwise than {use.where} does; encode it once")
        use.fills.append(item.fill)

    # --- when all is known

    @property
    def has_table(self) -> bool:
        return self.given is not None or any(use.coding is not None for use in self._uses.values())

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that the network takes: of a table those that are read, otherwise all."""
        return tuple(sorted(self._uses)) if self.has_table else tuple(range(self.count))

    def coding(self, column: int) -> Coding | None:
        use = self._uses.get(column)
        return None if use is None else use.coding

    def table(self) -> Table | None:
        if not self.has_table:
            for column in self._uses:
                self._fill(column)  # which says where missing values are refused
            return None
        left = [name for column, name in enumerate(self.names) if column not in self._uses]
        if left:
            self.notes.append(f"the model does not read these columns, which are no inputs of the network: {few(left)}")
        table = Table(tuple(self._column(column) for column in self.columns))
        twice = [name for name in set(table.entries) if table.entries.count(name) > 1]
        if twice:
            raise InputError(
                f"two entries of the network's input would be called {min(twice)!r}: a column, or a category of one; "
                "rename the column, and fit the model again"
            )
        return table

    def _column(self, column: int) -> Column:
        name, coding, fill = self.names[column], self._uses[column].coding, self._fill(column)
        if coding is None:
            return Column(name, missing=math.nan if fill is NOTHING else float(fill))
        found = Column(name, coding.levels, coding.codes, coding.unknown)
        keys = [key_of(level) for level in coding.levels]
        if fill is NOTHING:
            return replace(found, missing=None) if None in keys else found
        if None in keys:  # which nothing is encoded as, behind an imputer
            kept = [k for k, key in enumerate(keys) if key is not None]
            found = replace(
                found, levels=tuple(coding.levels[k] for k in kept), codes=tuple(coding.codes[k] for k in kept)
            )
        assert found.levels is not None
        for level in found.levels:
            if key_of(level) == key_of(fill):
                return replace(found, missing=level)
        if found.unknown is None:
            self.notes.append(
                f"missing values of {name!r} are filled with {fill!r}, which the encoder does not know: refused"
            )
            return found
        level = level_of(fill)
        return replace(found, levels=(*found.levels, level), codes=(*found.codes, found.unknown), missing=level)

    def _fill(self, column: int) -> Any:
        """What stands for the missing values of a column; NOTHING where none may be missing."""
        fills = self._uses[column].fills
        keys = {NOTHING if fill is NOTHING else key_of(fill) for fill in fills}
        if len(keys) == 1:
            return fills[0]
        self.notes.append(
            f"parts of the model fill missing values of {self.names[column]!r} differently, or not at all: rows "
            "without it are refused"
        )
        return NOTHING

    def graph(self, output: Value) -> tuple[Graph, int]:
        """The graph of what was computed, and the node of `output`."""
        widths = {column: coding.width if (coding := self.coding(column)) else 1 for column in self.columns}
        ends = np.cumsum([0, *widths.values()]).tolist()
        place = dict(zip(widths, ends))
        graph = Graph((ends[-1],))
        done: dict[Any, int] = {}  # by value, and of entries of columns by these

        def add(value: Value) -> int:
            key = value if value.op is not None else value.columns
            if key not in done:
                if value.op is None:
                    places = [place[c] + k for c in value.columns for k in range(widths[c])]
                    op, inputs = _selection(places, ends[-1]), [graph.input]
                else:
                    op, inputs = value.op, [add(one) for one in value.inputs]
                done[key] = inputs[0] if op is None else graph.add(op, *inputs)
            return done[key]

        return graph, add(output)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.bool_ | np.number) and bool(np.isfinite(value))


def level_of(value: Any) -> Level:
    """A category as a table holds it; refused where it could not be told from others there."""
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | float | np.integer | np.floating):
        if not np.isfinite(value) or (isinstance(value, int | np.integer) and int(float(value)) != int(value)):
            refuse(f"has the category {value!r}, which is no finite number of type float64")
        return float(value)
    if isinstance(value, str):
        if not value.isprintable():
            refuse(f"has the category {value!r}, which cannot be shown: use printable text")
        return str(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    kind = type(value).__name__
    return refuse(f"has the category {value!r:.60} of type {kind}: only text, numbers, true and false are read")


__all__ = [
    "NOTHING", "Coding", "Entry", "Flow", "Plan", "Raw", "Value", "apply", "chain", "entries", "joined", "level_of",
    "refuse_many", "selected", "tensor",
]  # fmt: skip
