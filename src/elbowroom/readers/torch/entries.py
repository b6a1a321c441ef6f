"""The entries of a network that was read from a module with embeddings, and the module's own inputs.

A code is a number to the module and looks up a row of weights. Between two codes there is nothing, so that the network
takes the rows of a table: a column of codes has an entry for each of them, 1 at its own and 0 at all others, of which
the row that is looked up is a linear map. Where there is one code only, the entry is the code itself: so where there
are as many entries as columns they are the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.operations import Shape
from elbowroom.network.table import Column, Table
from elbowroom.readers import compare
from elbowroom.readers.reading import exactly, holds, refuse, rounds_to
from elbowroom.readers.torch.step import At, Step, fixed
from elbowroom.readers.torch.takes import Takes
from elbowroom.readers.torch.tracks import Source

_SHOWN = 10


@dataclass(frozen=True, eq=False)
class Entries:
    """`takes`: the module's columns; `names`: what they are called; `levels`: of those that are codes, by number: the
    least and the largest."""

    takes: Takes
    names: tuple[str, ...]
    levels: dict[int, tuple[int, int]]

    @cached_property
    def table(self) -> Table:
        inputs = [name for name, place in zip(self.takes.names, self.takes.places) for _ in range(*_ends(place))]
        several = len(self.takes.names) > 1
        return Table(tuple(self._column(c, inputs[c] if several else "") for c in range(self.takes.count)))

    def _column(self, column: int, given: str) -> Column:
        if column not in self.levels:
            return Column(self.names[column], input=given)
        low, high = self.levels[column]
        levels = tuple(float(level) for level in range(low, high + 1))
        codes = tuple(tuple(row) for row in torch.eye(len(levels)).tolist()) if len(levels) > 1 else (levels,)
        return Column(self.names[column], levels, codes, input=given)

    def notes(self, restricted: bool) -> tuple[str, ...]:
        """For people. `restricted`: whether columns share an embedding by offsets."""
        coded = [f"{self.names[c]!r} ({low} to {high})" for c, (low, high) in sorted(self.levels.items())]
        if not coded:
            return ()
        more = f" and {len(coded) - _SHOWN} more" if len(coded) > _SHOWN else ""
        verb = "is a code that an embedding looks up" if len(coded) == 1 else "are codes that embeddings look up"
        own = "; codes of columns that share an embedding by offsets are those before the next offset"
        return (f"{', '.join(coded[:_SHOWN])}{more} {verb}: regions hold sets of them{own if restricted else ''}",)

    def words(self) -> str:
        """What the module is given when it is compared, beside numbers."""
        given = ", ".join(f"{name} as {_name(kind)}" for name, kind in zip(self.takes.names, self.takes.kinds))
        return f"{', with every code of each column' if self.levels else ''} (given {given})"

    # --- from entries to the module's inputs

    def columns(self, x: Tensor) -> Tensor:
        """The module's columns, `b x n`, of entries, `b x m`."""
        found = []
        for c, place in enumerate(self.table.places):
            low, high = self.levels.get(c, (0, 0))
            part = x[:, place]
            found.append(part @ torch.arange(low, high + 1).to(part) if high > low else part[:, 0])
        return torch.stack(found, 1)

    def inputs(self, x: Tensor, kind: torch.dtype) -> tuple[Tensor, ...]:
        """What the module is given, its real numbers in type `kind`."""
        return self.takes.split(self.columns(x), kind)

    def fault(self, x: Tensor) -> str | None:
        """In words, the first entries of `x`, `b x m`, that stand for no code."""
        for column, place in zip(self.table.columns, self.table.places):
            if column.levels is not None:
                known = torch.tensor(column.codes, dtype=x.dtype)
                lost = ~(x[:, None, place] == known).all(-1).any(1)
                if bool(lost.any()):
                    shown = ", ".join(f"{v:g}" for v in x[lost][0, place][:8].tolist())
                    return f"the entries {shown} of {column.name!r} stand for none of its codes"
        return None

    def tried(self, count: int) -> Tensor:
        """Entries to compare at, `count` or more, so many that every code of each column is among them."""
        rows = max([count, *(high - low + 1 for low, high in self.levels.values())])
        x = compare.inputs((self.table.width,), rows)
        draw = torch.Generator().manual_seed(1)
        for c, place in enumerate(self.table.places):
            if c in self.levels:
                codes = torch.tensor(self.table.columns[c].codes, dtype=x.dtype)
                order = torch.cat([torch.randperm(len(codes), generator=draw) for _ in range(-(-rows // len(codes)))])
                x[:, place] = codes[order[:rows]]
        return x

    # --- from entries to values of the graph

    def numbers(self, to: Step, held: Held) -> At:
        """Columns as numbers; codes are exact."""
        width, places = self.table.width, self.table.places
        matrix, bias = torch.zeros(len(held.sources), width, dtype=torch.float64), []
        for row, source in zip(matrix, held.sources):
            self._must_keep(source)
            low, high = self.levels.get(source.column, (0, 0))
            one = high > low
            row[places[source.column]] = torch.arange(low, high + 1).double() + source.shift if one else 1.0
            bias.append(0 if one else source.shift)
        x = At(to.graph.input, (width,))
        starts = [places[s.column].start for s in held.sources]
        plain = not any(bias) and all(s.column not in self.levels or s.shift == 0 for s in held.sources)
        single = all(self.table.columns[s.column].width == 1 for s in held.sources)
        if plain and single and all(b == a + 1 for a, b in pairwise(starts)):
            if len(starts) < width:
                x = to.add(ops.Slice(0, starts[0], starts[-1] + 1), x)
        else:
            kind = to.dtype if to.dtype.is_floating_point else torch.float32
            offset = exactly(torch.tensor(bias, dtype=torch.float64), kind) if any(bias) else None
            x = to.add(ops.Linear(exactly(matrix, kind), offset), x)
        shape = held.shape or (1,)
        return x if x.shape == shape else to.add(ops.Reshape(shape), x)

    def rows(self, to: Step, held: Held, weight: Tensor) -> At:
        """The rows of `weight`, `v x d`, that codes look up: `*shape x d`."""
        parts = []
        for source in held.sources:
            if source.column not in self.levels:
                refuse("looks up a column whose codes cannot be read")
            self._must_keep(source)
            low, high = (end + source.shift for end in self.levels[source.column])
            parts.append((self.table.places[source.column], weight[low : high + 1]))
        if len(parts) > 1 and self._alike(parts):
            start, stop, size = parts[0][0].start, parts[-1][0].stop, len(parts[0][1])
            x = to.add(ops.Reshape((len(parts), size)), _slice(to, start, stop, self.table.width))
            x = to.add(ops.Linear(parts[0][1].t()), x)
        else:
            each = [self._row(to, place, rows) for place, rows in parts]
            x = each[0] if len(each) == 1 else to.add(ops.Concat(0), *each)
        shape = (*held.shape, weight.shape[1])
        return x if x.shape == shape else to.add(ops.Reshape(shape), x)

    def _alike(self, parts: Sequence[tuple[slice, Tensor]]) -> bool:
        """Whether entries lie side by side and look up the same rows, so that one product does for all."""
        return all(
            a[0].stop == b[0].start and len(a[1]) > 1 and a[1].shape == b[1].shape and torch.equal(a[1], b[1])
            for a, b in pairwise(parts)
        )

    def _row(self, to: Step, place: slice, rows: Tensor) -> At:
        x = _slice(to, place.start, place.stop, self.table.width)
        if len(rows) > 1:
            return to.add(ops.Linear(rows.t()), x)
        return to.add(ops.Linear(torch.zeros_like(rows.t()), rows[0]), x)  # there is no other code

    def _must_keep(self, source: Source) -> None:
        """Refuses a column that was rounded on its way; codes are whole numbers, which small types may not have."""
        own, name = self.takes.kind_of(source.column), repr(self.names[source.column])
        if source.column in self.levels:
            low, high = self.levels[source.column]
            for kind in source.kinds | {own}:
                if not _has(kind, low + source.least) or not _has(kind, high + source.most):
                    refuse(f"the codes {low} to {high} of the column {name} do not fit into {_name(kind)}")
            return
        if not own.is_floating_point:
            refuse(
                f"the column {name} comes as {_name(own)} and is not looked up in an embedding; give it in a tensor of "
                "real numbers"
            )
        for kind in source.kinds:
            if not kind.is_floating_point:
                refuse(f"the column {name} is rounded to whole numbers, and not looked up in an embedding")
            if not holds(kind, own):
                refuse(rounds_to(_name(kind)))


@dataclass(frozen=True)
class Held:
    """A value of the trace that holds columns as they stand, or codes: its sources, flat, and its shape without the
    batch axis."""

    entries: Entries
    sources: tuple[Source, ...]
    shape: Shape

    @property
    def kept(self) -> Tensor:
        """Which places hold codes, or numbers that were not rounded on their way; flat."""
        coded = self.entries.levels
        return torch.tensor(
            [s.column in coded or all(kind.is_floating_point for kind in s.kinds) for s in self.sources],
            dtype=torch.bool,
        )

    def columns(self, columns: Tensor, kind: torch.dtype) -> Tensor:
        """The value, `b x *shape`, in type `kind`, where the module's columns are these, `b x n`."""
        shifts = torch.tensor([float(source.shift) for source in self.sources], dtype=columns.dtype)
        found = columns[:, [source.column for source in self.sources]] + shifts
        return found.reshape(len(columns), *self.shape).to(kind)


# --- operations


def embedding(to: Step, weight: Tensor, codes: Any, *_: Any, **__: Any) -> At:
    """Rows of a matrix. Its padding index, and what else it is told, are about training."""
    fixed(weight)
    if not isinstance(codes, Held):
        refuse(_COMPUTED)
    return codes.entries.rows(to, codes, weight)


def one_hot(to: Step, codes: Any, count: int = -1) -> At:
    if not isinstance(codes, Held):
        refuse(_COMPUTED)
    return codes.entries.rows(to, codes, torch.eye(count))


_COMPUTED = (
    "looks up codes that are computed; a code must be a column of the input as it stands, selected and converted to "
    "whole numbers, plus or minus a fixed one"
)


def _slice(to: Step, start: int, stop: int, width: int) -> At:
    x = At(to.graph.input, (width,))
    return x if stop - start == width else to.add(ops.Slice(0, start, stop), x)


def _has(kind: torch.dtype, value: int) -> bool:
    """Whether a type has this whole number, and all between it and 0."""
    if kind == torch.bool:
        return False
    if kind.is_floating_point:
        return abs(value) <= 2 / torch.finfo(kind).eps
    return torch.iinfo(kind).min <= value <= torch.iinfo(kind).max


def _ends(place: slice) -> tuple[int, int]:
    return place.start, place.stop


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


__all__ = ["Entries", "Held", "embedding", "one_hot"]
