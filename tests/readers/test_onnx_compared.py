"""An ONNX model is compared with what was read of it: what is found, what is refused, and what is said."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given
from onnx import TensorProto

import elbowroom as er
from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.readers.onnx import (
    comparison as onnx_comparison,
)
from elbowroom.readers.onnx import (
    guard as onnx_guard,
)
from elbowroom.readers.onnx import (
    operators as onnx_operators,
)
from elbowroom.readers.onnx import (
    pooling as onnx_pooling,
)
from elbowroom.readers.onnx.step import Value
from elbowroom.readers.rounding import rounding
from onnx_support import agree, model, node, numbers, read
from support import cases, mlp, networks, normal

F = np.float32
A = numbers
BOTH = ["onnxruntime", "reference"]


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@pytest.fixture(params=BOTH)
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each implementation by itself: without onnxruntime, or with a reference that may not take any time."""
    if request.param == "reference":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    else:
        monkeypatch.setattr(onnx_comparison, "MOST", 0)
    yield request.param


def compared(net: Network) -> str:
    assert net.about.origin is not None
    return "\n".join(net.about.origin.compared)


# --- the inputs of a batch

Graph = tuple[list[onnx.NodeProto], tuple[Any, ...], dict[str, Any], int]
SIZE = [node("Shape", "x", "s"), node("Cast", "s", "r", to=TensorProto.FLOAT), node("Gather", "r zero", "n")]

MIXED: dict[str, Graph] = {
    "mean over the batch": (
        [node("ReduceMean", "x", "m", axes=[0], keepdims=1), node("Add", "x m")], ("n", 2), {}, 13
    ),
    "sum over the batch": ([node("ReduceSum", "x a", "m"), node("Sub", "x m")], ("n", 2), {"a": ints(0)}, 13),
    "one row for all": ([node("ReduceMean", "x", axes=[0], keepdims=1)], ("n", 4), {}, 13),
    "rows in a row": ([node("Relu", "x", "h"), node("Reshape", "h s")], ("n", 4), {"s": ints(1, -1)}, 13),
    "flat from the batch on": ([node("Flatten", "x", axis=0)], ("n", 4), {}, 13),
    "no axis at all": ([node("Reshape", "x s")], ("n", 4), {"s": ints(-1)}, 13),
    "softmax over the batch": ([node("Softmax", "x", axis=0)], ("n", 4), {}, 11),
    "the first row": ([node("Gather", "x i", axis=0)], ("n", 4), {"i": ints(0)}, 13),
    "a piece of the batch": ([node("Slice", "x a b c")], ("n", 4), {"a": ints(0), "b": ints(1), "c": ints(0)}, 13),
    "twice the batch": ([node("Relu", "x", "h"), node("Concat", "x h", axis=0)], ("n", 4), {}, 13),
    "its size added": ([*SIZE, node("Add", "x n")], ("n", 4), {"zero": ints(0)}, 13),
    "divided by its size": (
        [node("Size", "x", "s"), node("Cast", "s", "n", to=TensorProto.FLOAT), node("Div", "x n")], ("n", 4), {}, 13
    ),
    "the largest of neighbours": (
        [node("Transpose", "x", "t", perm=[1, 0]), node("Unsqueeze", "t zero", "u"),
         node("MaxPool", "u", "p", kernel_shape=[2], pads=[0, 1]), node("Squeeze", "p zero", "q"),
         node("Transpose", "q", perm=[1, 0])], ("n", 4), {"zero": ints(0)}, 13,
    ),
    "padded batch": ([node("Pad", "x p")], ("n", 4), {"p": ints(0, 0, 1, 0)}, 13),
    "means of windows over the batch": (
        [node("Unsqueeze", "x zero", "u"), node("AveragePool", "u", "p", kernel_shape=[3], pads=[1, 1]),
         node("Squeeze", "p zero")], ("n", 4), {"zero": ints(0)}, 13,
    ),
}  # fmt: skip
MIXED["means of windows over the batch"][0].insert(1, node("Transpose", "u", "v", perm=[0, 2, 1]))
MIXED["means of windows over the batch"][0][2].input[0] = "v"


@pytest.mark.parametrize("name", MIXED)
def test_models_that_mix_the_inputs_of_a_batch(name: str, side: str, tmp_path: Path) -> None:
    nodes, shape, constants, opset = MIXED[name]
    with pytest.raises(UnsupportedError, match="depends on the other inputs of the batch, or on how many there are"):
        read(model(nodes, shape, constants, opset), tmp_path)


@pytest.mark.parametrize("name", [name for name in MIXED if "softmax" not in name])
def test_the_same_models_for_one_input(name: str, tmp_path: Path) -> None:
    """With the batch size fixed to 1 they are claimed for that alone."""
    nodes, shape, constants, opset = MIXED[name]
    net = read(model(nodes, (1, *shape[1:]), constants, opset), tmp_path)
    assert net.about.notes == () or "read row by row" in net.about.notes[0]
    assert "at batch size 1," in compared(net) and "batch sizes" not in compared(net)


def test_the_node_that_mixes_is_named(side: str, tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "h"), *MIXED["mean over the batch"][0], node("Tanh", "y", "z")]
    nodes[1].input[0] = "h"
    with pytest.raises(UnsupportedError, match=r"with 2 inputs ReduceMean \(node 'ReduceMean_m'\) is not, for each"):
        read(model(nodes, ("n", 2), {}, 13, [("z", TensorProto.FLOAT, None)]), tmp_path)


def test_a_small_share_of_the_others_is_not_lost_on_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    nodes = [
        node("ReduceMean", "x", "m", axes=[0], keepdims=1), node("Mul", "m small", "s"), node("Add", "x s", "a"),
        node("Sub", "a x", "d"), node("Mul", "d large"),
    ]  # fmt: skip
    constants = {"small": np.float64(1e-10), "large": np.float64(1e10)}
    m = model(nodes, ("n", 2), constants, 13, [("y", TensorProto.DOUBLE, None)], TensorProto.DOUBLE)
    with pytest.raises(UnsupportedError, match="depends on the other inputs of the batch"):
        read(m, tmp_path)


ONE: dict[str, Graph] = {
    "a row for the matrix": ([node("Reshape", "x s", "r"), node("MatMul", "r w")], ("n", 2, 2),
                             {"s": ints(1, -1), "w": A(4, 3)}, 13),
    "all of size 1": ([node("Squeeze", "x", "s"), node("Gemm", "s w")], ("n", 4, 1, 2), {"w": A(2, 3)}, 13),
    "a squeezed batch": ([node("Squeeze", "x a", "s"), node("MatMul", "s w")], ("n", 4),
                         {"a": ints(0), "w": A(4, 3)}, 13),
    "a part": ([node("Split", "x p", axis=0)], ("n", 4), {"p": ints(1)}, 13),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_models_that_cannot_run_a_batch(name: str, side: str, tmp_path: Path) -> None:
    """They mix nothing, and what they give for one input is right."""
    nodes, shape, constants, opset = ONE[name]
    net = agree(model(nodes, shape, constants, opset), tmp_path)
    assert "it cannot be run with 2 and 3 inputs at once; it is read for one at a time" in "".join(net.about.notes)
    assert "at batch size 1," in compared(net) and "cannot run 2 inputs at once: " in compared(net)
    x = torch.from_numpy(A(4, *net.input_shape, dtype=np.float64))
    assert net.source is not None and net.source.differs(x) is None


MOVED: dict[str, Graph] = {
    "batch last": ([node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "w t", "m"), node("Transpose", "m")],
                   ("n", 4), {"w": A(3, 4)}, 13),
    "batch last in the end": ([node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "w t")],
                              ("n", 4), {"w": A(3, 4)}, 13),
    "an axis before it": ([node("Unsqueeze", "x a", "u"), node("MatMul", "u w", "m"), node("Squeeze", "m a")],
                          ("n", 4), {"a": ints(0), "w": A(4, 3)}, 13),
    "no axis where there is one input": ([node("Relu", "x", "r"), node("Squeeze", "r")], ("n", 3, 1), {}, 13),
    "its own size": ([*SIZE, node("Add", "x n", "p"), node("Sub", "p n")], ("n", 4), {"zero": ints(0)}, 13),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_batches_that_only_move(name: str, side: str, tmp_path: Path) -> None:
    nodes, shape, constants, opset = MOVED[name]
    net = agree(model(nodes, shape, constants, opset), tmp_path)
    assert net.about.notes == () and "at batch sizes 1, 2 and 3," in compared(net)


def test_a_batch_that_would_take_all_memory(tmp_path: Path) -> None:
    """With one input a constant has one number, with two it has 2^32."""
    squares = [node("Mul", f"p{i} p{i}", f"p{i + 1}") for i in range(5)]
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "p0"), *squares, node("ConstantOfShape", "p5", "c",
             value=onnx.numpy_helper.from_array(A(1))), node("Add", "x c")]  # fmt: skip
    net = read(model(nodes, ("n", 4), {"zero": ints(0)}, 13), tmp_path)
    assert "it is read for one at a time" in net.about.notes[0]
    assert "onnxruntime" in compared(net) and "cannot run 2 inputs at once: ConstantOfShape" in compared(net)


def test_fixed_batches_are_compared_at_their_size(side: str, tmp_path: Path) -> None:
    m = model([node("Gemm", "x w")], (5, 4), {"w": A(4, 3)}, 13, [("y", TensorProto.FLOAT, (5, 3))])
    net = read(m, tmp_path)
    assert "at batch size 5, with inputs of scale 0.01, 1 and 100" in compared(net)
    assert net.source is not None
    for rows in (0, 1, 5, 7):
        assert net.source.differs(torch.from_numpy(A(rows, 4, dtype=np.float64))) is None


# --- padding that runtimes do differently


@pytest.mark.parametrize("opset", [11, 22])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kind", ["Conv", "MaxPool", "AveragePool"])
def test_padding_that_would_be_negative(kind: str, mode: str, opset: int, tmp_path: Path) -> None:
    attributes = {} if kind == "Conv" else {"kernel_shape": [1]}
    given = node(kind, "x k" if kind == "Conv" else "x", "c", auto_pad=mode, strides=[4], **attributes)
    nodes = [given, node("Flatten", "c", "f"), node("Gemm", "f w b")]
    constants = {"k": np.ones((1, 1, 1), F), "w": np.array([[1, -1]], F), "b": np.array([-0.5, 0.5], F)}
    with pytest.raises(
        UnsupportedError, match=rf"{kind} \(node '{kind}_c'\): auto_pad {mode} where the kernel \(1,\) is"
    ):
        read(model(nodes, ("n", 1, 4), constants, opset), tmp_path)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("length", [4, 6])
def test_dilated_windows_of_the_same_size(kind: str, mode: str, length: int, tmp_path: Path) -> None:
    nodes = [node(kind, "x", auto_pad=mode, kernel_shape=[2], dilations=[2])]
    with pytest.raises(UnsupportedError, match=f"auto_pad {mode} with dilations, which runtimes do differently"):
        read(model(nodes, (1, 1, length), {}, 19), tmp_path)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_padding_as_wide_as_a_window(kind: str, tmp_path: Path) -> None:
    nodes = [node(kind, "x", kernel_shape=[2], strides=[4], pads=[3, 3], ceil_mode=1)]
    with pytest.raises(UnsupportedError, match="is as wide as its window"):
        read(model(nodes, (1, 1, 5), {}, 22), tmp_path)


def test_a_kernel_smaller_than_the_stride_that_needs_no_negative_padding(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", auto_pad="SAME_UPPER", strides=[4])]
    agree(model(nodes, (1, 1, 5), {"w": A(1, 1, 3)}, 22), tmp_path)


# --- what is left off at the end


@pytest.mark.parametrize("end", ["Softmax", "LogSoftmax", "ArgMax"])
def test_an_end_of_one_number_decides_nothing(end: str, tmp_path: Path) -> None:
    nodes = [node("Gemm", "x w", "z"), node(end, "z", axis=1)]
    with pytest.raises(UnsupportedError, match="of one number, which leaves nothing to decide"):
        read(model(nodes, ("n", 4), {"w": A(4, 1)}, 13), tmp_path)


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize("end", ["Softmax", "LogSoftmax", "ArgMax"])
def test_ends_are_compared_as_well(end: str, opset: int, side: str, tmp_path: Path) -> None:
    kind = TensorProto.INT64 if end == "ArgMax" else TensorProto.FLOAT
    nodes = [node("Gemm", "x w b", "z"), node(end, "z", axis=1)]
    m = model(nodes, ("n", 4), {"w": 3 * A(4, 3), "b": A(3)}, opset, [("y", kind, None)])
    assert "at batch sizes 1, 2 and 3, with inputs of scale 0.01, 1 and 100" in compared(read(m, tmp_path))


# --- what is misread

Handler = Callable[..., Any]


def misread(monkeypatch: pytest.MonkeyPatch, kind: str, change: Handler) -> None:
    """Reads an operator as it is, and then something on top of it."""
    handler = onnx_operators.HANDLERS["", kind]
    monkeypatch.setitem(onnx_operators.HANDLERS, ("", kind), lambda to, *xs: change(to, handler(to, *xs)))


def factor(size: float) -> Handler:
    return lambda to, y: Value(to.add(ops.Scale(torch.tensor(size, dtype=torch.float64)), y.number), y.shape)


IMAGE: dict[str, tuple[str, dict[str, Any], list[np.ndarray], int]] = {
    "largest": ("MaxPool", {"kernel_shape": [3], "pads": [1, 1]}, [], 12),
    "mean": ("AveragePool", {"kernel_shape": [3], "pads": [1, 1]}, [], 12),
    "largest of all": ("GlobalMaxPool", {}, [], 12),
    "mean of all": ("GlobalAveragePool", {}, [], 12),
    "old batch norm": ("BatchNormalization", {}, [A(2), A(2), A(2), A(2) ** 2], 9),
    "batch norm": ("BatchNormalization", {}, [A(2), A(2), A(2), A(2) ** 2], 15),
    "convolution": ("Conv", {"pads": [1, 0]}, [A(2, 2, 3)], 11),
    "gelu": ("Gelu", {}, [], 20),
    "tanh": ("Tanh", {}, [], 13),
}


@pytest.mark.parametrize("name", IMAGE)
@pytest.mark.parametrize("error", [1e-3, 1e-8])
def test_a_misread_operator_is_noticed(
    name: str, error: float, side: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The smallest mistakes are found in float64 only."""
    kind, attributes, constants, opset = IMAGE[name]
    named = {f"c{i}": c for i, c in enumerate(constants)}
    nodes = [node("Relu", "x", "h"), node(kind, " ".join(["h", *named]), "k", **attributes), node("Sigmoid", "k")]
    m = model(nodes, ("n", 2, 6), named, opset)
    read(m, tmp_path)
    misread(monkeypatch, kind, factor(1 + error))
    if side == "onnxruntime" and error < 1e-6:
        read(m, tmp_path)
        return
    with pytest.raises(UnsupportedError, match=rf"{kind} \(node '{kind}_k'\) is read differently here and by "):
        read(m, tmp_path)


def test_windows_are_compared_with_the_specification(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A mistake in counting padding, which is nowhere but in the reader's own arithmetic."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    covered = onnx_pooling._Windows.covered
    monkeypatch.setattr(onnx_pooling._Windows, "covered", lambda self, padded: covered(self, False))
    m = model([node("AveragePool", "x", kernel_shape=[3], pads=[2, 0], count_include_pad=1)], (1, 1, 6), {}, 12)
    with pytest.raises(UnsupportedError, match=r"AveragePool .* by onnx's specification, written out"):
        read(m, tmp_path)


# --- what is not compared


def large(tmp_path: Path) -> Network:
    nodes = [node("Gemm", "x w", "h"), node("Tanh", "h", "t"), node("Gemm", "t v")]
    return read(model(nodes, ("n", 4), {"w": A(4, 8), "v": A(8, 3)}), tmp_path)


def test_a_model_too_large_for_the_reference_is_compared_with_onnxruntime(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(onnx_comparison, "MOST", 100)
    net = large(tmp_path)
    assert net.about.notes == ()
    assert "compared as a whole" in compared(net) and "node by node" not in compared(net)
    assert "reference implementation: that would take more than 100 multiplications" in compared(net)


def test_a_model_too_large_for_anything_is_read_with_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_comparison, "MOST", 100)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    net = large(tmp_path)
    (note,) = net.about.notes
    assert note.startswith("the network was not compared with the model it was read from")
    assert "not compared with onnxruntime: it is not installed" in compared(net)
    assert net.source is not None and net.source.differs(torch.ones(2, 4, dtype=torch.float64)) is None
    path = tmp_path / "model.onnx"
    assert note in er.load(path).about.notes  # which go into the run


def test_a_model_that_is_compared_in_part_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    net = large(tmp_path)
    work = onnx_guard.Pair.work.fget
    costs: list[int] = []
    monkeypatch.setattr(onnx_guard.Pair, "work", property(lambda self: costs.append(work(self)) or costs[-1]))
    large(tmp_path)
    monkeypatch.setattr(onnx_comparison, "MOST", 2 * costs[0])
    net = large(tmp_path)
    assert "at batch size 1, with inputs of scale 1 and 100:" in compared(net)
    assert "any further: that would take more than" in compared(net)
    (note,) = net.about.notes
    assert note.startswith("the model was not run with 2 and 3 inputs at once: whether the inputs")


def test_a_model_that_would_take_too_much_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_comparison, "MOST_NUMBERS", 100)
    assert "not compared with onnx" in compared(large(tmp_path)) and large(tmp_path).about.notes == ()
    assert "at batch size 3: that would take more than 100 numbers at once" in compared(large(tmp_path))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(onnx_comparison, "MOST_NUMBERS", 10)
    (note,) = large(tmp_path).about.notes
    assert "was not compared with the model" in note and "more than 10 numbers at once" in note


def test_what_the_reference_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    evaluator = onnx_guard.Evaluator

    def lacking(nodes: Any, *rest: Any) -> Any:
        if nodes[0].op_type == "Tanh":
            raise er.InputError("there is no Tanh")
        return evaluator(nodes, *rest)

    monkeypatch.setattr(onnx_guard, "Evaluator", lacking)
    net = large(tmp_path)
    assert net.about.notes == ()
    assert "not compared by itself, since onnx" in compared(net) and "lacks it: Tanh (node 'Tanh_t')" in compared(net)
    assert "onnx's reference" not in compared(net).splitlines()[-1] or "at batch size 2" in compared(net)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    first, second = large(tmp_path).about.notes
    assert first.startswith("Tanh (node 'Tanh_t') was not compared with the model")
    assert second.startswith("the model was not run with 2 and 3 inputs at once")


def test_what_onnxruntime_does_not_run_is_said(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", auto_pad="SAME_UPPER", dilations=[2])]
    net = read(model(nodes, (1, 1, 6), {"w": A(1, 1, 3)}, 13), tmp_path)
    assert "not compared with onnxruntime" in compared(net) and "Dilation not supported" in compared(net)


def test_numbers_that_are_infinite_in_the_models_own_type(tmp_path: Path) -> None:
    weights = np.full((4, 3), 200, np.float16)
    nodes = [node("MatMul", "x w", "h"), node("MatMul", "h v")]
    m = model(nodes, ("n", 4), {"w": weights, "v": np.ones((3, 2), np.float16)}, 13,
              [("y", TensorProto.FLOAT16, None)], TensorProto.FLOAT16)  # fmt: skip
    net = read(m, tmp_path)
    assert any("gives infinite numbers, or none, for some random inputs" in note for note in net.about.notes)
    assert net.source is not None
    assert "gives infinite numbers" in str(net.source.differs(torch.full((1, 4), 1000.0, dtype=torch.float64)))


def test_what_was_compared_is_said_with_names_and_versions(tmp_path: Path) -> None:
    net = large(tmp_path)
    first, second = compared(net).splitlines()
    assert first.startswith(
        f"compared node by node in float64 with onnx {onnx.__version__}'s reference implementation, at batch sizes 1, "
        "2 and 3, with inputs of scale 0.01, 1 and 100: the largest"
    )
    assert second.startswith(
        f"compared as a whole in its own types with onnxruntime {onnxruntime.__version__} on the CPU, at batch sizes"
    )


# --- a user's inputs


def capped(limit: float) -> Handler:
    """A mistake that shows at large numbers only."""
    return lambda to, y: Value(to.add(ops.Clip(-limit, limit), y.number), y.shape)


def test_a_difference_at_a_users_inputs(side: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    misread(monkeypatch, "Relu", capped(5000.0))
    nodes = [node("Gemm", "x w", "h"), node("Relu", "h", "r"), node("Gemm", "r v")]
    m = model(nodes, ("n", 4), {"w": np.eye(4, dtype=F), "v": A(4, 3)})
    net = read(m, tmp_path)
    assert net.source is not None
    x = torch.tensor([[0.1, 0.2, 0.3, 0.4], [1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], dtype=torch.float64)
    assert net.source.differs(x) is None
    found = net.source.differs(1e4 * x)  # from the second input on
    assert found is not None and "Relu (node 'Relu_r') is read differently" in found
    loaded = er.load(tmp_path / "model.onnx", mean=0.5, std=0.001)
    loaded.must_agree(x * 0.001)
    with pytest.raises(UnsupportedError, match=r"Relu \(node 'Relu_r'\) is read differently"):
        loaded.must_agree(10 * x + 10)


def test_a_batch_that_is_mixed_at_a_users_inputs_only(side: str, tmp_path: Path) -> None:
    """The mean over the batch has a say above 10,000."""
    nodes = [
        node("ReduceMean", "x", "m", axes=[0], keepdims=1), node("Sub", "m c", "d"), node("Relu", "d", "r"),
        node("Add", "x r"),
    ]  # fmt: skip
    m = model(nodes, ("n", 2), {"c": F(10_000)}, 13)
    net = read(m, tmp_path)
    assert net.source is not None
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    assert net.source.differs(x) is None
    assert "depends on the other inputs of the batch" in str(net.source.differs(x * 1e5))


@pytest.mark.parametrize("shape", [("n", 4), (1, 4), (4,)])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.UINT8])
def test_inputs_are_rounded_as_the_model_takes_them(shape: Any, kind: int, side: str, tmp_path: Path) -> None:
    dtype = np.float64 if kind == TensorProto.DOUBLE else F
    to = TensorProto.DOUBLE if kind == TensorProto.DOUBLE else TensorProto.FLOAT
    nodes = [node("Cast", "x", "f", to=to), node("MatMul", "f w", "h"), node("Add", "h b")]
    constants = {"w": 1e4 * A(4, 3, dtype=dtype), "b": A(3, dtype=dtype)}
    net = read(model(nodes, shape, constants, 13, [("y", to, None)], kind), tmp_path)
    assert net.source is not None
    for rows in (0, 1, 2, 5):
        assert net.source.differs(100 * torch.from_numpy(A(rows, 4, dtype=np.float64))) is None


def test_a_classifier_with_one_output_keeps_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    misread(monkeypatch, "Relu", capped(5000.0))
    nodes = [node("Relu", "x", "r"), node("MatMul", "r v")]
    read(model(nodes, ("n", 4), {"v": A(4, 1)}), tmp_path)
    net = er.load(tmp_path / "model.onnx")
    assert net.n_outputs == 2
    net.must_agree(torch.ones(2, 4))
    with pytest.raises(UnsupportedError, match="is read differently"):
        net.must_agree(torch.full((2, 4), 1e5))


# --- rounding


@cases(1)
@given(net=networks())
def test_rounding_explains_execution_in_float32(net: Network) -> None:
    net = net.cast(torch.float32)
    x = normal(np.random.default_rng(0), 3, *net.input_shape)
    found = rounding(net, x, torch.float32)
    y = net.cast(torch.float64).values(x)[-1].numpy()
    np.testing.assert_allclose(found.outputs, y, rtol=1e-9, atol=1e-30)
    executed = net.values(x.float())[-1].double().numpy()
    assert (np.abs(executed - y).max(1) <= found.allowed + 1e-30).all()


@pytest.mark.parametrize("kind", ["Elu", "Selu", "Celu", "Sigmoid", "Softplus", "Gelu"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_rounding_explains_onnxruntimes_functions(kind: str, scale: float, tmp_path: Path) -> None:
    """Which take e^x - 1 of a small x as it is, and give no more than a share of 1 where they are next to nothing."""
    net = read(model([node("Mul", "x c", "s"), node(kind, "s", "e")], ("n", 4), {"c": F(scale)}, 20,
                     [("e", TensorProto.FLOAT, None)]), tmp_path)  # fmt: skip
    assert "compared as a whole" in compared(net)
    x = -np.abs(A(200, 4)).astype(np.float64)
    assert net.source is not None and net.source.differs(torch.from_numpy(x)) is None


def test_gelu_is_compared_to_all_digits(tmp_path: Path) -> None:
    """Its error function is rounded to float32 in the reference implementation, and shows where it is next to 1."""
    over = node("Mul", "x over", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "x c", "d")
    constants = {"over": np.float64(np.sqrt(0.5)), "one": np.float64(1), "half": np.float64(0.5)}
    m = model([*over, node("Mul", "d half")], ("n", 1), constants, 13, [("y", TensorProto.DOUBLE, None)],
              TensorProto.DOUBLE)  # fmt: skip
    net = read(m, tmp_path)
    assert net.source is not None
    assert net.source.differs(torch.linspace(-6, 6, 101, dtype=torch.float64)[:, None]) is None
    assert "the largest difference is" in compared(net).splitlines()[0]
    assert float(compared(net).splitlines()[0].split("difference is ")[1].split()[0]) < 1e-12


def test_rounding_does_not_explain_everything() -> None:
    rng = np.random.default_rng(0)
    for sizes in ([5, 3], [20, 50, 50, 10], [50, *[100] * 8, 10]):
        net = mlp(rng, sizes, ops.ReLU())
        for kind, most in ((torch.float32, 1e-3), (torch.float64, 1e-9)):
            found = rounding(net, normal(rng, 4, sizes[0]), kind)
            assert (found.allowed < most * np.abs(found.outputs).max(1)).all()
