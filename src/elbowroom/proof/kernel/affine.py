"""What the strict check must know of each affine operation: how many numbers it adds up, and its offset."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network, Node
from elbowroom.proof.kernel.rounding import ETA, SAFE, U

# Operations that only move numbers about.
MOVES = (ops.Reshape, ops.Transpose, ops.Slice, ops.Pad, ops.Concat)
SUMS = (ops.Linear, ops.Conv, ops.BatchNorm, ops.AvgPool, ops.Mean, ops.Scale, ops.Divide, ops.Shift, ops.Add)


def unfit(net: Network) -> list[str]:
    """Reasons, node by node, why the analysis does not cover the network's affine operations."""
    reasons = []
    for node in net.nodes[1:]:
        if isinstance(node.op, ops.Affine) and type(node.op) not in (*MOVES, *SUMS):
            reasons.append(f"{node.name}: {node.op.name} has no rounding analysis")
        if isinstance(node.op, ops.BatchNorm):
            # The factor is derived, with relative errors only: none of its steps may leave float64's range.
            wide = node.op.map_tensors(lambda t: t.double())
            assert isinstance(wide, ops.BatchNorm)
            inside, scale = wide.var + wide.eps, wide.scale()
            weight = torch.ones_like(scale) if wide.weight is None else wide.weight
            if not bool(((inside > 1e-290) & (inside < 1e290) & ((scale.abs() > 1e-290) | (weight == 0))).all()):
                reasons.append(f"{node.name}: BatchNorm's variance plus eps, or its factor, is too small or too large")
    return reasons


@dataclass(frozen=True)
class Terms:
    """`forward`, `adjoint`: how many roundings lie behind one output of `f(x)` and of `a @ L`; 0 if exact.

    Neither is less than the number of products behind that output, each of which may underflow.
    """

    forward: int
    adjoint: int


def terms(node: Node, shapes: list[ops.Shape]) -> Terms:
    """Counts of roundings, generously: products, sums, the offset, and roundings of derived constants."""
    op = node.op
    if isinstance(op, MOVES):
        return Terms(0, 0)
    if isinstance(op, ops.Linear):
        out, into = op.weight.shape
        return Terms(into + 2, out + 1)
    if isinstance(op, ops.Conv):
        window = math.prod(op.weight.shape[2:])
        return Terms(op.weight.shape[1] * window + 2, op.weight.shape[0] // op.groups * window + 1)
    if isinstance(op, ops.BatchNorm):
        return Terms(16, 12)  # variance plus eps, root, quotient, weight, mean, product, bias
    if isinstance(op, ops.AvgPool):
        window = math.prod(op.kernel)
        return Terms(window + 4, window + 4)
    if isinstance(op, ops.Mean):
        count = math.prod(shapes[0][d] for d in op.axes)
        return Terms(count + 4, 4)
    if isinstance(op, (ops.Scale, ops.Divide, ops.Shift)):
        # The adjoint of a broadcast adds up what was spread out.
        spread = math.prod(node.shape) // max(1, math.prod(shapes[0]))
        return Terms(2, spread + 1)
    if isinstance(op, ops.Add):
        spread = max(math.prod(node.shape) // max(1, math.prod(s)) for s in shapes)
        return Terms(2 * len(op.signs), spread + 2)
    raise UnsupportedError(f"the strict check has no rounding analysis of {op.name} (node {node.name})")


def adjoint(node: Node, a: Tensor, shapes: list[ops.Shape]) -> tuple[Tensor, ...]:
    """`a @ L`, one tensor per input; `a`: `n x *shape`.

    Convolutions are written out as matrix products and plain sums: a library may choose transforms (Winograd, FFT),
    whose rounding is another matter, or, on a GPU, take one row after the other.
    """
    op = node.op
    assert isinstance(op, ops.Affine)
    return (_conv_adjoint(op, a, shapes[0]),) if isinstance(op, ops.Conv) else op.adjoint(a, shapes)


def _conv_adjoint(op: ops.Conv, a: Tensor, shape: ops.Shape) -> Tensor:
    """Output q meets the input at `stride q + dilation k - padding` through the kernel's entry k."""
    places = [n + 2 * p for n, p in zip(shape[1:], op.padding)]
    found = a.new_zeros(len(a), *places, shape[0])  # channels last, so that every entry is one matrix product
    count, per_group = math.prod(a.shape[2:]), len(op.weight) // op.groups
    rows = a.movedim(1, -1).reshape(len(a), count, op.groups, per_group).transpose(1, 2)
    for k in itertools.product(*map(range, op.weight.shape[2:])):
        entry = op.weight.movedim((0, 1), (-2, -1))[k].reshape(op.groups, per_group, op.weight.shape[1])
        part = (rows @ entry).transpose(1, 2).reshape(len(a), *a.shape[2:], shape[0])
        at = tuple(
            slice(d * i, d * i + s * (n - 1) + 1, s) for i, d, s, n in zip(k, op.dilation, op.stride, a.shape[2:])
        )
        found[(slice(None), *at)] += part
    inside = tuple(slice(p, p + n) for p, n in zip(op.padding, shape[1:]))
    return found[(slice(None), *inside)].movedim(-1, 1)


def offset(node: Node, shapes: list[ops.Shape], like: Tensor) -> tuple[Tensor, Tensor] | None:
    """`f(0)` and a bound on its error, each `1 x *shape`; None where it is zero."""
    op = node.op
    if isinstance(op, ops.Linear | ops.Conv) and op.bias is None:
        return None
    if not isinstance(op, ops.Linear | ops.Conv | ops.BatchNorm | ops.Shift | ops.Pad):
        return None
    zeros = [like.new_zeros(1, *s) for s in shapes]
    value = op(*zeros)
    error = torch.zeros_like(value)
    if isinstance(op, ops.BatchNorm):
        error = 16 * U * SAFE * size_of_offset(node, value) + 2 * ETA
    return value, error


def size_of_offset(node: Node, like: Tensor) -> Tensor:
    """The size of everything that is added besides `L x`, `1 x *shape`: what the forward pass rounds with it."""
    op = node.op
    if isinstance(op, ops.Linear | ops.Conv) and op.bias is not None:
        bias = op.bias.abs()
        return bias if isinstance(op, ops.Linear) else bias.reshape(1, -1, *[1] * (like.dim() - 2))
    if isinstance(op, ops.BatchNorm):
        size = op.mean.abs() * op.scale().abs()
        size = size if op.bias is None else size + op.bias.abs()
        return size.reshape(1, -1, *[1] * (like.dim() - 2))
    if isinstance(op, ops.Shift):
        return op.offset.abs()
    return like.new_zeros(())
