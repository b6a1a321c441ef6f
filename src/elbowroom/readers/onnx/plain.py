"""Operators that onnx's reference implementation gets wrong, written out plainly from the ONNX specification.

What it gets wrong: pooling with pads, dilations or ceil_mode; the statistics of batch norms before opset 14; the axes
of softmax before opset 13, and LogSoftmax where a probability is next to nothing; Squeeze and Unsqueeze with axes in
any order; Softplus of large numbers in old versions. Erf and the constants of GELU are rounded to float32 there, and
some misfits are taken. Nothing here is shared with the reader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import NodeProto

Arrays = Sequence[np.ndarray]
Operator = Callable[["NodeProto", Arrays], np.ndarray]


def plain_operator(node: NodeProto, opset: int) -> Callable[[Arrays], Arrays] | None:
    """What computes a node's first outputs from its inputs; None where the reference implementation is right."""
    match node.op_type:
        case "Softmax" | "LogSoftmax":
            return lambda inputs: [_softmax(node, inputs[0], opset)]
        case "BatchNormalization" if opset >= 14:
            return None
    found = _OPERATORS.get(node.op_type)
    return None if found is None else lambda inputs: [found(node, inputs)]


def check_fit(node: NodeProto, inputs: Arrays) -> None:
    """Refuses inputs that the specification refuses and the reference implementation takes."""
    if node.op_type == "Gemm" and any(x.ndim != 2 for x in inputs[:2]):
        raise ValueError(f"shapes {inputs[0].shape} and {inputs[1].shape} are not those of matrices")
    if node.op_type == "PRelu" and np.broadcast_shapes(*(x.shape for x in inputs)) != inputs[0].shape:
        raise ValueError(f"slopes of shape {inputs[1].shape} do not fit {inputs[0].shape}")
    if node.op_type == "Split":
        a = _attributes(node)
        size, sizes = inputs[0].shape[a.get("axis", 0)], inputs[1].tolist() if len(inputs) > 1 else a.get("split")
        if sizes is not None and sum(sizes) != size:
            raise ValueError(f"an axis of size {size} cannot be split into {sizes}")


def _attributes(node: NodeProto) -> dict[str, Any]:
    from onnx.helper import get_attribute_value

    return {a.name: get_attribute_value(a) for a in node.attribute}


def _batch_norm(node: NodeProto, inputs: Arrays) -> np.ndarray:
    """`(x - mean) / sqrt(var + epsilon) * scale + bias`, channel by channel."""
    x, scale, bias, mean, var = inputs
    epsilon = _attributes(node).get("epsilon", float(np.float32(1e-5)))
    y = np.empty_like(x)
    for c in range(x.shape[1]):
        y[:, c] = (x[:, c] - mean[c]) / math.sqrt(var[c] + epsilon) * scale[c] + bias[c]
    return y


def _windows(n: int, k: int, s: int, d: int, begin: int, end: int, ceil: bool) -> list[tuple[list[int], int]]:
    """The windows along an axis of size n: their positions in it, and how many lie in it or in its padding."""
    found: list[tuple[list[int], int]] = []
    start, reach = -begin, d * (k - 1)
    while start + reach < n + end or (ceil and start < n and start - s + reach < n + end - 1):
        positions = [start + d * j for j in range(k)]
        inside = [p for p in positions if 0 <= p < n]
        found.append((inside, sum(-begin <= p < n + end for p in positions)))
        start += s
    return found


def _axes(node: NodeProto, spatial: Sequence[int]) -> list[list[tuple[list[int], int]]]:
    """The windows along each spatial axis."""
    a = _attributes(node)
    kernel, dims = a["kernel_shape"], len(spatial)
    strides, dilations = a.get("strides", [1] * dims), a.get("dilations", [1] * dims)
    mode, pads = a.get("auto_pad", b"NOTSET"), a.get("pads", [0] * (2 * dims))
    axes = []
    for i, (n, k, s, d) in enumerate(zip(spatial, kernel, strides, dilations)):
        begin, end = pads[i], pads[i + dims]
        if mode in (b"SAME_UPPER", b"SAME_LOWER"):
            total = (math.ceil(n / s) - 1) * s + d * (k - 1) + 1 - n
            small, large = total // 2, total - total // 2
            begin, end = (small, large) if mode == b"SAME_UPPER" else (large, small)
        axes.append(_windows(n, k, s, d, begin, end, bool(a.get("ceil_mode", 0))))
    return axes


def _each_axis(node: NodeProto, x: np.ndarray, reduce: Callable[..., np.ndarray]) -> np.ndarray:
    """Takes the maximum or the sum of every window, one axis after the other."""
    for axis, windows in enumerate(_axes(node, x.shape[2:]), 2):
        x = np.stack([reduce(x.take(inside, axis), axis=axis) for inside, _ in windows], axis)
    return x


def _max_pool(node: NodeProto, inputs: Arrays) -> np.ndarray:
    return _each_axis(node, inputs[0], np.max)


def _average_pool(node: NodeProto, inputs: Arrays) -> np.ndarray:
    padded = bool(_attributes(node).get("count_include_pad", 0))
    counts = np.ones(())
    for windows in _axes(node, inputs[0].shape[2:]):
        counts = np.multiply.outer(counts, [whole if padded else len(inside) for inside, whole in windows])
    return _each_axis(node, inputs[0], np.sum) / counts


def _global_max_pool(node: NodeProto, inputs: Arrays) -> np.ndarray:
    x = inputs[0]
    largest: np.ndarray = x.reshape(*x.shape[:2], -1).max(-1).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    return largest


def _softmax(node: NodeProto, x: np.ndarray, opset: int) -> np.ndarray:
    """Over one axis; before opset 13 over all numbers from an axis on, for each index of the axes before it."""
    axis = _attributes(node).get("axis", -1 if opset >= 13 else 1) % max(x.ndim, 1)
    rows = np.moveaxis(x, axis, -1) if opset >= 13 else x.reshape(math.prod(x.shape[:axis]), -1)
    z = rows - rows.max(-1, keepdims=True)
    z = z - np.log(np.exp(z).sum(-1, keepdims=True))
    found = np.exp(z) if node.op_type == "Softmax" else z
    return np.moveaxis(found, -1, axis) if opset >= 13 else found.reshape(x.shape)


def _given_axes(node: NodeProto, inputs: Arrays) -> list[int] | None:
    """An attribute in old opsets, an input in new ones."""
    return inputs[1].reshape(-1).tolist() if len(inputs) > 1 else _attributes(node).get("axes")


def _squeeze(node: NodeProto, inputs: Arrays) -> np.ndarray:
    """Without axes it takes out all of size 1."""
    x, axes = inputs[0], _given_axes(node, inputs)
    gone = {d for d in range(x.ndim) if x.shape[d] == 1} if axes is None else {axis % x.ndim for axis in axes}
    if any(x.shape[d] != 1 for d in gone):
        raise ValueError(f"axes {axes} of the shape {x.shape} are not all of size 1")
    return x.reshape([n for d, n in enumerate(x.shape) if d not in gone])


def _unsqueeze(node: NodeProto, inputs: Arrays) -> np.ndarray:
    """Axes count in the result, in any order."""
    x, axes = inputs[0], _given_axes(node, inputs) or []
    rank, sizes = x.ndim + len(axes), list(x.shape)
    for axis in sorted(axis % rank for axis in axes):
        sizes.insert(axis, 1)
    return x.reshape(sizes)


def _erf(node: NodeProto, inputs: Arrays) -> np.ndarray:
    return np.reshape([math.erf(v) for v in inputs[0].flat], inputs[0].shape)


def _softplus(node: NodeProto, inputs: Arrays) -> np.ndarray:
    return np.logaddexp(0.0, inputs[0])


def _gelu(node: NodeProto, inputs: Arrays) -> np.ndarray:
    """`x / 2 (1 + erf(x / sqrt 2))`, or its approximation by tanh, number by number."""
    if _attributes(node).get("approximate", b"none") == b"tanh":
        bends = [math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)) for v in inputs[0].flat]
    else:
        bends = [math.erf(v / math.sqrt(2)) for v in inputs[0].flat]
    y: np.ndarray = inputs[0] / 2 * (1 + np.reshape(bends, inputs[0].shape))
    return y


_OPERATORS: dict[str, Operator] = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalMaxPool": _global_max_pool,
    "BatchNormalization": _batch_norm,
    "Erf": _erf,
    "Gelu": _gelu,
    "Softplus": _softplus,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
