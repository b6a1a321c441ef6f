"""Operators that onnx's reference implementation gets wrong, by plain loops straight from the ONNX specification.

Pooling goes wrong there with pads, dilations or ceil_mode; batch norm of the opsets before 14 takes the statistics of
the batch; GELU has its constants rounded to float32. Nothing here is shared with the reader, whose windows these are
compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import NodeProto

Operator = Callable[["NodeProto", Sequence[np.ndarray]], np.ndarray]


def plain_operator(node: NodeProto, opset: int) -> Operator | None:
    """What computes a node's first output from its inputs; None where the reference implementation is right."""
    if node.op_type == "BatchNormalization":
        return _batch_norm if opset < 14 else None
    return _OPERATORS.get(node.op_type)


def _attributes(node: NodeProto) -> dict[str, Any]:
    from onnx.helper import get_attribute_value

    return {a.name: get_attribute_value(a) for a in node.attribute}


def _batch_norm(node: NodeProto, inputs: Sequence[np.ndarray]) -> np.ndarray:
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


def _max_pool(node: NodeProto, inputs: Sequence[np.ndarray]) -> np.ndarray:
    return _each_axis(node, inputs[0], np.max)


def _average_pool(node: NodeProto, inputs: Sequence[np.ndarray]) -> np.ndarray:
    padded = bool(_attributes(node).get("count_include_pad", 0))
    counts = np.ones(())
    for windows in _axes(node, inputs[0].shape[2:]):
        counts = np.multiply.outer(counts, [whole if padded else len(inside) for inside, whole in windows])
    return _each_axis(node, inputs[0], np.sum) / counts


def _global_max_pool(node: NodeProto, inputs: Sequence[np.ndarray]) -> np.ndarray:
    x = inputs[0]
    return x.reshape(*x.shape[:2], -1).max(-1).reshape(*x.shape[:2], *[1] * (x.ndim - 2))


def _gelu(node: NodeProto, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """`x / 2 (1 + erf(x / sqrt 2))`, or its approximation by tanh, number by number."""
    if _attributes(node).get("approximate", b"none") == b"tanh":
        bends = [math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)) for v in inputs[0].flat]
    else:
        bends = [math.erf(v / math.sqrt(2)) for v in inputs[0].flat]
    return inputs[0] / 2 * (1 + np.reshape(bends, inputs[0].shape))


_OPERATORS: dict[str, Operator] = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalMaxPool": _global_max_pool,
    "Gelu": _gelu,
}
