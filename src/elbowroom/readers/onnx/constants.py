"""What an ONNX model computes from constants alone, mostly shapes: evaluated once, as onnx's own reference does it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elbowroom.errors import InputError
from elbowroom.readers.onnx.file import checked_size, widened
from elbowroom.readers.onnx.step import Step
from elbowroom.readers.reading import first_line, refuse

if TYPE_CHECKING:
    from onnx import NodeProto

Arrays = Sequence[np.ndarray | None]


def fold(node: NodeProto, inputs: Arrays, opset: int) -> list[np.ndarray]:
    """The node's results, from constant inputs (None where one is left out)."""
    bound = _SIZES.get(node.op_type)
    if node.domain not in ("", "ai.onnx") or bound is None:
        refuse("it is not supported on constants")
    given = [x for x in inputs if x is not None]
    if node.op_type == "Div" and any(x.dtype.kind in "iu" and (x < 0).any() for x in given):
        refuse("it divides negative whole numbers")  # rounded in more than one way
    checked_size((bound(node, inputs),))
    return [widened(np.asarray(y)) for y in evaluate([node], dict(zip(node.input, inputs)), list(node.output), opset)]


def check_size(node: NodeProto, inputs: Arrays) -> None:
    """Refuses a node whose result would be too large, where its inputs tell."""
    bound = _SIZES.get(node.op_type)
    if bound is not None and node.domain in ("", "ai.onnx"):
        checked_size((bound(node, inputs),))


def evaluate(nodes: Sequence[NodeProto], feeds: dict[str, Any], outputs: list[str], opset: int) -> list[Any]:
    """The values named in `outputs`, by onnx's reference implementation of `nodes` applied to `feeds`."""
    known = {name: value for name, value in feeds.items() if value is not None}
    return Evaluator(nodes, list(known), outputs, opset)(known)


class Evaluator:
    """Some nodes in onnx's reference implementation: the values named in `outputs`, from those in `names`."""

    def __init__(self, nodes: Sequence[NodeProto], names: Sequence[str], outputs: Sequence[str], opset: int) -> None:
        import onnx
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        if any(a.HasField("g") or a.t.data_location for node in nodes for a in node.attribute):
            refuse("it holds a graph, or a tensor that is kept in another file")
        anything = onnx.TypeProto()
        graph = helper.make_graph(
            list(nodes), "part", [helper.make_value_info(n, anything) for n in names],
            [helper.make_value_info(n, anything) for n in outputs],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
        try:
            self._run = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run
        except Exception as error:  # whatever an operator that is lacking, or damaged, makes it raise
            raise InputError(f"it cannot be computed: {first_line(error)}") from None

    def __call__(self, feeds: dict[str, Any]) -> list[Any]:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return list(self._run(None, feeds))
            except Exception as error:  # whatever an implementation raises on a misfit
                raise InputError(f"it cannot be computed: {first_line(error)}") from None


def stored(to: Step) -> np.ndarray:
    """What a Constant node holds, in whichever way."""
    array = to.stored("value")
    if array is not None:
        return array
    if (numbers := to.integers("value_ints")) is not None:
        return np.array(numbers, dtype=np.int64)
    if (reals := to.reals("value_floats")) is not None:
        return reals
    if to.has("value_int"):
        return np.array(to.integer("value_int", 0), dtype=np.int64)
    if to.has("value_float"):
        return np.array(to.real("value_float", 0.0), dtype=np.float32)
    return refuse("it holds a sparse tensor, texts, or nothing")


# --- how many numbers a result has at most: a file may ask for terabytes in a few bytes


def _largest(node: NodeProto, inputs: Arrays) -> int:
    return max((x.size for x in inputs if x is not None), default=0)


def _all(node: NodeProto, inputs: Arrays) -> int:
    return sum(x.size for x in inputs if x is not None)


def _broadcast(node: NodeProto, inputs: Arrays) -> int:
    return math.prod(_joint([x.shape for x in inputs if x is not None]))


def _joint(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise InputError(f"shapes {' and '.join(map(str, shapes))} do not broadcast") from None


def _numbers(x: np.ndarray | None) -> tuple[int, ...]:
    return () if x is None else tuple(int(n) for n in x.reshape(-1))


def _of_shape(node: NodeProto, inputs: Arrays) -> int:
    return checked_size(_numbers(inputs[0]))


def _expanded(node: NodeProto, inputs: Arrays) -> int:
    checked_size(_numbers(inputs[1]))
    return math.prod(_joint([x.shape for x in inputs[:1] if x is not None] + [_numbers(inputs[1])]))


def _tiled(node: NodeProto, inputs: Arrays) -> int:
    return _largest(node, inputs[:1]) * checked_size(_numbers(inputs[1]))


def _gathered(node: NodeProto, inputs: Arrays) -> int:
    (data, *_), axis = inputs, next((a.i for a in node.attribute if a.name == "axis"), 0)
    if data is None or not -data.ndim <= axis < data.ndim:
        raise InputError(f"there is no axis {axis} to gather from")
    size: int = _largest(node, inputs[1:]) * data.size // max(data.shape[axis], 1)
    return size


def _multiplied(node: NodeProto, inputs: Arrays) -> int:
    x, y = (v if v.ndim > 1 else v.reshape(1, -1) for v in inputs if v is not None)
    size: int = math.prod(_joint([x.shape[:-2], y.shape[:-2]])) * x.shape[-2] * y.shape[-1]
    return size


def _range(node: NodeProto, inputs: Arrays) -> int:
    start, limit, delta = (float(x.reshape(())) for x in inputs if x is not None)
    if not delta or not all(map(math.isfinite, (start, limit, delta))):
        raise InputError(f"there is no range from {start} to {limit} by {delta}")
    return max(0, math.ceil((limit - start) / delta))


_SIZES: dict[str, Callable[[Any, Arrays], int]] = {
    **dict.fromkeys(
        ("Abs", "Cast", "Ceil", "Clip", "Exp", "Flatten", "Floor", "Identity", "Log", "Neg", "Not", "Reciprocal",
         "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "Shape",
         "Sign", "Size", "Slice", "Split", "Sqrt", "Squeeze", "Transpose", "Unsqueeze"), _largest
    ),
    **dict.fromkeys(
        ("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul",
         "Or", "Pow", "Sub", "Where"), _broadcast
    ),
    "Concat": _all,
    "ConstantOfShape": _of_shape,
    "Expand": _expanded,
    "Gather": _gathered,
    "MatMul": _multiplied,
    "Range": _range,
    "Tile": _tiled,
}  # fmt: skip

# Those that only say where a number goes; the others compute, and round.
MOVES = {
    "Concat", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Neg", "Reshape", "Slice", "Split",
    "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
