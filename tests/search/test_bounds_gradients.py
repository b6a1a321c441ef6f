"""Derivatives of proved margins by centre and radius, against finite differences and against each other."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import elbowroom as er
from elbowroom.claim.specification import label_in, label_stays, linear_specification
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.bounds import walk
from elbowroom.search.bounds.coefficients import are_few
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation, margins_of
from elbowroom.search.memory import Budget
from elbowroom.search.regions.input_set import InputSet
from support import ACTIVATIONS, FULL, KINDS, METHODS, Builder, cases, mlp, networks, normal, random_region

AMPLE = Budget(total=1 << 30, chunk=4 << 20, keep=1 << 30)
FORGETFUL = Budget(total=1 << 30, chunk=4 << 20, keep=0)
TINY = Budget(total=1 << 30, chunk=1, keep=0)


def margins_at(
    net: Network, inputs: Any, center: Tensor, radius: Tensor, method: str, margin: Any, spec: Any, budget: Any = None
) -> Any:
    moved = InputSet(center, radius, inputs.p, inputs.basis)
    return Propagation(net, moved, method_named(method), budget).margins(spec, margin)


def each_gradient(net: Network, inputs: Any, method: str, margin: Any, spec: Any, budget: Any = None) -> Any:
    """The gradients of every margin, one after the other: `g x b x 2n`."""
    center, radius = (t.detach().clone().requires_grad_() for t in (inputs.center, inputs.radius))
    margins = margins_at(net, inputs, center, radius, method, margin, spec, budget)
    rows = []
    for j in range(margins.shape[1]):
        grads = torch.autograd.grad(margins[:, j].sum(), (center, radius), retain_graph=True)
        rows.append(torch.cat([g.flatten(1) for g in grads], 1))
    return torch.stack(rows)


def difference(net: Network, inputs: Any, method: str, margin: Any, spec: Any, direction: Any, *steps: float) -> Any:
    """Central differences of the margins along a direction (`b x 2n`), of each step: `b x g`. All in one batch."""
    by_center, by_radius = (d.reshape(inputs.center.shape) for d in direction.split(direction.shape[1] // 2, 1))
    signed = [s * h for h in steps for s in (1, -1)]
    center = torch.cat([inputs.center + s * by_center for s in signed])
    radius = torch.cat([inputs.radius + s * by_radius for s in signed])
    every = spec.part(torch.arange(len(inputs.center)).repeat(len(signed)))
    ends = margins_at(net, inputs, center, radius, method, margin, every).chunk(len(signed))
    found = [(above - below) / (2 * h) for above, below, h in zip(ends[::2], ends[1::2], steps)]
    return found if len(steps) > 1 else found[0]


def a_chain(rng: np.random.Generator, activation: Any) -> Any:
    return mlp(rng, [4, 6, 5, 3], ACTIVATIONS[activation])


def a_residual_network(rng: np.random.Generator, activation: Any) -> Any:
    builder = Builder(rng, (4,), "plain")
    for block in ("linear", "residual", "dense", "projected residual"):
        builder.block(block)
        builder.activation(activation)
    return builder.network(3)


def a_pooled_convolution(rng: np.random.Generator, activation: Any) -> Any:
    layers = [
        ops.Shift(normal(rng, 2, 4, 4)),
        ops.Conv(normal(rng, 3, 2, 2, 2) * 0.5, normal(rng, 3), padding=(1,)),
        ACTIVATIONS[activation],
        ops.MaxPool((2, 2), (1,)),
        ops.BatchNorm(normal(rng, 3), normal(rng, 3) ** 2 + 0.5, normal(rng, 3), normal(rng, 3)),
        ops.AvgPool((2, 2), (1,)),
        ACTIVATIONS["relu"],
        ops.Reshape((-1,)),
        ops.Linear(normal(rng, 3, 27) * 0.3, normal(rng, 3)),
    ]
    return Network.chain((2, 4, 4), layers)


NETWORKS = {"chain": a_chain, "residual": a_residual_network, "convolution": a_pooled_convolution}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("build", NETWORKS)
def test_gradients_are_those_of_finite_differences(build: str, method: str, kind: Any) -> None:
    """Along random directions, wherever two step sizes agree: there the margin is smooth. Most places are."""
    checked = smooth_places = 0
    settings = [("direct", 0.05, "relu"), ("logits", 0.1, "gelu"), ("logits", 0.2, "relu"), ("direct", 0.3, "tanh")]
    for seed, (margin, scale, activation) in enumerate(settings[: 4 if FULL else 2]):
        rng = np.random.default_rng(seed)
        net = NETWORKS[build](rng, activation)
        inputs = random_region(rng, net.input_shape, kind, batch=2, scale=scale).inputs
        spec = label_stays(torch.from_numpy(rng.integers(0, 3, 2)), 3)
        gradients = each_gradient(net, inputs, method, margin, spec)
        direction = torch.from_numpy(rng.standard_normal((2, 2 * net.n_inputs)))
        expected = torch.einsum("gbd,bd->bg", gradients, direction)
        # Steps small against the radius, which must stay positive.
        fine, coarse = difference(net, inputs, method, margin, spec, direction, 1e-6, 2e-6)
        size = 1 + fine.abs() + gradients.abs().amax((0, 2))[:, None]
        smooth = (fine - coarse).abs() <= 2e-7 * size
        assert bool(((expected - fine).abs() <= 1e-6 * size)[smooth].all()), (
            f"{margin}, {activation}: {expected - fine}"
        )
        checked += smooth.numel()
        smooth_places += int(smooth.sum())
    assert smooth_places >= 0.7 * checked


@pytest.mark.parametrize("method", METHODS)
def test_gradients_by_the_corners_of_a_box(method: str) -> None:
    rng = np.random.default_rng(8)
    net = a_chain(rng, "relu")
    center = normal(rng, 2, 4)
    lower, upper = (center - 0.1).requires_grad_(), (center + 0.2).requires_grad_()
    spec = label_stays(torch.tensor([0, 1]), 3)

    def total(low: Any, high: Any) -> Any:
        return Propagation(net, InputSet.box(low, high), method_named(method)).margins(spec, "direct").sum()

    assert torch.autograd.gradcheck(total, (lower, upper), eps=1e-6, atol=1e-6)


def test_gradient_through_the_best_row_of_a_group() -> None:
    rng = np.random.default_rng(9)
    net = a_chain(rng, "tanh")
    inputs = random_region(rng, (4,), "box", batch=3).inputs
    spec = label_in([0, 1], 3)
    gradients = each_gradient(net, inputs, "adaptive", "direct", spec)
    direction = torch.from_numpy(rng.standard_normal((3, 8)))
    expected = torch.einsum("gbd,bd->bg", gradients, direction)
    torch.testing.assert_close(
        expected, difference(net, inputs, "adaptive", "direct", spec, direction, 1e-6), rtol=1e-6, atol=1e-7
    )


@cases(2)
@given(
    networks(weights=("plain", "plain", "sparse", "dead")),
    st.integers(0, 2**32 - 1),
    st.sampled_from(KINDS),
    st.sampled_from(METHODS[1:]),
    st.sampled_from(["direct", "logits"]),
)
def test_kept_jacobians_equal_recomputed_ones(net: Network, seed: int, kind: Any, method: str, margin: str) -> None:
    """Several margins one after the other: from the kept Jacobian, recomputed each time, and in chunks of one row."""
    rng = np.random.default_rng(seed)
    inputs = random_region(rng, net.input_shape, kind, batch=2, scale=float(rng.choice([0.01, 0.3]))).inputs
    spec = linear_specification(normal(rng, 2, 3, net.n_outputs))
    kept, recomputed, chunked = (
        each_gradient(net, inputs, method, margin, spec, budget) for budget in (AMPLE, FORGETFUL, TINY)
    )
    allowed = 1e-10 * float(kept.abs().max()) + 1e-13
    assert bool(torch.isfinite(kept).all())
    assert float((kept - recomputed).abs().max()) <= allowed
    assert float((kept - chunked).abs().max()) <= allowed


def test_one_backward_call_for_all_margins_equals_one_call_each() -> None:
    rng = np.random.default_rng(10)
    net = a_pooled_convolution(rng, "gelu")
    inputs = random_region(rng, net.input_shape, "box", batch=2).inputs
    spec = label_stays(torch.tensor([2, 0]), 3)
    one_each = each_gradient(net, inputs, "adaptive", "direct", spec).sum(0)
    center, radius = (t.clone().requires_grad_() for t in (inputs.center, inputs.radius))
    total = margins_at(net, inputs, center, radius, "adaptive", "direct", spec).sum()
    at_once = torch.cat([g.flatten(1) for g in torch.autograd.grad(total, (center, radius))], 1)
    torch.testing.assert_close(at_once, one_each, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_network_of_dead_neurons_has_gradient_zero(method: str) -> None:
    layers = [
        ops.Conv(torch.ones(1, 1, 2, 2), torch.tensor([-100.0])), ops.ReLU(), ops.AvgPool((2, 2), (1,)),
        ops.Conv(torch.ones(2, 1, 2, 2), torch.tensor([-1.0, -2.0])), ops.ReLU(), ops.MaxPool((1, 1), (1,)),
        ops.Reshape((-1,)), ops.Linear(torch.ones(3, 2), torch.tensor([3.0, 2.0, 1.0])),
    ]  # fmt: skip
    net = Network.chain((1, 4, 4), layers).cast(torch.float64)
    inputs = random_region(np.random.default_rng(0), (1, 4, 4), "box").inputs
    gradients = each_gradient(net, inputs, method, "direct", label_stays(torch.tensor([0, 0]), 3))
    assert bool((gradients == 0).all())


@pytest.mark.parametrize("kind", ["box", "oblique ball", "cross"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_are_finite_without_width(activation: Any, method: str, kind: str) -> None:
    rng = np.random.default_rng(12)
    net = mlp(rng, [3, 4, 4, 2], ACTIVATIONS[activation])
    inputs = random_region(rng, (3,), kind, scale=0.0).inputs
    gradients = each_gradient(net, inputs, method, "direct", label_stays(torch.tensor([0, 1]), 2))
    assert bool(torch.isfinite(gradients).all())


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_have_their_derivative_at_zero(name: str) -> None:
    """Dead inputs sit at exactly zero, where a formula with |x| in it may hide a wrong one."""
    op = ACTIVATIONS[name]
    x = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(op(x).sum(), x)
    h = torch.full((1, 1), 1e-7, dtype=torch.float64)
    right, left = (op(h) - op(0 * h)) / 1e-7, (op(0 * h) - op(-h)) / 1e-7
    low, high = torch.minimum(left, right), torch.maximum(left, right)
    assert math.isfinite(float(got))
    assert bool((low - 1e-6 <= got).all())
    assert bool((got <= high + 1e-6).all())


def test_a_wider_jacobian_that_does_not_fit_is_computed_again() -> None:
    """One output's rows are kept; those of the next need more than there is room for."""
    rng = np.random.default_rng(7)
    net = mlp(rng, [60, 50, 50, 4])
    x = normal(rng, 2, 60)
    found = []
    for memory in (None, *(1 << k for k in range(20, 24))):
        lower = (x - 0.2).requires_grad_()
        out = er.bounds(net, lower, x + 0.2, method="adaptive", memory=memory)
        found.append([torch.autograd.grad(out.lower[:, k].sum(), lower, retain_graph=True)[0] for k in range(4)])
    for other in found[1:]:
        for a, b in zip(found[0], other):
            torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-12)


def test_few_rows_through_whole_matrices_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Layers wide enough that rows are cut to active neurons, and few rows, those of the margins.
    net = mlp(np.random.default_rng(0), [6, 150, 150, 150, 4])
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((3, 6)))
    spec, margins = label_stays(net.decide(net(x)), 4), margins_of("adaptive")
    found = []
    for few in (True, False):
        used: list[bool] = []

        def told(*given: Any, few: bool = few, used: list[bool] = used) -> bool:
            used.append(few and are_few(*given))
            return used[-1]

        monkeypatch.setattr(walk, "are_few", told)
        radius = torch.full_like(x, 0.02).requires_grad_()
        value = margins(net, InputSet(x, radius), spec)
        down = sum(used)
        gradients = [
            torch.autograd.grad(value[:, k].sum(), radius, retain_graph=True)[0] for k in range(value.shape[1])
        ]
        assert not few or (down and sum(used) > 2 * down)  # on the way down, then down again and up
        found.append((value.detach(), torch.stack(gradients)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
