"""An input's bounds depend on that input alone: not on its batch, nor on how the work was cut into pieces."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.claim.specification import linear_specification
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.memory import Budget
from elbowroom.search.regions.input_set import InputSet
from support import KINDS, METHODS, cases, magnitudes, mlp, networks, normal, random_region

# Sums in another order: a few roundings of all that was added up.
ROUNDINGS = 64 * 2.0**-53


def everything(net: Network, inputs: Any, method: str, spec: Any, budget: Any = None) -> Any:
    """Bounds of all layers and both kinds of margins; and the propagation they came from."""
    found = Propagation(net, inputs, method_named(method), budget)
    margins = [found.margins(spec, m) for m in ("direct", "logits")]
    return [*found.lower, *found.upper, *margins], found


def allowances(net: Network, found: Any, spec: Any) -> Any:
    sizes = magnitudes(net, found.lower, found.upper)
    rows = (spec.rows.abs() @ sizes[-1][..., None]).squeeze(-1) + spec.offset.abs()
    return [ROUNDINGS * (s + 1e-300) for s in (*sizes, *sizes, rows, rows)]


def specification(rng: np.random.Generator, net: Network, batch: Any) -> Any:
    return linear_specification(normal(rng, batch, 3, net.n_outputs), normal(rng, batch, 3))


@cases(2)
@given(networks(), st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from(METHODS))
def test_bounds_do_not_depend_on_the_rest_of_the_batch(net: Network, seed: int, kind: Any, method: str) -> None:
    rng = np.random.default_rng(seed)
    inputs = random_region(rng, net.input_shape, kind, batch=3, scale=float(rng.choice([0.01, 1.0]))).inputs
    spec = specification(rng, net, 3)
    together, found = everything(net, inputs, method, spec)
    allowed = allowances(net, found, spec)
    for i in range(3):
        alone, _ = everything(net, inputs.part(i, i + 1), method, spec.part(torch.tensor([i])))
        for t, a, slack in zip(together, alone, allowed, strict=True):
            assert bool(((t[i] - a[0]).abs() <= slack[i]).all())


@cases(2)
@given(networks(), st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from(METHODS))
def test_tiny_memory_gives_the_same_bounds(net: Network, seed: int, kind: Any, method: str) -> None:
    rng = np.random.default_rng(seed)
    inputs = random_region(rng, net.input_shape, kind, batch=2, scale=float(rng.choice([0.01, 1.0]))).inputs
    spec = specification(rng, net, 2)
    ample, found = everything(net, inputs, method, spec, Budget(1 << 30, 1 << 30, 1 << 30))
    for budget in (Budget(total=1 << 30, chunk=1, keep=0), Budget(total=1 << 30, chunk=700, keep=0)):
        tight, _ = everything(net, inputs, method, spec, budget)
        for t, a, slack in zip(tight, ample, allowances(net, found, spec), strict=True):
            assert bool(((t - a).abs() <= slack).all())


@pytest.mark.parametrize("method", METHODS)
def test_rows_shared_by_the_batch_equal_each_inputs_own(method: str) -> None:
    rng = np.random.default_rng(1)
    net = mlp(rng, [3, 5, 4])
    inputs = random_region(rng, (3,), "box", batch=4).inputs
    rows, offset = normal(rng, 2, 4), normal(rng, 2)
    shared, own = linear_specification(rows, offset), linear_specification(rows.expand(4, -1, -1), offset.expand(4, -1))
    found = Propagation(net, inputs, method_named(method))
    for margin in ("direct", "logits"):
        torch.testing.assert_close(found.margins(shared, margin), found.margins(own, margin), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_of_none(method: str) -> None:
    net = mlp(np.random.default_rng(2), [3, 4, 2])
    inputs = random_region(np.random.default_rng(3), (3,), "box", batch=1).inputs.part(0, 0)
    found = Propagation(net, inputs, method_named(method))
    assert found.lower[-1].shape == (0, 2)


@cases(3)
@given(networks(), st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from(METHODS))
def test_skipping_inactive_neurons_changes_no_margin(net: Network, seed: int, kind: Any, method: str) -> None:
    rng = np.random.default_rng(seed)
    scale = float(rng.choice([0.01, 0.1, 1.0]))
    inputs = random_region(rng, net.input_shape, kind, batch=3, scale=scale).inputs
    spec = specification(rng, net, 3)
    whole = Propagation(net, inputs, method_named(method), bound_outputs=False)
    short = Propagation(net, inputs, method_named(method), bound_outputs=False, skip_inactive=True)
    slack = allowances(net, whole, spec)[-1]
    assert bool(((whole.margins(spec, "direct") - short.margins(spec, "direct")).abs() <= slack).all())


@pytest.mark.parametrize("method", ["combined", "adaptive"])
def test_gradients_of_skipping(method: str) -> None:
    """With some neurons inactive for some of the batch and not for others."""
    rng = np.random.default_rng(3)
    net = mlp(rng, [6, 20, 20, 4])
    inputs = random_region(rng, net.input_shape, "box", batch=4, scale=0.3).inputs
    spec = specification(rng, net, 4)
    gradients = []
    for skip in (False, True):
        radius = inputs.radius.clone().requires_grad_()
        sets = InputSet(inputs.center, radius, inputs.p, inputs.basis)
        found = Propagation(net, sets, method_named(method), bound_outputs=False, skip_inactive=skip)
        (gradient,) = torch.autograd.grad(found.margins(spec, "direct").sum(), radius)
        gradients.append(gradient)
        if skip:
            dead = torch.stack([(found.upper[i] <= 0).float().mean(1) for i in net.preactivations])
            assert bool((dead > 0).any()) and dead.unique().numel() > 3
    torch.testing.assert_close(*gradients)


def test_every_neuron_inactive() -> None:
    net = Network.chain(
        (2,),
        [
            ops.Linear(torch.ones(3, 2).double(), torch.full((3,), -100.0).double()), ops.ReLU(),
            ops.Linear(torch.ones(3, 3).double(), torch.full((3,), -1.0).double()), ops.ReLU(),
            ops.Linear(torch.ones(2, 3).double(), torch.tensor([1.0, 0.0]).double()),
        ],
    )  # fmt: skip
    inputs = InputSet(torch.zeros(2, 2).double(), torch.ones(2, 2).double())
    spec = linear_specification(torch.tensor([[[1.0, -1.0]]]).double())
    for method in METHODS:
        found = Propagation(net, inputs, method_named(method), bound_outputs=False, skip_inactive=True)
        assert found.margins(spec, "direct").tolist() == [[1.0], [1.0]]
