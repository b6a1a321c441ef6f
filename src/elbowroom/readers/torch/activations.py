"""ATen's activations, and functions that are written with one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.operations import Operation
from elbowroom.readers.reading import refuse
from elbowroom.readers.torch.arithmetic import combine, div, mul
from elbowroom.readers.torch.step import At, Step, fixed


def activation(op: Operation) -> Callable[..., At]:
    return lambda to, x: to.add(op, x)


def prelu(to: Step, x: At, weight: Tensor) -> At:
    fixed(weight)
    shape = () if weight.numel() == 1 else (-1, *[1] * (len(x.shape) - 1))
    return to.add(ops.LeakyReLU(weight.reshape(shape)), x)


def elu(to: Step, x: At, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> At:
    if input_scale != 1 or not alpha > 0:
        refuse("ELU is supported with alpha > 0 and input_scale 1")
    y = to.add(ops.ELU(to.number(alpha)), x)
    return y if scale == 1 else to.add(ops.Scale(to.constant(scale, y)), y)


def selu(to: Step, x: At) -> At:
    return elu(to, x, 1.6732632423543772, 1.0507009873554805)  # the numbers that define it


def celu(to: Step, x: At, alpha: float = 1) -> At:
    if not alpha > 0:
        refuse("CELU is supported with alpha > 0")
    return mul(to, to.add(ops.ELU(1.0), div(to, x, alpha)), alpha)


def hardsigmoid(to: Step, x: At) -> At:
    return div(to, to.add(ops.Clip(0.0, 6.0), combine(to, x, 3, 1, 1)), 6)


def log_sigmoid(to: Step, x: At) -> At:
    return mul(to, to.add(ops.Softplus(), mul(to, x, -1)), -1)


def maximum(to: Step, x: Any, y: Any) -> At:
    """`y + relu(x - y)`."""
    return combine(to, to.add(ops.ReLU(), combine(to, x, y, 1, -1)), y, 1, 1)


def minimum(to: Step, x: Any, y: Any) -> At:
    """`y - relu(y - x)`."""
    return combine(to, to.add(ops.ReLU(), combine(to, x, y, -1, 1)), y, -1, 1)


def abs_(to: Step, x: At) -> At:
    return combine(to, to.add(ops.ReLU(), x), to.add(ops.ReLU(), mul(to, x, -1)), 1, 1)


def softplus(to: Step, x: At, beta: float = 1, threshold: float = 20) -> At:
    if threshold < 20 or not beta > 0:
        refuse("Softplus is supported with beta > 0 and a threshold of at least 20, torch's own (below, it jumps)")
    return to.add(ops.Softplus(to.number(beta)), x)


def clip(to: Step, x: At, low: float | None = None, high: float | None = None) -> At:
    low = -math.inf if low is None else to.number(low)
    high = math.inf if high is None else to.number(high)
    if not low < high:
        refuse(f"clips to [{low}, {high}], which is not an interval")
    return to.add(ops.ReLU() if (low, high) == (0, math.inf) else ops.Clip(low, high), x)
