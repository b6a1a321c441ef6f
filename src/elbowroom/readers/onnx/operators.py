"""One function per ONNX operator: what it adds to the graph. Shapes are those of the model, at batch size 1.

Parameters are taken exactly as stored, and every rewriting here is the same function in real arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.operations import Shape
from elbowroom.readers.onnx import arithmetic as arithmetic
from elbowroom.readers.onnx import composites as composites
from elbowroom.readers.onnx import shapes as shapes
from elbowroom.readers.onnx.pooling import (
    average_pool,
    global_average_pool,
    global_max_pool,
    max_pool,
    spatial_axes,
    window_pads,
)
from elbowroom.readers.onnx.step import Cut, Step, Value, exact, inner
from elbowroom.readers.reading import refuse

# --- products with matrices


def _matmul(to: Step, x: Any, y: Any) -> Value:
    if not isinstance(x, np.ndarray) and not isinstance(y, np.ndarray):
        refuse("a product of two computed values")
    if isinstance(x, np.ndarray):
        return _matrix_times(to, x, y)
    matrix, m = _matrix(to, y if y.ndim > 1 else y[:, None], x.shape[-1:], -2)
    product = to.add(ops.Linear(matrix.T.contiguous()), to.view(x, inner(x.shape)))
    shape = (1,) * (y.ndim - max(len(x.shape), 2)) + x.shape[:-1]
    return Value(product, (*shape, m) if y.ndim > 1 else shape)


def _matrix_times(to: Step, x: np.ndarray, y: Value) -> Value:
    """The constant on the left: the product runs along the last axis but one of y, or its only axis."""
    lead, inside, columns = y.shape[:-2], y.shape[-2:][:1], y.shape[-2:][1:]
    matrix, m = _matrix(to, x if x.ndim > 1 else x[None], inside, -1)
    rows = (m,) if x.ndim > 1 else ()
    shape = (1,) * (x.ndim - max(len(y.shape), 2)) + lead + rows + columns
    lead = lead[1:] if lead[:1] == (1,) else lead
    if math.prod(columns) == 1:
        return Value(to.add(ops.Linear(matrix), to.view(y, lead + inside)), shape)
    turned = (*range(len(lead)), len(lead) + 1, len(lead))
    product = to.add(ops.Linear(matrix), to.add(ops.Transpose(turned), to.view(y, lead + inside + columns)))
    return Value(to.add(ops.Transpose(turned), product), shape)


def _matrix(to: Step, array: np.ndarray, inside: Shape, axis: int) -> tuple[Tensor, int]:
    """A constant matrix that meets an axis of size `inside` with its own `axis`, and the size of its other axis."""
    if math.prod(array.shape[:-2]) != 1:
        refuse("a product with a stack of matrices")
    array = array.reshape(array.shape[-2:])
    if array.shape[axis : axis + 1 or None] != inside:
        raise InputError(f"a matrix of shape {array.shape} does not fit an axis of size {', '.join(map(str, inside))}")
    return to.parameter(array), array.shape[-3 - axis]


def _gemm(to: Step, x: Any, y: Any, z: Any = None) -> Value:
    alpha, beta = to.real("alpha", 1.0), to.real("beta", 1.0)
    factors = [(x, to.integer("transA", 0)), (y, to.integer("transB", 0))]
    if any(len(v.shape) != 2 for v, _ in factors):
        raise InputError(f"it multiplies matrices, and is given shapes {x.shape} and {y.shape}")
    x, y = (shapes.turned(to, v, (1, 0)) if turn else v for v, turn in factors)
    product = _matmul(to, x, y)
    if alpha != 1:
        product = arithmetic.times(to, product, alpha)
    if z is None or beta == 0:
        return product
    if arithmetic.broadcast(product.shape, z.shape) != product.shape:
        raise InputError(f"what it adds has the shape {z.shape}, which does not fit the product's, {product.shape}")
    if not isinstance(z, np.ndarray):
        return arithmetic.added(to, [product, arithmetic.times(to, z, beta)], (1.0, 1.0))
    if beta == 1:
        return arithmetic.shifted(to, product, z, fresh=True)
    # beta z would have to be rounded; beta (product / beta + z) does not.
    divided = to.apply(ops.Divide(torch.tensor(beta)), product)
    return arithmetic.times(to, arithmetic.shifted(to, divided, z), beta)


def _conv(to: Step, x: Value, w: Any, b: Any = None) -> Value:
    weight = to.parameter(w)
    bias = None if b is None else to.parameter(b, "biases")
    channels, spatial = spatial_axes(x, weight.dim() - 2)
    kernel = tuple(weight.shape[2:])
    groups = to.integer("group", 1)
    if (to.integers("kernel_shape") or kernel) != kernel or weight.shape[1] * groups != channels:
        raise InputError(f"weights of shape {tuple(weight.shape)} do not fit an input of shape {x.shape}")
    strides, dilations, begins, ends = window_pads(to, spatial, kernel)
    if kernel == spatial and groups == 1 and not any(begins + ends) and max(dilations) == 1:
        number = to.add(ops.Linear(weight.flatten(1), bias), to.view(x, (channels * math.prod(spatial),)))
        return Value(number, (1, len(weight), *[1] * len(spatial)))
    padding = tuple(map(min, begins, ends))
    number = to.view(x, (channels, *spatial))
    if begins != ends:
        extra = [n for b, e, p in zip(begins, ends, padding) for n in (e - p, b - p)]
        number = to.add(ops.Pad(tuple(reversed(extra))), number)
    number = to.add(ops.Conv(weight, bias, strides, padding, dilations, groups), number)
    return Value(number, (1, *to.build.shape(number)))


def _batch_norm(to: Step, x: Value, scale: Any, bias: Any, mean: Any, var: Any) -> Value:
    to.ignore("momentum")
    if to.integer("training_mode", 0) or sum(map(bool, to.node.output)) > 1:
        refuse("it is in training mode, where it depends on the whole batch; export the model in eval mode")
    if not to.integer("spatial", 1):
        refuse("its statistics are per position (spatial = 0)")
    eps = to.real("epsilon", 1e-5)
    if len(x.shape) < 2 or x.shape[0] != 1:
        refuse(f"its input has the shape {x.shape}, without a batch axis of size 1")
    mean, var, scale, bias = (to.parameter(v) for v in (mean, var, scale, bias))
    number = x.number if to.build.shape(x.number)[:1] == x.shape[1:2] else to.view(x, x.shape[1:])
    return Value(to.add(ops.BatchNorm(mean, var, scale, bias, eps), number), x.shape)


# --- activations


def _activation(op: ops.Operation) -> Callable[[Step, Value], Value]:
    return lambda to, x: to.apply(op, x)


def _leaky_relu(to: Step, x: Value) -> Value:
    return to.apply(ops.LeakyReLU(to.real("alpha", 0.01)), x)


def _prelu(to: Step, x: Value, slope: Any) -> Value:
    number, slopes, shape = arithmetic.aligned(to, x, slope)
    if shape != x.shape:
        raise InputError(f"slopes of shape {slope.shape} do not fit {x.shape}")
    return Value(to.add(ops.LeakyReLU(slopes), number), shape)


def _hard_sigmoid(to: Step, x: Value) -> Value:
    steep = arithmetic.times(to, x, to.real("alpha", 0.2))
    return to.apply(ops.Clip(0.0, 1.0), arithmetic.shifted(to, steep, exact(to.real("beta", 0.5))))


def _elu(to: Step, x: Value) -> Value:
    return to.apply(ops.ELU(to.real("alpha", 1.0)), x)


def _selu(to: Step, x: Value) -> Value:
    gamma = to.real("gamma", 1.0507009873554804934193349852946)
    return arithmetic.times(to, to.apply(ops.ELU(to.real("alpha", 1.6732632423543772848170429916717)), x), gamma)


def _celu(to: Step, x: Value) -> Value:
    alpha = to.real("alpha", 1.0)
    if not alpha > 0:
        refuse(f"alpha = {alpha} is not positive")
    inside = x if alpha == 1 else to.apply(ops.Divide(torch.tensor(alpha)), x)
    return arithmetic.times(to, to.apply(ops.ELU(), inside), alpha)


def _gelu(to: Step, x: Value) -> Value:
    form = to.text("approximate", "none")
    if form not in ("none", "tanh"):
        refuse(f"the approximation {form!r} is unknown")
    return to.apply(ops.GELU(form == "tanh"), x)


def _swish(to: Step, x: Value) -> Value:
    alpha = to.real("alpha", 1.0)
    if alpha == 0:
        return arithmetic.times(to, x, 0.5)
    found = to.apply(ops.SiLU(), arithmetic.times(to, x, alpha))
    return found if alpha == 1 else to.apply(ops.Divide(torch.tensor(alpha)), found)


def _clip(to: Step, x: Value, low: Any = None, high: Any = None) -> Value:
    ends = []
    for name, given, default in (("min", low, -math.inf), ("max", high, math.inf)):
        limit = torch.tensor(to.real(name, default)) if given is None else to.parameter(given, "limits")
        if limit.numel() != 1:
            refuse(f"limits of shape {tuple(limit.shape)}; only numbers are supported")
        # The largest number of a type stands for no limit.
        ends.append(default if limit * math.copysign(1, default) >= torch.finfo(limit.dtype).max else float(limit))
    return _clipped(to, x, *ends)


def _clipped(to: Step, x: Value, low: float, high: float) -> Value:
    if (low, high) == (-math.inf, math.inf):
        return x
    if not low < high:
        refuse(f"it clips to [{low}, {high}], which is not an interval")
    return to.apply(ops.ReLU() if (low, high) == (0, math.inf) else ops.Clip(low, high), x)


def _extreme(largest: bool) -> Callable[..., Value]:
    """The larger, or the smaller, of a value and numbers."""

    def handler(to: Step, *values: Any) -> Value:
        computed = [v for v in values if not isinstance(v, np.ndarray)]
        numbers = [v for v in values if isinstance(v, np.ndarray)]
        if len(computed) != 1 or any(v.size != 1 for v in numbers):
            refuse("only the larger or smaller of one computed value and a number is supported")
        x: Value = computed[0]
        for number in numbers:
            limit = float(to.parameter(number, "numbers").reshape(()))
            x = _clipped(to, x, *((limit, math.inf) if largest else (-math.inf, limit)))
            x = replace(x, shape=arithmetic.broadcast(x.shape, number.shape))
        return x

    return handler


# --- what is left off at the end


def _softmax(to: Step, x: Value) -> Value:
    axis = to.axis(to.integer("axis", -1 if to.opset >= 13 else 1), len(x.shape))
    over = x.shape[axis : axis + 1] if to.opset >= 13 else x.shape[axis:]  # old opsets flatten what follows
    if math.prod(over) != math.prod(x.shape):
        refuse(f"it runs over a part of its input only, {over} of {x.shape}")
    _refuse_alone(x)
    return replace(x, cut=Cut((to.place,), to.node.input[0]))


def _refuse_alone(x: Value) -> None:
    if math.prod(x.shape) == 1:
        refuse("it is taken of one number, which leaves nothing to decide; is it meant to be a sigmoid?")


def _arg_max(to: Step, x: Value) -> Value:
    to.ignore("select_last_index", "keepdims")
    axis = to.axis(to.integer("axis", 0), len(x.shape))
    if x.shape[axis] != math.prod(x.shape):
        refuse(f"it runs over a part of its input only, {x.shape[axis : axis + 1]} of {x.shape}")
    _refuse_alone(x)
    return replace(x, cut=_further(to, x, label=True))


def _zip_map(to: Step, x: Value) -> Value:
    """Class names with their probabilities, of the operators for classical machine learning."""
    texts, numbers = to.texts("classlabels_strings"), to.integers("classlabels_int64s")
    names = texts or tuple(map(str, numbers or ()))
    fits = len(set(names)) == len(names) == math.prod(x.shape)
    return replace(x, cut=_further(to, x, classes=names if fits else None))


def _further(to: Step, x: Value, **changes: Any) -> Cut:
    cut = Cut((), to.node.input[0]) if x.cut is None else x.cut
    return replace(cut, places=(*cut.places, to.place), **changes)


Handler = Callable[..., Any]
ML = "ai.onnx.ml"

HANDLERS: dict[tuple[str, str], Handler] = {
    ("", "Add"): arithmetic.sum_of_two,
    ("", "Sub"): lambda to, x, y: arithmetic.sum_of_two(to, x, y, -1),
    ("", "Sum"): arithmetic.sum_of_all,
    ("", "Mul"): arithmetic.product,
    ("", "Div"): arithmetic.quotient,
    ("", "Neg"): arithmetic.negative,
    ("", "Pow"): composites.power,
    ("", "MatMul"): _matmul,
    ("", "Gemm"): _gemm,
    ("", "Conv"): _conv,
    ("", "BatchNormalization"): _batch_norm,
    ("", "Relu"): _activation(ops.ReLU()),
    ("", "LeakyRelu"): _leaky_relu,
    ("", "PRelu"): _prelu,
    ("", "Abs"): _activation(ops.LeakyReLU(-1.0)),
    ("", "Sigmoid"): _activation(ops.Sigmoid()),
    ("", "HardSigmoid"): _hard_sigmoid,
    ("", "Tanh"): composites.tanh,
    ("", "Atan"): _activation(ops.Arctan()),
    ("", "Elu"): _elu,
    ("", "Selu"): _selu,
    ("", "Celu"): _celu,
    ("", "Softplus"): _activation(ops.Softplus()),
    ("", "Gelu"): _gelu,
    ("", "Erf"): composites.erf,
    ("", "Swish"): _swish,
    ("", "Clip"): _clip,
    ("", "Max"): _extreme(largest=True),
    ("", "Min"): _extreme(largest=False),
    ("", "MaxPool"): max_pool,
    ("", "AveragePool"): average_pool,
    ("", "GlobalMaxPool"): global_max_pool,
    ("", "GlobalAveragePool"): global_average_pool,
    ("", "Identity"): shapes.same,
    ("", "Dropout"): shapes.dropout,
    ("", "Cast"): shapes.cast,
    ("", "Reshape"): shapes.reshape,
    ("", "Flatten"): shapes.flatten,
    ("", "Squeeze"): shapes.squeeze,
    ("", "Unsqueeze"): shapes.unsqueeze,
    ("", "Transpose"): shapes.transpose,
    ("", "Slice"): shapes.slice_along,
    ("", "Gather"): shapes.gather,
    ("", "Split"): shapes.split,
    ("", "Concat"): shapes.concat,
    ("", "Pad"): shapes.pad,
    ("", "ReduceMean"): shapes.reduce_mean,
    ("", "ReduceSum"): shapes.reduce_sum,
    ("", "Expand"): shapes.expand,
    ("", "Tile"): shapes.tile,
    ("", "Softmax"): _softmax,
    ("", "LogSoftmax"): _softmax,
    ("", "ArgMax"): _arg_max,
    (ML, "Scaler"): arithmetic.scaler,
    (ML, "ZipMap"): _zip_map,
}

_RECURRENT = "recurrent networks are not supported"
_QUANTISED = "quantised networks are not supported; export the model before it is quantised"
_FLOW = "what is computed depends on a condition or a loop"
_RANDOM = "draws random numbers"
_TREES = (
    "decision trees jump from leaf to leaf, and there is no network in them to bound; export a linear model or an MLP"
)
_KERNEL = "a kernel compares each input with stored ones, which has no bound here; export a linear model or an MLP"

REASONS: dict[str, str] = {
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _RECURRENT),
    **dict.fromkeys(
        ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger",
         "MatMulInteger"), _QUANTISED
    ),
    **dict.fromkeys(("If", "Loop", "Scan"), _FLOW),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"), _RANDOM
    ),
    **dict.fromkeys(("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble"), _TREES),
    **dict.fromkeys(("SVMClassifier", "SVMRegressor"), _KERNEL),
    "ArgMin": "leave it off and read the model with the decision min",
    "ConvTranspose": "transposed convolutions are not supported",
    "LayerNormalization": "it divides by what it computes from the input",
    "InstanceNormalization": "it divides by what it computes from the input",
    "GroupNormalization": "it divides by what it computes from the input",
}  # fmt: skip

# What may take a formula that is no value yet, whole numbers, or what follows an operation left off at the end.
TAKES_FORMULA = {"Add", "Sub", "Mul", "Div", "Neg", "Tanh", "Identity", "Cast"}
TAKES_WHOLE = {
    "Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Split", "Concat",
}  # fmt: skip
AFTER_CUT = {"Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "ArgMax", "ZipMap"}
