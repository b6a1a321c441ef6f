"""Rows of convolutional layers carried back over windows give the same bounds as whole rows."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.claim.specification import linear_specification
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds import patches
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from support import cases, networks, normal, random_region

METHODS = ("quadratic", "combined", "adaptive")


def forced(edge: Any) -> Any:
    return lambda net, node, *_: patches.Plan(edge, 50) if 2 <= len(net.nodes[node].shape) <= 4 else None


def compare(net: Network, inputs: Any, method: str, edge: Any, skip: Any) -> Any:
    plan = patches.plan
    try:
        found = []
        for chosen in (lambda *_: None, forced(edge)):
            patches.plan = chosen
            found.append(Propagation(net, inputs, method_named(method), skip_inactive=skip))
    finally:
        patches.plan = plan
    whole, blocks = found
    for i in range(len(net.nodes)):
        for a, b in ((whole.lower[i], blocks.lower[i]), (whole.upper[i], blocks.upper[i])):
            torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9 * float(a.abs().max().clamp(1e-300, 1e300)))
    return blocks


@cases(3)
@given(networks(), st.integers(0, 2**32 - 1), st.sampled_from(METHODS), st.integers(1, 3), st.booleans())
def test_the_same_on_every_kind_of_graph(net: Network, seed: int, method: str, edge: int, skip: bool) -> None:
    rng = np.random.default_rng(seed)
    compare(net, random_region(rng, net.input_shape, "box", batch=2, scale=0.1).inputs, method, edge, skip)


def weights(rng: np.random.Generator, *shape: Any) -> Any:
    return normal(rng, *shape) / np.sqrt(np.prod(shape[1:]))


def residual_net(rng: np.random.Generator) -> Network:
    """Everything that knows windows: convolutions with strides, dilation and groups, batch norm, constants, pooling,
    a residual sum of two windows, a dense concatenation; then flat."""
    g = Graph((2, 9, 8))
    x = g.add(ops.Divide(normal(rng, 2, 1, 1).abs() + 0.5), g.add(ops.Shift(normal(rng, 2, 9, 8)), g.input))
    x = g.add(ops.Scale(normal(rng, 9, 8)), x)
    x = g.add(ops.Conv(weights(rng, 4, 2, 3, 3), normal(rng, 4), (1,), (1,)), x)
    x = g.add(ops.ReLU(), g.add(ops.BatchNorm(*(normal(rng, 4).abs() + 0.1 for _ in range(4))), x))
    y = g.add(ops.ReLU(), g.add(ops.Conv(weights(rng, 4, 2, 3, 3), None, (2,), (2,), (2,), 2), x))
    z = g.add(ops.Conv(weights(rng, 4, 4, 1, 1), None, (2,)), x)
    s = g.add(ops.Add((1.0, -0.5)), y, z)
    r = g.add(ops.Tanh(), s)
    c = g.add(ops.Concat(0), r, s)
    c = g.add(ops.ReLU(), g.add(ops.Conv(weights(rng, 3, 8, 2, 2), normal(rng, 3)), c))
    p = g.add(ops.Sigmoid(), g.add(ops.AvgPool((2, 2), (1, 1)), c))
    f = g.add(ops.Reshape((-1,)), p)
    return g.network(g.add(ops.Linear(weights(rng, 3, g.nodes[f].size)), f))


@pytest.mark.parametrize("edge", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_the_same_on_a_residual_network(method: str, edge: int) -> None:
    rng = np.random.default_rng(0)
    net = residual_net(rng)
    for scale in (0.01, 0.3):
        inputs = random_region(rng, net.input_shape, "box", batch=3, scale=scale).inputs
        compare(net, inputs, method, edge, skip=scale > 0.1)


def test_sequences_and_max_pooling() -> None:
    rng = np.random.default_rng(1)
    net = Network.chain(
        (2, 20),
        [
            ops.Conv(weights(rng, 5, 2, 3), None, (2,), (1,)), ops.ReLU(), ops.MaxPool((2,), (2,)),
            ops.Conv(weights(rng, 4, 5, 2)), ops.GELU(), ops.Conv(weights(rng, 4, 4, 2)), ops.ReLU(),
            ops.Reshape((-1,)), ops.Linear(weights(rng, 3, 12)),
        ],
    )  # fmt: skip
    for edge in (1, 2):
        compare(net, random_region(rng, net.input_shape, "box", batch=2, scale=0.2).inputs, "adaptive", edge, False)


def test_places_that_see_the_padding_alone() -> None:
    rng = np.random.default_rng(3)
    net = Network.chain(
        (1, 4, 5),
        [
            ops.Conv(weights(rng, 2, 1, 3, 3), None, (1,), (1,)), ops.ReLU(),
            ops.Conv(weights(rng, 2, 2, 1, 2), normal(rng, 2), (1,), (2, 3)), ops.Tanh(),
            ops.Reshape((-1,)), ops.Linear(weights(rng, 3, 160)),
        ],
    )  # fmt: skip
    for edge in (1, 2):
        compare(net, random_region(rng, net.input_shape, "box", batch=2, scale=0.2).inputs, "adaptive", edge, False)


def test_blocks_are_used_where_they_pay_and_margins_agree() -> None:
    """A network large enough for blocks without being told so."""
    rng = np.random.default_rng(2)
    net = Network.chain(
        (1, 28, 28),
        [
            ops.Conv(weights(rng, 8, 1, 3, 3), None, (1,), (1,)), ops.ReLU(),
            ops.Conv(weights(rng, 8, 8, 3, 3), None, (2,), (1,)), ops.ReLU(),
            ops.Reshape((-1,)), ops.Linear(weights(rng, 3, 1568)),
        ],
    )  # fmt: skip
    assert patches.plan(net, 3, [0, 1, 2, 3], 1, torch.device("cpu")) is not None
    assert patches.plan(net, 6, list(range(7)), 1, torch.device("cpu")) is None
    inputs = random_region(rng, net.input_shape, "box", batch=1, scale=0.02).inputs
    blocks = compare(net, inputs, "adaptive", 4, skip=True)
    spec = linear_specification(normal(rng, 1, 2, 3))
    plain = Propagation(net, inputs, method_named("adaptive"), bound_outputs=False)
    torch.testing.assert_close(plain.margins(spec, "direct"), blocks.margins(spec, "direct"), rtol=1e-9, atol=1e-12)
