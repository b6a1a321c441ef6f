"""Rows over windows and over active entries give the same bounds and derivatives as rows over whole nodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.claim.specification import linear_specification
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds import dense, propagate, route, walk
from elbowroom.search.bounds.coefficients import part_of
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.regions.input_set import InputSet
from support import cases, networks, normal, random_region

METHODS = ("quadratic", "combined", "adaptive")


@contextmanager
def patched(**values: Any) -> Iterator[None]:
    """Settings of the rows, for a while."""
    homes = {
        "plan": route, "_NEARLY_ALL": route, "_FEW_OPEN": walk, "_FEW": propagate, "_MOST_ACTIVE": propagate,
        "_reads_slowly": walk, "_pays": dense,
    }  # fmt: skip
    before = {name: getattr(homes[name], name) for name in values}
    try:
        for name, value in values.items():
            setattr(homes[name], name, value)
        route._KNOWN.clear()
        yield
    finally:
        for name, value in before.items():
            setattr(homes[name], name, value)
        route._KNOWN.clear()


def over_whole_nodes() -> Any:
    return patched(plan=lambda net, node, ancestors, at_input: dict.fromkeys(ancestors), _MOST_ACTIVE=-1.0)


def over_what_they_reach() -> Any:
    """However large the windows, and however many entries are active."""
    return patched(_NEARLY_ALL=torch.inf, _FEW=1, _MOST_ACTIVE=1.0, _FEW_OPEN=1.0)


def as_on_a_gpu() -> Any:
    """The same, in other ways: convolutions as matrices, and the last product with the radius in it."""
    return patched(
        _NEARLY_ALL=torch.inf, _FEW=1, _MOST_ACTIVE=1.0, _reads_slowly=lambda a: True, _pays=lambda like: True
    )


def compare(net: Network, inputs: InputSet, method: str, skip: bool) -> None:
    found, gradients = [], []
    rows = normal(np.random.default_rng(0), len(inputs.center), 3, net.n_outputs)
    for mode in (over_whole_nodes, over_what_they_reach, as_on_a_gpu):
        radius = inputs.radius.clone().requires_grad_()
        with mode():
            sets = InputSet(inputs.center, radius, inputs.p, inputs.basis)
            bounds = Propagation(net, sets, method_named(method), skip_inactive=skip)
            margins = bounds.margins(linear_specification(rows), "direct")
            weight = normal(np.random.default_rng(1), *margins.shape)
            if margins.requires_grad:
                gradients.append(torch.autograd.grad((margins * weight).sum(), radius, retain_graph=True)[0])
                gradients.append(torch.autograd.grad(margins[:, 0].sum(), radius)[0])
            found.append([*bounds.lower, *bounds.upper, margins])
    for expected, *others in (*zip(*found), *zip(gradients[:2], gradients[2:4], gradients[4:])):
        a = expected.detach()
        near = 1e-9 * float(a[a.isfinite()].abs().max().clamp(1e-300, 1e300))
        for b in others:
            torch.testing.assert_close(b.detach(), a, rtol=1e-9, atol=near)


@cases(3)
@given(networks(), st.integers(0, 2**32 - 1), st.sampled_from(METHODS), st.booleans())
def test_the_same_on_every_kind_of_graph(net: Network, seed: int, method: str, skip: bool) -> None:
    rng = np.random.default_rng(seed)
    compare(net, random_region(rng, net.input_shape, "box", batch=2, scale=0.1).inputs, method, skip)


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


@pytest.mark.parametrize("method", METHODS)
def test_the_same_on_a_residual_network(method: str) -> None:
    rng = np.random.default_rng(0)
    net = residual_net(rng)
    for scale in (0.01, 0.3):
        inputs = random_region(rng, net.input_shape, "box", batch=3, scale=scale).inputs
        compare(net, inputs, method, skip=scale > 0.1)


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
    for skip in (False, True):
        compare(net, random_region(rng, net.input_shape, "box", batch=2, scale=0.2).inputs, "adaptive", skip)


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
    for skip in (False, True):
        compare(net, random_region(rng, net.input_shape, "box", batch=2, scale=0.2).inputs, "adaptive", skip)


def test_windows_are_used_where_they_pay() -> None:
    rng = np.random.default_rng(2)
    net = Network.chain(
        (1, 28, 28),
        [
            ops.Conv(weights(rng, 8, 1, 3, 3), None, (1,), (1,)), ops.ReLU(),
            ops.Conv(weights(rng, 8, 8, 3, 3), None, (2,), (1,)), ops.ReLU(),
            ops.Reshape((-1,)), ops.Linear(weights(rng, 3, 1568)),
        ],
    )  # fmt: skip
    sizes = {i: at and at.size for i, at in route.plan(net, 3, [0, 1, 2, 3], True).items()}
    assert sizes == {0: (5, 5), 1: (3, 3), 2: (3, 3), 3: (1, 1)}
    assert route.plan(net, 3, [0, 1, 2, 3], False)[0] is None  # a ball's support needs whole rows
    assert set(route.plan(net, 6, list(range(7)), True).values()) == {None}
    compare(net, random_region(rng, net.input_shape, "box", batch=2, scale=0.02).inputs, "adaptive", skip=True)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["box", "ball"])
def test_rows_of_inactive_neurons(method: str, kind: str) -> None:
    """Some neurons of each layer inactive, others for some inputs of the batch."""
    rng = np.random.default_rng(5)
    net = Network.chain(
        (6,),
        [
            ops.Linear(weights(rng, 40, 6), normal(rng, 40)), ops.ReLU(),
            ops.Linear(weights(rng, 40, 40), normal(rng, 40) - 0.5), ops.ReLU(),
            ops.Linear(weights(rng, 40, 40)), ops.Tanh(), ops.Linear(weights(rng, 3, 40)),
        ],
    )  # fmt: skip
    for scale in (0.0, 0.02, 0.5):
        compare(net, random_region(rng, net.input_shape, kind, batch=4, scale=scale).inputs, method, skip=True)


def test_parts_of_matrices_of_nothing() -> None:
    """A layer of which no neuron is active for any input."""
    matrix, none, some = torch.ones(4, 3), torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long)
    assert part_of(matrix, none, None).shape == (2, 0, 3) and part_of(matrix, None, none).shape == (2, 4, 0)
    assert part_of(matrix, none, none).shape == (2, 0, 0) and part_of(matrix, none, some).shape == (2, 0, 3)
    assert part_of(matrix, some, none).shape == (2, 3, 0)
