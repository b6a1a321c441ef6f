"""`Network`: a small graph of operations, nodes in topological order, shapes known."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.machine.torch_modes import own_modes
from elbowroom.network.about import About as About
from elbowroom.network.about import Origin as Origin
from elbowroom.network.about import Source as Source
from elbowroom.network.casts import cast, is_cast, widens
from elbowroom.network.operations import Affine, Input, Operation, Reshape, Shape

DECISIONS = ("max", "min")


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

    Args:
        input_shape: The shape of one input, without the batch axis.

    Attributes:
        nodes: The nodes so far.
        input: The number of the input's node.

    Example:
        >>> g = Graph((2,))
        >>> h = g.add(ReLU(), g.add(Linear(w1, b1), g.input))
        >>> net = g.network(g.add(Linear(w2, b2), h))
    """

    def __init__(self, input_shape: Sequence[int]) -> None:
        op = Input(tuple(int(n) for n in input_shape))
        self.nodes = [Node(op, (), op.shape, "input")]
        self.input = 0

    def add(self, op: Operation, *inputs: int, name: str | None = None) -> int:
        """Appends a node.

        Args:
            op: The operation.
            *inputs: The numbers of the nodes it reads.
            name: What to call it; by default its operation and number.

        Returns:
            The node's number.

        Raises:
            InputError: The operation does not fit what it reads.
        """
        name = name or f"{op.name.lower()}_{len(self.nodes)}"
        node = _placed(op, tuple(inputs), self.nodes, name)
        if type(op) is Reshape:
            node = replace(node, op=Reshape(node.shape))  # no -1 left: it has no meaning for an empty batch
        self.nodes.append(node)
        return len(self.nodes) - 1

    def network(
        self, output: int | None = None, decision: str = "max", about: About | None = None, source: Source | None = None
    ) -> Network:
        """The network that ends in a node; nodes it does not need are dropped.

        Args:
            output: The number of that node, by default the last.
            decision: "max" where the largest output decides, "min" where the smallest does.
            about: Names and notes.
            source: The model it was read from, to compare with.

        Returns:
            The network.
        """
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
        """Adds all of a network.

        Args:
            net: The network.
            at: The node it reads, by default the input.

        Returns:
            The number of its output's node.
        """
        numbers = [self.input if at is None else at]
        for node in net.nodes[1:]:
            numbers.append(self.add(node.op, *(numbers[j] for j in node.inputs), name=node.name))
        return numbers[-1]


class Network:
    """A network as bounds see it: call it for the plain forward pass, `net(x)` with `x`: `b x *input_shape`.

    Build one with `Graph`, `Network.chain` or `elbowroom.load`. A network owns its numbers: parameters are copied in,
    and every node is validated again, whoever built it.

    Args:
        nodes: In topological order, the input first.
        decision: "max" where the largest output decides, "min" where the smallest does.
        about: Names and notes.
        source: The model it was read from, to compare with.

    Raises:
        InputError: The nodes do not make a network.
    """

    def __init__(
        self, nodes: tuple[Node, ...], decision: str = "max", about: About | None = None, source: Source | None = None
    ) -> None:
        if decision not in DECISIONS:
            raise InputError(f'decision must be "max" or "min", got {decision!r}')
        if not nodes or type(nodes[0].op) is not Input or nodes[0].shape != nodes[0].op.output_shape():
            raise InputError("the first node of a network must be its input")
        own = [nodes[0]]
        for node in nodes[1:]:
            op = _owned(node.op)
            own.append(_placed(op, node.inputs, own, node.name))
            if own[-1].shape != node.shape:
                raise InputError(f"node {node.name}: the shape is given as {node.shape}, but it is {own[-1].shape}")
        if len(own[-1].shape) != 1:
            raise InputError(f"the output must be one axis of logits, got shape {own[-1].shape}")
        self.nodes = tuple(own)
        self.decision = decision
        self.about = about or About()
        self.source = source
        for names, count in ((self.about.features, nodes[0].size), (self.about.classes, nodes[-1].size)):
            if names is not None and (len(names) != count or len(set(names)) != count):
                raise InputError(f"{count} different names are needed, got {len(set(names))}: {str(names)[:80]}")
        if self.about.table is not None and self.about.table.entries != self.about.features:
            raise InputError("the names of the features are not those of the table's entries")
        self._casts: dict[tuple[torch.dtype, torch.device, tuple[int, ...]], Network] = {}

    @classmethod
    def chain(cls, input_shape: Sequence[int], operations: Sequence[Operation], decision: str = "max") -> Network:
        """A network in which each operation feeds the next.

        Args:
            input_shape: The shape of one input, without the batch axis.
            operations: In their order.
            decision: "max" where the largest output decides, "min" where the smallest does.

        Returns:
            The network.
        """
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
        return tuple(sorted({j for i in self.relaxed for j in self.nodes[i].inputs}))

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
        """The same network with its parameters in another type or place.

        Casts are kept, and compared with the parameters whenever they are used again: whoever reaches into a network
        and changes a number gets forward pass, hash and proof of the new one.

        Args:
            dtype: The parameters' type.
            device: Where they are.

        Returns:
            The cast.
        """
        return self._kept(dtype, torch.device(device), ())

    def exact(self, device: torch.device | str = "cpu") -> Network:
        """The network in float64, for proofs and for the values at a point.

        As `cast`, but on a CPU matrices over a very long input stay as they are stored, and belong to the network
        itself: their numbers are exact in float64, and are widened where they are used (see `operations.Linear`).

        Args:
            device: Where the parameters are.

        Returns:
            The cast.
        """
        device = torch.device(device)
        stored = (i for i, n in enumerate(self.nodes) if device.type == "cpu" and widens(n.op))
        return self._kept(torch.float64, device, tuple(stored))

    def _kept(self, dtype: torch.dtype, device: torch.device, stored: tuple[int, ...]) -> Network:
        """`stored`: nodes whose weight stays as it is."""
        key = dtype, device, stored
        kept = self._casts.get(key)
        with own_modes(), torch.no_grad():  # what is kept must serve callers in any mode
            same = kept is not None and len(kept.nodes) == len(self.nodes) and kept.decision == self.decision
            if kept is None or not same or not all(map(_same, kept.nodes, self.nodes)):
                kept = self._casts[key] = self._cast(*key)
        return kept

    def _cast(self, dtype: torch.dtype, device: torch.device, stored: tuple[int, ...]) -> Network:
        found = object.__new__(type(self))  # what was validated stays valid
        found.__dict__.update(self.__dict__)
        found.nodes = tuple(
            replace(n, op=cast(n.op, dtype, device, weight=i not in stored)) for i, n in enumerate(self.nodes)
        )
        found.__dict__.pop("dtype", None)
        found._casts = {}
        return found

    def values(self, x: Tensor) -> list[Tensor]:
        """Every node's value at an input.

        Args:
            x: `b x *input_shape`, in the parameters' own type.

        Returns:
            The values, `b x *shape` each, in the order of the nodes.
        """
        out: list[Tensor] = [x]
        for node in self.nodes[1:]:
            out.append(node.op(*(out[j] for j in node.inputs)))
        return out

    def __call__(self, x: Tensor | np.ndarray) -> Tensor:
        """The outputs, `b x k`. Computed in `x`'s type or the network's, whichever is wider."""
        # A copy of arrays: torch takes none that is read backwards, and warns of those that nobody may write to.
        x = torch.as_tensor(np.array(x, order="C") if isinstance(x, np.ndarray) else x)
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
        """Compares the network with the model it was read from.

        Without its model (a network file, a network built by hand), or without inputs, there is nothing to compare.

        Args:
            x: Where, `b x *input_shape`.

        Raises:
            UnsupportedError: The model gives something else there.
        """
        if self.source is None or not len(x):
            return
        difference = self.source.differs(x.detach().to("cpu", torch.float64))
        if difference is not None:
            raise UnsupportedError(difference)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as plain data, and validated again when it is made anew; without the model it was read from."""
        return Network, (self.nodes, self.decision, self.about)

    def __deepcopy__(self, memo: dict[int, Any]) -> Network:
        return Network(copy.deepcopy(self.nodes, memo), self.decision, self.about, self.source)

    def decide(self, outputs: Tensor) -> Tensor:
        """The classes that outputs stand for.

        Args:
            outputs: `b x k`.

        Returns:
            The classes' numbers, `b`.
        """
        return outputs.argmax(-1) if self.decision == "max" else outputs.argmin(-1)

    def __repr__(self) -> str:
        kinds = [n.op.name for n in self.nodes[1:]]
        shown = ", ".join(kinds[:8]) + (f", ... {len(kinds) - 8} more" if len(kinds) > 8 else "")
        return (
            f"Network({'x'.join(map(str, self.input_shape)) or '1'} -> {self.n_outputs}, "
            f"{self.n_parameters:,} parameters: {shown})"
        )


def _owned(op: Operation) -> Operation:
    """A copy whose parameters nobody else holds: plain tensors on the CPU, also where autograd or inference mode is at
    work; fields are validated once more."""
    with own_modes(), torch.no_grad():
        return op.map_tensors(lambda t: t.detach().as_subclass(Tensor).to("cpu", copy=True).contiguous())


def _placed(op: Operation, inputs: tuple[int, ...], nodes: Sequence[Node], name: str) -> Node:
    """The operation as the next node after `nodes`: what it reads is there, it fits, and its numbers make sense."""
    if not inputs or not all(type(i) is int and 0 <= i < len(nodes) for i in inputs):
        raise InputError(f"{op.name}: inputs must be numbers of earlier nodes, got {inputs}")
    try:
        op.refuse_values()
        shape = op.output_shape(*(nodes[i].shape for i in inputs))
        if not shape:  # bounds are taken over the entries of axes
            raise InputError(f"{op!r} gives a single number without an axis")
    except InputError as error:
        raise InputError(f"node {name}: {error}") from None
    return Node(op, inputs, shape, name)


def _same(kept: Node, node: Node) -> bool:
    """Whether `kept` is `node` with its parameters in another type or place."""
    return (kept.inputs, kept.shape) == (node.inputs, node.shape) and is_cast(kept.op, node.op)
