"""`Network`: a small graph of operations, nodes in topological order, shapes known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.operations import Affine, Input, Operation, Reshape, Shape

DECISIONS = ("max", "min")


@dataclass(frozen=True)
class Origin:
    """Which model a network was read from, so that an auditor can read it again and compare.

    `model`: the file's name, or the class of an object. `sha256`: of the file's bytes; None for an object.
    `options`: what `load` was told, by name, as JSON holds it. `compared`: with what the network was compared when it
    was read, and what could not be compared, in sentences.
    """

    model: str
    sha256: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    compared: tuple[str, ...] = ()


@dataclass(frozen=True)
class About:
    """What people call things, and what they should know; no part of the function, nor of its hash.

    `features`: names of the inputs, flat; `classes`: names of the classes; `notes`: what was done to read the model
    that its user should know, in sentences; `origin`: what it was read from, None where it was built by hand.
    """

    features: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    origin: Origin | None = None


@dataclass(frozen=True, eq=False)
class Source:
    """The model itself, kept in memory beside the network that was read from it; never saved.

    `differs`: compares both at inputs `b x *input_shape` of the network (float64), at batch sizes of at most b, and
    says in words where and by how much they differ beyond rounding; None where they agree.
    """

    differs: Callable[[Tensor], str | None]


@dataclass(frozen=True, eq=False)
class Node:
    """One operation in its place: `inputs` are the numbers of earlier nodes, `shape` leaves out the batch."""

    op: Operation
    inputs: tuple[int, ...]
    shape: Shape
    name: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Graph:
    """Builds a `Network` node by node.

    >>> g = Graph((2,))
    >>> h = g.add(ReLU(), g.add(Linear(w1, b1), g.input))
    >>> net = g.network(g.add(Linear(w2, b2), h))
    """

    def __init__(self, input_shape: Sequence[int]) -> None:
        shape = tuple(int(n) for n in input_shape)
        if any(n < 1 for n in shape):
            raise InputError(f"input_shape must hold positive sizes, got {shape}")
        self.nodes = [Node(Input(shape), (), shape, "input")]
        self.input = 0

    def add(self, op: Operation, *inputs: int, name: str | None = None) -> int:
        """Appends a node and returns its number."""
        if not inputs or not all(0 <= i < len(self.nodes) for i in inputs):
            raise InputError(f"{op.name}: inputs must be numbers of earlier nodes, got {inputs}")
        name = name or f"{op.name.lower()}_{len(self.nodes)}"
        for part, tensor in op.tensors().items():
            if not bool(torch.isfinite(tensor).all()):
                raise InputError(f"node {name} ({op.name}): {part} holds NaN or infinite values")
        shapes = [self.nodes[i].shape for i in inputs]
        _refuse_misfit(op, shapes, f"node {name}")
        shape = op.output_shape(*shapes)
        if isinstance(op, Reshape):
            op = Reshape(shape)  # no -1 left: it has no meaning for an empty batch
        self.nodes.append(Node(op, tuple(inputs), shape, name))
        return len(self.nodes) - 1

    def network(
        self, output: int | None = None, decision: str = "max", about: About | None = None, source: Source | None = None
    ) -> Network:
        """The network ending in node `output` (default: the last); nodes it does not need are dropped."""
        last = len(self.nodes) - 1 if output is None else output
        if len(self.nodes[last].shape) != 1:
            last = self.add(Reshape((-1,)), last, name="flat_output")
        needed, stack = {0}, [last]
        while stack:
            i = stack.pop()
            if i not in needed:
                needed.add(i)
                stack.extend(self.nodes[i].inputs)
        order = sorted(needed)
        renumber = {old: new for new, old in enumerate(order)}
        nodes, names = [], set()
        for i in order:
            node = self.nodes[i]
            name = node.name
            while name in names:
                name = f"{name}_{renumber[i]}"
            names.add(name)
            nodes.append(Node(node.op, tuple(renumber[j] for j in node.inputs), node.shape, name))
        return Network(tuple(nodes), decision, about, source)

    def append(self, net: Network, at: int | None = None) -> int:
        """Adds all of `net`, reading from node `at` (default: the input); returns its output's number."""
        numbers = [self.input if at is None else at]
        for node in net.nodes[1:]:
            numbers.append(self.add(node.op, *(numbers[j] for j in node.inputs), name=node.name))
        return numbers[-1]


class Network:
    """A network as bounds see it: call it for the plain forward pass, `net(x)` with `x`: `b x *input_shape`.

    `decision`: "max" where the largest output decides, "min" where the smallest does. `about`: names and notes.
    `source`: the model it was read from, to compare with. Build one with `Graph`, `Network.chain` or `elbowroom.load`.
    """

    def __init__(
        self, nodes: tuple[Node, ...], decision: str = "max", about: About | None = None, source: Source | None = None
    ) -> None:
        if decision not in DECISIONS:
            raise InputError(f'decision must be "max" or "min", got {decision!r}')
        if len(nodes[-1].shape) != 1:
            raise InputError(f"the output must be one axis of logits, got shape {nodes[-1].shape}")
        for node in nodes[1:]:
            _refuse_misfit(node.op, [nodes[j].shape for j in node.inputs], f"node {node.name}")
        self.nodes = nodes
        self.decision = decision
        self.about = about or About()
        self.source = source
        for names, count in ((self.about.features, nodes[0].size), (self.about.classes, nodes[-1].size)):
            if names is not None and (len(names) != count or len(set(names)) != count):
                raise InputError(f"{count} different names are needed, got {len(set(names))}: {str(names)[:80]}")
        self._casts: dict[tuple[torch.dtype, torch.device], Network] = {}

    @classmethod
    def chain(cls, input_shape: Sequence[int], operations: Sequence[Operation], decision: str = "max") -> Network:
        """A network in which each operation feeds the next."""
        graph = Graph(input_shape)
        at = graph.input
        for op in operations:
            at = graph.add(op, at)
        return graph.network(at, decision)

    @property
    def input_shape(self) -> Shape:
        return self.nodes[0].shape

    @property
    def n_inputs(self) -> int:
        return self.nodes[0].size

    @property
    def n_outputs(self) -> int:
        return self.nodes[-1].size

    @cached_property
    def relaxed(self) -> tuple[int, ...]:
        """The nodes that are not affine: activations and max-pooling."""
        return tuple(i for i, n in enumerate(self.nodes) if i and not isinstance(n.op, Affine))

    @cached_property
    def preactivations(self) -> tuple[int, ...]:
        """The nodes whose bounds the relaxations need: what feeds an activation or max-pooling."""
        return tuple(sorted({self.nodes[i].inputs[0] for i in self.relaxed}))

    @cached_property
    def dtype(self) -> torch.dtype:
        """The widest of the parameters' types (float32 where there are none)."""
        result = torch.float32
        for node in self.nodes:
            for tensor in node.op.tensors().values():
                result = torch.promote_types(result, tensor.dtype)
        return result

    @property
    def n_parameters(self) -> int:
        return sum(t.numel() for n in self.nodes for t in n.op.tensors().values())

    def cast(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> Network:
        """The same network with its parameters in another type or place (kept, so casting twice is free)."""
        key = (dtype, torch.device(device))
        if key not in self._casts:
            nodes = tuple(
                Node(n.op.map_tensors(lambda t: t.to(device=key[1], dtype=dtype)), n.inputs, n.shape, n.name)
                for n in self.nodes
            )
            self._casts[key] = Network(nodes, self.decision, self.about)
        return self._casts[key]

    def values(self, x: Tensor) -> list[Tensor]:
        """Every node's value at `x`, in the parameters' own type: `x` must have it already."""
        out: list[Tensor] = [x]
        for node in self.nodes[1:]:
            out.append(node.op(*(out[j] for j in node.inputs)))
        return out

    def __call__(self, x: Tensor | np.ndarray) -> Tensor:
        """The outputs, `b x k`. Computed in `x`'s type or the network's, whichever is wider."""
        x = torch.as_tensor(x)
        if not x.is_floating_point():
            x = x.to(self.dtype)
        if tuple(x.shape[1:]) != self.input_shape:
            raise InputError(
                f"the network takes inputs of shape (batch, {', '.join(map(str, self.input_shape))}), "
                f"got {tuple(x.shape)}"
            )
        dtype = torch.promote_types(x.dtype, self.dtype)
        return self.cast(dtype, x.device).values(x.to(dtype))[-1]

    def must_agree(self, x: Tensor) -> None:
        """Raises `UnsupportedError` where the model it was read from gives something else at `x`, `b x *input_shape`.

        Without its model (a file of ours, a network built by hand), or without inputs, there is nothing to compare.
        """
        if self.source is None or not len(x):
            return
        difference = self.source.differs(x.detach().to("cpu", torch.float64))
        if difference is not None:
            raise UnsupportedError(difference)

    def decide(self, outputs: Tensor) -> Tensor:
        """The class that `outputs` (`b x k`) stand for."""
        return outputs.argmax(-1) if self.decision == "max" else outputs.argmin(-1)

    def __repr__(self) -> str:
        kinds = [n.op.name for n in self.nodes[1:]]
        shown = ", ".join(kinds[:8]) + (f", ... {len(kinds) - 8} more" if len(kinds) > 8 else "")
        return (
            f"Network({'x'.join(map(str, self.input_shape)) or '1'} -> {self.n_outputs}, "
            f"{self.n_parameters:,} parameters: {shown})"
        )


def _refuse_misfit(op: ops.Operation, shapes: list[Shape], at: str) -> None:
    """Refuses fields that would reach the batch axis, or be read differently by forward pass and proof."""
    shape, rank = shapes[0], len(shapes[0])
    match op:
        case ops.Add():
            good = len(shapes) == len(op.signs)
        case ops.Concat():
            good = all(len(s) == rank for s in shapes) and -rank <= op.axis < rank
        case _ if len(shapes) != 1:
            good = False
        case ops.Linear():
            good = rank >= 1 and op.weight.dim() == 2 and (op.bias is None or op.bias.shape == op.weight.shape[:1])
        case ops.Conv():
            good = rank == op.weight.dim() - 1 and (op.bias is None or op.bias.shape == op.weight.shape[:1])
        case ops.BatchNorm():
            good = rank >= 1 and all(tuple(t.shape) == shape[:1] for t in op.tensors().values())
        case ops.AvgPool() | ops.MaxPool():
            good = rank == len(op.kernel) + 1
        case ops.Slice():
            good = 0 <= op.axis < rank and 0 <= op.start < min(op.stop, shape[op.axis]) and op.step >= 1
        case ops.Transpose():
            good = sorted(op.axes) == list(range(rank))
        case ops.Mean():
            good = bool(op.axes) and len(set(op.axes)) == len(op.axes) and all(0 <= d < rank for d in op.axes)
        case ops.Pad():
            good = len(op.pads) % 2 == 0 and len(op.pads) <= 2 * rank
        case ops.Reshape():
            good = op.shape.count(-1) == 1 or math.prod(op.shape) == math.prod(shape)
        case _:
            good = True
    if not good:
        raise InputError(f"{at}: {op.name} does not fit inputs of shape {', '.join(map(str, shapes))}")
