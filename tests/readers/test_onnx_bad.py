"""ONNX files that cannot be read: each gives one clear error, takes no memory it does not need, reads no other file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import elbowroom as er
from elbowroom.errors import ElbowroomError, InputError, UnsupportedError
from elbowroom.readers.onnx.model import read_onnx
from onnx_support import agree, model, node, numbers, read, session

A = numbers
F = np.float32
FLOAT, FLOAT16, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT64


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def small() -> onnx.ModelProto:
    return model([node("Gemm", "x w b", transB=1)], ("n", 4), {"w": A(3, 4), "b": A(3)})


# --- operators

MATRIX = node("MatMul", "x w", "m")
UNSUPPORTED: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], str]] = {
    "recurrent": ([node("LSTM", "x w r", hidden_size=2)], {"w": A(1, 8, 4), "r": A(1, 8, 2)}, "recurrent"),
    "quantised": (
        [node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s")],
        {"s": F(1)},
        "before it is quantised",
    ),
    "quantised weights": (
        [node("DequantizeLinear", "q s", "w"), node("MatMul", "x w")],
        {"q": A(4, 3).astype(np.int8), "s": F(1)},
        "quantised",
    ),
    "control flow": ([node("Loop", "- x")], {}, "a condition or a loop"),
    "random": ([node("RandomNormal", "", "r", shape=[4]), node("Add", "x r")], {}, "draws random numbers"),
    "custom domain": ([node("Relu", "x", domain="my.own")], {}, "an operator of the domain 'my.own'"),
    "unknown": ([node("Sin", "x")], {}, "not supported"),
    "product": ([node("Tanh", "x", "t"), node("Mul", "x t")], {}, "a product of two computed values"),
    "square": ([node("Mul", "x x")], {}, "a product of two computed values"),
    "square and more": ([node("Mul", "x x", "s"), node("Relu", "s")], {}, "a product of two computed values"),
    "matrices": (
        [MATRIX, node("Transpose", "m", "t"), node("MatMul", "m t")],
        {"w": A(4, 3)},
        "a product of two computed",
    ),
    "stack": ([node("MatMul", "x w")], {"w": A(2, 4, 3)}, "a stack of matrices"),
    "quotient": ([node("Relu", "x", "r"), node("Div", "x r")], {}, "a division by a computed value"),
    "constant over": ([node("Div", "c x")], {"c": F(1)}, "a division by a computed value"),
    "erf alone": ([node("Erf", "x")], {}, "read only as a part of GELU"),
    "erf that is no gelu": (
        [node("Mul", "x s", "a"), node("Erf", "a", "e"), node("Mul", "x e")],
        {"s": F(np.sqrt(0.5))},
        "only as a part of GELU",
    ),
    "almost gelu": (
        [node("Mul", "x s", "a"), node("Erf", "a", "e"), node("Add", "e one", "f"), node("Mul", "x f")],
        {"s": F(0.70711), "one": F(1)},
        "read only as a part of GELU",
    ),
    "power": ([node("Pow", "x p")], {"p": F(2)}, "GELU's approximation by tanh"),
    "tanh of a cube": ([node("Pow", "x p", "c"), node("Tanh", "c")], {"p": F(3)}, "GELU's approximation by tanh"),
    "softmax inside": (
        [node("Softmax", "x", "s", axis=1), node("MatMul", "s w")],
        {"w": A(4, 3)},
        "only at the very end",
    ),
    "softmax over a part": (
        [node("Reshape", "x s", "r"), node("Softmax", "r", axis=2)],
        {"s": ints(1, 2, 2)},
        "a part of its input",
    ),
    "argmax inside": (
        [node("ArgMax", "x", "a", axis=1), node("Cast", "a", "f", to=FLOAT), node("Mul", "f c")],
        {"c": F(2)},
        "only at the very",
    ),
    "argmax over a part": (
        [node("Reshape", "x s", "r"), node("ArgMax", "r", axis=2)],
        {"s": ints(1, 2, 2)},
        "a part of its input",
    ),
    "argmin": ([node("ArgMin", "x", axis=1)], {}, "decision min"),
    "top k": ([node("TopK", "x k", "y i", axis=1)], {"k": ints(2)}, "not supported"),
    "training": (
        [node("BatchNormalization", "x s s s v", "y a b", training_mode=1)],
        {"s": A(4), "v": A(4) ** 2},
        "eval mode",
    ),
    "dropout in training": ([node("Dropout", "x r t")], {"r": F(0.5), "t": np.array(True)}, "eval mode"),
    "half of the values dropped in training": ([node("Dropout", "x - t")], {"t": np.array(True)}, "eval mode"),
    "the mask of a dropout": (
        [node("Dropout", "x", "d mask"), node("Cast", "mask", to=FLOAT)],
        {},
        "only its first output",
    ),
    "computed weights": (
        [node("Reshape", "x s", "w"), node("Conv", "c w")],
        {"s": ints(1, 1, 2, 2), "c": A(1, 1, 5, 5)},
        "computed from the input",
    ),
    "reflection": ([node("Pad", "x p", mode="reflect")], {"p": ints(0, 1, 0, 1)}, "the mode 'reflect'"),
    "backwards": (
        [node("Slice", "x a b c d")],
        {"a": ints(3), "b": ints(0), "c": ints(1), "d": ints(-1)},
        "only positive ones",
    ),
    "empty": ([node("Slice", "x a b c")], {"a": ints(3), "b": ints(2), "c": ints(1)}, "an empty piece"),
    "no interval": ([node("Clip", "x a b")], {"a": F(1), "b": F(1)}, r"clips to \[1.0, 1.0\]"),
    "limits of a shape": ([node("Max", "x a")], {"a": A(4)}, "one computed value and a number"),
    "to half precision": (
        [node("Cast", "x", "h", to=FLOAT16), node("Cast", "h", "f", to=FLOAT), node("Gemm", "f w")],
        {"w": A(4, 3)},
        "rounds its values to float16, which is not part of a network in real arithmetic",
    ),
    "to bfloat16": (
        [node("Gemm", "x w", "g"), node("Cast", "g", to=TensorProto.BFLOAT16)],
        {"w": A(4, 3)},
        "rounds its values to bfloat16",
    ),
    "layers of half precision": (
        [node("Cast", "x", "h", to=FLOAT16), node("Gemm", "h w", "g"), node("Cast", "g", to=FLOAT)],
        {"w": A(4, 3, dtype=np.float16)},
        "rounds its values to float16",
    ),
    "probabilities in half precision": (
        [node("Softmax", "x", "s", axis=1), node("Cast", "s", to=FLOAT16)],
        {},
        "rounds its values to float16",
    ),
    "probabilities to whole numbers": (
        [node("Softmax", "x", "s", axis=1), node("Cast", "s", to=INT64)],
        {},
        "a conversion to int64",
    ),
    "constants of half precision": (
        [node("Mul", "w w", "v"), node("Cast", "v", "u", to=FLOAT), node("MatMul", "x u")],
        {"w": A(4, 3, dtype=np.float16)},
        "it computes a constant in float16",
    ),
    "to whole numbers": ([node("Cast", "x", "i", to=INT64), node("Cast", "i", to=FLOAT)], {}, "a conversion to int64"),
    "repetition": ([node("Expand", "x s")], {"s": ints(3, 4)}, "it repeats values"),
    "tiles": ([node("Tile", "x s")], {"s": ints(1, 2)}, "it repeats values"),
    "a transposed convolution": (
        [node("Reshape", "x s", "r"), node("ConvTranspose", "r w")],
        {"s": ints(1, 1, 4), "w": A(1, 1, 2)},
        "transposed",
    ),
    "dilated averages": (
        [node("Reshape", "x s", "r"), node("AveragePool", "r", kernel_shape=[2], dilations=[2])],
        {"s": ints(1, 1, 4)},
        "dilations",
    ),
    "positions of the largest": (
        [node("Reshape", "x s", "r"), node("MaxPool", "r", "p i", kernel_shape=[2]), node("Cast", "i", to=FLOAT)],
        {"s": ints(1, 1, 4)},
        "only its first output",
    ),
    "an attribute from the future": ([node("Relu", "x", steepness=2.0)], {}, "attribute 'steepness' is not understood"),
    "four axes": (
        [node("Reshape", "x s", "r"), node("MaxPool", "r", kernel_shape=[1] * 4)],
        {"s": ints(1, 1, 1, 1, 2, 2)},
        "1 to 3 spatial",
    ),
    "normalisation": ([node("LayerNormalization", "x s")], {"s": A(4)}, "divides by what it computes"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported(name: str, tmp_path: Path) -> None:
    nodes, constants, message = UNSUPPORTED[name]
    with pytest.raises(UnsupportedError, match=message):
        read(model(nodes, (1, 4), constants, 18), tmp_path)


def test_all_unsupported_operators_are_listed_at_once(tmp_path: Path) -> None:
    nodes = [
        node("Sin", "x", "s"),
        node("Relu", "s", "r"),
        node("Cos", "r", "c"),
        node("MatMul", "c r", "m"),
        node("Sin", "m", "t"),
        node("LSTM", "t w w", "l"),
        node("Add", "l x"),
    ]
    with pytest.raises(UnsupportedError) as caught:
        read(model(nodes, (1, 4), {"w": A(1, 4, 4)}), tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("model.onnx: the model holds operators without a bound here:")
    assert [line.strip() for line in lines[1:]] == [
        "Sin (nodes 'Sin_s', 'Sin_t'): not supported",
        "Cos (node 'Cos_c'): not supported",
        "MatMul (node 'MatMul_m'): a product of two computed values",
        "LSTM (node 'LSTM_l'): recurrent networks are not supported",
    ]


def test_what_follows_is_not_blamed(tmp_path: Path) -> None:
    """Sizes and weights computed from something unsupported are no mistakes of their own."""
    nodes = [
        node("Sin", "x", "s"), node("Shape", "s", "n"), node("Gather", "n zero", "g"), node("Cast", "g", "f", to=FLOAT),
        node("Cast", "f", "i", to=INT64), node("Unsqueeze", "i zero", "u"), node("Concat", "u minus", "t", axis=0),
        node("Reshape", "s t", "r"), node("Sin", "w", "v"), node("MatMul", "r v", "m"), node("Div", "m v"),
    ]  # fmt: skip
    with pytest.raises(UnsupportedError) as caught:
        read(model(nodes, (1, 4), {"zero": ints(0), "minus": ints(-1), "w": A(4, 4)}, 13), tmp_path)
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
        "Sin (node 'Sin_s'): not supported",
        "Sin (node 'Sin_v'): it is not supported on constants",
    ]


@pytest.mark.parametrize("end", ["Softmax", "ArgMax"])
def test_regression_does_not_end_in_a_decision(end: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=rf"{end} \(node '{end}_y'\): a regression model cannot end in it"):
        read(model([node(end, "x", axis=1)], (1, 4)), tmp_path, "regression")


# --- models that are none

DAMAGED: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], str]] = {
    "not a number": ([node("Mul", "x c")], {"c": A(4) * np.nan}, "holds NaN or infinite"),
    "infinite": ([node("MatMul", "x c")], {"c": np.full((4, 3), np.inf, F)}, "holds NaN or infinite"),
    "zero": ([node("Div", "x c")], {"c": np.zeros(4, F)}, "contains zero"),
    "negative variance": (
        [node("BatchNormalization", "x a a a b")],
        {"a": A(4), "b": -np.ones(4, F)},
        "negative running variance",
    ),
    "misfit": ([node("MatMul", "x w")], {"w": A(5, 3)}, "does not fit"),
    "misfit gemm": ([node("Gemm", "x w")], {"w": A(5, 3)}, "does not fit"),
    "misfit bias": ([node("Gemm", "x w b")], {"w": A(4, 3), "b": A(4)}, "do not broadcast"),
    "big bias": ([node("Gemm", "x w b")], {"w": A(4, 3), "b": A(5, 3)}, "does not fit the product's"),
    "misfit sum": ([node("Add", "x c")], {"c": A(3)}, "do not broadcast"),
    "misfit reshape": ([node("Reshape", "x s")], {"s": ints(1, 3)}, r"do not fit into the shape \(1, 3\)"),
    "two free sizes": ([node("Reshape", "x s")], {"s": ints(-1, -1)}, "do not fit into the shape"),
    "no size": ([node("Reshape", "x s", allowzero=1)], {"s": ints(0, 4)}, "do not fit into the shape"),
    "misfit channels": (
        [node("Reshape", "x s", "r"), node("Conv", "r w")],
        {"s": ints(1, 2, 2), "w": A(3, 4, 1)},
        "do not fit an input",
    ),
    "misfit kernel": (
        [node("Reshape", "x s", "r"), node("Conv", "r w", kernel_shape=[3])],
        {"s": ints(1, 2, 2), "w": A(3, 2, 1)},
        "do not fit",
    ),
    "wide window": (
        [node("Reshape", "x s", "r"), node("MaxPool", "r", kernel_shape=[5])],
        {"s": ints(1, 1, 4)},
        "does not fit an axis of 4",
    ),
    "negative pads": (
        [node("Reshape", "x s", "r"), node("MaxPool", "r", kernel_shape=[2], pads=[-1, 0])],
        {"s": ints(1, 1, 4)},
        "fit no image",
    ),
    "no kernel": ([node("Reshape", "x s", "r"), node("MaxPool", "r")], {"s": ints(1, 1, 4)}, "fit no image"),
    "padding alone": (
        [node("Reshape", "x s", "r"), node("AveragePool", "r", kernel_shape=[1], pads=[1, 0])],
        {"s": ints(1, 1, 4)},
        "padding alone",
    ),
    "auto pad": (
        [node("Reshape", "x s", "r"), node("MaxPool", "r", kernel_shape=[2], auto_pad="SAME")],
        {"s": ints(1, 1, 4)},
        "has no meaning",
    ),
    "misfit parts": ([node("Relu", "x", "r"), node("Concat", "x r c", axis=1)], {"c": A(2, 4)}, "cannot be joined"),
    "misfit split": ([node("Split", "x s", "y z", axis=1)], {"s": ints(1, 2)}, "cannot be split"),
    "index": ([node("Gather", "x i", axis=1)], {"i": ints(4)}, "outside an axis of size 4"),
    "axis": ([node("Gather", "x i", axis=2)], {"i": ints(0)}, "it has no axis 2"),
    "axis twice": ([node("ReduceSum", "x a")], {"a": ints(1, -1)}, "an axis appears twice"),
    "squeeze": ([node("Squeeze", "x a")], {"a": ints(1)}, "do not all have size 1"),
    "order": ([node("Transpose", "x", perm=[0, 0])], {}, "no order of those"),
    "cut to nothing": ([node("Pad", "x p")], {"p": ints(0, -3, 0, -2)}, "cannot be cut down"),
    "number of pads": ([node("Pad", "x p")], {"p": ints(0, 1)}, "2 pads do not fit 2 axes"),
    "undefined": ([node("Add", "x nothing")], {}, "'nothing' is used, and nothing before computes it"),
    "later": ([node("Add", "x z"), node("Relu", "x", "z")], {}, "'z' is used, and nothing before computes it"),
    "circle": ([node("Add", "x z"), node("Relu", "y", "z")], {}, "nothing before computes it"),
    "twice": ([node("Relu", "x"), node("Tanh", "x")], {}, "'y' is computed twice"),
    "over a constant": ([node("Relu", "x", "c"), node("Add", "c x")], {"c": A(4)}, "'c' is computed twice"),
    "too few": ([node("Add", "x")], {}, "it has 1 input, too few"),
    "too many": ([node("Relu", "x c c")], {"c": A(4)}, "it has 3 inputs, too few or too many"),
    "left out": ([node("Add", "- x")], {}, "one of its inputs is missing"),
    "kind of attribute": ([node("LeakyRelu", "x", alpha="much")], {}, "'alpha' is not of the kind float"),
    "infinite attribute": ([node("LeakyRelu", "x", alpha=float("inf"))], {}, "the attribute 'alpha' is inf"),
    "whole weights": ([node("MatMul", "x w")], {"w": np.ones((4, 3), np.int64)}, "of type int64; real numbers"),
    "real sizes": ([node("Reshape", "x s")], {"s": A(2)}, "not whole numbers"),
    "constant arithmetic": ([node("Add", "a b", "c"), node("Add", "x c")], {"a": A(3), "b": A(2)}, "do not broadcast"),
    "too many sizes": ([node("Reshape", "x s")], {"s": -np.ones(10**6, np.int64)}, "1000000 sizes; at most 64"),
    "no range": (
        [node("Range", "a b c", "r"), node("Add", "x r")],
        {"a": F(0), "b": F(4), "c": F(0)},
        "there is no range",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_models(name: str, tmp_path: Path) -> None:
    nodes, constants, message = DAMAGED[name]
    with pytest.raises((InputError, UnsupportedError), match=message) as caught:
        read(model(nodes, (1, 4), constants, 17), tmp_path)
    assert str(caught.value).startswith(str(tmp_path))


HUGE = 10**12
GREEDY: dict[str, tuple[list[onnx.NodeProto], dict[str, Any]]] = {
    "ConstantOfShape": ([node("ConstantOfShape", "s", "c"), node("Add", "x c")], {"s": ints(HUGE)}),
    "ConstantOfShape of several axes": (
        [node("ConstantOfShape", "s", "c"), node("Add", "x c")],
        {"s": ints(10**5, 10**5)},
    ),
    "Expand of a constant": ([node("Expand", "c s", "e"), node("Add", "x e")], {"c": A(1), "s": ints(10**6, 10**6)}),
    "Tile of a constant": ([node("Tile", "c s", "e"), node("Add", "x e")], {"c": A(4), "s": ints(HUGE)}),
    "Range": (
        [node("Range", "a b c", "r"), node("Add", "x r")],
        {"a": np.int64(0), "b": np.int64(HUGE), "c": np.int64(1)},
    ),
    "a sum of constants": ([node("Add", "a b", "c"), node("Add", "x c")], {"a": A(20000, 1), "b": A(1, 20000)}),
    "a product of constants": ([node("MatMul", "a b", "c"), node("Add", "x c")], {"a": A(20000, 1), "b": A(1, 20000)}),
    "Gather of a constant": (
        [node("Gather", "a b", "c"), node("Add", "x c")],
        {"a": A(1, 20000), "b": np.zeros(20000, np.int64)},
    ),
    "Pad": ([node("Pad", "x s")], {"s": ints(0, HUGE, 0, 0)}),
    "Conv": (
        [node("Reshape", "x s", "r"), node("Conv", "r w", pads=[10**10, 10**10])],
        {"s": ints(1, 1, 4), "w": A(1, 1, 3)},
    ),
    "pooling": (
        [node("Reshape", "x s", "r"), node("MaxPool", "r", kernel_shape=[10**10], pads=[10**10 - 1] * 2)],
        {"s": ints(1, 1, 4)},
    ),
    "averages": (
        [node("Reshape", "x s", "r"), node("AveragePool", "r", kernel_shape=[10**10], pads=[10**10 - 1] * 2)],
        {"s": ints(1, 1, 4)},
    ),
    "a sum": ([node("Reshape", "x s", "r"), node("Add", "r c")], {"s": ints(4, 1), "c": A(10**6)}),
}


@pytest.mark.parametrize("name", GREEDY)
def test_what_would_take_too_much_memory(name: str, tmp_path: Path) -> None:
    nodes, constants = GREEDY[name]
    if name == "a sum":
        nodes = [*nodes[:-1], node("Add", "r c", "s1"), node("Reshape", "s1 flat", "s2"), node("Add", "s2 c")]
        constants["flat"] = ints(-1, 1)
    with pytest.raises(
        (InputError, UnsupportedError), match=r"at most 268435456 numbers|more than 268435456 numbers|too wide"
    ):
        read(model(nodes, (1, 4), constants, 17), tmp_path)


def test_inputs_of_absurd_size(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot have the shape"):
        read(model([node("Relu", "x")], (1, 10**6, 10**6)), tmp_path)


# --- inputs and outputs


def io(change: Callable[[onnx.ModelProto], Any]) -> onnx.ModelProto:
    m = small()
    change(m)
    return m


def add_input(m: onnx.ModelProto) -> None:
    m.graph.input.append(helper.make_tensor_value_info("z", FLOAT, ("n", 3)))
    m.graph.node[0].output[0] = "h"
    m.graph.node.append(node("Add", "h z"))


def add_output(m: onnx.ModelProto) -> None:
    m.graph.node.append(node("Relu", "x", "z"))
    m.graph.output.append(helper.make_tensor_value_info("z", FLOAT, ("n", 4)))


def labels_only(m: onnx.ModelProto) -> None:
    m.graph.node.extend([node("ArgMax", "y", "l"), node("Cast", "l", "k", to=TensorProto.INT32)])
    del m.graph.output[:]
    m.graph.output.extend(
        [helper.make_tensor_value_info("l", INT64, None), helper.make_tensor_value_info("k", TensorProto.INT32, None)]
    )


def constant_output(m: onnx.ModelProto) -> None:
    m.graph.output[0].name = "w"


def no_shape(m: onnx.ModelProto) -> None:
    m.graph.input[0].type.tensor_type.ClearField("shape")


def free_axes(m: onnx.ModelProto) -> None:
    m.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", FLOAT, ("n", 3, "height", None)))


IO: dict[str, tuple[Callable[[onnx.ModelProto], Any], type[ElbowroomError], str]] = {
    "two inputs": (
        add_input,
        UnsupportedError,
        r"takes 2 inputs, and one is supported: 'x' \(float32, \[n, 4\]\), 'z'",
    ),
    "no input": (lambda m: m.graph.input.pop(), UnsupportedError, "takes no input"),
    "a constant output": (constant_output, UnsupportedError, "output does not depend on its input"),
    "two outputs": (add_output, UnsupportedError, r"2 outputs, and which one holds the logits is not clear: 'y', 'z'"),
    "labels only": (labels_only, UnsupportedError, r"which one holds the logits is not clear: 'l'"),
    "no shape": (no_shape, InputError, "has no declared shape"),
    "free axes": (
        free_axes,
        UnsupportedError,
        r"axis 2 \('height'\), axis 3 of the input 'x' are free: dynamic shapes beyond",
    ),
    "texts": (
        lambda m: m.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.STRING, (1, 4))),
        UnsupportedError,
        "not a tensor of numbers",
    ),
    "truth values": (
        lambda m: m.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.BOOL, (1, 4))),
        UnsupportedError,
        "not a tensor of numbers",
    ),
    "whole numbers": (
        lambda m: m.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", INT64, (1, 4))),
        UnsupportedError,
        "must be converted to real ones",
    ),
    "opset 6": (
        lambda m: setattr(m.opset_import[0], "version", 6),
        UnsupportedError,
        "opset 6; opsets 7 to 28 are read",
    ),
    "opset 99": (
        lambda m: setattr(m.opset_import[0], "version", 99),
        UnsupportedError,
        "opset 99; opsets 7 to 28 are read",
    ),
    "no opset": (lambda m: m.ClearField("opset_import"), InputError, "no graph with outputs and an opset"),
    "no graph": (lambda m: m.ClearField("graph"), InputError, "no graph with outputs and an opset"),
}


ROUNDED: dict[str, tuple[int, list[onnx.NodeProto], Any, str]] = {
    "float32 in a model of float64": (
        DOUBLE,
        [node("Gemm", "x w", "g"), node("Cast", "g", "f", to=FLOAT), node("Cast", "f", to=DOUBLE)],
        np.float64,
        "float32",
    ),
    "inputs of float64 to a model of float32": (
        DOUBLE,
        [node("Cast", "x", "f", to=FLOAT), node("Gemm", "f w")],
        F,
        "float32",
    ),
    "a scaler of inputs of float64": (
        DOUBLE,
        [node("Scaler", "x", "f", "ai.onnx.ml", offset=[0.0], scale=[1.0]), node("Gemm", "f w")],
        F,
        "float32",
    ),
    "the other half": (
        FLOAT16,
        [node("Gemm", "x w", "g"), node("Cast", "g", to=TensorProto.BFLOAT16)],
        np.float16,
        "bfloat16",
    ),
    "back to half precision, weights of float32": (
        FLOAT16,
        [node("Cast", "x", "f", to=FLOAT), node("Gemm", "f w", "g"), node("Cast", "g", to=FLOAT16)],
        F,
        "float16",
    ),
    "large whole numbers": (
        INT64,
        [node("Cast", "x", "h", to=FLOAT16), node("Cast", "h", "f", to=FLOAT), node("Gemm", "f w")],
        F,
        "float16",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDED)
def test_roundings_to_narrower_types(name: str, tmp_path: Path) -> None:
    kind, nodes, weights, narrow = ROUNDED[name]
    with pytest.raises(UnsupportedError, match=rf"\): rounds its values to {narrow}, which is not part of a network"):
        read(model(nodes, (1, 4), {"w": A(4, 3, dtype=weights)}, kind=kind), tmp_path)


def test_undefined_names_and_circles(tmp_path: Path) -> None:
    for nodes in (
        [node("Relu", "nowhere")],
        [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "nowhere")],
    ):
        with pytest.raises(InputError, match="the value 'nowhere' is used, and nothing before computes it"):
            read(model(nodes, (1, 4)), tmp_path)
    circle = [node("Add", "b x", "a"), node("Relu", "a", "b"), node("Relu", "b")]
    with pytest.raises(InputError, match="the value 'b' is used, and nothing before computes it"):
        read(model(circle, (1, 4)), tmp_path)
    alone = [node("Relu", "b", "a"), node("Relu", "a", "b"), node("Relu", "b")]
    with pytest.raises(InputError, match="the value 'b' is used, and nothing before computes it"):
        read(model(alone, (1, 4)), tmp_path)
    with pytest.raises(InputError, match="the value 'y' is used, and nothing before computes it"):
        read(model([node("Relu", "x", "z")], (1, 4)), tmp_path)


def test_what_follows_an_unsupported_operator_is_listed_too(tmp_path: Path) -> None:
    nodes = [
        node("Softsign", "x", "s"), node("Erf", "s", "e"), node("Reshape", "e two", "r"), node("Sin", "r", "i"),
        node("Softmax", "i", axis=2),
    ]  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"(?s)Softsign .*Erf .*part of GELU.*Sin .*Softmax .*a part of its"):
        read(model(nodes, ("n", 4), {"two": ints(1, 2, 2)}), tmp_path)
    gelu = [
        node("Softsign", "x", "s"), node("Mul", "s root", "a"), node("Erf", "a", "e"), node("Add", "e one", "f"),
        node("Mul", "s f", "g"), node("Mul", "g half"),
    ]  # fmt: skip
    scalars = {"root": F(np.sqrt(0.5)), "one": F(1), "half": F(0.5)}
    with pytest.raises(UnsupportedError, match=r"here:\n  Softsign \(node 'Softsign_s'\): not supported$"):
        read(model(gelu, ("n", 4), scalars), tmp_path)


@pytest.mark.parametrize("name", IO)
def test_inputs_and_outputs(name: str, tmp_path: Path) -> None:
    change, kind, message = IO[name]
    with pytest.raises(kind, match=message):
        read(io(change), tmp_path)


def test_a_batch_whose_rows_depend_on_each_other(tmp_path: Path) -> None:
    rows = [node("ReduceMean", "x", "m", axes=[0]), node("Sub", "x m")]
    with pytest.raises(
        UnsupportedError, match=r"batches of 5 inputs, and ReduceMean \(node 'ReduceMean_m'\) mixes them"
    ):
        read(model(rows, (5, 4), {}, 13, [("y", FLOAT, (5, 4))]), tmp_path)
    turned = [node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "t w", "m"), node("Transpose", "m", perm=[1, 0])]
    with pytest.raises(InputError, match="does not fit"):
        read(model(turned, (5, 4), {"w": A(5, 5)}, 13, [("y", FLOAT, (5, 4))]), tmp_path)
    own = [node("Add", "x c")]
    with pytest.raises(UnsupportedError, match="mixes them"):
        read(model(own, (5, 4), {"c": A(5, 4)}, 13, [("y", FLOAT, (5, 4))]), tmp_path)


# --- files


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for content in (b"", b"hello, this is a text file\n", b"\x00" * 100, os.urandom(1000), b"PK\x03\x04" + bytes(60)):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is not an ONNX model, or it is damaged"):
            read_onnx(path)
    path.write_bytes(onnx.numpy_helper.from_array(A(3, 4)).SerializeToString())
    with pytest.raises(ElbowroomError):
        read_onnx(path)
    with pytest.raises(InputError, match=r"cannot read .*: Is a directory"):
        read_onnx(tmp_path)
    with pytest.raises(InputError, match="there is no such file"):
        er.load(tmp_path / "none.onnx")


def test_truncated_and_flipped_files(tmp_path: Path) -> None:
    """Whatever happens to a file, it is read or refused: no other exception, no warning."""
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c s s s v", "n"),
        node("Relu", "n", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2]),
        node("Reshape", "p shape", "f"),
        node("Gemm", "f m"),
    ]
    constants = {"w": A(2, 1, 3, 3), "b": A(2), "s": A(2), "v": A(2) ** 2, "shape": ints(1, -1), "m": A(18, 3)}
    data = model(nodes, (1, 1, 4, 4), constants).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    assert read_onnx(path).n_outputs == 3
    rng = np.random.default_rng(0)
    outcomes = {"read": 0, "refused": 0}
    changed = [data[: len(data) * i // 40] for i in range(40)]
    for _ in range(250):
        flipped = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            flipped[int(rng.integers(len(flipped)))] = int(rng.integers(256))
        changed.append(bytes(flipped))
    for content in changed:
        path.write_bytes(content)
        try:
            read_onnx(path)
            outcomes["read"] += 1
        except ElbowroomError as error:
            assert str(error).count("\n") < 10
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20


def tensor(**fields: Any) -> onnx.TensorProto:
    return onnx.TensorProto(**{"name": "w", "dims": [4, 3], "data_type": FLOAT, **fields})


TENSORS: dict[str, tuple[onnx.TensorProto, str]] = {
    "too few bytes": (tensor(raw_data=bytes(40)), "the tensor 'w' has 40 bytes where 48 are needed"),
    "too many bytes": (tensor(raw_data=bytes(400)), "has 400 bytes where 48 are needed"),
    "too few numbers": (tensor(float_data=[1.0] * 11), "has 11 numbers where 12 are needed"),
    "numbers in the wrong field": (tensor(double_data=[1.0] * 12), "has 0 numbers where 12 are needed"),
    "negative": (tensor(dims=[-4, -3], raw_data=bytes(48)), r"cannot have the shape \(-4, -3\)"),
    "axes": (tensor(dims=[1] * 65, raw_data=bytes(4)), "cannot have 65 axes"),
    "absurd": (tensor(dims=[2**40, 2**40], raw_data=bytes(48)), "cannot have the shape"),
    "texts": (tensor(data_type=TensorProto.STRING, string_data=[b"a"] * 12), "holds values of type string"),
    "complex": (tensor(data_type=TensorProto.COMPLEX64, float_data=[1.0] * 24), "holds values of type complex64"),
    "no type": (tensor(data_type=0, float_data=[1.0] * 12), "holds values of type number 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_damaged_tensors(name: str, tmp_path: Path) -> None:
    m = model([node("MatMul", "x w")], (1, 4))
    found, message = TENSORS[name]
    m.graph.initializer.append(found)
    with pytest.raises(ElbowroomError, match=message):
        read(m, tmp_path)


def test_sparse_tensors(tmp_path: Path) -> None:
    values = onnx.numpy_helper.from_array(A(2), "w")
    sparse = helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(ints(0, 5)), [4, 3])
    m = model([node("MatMul", "x w")], (1, 4))
    m.graph.sparse_initializer.append(sparse)
    with pytest.raises(UnsupportedError, match="the tensor 'w' is stored as a sparse"):
        read(m, tmp_path)
    constant = node("Constant", "", "w", sparse_value=sparse)
    with pytest.raises(UnsupportedError, match="holds a sparse tensor"):
        read(model([constant, node("MatMul", "x w")], (1, 4)), tmp_path)


# --- tensors in other files


def outside(m: onnx.ModelProto, **entries: str) -> onnx.ModelProto:
    """The model with its first tensor kept in another file."""
    kept = m.graph.initializer[0]
    kept.ClearField("raw_data")
    kept.data_location = TensorProto.EXTERNAL
    kept.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in entries.items())
    return m


def test_external_data(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w.bin").write_bytes(bytes(8) + A(3, 4).tobytes() + bytes(4))
    m = outside(small(), location="weights/w.bin", offset="8", length="48")
    net = read(m, tmp_path)
    assert torch.equal(net.nodes[1].op.weight, torch.from_numpy(A(3, 4)))
    expected = session(tmp_path / "model.onnx").run(None, {"x": A(1, 4)})[0]
    np.testing.assert_allclose(net(A(1, 4)).numpy(), expected, atol=1e-6)
    os.symlink("weights/w.bin", tmp_path / "link.bin")  # within the folder
    assert read(outside(small(), location="link.bin", offset="8"), tmp_path).n_outputs == 3


def test_external_data_as_onnx_saves_it(tmp_path: Path) -> None:
    m = small()
    onnx.save(m, str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.data", size_threshold=0)
    assert torch.equal(read_onnx(tmp_path / "m.onnx").nodes[1].op.bias, torch.from_numpy(A(3)))


EVIL: dict[str, tuple[dict[str, str], str]] = {
    "up": ({"location": "../secret.bin"}, "may lead out of the model's folder"),
    "up and down": ({"location": "a/../../secret.bin"}, "may lead out of the model's folder"),
    "absolute": ({"location": "{outside}/secret.bin"}, "may lead out of the model's folder"),
    "backslash": ({"location": "..\\secret.bin"}, "may lead out of the model's folder"),
    "link": ({"location": "link"}, "a link that leads out of the model's folder"),
    "link to a folder": ({"location": "folder/secret.bin"}, "a link that leads out of the model's folder"),
    "circle": ({"location": "circle"}, "cannot be read"),
    "nothing": ({}, "may lead out of the model's folder"),
    "missing": ({"location": "missing"}, "cannot be read: No such file"),
    "folder": ({"location": "."}, "is not a plain file"),
    "pipe": ({"location": "pipe"}, "is not a plain file"),
    "short": ({"location": "short"}, "ends too early: 48 bytes are needed"),
    "offset": ({"location": "right", "offset": "4"}, "ends too early: 52 bytes are needed"),
    "huge offset": ({"location": "right", "offset": "9" * 18}, "ends too early"),
    "negative": ({"location": "right", "offset": "-4"}, "with the offset '-4', which is not a size"),
    "words": ({"location": "right", "offset": "four"}, "with the offset 'four', which is not a size"),
    "length": ({"location": "right", "length": "44"}, "with 44 bytes where 48 are needed"),
}  # fmt: skip


@pytest.mark.parametrize("name", EVIL)
def test_external_data_stays_in_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(A(3, 4).tobytes())
    (folder / "short").write_bytes(bytes(40))
    (folder / "right").write_bytes(bytes(48))
    os.symlink(tmp_path / "secret.bin", folder / "link")
    os.symlink(tmp_path, folder / "folder")
    os.symlink("circle", folder / "circle")
    os.mkfifo(folder / "pipe")
    entries, message = EVIL[name]
    entries = {k: v.format(outside=tmp_path) for k, v in entries.items()}
    with pytest.raises(InputError, match=message):
        read(outside(small(), **entries), folder)


def test_tensors_of_attributes_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(A(1).tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    hidden = outside(model([], (1, 4), {"v": A(1)}), location="../secret.bin").graph.initializer[0]
    filled = [node("ConstantOfShape", "s", "c", value=hidden), node("Add", "x c")]
    with pytest.raises(UnsupportedError, match="a tensor that is kept in another file"):
        read(model(filled, (1, 4), {"s": ints(4)}), folder)
    stored = [node("Constant", "", "c", value=hidden), node("Add", "x c")]
    with pytest.raises(InputError, match="may lead out of the model's folder"):
        read(model(stored, (1, 4)), folder)


# --- functions


def calls(name: str, *nodes: onnx.NodeProto) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["x"], ["y"], list(nodes), opsets)


def test_functions_that_never_end(tmp_path: Path) -> None:
    m = model([node("F", "x", domain="own")], (1, 4))
    m.functions.extend([calls("F", node("G", "x", domain="own")), calls("G", node("F", "x", domain="own"))])
    with pytest.raises(InputError, match="calls itself"):
        read(m, tmp_path)
    m = model([node("F0", "x", domain="own")], (1, 4))
    for i in range(40):
        inside = [node(f"F{i + 1}", "x", "h", domain="own"), node(f"F{i + 1}", "h", domain="own")]
        m.functions.append(calls(f"F{i}", *inside))
    m.functions.append(calls("F40", node("Relu", "x")))
    with pytest.raises(InputError, match="more than 1000000 nodes"):
        read(m, tmp_path)


# --- what cannot be had


def test_without_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(small().SerializeToString())
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'elbowroom\[onnx\]'"):
        read_onnx(path)


def test_names_cannot_forge_messages(tmp_path: Path) -> None:
    m = model([node("Sin", "x")], (1, 4))
    m.graph.node[0].name = "a\n  Cos (node 'b'): \x1b[31mnot supported"
    with pytest.raises(UnsupportedError) as caught:
        read(m, tmp_path)
    assert str(caught.value).count("\n") == 1 and "\x1b" not in str(caught.value)
    m.graph.node[0].op_type = "Sin\n  Cos"
    with pytest.raises(UnsupportedError, match=r"'Sin\\n  Cos' \(node"):
        read(m, tmp_path)


def test_a_good_model_still_reads(tmp_path: Path) -> None:
    assert agree(small(), tmp_path).n_outputs == 3
