"""ONNX models read as networks: operator by operator against onnxruntime, across opsets."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from elbowroom.network import operations as ops
from elbowroom.readers.reading import computes_in, left_off
from onnx_support import agree, kinds, model, node, numbers, read, runtime, session

F = np.float32
A = numbers


def one(kind: str, shape: tuple[Any, ...], opset: int = 17, constants: Any = (), **attributes: Any) -> onnx.ModelProto:
    """A model of one operator, whose further inputs are constants (None: left out)."""
    named = {f"c{i}": c for i, c in enumerate(constants) if c is not None}
    inputs = " ".join(["x", *(f"c{i}" if c is not None else "-" for i, c in enumerate(constants))])
    return model([node(kind, inputs, **attributes)], shape, named, opset)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# --- activations and arithmetic

ACTIVATIONS: list[tuple[str, dict[str, Any], int, list[str]]] = [
    ("Relu", {}, 7, ["ReLU"]),
    ("LeakyRelu", {}, 7, ["LeakyReLU"]),
    ("LeakyRelu", {"alpha": 0.2}, 16, ["LeakyReLU"]),
    ("Sigmoid", {}, 7, ["Sigmoid"]),
    ("Tanh", {}, 7, ["Tanh"]),
    ("Atan", {}, 7, ["Arctan"]),
    ("Elu", {}, 7, ["ELU"]),
    ("Elu", {"alpha": 0.7}, 22, ["ELU"]),
    ("Selu", {}, 7, ["ELU", "Scale"]),
    ("Celu", {"alpha": 0.7}, 12, ["Divide", "ELU", "Scale"]),
    ("Celu", {}, 12, ["ELU"]),
    ("Softplus", {}, 7, ["Softplus"]),
    ("Abs", {}, 7, ["LeakyReLU"]),
    ("Neg", {}, 7, ["Scale"]),
    ("HardSigmoid", {}, 7, ["Scale", "Shift", "Clip"]),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, 17, ["Scale", "Shift", "Clip"]),
    ("Gelu", {}, 20, ["GELU"]),
    ("Gelu", {"approximate": "tanh"}, 20, ["GELU"]),
    ("Swish", {}, 24, ["SiLU"]),
    ("Swish", {"alpha": 1.5}, 24, ["Scale", "SiLU", "Divide"]),
    ("Identity", {}, 7, []),
    ("Dropout", {"ratio": 0.3}, 7, []),
    ("Dropout", {}, 13, []),
    ("Clip", {}, 7, []),
    ("Clip", {"min": 0.0}, 7, ["ReLU"]),
    ("Clip", {"min": -0.5, "max": 0.75}, 9, ["Clip"]),
    ("Clip", {"max": 0.75}, 10, ["Clip"]),
]


@pytest.mark.parametrize(("kind", "attributes", "opset", "expected"), ACTIVATIONS)
def test_activations(kind: str, attributes: dict[str, Any], opset: int, expected: list[str], tmp_path: Path) -> None:
    net = agree(one(kind, (1, 3, 5), opset, **attributes), tmp_path)
    assert [k for k in kinds(net) if k != "Reshape"] == expected


@pytest.mark.parametrize("opset", [11, 12, 13, 21])
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([F(-0.5), F(0.75)], "Clip"),
        ([None, F(0.75)], "Clip"),
        ([F(0)], "ReLU"),
        ([F(0), F(np.finfo(F).max)], "ReLU"),
        ([F(np.finfo(F).min), F(6)], "Clip"),
    ],
)
def test_clip_with_limits_as_inputs(opset: int, limits: list[Any], expected: str, tmp_path: Path) -> None:
    assert kinds(agree(one("Clip", (1, 6), opset, limits), tmp_path)) == [expected]


@pytest.mark.parametrize("opset", [8, 12, 17])
def test_larger_and_smaller_than_a_number(opset: int, tmp_path: Path) -> None:
    assert kinds(agree(one("Max", (1, 6), opset, [F(0)]), tmp_path)) == ["ReLU"]
    assert kinds(agree(one("Min", (1, 6), opset, [A(1)]), tmp_path)) == ["Clip"]


def test_a_dropout_of_nothing_is_read_also_in_training(tmp_path: Path) -> None:
    assert kinds(agree(one("Dropout", (1, 6), 13, [F(0), np.array(True)]), tmp_path)) == []


def test_attributes_are_float32_numbers(tmp_path: Path) -> None:
    slope = read(one("LeakyRelu", (1, 2)), tmp_path).nodes[1].op.slope
    assert slope == float(F(0.01)) != 0.01


CONSTANTS = [(), (1,), (5,), (3, 1), (3, 5), (1, 1, 5), (1, 3, 1), (2, 3, 5), (2, 1, 1), (4, 1, 3, 5), (1, 1, 1, 1, 1)]


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("opset", [7, 14])
def test_constants_broadcast(kind: str, constant: tuple[int, ...], opset: int, tmp_path: Path) -> None:
    c = A(*constant) + F(3)
    agree(one(kind, (1, 3, 5), opset, [c]), tmp_path)
    if kind != "Div":
        agree(model([node(kind, "c x")], (1, 3, 5), {"c": c}, opset), tmp_path)


SHAPES = [((1, 3, 5), (1, 3, 5)), ((1, 3, 5), (5,)), ((1, 3, 5), (3, 1)), ((2, 1, 3), (4, 1)), ((6, 1), (1, 5))]


@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("kind", ["Add", "Sub", "Sum"])
def test_two_computed_values_broadcast(kind: str, left: Any, right: Any, tmp_path: Path) -> None:
    nodes = [
        node("Tanh", "x", "t"), node("Reshape", "t left", "a"), node("Slice", "x zero part one", "s"),
        node("Reshape", "s right", "b"), node(kind, "a b"),
    ]  # fmt: skip
    c = {"zero": ints(0), "part": ints(math.prod(right)), "one": ints(1), "left": ints(*left), "right": ints(*right)}
    agree(model(nodes, (1, math.prod(left)), c), tmp_path)


def test_sums_of_several_values_and_constants(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Tanh", "x", "t"), node("Sum", "r c t x d")]
    net = agree(model(nodes, ("batch", 4), {"c": A(4), "d": A(1)}, 13), tmp_path)
    assert kinds(net) == ["ReLU", "Tanh", "Add", "Shift", "Shift"]
    agree(model([node("Add", "x x")], (1, 4)), tmp_path)
    agree(model([node("Relu", "x", "r"), node("Sub", "x r", "s"), node("Sub", "s r")], (1, 4)), tmp_path)


def test_what_changes_nothing_leaves_no_node(tmp_path: Path) -> None:
    nodes = [
        node("Sub", "x zeros", "a"), node("Mul", "a one", "b"), node("Add", "b zero", "c"), node("Identity", "c", "d"),
        node("Cast", "d", "e", to=TensorProto.FLOAT), node("Expand", "e shape", "f"), node("Tile", "f ones", "g"),
        node("Relu", "g"),
    ]  # fmt: skip
    constants = {
        "zeros": np.zeros((1, 1, 4), dtype=F),
        "zero": F(0),
        "one": A(1) * 0 + 1,
        "shape": ints(1, 1, 1),
        "ones": ints(1, 1, 1),
    }
    assert kinds(agree(model(nodes, (1, 1, 4), constants), tmp_path)) == ["ReLU", "Reshape"]


@pytest.mark.parametrize("slope", [(1,), (3, 1, 1), (3, 4, 5), (5,), (1, 3, 1, 1)])
@pytest.mark.parametrize("opset", [7, 16])
def test_prelu(slope: tuple[int, ...], opset: int, tmp_path: Path) -> None:
    net = agree(one("PRelu", (1, 3, 4, 5), opset, [A(*slope)]), tmp_path)
    assert kinds(net)[0] == "LeakyReLU"


# --- products with matrices


@pytest.mark.parametrize(
    ("shape", "matrix"),
    [
        ((1, 4), (4, 3)), ((4,), (4, 3)), (("b", 4), (4, 3)), ((1, 5, 4), (4, 3)), ((1, 2, 5, 4), (4, 3)),
        ((1, 4), (1, 4, 3)), ((1, 5, 4), (1, 4, 3)), ((1, 4), (4,)), ((4,), (4,)), ((1, 5, 4), (4,)), ((1, 1), (1, 3)),
    ],
)  # fmt: skip
def test_matmul_by_a_matrix(shape: Any, matrix: Any, tmp_path: Path) -> None:
    net = agree(one("MatMul", shape, 13, [A(*matrix)]), tmp_path)
    assert "Linear" in kinds(net)


@pytest.mark.parametrize(
    ("matrix", "shape"),
    [
        ((3, 4), (4, 1)),
        ((3, 4), (4,)),
        ((3, 4), (1, 4, 5)),
        ((3, 4), (1, 4, 1)),
        ((3, 4), (1, 2, 4, 5)),
        ((4,), (4,)),
        ((4,), (1, 4, 5)),
        ((1, 3, 4), (1, 4, 2)),
        ((3, 1), (1, 1, 5)),
        ((1, 1, 3, 4), (1, 4, 5)),
    ],
)
def test_matmul_of_a_matrix_with_a_value(matrix: Any, shape: Any, tmp_path: Path) -> None:
    nodes = [node("Reshape", "x shape", "r"), node("MatMul", "c r")]
    agree(model(nodes, (1, math.prod(shape)), {"c": A(*matrix), "shape": ints(*shape)}, 13), tmp_path)


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("bias", [(3,), (1, 3), (1,), (1, 1), ()])
def test_gemm(opset: int, turned: int, bias: tuple[int, ...], tmp_path: Path) -> None:
    matrix = A(3, 4) if turned else A(4, 3)
    net = agree(one("Gemm", ("n", 4), opset, [matrix, A(*bias)], transB=turned), tmp_path)
    assert kinds(net) == (["Linear"] if bias and bias[-1] == 3 else ["Linear", "Shift"])
    weight = net.nodes[1].op.weight
    assert torch.equal(weight, torch.from_numpy(matrix if turned else matrix.T))


def test_gemm_with_factors(tmp_path: Path) -> None:
    net = agree(one("Gemm", (1, 4), 13, [A(4, 3), A(3)], alpha=0.3, beta=0.7), tmp_path)
    assert kinds(net) == ["Linear", "Scale", "Divide", "Shift", "Scale"]
    stored = {n.op.name: n.op for n in net.nodes}
    assert torch.equal(stored["Linear"].weight, torch.from_numpy(A(4, 3).T))
    assert torch.equal(stored["Shift"].offset, torch.from_numpy(A(3)))
    agree(one("Gemm", (1, 4), 13, [A(4, 3), A(3)], alpha=2.0, beta=0.0), tmp_path)
    agree(one("Gemm", (1, 4), 13, [A(4, 3)], alpha=-1.0), tmp_path)


def test_gemm_turned_and_with_computed_terms(tmp_path: Path) -> None:
    column = node("Reshape", "x column", "r")
    agree(
        model([column, node("Gemm", "r w b", transA=1)], (1, 4), {"column": ints(4, 1), "w": A(4, 3), "b": A(3)}),
        tmp_path,
    )
    agree(
        model([column, node("Gemm", "w r b", transB=0)], (1, 4), {"column": ints(4, 1), "w": A(3, 4), "b": A(3, 1)}),
        tmp_path,
    )
    agree(model([node("Gemm", "w x", transB=1)], (1, 4), {"w": A(3, 4)}), tmp_path)
    several = [node("Reshape", "x rows", "r"), node("Gemm", "r w", transA=1, transB=1)]
    agree(model(several, (1, 12), {"rows": ints(4, 3), "w": A(5, 4)}), tmp_path)
    residual = [node("Relu", "x", "h"), node("Gemm", "h w x", beta=0.5)]
    agree(model(residual, (1, 4), {"w": A(4, 4)}), tmp_path)


def test_a_matrix_product_takes_the_bias_added_to_it(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "m"), node("Add", "b m")]
    for shape in ((1, 4), (1, 5, 4)):
        assert "Shift" not in kinds(agree(model(nodes, shape, {"w": A(4, 3), "b": A(3)}), tmp_path))
    twice = [*nodes[:1], node("Add", "m b", "a"), node("Sub", "a m")]
    assert kinds(agree(model(twice, (1, 4), {"w": A(4, 3), "b": A(3)}), tmp_path)) == ["Linear", "Shift", "Add"]


# --- convolutions, batch norm, pooling

CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 9), (4, 3, 3), {}),
    ((1, 3, 9), (4, 3, 3), {"strides": [2], "pads": [1, 1], "dilations": [2]}),
    ((1, 3, 9), (6, 1, 2), {"group": 3, "pads": [0, 1]}),
    ((1, 3, 7, 8), (4, 3, 3, 2), {"kernel_shape": [3, 2]}),
    ((1, 3, 7, 8), (4, 3, 3, 2), {"strides": [2, 3], "pads": [1, 0, 1, 0]}),
    ((1, 3, 7, 8), (4, 3, 3, 2), {"strides": [2, 3], "pads": [2, 0, 1, 3]}),
    ((1, 3, 7, 8), (4, 3, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 3, 7, 8), (4, 3, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [1, 1]}),
    ((1, 3, 7, 8), (4, 3, 3, 2), {"auto_pad": "VALID", "strides": [2, 1]}),
    ((1, 4, 7, 8), (4, 2, 2, 2), {"group": 2, "dilations": [2, 3]}),
    ((1, 4, 7, 8), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((1, 2, 3, 4, 3), (3, 2, 2, 2, 2), {"pads": [0, 1, 0, 1, 0, 0]}),
]


@pytest.mark.parametrize(("shape", "weight", "attributes"), CONVOLUTIONS)
@pytest.mark.parametrize("opset", [7, 11, 22])
def test_convolutions(shape: Any, weight: Any, attributes: dict[str, Any], opset: int, tmp_path: Path) -> None:
    net = agree(one("Conv", shape, opset, [A(*weight), A(weight[0])], **attributes), tmp_path)
    assert "Conv" in kinds(net)
    agree(one("Conv", shape, opset, [A(*weight)], **attributes), tmp_path)


def test_a_convolution_that_covers_its_input_is_a_linear_layer(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w1 b1", "a"), node("Tanh", "a", "b"), node("Conv", "b w2 b2", "c", kernel_shape=[1, 1]),
        node("Flatten", "c"),
    ]  # fmt: skip
    constants = {"w1": A(6, 2, 3, 4), "b1": A(6), "w2": A(5, 6, 1, 1), "b2": A(5)}
    net = agree(model(nodes, (1, 2, 3, 4), constants, 8), tmp_path)
    assert kinds(net) == ["Reshape", "Linear", "Tanh", "Linear"]
    assert torch.equal(net.nodes[2].op.weight, torch.from_numpy(constants["w1"].reshape(6, 24)))


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 4), (1, 3, 4, 5), ("n", 3, 2)])
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_norm_is_not_folded(shape: Any, opset: int, tmp_path: Path) -> None:
    parts = [A(3, seed=1), A(3, seed=2), A(3, seed=3), A(3, seed=4) ** 2]
    net = agree(one("BatchNormalization", shape, opset, parts, epsilon=0.01, momentum=0.9), tmp_path)
    op = net.nodes[1].op
    assert isinstance(op, ops.BatchNorm) and op.eps == float(F(0.01))
    assert torch.equal(op.var, torch.from_numpy(parts[3])) and torch.equal(op.mean, torch.from_numpy(parts[2]))


POOLS: list[dict[str, Any]] = [
    {"kernel_shape": [2, 2]},
    {"kernel_shape": [2, 3], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [0, 1, 1, 0]},
    {"kernel_shape": [3, 2], "strides": [3, 2], "pads": [1, 0, 0, 0]},
    {"kernel_shape": [3, 3], "strides": [1, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 2], "auto_pad": "VALID"},
]


@pytest.mark.parametrize("attributes", POOLS)
@pytest.mark.parametrize("size", [(7, 8), (8, 9), (6, 6)])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("opset", [8, 10, 12, 22])
def test_pooling(kind: str, attributes: dict[str, Any], size: tuple[int, int], opset: int, tmp_path: Path) -> None:
    net = agree(one(kind, (1, 2, *size), opset, **attributes), tmp_path)
    assert "MaxPool" in kinds(net) if kind == "MaxPool" else "AvgPool" in kinds(net)
    if kind == "AveragePool":
        agree(one(kind, (1, 2, *size), opset, **attributes, count_include_pad=1), tmp_path)


@pytest.mark.parametrize("length", range(4, 10))
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pads", [(0, 0), (1, 1), (0, 1), (1, 0), (0, 2)])
def test_pooling_windows_at_the_edge(length: int, stride: int, pads: tuple[int, int], tmp_path: Path) -> None:
    for kernel in (2, 3):
        shared: dict[str, Any] = {"kernel_shape": [kernel, 2], "strides": [stride, 2], "pads": [pads[0], 0, pads[1], 1]}
        for ceil in (0, 1):
            last = -(-(length + sum(pads) - kernel) // stride) * stride
            if (ceil and last >= length + pads[0]) or (pads[1] == kernel and not ceil):
                continue  # runtimes disagree on windows that start in the padding, see below
            agree(one("MaxPool", (1, 2, length, 5), 12, **shared, ceil_mode=ceil), tmp_path)
            agree(one("AveragePool", (1, 2, length, 5), 12, **shared, ceil_mode=ceil), tmp_path)


@pytest.mark.parametrize("dilations", [[2], [3]])
def test_dilated_max_pooling(dilations: list[int], tmp_path: Path) -> None:
    agree(one("MaxPool", (1, 2, 11), 10, kernel_shape=[3], dilations=dilations, pads=[1, 1], strides=[2]), tmp_path)
    agree(one("MaxPool", (1, 2, 11), 10, kernel_shape=[3], dilations=dilations, ceil_mode=1, strides=[2]), tmp_path)


def test_more_padding_than_half_a_window(tmp_path: Path) -> None:
    attributes: dict[str, Any] = {"kernel_shape": [3], "pads": [2, 1]}
    net = agree(one("MaxPool", (1, 2, 6), 17, **attributes), tmp_path)
    assert kinds(net)[:4] == ["Slice", "Slice", "Concat", "MaxPool"]
    agree(one("AveragePool", (1, 2, 6), 17, **attributes), tmp_path)
    agree(one("AveragePool", (1, 2, 6), 17, **attributes, count_include_pad=1), tmp_path)


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (1, 3, 7), (1, 2, 2, 3, 2)])
def test_pooling_over_everything(shape: tuple[int, ...], tmp_path: Path) -> None:
    assert kinds(agree(one("GlobalAveragePool", shape), tmp_path)) == ["Mean"]
    assert kinds(agree(one("GlobalMaxPool", shape), tmp_path)) == ["MaxPool", "Reshape"]


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [[1], [2], [-1], [1, 2], [0, 2], None])
@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceSum"])
@pytest.mark.parametrize("opset", [7, 11, 13, 18])
def test_means_and_sums(kind: str, axes: list[int] | None, keep: int, opset: int, tmp_path: Path) -> None:
    as_input = opset >= (18 if kind == "ReduceMean" else 13)
    if as_input:
        m = one(kind, (1, 3, 4, 2), opset, [] if axes is None else [ints(*axes)], keepdims=keep)
    else:
        m = one(kind, (1, 3, 4, 2), opset, keepdims=keep, **({} if axes is None else {"axes": axes}))
    agree(m, tmp_path)


def test_reductions_that_do_nothing(tmp_path: Path) -> None:
    assert kinds(agree(one("ReduceMean", (1, 3), 18, noop_with_empty_axes=1), tmp_path)) == []
    assert kinds(agree(one("ReduceSum", (1, 3), 13, [ints(0)]), tmp_path)) == []


# --- shapes


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((1, 12), (1, 3, 4)),
        ((1, 12), (-1, 3, 4)),
        ((1, 3, 4), (0, -1)),
        ((1, 3, 4), (0, 0, 2, -1)),
        ((1, 12), (3, 4)),
        ((12,), (1, 12)),
        ((1, 1, 1, 5), (5,)),
        ((1, 784, 1), (-1, 784)),
        (("b", 3, 2, 2), (0, 12)),
        ((1, 12), (12,)),
    ],
)
def test_reshape(shape: Any, target: tuple[int, ...], tmp_path: Path) -> None:
    for opset in (7, 14):
        nodes = [node("Reshape", "x s", "r"), node("Relu", "r", "t"), node("Mul", "t f")]
        agree(model(nodes, shape, {"s": ints(*target), "f": F(2)}, opset), tmp_path)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4, -1, -2])
def test_flatten(axis: int, tmp_path: Path) -> None:
    rows = math.prod((1, 3, 4, 2)[:axis])
    nodes = [node("Flatten", "x", "f", axis=axis), node("Mul", "f c")]
    agree(model(nodes, (1, 3, 4, 2), {"c": A(rows, 1)}, 11), tmp_path)


@pytest.mark.parametrize("opset", [9, 11, 13])
def test_squeeze_and_unsqueeze(opset: int, tmp_path: Path) -> None:
    c = {"two": ints(2), "ends": ints(0, 3), "w": A(5, 2)}
    if opset < 13:
        nodes = [
            node("Squeeze", "x", "a", axes=[0, 2]), node("Unsqueeze", "a", "b", axes=[0, 3]),
            node("Squeeze", "b", "c"), node("MatMul", "c w"),
        ]  # fmt: skip
    else:
        c["first"] = ints(0, 2)
        nodes = [
            node("Squeeze", "x first", "a"),
            node("Unsqueeze", "a ends", "b"),
            node("Squeeze", "b", "c"),
            node("MatMul", "c w"),
        ]
    agree(model(nodes, (1, 3, 1, 5), c, opset), tmp_path)


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 2, 3), (0, 1, 2, 3), None])
@pytest.mark.parametrize("shape", [(1, 2, 3, 4), (1, 1, 3, 4), (1, 2, 1, 4)])
def test_transpose(perm: tuple[int, ...] | None, shape: tuple[int, ...], tmp_path: Path) -> None:
    order = tuple(reversed(range(4))) if perm is None else perm
    turned = tuple(shape[d] for d in order)
    nodes = [node("Transpose", "x", "t", **({} if perm is None else {"perm": perm})), node("Mul", "t c")]
    net = agree(model(nodes, shape, {"c": A(*turned)}), tmp_path)
    moved = [d for d in order if shape[d] > 1]
    assert ("Transpose" in kinds(net)) == (moved != sorted(moved))


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [3], [1], [1]), ([0], [10**9], [2], [2]), ([-2], [-1], [1], [1]), ([1, 0], [4, 3], [2, 1], [3, 2]),
        ([0, 1], [1, 4], None, None), ([0], [2**63 - 1], [0], None), ([1], [5], [-1], [2]),
    ],
)  # fmt: skip
def test_slices(starts: Any, ends: Any, axes: Any, steps: Any, tmp_path: Path) -> None:
    given = [ints(*v) if v is not None else None for v in (starts, ends, axes, steps)]
    while given[-1] is None:
        given.pop()
    agree(one("Slice", (1, 4, 6), 13, given), tmp_path)
    if steps is None or set(steps) == {1}:
        named = {"starts": starts, "ends": ends, **({} if axes is None else {"axes": axes})}
        agree(one("Slice", (1, 4, 6), 9, **named), tmp_path)


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        (np.int64(2), ["Slice"]),
        (ints(1, 2, 3), ["Slice"]),
        (ints(-1), ["Slice"]),
        (ints(0, 1, 4), ["Slice", "Slice", "Concat"]),
        (np.array([[3, 0], [1, 1]]), ["Slice", "Slice", "Slice", "Concat"]),
        (ints(0, 1, 2, 3, 4), []),
    ],
)
@pytest.mark.parametrize("opset", [7, 13])
def test_gather(indices: Any, expected: list[str], opset: int, tmp_path: Path) -> None:
    net = agree(one("Gather", (1, 5, 3), opset, [indices], axis=1), tmp_path)
    assert [k for k in kinds(net) if k != "Reshape"] == expected
    agree(one("Gather", (1, 3, 5), opset, [indices], axis=-1), tmp_path)


def test_gather_along_an_axis_in_front(tmp_path: Path) -> None:
    nodes = [node("Reshape", "x s", "r"), node("Gather", "r i", axis=0)]
    agree(model(nodes, (1, 12), {"s": ints(4, 3), "i": ints(3, 1)}), tmp_path)


@pytest.mark.parametrize("opset", [7, 11, 13, 18])
def test_split_and_concat(opset: int, tmp_path: Path) -> None:
    attributes: dict[str, Any] = {"axis": 1}
    given = ""
    if opset < 13:
        attributes["split"] = [1, 3, 2]
    else:
        given = " sizes"
    nodes = [
        node("Split", f"x{given}", "a b c", **attributes),
        node("Concat", "c a b", axis=-2),
    ]
    agree(model(nodes, (1, 6, 4), {"sizes": ints(1, 3, 2)} if given else {}, opset), tmp_path)
    equal = {"num_outputs": 3} if opset >= 18 else {}
    nodes = [node("Split", "x", "a b c", axis=1, **equal), node("Concat", "c a b", axis=2)]
    agree(model(nodes, (1, 6, 4), {}, opset), tmp_path)


def test_uneven_parts(tmp_path: Path) -> None:
    nodes = [node("Split", "x", "a b c", axis=1, num_outputs=3), node("Concat", "c a b", axis=1)]
    agree(model(nodes, (1, 7), {}, 18), tmp_path)


@pytest.mark.parametrize("order", ["c x", "x c", "c x d r c", "x c r", "x r d c"])
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_concat_with_constants(order: str, axis: int, tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Concat", order, axis=axis)]
    agree(model(nodes, (1, 3, 3), {"c": A(1, 3, 3), "d": A(1, 3, 3, seed=5)}), tmp_path)


@pytest.mark.parametrize("opset", [7, 11, 13, 18, 21])
def test_pads(opset: int, tmp_path: Path) -> None:
    for pads, value in (
        ([0, 0, 1, 0, 0, 2], 0.0),
        ([0, 1, 0, 0, 0, 3], -1.5),
        ([0, -1, 1, 0, 0, -1], 2.0),
        ([0] * 6, 1.0),
    ):
        if opset < 11:
            agree(one("Pad", (1, 3, 4), opset, pads=pads, value=value), tmp_path)
        else:
            agree(one("Pad", (1, 3, 4), opset, [ints(*pads), F(value)], mode="constant"), tmp_path)
            agree(one("Pad", (1, 3, 4), opset, [ints(*pads)]), tmp_path)
    if opset >= 18:
        agree(one("Pad", (1, 3, 4), opset, [ints(1, 2), F(0.5), ints(-1)]), tmp_path)


def test_casts_and_types(tmp_path: Path) -> None:
    nodes = [
        node("Cast", "x", "d", to=TensorProto.DOUBLE),
        node("Mul", "d c", "m"),
        node("Cast", "m", to=TensorProto.FLOAT),
    ]
    net = agree(model(nodes, (1, 4), {"c": A(4, dtype=np.float64)}), tmp_path)
    assert net.dtype == torch.float64 and kinds(net) == ["Scale"]


HALF = {"w": A(3, 4, dtype=np.float16), "v": A(3, 3, dtype=np.float16)}


def test_a_model_of_half_precision_is_read_with_a_note(tmp_path: Path) -> None:
    """Also where it computes a part in float32 and comes back."""
    nodes = [
        node("Gemm", "x w", "h", transB=1), node("Cast", "h", "f", to=TensorProto.FLOAT), node("Tanh", "f", "t"),
        node("Cast", "t", "g", to=TensorProto.FLOAT16), node("Gemm", "g v", transB=1),
    ]  # fmt: skip
    m = model(nodes, ("n", 4), HALF, outputs=[("y", TensorProto.FLOAT16, None)], kind=TensorProto.FLOAT16)
    net = read(m, tmp_path)
    assert kinds(net) == ["Linear", "Tanh", "Linear"] and net.about.notes == (computes_in("float16"),)
    assert "in real arithmetic" in net.about.notes[0] and "about the float32 version" in net.about.notes[0]
    x = A(5, 4, dtype=np.float16)
    np.testing.assert_allclose(net(x.astype(F)).numpy(), runtime(session(m), x), atol=5e-3)


def test_inputs_of_half_precision_to_a_model_of_float32(tmp_path: Path) -> None:
    nodes = [node("Flatten", "x", "f"), node("Cast", "f", "d", to=TensorProto.FLOAT), node("Gemm", "d w", transB=1)]
    net = read(model(nodes, ("n", 4), {"w": A(3, 4)}, kind=TensorProto.FLOAT16), tmp_path)
    assert kinds(net) == ["Linear"] and not net.about.notes


def test_small_whole_numbers_fit_into_half_precision(tmp_path: Path) -> None:
    nodes = [
        node("Cast", "x", "h", to=TensorProto.FLOAT16),
        node("Cast", "h", "f", to=TensorProto.FLOAT),
        node("MatMul", "f w"),
    ]
    assert kinds(read(model(nodes, ("n", 4), {"w": A(4, 3)}, kind=TensorProto.UINT8), tmp_path)) == ["Linear"]


# --- whole models: inputs, outputs, types

LAYERS = [node("Gemm", "x w b", "h", transB=1), node("Relu", "h", "r"), node("Gemm", "r v", transB=1)]


def layers(dtype: Any = F) -> dict[str, np.ndarray]:
    return {"w": A(6, 4, dtype=dtype), "b": A(6, dtype=dtype), "v": A(3, 6, dtype=dtype), "u": A(3, dtype=dtype)}


@pytest.mark.parametrize("shape", [(1, 4), ("batch", 4), (None, 4), (-1, 4)])
def test_batch_axes(shape: Any, tmp_path: Path) -> None:
    net = agree(model(LAYERS, shape, layers()), tmp_path)
    assert net.input_shape == (4,) and kinds(net) == ["Linear", "ReLU", "Linear"] and net.about.notes == ()


@pytest.mark.parametrize(
    ("shape", "own"),
    [
        ((1, 784, 1), (784, 1)),
        (("batch", 3, 8, 8), (3, 8, 8)),
        ((5,), (5,)),
        ((1, 1, 1, 5), (1, 1, 5)),
        ((6, 2), (6, 2)),
    ],
)
def test_input_shapes(shape: Any, own: tuple[int, ...], tmp_path: Path) -> None:
    nodes = [node("Reshape", "x s", "f"), node("MatMul", "f w")]
    m = model(nodes, shape, {"s": ints(1, -1), "w": A(math.prod(own), 3)}, outputs=[("y", TensorProto.FLOAT, (1, 3))])
    assert agree(m, tmp_path, tolerance=2e-5).input_shape == own


def test_a_fixed_batch_is_read_as_one_input(tmp_path: Path) -> None:
    nodes = [node("Reshape", "x s", "f"), *[node("Gemm", "f w b", "h", transB=1)], *LAYERS[1:]]
    constants = {**layers(), "s": ints(8, 4)}
    m = model(nodes, (8, 2, 2), constants, outputs=[("y", TensorProto.FLOAT, (8, 3))])
    net = read(m, tmp_path)
    assert net.input_shape == (2, 2) and "batches of 8" in net.about.notes[0]
    x = A(8, 2, 2)
    (expected,) = session(m).run(None, {"x": x})
    np.testing.assert_allclose(net(x).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("arithmetic", ["shape", "size", "flatten"])
def test_shape_arithmetic(arithmetic: str, tmp_path: Path) -> None:
    """What exporters write for `x.view(x.size(0), -1)` and the like."""
    if arithmetic == "shape":
        nodes = [
            node("Shape", "x", "s"), node("Constant", "", "zero", value_int=0), node("Gather", "s zero", "n", axis=0),
            node("Unsqueeze", "n axes", "n1"), node("Concat", "n1 rest", "t", axis=0), node("Reshape", "x t", "f"),
        ]  # fmt: skip
        c = {"axes": ints(0), "rest": ints(-1)}
    elif arithmetic == "size":
        nodes = [
            node("Shape", "x", "s", start=1, end=3),
            node("ReduceProd", "s", "p", keepdims=1),
            node("Size", "x", "z"),
            node("Div", "z p", "n"),
            node("Concat", "n p", "t0", axis=0),
            node("Cast", "t0", "t1", to=TensorProto.FLOAT),
            node("Floor", "t1", "t2"),
            node("Cast", "t2", "t", to=TensorProto.INT64),
            node("Reshape", "x t", "f"),
        ]
        c = {}
    else:
        nodes = [
            node("Shape", "x", "s"), node("Slice", "s a b", "head"), node("ConstantOfShape", "one", "minus",
            value=helper.make_tensor("v", TensorProto.INT64, [1], [-1])), node("Concat", "head minus", "t0", axis=0),
            node("Equal", "t0 minus", "e"), node("Where", "e minus t0", "t"), node("Reshape", "x t", "f"),
        ]  # fmt: skip
        c = {"a": ints(0), "b": ints(1), "one": ints(1)}
    constants: dict[str, Any] = {**c, "w": A(6, 3), "g": A(3)}
    net = agree(model([*nodes, node("Gemm", "f w g")], ("n", 2, 3), constants), tmp_path)
    assert kinds(net) == ["Reshape", "Linear"] and net.about.notes == ()


def test_pads_as_torch_writes_them(tmp_path: Path) -> None:
    """torch keeps them last axis first, and turns them round with a slice of negative step."""
    nodes = [
        node("ConstantOfShape", "four", "zeros", value=helper.make_tensor("v", TensorProto.INT64, [1], [0])),
        node("Concat", "given zeros", "p0", axis=0), node("Reshape", "p0 two", "p1"),
        node("Slice", "p1 last first axis step", "p2"), node("Transpose", "p2", "p3", perm=[1, 0]),
        node("Reshape", "p3 flat", "p4"), node("Cast", "p4", "pads", to=TensorProto.INT64), node("Pad", "x pads value"),
    ]  # fmt: skip
    constants = {
        "four": ints(4), "given": ints(1, 2, 0, 1), "two": ints(-1, 2), "last": ints(-1), "first": ints(-(2**63) + 1),
        "axis": ints(0), "step": ints(-1), "flat": ints(-1), "value": F(0),
    }  # fmt: skip
    assert kinds(agree(model(nodes, (1, 2, 3, 4), constants, 13), tmp_path))[0] == "Pad"


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float16, 5e-3)])
def test_types_are_kept_exactly(dtype: Any, tolerance: float, tmp_path: Path) -> None:
    kind = {np.float64: TensorProto.DOUBLE, np.float16: TensorProto.FLOAT16}[dtype]
    m = model(LAYERS, ("n", 4), layers(dtype), outputs=[("y", kind, None)], kind=kind)
    net = read(m, tmp_path)
    weight = net.nodes[1].op.weight
    assert weight.dtype == net.dtype == (torch.float64 if dtype == np.float64 else torch.float32)
    assert np.array_equal(weight.double().numpy(), A(6, 4, dtype=dtype).astype(np.float64))
    x = A(5, 4, dtype=dtype)
    np.testing.assert_allclose(
        net(x.astype(np.float64)).numpy(), runtime(session(m), x), atol=tolerance, rtol=tolerance
    )


def test_half_precision_in_every_storage(tmp_path: Path) -> None:
    weights = A(3, 4, dtype=np.float16)
    wide = weights.astype(np.float32)
    brain = (wide.view(np.uint32) >> 16).astype(np.uint16)
    for kind, bits, exact in (
        (TensorProto.FLOAT16, weights.view(np.uint16), wide),
        (TensorProto.BFLOAT16, brain, (brain.astype(np.uint32) << 16).view(np.float32)),
    ):
        for raw in (True, False):
            tensor = onnx.TensorProto(name="w", data_type=kind, dims=[3, 4])
            if raw:
                tensor.raw_data = bits.tobytes()
            else:
                tensor.int32_data.extend(bits.reshape(-1).tolist())
            m = model([node("Cast", "w", "v", to=TensorProto.FLOAT), node("Gemm", "x v", transB=1)], (1, 4))
            m.graph.initializer.append(tensor)
            found = read(m, tmp_path).nodes[1].op.weight
            assert torch.equal(found, torch.from_numpy(exact))


def test_tensors_in_typed_fields(tmp_path: Path) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 4], A(3, 4).reshape(-1))
    sizes = helper.make_tensor("s", TensorProto.INT64, [2], [1, 4])
    m = model([node("Reshape", "x s", "r"), node("Gemm", "r w", transB=1)], (1, 2, 2))
    m.graph.initializer.extend([weight, sizes])
    assert not weight.raw_data
    net = agree(m, tmp_path)
    assert torch.equal(net.nodes[2].op.weight, torch.from_numpy(A(3, 4)))


def test_images_of_whole_numbers(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("Cast", "t", "f", to=TensorProto.FLOAT),
        node("Div", "f c", "d"), node("Flatten", "d", "g"), node("MatMul", "g w"),
    ]  # fmt: skip
    m = model(nodes, ("n", 4, 4, 3), {"c": F(255), "w": A(48, 3)}, kind=TensorProto.UINT8)
    net = read(m, tmp_path)
    assert "uint8" in net.about.notes[0] and kinds(net) == ["Transpose", "Divide", "Reshape", "Linear"]
    x = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 3))
    np.testing.assert_allclose(net(x.astype(F)).numpy(), runtime(session(m), x), atol=1e-5)


def test_initializers_among_the_inputs(tmp_path: Path) -> None:
    m = model(LAYERS, (1, 4), layers(), 8)
    for name, array in layers().items():
        m.graph.input.insert(0, helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape))
    assert read(m, tmp_path).input_shape == (4,)


def test_functions_are_written_out(tmp_path: Path) -> None:
    opset = [helper.make_opsetid("", 17)]
    relu = helper.make_function("own", "Rectify", ["a"], ["r"], [helper.make_node("Relu", ["a"], ["r"])], opset)
    twice = helper.make_function(
        "own", "Twice", ["a"], ["r"],
        [helper.make_node("Rectify", ["a"], ["h"], domain="own"), helper.make_node("Add", ["h", "a"], ["r"])],
        [*opset, helper.make_opsetid("own", 1)],
    )  # fmt: skip
    m = model([node("Twice", "x", "t", domain="own"), node("Twice", "t", domain="own")], (1, 4))
    m.functions.extend([relu, twice])
    assert kinds(agree(m, tmp_path)) == ["ReLU", "Add", "ReLU", "Add"]


# --- composites as exporters write them

GELUS: dict[str, list[onnx.NodeProto]] = {
    "divided": [
        node("Div", "x root", "a"),
        node("Erf", "a", "b"),
        node("Add", "b one", "c"),
        node("Mul", "x c", "d"),
        node("Mul", "d half"),
    ],
    "half first": [
        node("Mul", "x half", "h"),
        node("Mul", "x over", "a"),
        node("Erf", "a", "b"),
        node("Add", "one b", "c"),
        node("Mul", "h c"),
    ],
    "half inside": [
        node("Mul", "over x", "a"),
        node("Erf", "a", "b"),
        node("Add", "b one", "c"),
        node("Mul", "half c", "d"),
        node("Mul", "d x"),
    ],
    "halved": [
        node("Mul", "over x", "a"),
        node("Erf", "a", "b"),
        node("Add", "b one", "c"),
        node("Mul", "c x", "d"),
        node("Div", "d two"),
    ],
    "no half": [node("Mul", "over x", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "c x")],
    "spread": [
        node("Mul", "over x", "a"),
        node("Erf", "a", "b"),
        node("Mul", "b half", "c"),
        node("Add", "c half", "d"),
        node("Mul", "d x"),
    ],
    "tanh with a power": [
        node("Pow", "x three", "p"),
        node("Mul", "p cubic", "q"),
        node("Add", "x q", "r"),
        node("Mul", "r scale", "s"),
        node("Tanh", "s", "t"),
        node("Add", "t one", "u"),
        node("Mul", "x half", "h"),
        node("Mul", "h u"),
    ],
    "tanh with products": [
        node("Mul", "x x", "x2"),
        node("Mul", "x2 x", "p"),
        node("Mul", "cubic p", "q"),
        node("Add", "x q", "r"),
        node("Mul", "scale r", "s"),
        node("Tanh", "s", "t"),
        node("Add", "one t", "u"),
        node("Mul", "u x", "v"),
        node("Mul", "v half"),
    ],
    "tanh factored": [
        node("Mul", "x x", "x2"),
        node("Mul", "x2 cubic", "p"),
        node("Add", "p one", "q"),
        node("Mul", "x scale", "s0"),
        node("Mul", "s0 q", "s"),
        node("Tanh", "s", "t"),
        node("Add", "one t", "u"),
        node("Mul", "half u", "v"),
        node("Mul", "x v"),
    ],
}

SCALARS = {
    "root": F(math.sqrt(2)), "over": F(math.sqrt(0.5)), "one": F(1), "half": F(0.5), "two": F(2), "three": F(3),
    "cubic": F(0.044715), "scale": F(math.sqrt(2 / math.pi)), "wide": F(1.702),
}  # fmt: skip


@pytest.mark.parametrize("name", GELUS)
def test_gelu_written_out(name: str, tmp_path: Path) -> None:
    net = agree(model(GELUS[name], (1, 3, 5), SCALARS), tmp_path)
    assert [k for k in kinds(net) if k != "Reshape"] == (["GELU", "Scale"] if name == "no half" else ["GELU"])
    gelu = next(n.op for n in net.nodes if isinstance(n.op, ops.GELU))
    assert gelu.tanh == name.startswith("tanh") and "GELU itself" in net.about.notes[0]


@pytest.mark.parametrize("name", GELUS)
def test_gelu_of_a_multiple(name: str, tmp_path: Path) -> None:
    """A factor of the model's own before the GELU is not taken for one of its constants."""
    nodes = [node("Mul", "x0 wide", "x"), *GELUS[name]]
    m = model(nodes, (1, 3, 5), SCALARS)
    m.graph.input[0].name = "x0"
    assert [k for k in kinds(agree(m, tmp_path)) if k != "Reshape"][:2] == ["Scale", "GELU"]


@pytest.mark.parametrize("first", GELUS)
@pytest.mark.parametrize("second", ["divided", "half first", "tanh with a power", "tanh with products"])
def test_one_gelu_after_another(first: str, second: str, tmp_path: Path) -> None:
    def renamed(nodes: list[onnx.NodeProto], names: dict[str, str], prefix: str) -> list[onnx.NodeProto]:
        def new(name: str) -> str:
            return names.get(name, name if name in SCALARS else prefix + name)

        return [helper.make_node(n.op_type, [*map(new, n.input)], [*map(new, n.output)]) for n in nodes]

    chain = [*renamed(GELUS[first], {"x": "x", "y": "z"}, "1"), *renamed(GELUS[second], {"x": "z", "y": "y"}, "2")]
    found = [k for k in kinds(agree(model(chain, (1, 3, 5), SCALARS), tmp_path)) if k != "Reshape"]
    assert found == (["GELU", "Scale", "GELU"] if first == "no half" else ["GELU", "GELU"])


def test_gelu_in_a_residual_block(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "z", "x"),
        *GELUS["divided"][:-1],
        node("Mul", "d half", "g"),
        node("Add", "x g", "s"),
        node("MatMul", "g w", "m"),
        node("Add", "s m"),
    ]
    nodes = [
        helper.make_node(n.op_type, ["x0" if i == "z" else i for i in n.input], n.output, name=n.name) for n in nodes
    ]
    m = model(nodes, (1, 4), {**SCALARS, "w": A(4, 4)})
    m.graph.input[0].name = "x0"
    assert kinds(agree(m, tmp_path)) == ["ReLU", "GELU", "Add", "Linear", "Add"]


def test_silu_written_out(tmp_path: Path) -> None:
    plain = [node("Sigmoid", "x", "s"), node("Mul", "x s")]
    assert kinds(agree(model(plain, (1, 5)), tmp_path)) == ["SiLU"]
    turned = [node("Sigmoid", "x", "s"), node("Mul", "s x", "m"), node("Mul", "m c")]
    assert kinds(agree(model(turned, (1, 5), {"c": A(5)}), tmp_path)) == ["SiLU", "Scale"]
    bent = [
        node("Sigmoid", "x", "s"),
        node("Mul", "s x", "m"),
        node("Tanh", "m", "t"),
        node("Add", "t m", "u"),
        node("Neg", "u"),
    ]
    assert kinds(agree(model(bent, (1, 5)), tmp_path)) == ["SiLU", "Tanh", "Add", "Scale"]
    steep = [node("Mul", "x wide", "a"), node("Sigmoid", "a", "s"), node("Mul", "x s")]
    assert kinds(agree(model(steep, (1, 5), SCALARS), tmp_path)) == ["Scale", "SiLU", "Divide"]


# --- ends

LOGITS = [*LAYERS[:2], node("Gemm", "r v u", "z", transB=1)]


@pytest.mark.parametrize("opset", [9, 11, 13])
@pytest.mark.parametrize("end", ["Softmax", "LogSoftmax", "ArgMax"])
def test_ends_that_are_left_off(end: str, opset: int, tmp_path: Path) -> None:
    kind = TensorProto.INT64 if end == "ArgMax" else TensorProto.FLOAT
    m = model([*LOGITS, node(end, "z", axis=1)], ("n", 4), layers(), opset, [("y", kind, None)])
    net = read(m, tmp_path)
    assert kinds(net) == ["Linear", "ReLU", "Linear"] and end in net.about.notes[0]
    x = A(20, 4)
    found = net(x).double().softmax(1).numpy()
    expected = runtime(session(m), x)
    if end == "ArgMax":
        assert np.array_equal(found.argmax(1)[:, None], expected)
    else:
        np.testing.assert_allclose(found if end == "Softmax" else np.log(found), expected, atol=1e-5)


def test_what_follows_the_end(tmp_path: Path) -> None:
    after = [
        node("Softmax", "z", "p", axis=-1), node("Reshape", "p one", "q"), node("ArgMax", "q", "i", axis=1, keepdims=0),
        node("Cast", "i", "j", to=TensorProto.INT32), node("Reshape", "j flat"),
    ]  # fmt: skip
    constants = {**layers(), "one": ints(1, 3, 1), "flat": ints(1)}
    net = read(model([*LOGITS, *after], (1, 4), constants, outputs=[("y", TensorProto.INT32, None)]), tmp_path)
    assert net.about.notes == (left_off("Softmax and ArgMax"),)


def test_several_outputs(tmp_path: Path) -> None:
    outputs = [
        ("label", TensorProto.INT64, None),
        ("p", TensorProto.FLOAT, ("n", 3)),
        ("z", TensorProto.FLOAT, ("n", 3)),
    ]
    nodes = [*LOGITS, node("Softmax", "z", "p", axis=1), node("ArgMax", "p", "label", axis=1)]
    net = read(model(nodes, ("n", 4), layers(), outputs=outputs), tmp_path)
    assert kinds(net) == ["Linear", "ReLU", "Linear"] and "of the model's 3 outputs 'p' is read" in net.about.notes


def test_a_classifier_of_scikit_learn(tmp_path: Path) -> None:
    """As skl2onnx writes an MLPClassifier behind a StandardScaler."""
    ml = "ai.onnx.ml"
    offset, scale = [0.5, -1.0, 2.0, 0.25], [2.0, 0.5, 1.5, 1.0]
    nodes = [
        node("Scaler", "x", "s", ml, offset=offset, scale=scale),
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("MatMul", "f w", "m"),
        node("Add", "m b", "a"),
        node("Relu", "a", "r"),
        node("MatMul", "r v", "n"),
        node("Add", "n c", "z"),
        node("Softmax", "z", "p", axis=1),
        node("ArgMax", "p", "i", axis=1),
        node("ArrayFeatureExtractor", "names i", "l", ml),
        node("ZipMap", "p", "q", ml, classlabels_strings=["no", "yes", "maybe"]),
    ]
    constants = {"w": A(4, 6), "b": A(6), "v": A(6, 3), "c": A(3)}
    m = model(nodes, ("n", 4), constants, outputs=[("l", TensorProto.STRING, None)])
    m.graph.initializer.append(helper.make_tensor("names", TensorProto.STRING, [3], [b"no", b"yes", b"maybe"]))
    zipped = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    m.graph.output.append(helper.make_value_info("q", zipped))
    net = read(m, tmp_path)
    assert net.about.classes == ("no", "yes", "maybe")
    assert kinds(net) == ["Shift", "Scale", "Linear", "ReLU", "Linear"]
    x = A(6, 4)
    rows = session(m).run(["q"], {"x": x})[0]
    expected = [[row[name] for name in net.about.classes] for row in rows]
    np.testing.assert_allclose(net(x).softmax(1).numpy(), expected, atol=1e-6)


def test_two_classes_of_scikit_learn(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", "x w", "m"), node("Add", "m b", "z"), node("Sigmoid", "z", "p"), node("Sub", "one p", "q"),
        node("Concat", "q p", axis=1),
    ]  # fmt: skip
    net = agree(model(nodes, ("n", 4), {"w": A(4, 1), "b": A(1), "one": F(1)}), tmp_path)
    assert net.n_outputs == 2


def test_outputs_of_several_axes_are_read_row_by_row(tmp_path: Path) -> None:
    net = agree(model([node("Relu", "x")], (1, 2, 3)), tmp_path)
    assert net.n_outputs == 6 and "(2, 3)" in net.about.notes[0]


def test_constants_that_the_model_computes_are_named(tmp_path: Path) -> None:
    nodes = [node("Add", "v e", "a"), node("Sqrt", "a", "s"), node("Div", "x s")]
    net = agree(model(nodes, (1, 4), {"v": A(4) ** 2, "e": F(1e-5)}), tmp_path)
    assert net.about.notes == ("the model computes the constant 's' itself; it is taken as rounded to its type",)
    moved = [node("Transpose", "w", "t"), node("MatMul", "x t")]
    assert agree(model(moved, (1, 4), {"w": A(3, 4)}), tmp_path).about.notes == ()


def test_a_misread_operator_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from elbowroom.errors import UnsupportedError
    from elbowroom.readers.onnx import operators as onnx_operators

    monkeypatch.setitem(onnx_operators.HANDLERS, ("", "Tanh"), onnx_operators.HANDLERS["", "Atan"])
    with pytest.raises(UnsupportedError, match=r"Tanh \(node 'Tanh_y'\) is read differently here and by onnx's"):
        read(one("Tanh", (1, 5)), tmp_path)
