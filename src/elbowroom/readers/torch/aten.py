"""ATen's operations as this package's, one row of a table each.

ATen counts the batch as axis 0 and the graph leaves it out. A handler is called with the operation's own arguments, in
which an `At` stands for a value computed from the network's input, and everything else is a constant.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph
from elbowroom.network.operations import Operation, Shape
from elbowroom.readers.reading import RefusalError, exactly, refuse

aten = torch.ops.aten


@dataclass(frozen=True)
class At:
    """A value computed from the input: its node in the graph, its shape without the batch axis."""

    number: int
    shape: Shape


@dataclass(frozen=True)
class Step:
    """What a handler sees: the ATen node it translates, and the graph it adds to.

    `exact`: constants are kept as they are, where they would be rounded to the result's type otherwise; nodes whose
    constants were changed thereby go into `rounded`.
    """

    graph: Graph
    node: fx.Node
    name: str
    exact: bool
    rounded: set[fx.Node]

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.node.meta["val"].dtype
        return dtype

    @property
    def shape(self) -> Shape:
        """The output's shape without the batch axis, which `Translation` has checked to be there; a single number
        has an axis of size 1 in the graph."""
        return tuple(self.node.meta["val"].shape[1:]) or (1,)

    def add(self, op: Operation, *xs: Any) -> At:
        if not all(isinstance(x, At) for x in xs):
            refuse("one of its inputs is a constant where a computed value is expected")
        number = self.graph.add(op, *(x.number for x in xs), name=self.name)
        return At(number, self.graph.nodes[number].shape)

    def constant(self, value: Any, x: At) -> Tensor:
        """A constant that meets `x` element by element, without the batch axis."""
        _fixed(value)
        given = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        stored = exactly(given, self.dtype) if self.exact else given.to(self.dtype)
        if not torch.equal(stored.double(), given.double()):
            self.rounded.add(self.node)
        if stored.dim() <= len(x.shape):
            return stored
        if stored.dim() > len(x.shape) + 1 or stored.shape[0] != 1:
            refuse(f"a constant of shape {tuple(stored.shape)} reaches into the batch axis")
        return stored[0]

    def number(self, value: Any) -> float:
        """A number among an operation's own: rounded, or not, by the same rule as constants."""
        given = float(value)
        found = given if self.exact else float(torch.tensor(given, dtype=torch.float64).to(self.dtype))
        if found != given:
            self.rounded.add(self.node)
        return found


def _fixed(*values: Any) -> None:
    """Weights have to be constants."""
    if any(isinstance(v, At) for v in values):
        refuse("its weights are computed from the input")


# --- affine operations ---


def _linear(to: Step, x: At, weight: Tensor, bias: Tensor | None = None) -> At:
    _fixed(weight, bias)
    if weight.dim() == 1:  # one output, whose axis torch drops
        return to.add(ops.Reshape(to.shape), to.add(ops.Linear(weight[None], _one(bias)), x))
    return to.add(ops.Linear(weight, bias), x)


def _one(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.reshape(1)


def _matmul(to: Step, x: Any, y: Any) -> At:
    if isinstance(x, At) and isinstance(y, At):
        refuse("a product of two computed values")
    if isinstance(x, At) and y.dim() <= 2:
        return _linear(to, x, y.t())
    if isinstance(y, At) and x.dim() == 2 and len(y.shape) >= 2:  # along the last axis but one
        axes = (*range(len(y.shape) - 2), len(y.shape) - 1, len(y.shape) - 2)
        product = to.add(ops.Linear(x), to.add(ops.Transpose(axes), y))
        return to.add(ops.Transpose(axes), product)
    return refuse("a product with a stack of matrices, or one that mixes the batch")


def _addmm(to: Step, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> At:
    if (beta, alpha) != (1, 1):
        refuse(f"beta = {beta} and alpha = {alpha} other than 1")
    if isinstance(bias, Tensor) and isinstance(y, Tensor) and bias.shape == y.shape[1:]:
        return _linear(to, x, y.t(), bias)
    return _combine(to, _matmul(to, x, y), bias, 1, 1)


def _conv(
    to: Step,
    x: At,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = (1,),
    padding: Any = (0,),
    dilation: Any = (1,),
    groups: int = 1,
) -> At:
    _fixed(weight, bias)
    dims = weight.dim() - 2
    if len(x.shape) != dims + 1:
        refuse("its input has no batch axis")
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(_each(dilation, dims), weight.shape[2:])]
        padding = [n // 2 for n in total]
        extra = [n % 2 for n in total]  # torch puts an odd one at the end
        if any(extra):
            x = to.add(ops.Pad(tuple(v for e in reversed(extra) for v in (0, e))), x)
    elif padding == "valid":
        padding = (0,)
    conv = ops.Conv(weight, bias, tuple(stride), tuple(padding), tuple(dilation), groups)
    return to.add(conv, x)


def _each(value: Any, n: int) -> Shape:
    return tuple(value) * n if len(value) == 1 else tuple(value)


def _convolution(
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
    return _conv(to, x, weight, bias, stride, padding, dilation, groups)


def _batch_norm(
    to: Step, x: At, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[At, None, None]:
    _fixed(weight, bias, mean, var)
    return to.add(ops.BatchNorm(mean, var, weight, bias, eps), x), None, None


def _combine(to: Step, x: Any, y: Any, a: float, b: float) -> At:
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


def _mul(to: Step, x: Any, y: Any) -> At:
    if isinstance(x, At) and isinstance(y, At):
        refuse("a product of two computed values")
    x, y = (x, y) if isinstance(x, At) else (y, x)
    return to.add(ops.Scale(to.constant(y, x)), x)


def _div(to: Step, x: Any, y: Any) -> At:
    if isinstance(y, At):
        refuse("a division by a computed value")
    return to.add(ops.Divide(to.constant(y, x)), x)


def _mean(to: Step, x: At, dims: Any = (), keepdim: bool = False, *, dtype: Any = None) -> At:
    return to.add(ops.Mean(tuple(_axis(x, d) for d in dims), keepdim), x)


def _sum(to: Step, x: At, dims: Any = (), keepdim: bool = False, *, dtype: Any = None) -> At:
    axes = tuple(_axis(x, d) for d in dims)
    count = math.prod(x.shape[d] for d in axes)
    mean = to.add(ops.Mean(axes, keepdim), x)
    return to.add(ops.Scale(to.constant(count, mean)), mean)


# --- shapes ---


def _axis(x: At, dim: int) -> int:
    """The graph's number of an ATen dimension; -1 for the batch."""
    return dim % (len(x.shape) + 1) - 1


def _same(to: Step, x: At, *_: Any, **__: Any) -> At:
    """Operations that give the values as they are, or in another floating-point type that holds them."""
    if not to.dtype.is_floating_point:
        refuse(f"a conversion to {to.dtype}")
    return x


def _dropout(to: Step, x: At, p: float, train: bool) -> At:
    return x if not train else refuse("drops values at random; use training=self.training")


def _reshape(to: Step, x: At, *_: Any) -> At:
    return x if x.shape == to.shape else to.add(ops.Reshape(to.shape), x)


def _expand(to: Step, x: At, *_: Any, **__: Any) -> At:
    return x if x.shape == to.shape else refuse("repeats values")


def _permute(to: Step, x: At, dims: Any) -> At:
    return to.add(ops.Transpose(tuple(_axis(x, d) for d in dims[1:])), x)


def _transpose(to: Step, x: At, a: int, b: int) -> At:
    axes = list(range(len(x.shape)))
    i, j = _axis(x, a), _axis(x, b)
    if i != j:
        axes[i], axes[j] = j, i
    return to.add(ops.Transpose(tuple(axes)), x)


def _piece(to: Step, x: At, axis: int, start: int, stop: int, step: int = 1) -> At:
    if start >= stop:
        refuse("an empty piece")
    return x if (start, stop, step) == (0, x.shape[axis], 1) else to.add(ops.Slice(axis, start, stop, step), x)


def _slice(to: Step, x: At, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> At:
    axis = _axis(x, dim)
    # A slice of the batch that keeps its size keeps all of it.
    return x if axis < 0 else _piece(to, x, axis, *slice(start, end, step).indices(x.shape[axis]))


def _select(to: Step, x: At, dim: int, index: int) -> At:
    axis = _axis(x, dim)
    index %= x.shape[axis]
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return to.add(ops.Reshape(shape), _piece(to, x, axis, index, index + 1))


def _split(to: Step, x: At, _: Any, dim: int = 0) -> tuple[At, ...]:
    axis = _axis(x, dim)
    if axis < 0:
        refuse("splits the batch")
    ends = list(itertools.accumulate(part.shape[axis + 1] for part in to.node.meta["val"]))
    return tuple(_piece(to, x, axis, start, end) for start, end in itertools.pairwise([0, *ends]))


def _unbind(to: Step, x: At, dim: int = 0) -> tuple[At, ...]:
    if _axis(x, dim) < 0:
        refuse("splits the batch")
    return tuple(_select(to, x, dim, i) for i in range(x.shape[_axis(x, dim)]))


def _pick(to: Step, x: At, dim: int, index: Any) -> At:
    """The entries of one axis with these numbers, in this order."""
    axis = _axis(x, dim)
    fixed = isinstance(index, Tensor) and index.dtype in (torch.int64, torch.int32)
    if not fixed or axis < 0 or index.dim() > 1 or index.numel() == 0:
        refuse("picks nothing, or by a mask, by computed positions, along several axes, or from the batch")
    n, found = x.shape[axis], index.reshape(-1).tolist()
    weight = torch.zeros(len(found), n, dtype=to.dtype)
    weight[range(len(found)), [k % n for k in found]] = 1
    axes = list(range(len(x.shape)))
    axes[axis], axes[-1] = axes[-1], axes[axis]
    if axis < len(x.shape) - 1:
        x = to.add(ops.Transpose(tuple(axes)), x)
    x = to.add(ops.Linear(weight), x)
    x = to.add(ops.Transpose(tuple(axes)), x) if axis < len(axes) - 1 else x
    return _reshape(to, x)  # a single position drops its axis


def _index(to: Step, x: At, indices: Any) -> At:
    given = [dim for dim, index in enumerate(indices) if index is not None]
    return _pick(to, x, given[0] if len(given) == 1 else 0, indices[given[0]])


def _flip(to: Step, x: At, dims: Any) -> At:
    for dim in dims:
        x = _pick(to, x, dim, torch.arange(x.shape[_axis(x, dim)]).flip(0))
    return x


def _getitem(to: Step, values: Any, index: int) -> At:
    value: At | None = values[index]
    return value if value is not None else refuse("uses positions or statistics, not values")


def _cat(to: Step, xs: Any, dim: int = 0) -> At:
    if not all(isinstance(x, At) for x in xs):
        refuse("joins constants with computed values")
    return to.add(ops.Concat(_axis(xs[0], dim)), *xs)


def _stack(to: Step, xs: Any, dim: int = 0) -> At:
    axis = dim % len(to.node.meta["val"].shape) - 1
    shape = (*to.shape[:axis], 1, *to.shape[axis + 1 :])
    return to.add(ops.Concat(axis), *(to.add(ops.Reshape(shape), x) for x in xs))


def _pad(to: Step, x: At, pads: Any, mode: str = "constant", value: float | None = None) -> At:
    if mode != "constant":
        refuse(f"padding mode {mode!r}; only constant padding is supported")
    pads, batch, value = tuple(pads[: 2 * len(x.shape)]), pads[2 * len(x.shape) :], to.number(value or 0)
    if any(batch) or not math.isfinite(value):
        refuse("pads the batch axis, or with infinite values")
    return to.add(ops.Pad(pads, value), x) if any(pads) else x


# --- pooling ---


def _pooled(to: Step, x: At, op: Any) -> At:
    """Pools a value that may lack the channel axis."""
    if len(x.shape) == len(op.kernel) + 1:
        return to.add(op, x)
    pooled = to.add(op, to.add(ops.Reshape((1, *x.shape)), x))
    return to.add(ops.Reshape(pooled.shape[1:]), pooled)


def _avg_pool(dims: int) -> Callable[..., At]:
    def handler(
        to: Step,
        x: At,
        kernel: Any,
        stride: Any = (),
        padding: Any = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> At:
        if divisor_override is not None:
            refuse("divisor_override is not supported")
        kernel, stride, padding = _each(kernel, dims), _each(stride or kernel, dims), _each(padding, dims)
        return _pooled(to, x, ops.AvgPool(kernel, stride, padding, ceil_mode, count_include_pad))

    return handler


def _max_pool(dims: int) -> Callable[..., At]:
    def handler(
        to: Step,
        x: At,
        kernel: Any,
        stride: Any = (),
        padding: Any = (0,),
        dilation: Any = (1,),
        ceil_mode: bool = False,
    ) -> At:
        kernel = _each(kernel, dims)
        op = ops.MaxPool(kernel, tuple(stride or kernel), tuple(padding), tuple(dilation), ceil_mode)
        return _pooled(to, x, op)

    return handler


def _adaptive(pool: type[ops.AvgPool] | type[ops.MaxPool]) -> Callable[..., At]:
    def handler(to: Step, x: At, size: Any) -> At:
        inputs = x.shape[-len(size) :]
        sizes = [o or n for n, o in zip(inputs, size)]
        if any(n % o for n, o in zip(inputs, sizes)):
            refuse(f"its output size {tuple(sizes)} does not divide its input size {inputs}")
        kernel = tuple(n // o for n, o in zip(inputs, sizes))
        return _pooled(to, x, pool(kernel, kernel))

    return handler


def _first(handler: Callable[..., At]) -> Callable[..., tuple[At, None]]:
    """For pooling that returns positions as well."""
    return lambda *args, **kwargs: (handler(*args, **kwargs), None)


# --- activations ---


def _activation(op: Operation) -> Callable[..., At]:
    return lambda to, x: to.add(op, x)


def _prelu(to: Step, x: At, weight: Tensor) -> At:
    _fixed(weight)
    shape = () if weight.numel() == 1 else (-1, *[1] * (len(x.shape) - 1))
    return to.add(ops.LeakyReLU(weight.reshape(shape)), x)


def _elu(to: Step, x: At, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> At:
    if input_scale != 1 or not alpha > 0:
        refuse("ELU is supported with alpha > 0 and input_scale 1")
    y = to.add(ops.ELU(to.number(alpha)), x)
    return y if scale == 1 else to.add(ops.Scale(to.constant(scale, y)), y)


def _selu(to: Step, x: At) -> At:
    return _elu(to, x, 1.6732632423543772, 1.0507009873554805)  # the numbers that define it


def _celu(to: Step, x: At, alpha: float = 1) -> At:
    if not alpha > 0:
        refuse("CELU is supported with alpha > 0")
    return _mul(to, to.add(ops.ELU(1.0), _div(to, x, alpha)), alpha)


def _hardsigmoid(to: Step, x: At) -> At:
    return _div(to, to.add(ops.Clip(0.0, 6.0), _combine(to, x, 3, 1, 1)), 6)


def _log_sigmoid(to: Step, x: At) -> At:
    return _mul(to, to.add(ops.Softplus(), _mul(to, x, -1)), -1)


def _maximum(to: Step, x: Any, y: Any) -> At:
    """`y + relu(x - y)`."""
    return _combine(to, to.add(ops.ReLU(), _combine(to, x, y, 1, -1)), y, 1, 1)


def _minimum(to: Step, x: Any, y: Any) -> At:
    """`y - relu(y - x)`."""
    return _combine(to, to.add(ops.ReLU(), _combine(to, x, y, -1, 1)), y, -1, 1)


def _abs(to: Step, x: At) -> At:
    return _combine(to, to.add(ops.ReLU(), x), to.add(ops.ReLU(), _mul(to, x, -1)), 1, 1)


def _softplus(to: Step, x: At, beta: float = 1, threshold: float = 20) -> At:
    if threshold < 20 or not beta > 0:
        refuse("Softplus is supported with beta > 0 and a threshold of at least 20, torch's own (below, it jumps)")
    return to.add(ops.Softplus(to.number(beta)), x)


def _clip(to: Step, x: At, low: float | None = None, high: float | None = None) -> At:
    low = -math.inf if low is None else to.number(low)
    high = math.inf if high is None else to.number(high)
    if not low < high:
        refuse(f"clips to [{low}, {high}], which is not an interval")
    return to.add(ops.ReLU() if (low, high) == (0, math.inf) else ops.Clip(low, high), x)


HANDLERS: dict[Any, Callable[..., Any]] = {
    operator.getitem: _getitem,
    aten.linear.default: _linear,
    aten.matmul.default: _matmul,
    aten.mm.default: _matmul,
    aten.mv.default: _matmul,
    aten.addmm.default: _addmm,
    aten.conv1d.default: _conv,
    aten.conv1d.padding: _conv,
    aten.conv2d.default: _conv,
    aten.conv2d.padding: _conv,
    aten.conv3d.default: _conv,
    aten.conv3d.padding: _conv,
    aten.convolution.default: _convolution,
    aten._native_batch_norm_legit_no_training.default: _batch_norm,
    aten.add.Tensor: lambda to, x, y, *, alpha=1: _combine(to, x, y, 1, alpha),
    aten.add.Scalar: lambda to, x, y, alpha=1: _combine(to, x, y, 1, alpha),
    aten.sub.Tensor: lambda to, x, y, *, alpha=1: _combine(to, x, y, 1, -alpha),
    aten.sub.Scalar: lambda to, x, y, alpha=1: _combine(to, x, y, 1, -alpha),
    aten.rsub.Tensor: lambda to, x, y, *, alpha=1: _combine(to, x, y, -alpha, 1),
    aten.rsub.Scalar: lambda to, x, y, alpha=1: _combine(to, x, y, -alpha, 1),
    aten.mul.Tensor: _mul,
    aten.mul.Scalar: _mul,
    aten.div.Tensor: _div,
    aten.div.Scalar: _div,
    aten.neg.default: lambda to, x: _mul(to, x, -1),
    aten.mean.dim: _mean,
    aten.mean.default: _mean,
    aten.sum.dim_IntList: _sum,
    aten.sum.default: _sum,
    aten.clone.default: _same,
    aten.alias.default: _same,
    aten.detach.default: _same,
    aten.contiguous.default: _same,
    aten.lift_fresh_copy.default: _same,
    aten._to_copy.default: _same,
    aten.type_as.default: _same,
    aten.dropout.default: _dropout,
    aten.view.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten.reshape.default: _reshape,
    aten.flatten.using_ints: _reshape,
    aten.unflatten.int: _reshape,
    aten.squeeze.default: _reshape,
    aten.squeeze.dim: _reshape,
    aten.squeeze.dims: _reshape,
    aten.unsqueeze.default: _reshape,
    aten.expand.default: _expand,
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.t.default: lambda to, x: _transpose(to, x, 0, -1),
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.chunk.default: _split,
    aten.unbind.int: _unbind,
    aten.index_select.default: _pick,
    aten.index.Tensor: _index,
    aten.flip.default: _flip,
    aten.cat.default: _cat,
    aten.stack.default: _stack,
    aten.pad.default: _pad,
    aten.constant_pad_nd.default: lambda to, x, pads, value=0: _pad(to, x, pads, value=value),
    aten.avg_pool1d.default: _avg_pool(1),
    aten.avg_pool2d.default: _avg_pool(2),
    aten.avg_pool3d.default: _avg_pool(3),
    aten.max_pool1d.default: _max_pool(1),
    aten.max_pool2d.default: _max_pool(2),
    aten.max_pool3d.default: _max_pool(3),
    aten.max_pool1d_with_indices.default: _first(_max_pool(1)),
    aten.max_pool2d_with_indices.default: _first(_max_pool(2)),
    aten.max_pool3d_with_indices.default: _first(_max_pool(3)),
    aten.adaptive_avg_pool1d.default: _adaptive(ops.AvgPool),
    aten.adaptive_avg_pool2d.default: _adaptive(ops.AvgPool),
    aten.adaptive_avg_pool3d.default: _adaptive(ops.AvgPool),
    aten._adaptive_avg_pool2d.default: _adaptive(ops.AvgPool),
    aten._adaptive_avg_pool3d.default: _adaptive(ops.AvgPool),
    aten.adaptive_max_pool1d.default: _first(_adaptive(ops.MaxPool)),
    aten.adaptive_max_pool2d.default: _first(_adaptive(ops.MaxPool)),
    aten.adaptive_max_pool3d.default: _first(_adaptive(ops.MaxPool)),
    aten.relu.default: _activation(ops.ReLU()),
    aten.sigmoid.default: _activation(ops.Sigmoid()),
    aten.tanh.default: _activation(ops.Tanh()),
    aten.arctan.default: _activation(ops.Arctan()),
    aten.atan.default: _activation(ops.Arctan()),
    aten.silu.default: _activation(ops.SiLU()),
    aten.gelu.default: lambda to, x, *, approximate="none": to.add(ops.GELU(approximate == "tanh"), x),
    aten.leaky_relu.default: lambda to, x, slope=0.01: to.add(ops.LeakyReLU(to.number(slope)), x),
    aten.prelu.default: _prelu,
    aten._prelu_kernel.default: lambda to, x, slope: to.add(ops.LeakyReLU(to.constant(slope, x)), x),
    aten.elu.default: _elu,
    aten.selu.default: _selu,
    aten.celu.default: _celu,
    aten.hardsigmoid.default: _hardsigmoid,
    aten.log_sigmoid.default: _log_sigmoid,
    aten.abs.default: _abs,
    aten.maximum.default: _maximum,
    aten.max.other: _maximum,
    aten.minimum.default: _minimum,
    aten.min.other: _minimum,
    aten.softplus.default: _softplus,
    aten.hardtanh.default: lambda to, x, low=-1, high=1: _clip(to, x, low, high),
    aten.relu6.default: lambda to, x: _clip(to, x, 0, 6),
    aten.clamp.default: _clip,
    aten.clamp_min.default: _clip,
    aten.clamp_max.default: lambda to, x, high: _clip(to, x, None, high),
}

# These take their shape from the trace, so a batch size among their arguments does no harm.
TAKES_BATCH_SIZE = {_reshape, _expand}

SOFTMAX: dict[Any, Callable[..., Tensor]] = {
    aten.softmax.int: torch.softmax,
    aten._softmax.default: torch.softmax,
    aten.log_softmax.int: torch.log_softmax,
    aten._log_softmax.default: torch.log_softmax,
}

REASONS: dict[Any, str] = {
    aten.native_dropout.default: "drops values at random; use training=self.training",
    aten._native_batch_norm_legit.no_stats: "normalises by the statistics of the batch",
}


# These give the same numbers in the same order.
KEEPS_ORDER = (_reshape, _same)

# The names of ATen's operations that a trace may hold, whatever their overloads.
NAMES = {str(op).split(".")[1] for op in (*HANDLERS, *SOFTMAX) if op is not operator.getitem}

__all__ = [
    "HANDLERS", "KEEPS_ORDER", "NAMES", "REASONS", "SOFTMAX", "TAKES_BATCH_SIZE",
    "At", "RefusalError", "Step", "refuse",
]  # fmt: skip
