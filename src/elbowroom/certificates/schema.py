"""The columns of a table of certificates, each declared once, and all that follows from the declaration.

A class of certificates (`elbowroom.certificates.result.Certificates`) is a dataclass of rows, one per input, whose
fields are made by `column`. What is said there drives the rows of inputs without a certificate, joining, slicing,
types and shapes, and in files the columns, their order, their checksums and how they are read back: a new field is
declared in one place, and computed in another.

    kind    "float64", "int64", "bool" (tensors) or "text".
    axes    "b" first: each input has its own. "1|b" first: each its own, or one row that stands for all of them.
            Neither: there is one for all. Then "s": the input's shape; "n": its features, flat; "k": outputs; "t": rows
            of a specification; "g": its groups; "c": levels of all categories; "..64": a number of entries that differs
            by input, 64 at most.
    role    "claim": what a proof proves, or what it is about; "hint": what may help to find the proof; "report": what
            the search says of itself, proved by nobody; "identity": by which name people know the row.
    blank   what an input without a certificate has; "x": a copy of the input.
    when    of what the column is a part ("boxes", "domain", ...): all columns of a part are there, or none. None: it is
            always there.
    show    how a person sees a number: a format.
    span    between which ends all numbers of the column lie, also those of inputs without a certificate; so NaN does
            not. For what is shown, or computed with, without having been proved.

A column of text, or of numbers whose count differs by input, is a tuple with an entry per input: a text, or a tensor of
one axis.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from elbowroom.errors import InputError

KINDS: dict[str, torch.dtype] = {"float64": torch.float64, "int64": torch.int64, "bool": torch.bool}
ROLES = ("claim", "hint", "report", "identity")
NOT_NEGATIVE, FINITE = (0.0, sys.float_info.max), (-sys.float_info.max, sys.float_info.max)
NUMBERS = (-math.inf, math.inf)
_SHAREABLE, _UP_TO = "1|b", ".."

Table = TypeVar("Table", bound=Any)  # a dataclass of columns
Ragged = tuple[Tensor, ...]


@dataclass(frozen=True)
class Sizes:
    """What the axes measure. `rows`: of a specification of one's own, zero where it is "the label stays"; `levels`: of
    all categories."""

    input_shape: tuple[int, ...]
    outputs: int
    rows: int
    groups: int
    levels: int = 0

    @property
    def n_inputs(self) -> int:
        return math.prod(self.input_shape)

    def along(self, axis: str) -> tuple[int, ...]:
        return {
            "s": self.input_shape, "n": (self.n_inputs,), "k": (self.outputs,), "t": (self.rows,), "g": (self.groups,),
            "c": (self.levels,),
        }[axis]  # fmt: skip


@dataclass(frozen=True)
class Column:
    """What `column` was told."""

    kind: str
    axes: tuple[str, ...]
    role: str
    blank: Any
    when: str | None
    show: str | None
    span: tuple[float, float] | None

    @property
    def shareable(self) -> bool:
        return self.axes[0] == _SHAREABLE

    @property
    def per_input(self) -> bool:
        return self.axes[0] in ("b", _SHAREABLE)

    @property
    def most(self) -> int | None:
        """Entries of one input at most, where their number differs."""
        return int(self.axes[-1][len(_UP_TO) :]) if self.axes[-1].startswith(_UP_TO) else None

    @property
    def in_tuple(self) -> bool:
        return self.kind == "text" or self.most is not None

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """Of what one input has, or all of them together."""
        return tuple(n for axis in self.axes[self.per_input :] for n in sizes.along(axis))

    def blanks(self, sizes: Sizes, x: Tensor) -> Any:
        """What the inputs `x`, `b x ...`, have without a certificate; tuples as lists, to be written into."""
        if self.kind == "text":
            return [self.blank] * len(x)
        kind = KINDS[self.kind]
        if self.most is not None:
            return [torch.empty(0, dtype=kind)] * len(x)
        shape = (len(x), *self.shape(sizes))
        if self.blank == "x":
            return x.detach().to(kind, copy=True).reshape(shape)
        return torch.full(shape, self.blank, dtype=kind, device=x.device)

    def fault(self, value: Any, sizes: Sizes, count: int, shared: bool) -> str | None:
        """Why `value` cannot be the column of `count` inputs, in words. `shared`: one row stands for all of them."""
        if self.in_tuple:
            return self._fault_of_entries(value, count)
        kind, shape = KINDS[self.kind], self.shape(sizes)
        if self.per_input:
            shape = (1 if shared else count, *shape)
        if value.dtype != kind or tuple(value.shape) != shape:
            return f"must hold {kind} numbers of shape {shape}, not {value.dtype} of {tuple(value.shape)}"
        return self._fault_of_numbers(value)

    def _fault_of_entries(self, value: Any, count: int) -> str | None:
        if not isinstance(value, tuple) or len(value) != count:
            return f"must have {count} entries"
        if self.most is None:
            return None if all(isinstance(entry, str) for entry in value) else "must hold texts"
        for entry in value:
            if entry.dtype != KINDS[self.kind] or entry.dim() != 1 or len(entry) > self.most:
                return f"must hold {KINDS[self.kind]} numbers along one axis, {self.most} at most for an input"
        return next(filter(None, map(self._fault_of_numbers, value)), None)

    def _fault_of_numbers(self, value: Tensor) -> str | None:
        if self.span is None or bool(((value >= self.span[0]) & (value <= self.span[1])).all()):
            return None
        what = {NOT_NEGATIVE: "finite numbers that are not negative", FINITE: "finite numbers", NUMBERS: "numbers"}
        return f"must hold {what.get(self.span, f'numbers from {self.span[0]:g} to {self.span[1]:g}')}"


def column(
    kind: str, axes: str, *, role: str, blank: Any = 0, when: str | None = None, show: str | None = None,
    span: tuple[float, float] | None = None,
) -> Any:  # fmt: skip
    """A field of a table, see above. One that is not always there is None by default."""
    if kind not in (*KINDS, "text") or role not in ROLES:
        raise ValueError(f"there is no kind {kind!r} or no role {role!r}")
    declared = Column(kind, tuple(axes.split()), role, blank, when, show, span)
    default: Any = dataclasses.MISSING if when is None else None
    return dataclasses.field(kw_only=True, metadata={"column": declared}, default=default)


def declared(kind: type) -> Mapping[str, Column]:
    """The columns of a class of tables, in order."""
    return {f.name: f.metadata["column"] for f in dataclasses.fields(kind) if "column" in f.metadata}


def columns(kind: type, has: Collection[str]) -> dict[str, Column]:
    """Those that tables have of which these are the parts (see `when`)."""
    return {name: c for name, c in declared(kind).items() if c.when is None or c.when in has}


def parts_of(table: Any) -> frozenset[str]:
    """Which parts (see `when`) a table has: those of which any column is there."""
    every = declared(type(table)).items()
    return frozenset(c.when for name, c in every if c.when is not None and getattr(table, name) is not None)


def shared_by_all(table: Any) -> frozenset[str]:
    """The columns that a table has once for all inputs. Of one part, either all that may be so are, or none."""
    every = {name: c for name, c in declared(type(table)).items() if getattr(table, name) is not None}
    apart = {c.when for name, c in every.items() if c.shareable and getattr(table, name).shape[:1] != (1,)}
    return frozenset(n for n, c in every.items() if not c.per_input or (c.shareable and c.when not in apart))


def blank_rows(kind: type, sizes: Sizes, x: Tensor, has: Collection[str]) -> dict[str, Any]:
    """The columns per input of a table that says nothing yet of the inputs `x`, `b x ...`; tuples as lists."""
    return {name: c.blanks(sizes, x) for name, c in columns(kind, has).items() if c.per_input}


def write_rows(rows: dict[str, Any], found: Mapping[str, Any], first: int) -> None:
    """Writes columns of some inputs over those in `rows`, from row `first` on; axes may be flat in what was found."""
    for name, value in found.items():
        if isinstance(value, list):
            rows[name][first : first + len(value)] = value
        else:
            place = rows[name][first : first + len(value)]
            place.copy_(value.reshape(place.shape))


def sliced(table: Table, first: int, last: int) -> Table:
    """The rows `first` to `last - 1`."""
    cut, shared = {}, shared_by_all(table)
    for name, c in columns(type(table), parts_of(table)).items():
        if c.per_input and name not in shared:
            cut[name] = getattr(table, name)[first:last]
    return dataclasses.replace(table, **cut)


def taken(table: Table, rows: Sequence[int]) -> Table:
    """These rows, in this order."""
    cut, shared, chosen = {}, shared_by_all(table), torch.tensor(rows, dtype=torch.int64)
    for name, c in columns(type(table), parts_of(table)).items():
        if c.per_input and name not in shared:
            value = getattr(table, name)
            cut[name] = tuple(value[k] for k in rows) if c.in_tuple else value[chosen.to(value.device)]
    return dataclasses.replace(table, **cut)


def joined(tables: Sequence[Table]) -> Table:
    """The rows of several tables, in order; all with the same parts, and alike in what is no column."""
    if len(tables) == 1:
        return tables[0]
    whole = columns(type(tables[0]), parts_of(tables[0]))
    for name in (name for name, c in whole.items() if not c.per_input):
        if not all(torch.equal(getattr(table, name), getattr(tables[0], name)) for table in tables):
            raise InputError(f"certificates with another {name} cannot be put together")
    here = {name: c for name, c in whole.items() if c.per_input}
    values = {name: [getattr(table, name) for table in tables] for name in here}
    # One row that stands for all inputs of each table does so for all of them only where it says the same.
    apart = {
        c.when for n, c in here.items() if c.shareable and not all(torch.equal(v, values[n][0][:1]) for v in values[n])
    }
    found: dict[str, Any] = {}
    for name, c in here.items():
        if c.in_tuple:
            found[name] = tuple(entry for value in values[name] for entry in value)
        elif not c.shareable:
            found[name] = torch.cat(values[name])
        elif c.when in apart:
            found[name] = torch.cat([spread(value, len(table)) for value, table in zip(values[name], tables)])
    return dataclasses.replace(tables[0], **found)


def spread(value: Tensor, count: int) -> Tensor:
    """A row per input, where one stood for all `count` of them."""
    return value.expand(count, *value.shape[1:]) if len(value) == 1 else value


def must_fit(table: Any, sizes: Sizes) -> None:
    """Raises an `InputError` that names the column whose type, shape or numbers are not what was declared."""
    shared = shared_by_all(table)
    for name, c in columns(type(table), parts_of(table)).items():
        value = getattr(table, name)
        if not isinstance(value, tuple if c.in_tuple else Tensor):
            raise InputError(f"the certificates have no {name}")
        fault = c.fault(value, sizes, len(table), name in shared)
        if fault:
            raise InputError(f"{name} {fault}")
