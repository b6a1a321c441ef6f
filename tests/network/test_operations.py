"""The operations against torch and against their own linear algebra, and the graph that holds them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.network.operations import (
    ELU,
    GELU,
    Activation,
    Add,
    Affine,
    Arctan,
    AvgPool,
    BatchNorm,
    Clip,
    Concat,
    Conv,
    Divide,
    LeakyReLU,
    Linear,
    MaxPool,
    Mean,
    Operation,
    Pad,
    ReLU,
    Reshape,
    Scale,
    Shape,
    Shift,
    Sigmoid,
    SiLU,
    Slice,
    Softplus,
    Tanh,
    Transpose,
)
from elbowroom.proof.kernel import rows
from elbowroom.proof.kernel.relaxed import windows as proof_windows
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.bounds.max_pool import windows as search_windows


def randn(*shape: int) -> Tensor:
    seed = sum((i + 2) * n for i, n in enumerate(shape))
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


AFFINE: list[tuple[Affine, list[Shape], Shape]] = [
    (Linear(randn(3, 5), randn(3)), [(5,)], (3,)),
    (Linear(randn(3, 5)), [(2, 4, 5)], (2, 4, 3)),
    (Conv(randn(4, 3, 2), randn(4), stride=(2,)), [(3, 8)], (4, 4)),
    (Conv(randn(4, 1, 3), None, (3,), (2,), (2,), 2), [(2, 9)], (4, 3)),
    (Conv(randn(4, 3, 3, 3), randn(4)), [(3, 5, 6)], (4, 3, 4)),
    (Conv(randn(4, 3, 3, 2), randn(4), (2, 3), (1, 0)), [(3, 6, 9)], (4, 3, 3)),
    (Conv(randn(4, 2, 3, 2), randn(4), (3, 1), (2, 1), (1, 2), 2), [(4, 7, 6)], (4, 3, 6)),
    (Conv(randn(2, 1, 2, 2), None, (4, 5)), [(1, 9, 9)], (2, 2, 2)),
    (Conv(randn(2, 2, 1, 1), None, (2,), (1,)), [(2, 4, 4)], (2, 3, 3)),
    (Conv(randn(6, 1, 3, 3), randn(6), (2,), (1,), (1,), 3), [(3, 6, 5)], (6, 3, 3)),
    (Conv(randn(2, 2, 2, 1, 2), randn(2), (1, 2, 1), (1, 0, 1)), [(2, 3, 4, 3)], (2, 4, 2, 4)),
    (BatchNorm(randn(4), randn(4) ** 2, randn(4), randn(4), 1e-3), [(4,)], (4,)),
    (BatchNorm(randn(3), randn(3) ** 2), [(3, 2, 5)], (3, 2, 5)),
    (Scale(randn(3, 1)), [(2, 3, 4)], (2, 3, 4)),
    (Scale(randn(2, 3)), [(1, 3)], (2, 3)),
    (Divide(randn(4)), [(3, 4)], (3, 4)),
    (Divide(torch.tensor(-3.0).double()), [(3,)], (3,)),
    (Shift(randn(3, 1)), [(3, 4)], (3, 4)),
    (Shift(randn(3, 4)), [(1, 4)], (3, 4)),
    (Add(), [(3, 2), (3, 2)], (3, 2)),
    (Add((1.0, -1.0)), [(3, 2), (3, 1)], (3, 2)),
    (Add((-2.0, 0.5, 1.0)), [(4,), (4,), (3, 4)], (3, 4)),
    (Concat(), [(2, 3), (1, 3), (4, 3)], (7, 3)),
    (Concat(-1), [(2, 3), (2, 1)], (2, 4)),
    (Concat(1), [(2, 3, 2), (2, 1, 2)], (2, 4, 2)),
    (Reshape((3, -1)), [(2, 6)], (3, 4)),
    (Reshape(()), [(1, 1)], (1,)),
    (Mean((0, 1)), [(2, 3)], (1,)),
    (Transpose((2, 0, 1)), [(2, 3, 4)], (4, 2, 3)),
    (Transpose((1, 2, 0)), [(2, 3, 4)], (3, 4, 2)),
    (Slice(1, 1, 6, 2), [(2, 7)], (2, 3)),
    (Slice(0, 0, 1), [(2, 7)], (1, 7)),
    (Pad((1, 2), -3.0), [(4,)], (7,)),
    (Pad((1, 0, 0, 2), 2.0), [(3, 4, 2)], (3, 6, 3)),
    (Pad((-1, 2, 1, -2)), [(4, 4)], (3, 5)),
    (Mean((0, 2)), [(2, 3, 4)], (3,)),
    (Mean((1,), keepdim=True), [(2, 3)], (2, 1)),
    (AvgPool((2,), (2,)), [(3, 7)], (3, 3)),
    (AvgPool((3, 2), (2, 1), (1, 0)), [(2, 5, 4)], (2, 3, 3)),
    (AvgPool((3, 3), (2, 2), (1,), True, False), [(2, 6, 5)], (2, 4, 3)),
    (AvgPool((2, 1, 2), (1, 2, 2)), [(1, 3, 4, 4)], (1, 2, 2, 2)),
]
IDS = [f"{i}-{op.name}" for i, (op, _, _) in enumerate(AFFINE)]


def matrices(op: Affine, shapes: list[Shape]) -> list[Tensor]:
    """The linear part, one `outputs x inputs` matrix per input."""
    result = []
    for k, shape in enumerate(shapes):
        n = math.prod(shape)
        units = [torch.zeros(n, *s, dtype=torch.float64) for s in shapes]
        units[k] = torch.eye(n, dtype=torch.float64).reshape(n, *shape)
        result.append((op(*units) - op(*map(torch.zeros_like, units))).reshape(n, -1).T)
    return result


@pytest.mark.parametrize(("op", "shapes", "out"), AFFINE, ids=IDS)
def test_affine(op: Affine, shapes: list[Shape], out: Shape) -> None:
    n = 3
    xs, a = [randn(n, *s) for s in shapes], randn(n, *out)
    zeros = [torch.zeros_like(x) for x in xs]
    assert op.output_shape(*shapes) == out
    moved = op(*xs) - op(*zeros)
    assert moved.shape == (n, *out)
    own = matrices(op, shapes)
    torch.testing.assert_close(moved.flatten(1), sum(x.flatten(1) @ m.T for x, m in zip(xs, own)))

    # What search and proof make of it, each by itself.
    torch.testing.assert_close(MAPS[type(op)].linear(op, *xs), moved)
    radii = [x.abs() for x in xs]
    sizes = sum(r.flatten(1) @ m.abs().T for r, m in zip(radii, own))
    for back, spread in (
        (MAPS[type(op)].adjoint(op, a, shapes), MAPS[type(op)].absolute(op, *radii)),
        (rows.AFFINE[type(op)].back(op, a, shapes), rows.AFFINE[type(op)].sizes(op, *radii)),
    ):
        assert [b.shape for b in back] == [x.shape for x in xs]
        for part, matrix in zip(back, own, strict=True):
            torch.testing.assert_close(part.flatten(1), a.flatten(1) @ matrix)
        torch.testing.assert_close(spread.flatten(1), sizes)


@pytest.mark.parametrize("length", range(5, 12))
@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2])
def test_conv_adjoint_with_pixels_left_over(length: int, stride: int, dilation: int) -> None:
    for padding in (0, 1, 3):
        op = Conv(randn(2, 3, 3), None, (stride,), (padding,), (dilation,))
        a = randn(2, *op.output_shape((3, length)))
        for back in (MAPS[Conv].adjoint, rows.AFFINE[Conv].back):
            torch.testing.assert_close(
                back(op, a, [(3, length)])[0].flatten(1), a.flatten(1) @ matrices(op, [(3, length)])[0]
            )


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 4, 2)])
def test_batch_norm_is_torchs(shape: Shape, affine: bool) -> None:
    module = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d)[len(shape) - 1](3, 0.01, affine=affine)
    module = module.double().eval()
    module.running_mean, module.running_var = randn(3), randn(3) ** 2
    if affine:
        module.weight.data, module.bias.data = randn(3), randn(3)
    op = BatchNorm(module.running_mean, module.running_var, module.weight, module.bias, module.eps)
    x = randn(4, *shape)
    torch.testing.assert_close(op(x), module(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (MaxPool((2,), (2,)), (3, 7)),
        (MaxPool((3,), (2,), (1,), (2,), True), (2, 9)),
        (MaxPool((2, 2), (2,)), (2, 4, 6)),
        (MaxPool((3, 2), (2, 1), (1, 0), (1, 2)), (2, 6, 5)),
        (MaxPool((3, 3), (2, 2), (1, 1), (1, 1), True), (1, 6, 4)),
        (MaxPool((2, 1, 2), (1, 2, 2), (1, 0, 0)), (2, 3, 4, 4)),
    ],
)
def test_max_pool_windows(op: MaxPool, shape: Shape) -> None:
    x = randn(4, *shape)
    out = op.output_shape(shape)
    for windows in (search_windows(op, shape, out), proof_windows(op, out, shape)):
        assert windows.shape == (math.prod(out[1:]), math.prod(op.kernel))
        seen = x.flatten(2)[..., windows.clamp_min(0)].masked_fill(windows < 0, -math.inf)
        assert torch.equal(seen.amax(-1).reshape(4, *out), op(x))


ACTIVATIONS = [
    (ReLU(), F.relu),
    (LeakyReLU(0.2), lambda x: F.leaky_relu(x, 0.2)),
    (
        LeakyReLU(torch.tensor([0.5, -0.25, 1.5]).double()),
        lambda x: F.prelu(x, torch.tensor([0.5, -0.25, 1.5]).double()),
    ),
    (Clip(-0.5, 2.0), lambda x: F.hardtanh(x, -0.5, 2.0)),
    (Clip(-math.inf, 0.5), lambda x: x.clamp_max(0.5)),
    (Sigmoid(), torch.sigmoid),
    (Tanh(), torch.tanh),
    (Arctan(), torch.atan),
    (ELU(0.75), lambda x: F.elu(x, 0.75)),
    (Softplus(), lambda x: F.softplus(x, threshold=500)),
    (Softplus(3.0), lambda x: F.softplus(x, 3.0, threshold=500)),
    (SiLU(), F.silu),
    (GELU(), F.gelu),
    (GELU(tanh=True), lambda x: F.gelu(x, approximate="tanh")),
]


@pytest.mark.parametrize(("op", "torchs"), ACTIVATIONS, ids=[op.name for op, _ in ACTIVATIONS])
def test_activations_are_torchs(op: Activation, torchs: Callable[..., Any]) -> None:
    x = torch.cat([torch.linspace(-6, 6, 121).double(), torch.tensor([-150.0, 150.0])])[:, None].repeat(1, 3)
    torch.testing.assert_close(op(x), torchs(x), rtol=1e-12, atol=1e-14)
    assert op.output_shape((3,)) == (3,)


def test_activations_far_out() -> None:
    x = torch.tensor([-1e4, 1e4])
    assert torch.equal(Softplus()(x), torch.tensor([0.0, 1e4]))
    assert torch.equal(ELU()(x), torch.tensor([-1.0, 1e4]))
    assert torch.equal(GELU()(x), torch.tensor([-0.0, 1e4]))
    assert float(GELU()(torch.tensor(-10.0).double())) == pytest.approx(-7.619853024160527e-23, rel=1e-12)


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (Linear(randn(3, 5)), [(4,)]),
        (Conv(randn(4, 3, 2)), [(2, 8)]),
        (Conv(randn(4, 3, 9)), [(3, 8)]),
        (BatchNorm(randn(3), randn(3) ** 2), [(4, 3)]),
        (BatchNorm(randn(1), randn(1) ** 2), [()]),
        (Scale(randn(3)), [(4,)]),
        (Shift(randn(1, 3)), [(3,)]),
        (Divide(randn(2, 2)), [(2, 3)]),
        (Add(), [(3,), (4,)]),
        (Add(), [(3,)]),
        (Concat(), [(2, 3), (2, 4)]),
        (Reshape((5, -1)), [(12,)]),
        (Transpose((1, 0)), [(2, 3, 4)]),
        (MaxPool((3,), (1,)), [(1, 2)]),
        (AvgPool((2, 2), (1, 1)), [(4,)]),
        (Mean((2,)), [(3, 4)]),
        (LeakyReLU(randn(3)), [(4,)]),
        (LeakyReLU(randn(2, 1)), [(1, 3)]),
    ],
)
def test_shapes_that_do_not_fit(op: Operation, shapes: list[Shape]) -> None:
    with pytest.raises(InputError, match=op.name):
        op.output_shape(*shapes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Conv(randn(4, 3)), "3 to 5 axes"),
        (lambda: MaxPool((3,), ()), "stride must hold 1 whole number"),  # torch would take the kernel's
        (lambda: MaxPool((), (1,)), "1 to 3 positive sizes"),
        (lambda: AvgPool((2,), (2,), (2,)), "more than half"),
        (lambda: Conv(randn(4, 3, 2), stride=(1, 1)), "stride must hold 1 whole number"),
        (lambda: Conv(randn(4, 3, 2), groups=3), "3 groups"),
        (lambda: Transpose((0, -2)), "every axis once"),  # its adjoint would be another permutation
        (lambda: Pad(()), "two numbers for each"),
        (lambda: Add((1.0, math.inf)), "finite"),
        (lambda: Scale(torch.tensor([1, 2])), "floating-point"),
        (lambda: Graph(()), "positive sizes"),
        (lambda: Graph((2,)).add(BatchNorm(randn(2), torch.tensor([1.0, -1.0])), 0), "negative running variance"),
        (lambda: Graph((2,)).add(BatchNorm(randn(2), torch.zeros(2), eps=0.0), 0), "divides by zero"),
        (lambda: Graph((2,)).add(Divide(torch.tensor([1.0, 0.0])), 0), "contains zero"),
        (lambda: Clip(1.0, 1.0), "low < high"),
        (lambda: Clip(math.nan, 1.0), "low is NaN"),
        (lambda: ELU(0.0), "alpha > 0"),
        (lambda: Softplus(-1.0), "beta > 0"),
    ],
)
def test_parameters_that_make_no_sense(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# --- the graph ---


def small() -> Network:
    return Network.chain((3,), [Linear(randn(4, 3).float(), randn(4).float()), ReLU(), Linear(randn(2, 4).float())])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_weights_are_refused(bad: float) -> None:
    weight = torch.ones(2, 3)
    weight[1, 1] = bad
    with pytest.raises(InputError, match=r"node first: Linear: weight holds NaN or infinite"):
        Graph((3,)).add(Linear(weight), 0, name="first")


def test_graph_errors() -> None:
    graph = Graph((3,))
    for inputs in ((), (1,), (-1,)):
        with pytest.raises(InputError, match="numbers of earlier nodes"):
            graph.add(ReLU(), *inputs)
    with pytest.raises(InputError, match="positive sizes"):
        Graph((3, 0))
    with pytest.raises(InputError, match='"max" or "min"'):
        graph.network(decision="argmax")
    with pytest.raises(InputError, match=r"takes inputs of shape \(batch, 3\), got \(3,\)"):
        small()(torch.zeros(3))


def test_unused_nodes_are_dropped() -> None:
    graph = Graph((3,))
    a = graph.add(Linear(randn(4, 3)), graph.input, name="same")
    graph.add(Linear(randn(50, 3)), graph.input)
    b = graph.add(ReLU(), a, name="same")
    graph.add(Sigmoid(), b)
    net = graph.network(graph.add(Add((1.0, -1.0)), a, b))
    assert [n.op.name for n in net.nodes] == ["Input", "Linear", "ReLU", "Add"]
    assert [n.inputs for n in net.nodes] == [(), (0,), (1,), (1, 2)]
    assert len({n.name for n in net.nodes}) == 4
    assert net.relaxed == (2,) and net.preactivations == (1,)
    assert net.n_parameters == 12 and net.n_inputs == 3 and net.n_outputs == 4
    x = randn(5, 3)
    h = x @ net.nodes[1].op.tensors()["weight"].T
    torch.testing.assert_close(net(x), h - h.relu())


def test_an_output_of_several_axes_is_flattened() -> None:
    net = Graph((2, 3)).network()
    x = randn(4, 2, 3)
    assert torch.equal(net(x), x.reshape(4, 6)) and net.nodes[-1].name == "flat_output"


def test_cast() -> None:
    net = small()
    assert net.dtype == torch.float32
    wide = net.cast(torch.float64)
    assert wide is net.cast(torch.float64) and wide.dtype == torch.float64 and wide.decision == net.decision
    assert torch.equal(wide.nodes[1].op.tensors()["weight"].float(), net.nodes[1].op.tensors()["weight"])
    x = randn(5, 3)
    assert torch.equal(net(x), wide(x)) and net(x).dtype == torch.float64
    assert net(x.float()).dtype == torch.float32 and wide(x.float()).dtype == torch.float64
    assert torch.equal(net(np.array([[1, 2, 3]])), net(torch.tensor([[1.0, 2.0, 3.0]])))


def test_decisions() -> None:
    outputs = torch.tensor([[1.0, 3.0, 2.0], [0.0, -1.0, 5.0]])
    assert small().decide(outputs).tolist() == [1, 2]
    assert Network.chain((3,), [ReLU()], "min").decide(outputs).tolist() == [0, 1]
    assert repr(small()) == "Network(3 -> 2, 24 parameters: Linear, ReLU, Linear)"


def test_axes_that_would_mean_the_batch_are_refused() -> None:
    with pytest.raises(InputError, match="axis >= 0"):
        Slice(-1, 0, 2)
    with pytest.raises(InputError, match="axes >= 0"):
        Mean((-1,))


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (Transpose((0,)), (3, 3)),
        (Concat(-2), (3,)),
        (Pad((1, 1, 1, 1)), (3,)),
        (MaxPool((2, 2), (2, 2)), (4, 4)),
        (AvgPool((2,), (2,)), (4,)),
        (Conv(torch.ones(1, 1, 2, 2)), (4, 4)),
        (Linear(torch.ones(2, 1)), (2,)),
        (Slice(1, 0, 2), (4,)),
        (Mean((1,)), (4,)),
    ],
    ids=lambda v: v.name if isinstance(v, Operation) else str(v),
)
def test_operations_that_reach_the_batch_axis_or_do_not_fit_are_refused(
    op: ops.Operation, shape: tuple[int, ...]
) -> None:
    with pytest.raises(InputError, match="does not fit"):
        Graph(shape).add(op, 0)
