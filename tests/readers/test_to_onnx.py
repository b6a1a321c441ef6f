"""ONNX files written from networks: onnxruntime computes the same numbers, the weights are the stored ones."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import assume, given
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.network.operations import Activation, Operation, Shape
from elbowroom.readers.onnx.write import rounded_constants, to_onnx, write_onnx
from support import ACTIVATIONS, cases, mlp, networks, normal, rounding

onnxruntime.set_default_logger_severity(3)


def numbers(*shape: int) -> Tensor:
    return normal(np.random.default_rng([7, *shape]), *shape)


def run(model: onnx.ModelProto, x: Tensor) -> Tensor:
    """What onnxruntime makes of a batch, operator by operator: no rewriting, which would change the rounding."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return torch.from_numpy(result)


def assert_same(net: Network, x: Tensor) -> None:
    """The float32 model's outputs are the network's, except for rounding, on batches of any size."""
    model = to_onnx(net, torch.float32)
    onnx.checker.check_model(model, full_check=True)
    values = net.cast(torch.float64).values(x.float().double())
    # onnxruntime's Elu is alpha (e^x - 1), with the rounding of numbers the size of alpha however small x is.
    sizes = [v.abs().clamp_min(n.op.alpha) if isinstance(n.op, ops.ELU) else v for n, v in zip(net.nodes, values)]
    allowed = rounding(net, sizes, sizes, torch.float32)[-1]
    for size in {1, len(x)}:
        found = run(model, x[:size].float())
        assert found.shape == (size, net.n_outputs)
        excess = ((found.double() - values[-1][:size]).abs() - 4 * allowed[:size]).max()
        assert excess <= 0, (net, float(excess))


AFFINE: list[tuple[Operation, list[Shape]]] = [
    (ops.Linear(numbers(3, 5), numbers(3)), [(5,)]),
    (ops.Linear(numbers(3, 5)), [(5,)]),
    (ops.Linear(numbers(3, 5), numbers(3)), [(2, 4, 5)]),
    (ops.Conv(numbers(4, 3, 2), numbers(4), stride=(2,)), [(3, 8)]),
    (ops.Conv(numbers(4, 1, 3), None, (3,), (2,), (2,), 2), [(2, 9)]),
    (ops.Conv(numbers(4, 2, 3, 2), numbers(4), (3, 1), (2, 1), (1, 2), 2), [(4, 7, 6)]),
    (ops.Conv(numbers(2, 2, 2, 1, 2), numbers(2), (1, 2, 1), (1, 0, 1)), [(2, 3, 4, 3)]),
    (ops.BatchNorm(numbers(4), (numbers(4) ** 2).float().double(), numbers(4), numbers(4), 1e-3), [(4,)]),
    (ops.BatchNorm(numbers(3), (numbers(3) ** 2).float().double()), [(3, 2, 5)]),
    (ops.Scale(numbers(3, 1)), [(2, 3, 4)]),
    (ops.Scale(numbers(2, 3)), [(1, 3)]),
    (ops.Divide(numbers(4)), [(3, 4)]),
    (ops.Divide(torch.tensor(-3.0)), [(3,)]),
    (ops.Shift(numbers(3, 4)), [(1, 4)]),
    (ops.Add(), [(3, 2), (3, 2)]),
    (ops.Add((1.0, -1.0)), [(3, 2), (3, 1)]),
    (ops.Add((-2.0, 0.5, -1.0)), [(4,), (4,), (3, 4)]),
    (ops.Add((1.0,)), [(4,)]),
    (ops.Add((-1.0,)), [(4,)]),
    (ops.Concat(), [(2, 3), (1, 3), (4, 3)]),
    (ops.Concat(-1), [(2, 3), (2, 1)]),
    (ops.Concat(1), [(2, 3, 2), (2, 1, 2)]),
    (ops.Reshape((3, -1)), [(2, 6)]),
    (ops.Reshape(()), [(1, 1)]),
    (ops.Transpose((2, 0, 1)), [(2, 3, 4)]),
    (ops.Slice(1, 1, 6, 2), [(2, 7)]),
    (ops.Slice(1, 3, 6), [(2, 7)]),
    (ops.Pad((1, 2), -3.0), [(4,)]),
    (ops.Pad((1, 0, 0, 2), 2.0), [(3, 4, 2)]),
    (ops.Pad((-1, 2, 1, -2)), [(4, 4)]),
    (ops.Mean((0, 2)), [(2, 3, 4)]),
    (ops.Mean((1,), keepdim=True), [(2, 3)]),
    (ops.AvgPool((2,), (2,)), [(3, 7)]),
    (ops.AvgPool((2, 1, 2), (1, 2, 2)), [(1, 3, 4, 4)]),
    (ops.MaxPool((2, 1, 2), (1, 2, 2)), [(1, 3, 4, 4)]),
    (ops.LeakyReLU(numbers(3, 1, 1)), [(3, 2, 2)]),
    (ops.LeakyReLU(numbers(4)), [(2, 4)]),
    (ops.Clip(-0.25, math.inf), [(4,)]),
]


@pytest.mark.parametrize(("op", "shapes"), AFFINE, ids=[f"{i}-{op.name}" for i, (op, _) in enumerate(AFFINE)])
def test_every_operation(op: Operation, shapes: list[Shape]) -> None:
    graph = Graph((sum(math.prod(s) for s in shapes),))
    first, inputs = 0, []
    for shape in shapes:  # each input of the operation is a part of the network's own
        stop = first + math.prod(shape)
        inputs.append(graph.add(ops.Reshape(shape), graph.add(ops.Slice(0, first, stop), graph.input)))
        first = stop
    net = graph.network(graph.add(op, *inputs))
    assert_same(net, numbers(5, net.n_inputs))


@pytest.mark.parametrize("op", ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
def test_every_activation(op: Activation) -> None:
    grid = torch.cat([torch.linspace(-12, 12, 97), torch.tensor([0.0, 1e-6, -1e-6, 50.0, -50.0])])
    net = Network.chain((1,), [op])
    assert_same(net, grid[:, None])
    found = run(to_onnx(net, torch.float32), grid[:, None].float())
    torch.testing.assert_close(found.double(), net(grid[:, None].float().double()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", range(4, 10))
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("ceil", [False, True])
def test_pooling_windows_at_the_edge(length: int, stride: int, ceil: bool) -> None:
    x = numbers(3, 2, length, 5)
    for kernel in (2, 3):
        for padding in range(kernel // 2 + 1):
            for inclusive in (True, False):
                op: Operation = ops.AvgPool((kernel, 2), (stride, 1), (padding, 1), ceil, inclusive)
                assert_same(Network.chain((2, length, 5), [op]), x)
            for dilation in (1, 2):
                if dilation * (kernel - 1) < length + 2 * padding:
                    op = ops.MaxPool((kernel, 2), (stride, 2), (padding, 1), (dilation, 1), ceil)
                    assert_same(Network.chain((2, length, 5), [op]), x)


@cases(8)
@given(net=networks())
def test_random_networks(net: Network) -> None:
    x = numbers(4, *net.input_shape)
    assume(bool((net.cast(torch.float64).values(x.double())[-1].abs() < 1e30).all()))  # float32 ends at 3e38
    assert_same(net.cast(torch.float32), x)


@cases(2)
@given(net=networks())
def test_weights_are_the_stored_ones(net: Network) -> None:
    for dtype in (torch.float32, torch.float64):
        stored = net.cast(dtype)
        model = to_onnx(stored)
        found = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        gemms = {n.name for n in model.graph.node if n.op_type == "Gemm"}
        for node in stored.nodes:
            for field, tensor in node.op.tensors().items():
                turned = isinstance(node.op, ops.Linear) and field == "weight" and node.name not in gemms
                expected = (tensor.T if turned else tensor).numpy()
                array = found[f"{node.name}.{field}"]
                assert array.dtype == expected.dtype
                assert array.tobytes() == expected.tobytes()


AWKWARD: list[Operation] = [  # numbers outside tensors that float32 would round
    ops.BatchNorm(numbers(4), numbers(4) ** 2, numbers(4), None, 1e-5),
    ops.LeakyReLU(0.01),
    ops.ELU(1.7),
    ops.Softplus(0.3),
    ops.Clip(-0.1, 0.9),
    ops.Pad((0, 0), 0.1),
    ops.Add((0.3,)),
]


def awkward() -> Network:
    """All of them in one network, whose first weights float32 would round as well."""
    weight = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return Network.chain((3,), [ops.Linear(weight, numbers(4)), *AWKWARD, ops.Linear(numbers(2, 4))])


def assert_same_in_float64(net: Network, x: Tensor) -> None:
    model = to_onnx(net, torch.float64)
    onnx.checker.check_model(model, full_check=True)
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    (found,) = ReferenceEvaluator(model).run(None, {"input": x.numpy()})
    np.testing.assert_allclose(found, net(x).numpy(), rtol=0, atol=1e-13)
    assert rounded_constants(net, torch.float64) == []


@pytest.mark.parametrize("op", AWKWARD, ids=[op.name for op in AWKWARD])
def test_float64_models_hold_every_number(op: Operation) -> None:
    assert_same_in_float64(Network.chain((4,), [op]), numbers(9, 4))


def test_a_float64_network_gives_a_float64_model() -> None:
    net = awkward()
    assert_same_in_float64(net, numbers(6, 3))
    assert to_onnx(net) == to_onnx(net, torch.float64)


def test_rounded_constants_are_named() -> None:
    net = awkward()
    named = " ".join(rounded_constants(net.cast(torch.float32)))
    for what in ("eps 1e-05", "slope 0.01", "alpha 1.7", "beta 0.3", "low -0.1", "high 0.9", "value 0.1", "signs 0.3"):
        assert what in named
    exact = Network.chain((2,), [ops.LeakyReLU(0.125), ops.Clip(-math.inf, 6.0), ops.Add((1.0,))])
    assert rounded_constants(exact, torch.float32) == []
    assert "irrational" in rounded_constants(Network.chain((2,), [ops.GELU()]))[0]


def test_numbers_are_never_rounded_silently() -> None:
    net = awkward()
    with pytest.raises(InputError, match=r"linear_1 \(Linear\): weight holds numbers that float32 would round"):
        to_onnx(net, torch.float32)
    with pytest.raises(InputError, match="float32 or float64"):
        to_onnx(net, torch.float16)


def test_the_file(tmp_path: Path) -> None:
    net = mlp(np.random.default_rng(3), [3, 6, 4], decision="min").cast(torch.float32)
    model = onnx.load(write_onnx(net, tmp_path / "net.onnx"))
    assert [n.op_type for n in model.graph.node] == ["Gemm", "Relu", "Gemm"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert {p.key: p.value for p in model.metadata_props} == {"decision": "min"}
    x = numbers(5, 3)
    torch.testing.assert_close(run(model, x.float()), net(x.float()), rtol=1e-6, atol=1e-6)


def test_a_network_without_operations() -> None:
    x = numbers(4, 3)
    net = Network.chain((3,), [])
    torch.testing.assert_close(run(to_onnx(net), x.float()), x.float(), rtol=0, atol=0)


def test_names_that_clash() -> None:
    graph = Graph((3,))
    first = graph.add(ops.Linear(numbers(3, 3), numbers(3)), graph.input, name="a")
    second = graph.add(ops.SiLU(), first, name="a.weight")
    third = graph.add(ops.Add(), second, graph.add(ops.Sigmoid(), second, name="a.weight.sigmoid"), name="input.x")
    assert_same(graph.network(third), numbers(4, 3))


def test_operations_without_an_onnx_form_are_listed() -> None:
    class Strange(Activation):
        def __call__(self, *xs: Tensor) -> Tensor:
            return xs[0]

    class Odd(Strange):
        pass

    with pytest.raises(UnsupportedError, match="Odd, Strange"):
        to_onnx(Network.chain((2,), [Strange(), Odd()]))


def test_without_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'elbowroom\[onnx\]'"):
        to_onnx(Network.chain((2,), [ops.ReLU()]))
