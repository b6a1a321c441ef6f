"""ATen's affine operations: products, convolutions, sums, averages."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.readers.reading import refuse
from elbowroom.readers.torch.step import At, Step, axis_of, each, fixed


def linear(to: Step, x: At, weight: Tensor, bias: Tensor | None = None) -> At:
    fixed(weight, bias)
    if weight.dim() == 1:  # one output, whose axis torch drops
        return to.add(ops.Reshape(to.shape), to.add(ops.Linear(weight[None], _one(bias)), x))
    return to.add(ops.Linear(weight, bias), x)


def _one(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.reshape(1)


def matmul(to: Step, x: Any, y: Any) -> At:
    if isinstance(x, At) and isinstance(y, At):
        refuse("a product of two computed values")
    if isinstance(x, At) and y.dim() <= 2:
        return linear(to, x, y.t())
    if isinstance(y, At) and x.dim() == 2 and len(y.shape) >= 2:  # along the last axis but one
        axes = (*range(len(y.shape) - 2), len(y.shape) - 1, len(y.shape) - 2)
        product = to.add(ops.Linear(x), to.add(ops.Transpose(axes), y))
        return to.add(ops.Transpose(axes), product)
    return refuse("a product with a stack of matrices, or one that mixes the batch")


def addmm(to: Step, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> At:
    if (beta, alpha) != (1, 1):
        refuse(f"beta = {beta} and alpha = {alpha} other than 1")
    if isinstance(bias, Tensor) and isinstance(y, Tensor) and bias.shape == y.shape[1:]:
        return linear(to, x, y.t(), bias)
    return combine(to, matmul(to, x, y), bias, 1, 1)


def conv(
    to: Step,
    x: At,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = (1,),
    padding: Any = (0,),
    dilation: Any = (1,),
    groups: int = 1,
) -> At:
    fixed(weight, bias)
    dims = weight.dim() - 2
    if len(x.shape) != dims + 1:
        refuse("its input has no batch axis")
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(each(dilation, dims), weight.shape[2:])]
        padding = [n // 2 for n in total]
        extra = [n % 2 for n in total]  # torch puts an odd one at the end
        if any(extra):
            x = to.add(ops.Pad(tuple(v for e in reversed(extra) for v in (0, e))), x)
    elif padding == "valid":
        padding = (0,)
    conv = ops.Conv(weight, bias, tuple(stride), tuple(padding), tuple(dilation), groups)
    return to.add(conv, x)


def convolution(
    to: Step,
    x: At,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> At:
    if transposed:
        refuse("a transposed convolution")
    return conv(to, x, weight, bias, stride, padding, dilation, groups)


def batch_norm(
    to: Step, x: At, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[At, None, None]:
    fixed(weight, bias, mean, var)
    return to.add(ops.BatchNorm(mean, var, weight, bias, eps), x), None, None


def batch_norm_in_use(
    to: Step, x: At, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool, momentum: float, eps: float,
    cudnn: bool,
) -> At:  # fmt: skip
    """As torch.export gives it before it is decomposed."""
    if training:  # see `trace.is_read`
        refuse("batch norm as it is in training depends on the batch")
    return batch_norm(to, x, weight, bias, mean, var, momentum, eps)[0]


def combine(to: Step, x: Any, y: Any, a: float, b: float) -> At:
    """`a x + b y`, either of which may be constant."""
    if isinstance(x, At) and isinstance(y, At):
        if len(x.shape) != len(y.shape):
            refuse(f"a sum of values of shapes {x.shape} and {y.shape} mixes the batch")
        return to.add(ops.Add((to.number(a), to.number(b))), x, y)
    if not isinstance(x, At):
        x, y, a, b = y, x, b, a
    if a != 1:
        x = to.add(ops.Scale(to.constant(a, x)), x)
    offset = to.constant(y, x)
    if b == 0 or (abs(math.frexp(b)[0]) == 0.5 and torch.equal(offset * b / b, offset)):
        return to.add(ops.Shift(offset * b), x)  # nothing is rounded
    # No floating-point number need be the product b y: the same as (x / b + y) b.
    factor = to.constant(b, x)
    return to.add(ops.Scale(factor), to.add(ops.Shift(offset), to.add(ops.Divide(factor), x)))


def mul(to: Step, x: Any, y: Any) -> At:
    if isinstance(x, At) and isinstance(y, At):
        refuse("a product of two computed values")
    x, y = (x, y) if isinstance(x, At) else (y, x)
    return to.add(ops.Scale(to.constant(y, x)), x)


def div(to: Step, x: Any, y: Any) -> At:
    if isinstance(y, At):
        refuse("a division by a computed value")
    return to.add(ops.Divide(to.constant(y, x)), x)


def mean(to: Step, x: At, dims: Any = (), keepdim: bool = False, *, dtype: Any = None) -> At:
    return to.add(ops.Mean(tuple(axis_of(x, d) for d in dims), keepdim), x)


def sum_(to: Step, x: At, dims: Any = (), keepdim: bool = False, *, dtype: Any = None) -> At:
    axes = tuple(axis_of(x, d) for d in dims)
    count = math.prod(x.shape[d] for d in axes)
    mean = to.add(ops.Mean(axes, keepdim), x)
    return to.add(ops.Scale(to.constant(count, mean)), mean)
