"""An input's bounds depend on that input alone: not on its batch, nor on how the work was cut into pieces."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.bounds.linear import Budget
from elbowroom.bounds.propagate import Propagation, method_named
from elbowroom.specification import linear_specification
from support import KINDS, METHODS, cases, magnitudes, mlp, networks, normal, random_region

# Sums in another order: a few roundings of all that was added up.
ROUNDINGS = 64 * 2.0**-53


def everything(net, inputs, method, spec, budget=None):
    """Bounds of all layers and both kinds of margins; and the propagation they came from."""
    found = Propagation(net, inputs, method_named(method), budget)
    margins = [found.margins(spec, m) for m in ("direct", "logits")]
    return [*found.lower, *found.upper, *margins], found


def allowances(net, found, spec):
    sizes = magnitudes(net, found.lower, found.upper)
    rows = (spec.rows.abs() @ sizes[-1][..., None]).squeeze(-1) + spec.offset.abs()
    return [ROUNDINGS * (s + 1e-300) for s in (*sizes, *sizes, rows, rows)]


def specification(rng, net, batch):
    return linear_specification(normal(rng, batch, 3, net.n_outputs), normal(rng, batch, 3))


@cases(2)
@given(networks(), st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from(METHODS))
def test_bounds_do_not_depend_on_the_rest_of_the_batch(net, seed, kind, method):
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
def test_tiny_memory_gives_the_same_bounds(net, seed, kind, method):
    rng = np.random.default_rng(seed)
    inputs = random_region(rng, net.input_shape, kind, batch=2, scale=float(rng.choice([0.01, 1.0]))).inputs
    spec = specification(rng, net, 2)
    ample, found = everything(net, inputs, method, spec, Budget(1 << 30, 1 << 30))
    for budget in (Budget(chunk=1, keep=0), Budget(chunk=700, keep=0)):
        tight, _ = everything(net, inputs, method, spec, budget)
        for t, a, slack in zip(tight, ample, allowances(net, found, spec), strict=True):
            assert bool(((t - a).abs() <= slack).all())


@pytest.mark.parametrize("method", METHODS)
def test_rows_shared_by_the_batch_equal_each_inputs_own(method):
    rng = np.random.default_rng(1)
    net = mlp(rng, [3, 5, 4])
    inputs = random_region(rng, (3,), "box", batch=4).inputs
    rows, offset = normal(rng, 2, 4), normal(rng, 2)
    shared, own = linear_specification(rows, offset), linear_specification(rows.expand(4, -1, -1), offset.expand(4, -1))
    found = Propagation(net, inputs, method_named(method))
    for margin in ("direct", "logits"):
        torch.testing.assert_close(found.margins(shared, margin), found.margins(own, margin), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_of_none(method):
    net = mlp(np.random.default_rng(2), [3, 4, 2])
    inputs = random_region(np.random.default_rng(3), (3,), "box", batch=1).inputs.part(0, 0)
    found = Propagation(net, inputs, method_named(method))
    assert found.lower[-1].shape == (0, 2)
