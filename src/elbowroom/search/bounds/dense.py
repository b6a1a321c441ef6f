"""Convolutions over small windows as matrices, on a GPU.

Rows over windows are tens of thousands of tiny images of a few channels: a convolution spends its time on copies and
on waiting for memory. The map from one window to another is the same for all of them, and as a matrix, most of which
is zero, it is one product that runs at the machine's speed and needs no other layout.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from elbowroom.machine.recorder import is_recording
from elbowroom.network import operations as ops
from elbowroom.network.graph import Node
from elbowroom.network.operations import Shape
from elbowroom.search.bounds.coefficients import Geometry, Patch, Places, cleaned
from elbowroom.search.bounds.maps import MAPS

_SPARSE = 24  # times the products of the convolution itself: more than these a matrix must not have
_LARGE = 1 << 22  # numbers of a matrix

# By operation (whose parameters are of one type and in one place) and windows; and of which version of the weights.
_Matrices = dict[tuple[Geometry, int], Tensor | None]
_KNOWN: weakref.WeakKeyDictionary[ops.Operation, _Matrices] = weakref.WeakKeyDictionary()


def adjoint_at(node: Node, c: Patch, shapes: Sequence[Shape]) -> Sequence[Tensor]:
    """As `Map.adjoint_at` of the node's operation."""
    row, matrix = MAPS[type(node.op)], _matrix(node, c.at, shapes, c.a)
    reached = row.reach(node.op, c.at, node.shape, shapes)
    if matrix is None or reached is None:
        return row.adjoint_at(node.op, c, node.shape, shapes)
    return ((cleaned(c, node.shape[1:]).flatten(2) @ matrix).reshape(*c.a.shape[:2], *reached.size, shapes[0][0]),)


def linear_at(node: Node, xs: Sequence[Tensor], c: Patch, shapes: Sequence[Shape]) -> Tensor:
    """As `Map.linear_at` of the node's operation."""
    matrix = _matrix(node, c.at, shapes, xs[0])
    if matrix is None:
        return MAPS[type(node.op)].linear_at(node.op, xs, c, node.shape)
    return (xs[0].flatten(2) @ matrix.mT).reshape(*xs[0].shape[:2], *c.at.size, node.shape[0])


def _pays(like: Tensor) -> bool:
    return like.is_cuda


def _matrix(node: Node, at: Geometry, shapes: Sequence[Shape], like: Tensor) -> Tensor | None:
    """From numbers over windows `at` of the node to those over its input that they reach; None where a convolution is
    better, or there is none."""
    op = node.op
    if type(op) is not ops.Conv or op.groups > 1 or not _pays(like):
        return None
    row, known = MAPS[ops.Conv], _KNOWN.setdefault(op, {})
    key = at, op.weight._version
    if key in known:
        return known[key]
    reached = row.reach(op, at, node.shape, shapes)
    assert reached is not None
    count, below = at.numbers(node.shape[0]), reached.numbers(shapes[0][0])
    found = None
    if count * below <= _LARGE and math.prod(reached.size) <= _SPARSE * math.prod(op.weight.shape[2:]):
        unit = torch.eye(count, dtype=like.dtype, device=like.device).reshape(1, count, *at.size, node.shape[0])
        place = Places(torch.zeros(1, count, len(at.size), dtype=torch.long, device=like.device))
        (found,) = row.adjoint_at(op, Patch(unit, place, at, True), node.shape, shapes)
        found = found.reshape(count, below).contiguous()
    if not is_recording():
        known[key] = found
    return found


__all__ = ["adjoint_at", "linear_at"]
