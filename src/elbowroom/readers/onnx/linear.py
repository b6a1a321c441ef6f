"""Linear models of ONNX's operators for tables, written as a product and a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from elbowroom.errors import InputError
from elbowroom.readers.reading import refuse

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_AFTER = ("Identity", "ZipMap", "Normalizer", "Cast", "ArrayFeatureExtractor")  # what may follow at the very end


@dataclass(frozen=True)
class Classifier:
    """A linear classifier at the end of a model. `output`: the value that decides; `single`: whether it is one number,
    for the second of two classes; `post`: what stood behind it, by ONNX's name."""

    output: str
    classes: tuple[str, ...]
    single: bool
    post: str


def linear_classifier(
    node: NodeProto, graph: GraphProto, ends: list[str]
) -> tuple[list[NodeProto], list[Any], Classifier | None]:
    """The nodes and tensors that stand for one, and what it is where the model ends in it.

    Of two classes whose numbers are each other's negatives one is enough.
    """
    given = _attributes(node)
    names = given.get("classlabels_strings") or given.get("classlabels_ints")
    texts = [_text(v) if isinstance(v, bytes) else str(v) for v in names or ()]
    weight, bias = _matrix(given, len(texts))
    post = given.get("post_transform", b"NONE").decode()
    if len(texts) < 2 or len(set(texts)) != len(texts):
        refuse("does not say which classes it decides between")
    if node.output[1:] and not all(_follows(graph, end, node.output[1], len(texts)) for end in ends):
        if post != "NONE":
            refuse(f"its numbers ({post}) are used further; only a linear classifier at the end is read")
        return *_product(node.input[0], node.output[1], weight, bias), None
    if post not in ("NONE", "LOGISTIC", "SOFTMAX"):
        refuse(f"its post_transform {post!r} is not supported")
    single = len(texts) == 2 and post != "SOFTMAX" and np.array_equal(weight[0], -weight[1]) and bias[0] == -bias[1]
    if single:
        weight, bias = weight[1:], bias[1:]
    output = f"{node.output[1]} decides"
    logits = output if post == "NONE" or (post == "LOGISTIC" and not single) else f"{output} before"
    nodes, tensors = _product(node.input[0], logits, weight, bias)
    if logits != output:
        from onnx import helper

        last = helper.make_node("Sigmoid" if single else "Softmax", [logits], [output], name=f"{node.name} {post}")
        nodes.append(last)
    return nodes, tensors, Classifier(output, tuple(texts), single, post)


def linear_regressor(node: NodeProto) -> tuple[list[NodeProto], list[Any]]:
    given = _attributes(node)
    if given.get("post_transform", b"NONE") != b"NONE":
        refuse(f"its post_transform {given['post_transform'].decode(errors='replace')!r} is not supported")
    weight, bias = _matrix(given, int(given.get("targets", 1)))
    return _product(node.input[0], node.output[0], weight, bias)


def _matrix(given: dict[str, Any], rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights `rows x n` and biases `rows`, float32 as they are stored."""
    weight = np.array(given.get("coefficients", ()), dtype=np.float32)
    bias = np.array(given.get("intercepts", (0.0,) * rows), dtype=np.float32)
    if rows < 1 or not weight.size or weight.size % rows or len(bias) != rows:
        raise InputError(f"a linear model has {weight.size} coefficients and {len(bias)} intercepts for {rows} outputs")
    return weight.reshape(rows, -1), bias


def _product(source: str, output: str, weight: np.ndarray, bias: np.ndarray) -> tuple[list[NodeProto], list[Any]]:
    from onnx import helper, numpy_helper

    names = [f"{output} {what}" for what in ("weights", "biases", "product")]
    tensors = [
        numpy_helper.from_array(np.ascontiguousarray(weight.T), names[0]),
        numpy_helper.from_array(bias, names[1]),
    ]
    return [
        helper.make_node("MatMul", [source, names[0]], [names[2]], name=names[2]),
        helper.make_node("Add", [names[2], names[1]], [output], name=f"{output} sum"),
    ], tensors


def _follows(graph: GraphProto, end: str, scores: str, classes: int) -> bool:
    """Whether an output is the classifier's numbers, as they are or as names with numbers, normalised, or the second of
    two: what decides is the same."""
    from onnx import numpy_helper

    makers = {name: node for node in graph.node for name in node.output}
    held = {t.name: t for t in graph.initializer}
    while end != scores:
        node = makers.get(end)
        if node is None or node.op_type not in _AFTER:
            return False
        if node.op_type == "ArrayFeatureExtractor":
            chosen = held.get(node.input[1])
            if classes != 2 or chosen is None or numpy_helper.to_array(chosen).reshape(-1).tolist() != [1]:
                return False
        end = node.input[0]
    return True


def _attributes(node: NodeProto) -> dict[str, Any]:
    from onnx.helper import get_attribute_value

    return {a.name: get_attribute_value(a) for a in node.attribute}


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return refuse("has a class whose name is no text")


__all__ = ["Classifier", "linear_classifier", "linear_regressor"]
