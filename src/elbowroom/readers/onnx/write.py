"""`to_onnx`: a `Network` as an ONNX model of plain operators, for tools that read nothing else.

The parameters stand in the file exactly as stored. Numbers that are not tensors (the eps of a batch norm, the slope
of a leaky ReLU) are Python floats here; ONNX keeps some of them as float32 attributes. In a float32 model they are
rounded, and `rounded_constants` names them; a float64 model holds them all, through constants where an attribute
would round. Some runtimes have no float64 kernels for a few operators (convolution among them).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network, Node
from elbowroom.readers.onnx.file import import_onnx

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 17
IR_VERSION = 8  # the one that came with opset 17: what readers of that time accept, and those of today
BATCH = "batch"
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


def to_onnx(net: Network, dtype: torch.dtype | None = None) -> ModelProto:
    """The network as an ONNX model whose batch axis is free.

    `dtype`: float32 or float64; by default the type the parameters are stored in. A type that cannot hold every
    parameter exactly is refused.
    """
    onnx = import_onnx()
    chosen = _chosen(net, dtype)
    unknown = sorted({n.op.name for n in net.nodes[1:] if type(n.op) not in _WRITERS})
    if unknown:
        raise UnsupportedError(f"no ONNX form is known for: {', '.join(unknown)}")
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(_NUMPY[chosen]))
    writer = _Writer(onnx, net, chosen)
    values = [onnx.helper.make_tensor_value_info(n.name, kind, [BATCH, *n.shape]) for n in net.nodes]
    for node in net.nodes[1:]:
        writer.write(node, [net.nodes[j] for j in node.inputs])
    if len(net.nodes) == 1:  # an output must be the result of some node
        name = writer.emit("Identity", net.nodes[0].name)
        values.append(onnx.helper.make_tensor_value_info(name, kind, [BATCH, *net.input_shape]))
    graph = onnx.helper.make_graph(
        writer.nodes, "network", values[:1], values[-1:], writer.initializers, value_info=values[1:-1]
    )
    model: ModelProto = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="elbowroom",
    )
    onnx.helper.set_model_props(model, {"decision": net.decision})
    return model


def write_onnx(net: Network, path: str | os.PathLike[str], dtype: torch.dtype | None = None) -> Path:
    """Writes `to_onnx(net, dtype)` to a file."""
    target = Path(path)
    target.write_bytes(to_onnx(net, dtype).SerializeToString())
    return target


def rounded_constants(net: Network, dtype: torch.dtype | None = None) -> list[str]:
    """The numbers that `to_onnx(net, dtype)` cannot hold exactly, in words; empty where the model is the network.

    Parameters are never among them.
    """
    chosen = _chosen(net, dtype)
    found = []
    for node in net.nodes:
        for field in dataclasses.fields(node.op):
            value = getattr(node.op, field.name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, float) and not _holds(chosen, number):
                    held = _held(chosen, number)
                    found.append(f"{node.name} ({node.op.name}): {field.name} {number!r} becomes {held!r}")
        if isinstance(node.op, ops.GELU):
            found.append(f"{node.name} (GELU): the irrational constants in it are rounded")
    return found


def _held(dtype: torch.dtype, number: float) -> float:
    return torch.tensor(number, dtype=dtype).item()


def _holds(dtype: torch.dtype, number: float) -> bool:
    return not math.isfinite(number) or _held(dtype, number) == number


def _chosen(net: Network, dtype: torch.dtype | None) -> torch.dtype:
    chosen = net.dtype if dtype is None else dtype
    if chosen not in _NUMPY:
        raise InputError(f"an ONNX model can be written in float32 or float64, not in {chosen}")
    for node in net.nodes:
        for field, tensor in node.op.tensors().items():
            if not bool((tensor.to(chosen).double() == tensor.double()).all()):
                raise InputError(
                    f"node {node.name} ({node.op.name}): {field} holds numbers that {str(chosen)[6:]} would round; "
                    "write the model in float64"
                )
    return chosen


class _Writer:
    """Collects the ONNX nodes and constants of one network."""

    def __init__(self, onnx: Any, net: Network, dtype: torch.dtype) -> None:
        self.onnx = onnx
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._taken = {n.name for n in net.nodes}
        self._owner = net.nodes[-1].name

    def write(self, node: Node, sources: Sequence[Node]) -> None:
        self._owner = node.name
        before = len(self.nodes)
        last = _WRITERS[type(node.op)](self, node, sources)
        if len(self.nodes) == before:
            self.emit("Identity", last)
        self.nodes[-1].output[0] = node.name
        self.nodes[-1].name = node.name

    def emit(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node and returns the name of its result."""
        name = self._fresh(kind.lower())
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name: str, values: Tensor) -> str:
        """Numbers in the model's own type."""
        return self._store(name, values.detach().cpu().to(self.dtype).numpy())

    def number(self, name: str, value: float) -> str:
        return self.constant(name, torch.tensor(value, dtype=torch.float64))

    def integers(self, name: str, values: Sequence[int]) -> str:
        return self._store(name, np.array(values, dtype=np.int64))

    def attribute_holds(self, number: float) -> bool:
        """Whether a float32 attribute keeps the number as well as the model's own type would."""
        return self.dtype == torch.float32 or _holds(torch.float32, number)

    def _store(self, name: str, values: np.ndarray) -> str:
        name = self._fresh(name)
        self.initializers.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _fresh(self, what: str) -> str:
        name, count = f"{self._owner}.{what}", 1
        while name in self._taken:
            count += 1
            name = f"{self._owner}.{what}_{count}"
        self._taken.add(name)
        return name


# ---------------------------------------------------------------------------------------------------------------
# One function per operation: emits its nodes, the last of which is the result


def _input(sources: Sequence[Node]) -> str:
    return sources[0].name


def _linear(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    x = _input(sources)
    if len(node.shape) == 1 and op.bias is not None:
        return w.emit("Gemm", x, w.constant("weight", op.weight), w.constant("bias", op.bias), transB=1)
    y = w.emit("MatMul", x, w.constant("weight", op.weight.T))
    return y if op.bias is None else w.emit("Add", y, w.constant("bias", op.bias))


def _conv(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    kernel = tuple(op.weight.shape[2:])
    bias = [] if op.bias is None else [w.constant("bias", op.bias)]
    return w.emit(
        "Conv", _input(sources), w.constant("weight", op.weight), *bias, kernel_shape=kernel, strides=op.stride,
        pads=op.padding * 2, dilations=op.dilation, group=op.groups,
    )  # fmt: skip


def _batch_norm(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    x = _input(sources)
    weight = torch.ones_like(op.mean) if op.weight is None else op.weight
    bias = torch.zeros_like(op.mean) if op.bias is None else op.bias
    if w.attribute_holds(op.eps):
        parts = {"weight": weight, "bias": bias, "mean": op.mean, "var": op.var}
        return w.emit("BatchNormalization", x, *(w.constant(k, v) for k, v in parts.items()), epsilon=op.eps)

    def per_channel(name: str, values: Tensor) -> str:
        return w.constant(name, values.reshape(-1, *[1] * (len(node.shape) - 1)))

    deviation = w.emit("Sqrt", w.emit("Add", per_channel("var", op.var), w.number("eps", op.eps)))
    y = w.emit("Div", w.emit("Sub", x, per_channel("mean", op.mean)), deviation)
    return w.emit("Add", w.emit("Mul", y, per_channel("weight", weight)), per_channel("bias", bias))


def _with_constant(kind: str) -> Callable[[_Writer, Node, Sequence[Node]], str]:
    def write(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
        ((name, values),) = node.op.tensors().items()
        return w.emit(kind, _input(sources), w.constant(name, values))

    return write


def _add(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    total = ""
    for sign, source in zip(op.signs, sources):
        x, missing = source.name, len(node.shape) - len(source.shape)
        if missing:  # shapes align from the right, but the batch axis must stay the first
            x = w.emit("Reshape", x, w.integers("shape", (-1, *[1] * missing, *source.shape)))
        if sign == -1 and total:
            total = w.emit("Sub", total, x)
            continue
        if sign != 1:
            x = w.emit("Mul", x, w.number("sign", sign))
        total = w.emit("Add", total, x) if total else x
    return total


def _concat(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    return w.emit("Concat", *(s.name for s in sources), axis=op.axis + 1 if op.axis >= 0 else op.axis)


def _reshape(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    if len(node.shape) == 1:
        return w.emit("Flatten", _input(sources), axis=1)
    return w.emit("Reshape", _input(sources), w.integers("shape", (-1, *node.shape)))


def _transpose(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    return w.emit("Transpose", _input(sources), perm=[0, *(d + 1 for d in op.axes)])


def _slice(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    return _sliced(w, _input(sources), [op.axis + 1], [op.start], [op.stop], [op.step])


def _sliced(
    w: _Writer, x: str, axes: Sequence[int], starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]
) -> str:
    parts = {"starts": starts, "ends": stops, "axes": axes, "steps": steps}
    return w.emit("Slice", x, *(w.integers(k, v) for k, v in parts.items()))


def _pad(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    given = len(op.pads) // 2
    untouched = [0] * (len(node.shape) + 1 - given)  # the batch axis and those before the padded ones
    before = untouched + [op.pads[2 * i] for i in reversed(range(given))]
    after = untouched + [op.pads[2 * i + 1] for i in reversed(range(given))]
    return w.emit("Pad", _input(sources), w.integers("pads", before + after), w.number("value", op.value))


def _mean(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    return w.emit("ReduceMean", _input(sources), axes=[d + 1 for d in op.axes], keepdims=int(op.keepdim))


def _spread(value: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
    return tuple(value) * len(kernel) if len(value) == 1 else tuple(value)


def _average_pool(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    x, kernel = _input(sources), tuple(op.kernel)
    spatial, out = sources[0].shape[1:], node.shape[1:]
    stride, padding = _spread(op.stride, kernel), _spread(op.padding, kernel)
    axes = list(zip(spatial, kernel, stride, padding, out))
    if all(o == (n + 2 * p - k) // s + 1 for n, k, s, p, o in axes):
        return w.emit(
            "AveragePool", x, kernel_shape=kernel, strides=stride, pads=padding * 2,
            count_include_pad=int(op.count_include_pad),
        )  # fmt: skip
    # A window that runs over the end is divided by what it covers. Readers of ONNX disagree on that number, so it
    # is written out: zeros at the end, plain averages, times the window's size, over the number meant.
    beyond = [max((o - 1) * s + k - n - p, 0) for n, k, s, p, o in axes]
    padded = w.emit("Pad", x, w.integers("pads", [0, 0, *padding, 0, 0, *beyond]), w.number("value", 0.0))
    average = w.emit("AveragePool", padded, kernel_shape=kernel, strides=stride)
    count = torch.ones(out, dtype=torch.float64)
    for d, (n, k, s, p, o) in enumerate(axes):
        first = torch.arange(o) * s - p
        last = (first + k).clamp_max(n + p)
        covered = last - first if op.count_include_pad else last.clamp_max(n) - first.clamp_min(0)
        count = count * covered.reshape(-1, *[1] * (len(axes) - 1 - d))
    total = w.emit("Mul", average, w.number("size", float(math.prod(kernel))))
    return w.emit("Div", total, w.constant("count", count))


def _max_pool(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    spatial, out = sources[0].shape[1:], node.shape[1:]
    plain = all(
        o == (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d, o in zip(spatial, op.kernel, op.stride, op.padding, op.dilation, out)
    )
    y = w.emit(
        "MaxPool", _input(sources), kernel_shape=op.kernel, strides=op.stride, pads=op.padding * 2,
        dilations=op.dilation, ceil_mode=int(not plain),
    )  # fmt: skip
    if plain:
        return y
    # Some readers keep a last window that lies in the padding alone; there is none here.
    axes = range(2, 2 + len(out))
    return _sliced(w, y, axes, [0] * len(out), out, [1] * len(out))


def _plain(kind: str) -> Callable[[_Writer, Node, Sequence[Node]], str]:
    def write(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
        return w.emit(kind, _input(sources))

    return write


def _leaky_relu(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    slope = op.slope
    if isinstance(slope, Tensor):
        return w.emit("PRelu", _input(sources), w.constant("slope", slope))
    if w.attribute_holds(slope):
        return w.emit("LeakyRelu", _input(sources), alpha=float(slope))
    return w.emit("PRelu", _input(sources), w.number("slope", slope))


def _clip(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    low = w.number("low", op.low) if math.isfinite(op.low) else ""
    high = [w.number("high", op.high)] if math.isfinite(op.high) else []
    return w.emit("Clip", _input(sources), low, *high)


def _elu(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    x, alpha = _input(sources), op.alpha
    if w.attribute_holds(alpha):
        return w.emit("Elu", x, alpha=float(alpha))
    zero = w.number("zero", 0.0)
    below = w.emit("Mul", w.emit("Elu", w.emit("Min", x, zero), alpha=1.0), w.number("alpha", alpha))
    return w.emit("Add", w.emit("Relu", x), below)


def _softplus(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    x, beta = _input(sources), op.beta
    if beta == 1:
        return w.emit("Softplus", x)
    factor = w.number("beta", beta)
    return w.emit("Div", w.emit("Softplus", w.emit("Mul", x, factor)), factor)


def _silu(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    x = _input(sources)
    return w.emit("Mul", x, w.emit("Sigmoid", x))


def _gelu(w: _Writer, node: Node, sources: Sequence[Node]) -> str:
    op: Any = node.op
    x = _input(sources)
    if op.tanh:
        cube = w.emit("Mul", w.emit("Mul", x, x), x)
        inner = w.emit("Add", x, w.emit("Mul", cube, w.number("cubic", 0.044715)))
        bend = w.emit("Tanh", w.emit("Mul", inner, w.number("scale", math.sqrt(2 / math.pi))))
    else:
        bend = w.emit("Erf", w.emit("Mul", x, w.number("scale", math.sqrt(0.5))))
    twice = w.emit("Mul", x, w.emit("Add", bend, w.number("one", 1.0)))
    return w.emit("Mul", twice, w.number("half", 0.5))


_WRITERS: dict[type[ops.Operation], Callable[[_Writer, Node, Sequence[Node]], str]] = {
    ops.Linear: _linear,
    ops.Conv: _conv,
    ops.BatchNorm: _batch_norm,
    ops.Scale: _with_constant("Mul"),
    ops.Divide: _with_constant("Div"),
    ops.Shift: _with_constant("Add"),
    ops.Add: _add,
    ops.Concat: _concat,
    ops.Reshape: _reshape,
    ops.Transpose: _transpose,
    ops.Slice: _slice,
    ops.Pad: _pad,
    ops.Mean: _mean,
    ops.AvgPool: _average_pool,
    ops.MaxPool: _max_pool,
    ops.ReLU: _plain("Relu"),
    ops.LeakyReLU: _leaky_relu,
    ops.Clip: _clip,
    ops.Sigmoid: _plain("Sigmoid"),
    ops.Tanh: _plain("Tanh"),
    ops.Arctan: _plain("Atan"),
    ops.ELU: _elu,
    ops.Softplus: _softplus,
    ops.SiLU: _silu,
    ops.GELU: _gelu,
}
