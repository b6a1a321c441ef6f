"""ONNX's operators on numbers one by one, where constants meet values: sums, products, quotients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.operations import Shape
from elbowroom.readers.onnx import composites as composites
from elbowroom.readers.onnx.composites import Formula
from elbowroom.readers.onnx.step import Lost, LostError, Step, Value, exact, inner
from elbowroom.readers.reading import refuse


def broadcast(*shapes: Shape) -> Shape:
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise InputError(f"shapes {' and '.join(map(str, shapes))} do not broadcast") from None


def aligned(to: Step, x: Value, constant: Any) -> tuple[int, Tensor, Shape]:
    """A value and a constant in shapes in which they broadcast as in the model, and the shape they broadcast to."""
    array = to.constant(constant, "constants")
    parameter, shape = to.parameter(array, "constants"), broadcast(x.shape, array.shape)
    if array.size == 1:
        return x.number, parameter.reshape(()), shape
    own = (1,) * (len(shape) - len(x.shape)) + x.shape
    other = (1,) * (len(shape) - array.ndim) + array.shape
    if inner(shape) != shape:  # without the batch axis, which both have with size 1
        own, other = own[1:], other[1:]
    return to.view(x, own), parameter.reshape(other), shape


def shifted(to: Step, x: Value, constant: Any, fresh: bool = False) -> Value:
    """`x + constant`; `fresh`: nobody else uses x, so a product with a matrix can take the constant as its bias."""
    number, offset, shape = aligned(to, x, constant)
    if shape == x.shape and not bool(offset.any()):
        return Value(x.number, shape)
    op = to.build.op(x.number)
    if fresh and shape == x.shape and isinstance(op, ops.Linear) and op.bias is None:
        width = op.weight.shape[:1]
        if offset.shape[-1:] == x.shape[-1:] == width == (offset.numel(),):
            source = to.build.graph.nodes[x.number].inputs[0]
            return Value(to.add(ops.Linear(op.weight, offset.reshape(-1)), source), shape)
    return Value(to.add(ops.Shift(offset), number), shape)


def scaled(to: Step, x: Value, constant: Any) -> Value:
    number, factor, shape = aligned(to, x, constant)
    if shape == x.shape and bool((factor == 1).all()):
        return Value(x.number, shape)
    return Value(to.add(ops.Scale(factor), number), shape)


def times(to: Step, x: Value, factor: float) -> Value:
    return scaled(to, x, exact(factor))


def _settled(to: Step, *values: Any) -> list[Any]:
    return [composites.settle(v, to.build, to.notes) for v in values]


def sum_of_two(to: Step, x: Any, y: Any, sign: int = 1) -> Value | Formula:
    """`x + sign y`, one of which may be constant."""
    formula = composites.total(to, x, y, sign)
    if formula is not None:
        return formula
    x, y = _settled(to, x, y)
    if isinstance(y, np.ndarray):
        return shifted(to, x, y if sign > 0 else np.asarray(-y), to.single(to.node.input[0]))
    if isinstance(x, np.ndarray):
        fresh = sign > 0 and to.single(to.node.input[1])
        return shifted(to, y if sign > 0 else times(to, y, -1), x, fresh)
    return added(to, [x, y], (1.0, float(sign)))


def added(to: Step, values: Sequence[Value], signs: tuple[float, ...]) -> Value:
    shape = broadcast(*(v.shape for v in values))
    numbers = [v.number for v in values]
    if len({(v.shape, to.build.shape(v.number)) for v in values}) > 1:
        own = [(1,) * (len(shape) - len(v.shape)) + v.shape for v in values]
        lead = len(shape) - len(inner(shape))
        numbers = [to.view(v, s[lead:]) for v, s in zip(values, own)]
    return Value(to.add(ops.Add(signs), *numbers), shape)


def sum_of_all(to: Step, *values: Any) -> Value:
    computed = [v for v in values if not isinstance(v, np.ndarray)]
    total = computed[0] if len(computed) == 1 else added(to, computed, (1.0,) * len(computed))
    for constant in values:
        if isinstance(constant, np.ndarray):
            total = shifted(to, total, constant)
    return total


def product(to: Step, x: Any, y: Any) -> Value | Formula:
    constant = isinstance(x, np.ndarray) or isinstance(y, np.ndarray)
    if isinstance(x, Lost) or isinstance(y, Lost):
        raise LostError
    if not constant or isinstance(x, Formula) or isinstance(y, Formula):
        formula = composites.product(to, x, y)
        if formula is not None:
            return formula
        x, y = _settled(to, x, y)
    if not constant:
        refuse(composites.PRODUCT)
    return scaled(to, y, x) if isinstance(x, np.ndarray) else scaled(to, x, y)


def quotient(to: Step, x: Any, y: Any) -> Value | Formula:
    if not isinstance(y, np.ndarray):
        refuse("a division by a computed value")
    if isinstance(x, Formula):
        formula = composites.product(to, x, y, inverse=True)
        if formula is not None:
            return formula
        (x,) = _settled(to, x)
    number, divisor, shape = aligned(to, x, y)
    return Value(to.add(ops.Divide(divisor), number), shape)


def negative(to: Step, x: Any) -> Value | Formula:
    return product(to, x, exact(-1))


def scaler(to: Step, x: Value) -> Value:
    """`(x - offset) * scale`, of the operators for classical machine learning."""
    offset, scale = to.reals("offset"), to.reals("scale")
    if offset is not None:
        x = shifted(to, x, -offset)
    return x if scale is None else scaled(to, x, scale)
