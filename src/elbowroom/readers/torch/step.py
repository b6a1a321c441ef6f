"""What a handler of an ATen operation is told: values computed from the input, the node, the graph that it adds to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from elbowroom.network.graph import Graph
from elbowroom.network.operations import Operation, Shape
from elbowroom.readers.reading import exactly, refuse


@dataclass(frozen=True)
class At:
    """A value computed from the input: its node in the graph, its shape without the batch axis."""

    number: int
    shape: Shape


@dataclass(frozen=True)
class Step:
    """What a handler sees: the ATen node it translates, and the graph it adds to.

    `exact`: constants are kept as they are. Otherwise they are rounded to the result's type, and nodes whose constants
    this changed go into `rounded`.
    """

    graph: Graph
    node: fx.Node
    name: str
    exact: bool
    rounded: set[fx.Node]

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.node.meta["val"].dtype
        return dtype

    @property
    def shape(self) -> Shape:
        """The output's shape without the batch axis, which `Translation` has checked to be there; a single number
        has an axis of size 1 in the graph."""
        return tuple(self.node.meta["val"].shape[1:]) or (1,)

    def add(self, op: Operation, *xs: Any) -> At:
        if not all(isinstance(x, At) for x in xs):
            refuse("one of its inputs is a constant where a computed value is expected")
        number = self.graph.add(op, *(x.number for x in xs), name=self.name)
        return At(number, self.graph.nodes[number].shape)

    def constant(self, value: Any, x: At) -> Tensor:
        """A constant that meets `x` element by element, without the batch axis."""
        fixed(value)
        given = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        stored = exactly(given, self.dtype) if self.exact else given.to(self.dtype)
        if not torch.equal(stored.double(), given.double()):
            self.rounded.add(self.node)
        if stored.dim() <= len(x.shape):
            return stored
        if stored.dim() > len(x.shape) + 1 or stored.shape[0] != 1:
            refuse(f"a constant of shape {tuple(stored.shape)} reaches into the batch axis")
        return stored[0]

    def number(self, value: Any) -> float:
        """A number among an operation's own: rounded, or not, by the same rule as constants."""
        given = float(value)
        found = given if self.exact else float(torch.tensor(given, dtype=torch.float64).to(self.dtype))
        if found != given:
            self.rounded.add(self.node)
        return found


def fixed(*values: Any) -> None:
    """Weights have to be constants."""
    if any(isinstance(v, At) for v in values):
        refuse("its weights are computed from the input")


def each(value: Any, n: int) -> Shape:
    """A number per spatial axis, of which there are n; one stands for all."""
    return tuple(value) * n if len(value) == 1 else tuple(value)


def axis_of(x: At, dim: int) -> int:
    """The graph's number of an ATen dimension; -1 for the batch."""
    return dim % (len(x.shape) + 1) - 1
