"""A network's values at a point without rounding: in fractions, or in balls of 2000 bits where those are not enough.

It shares nothing with the checker but the data structure. Values are numpy arrays of objects, one point at a time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from flint import arb, ctx
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Network

BITS = 2000
Number = Callable[[Any], Any]
MOVES = (ops.Reshape, ops.Transpose, ops.Slice, ops.Pad, ops.Concat)


def objects(number: Number, t: Tensor) -> np.ndarray:
    out = np.empty(t.numel(), dtype=object)
    out[:] = [number(v) for v in t.detach().double().flatten().tolist()]
    return out.reshape(tuple(t.shape))


def values(net: Network, x: Tensor, number: Number = Fraction) -> list[np.ndarray]:
    """Every node's value at `x` (`n`), flat; `number`: `Fraction`, or `arb` for curved activations."""
    before, ctx.prec = ctx.prec, BITS
    try:
        out = [objects(number, x.flatten())]
        for node in net.nodes[1:]:
            shapes = [net.nodes[j].shape for j in node.inputs]
            out.append(_apply(node.op, [out[j] for j in node.inputs], shapes, node.shape, number))
        return out
    finally:
        ctx.prec = before


def _apply(op: Any, xs: list[np.ndarray], shapes: list[tuple[int, ...]], shape: tuple[int, ...], number: Number) -> Any:
    x = xs[0]
    zero = number(0)

    def spread(v: np.ndarray, of: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(v.reshape(of), shape).flatten()

    if isinstance(op, MOVES):
        # Where each output comes from: the map applied to the numbers of the inputs, counted from 1.
        joined, at = np.concatenate([[number(float(getattr(op, "value", 0.0)))], *xs]), 1
        numbers = []
        for v, s in zip(xs, shapes):
            numbers.append(torch.arange(at, at + len(v), dtype=torch.float64).reshape(1, *s))
            at += len(v)
        return joined[without_offset(op)(*numbers).flatten().long().numpy()]
    if isinstance(op, ops.Linear):
        y = x.reshape(shapes[0]).dot(objects(number, op.weight).T)
        return (y if op.bias is None else y + objects(number, op.bias)).flatten()
    if isinstance(op, (ops.Conv, ops.AvgPool, ops.Mean)):
        found = without_offset(op)(torch.eye(len(x), dtype=torch.float64).reshape(-1, *shapes[0])).flatten(1)
        matrix = objects(number, found)
        if not isinstance(op, ops.Conv):  # one over a whole number
            matrix = np.vectorize(lambda v: number(1) / number(round(1 / float(v))) if v != 0 else zero, otypes="O")(
                matrix
            )
        y = x.dot(matrix).reshape(shape)
        if isinstance(op, ops.Conv) and op.bias is not None:
            y = y + objects(number, op.bias).reshape(-1, *[1] * (len(shape) - 1))
        return y.flatten()
    if isinstance(op, ops.BatchNorm):
        along = [-1, *[1] * (len(shape) - 1)]
        mean, inside = (objects(number, t).reshape(along) for t in (op.mean, op.var))
        root = np.vectorize(lambda v: v.sqrt(), otypes="O")(inside + number(op.eps))
        y = (x.reshape(shape) - mean) / root
        y = y if op.weight is None else y * objects(number, op.weight).reshape(along)
        return (y if op.bias is None else y + objects(number, op.bias).reshape(along)).flatten()
    if isinstance(op, (ops.Scale, ops.Divide, ops.Shift)):
        (constant,) = (np.broadcast_to(objects(number, t), shape).flatten() for t in op.tensors().values())
        y = spread(x, shapes[0])
        return (
            y * constant if isinstance(op, ops.Scale) else y / constant if isinstance(op, ops.Divide) else y + constant
        )
    if isinstance(op, ops.Add):
        rank = len(shape)
        parts = [spread(v, (1,) * (rank - len(s)) + s) * number(float(k)) for v, s, k in zip(xs, shapes, op.signs)]
        return sum(parts[1:], parts[0])
    if isinstance(op, ops.MaxPool):
        flat = x.reshape(shapes[0][0], -1)
        windows = [w.nonzero().flatten().tolist() for w in _seen(op, shapes[0][1:])]
        return np.array([_largest([c[i] for i in w]) for c in flat for w in windows], dtype=object)
    return _activation(op, x, shape, number)


def without_offset(op: ops.Operation) -> ops.Operation:
    """The linear part of an operation, whose forward pass it is: no bias, nothing but zeros for padding."""
    if isinstance(op, ops.Linear | ops.Conv):
        return dataclasses.replace(op, bias=None)
    return dataclasses.replace(op, value=0.0) if isinstance(op, ops.Pad) else op


def _seen(op: ops.MaxPool, spatial: tuple[int, ...]) -> Tensor:
    """Which places each output looks at, `outputs x places`: those where a one among zeros comes through."""
    ones = torch.eye(math.prod(spatial), dtype=torch.float64).reshape(-1, 1, *spatial)
    return (op(ones).flatten(1) == 1).T


def _largest(found: list[Any]) -> Any:
    best = found[0]
    for v in found[1:]:
        best = max(best, v) if isinstance(v, Fraction) else best.max(v)
    return best


def _activation(op: Any, x: np.ndarray, shape: tuple[int, ...], number: Number) -> np.ndarray:
    zero, one, two = number(0), number(1), number(2)

    def positive(v: Any) -> Any:
        return _largest([v, zero])

    slopes = np.full(len(x), None)
    if isinstance(op, ops.LeakyReLU):
        slopes = objects(number, torch.as_tensor(op.slope, dtype=torch.float64).expand(shape)).flatten()

    def of(v: Any, slope: Any) -> Any:
        match op:
            case ops.ReLU():
                return positive(v)
            case ops.LeakyReLU():
                return positive(v) - slope * positive(-v)
            case ops.Clip():
                v = v if op.low == -np.inf else _largest([v, number(op.low)])
                return v if op.high == np.inf else -_largest([-v, number(-op.high)])
            case ops.Sigmoid():
                return one / (one + (-v).exp())
            case ops.Tanh():
                return v.tanh()
            case ops.Arctan():
                return v.atan()
            case ops.ELU():
                return positive(v) + number(op.alpha) * (-positive(-v)).expm1()
            case ops.Softplus():
                return (number(op.beta) * v).exp().log1p() / number(op.beta)
            case ops.SiLU():
                return v / (one + (-v).exp())
            case ops.GELU(tanh=False):
                return v * (-v / two.sqrt()).erfc() / two
            case ops.GELU(tanh=True):
                inner = two * (two / arb.pi()).sqrt() * (v + number(0.044715) * v * v * v)
                return v / (one + (-inner).exp())
        raise NotImplementedError(op.name)

    return np.array([of(v, s) for v, s in zip(x, slopes)], dtype=object)


def activation(op: ops.Activation, x: float, bits: int = BITS) -> arb:
    """The activation at one number."""
    before, ctx.prec = ctx.prec, bits
    try:
        return _activation(op, np.array([arb(x)], dtype=object), (1,), arb)[0]
    finally:
        ctx.prec = before
