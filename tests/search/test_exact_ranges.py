"""Bounds against exact ranges: of affine networks, and of small ReLU networks by brute force."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.claim.specification import linear_specification
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds.api import bounds
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.regions.input_set import InputSet
from elbowroom.verify.box import verify
from support import ACTIVATIONS, FULL, KINDS, METHODS, Builder, cases, magnitudes, mlp, random_region

AFFINE = (
    "linear", "conv", "batch norm", "average pool", "mean", "slice", "transpose", "pad", "scale", "divide", "shift",
    "flatten", "twice", "broadcast",
)  # fmt: skip


def affine_map(net: Network) -> Any:
    """The matrix and offset of an affine network, by feeding it the unit vectors."""
    n = net.n_inputs
    offset = net(torch.zeros(1, *net.input_shape, dtype=torch.float64))[0]
    columns = net(torch.eye(n, dtype=torch.float64).reshape(n, *net.input_shape)) - offset
    return columns.T, offset


@cases(4)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([(3,), (2, 5), (2, 4, 4)]), st.sampled_from(KINDS),
    st.lists(st.sampled_from(AFFINE), min_size=1, max_size=4), st.sampled_from(METHODS[1:]),
)  # fmt: skip
def test_affine_networks_are_bounded_exactly(
    seed: int, shape: tuple[int, ...], kind: Any, blocks: Any, method: str
) -> None:
    rng = np.random.default_rng(seed)
    builder = Builder(rng, shape, "plain")
    for block in blocks:
        builder.block(block)
    net = builder.network(3)
    region = random_region(rng, shape, kind, batch=2, scale=0.5)
    matrix, offset = affine_map(net)
    center = region.inputs.center.flatten(1)
    # The largest value of each row over the unit ball, without the dual norm's formula: at the extreme points.
    moved = torch.einsum("kn,bni->bki", matrix, directions(region.inputs))
    extent = {math.inf: moved.abs().sum(-1), 2: moved.square().sum(-1).sqrt(), 1: moved.abs().amax(-1)}[region.inputs.p]
    middle = center @ matrix.T + offset
    found = Propagation(net, region.inputs, method_named(method))
    allowed = 1e-14 * magnitudes(net, found.lower, found.upper)[-1] * len(net.nodes)
    assert bool(((found.lower[-1] - (middle - extent)).abs() <= allowed).all())
    assert bool(((found.upper[-1] - (middle + extent)).abs() <= allowed).all())


def directions(inputs: Any) -> Any:
    """`b x n x n`: column i is how far the set reaches in its i-th direction."""
    radius = inputs.radius.flatten(1)
    basis = torch.eye(radius.shape[1], dtype=radius.dtype) if inputs.basis is None else inputs.basis
    return basis * radius[:, None]


@pytest.mark.parametrize("method", METHODS)
def test_one_linear_layer_is_exact_for_every_method(method: str) -> None:
    rng = np.random.default_rng(1)
    net = mlp(rng, [4, 3])
    lower, upper = torch.zeros(1, 4, dtype=torch.float64), torch.ones(1, 4, dtype=torch.float64)
    weight, bias = net.nodes[1].op.weight, net.nodes[1].op.bias
    found = bounds(net, lower, upper, method)
    torch.testing.assert_close(found.lower[0], weight.clamp_max(0).sum(1) + bias, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(found.upper[0], weight.clamp_min(0).sum(1) + bias, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@cases(0.5)
@given(low=st.floats(-4, 4), width=st.floats(0.05, 6))
def test_an_activation_minus_its_chord_is_bounded_exactly(activation: Any, low: float, width: float) -> None:
    """`sigma(x) - k x`, k the chord's slope: parallel lines cancel, and the bound is the gap between them."""
    op = ACTIVATIONS[activation]
    l, u = torch.tensor([[low]], dtype=torch.float64), torch.tensor([[low + width]], dtype=torch.float64)
    slope = (op(u) - op(l)) / (u - l)
    graph = Graph((1,))
    net = graph.network(graph.add(ops.Add(), graph.add(op, graph.input), graph.add(ops.Scale(-slope[0]), graph.input)))
    values = net(
        torch.cat([low + width * torch.linspace(0, 1, 4001, dtype=torch.float64), torch.tensor([0.0])]).clamp(
            low, low + width
        )[:, None]
    )
    found = Propagation(net, InputSet.box(l, u), method_named("quadratic"))
    assert float(found.lower[-1]) <= float(values.min()) + 1e-13
    assert float(found.upper[-1]) >= float(values.max()) - 1e-13
    allowed = 2 * (width / 4000) * width + 1e-13  # the grid may miss an extreme, or the kink of one
    assert float(found.lower[-1]) >= float(values.min()) - allowed
    assert float(found.upper[-1]) <= float(values.max()) + allowed


# ---------------------------------------------------------------------------------------------------------------
# ReLU networks of one input: between its kinks the network is linear


def kinks_of(net: Network, low: Any, high: Any) -> Any:
    """All inputs in [low, high] between which every node is linear, both ends included; `m x 1`."""
    points = np.array([low, high])
    for i in net.relaxed:
        node = net.nodes[i]
        before = net.values(torch.from_numpy(points)[:, None])[node.inputs[0]].numpy()
        crossings = [points]
        for column in before.T:
            left, right = column[:-1], column[1:]
            change = left * right < 0
            share = left[change] / (left[change] - right[change])
            crossings.append(points[:-1][change] + share * np.diff(points)[change])
        points = np.unique(np.concatenate(crossings))
    return torch.from_numpy(points)[:, None]


def residual_network_of_one_input(rng: np.random.Generator) -> Any:
    builder = Builder(rng, (1,), "plain")
    builder.linear(4)
    builder.add(ops.ReLU())
    skip = builder.at
    builder.linear(4)
    builder.add(ops.ReLU())
    builder.linear(4)
    builder.add(ops.Add(), skip, builder.at)
    builder.add(ops.ReLU())
    return builder.network(3)


ONE_INPUT = {
    "shallow": lambda rng: mlp(rng, [1, 8, 3]),
    "deep": lambda rng: mlp(rng, [1, 6, 6, 6, 3]),
    "residual": residual_network_of_one_input,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("build", ONE_INPUT)
@cases(0.5)
@given(seed=st.integers(0, 2**32 - 1), low=st.floats(-3, 3), width=st.floats(1e-3, 3))
def test_bounds_contain_the_exact_range_of_one_input(
    build: str, method: str, seed: int, low: float, width: float
) -> None:
    net = ONE_INPUT[build](np.random.default_rng(seed))
    lower, upper = torch.tensor([[low]], dtype=torch.float64), torch.tensor([[low + width]], dtype=torch.float64)
    values = net.values(kinks_of(net, low, low + width))
    found = Propagation(net, InputSet.box(lower, upper), method_named(method))
    for l, u, value in zip(found.lower, found.upper, values):
        assert bool((l - 1e-12 <= value.amin(0)).all())
        assert bool((value.amax(0) <= u + 1e-12).all())


def test_the_kinks_are_all_there() -> None:
    """A test of the tests: no point of a dense grid is outside the range found at the kinks."""
    net = ONE_INPUT["deep"](np.random.default_rng(7))
    exact = net(kinks_of(net, -3.0, 3.0))
    dense = net(torch.linspace(-3, 3, 20001, dtype=torch.float64)[:, None])
    assert bool((dense.amin(0) >= exact.amin(0) - 1e-12).all())
    assert bool((dense.amax(0) <= exact.amax(0) + 1e-12).all())
    assert bool((dense.amax(0) >= exact.amax(0) - 1e-2).all())


# ---------------------------------------------------------------------------------------------------------------
# ReLU networks of two inputs and one hidden layer: extremes lie where two lines meet


def corners_of(net: Network, lower: Tensor, upper: Tensor) -> Any:
    """All points of the box where two of these meet: its edges, and the lines on which a neuron changes; `m x 2`."""
    first = net.nodes[1].op
    normals = np.concatenate([first.weight.numpy(), [[1, 0], [1, 0], [0, 1], [0, 1]]])
    offsets = np.concatenate([first.bias.numpy(), [-lower[0], -upper[0], -lower[1], -upper[1]]])
    points = []
    for i in range(len(normals)):
        for j in range(i):
            matrix = normals[[i, j]]
            if abs(np.linalg.det(matrix)) > 1e-12:
                points.append(np.linalg.solve(matrix, -offsets[[i, j]]))
    points = np.array(points)
    inside = ((points >= lower - 1e-12) & (points <= upper + 1e-12)).all(1)
    return torch.from_numpy(np.clip(points[inside], lower, upper))


@st.composite
def boxes_of_two(draw: st.DrawFn) -> Any:
    lower = np.array([draw(st.floats(-2, 2)), draw(st.floats(-2, 2))])
    return lower, lower + np.array([draw(st.floats(1e-3, 2)), draw(st.floats(1e-3, 2))])


@pytest.mark.parametrize("method", METHODS)
@cases()
@given(seed=st.integers(0, 2**32 - 1), box=boxes_of_two())
def test_bounds_contain_the_exact_range_of_two_inputs(method: str, seed: int, box: Any) -> None:
    net = mlp(np.random.default_rng(seed), [2, 6, 3])
    values = net(corners_of(net, *box))
    low, high = (torch.from_numpy(c) for c in box)
    found = bounds(net, low, high, method)
    assert bool((found.lower[0] - 1e-12 <= values.amin(0)).all())
    assert bool((values.amax(0) <= found.upper[0] + 1e-12).all())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("margin", ["direct", "logits"])
@pytest.mark.parametrize("decision", ["max", "min"])
def test_nothing_false_is_proved(method: str, margin: str, decision: str) -> None:
    """Where the exact margin is not positive there is a counter-example; and something true is proved too."""
    proved = refuted = 0
    for seed in range(60 if FULL else 15):
        rng = np.random.default_rng(seed)
        net = mlp(rng, [2, 6, 3], decision=decision)
        lower = rng.uniform(-2, 2, 2)
        box = lower, lower + rng.uniform(0.01, 1.0, 2)
        found = verify(net, *box, method=method, margin=margin)
        label = int(found.labels[0])
        outputs = net(corners_of(net, *box)) * (1 if decision == "max" else -1)
        others = [j for j in range(3) if j != label]
        exact = (outputs[:, [label]] - outputs[:, others]).amin(0)
        assert bool((found.margins[0] <= exact + 1e-12).all())
        assert not (bool(found) and float(exact.min()) <= 0)
        proved += bool(found)
        refuted += float(exact.min()) <= 0
    assert proved > 2
    assert refuted > 2


def test_nothing_false_is_proved_by_rounding() -> None:
    """Sums whose exact least value, as a fraction, is below zero by less than a rounding."""
    rng = np.random.default_rng(3)
    above_zero = linear_specification(torch.ones(1, 1))
    refuted = 0
    for _ in range(300 if FULL else 60):
        lower, weight = rng.uniform(-1, 1, 5), rng.standard_normal(5)
        upper = lower + rng.random(5)
        least = sum(Fraction(w) * Fraction(l if w > 0 else u) for w, l, u in zip(weight, lower, upper))
        bias = float(-least)
        net = Network.chain(
            (5,), [ops.Linear(torch.from_numpy(weight)[None], torch.tensor([bias], dtype=torch.float64))]
        )
        if least + Fraction(float(net.nodes[1].op.bias)) <= 0:
            refuted += 1
            assert not verify(net, lower, upper, spec=above_zero)
    assert refuted > 20


def test_verify_of_a_batch_answers_each_input() -> None:
    net = Network.chain((1,), [ops.Linear(torch.tensor([[1.0], [-1.0]]))])
    found = verify(net, [[0.5], [-1.0], [-2.0]], [[1.0], [0.5], [-1.0]])
    assert found.proved.tolist() == [True, False, True]
    assert not found
    assert found.labels.tolist() == [0, 1, 1]
    assert found.margins.flatten().tolist() == pytest.approx([1.0, -1.0, 2.0], abs=1e-12)


def test_a_constant_network_is_bounded_by_its_constant() -> None:
    graph = Graph((2,))
    h = graph.add(ops.ReLU(), graph.add(ops.Linear(torch.zeros(3, 2), torch.tensor([1.0, -1.0, 0.0])), graph.input))
    net = graph.network(graph.add(ops.Linear(torch.ones(2, 3), torch.tensor([0.5, 0.0])), h))
    for method in METHODS:
        found = bounds(net, torch.full((2,), -5.0), torch.full((2,), 7.0), method)
        assert found.lower.tolist() == found.upper.tolist() == [[1.5, 1.0]]
