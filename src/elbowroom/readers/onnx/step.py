"""What the translation of one ONNX node works with: values, the node's attributes, and the graph it adds to.

A model is read at batch size 1. A value computed from the input is a node of the graph together with the shape it has
in the ONNX model. The node may hold the same numbers in another shape, row by row in the same order: an operation that
needs a certain shape asks for it (`Builder.view`), so that reshaping costs nothing where it makes no difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.file import LARGEST, most_numbers
from elbowroom.network.graph import Graph
from elbowroom.network.operations import Operation, Shape
from elbowroom.readers.onnx.file import MOST_AXES
from elbowroom.readers.reading import refuse

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto


class LostError(Exception):
    """A value is asked for that follows an unsupported operation."""


@dataclass(frozen=True)
class Place:
    """A node by its operator and its name, for messages."""

    operator: str
    name: str

    @classmethod
    def of(cls, node: NodeProto) -> Place:
        operator = str(node.op_type)
        return cls(operator if operator.isprintable() else ascii(operator), node.name or next(iter(node.output), ""))

    def __str__(self) -> str:
        return f"{self.operator} (node {self.name!r})"


@dataclass(frozen=True)
class Cut:
    """Operations left off at the end: which, and the name of what the first one takes.

    `label`: whether one of them gives the class alone; `classes`: their names, where one of them knows them.
    """

    places: tuple[Place, ...]
    source: str
    label: bool = False
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Value:
    """A value computed from the input.

    `number`: the graph's node that holds its numbers, in some shape; `shape`: the one in the ONNX model;
    `whole`: they are whole numbers in the model (images as they are stored); `cut`: what was left off before it.
    """

    number: int
    shape: Shape
    whole: bool = False
    cut: Cut | None = None


@dataclass(frozen=True)
class Lost:
    """Stands for a value that follows an unsupported operation, so that the rest can be looked through.

    `constant`: whether it would not depend on the input.
    """

    constant: bool = False
    whole = False
    cut = None

    @property
    def number(self) -> int:
        raise LostError

    @property
    def shape(self) -> Shape:
        raise LostError


def inner(shape: Shape) -> Shape:
    """The shape without a leading 1, which is the batch axis wherever there is one; a single number has an axis."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape or (1,)


def exact(numbers: Any) -> np.ndarray:
    """Numbers that float64 holds, as float32 where that holds them too."""
    wide = np.asarray(numbers, dtype=np.float64)
    narrow = wide.astype(np.float32)
    return narrow if np.array_equal(narrow, wide) else wide


class Builder:
    """Adds nodes to a graph: with names of their own, of sizes that fit into memory."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._names: set[str] = {graph.nodes[0].name}
        self._made: dict[tuple[Any, ...], int] = {}

    def add(self, name: str, op: Operation, *numbers: int) -> int:
        if most_numbers(op, [self.graph.nodes[i].shape for i in numbers]) > LARGEST:
            raise InputError(f"it may give more than {LARGEST} numbers, for which this program has no room")
        unique, count = name, 1
        while unique in self._names:
            count += 1
            unique = f"{name}_{count}"
        self._names.add(unique)
        return self.graph.add(op, *numbers, name=unique)

    def once(self, name: str, op: Operation, number: int, argument: Any) -> int:
        """The same, but that an operation with the same argument, asked for before, is used again."""
        key = (type(op), number, argument)
        if key not in self._made:
            self._made[key] = self.add(name, op, number)
        return self._made[key]

    def op(self, number: int) -> Operation:
        return self.graph.nodes[number].op

    def shape(self, number: int) -> Shape:
        return self.graph.nodes[number].shape

    def source(self, number: int) -> int:
        """The node whose numbers this one holds in another shape."""
        while isinstance(self.op(number), ops.Reshape):
            number = self.graph.nodes[number].inputs[0]
        return number

    def view(self, name: str, number: int, shape: Shape) -> int:
        """The node's numbers in a given shape."""
        number = number if self.shape(number) == shape else self.source(number)
        if self.shape(number) == shape:
            return number
        return self.once(f"{name}.reshape", ops.Reshape(shape), number, shape)


_KINDS = {"float": 1, "int": 2, "text": 3, "tensor": 4, "floats": 6, "ints": 7, "texts": 8}  # AttributeProto's numbers


@dataclass
class Step:
    """One ONNX node: its attributes, and what its translation adds to the graph.

    `opset`: that of the operator's domain; `batch`: the fixed batch size of the model, read as 1; `single`: whether
    the value of a name is used once only; `tensor`: reads a tensor.
    """

    build: Builder
    node: NodeProto
    place: Place
    opset: int
    batch: int
    single: Callable[[str], bool]
    tensor: Callable[[Any], np.ndarray]
    notes: list[str]

    def __post_init__(self) -> None:
        self._attributes: dict[str, AttributeProto] = {a.name: a for a in self.node.attribute}
        self._read: set[str] = set()

    # --- attributes

    def _attribute(self, name: str, kind: str) -> AttributeProto | None:
        self._read.add(name)
        found = self._attributes.get(name)
        if found is not None and found.type != _KINDS[kind]:
            raise InputError(f"the attribute {name!r} is not of the kind {kind}")
        return found

    def integer(self, name: str, default: int) -> int:
        found = self._attribute(name, "int")
        return default if found is None else found.i

    def integers(self, name: str) -> tuple[int, ...] | None:
        found = self._attribute(name, "ints")
        return None if found is None else tuple(found.ints)

    def real(self, name: str, default: float) -> float:
        """Attributes are float32 numbers, their defaults too."""
        found = self._attribute(name, "float")
        if found is not None and not math.isfinite(found.f):
            raise InputError(f"the attribute {name!r} is {found.f}")
        return float(np.float32(default)) if found is None else found.f

    def reals(self, name: str) -> np.ndarray | None:
        found = self._attribute(name, "floats")
        return None if found is None else np.array(found.floats, dtype=np.float32)

    def text(self, name: str, default: str) -> str:
        found = self._attribute(name, "text")
        return default if found is None else found.s.decode(errors="replace")

    def texts(self, name: str) -> tuple[str, ...] | None:
        found = self._attribute(name, "texts")
        return None if found is None else tuple(s.decode(errors="replace") for s in found.strings)

    def stored(self, name: str) -> np.ndarray | None:
        found = self._attribute(name, "tensor")
        return None if found is None else self.tensor(found.t)

    def has(self, name: str) -> bool:
        return name in self._attributes

    def ignore(self, *names: str) -> None:
        """Attributes that change nothing here."""
        self._read.update(names)

    def unread(self) -> list[str]:
        return sorted(set(self._attributes) - self._read)

    # --- inputs that must be constants

    def whole_numbers(self, value: Any, what: str, most: int = MOST_AXES) -> tuple[int, ...]:
        """Sizes, axes and the like, given as an input."""
        array = self.constant(value, what)
        if array.size > most:
            raise InputError(f"it has {array.size} {what}; at most {most} make sense")
        if array.dtype.kind not in "iu":
            raise InputError(f"its {what} are not whole numbers")
        return tuple(int(n) for n in array.reshape(-1))

    def given(self, name: str, value: Any) -> tuple[int, ...] | None:
        """What is an attribute in old opsets and an input in new ones."""
        attribute = self.integers(name)
        return attribute if value is None else self.whole_numbers(value, name)

    def constant(self, value: Any, what: str) -> np.ndarray:
        if isinstance(value, Lost):
            raise LostError
        if not isinstance(value, np.ndarray):
            refuse(f"its {what} are computed from the input")
        return value

    def parameter(self, value: Any, what: str = "weights") -> Tensor:
        """A constant as the tensor of an operation, exactly."""
        array = self.constant(value, what)
        if array.dtype.kind != "f":
            raise InputError(f"its {what} are of type {array.dtype}; real numbers are expected")
        return torch.from_numpy(np.array(array, order="C"))

    # --- building

    def add(self, op: Operation, *numbers: int) -> int:
        return self.build.add(self.place.name, op, *numbers)

    def view(self, x: Value, shape: Shape) -> int:
        return self.build.view(self.place.name, x.number, shape)

    def apply(self, op: Operation, x: Value) -> Value:
        """An operation on each number by itself."""
        return Value(self.add(op, x.number), x.shape)

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise InputError(f"it has no axis {axis}: the value has {rank}")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        found = tuple(self.axis(a, rank) for a in axes)
        if len(set(found)) != len(found):
            raise InputError(f"an axis appears twice among {tuple(axes)}")
        return found
