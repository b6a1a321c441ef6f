"""Reads a `torch.nn.Module` by tracing it with `torch.export`, one table row per ATen operation.

The trace sees functional calls, skips and shared modules alike. Parameters are taken exactly as stored: batch
norm is not folded, and whatever the model computes from constants alone is evaluated with torch once.
ATen counts the batch as axis 0 and the graph leaves it out; every value must keep the batch there, unmixed.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import itertools
import logging
import math
import operator
import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind, OutputKind

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph
from elbowroom.network.operations import Operation, Shape

aten = torch.ops.aten


def from_torch(module: nn.Module, graph: Graph, at: int | None = None) -> int:
    """Appends `module` to `graph`, reading from node `at` (default: the input); returns its output's number.

    The module is traced in eval mode on a copy, so it is left as it is. Python numbers in its code become
    constants rounded to the type they are used in, as torch does. Raises one `UnsupportedError` that names
    every operation without a bound here, `InputError` where the shape of node `at` does not fit the module.
    """
    at, start = graph.input if at is None else at, len(graph.nodes)
    copied = _copy(module)
    sample = torch.Generator().manual_seed(0)
    x = torch.randn(2, *graph.nodes[at].shape, generator=sample).to(dtype_of(copied))
    with _quiet(), torch.no_grad():
        expected = _run(copied, x)
        program = _export(copied, x)
        output = _Translation(graph, at, program).output
    _compare(graph, {at: x.double()}, start, output, expected.double(), torch.finfo(expected.dtype).eps)
    return output


def dtype_of(module: nn.Module) -> torch.dtype:
    """The type of the module's first floating-point parameter or buffer (float32 where there is none)."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch.export's warnings, logs and printed graphs, which are about its own workings, to itself."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _copy(module: nn.Module) -> nn.Module:
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        module = module.module
    with contextlib.suppress(ValueError, TypeError):
        parameters = inspect.signature(module.forward).parameters.values()
        n = sum(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        if n > 1:
            raise UnsupportedError(
                f"{type(module).__name__}.forward takes {n} inputs; wrap it in a module that takes one tensor"
            )
    if any(nn.parameter.is_lazy(t) for t in itertools.chain(module.parameters(), module.buffers())):
        raise InputError(f"{type(module).__name__} has lazy parameters without values; run it once first")
    try:
        return copy.deepcopy(module).cpu().eval()
    except Exception as error:
        raise UnsupportedError(
            f"{type(module).__name__} cannot be copied to the CPU; torch says: {_first_line(error)}"
        ) from None


def _run(module: nn.Module, x: Tensor) -> Tensor:
    """The module's own output, which must be one floating-point tensor."""
    try:
        y = module(x.clone())
    except Exception as error:
        raise InputError(
            f"{type(module).__name__} does not run on a batch of 2 inputs of shape {tuple(x.shape[1:])}; "
            f"check input_shape (without the batch axis). torch says: {_first_line(error)}"
        ) from None
    if not isinstance(y, Tensor):
        raise UnsupportedError(
            f"{type(module).__name__} returns a {type(y).__name__}; wrap it so that it returns one tensor"
        )
    if not y.is_floating_point():
        raise UnsupportedError(
            f"{type(module).__name__} returns {y.dtype} values; return the floating-point logits instead"
        )
    return y


def _export(module: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    try:
        batch = ({0: torch.export.Dim("batch")},)
        program = torch.export.export(module, (x,), dynamic_shapes=batch, strict=False)
        program = program.run_decompositions({})
    except Exception as error:
        raise UnsupportedError(
            f"torch.export cannot trace {type(module).__name__}. Usual causes: an `if` or a loop that depends "
            f"on the input's values, numpy code, a fixed batch size. torch says: {_first_line(error)}"
        ) from None
    if program.graph_signature.buffers_to_mutate:
        names = ", ".join(program.graph_signature.buffers_to_mutate.values())
        raise UnsupportedError(
            f"{type(module).__name__} changes its buffers when it runs ({names}), so it is no fixed "
            "function; remove the update from eval mode"
        )
    return program


def _compare(graph: Graph, values: dict[int, Tensor], start: int, output: int, expected: Tensor, eps: float) -> None:
    """A guard against misreading an operation: the graph must give what the module gave."""
    for i, node in enumerate(graph.nodes[start:], start):
        values[i] = node.op.map_tensors(Tensor.double)(*(values[j] for j in node.inputs))
    difference = (values[output] - expected).abs().max()
    allowed = max(eps**0.5, 1e-4) * (1 + expected.abs().max())  # generous: rounding grows with depth
    if bool(expected.isfinite().all()) and not bool(difference <= allowed):
        raise UnsupportedError(
            f"the network read from the model differs from the model itself by {float(difference):.2g} at a "
            "random input, so an operation has been misread; please report this"
        )


@dataclass(frozen=True)
class _At:
    """A value computed from the input: its node in the graph, its shape without the batch axis."""

    number: int
    shape: Shape


class _Mark:
    """Stands for a value that has no node."""


_BATCH = _Mark()  # a number computed from the batch size
_LOST = _Mark()  # follows an unsupported operation and does not have the batch as its first axis


@dataclass(frozen=True, eq=False)
class _Unknown(Operation):
    """Stands in for an unsupported operation, so that the rest can be looked through for more of them."""

    shape: Shape

    def output_shape(self, *shapes: Shape) -> Shape:
        return self.shape


class _RefusalError(Exception):
    """Why an operation is not supported."""


def _refuse(reason: str) -> NoReturn:
    raise _RefusalError(reason)


@dataclass(frozen=True)
class _Step:
    """What a handler sees: the ATen node it translates, and the graph it adds to."""

    graph: Graph
    node: fx.Node
    name: str

    @property
    def dtype(self) -> torch.dtype:
        return self.node.meta["val"].dtype

    @property
    def shape(self) -> Shape:
        """The output's shape without the batch axis, which `_Translation` has checked to be there."""
        return tuple(self.node.meta["val"].shape[1:])

    def add(self, op: Operation, *xs: Any) -> _At:
        if not all(isinstance(x, _At) for x in xs):
            _refuse("one of its inputs is a constant where a computed value is expected")
        number = self.graph.add(op, *(x.number for x in xs), name=self.name)
        return _At(number, self.graph.nodes[number].shape)

    def constant(self, value: Any, x: _At) -> Tensor:
        """A constant that meets `x` element by element: in the result's type, without the batch axis."""
        _fixed(value)
        value = torch.as_tensor(value, dtype=self.dtype)
        if value.dim() <= len(x.shape):
            return value
        if value.dim() > len(x.shape) + 1 or value.shape[0] != 1:
            _refuse(f"a constant of shape {tuple(value.shape)} reaches into the batch axis")
        return value[0]


def _fixed(*values: Any) -> None:
    """Weights have to be constants."""
    if any(isinstance(v, _At) for v in values):
        _refuse("its weights are computed from the input")


# --- affine operations ---


def _linear(to: _Step, x: _At, weight: Tensor, bias: Tensor | None = None) -> _At:
    _fixed(weight, bias)
    if weight.dim() == 1:  # one output, whose axis torch drops
        return to.add(ops.Reshape(to.shape), to.add(ops.Linear(weight[None], _one(bias)), x))
    return to.add(ops.Linear(weight, bias), x)


def _one(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.reshape(1)


def _matmul(to: _Step, x: Any, y: Any) -> _At:
    if isinstance(x, _At) and isinstance(y, _At):
        _refuse("a product of two computed values")
    if isinstance(x, _At) and y.dim() <= 2:
        return _linear(to, x, y.t())
    if isinstance(y, _At) and x.dim() == 2 and len(y.shape) >= 2:  # along the last axis but one
        axes = (*range(len(y.shape) - 2), len(y.shape) - 1, len(y.shape) - 2)
        product = to.add(ops.Linear(x), to.add(ops.Transpose(axes), y))
        return to.add(ops.Transpose(axes), product)
    _refuse("a product with a stack of matrices, or one that mixes the batch")


def _addmm(to: _Step, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> _At:
    if (beta, alpha) != (1, 1):
        _refuse(f"beta = {beta} and alpha = {alpha} other than 1")
    if isinstance(bias, Tensor) and isinstance(y, Tensor) and bias.shape == y.shape[1:]:
        return _linear(to, x, y.t(), bias)
    return _combine(to, _matmul(to, x, y), bias, 1, 1)


def _conv(
    to: _Step,
    x: _At,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = (1,),
    padding: Any = (0,),
    dilation: Any = (1,),
    groups: int = 1,
) -> _At:
    _fixed(weight, bias)
    dims = weight.dim() - 2
    if len(x.shape) != dims + 1:
        _refuse("its input has no batch axis")
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
    to: _Step,
    x: _At,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> _At:
    if transposed:
        _refuse("a transposed convolution")
    return _conv(to, x, weight, bias, stride, padding, dilation, groups)


def _batch_norm(
    to: _Step, x: _At, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[_At, None, None]:
    _fixed(weight, bias, mean, var)
    return to.add(ops.BatchNorm(mean, var, weight, bias, eps), x), None, None


def _combine(to: _Step, x: Any, y: Any, a: float, b: float) -> _At:
    """`a x + b y`, either of which may be constant."""
    if isinstance(x, _At) and isinstance(y, _At):
        if len(x.shape) != len(y.shape):
            _refuse(f"a sum of values of shapes {x.shape} and {y.shape} mixes the batch")
        return to.add(ops.Add((float(a), float(b))), x, y)
    if not isinstance(x, _At):
        x, y, a, b = y, x, b, a
    if a != 1:
        x = to.add(ops.Scale(to.constant(a, x)), x)
    return to.add(ops.Shift(to.constant(y, x) * b), x)


def _mul(to: _Step, x: Any, y: Any) -> _At:
    if isinstance(x, _At) and isinstance(y, _At):
        _refuse("a product of two computed values")
    x, y = (x, y) if isinstance(x, _At) else (y, x)
    return to.add(ops.Scale(to.constant(y, x)), x)


def _div(to: _Step, x: Any, y: Any) -> _At:
    if isinstance(y, _At):
        _refuse("a division by a computed value")
    return to.add(ops.Divide(to.constant(y, x)), x)


def _mean(to: _Step, x: _At, dims: Any = (), keepdim: bool = False, *, dtype: Any = None) -> _At:
    return to.add(ops.Mean(tuple(_axis(x, d) for d in dims), keepdim), x)


# --- shapes ---


def _axis(x: _At, dim: int) -> int:
    """The graph's number of an ATen dimension; -1 for the batch."""
    return dim % (len(x.shape) + 1) - 1


def _same(to: _Step, x: _At, *_: Any, **__: Any) -> _At:
    """Operations that give the values as they are, or in another floating-point type."""
    if to.dtype not in (torch.float32, torch.float64, to.node.all_input_nodes[0].meta["val"].dtype):
        _refuse(f"a conversion to {to.dtype}")
    return x


def _dropout(to: _Step, x: _At, p: float, train: bool) -> _At:
    return x if not train else _refuse("drops values at random; use training=self.training")


def _reshape(to: _Step, x: _At, *_: Any) -> _At:
    return x if x.shape == to.shape else to.add(ops.Reshape(to.shape), x)


def _expand(to: _Step, x: _At, *_: Any, **__: Any) -> _At:
    return x if x.shape == to.shape else _refuse("repeats values")


def _permute(to: _Step, x: _At, dims: Any) -> _At:
    return to.add(ops.Transpose(tuple(_axis(x, d) for d in dims[1:])), x)


def _transpose(to: _Step, x: _At, a: int, b: int) -> _At:
    axes = list(range(len(x.shape)))
    i, j = _axis(x, a), _axis(x, b)
    if i != j:
        axes[i], axes[j] = j, i
    return to.add(ops.Transpose(tuple(axes)), x)


def _piece(to: _Step, x: _At, axis: int, start: int, stop: int, step: int = 1) -> _At:
    if start >= stop:
        _refuse("an empty piece")
    return x if (start, stop, step) == (0, x.shape[axis], 1) else to.add(ops.Slice(axis, start, stop, step), x)


def _slice(to: _Step, x: _At, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> _At:
    axis = _axis(x, dim)
    # A slice of the batch that keeps its size keeps all of it.
    return x if axis < 0 else _piece(to, x, axis, *slice(start, end, step).indices(x.shape[axis]))


def _select(to: _Step, x: _At, dim: int, index: int) -> _At:
    axis = _axis(x, dim)
    index %= x.shape[axis]
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return to.add(ops.Reshape(shape), _piece(to, x, axis, index, index + 1))


def _split(to: _Step, x: _At, _: Any, dim: int = 0) -> tuple[_At, ...]:
    axis = _axis(x, dim)
    if axis < 0:
        _refuse("splits the batch")
    ends = list(itertools.accumulate(part.shape[axis + 1] for part in to.node.meta["val"]))
    return tuple(_piece(to, x, axis, start, end) for start, end in itertools.pairwise([0, *ends]))


def _unbind(to: _Step, x: _At, dim: int = 0) -> tuple[_At, ...]:
    if _axis(x, dim) < 0:
        _refuse("splits the batch")
    return tuple(_select(to, x, dim, i) for i in range(x.shape[_axis(x, dim)]))


def _getitem(to: _Step, values: Any, index: int) -> _At:
    return values[index] if values[index] is not None else _refuse("uses positions or statistics, not values")


def _cat(to: _Step, xs: Any, dim: int = 0) -> _At:
    if not all(isinstance(x, _At) for x in xs):
        _refuse("joins constants with computed values")
    return to.add(ops.Concat(_axis(xs[0], dim)), *xs)


def _stack(to: _Step, xs: Any, dim: int = 0) -> _At:
    axis = dim % len(to.node.meta["val"].shape) - 1
    shape = (*to.shape[:axis], 1, *to.shape[axis + 1 :])
    return to.add(ops.Concat(axis), *(to.add(ops.Reshape(shape), x) for x in xs))


def _pad(to: _Step, x: _At, pads: Any, mode: str = "constant", value: float | None = None) -> _At:
    if mode != "constant":
        _refuse(f"padding mode {mode!r}; only constant padding is supported")
    pads, batch, value = tuple(pads[: 2 * len(x.shape)]), pads[2 * len(x.shape) :], float(value or 0)
    if any(batch) or not math.isfinite(value):
        _refuse("pads the batch axis, or with infinite values")
    return to.add(ops.Pad(pads, value), x) if any(pads) else x


# --- pooling ---


def _pooled(to: _Step, x: _At, op: Any) -> _At:
    """Pools a value that may lack the channel axis."""
    if len(x.shape) == len(op.kernel) + 1:
        return to.add(op, x)
    pooled = to.add(op, to.add(ops.Reshape((1, *x.shape)), x))
    return to.add(ops.Reshape(pooled.shape[1:]), pooled)


def _avg_pool(dims: int) -> Callable[..., _At]:
    def handler(
        to: _Step,
        x: _At,
        kernel: Any,
        stride: Any = (),
        padding: Any = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> _At:
        if divisor_override is not None:
            _refuse("divisor_override is not supported")
        kernel, stride, padding = _each(kernel, dims), _each(stride or kernel, dims), _each(padding, dims)
        return _pooled(to, x, ops.AvgPool(kernel, stride, padding, ceil_mode, count_include_pad))

    return handler


def _max_pool(dims: int) -> Callable[..., _At]:
    def handler(
        to: _Step,
        x: _At,
        kernel: Any,
        stride: Any = (),
        padding: Any = (0,),
        dilation: Any = (1,),
        ceil_mode: bool = False,
    ) -> _At:
        kernel = _each(kernel, dims)
        op = ops.MaxPool(kernel, tuple(stride or kernel), tuple(padding), tuple(dilation), ceil_mode)
        return _pooled(to, x, op)

    return handler


def _adaptive(pool: type[ops.AvgPool] | type[ops.MaxPool]) -> Callable[..., _At]:
    def handler(to: _Step, x: _At, size: Any) -> _At:
        inputs = x.shape[-len(size) :]
        sizes = [o or n for n, o in zip(inputs, size)]
        if any(n % o for n, o in zip(inputs, sizes)):
            _refuse(f"its output size {tuple(sizes)} does not divide its input size {inputs}")
        kernel = tuple(n // o for n, o in zip(inputs, sizes))
        return _pooled(to, x, pool(kernel, kernel))

    return handler


def _first(handler: Callable[..., _At]) -> Callable[..., tuple[_At, None]]:
    """For pooling that returns positions as well."""
    return lambda *args, **kwargs: (handler(*args, **kwargs), None)


# --- activations ---


def _activation(op: Operation) -> Callable[..., _At]:
    return lambda to, x: to.add(op, x)


def _prelu(to: _Step, x: _At, weight: Tensor) -> _At:
    _fixed(weight)
    shape = () if weight.numel() == 1 else (-1, *[1] * (len(x.shape) - 1))
    return to.add(ops.LeakyReLU(weight.reshape(shape)), x)


def _elu(to: _Step, x: _At, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> _At:
    if (scale, input_scale) != (1, 1) or not alpha > 0:
        _refuse("ELU is supported with alpha > 0 and both scales 1")
    return to.add(ops.ELU(float(alpha)), x)


def _softplus(to: _Step, x: _At, beta: float = 1, threshold: float = 20) -> _At:
    if threshold < 15 or not beta > 0:
        _refuse("Softplus is supported with beta > 0 and a threshold of at least 15 (below, it jumps visibly)")
    return to.add(ops.Softplus(float(beta)), x)


def _clip(to: _Step, x: _At, low: float | None = None, high: float | None = None) -> _At:
    low = -math.inf if low is None else float(low)
    high = math.inf if high is None else float(high)
    if not low < high:
        _refuse(f"clips to [{low}, {high}], which is not an interval")
    return to.add(ops.ReLU() if (low, high) == (0, math.inf) else ops.Clip(low, high), x)


_HANDLERS: dict[Any, Callable[..., Any]] = {
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
    aten.atan.default: _activation(ops.Arctan()),
    aten.silu.default: _activation(ops.SiLU()),
    aten.gelu.default: lambda to, x, *, approximate="none": to.add(ops.GELU(approximate == "tanh"), x),
    aten.leaky_relu.default: lambda to, x, slope=0.01: to.add(ops.LeakyReLU(float(slope)), x),
    aten.prelu.default: _prelu,
    aten._prelu_kernel.default: lambda to, x, slope: to.add(ops.LeakyReLU(to.constant(slope, x)), x),
    aten.elu.default: _elu,
    aten.softplus.default: _softplus,
    aten.hardtanh.default: lambda to, x, low=-1, high=1: _clip(to, x, low, high),
    aten.relu6.default: lambda to, x: _clip(to, x, 0, 6),
    aten.clamp.default: _clip,
    aten.clamp_min.default: _clip,
    aten.clamp_max.default: lambda to, x, high: _clip(to, x, None, high),
}

# These take their shape from the trace, so a batch size among their arguments does no harm.
_TAKES_BATCH_SIZE = {_reshape, _expand}

_SOFTMAX = {aten.softmax.int, aten._softmax.default, aten.log_softmax.int, aten._log_softmax.default}

_REASONS: dict[Any, str] = {
    aten.native_dropout.default: "drops values at random; use training=self.training",
    aten._native_batch_norm_legit.no_stats: "normalises by the statistics of the batch",
}


class _Translation:
    """Walks an exported program in order and adds what it finds to `graph`; `output` is its output."""

    def __init__(self, graph: Graph, at: int, program: torch.export.ExportedProgram) -> None:
        self.graph = graph
        self.values: dict[fx.Node, Any] = {}
        self.problems: list[str] = []
        nodes = {node.name: node for node in program.graph.nodes}
        outputs = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
        self.last = nodes[outputs[0].arg.name]
        for spec in program.graph_signature.input_specs:
            node = nodes[spec.arg.name]
            if spec.kind is InputKind.USER_INPUT:
                self.values[node] = _At(at, graph.nodes[at].shape)
                self.batch = str(node.meta["val"].shape[0])
            else:  # a parameter, a buffer or a tensor that forward made itself
                stored = program.state_dict if spec.target in program.state_dict else program.constants
                self.values[node] = stored[spec.target].detach()  # of the copy, so nobody else holds it
        for node in self._needed():
            if node not in self.values:
                self.values[node] = self._translate(node)
        if self.problems:
            raise UnsupportedError("\n  ".join(["the model holds operations without a bound here:", *self.problems]))
        if not isinstance(self.values[self.last], _At):
            raise UnsupportedError("the model's output does not depend on its input")
        self.output: int = self.values[self.last].number

    def _needed(self) -> list[fx.Node]:
        """The nodes the output depends on, in order; assertions and leftovers are not among them."""
        needed, stack = {self.last}, [self.last]
        while stack:
            for node in stack.pop().all_input_nodes:
                if node not in needed:
                    needed.add(node)
                    stack.append(node)
        return [node for node in self.last.graph.nodes if node in needed]

    def _translate(self, node: fx.Node) -> Any:
        if node.op != "call_function":  # a subgraph for the likes of torch.cond
            return _LOST
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self.values[n])
        inputs = [self.values[n] for n in node.all_input_nodes]
        try:
            if not any(isinstance(i, _At | _Mark | tuple) for i in inputs):
                return self._fold(node, args, kwargs)
            value: Any = node.meta.get("val")
            if not isinstance(value, Tensor | tuple | list):
                return _BATCH
            handler = _HANDLERS.get(node.target)
            if handler is None:
                _refuse(self._reason(node, inputs))
            if any(i is _LOST for i in inputs):
                return self._placeholder(value)
            if any(i is _BATCH for i in inputs) and handler not in _TAKES_BATCH_SIZE:
                _refuse("uses the batch size, or a value computed from the whole batch, as a number")
            if isinstance(value, Tensor) and not self._keeps_batch(value):
                _refuse("moves, merges or reduces the batch axis")
            step = _Step(self.graph, node, self._name(node))
            result = handler(step, *args, **kwargs)
            if isinstance(result, _At) and result.shape != step.shape:
                _refuse(f"gives shape {result.shape} here and {step.shape} in torch; please report this")
            return result
        except _RefusalError as refusal:
            what = "getitem" if node.target is operator.getitem else node.target
            self.problems.append(f"{what} ({_place(node)}): {refusal}")
            return self._placeholder(node.meta.get("val"))

    def _fold(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """Evaluates an operation on constants."""
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            _refuse("draws random numbers")
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        return list(result) if isinstance(result, tuple) else result  # tuples hold computed values

    def _keeps_batch(self, value: Tensor) -> bool:
        """Whether the batch is the first axis, and no other depends on it."""
        shape = value.shape
        return len(shape) > 0 and str(shape[0]) == self.batch and all(type(n) is int for n in shape[1:])

    def _placeholder(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not self._keeps_batch(value):
            return _LOST
        shape = tuple(value.shape[1:])
        return _At(self.graph.add(_Unknown(shape), 0, name="unknown"), shape)

    def _reason(self, node: fx.Node, inputs: list[Any]) -> str:
        if node.target in _SOFTMAX and node is self.last:
            return "return the logits instead; the largest logit is also the most probable class"
        if all(i is _BATCH for i in inputs):
            return "makes a tensor whose size or values depend on the batch size"
        return _REASONS.get(node.target, "not supported")

    def _name(self, node: fx.Node) -> str:
        path, _ = _module_of(node)
        return f"{path}.{node.name}" if path else node.name


def _module_of(node: fx.Node) -> tuple[str, str]:
    """Path and class of the submodule an operation belongs to."""
    stack = node.meta.get("nn_module_stack") or {"": ("", "")}
    path, kind = list(stack.values())[-1]
    return path, (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]


def _place(node: fx.Node) -> str:
    """Where an operation is: its name in the trace, its submodule, its line in the user's code."""
    path, kind = _module_of(node)
    inside = (os.path.dirname(torch.__file__), "<eval_with_key>")
    frames = re.findall(r'File "(.+)", line (\d+)', node.meta.get("stack_trace") or "")
    lines = [f"{os.path.basename(file)}:{line}" for file, line in frames if not file.startswith(inside)]
    module = f"module {path!r} of type {kind}" if path else kind
    return ", ".join([f"node {node.name!r}", *filter(None, [module]), *lines[-1:]])
