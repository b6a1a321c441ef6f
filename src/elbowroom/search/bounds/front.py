"""The way into a network, on a CPU, as rows see it.

Operations on single features that stand before the first convolution or matrix need not be carried out on every row:
they are in the radius that rows are met with. A convolution with strides takes rows to the input in phases, every s-th
place of the image at a time, and to interleave them takes as long as the convolution itself; but the radius can be laid
out in phases as well, once for all rows. So to rows the network begins with an input in phases, and a convolution
without strides or padding reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Network, Node
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.bounds.phases import in_phases
from elbowroom.search.regions.input_set import InputSet


class Nodes(Protocol):
    """A network, or what rows see of it."""

    @property
    def nodes(self) -> tuple[Node, ...]: ...


class Entrance(NamedTuple):
    """The one operation that reads the input, `node`, behind `before`: operations on single features, so that a box is
    a box there, too."""

    node: int
    before: tuple[Node, ...]

    @staticmethod
    def of(net: Nodes) -> Entrance | None:
        """None where others read the input as well."""
        readers: dict[int, list[int]] = {}
        for i, node in enumerate(net.nodes):
            for j in node.inputs:
                readers.setdefault(j, []).append(i)
        before: list[Node] = []
        at = 0
        while len(readers.get(at, ())) == 1:
            at = readers[at][0]
            node = net.nodes[at]
            row = MAPS.get(type(node.op))
            if row is None or len(node.inputs) != 1:
                return None
            if not row.elementwise or node.size != net.nodes[node.inputs[0]].size:
                return Entrance(at, tuple(before))
            before.append(node)
        return None


@dataclass(frozen=True, eq=False)
class Front:
    """`nodes`: those of the network, with the same numbers, as rows see them. `weight`: what those of the convolution
    were that they are made of, if any."""

    entrance: Entrance
    reader: Node
    nodes: tuple[Node, ...]
    weight: Tensor | None

    @staticmethod
    def of(net: Network) -> Front | None:
        """None where there is nothing to gain."""
        entrance = Entrance.of(net)
        if entrance is None:
            return None
        reader = net.nodes[entrance.node]
        op = reader.op
        if type(op) is ops.Linear and entrance.before and len(reader.shape) == 1:
            shape, weight = entrance.before[-1].shape, None
        elif _has_phases(op) and (entrance.before or max(op.stride) > 1):
            weight = op.weight.clone()
            one, zero = (1,) * len(op.stride), (0,) * len(op.stride)
            op = ops.Conv(in_phases(op), None, one, zero, one)
            shape = op.weight.shape[1], *(n + t - 1 for n, t in zip(reader.shape[1:], op.weight.shape[2:]))
        else:
            return None
        unread = (replace(node, inputs=()) for node in entrance.before)
        nodes = (
            Node(ops.Input(shape), (), shape, net.nodes[0].name),
            *unread,
            replace(reader, op=op, inputs=(0,)),
            *net.nodes[entrance.node + 1 :],
        )
        return Front(entrance, reader, nodes, weight)

    @property
    def is_current(self) -> bool:
        """Whether the weights are still those that it was made of."""
        op = self.reader.op
        return self.weight is None or (type(op) is ops.Conv and torch.equal(op.weight, self.weight))

    def inputs(self, inputs: InputSet) -> InputSet:
        """A box as rows meet it, differentiable by its radius; its centre means nothing."""
        radius, op, shape = inputs.radius, self.reader.op, self.nodes[0].shape
        for node in self.entrance.before:
            radius = MAPS[type(node.op)].absolute(node.op, radius)
        if type(op) is ops.Conv:
            dims, sizes = len(op.stride), zip(radius.shape[2:], shape[1:], op.stride, op.padding)
            # Places that no window reaches are cut off.
            radius = F.pad(radius, [n for have, u, s, p in sizes for n in (u * s - p - have, p)][::-1])
            radius = radius.reshape(*radius.shape[:2], *(n for pair in zip(shape[1:], op.stride) for n in pair))
            radius = radius.permute(0, *range(3, 3 + 2 * dims, 2), 1, *range(2, 2 + 2 * dims, 2))
        radius = radius.reshape(len(radius), *shape)
        return InputSet(radius, radius)


def _has_phases(op: ops.Operation) -> TypeGuard[ops.Conv]:
    """Whether it is a convolution for this: one of whose phases none is nothing."""
    if type(op) is not ops.Conv or op.groups > 1 or max(op.dilation) > 1:
        return False
    return all(k >= s for k, s in zip(op.weight.shape[2:], op.stride))


__all__ = ["Entrance", "Front", "Nodes"]
