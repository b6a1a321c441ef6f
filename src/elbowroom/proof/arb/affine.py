"""Affine operations as matrices of their exact coefficients, read off the forward pass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Network, Node
from elbowroom.proof.arb.balls import Balls, as_balls, flint, matrix_of, rows_of


class Layer(NamedTuple):
    """`sum_j matrices[j] x_j + offset`: the exact coefficients of an affine operation, in balls."""

    matrices: list[Any]
    offset: Balls


def single_entries(matrix: Any) -> tuple[bool, bool]:
    """Whether no row, and whether no column, has two entries that are not zero."""
    filled = [[k for k, v in enumerate(row) if not v.is_zero()] for row in rows_of(matrix)]
    columns = [k for row in filled for k in row]
    return all(len(row) < 2 for row in filled), len(set(columns)) == len(columns)


def layer_of(net: Network, node: Node) -> Layer | None:
    if type(node.op) not in AFFINE:
        return None
    shapes = [net.nodes[j].shape for j in node.inputs]
    return AFFINE[type(node.op)](node.op.map_tensors(lambda t: t.detach().double().cpu()), node.shape, shapes)


def _products(op: Any, shape: ops.Shape, shapes: Sequence[ops.Shape]) -> Layer:
    """Linear and Conv: without their bias, one-hot inputs give the weights themselves."""
    entries = _transposed(_one_hot(dataclasses.replace(op, bias=None), shapes, 0))
    bias = torch.zeros(1, dtype=torch.float64) if op.bias is None else op.bias
    spread = bias.reshape(-1, *[1] * (len(shape) - 1)) if type(op) is ops.Conv else bias
    return Layer([matrix_of(entries)], as_balls(spread.expand(shape)))


def _addition(op: Any, shape: ops.Shape, shapes: Sequence[ops.Shape]) -> Layer:
    arb, ones = flint().arb, ops.Add(tuple(1.0 for _ in op.signs))
    matrices = [matrix_of(_transposed(_one_hot(ones, shapes, j))) * arb(float(s)) for j, s in enumerate(op.signs)]
    return Layer(matrices, [arb(0)] * math.prod(shape))


def _move(op: Any, shape: ops.Shape, shapes: Sequence[ops.Shape]) -> Layer:
    plain = dataclasses.replace(op, value=0.0) if type(op) is ops.Pad else op
    matrices = [matrix_of(_transposed(_one_hot(plain, shapes, j))) for j in range(len(shapes))]
    return Layer(matrices, as_balls(op(*(torch.zeros(1, *s, dtype=torch.float64) for s in shapes))))


def _average(op: Any, shape: ops.Shape, shapes: Sequence[ops.Shape]) -> Layer:
    arb, found = flint().arb, _one_hot(op, shapes, 0)
    # Each coefficient is one over a whole number of entries.
    exact = {v: arb(1) / round(1 / v) if v else arb(0) for v in {v for row in found for v in row.tolist()}}
    return Layer([matrix_of([[exact[v] for v in row] for row in found.T.tolist()])], [arb(0)] * math.prod(shape))


def _entrywise(op: Any, shape: ops.Shape, shapes: Sequence[ops.Shape]) -> Layer:
    """Scale, Divide, Shift and BatchNorm: a factor and a summand for every output, and the entry that it reads."""
    factor, added = _pointwise(op, shape)
    source = torch.arange(math.prod(shapes[0])).reshape(shapes[0]).expand(shape).flatten().tolist()
    zero = flint().arb(0)
    entries = [[zero] * math.prod(shapes[0]) for _ in source]
    for i, j in enumerate(source):
        entries[i][j] = factor[i]
    return Layer([matrix_of(entries)], added)


AFFINE: dict[type[ops.Operation], Callable[[Any, ops.Shape, Sequence[ops.Shape]], Layer]] = {
    **dict.fromkeys((ops.Linear, ops.Conv), _products),
    ops.Add: _addition,
    **dict.fromkeys((ops.Reshape, ops.Transpose, ops.Slice, ops.Pad, ops.Concat), _move),
    **dict.fromkeys((ops.AvgPool, ops.Mean), _average),
    **dict.fromkeys((ops.Scale, ops.Divide, ops.Shift, ops.BatchNorm), _entrywise),
}


def _one_hot(op: Any, shapes: Sequence[ops.Shape], j: int) -> Tensor:
    """An operation without an offset applied to every one-hot vector of input j, the others zero: `in x out`."""
    size = math.prod(shapes[j])
    given = [torch.zeros(size, *s, dtype=torch.float64) for s in shapes]
    given[j] = torch.eye(size, dtype=torch.float64).reshape(size, *shapes[j])
    found: Tensor = op(*given)
    return found.flatten(1)


def _transposed(t: Tensor) -> list[Balls]:
    arb = flint().arb
    return [[arb(v) for v in row] for row in t.T.tolist()]


def _pointwise(op: Any, shape: ops.Shape) -> tuple[Balls, Balls]:
    """Factor and summand of every entry of the output."""
    arb = flint().arb
    count = math.prod(shape)
    if isinstance(op, ops.BatchNorm):
        along = [-1, *[1] * (len(shape) - 1)]

        def of(t: Tensor | None, default: float) -> Balls:
            given = torch.full_like(op.mean, default) if t is None else t
            return as_balls(given.reshape(along).expand(shape))

        scale = [w / (v + arb(op.eps)).sqrt() for w, v in zip(of(op.weight, 1.0), of(op.var, 0.0))]
        return scale, [c - m * s for c, m, s in zip(of(op.bias, 0.0), of(op.mean, 0.0), scale)]
    (constant,) = (as_balls(t.expand(shape)) for t in op.tensors().values())
    if isinstance(op, ops.Shift):
        return [arb(1)] * count, constant
    return (constant if isinstance(op, ops.Scale) else [1 / c for c in constant]), [arb(0)] * count
