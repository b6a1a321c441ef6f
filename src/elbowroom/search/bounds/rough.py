"""Rows in half precision, on a GPU: products on its tensor cores, and half of the bytes to read and write.

A search proposes, and what it proposes need not be right to more than a few parts in a hundred thousand: a row is a
sum of hundreds of numbers, each rounded on its own to eleven bits, so that its errors mostly cancel. Lines, ends and
all sums stay in float32. What half precision lacks is range, from 6e-8 to 65,504. The numbers of rows grow and shrink
from layer to layer by what is known of the weights: where that stays within the range everywhere, rows fit, and where
it does not, there is no rough network. Nor is there one of images: products are a small part of what they take.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Network, Node

_KEPT = {ops.ReLU, ops.Reshape, ops.Add, ops.Shift, ops.Transpose}  # rows stay about as large
# Powers of two that the root mean square of a row's numbers may be: single ones are much larger, or smaller.
_LEAST, _MOST = -11, 7

# By network, and of which version of its parameters.
_KNOWN: weakref.WeakKeyDictionary[Network, tuple[list[int], Network | None]] = weakref.WeakKeyDictionary()


def roughly(net: Network) -> Network | None:
    """The network, its parameters in float32 on a GPU, in half precision; None where rows might not fit, or where it
    would not be faster."""
    if not _pays(net):
        return None
    version = [t._version for node in net.nodes for t in node.op.tensors().values()]
    known = _KNOWN.get(net)
    if known is None or known[0] != version:
        known = _KNOWN[net] = version, _in_half(net)
    return known[1]


def _pays(net: Network) -> bool:
    return net.dtype == torch.float32 and any(t.is_cuda for node in net.nodes[1:] for t in node.op.tensors().values())


def _in_half(net: Network) -> Network | None:
    nodes = [replace(node, op=_as_factor(node)) for node in net.nodes]
    if not _fits(nodes):
        return None
    found = object.__new__(Network)  # for the maps of its operations alone
    found.__dict__.update(net.__dict__, _casts={})
    found.nodes = tuple(replace(node, op=node.op.map_tensors(torch.Tensor.half)) for node in nodes)
    found.__dict__.pop("dtype", None)
    return found


def _as_factor(node: Node) -> ops.Operation:
    """The operation, or one with the same map, whose numbers are those that rows are multiplied by."""
    op = node.op
    if type(op) is ops.BatchNorm:
        return ops.Scale(op.scale().reshape(-1, *[1] * (len(node.shape) - 1)))
    return ops.Scale(1 / op.divisor) if type(op) is ops.Divide else op


def _fits(nodes: Sequence[Node]) -> bool:
    """Whether the numbers of rows that start at any node stay in range, down to the input."""
    # Powers of two between which their root mean square lies, by node.
    least, most = [math.inf] * len(nodes), [-math.inf] * len(nodes)
    for i in range(len(nodes) - 1, 0, -1):
        sizes = _sizes(nodes[i].op)
        if sizes is None:
            return False
        first, gain = sizes
        for j in nodes[i].inputs:
            least[j], most[j] = min(least[j], first, least[i] + gain), max(most[j], first, most[i] + gain)
            if least[j] < _LEAST or most[j] > _MOST:
                return False
    return True


def _sizes(op: ops.Operation) -> tuple[float, float] | None:
    """As powers of two, how large the numbers of a unit row are past an operation, and what those of others are
    multiplied by; None if that is not known."""
    if type(op) in _KEPT:
        return 0.0, 0.0
    if type(op) is ops.Scale:
        mean = _power(op.factor)
        return mean, mean
    if type(op) is ops.Linear:
        mean = _power(op.weight)
        return mean, mean + math.log2(len(op.weight)) / 2  # numbers below are sums over the outputs
    return None


def _power(t: Tensor) -> float:
    mean = float(t.double().square().mean().sqrt())
    return math.log2(mean) if mean > 0 else -math.inf


__all__ = ["roughly"]
