"""Which bound is never worse than which: the orders that are theorems.

The others are counted by benchmarks/order.py; docs/order.md has the table.
"""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.claim.specification import label_stays, linear_specification
from elbowroom.network.graph import Network
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from support import ACTIVATIONS, FULL, KINDS, ROUNDOFF, cases, mlp, networks, normal, random_region, rounding

EXACT = torch.float64
PER_NETWORK = 30
NETWORKS = 600 if FULL else 60


def row_slack(spec: Any, slack: Any) -> Any:
    return 2 * (spec.rows.abs() @ slack[..., None]).squeeze(-1) + 8 * ROUNDOFF[EXACT] * spec.offset.abs()


@pytest.mark.parametrize("activation", ["relu", "tanh", "silu", "folded"])
@pytest.mark.parametrize("method", ["simple", "quadratic"])
def test_direct_margins_are_never_below_logits(method: str, activation: str) -> None:
    """On random classifiers: 30 inputs and 4 margins each, 7,200 margins per case (72,000 in the full run)."""
    strictly = total = 0
    for seed in range(NETWORKS):
        rng = np.random.default_rng(seed)
        sizes = [int(n) for n in rng.integers(2, 12, rng.integers(2, 5))]
        net = mlp(rng, [*sizes, 5], ACTIVATIONS[activation])
        kind = KINDS[seed % len(KINDS)]
        inputs = random_region(rng, (sizes[0],), kind, PER_NETWORK, scale=10 ** rng.uniform(-3, 0.5)).inputs
        found = Propagation(net, inputs, method_named(method))
        spec = label_stays(net.decide(found.values[-1]), 5)
        direct, logits = found.margins(spec, "direct"), found.margins(spec, "logits")
        slack = row_slack(spec, rounding(net, found.lower, found.upper, EXACT)[-1])
        assert bool((direct >= logits - slack).all())
        strictly += int((direct > logits + slack).sum())
        total += direct.numel()
    assert total == NETWORKS * PER_NETWORK * 4
    assert strictly > total / 2


@cases(3)
@given(networks(), st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from([1e-3, 0.1, 1.0]))
def test_orders_on_every_kind_of_graph(net: Network, seed: int, kind: Any, scale: float) -> None:
    """`direct` against `logits`; and what is met with intervals is never worse than intervals alone, at any layer."""
    rng = np.random.default_rng(seed)
    inputs = random_region(rng, net.input_shape, kind, 2, scale).inputs
    spec = linear_specification(normal(rng, 2, 3, net.n_outputs), normal(rng, 2, 3))
    found = {m: Propagation(net, inputs, method_named(m)) for m in ("simple", "quadratic", "combined", "adaptive")}
    slack = {m: rounding(net, f.lower, f.upper, EXACT) for m, f in found.items()}
    for method in ("simple", "quadratic"):
        direct, logits = (found[method].margins(spec, margin) for margin in ("direct", "logits"))
        assert bool((direct >= logits - row_slack(spec, slack[method][-1])).all())
    simple = found["simple"]
    for method in ("combined", "adaptive"):
        for i in range(len(net.nodes)):
            assert bool((found[method].lower[i] >= simple.lower[i] - slack["simple"][i]).all())
            assert bool((found[method].upper[i] <= simple.upper[i] + slack["simple"][i]).all())
        for margin in ("direct", "logits"):
            ours, theirs = found[method].margins(spec, margin), simple.margins(spec, margin)
            assert bool((ours >= theirs - row_slack(spec, slack["simple"][-1])).all())


@cases(1)
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from(list(ACTIVATIONS)))
def test_smaller_sets_have_tighter_intervals(seed: int, kind: Any, activation: Any) -> None:
    """Intervals are monotone in the set. (Linear bounds are not: their slopes change.)"""
    rng = np.random.default_rng(seed)
    net = mlp(rng, [3, 5, 4, 2], ACTIVATIONS[activation])
    inputs = random_region(rng, (3,), kind, 2, 0.3).inputs
    inner = type(inputs)(inputs.center, inputs.radius * 0.7, inputs.p, inputs.basis)
    outer, smaller = (Propagation(net, s, method_named("simple")) for s in (inputs, inner))
    for i, slack in enumerate(rounding(net, outer.lower, outer.upper, EXACT)):
        assert bool((smaller.lower[i] >= outer.lower[i] - slack).all())
        assert bool((smaller.upper[i] <= outer.upper[i] + slack).all())
