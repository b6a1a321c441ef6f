"""Boxes cut into parts: what is proved is true, what is refuted is false, by attacks, grids and exact arithmetic."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.claim.tree import MOST_SLOPES
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.branching import engine
from elbowroom.search.branching.engine import Limits, Outcome
from elbowroom.search.regions.input_set import InputSet
from elbowroom.verify import decide
from elbowroom.verify.counterexample import descend, starting_points
from elbowroom.vnnlib import answer, box_query
from proof.exact import values
from support import mlp, normal

F64 = torch.float64


# ---------------------------------------------------------------------------------------------------------------
# Queries with known answers


def convolutional(rng: np.random.Generator) -> Network:
    """1 x 8 x 8 pixels, two convolutions, 5 classes."""
    layers = [
        ops.Conv(0.5 * normal(rng, 4, 1, 3, 3), 0.1 * normal(rng, 4), (1, 1), (1, 1)), ops.ReLU(),
        ops.Conv(0.3 * normal(rng, 4, 4, 4, 4), 0.1 * normal(rng, 4), (2, 2), (1, 1)), ops.ReLU(),
        ops.Reshape((64,)), ops.Linear(0.2 * normal(rng, 5, 64), 0.1 * normal(rng, 5)),
    ]  # fmt: skip
    return Network.chain((1, 8, 8), layers)


NETWORKS = {
    "256x2": lambda rng: mlp(rng, [60, 256, 256, 5], gain=1.2),
    "256x4": lambda rng: mlp(rng, [60, 256, 256, 256, 256, 5], gain=1.2),
    "tanh": lambda rng: mlp(rng, [40, 60, 60, 5], ops.Tanh(), gain=1.2),
    "convolutional": convolutional,
}


def attacked(net: Network, spec: Specification, lower: Tensor, upper: Tensor, starts: int = 30) -> bool:
    """Whether descents, more of them than the search has, find a point that breaks the specification."""
    start = torch.cat([starting_points(lower, upper, starts)] * spec.n_groups)
    group = torch.arange(spec.n_groups).repeat_interleave(starts)
    low, high = (t.expand_as(start) for t in (lower, upper))
    _, margins = descend(net.cast(F64), spec, low, high, start, group, 50)
    return bool((margins < -1e-9).any())


def radii(net: Network, x: Tensor, spec: Specification) -> tuple[float, float]:
    """About the smallest radius that the plain check does not prove, and the smallest that an attack breaks."""
    below, above = 1e-3, 1.0
    for factor in (1.5, 1.1, 1.01):
        while er.verify(net, x - factor * below, x + factor * below, spec=spec):
            below *= factor
    below *= 1.01
    while attacked(net, spec, x - above / 1.2, x + above / 1.2, 2):
        above /= 1.2
    return below, above


@pytest.mark.parametrize("name", NETWORKS)
def test_answers_between_bounds_and_attacks(name: str) -> None:
    """Tiny radii hold, those of attacks are violated, and between them no answer contradicts an attack."""
    rng = np.random.default_rng(0)
    net = NETWORKS[name](rng).cast(torch.float32)
    x = 0.5 * normal(rng, *net.input_shape)
    spec = label_stays(net.decide(net(x[None])), net.n_outputs)
    below, above = radii(net, x, spec)
    assert below < above
    found: dict[str, list[str]] = {}
    for known, radius, factors in (("holds", below, (0.8, 1.0, 1.05, 1.15)), ("violated", above, (1.0, 1.3))):
        found[known] = []
        for factor in factors:
            low, high = x - factor * radius, x + factor * radius
            verdict = answer(net, box_query(low, high, spec), boxes=300, seconds=20).verdict
            found[known].append(verdict)
            if verdict == "holds":
                assert not attacked(net, spec, low, high)
            elif verdict == "violated":
                assert not er.verify(net, low, high, spec=spec)
    assert found["holds"][:2] == ["holds"] * 2, found  # the second is beyond what the plain check proves
    assert found["violated"] == ["violated"] * 2, found


def test_every_point_of_a_plane() -> None:
    """Two inputs, many boxes, a grid: all of them are decided, and the grid agrees."""
    verdicts: Counter[str] = Counter()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        net = mlp(rng, [2, 12, 12, 3])
        x = normal(rng, 12, 2)
        radius = torch.from_numpy(rng.uniform(0.05, 0.8, (12, 1)))
        labels = net.decide(net(x))
        found = er.verify(net, x - radius, x + radius, labels, leaves=2000, seconds=60)
        axis = torch.linspace(-1, 1, 101, dtype=F64)
        grid = torch.cartesian_prod(axis, axis)
        for k in range(len(x)):
            example = found.counterexamples[k]
            constant = bool((net.decide(net(x[k] + radius[k] * grid)) == labels[k]).all())
            if example is not None:
                assert not found.proved[k]
                assert bool(((x[k] - radius[k] <= example.x) & (example.x <= x[k] + radius[k])).all())
                exact = values(net, example.x)[-1]
                assert max(exact) > exact[int(labels[k])]
            elif found.proved[k]:
                assert constant
            verdicts["proved" if found.proved[k] else "open" if example is None else "refuted"] += 1
    assert verdicts["open"] <= 1 and min(verdicts["proved"], verdicts["refuted"]) >= 8, verdicts


def test_each_box_and_each_half_by_itself() -> None:
    """A batch gives what its boxes give one by one; specifications of several rows to a group, too."""
    rng = np.random.default_rng(5)
    net = mlp(rng, [30, 20, 20, 4])
    x = 0.3 * normal(rng, 6, 30)
    radius = torch.tensor([0.01, 0.05, 0.08, 0.1, 0.12, 1.0], dtype=F64)[:, None]
    outputs = net(x)
    rows = normal(rng, 6, 4, 4)
    offset = 0.6 * normal(rng, 6, 4).abs() - (rows @ outputs[..., None]).squeeze(-1)
    for spec in (label_stays(net.decide(outputs), 4), Specification(rows, offset, torch.tensor([0, 1, 0, 1]))):
        all_ = er.verify(net, x - radius, x + radius, spec=spec, leaves=300)
        for k in range(len(x)):
            one = er.verify(net, x[k] - radius[k], x[k] + radius[k], spec=spec.part(torch.tensor([k])), leaves=300)
            assert bool(one) == bool(all_.proved[k])
            assert (one.counterexamples[0] is None) == (all_.counterexamples[k] is None)
            example = all_.counterexamples[k]
            if example is not None:
                margins = spec.part(torch.tensor([k])).margins(net(example.x[None]))
                assert float(margins.min()) < 0
        assert bool(all_.proved[0]) and all_.counterexamples[5] is not None


def test_the_plain_check_cuts_nothing_and_shows_counterexamples() -> None:
    rng = np.random.default_rng(1)
    net = mlp(rng, [30, 20, 20, 4])
    x = normal(rng, 1, 30)
    small, large = (er.verify(net, x - r, x + r) for r in (0.01, 0.4))
    assert small and not large
    assert small.counterexamples == (None,) and small.parts.tolist() == large.parts.tolist() == [1]
    (example,) = er.verify(net, x - 4.0, x + 4.0).counterexamples
    assert example is not None and int(net.decide(net(example.x[None]))) != int(net.decide(net(x)))
    assert bool(((x - 4.0 <= example.x) & (example.x <= x + 4.0)).all())
    more = er.verify(net, x - 0.4, x + 0.4, leaves=50)
    assert more.proved[0] or more.counterexamples[0] is not None or int(more.parts) > 1


def test_parts_as_executed_in_float32() -> None:
    """With `deployed`, trees are proved of the network as executed: no point decides otherwise in float32."""
    rng = np.random.default_rng(5)
    net = mlp(rng, [30, 20, 20, 4]).cast(torch.float32)
    x = (0.3 * normal(rng, 1, 30)).float()
    below, _ = radii(net, x[0].double(), label_stays(net.decide(net(x)), 4))
    low, high = x - 1.02 * below, x + 1.02 * below
    assert not er.verify(net, low, high, deployed="float32")
    found = er.verify(net, low, high, deployed="float32", leaves=300)
    assert found and int(found.parts) > 1 and found.labels is not None
    points = low + torch.rand(2000, 30, generator=torch.Generator().manual_seed(0)).round() * (high - low)
    assert bool((net.decide(net.values(points)[-1]) == found.labels).all())


@pytest.mark.parametrize("arguments", [{"leaves": 0}, {"leaves": 2.5}, {"seconds": 0}, {"seconds": math.nan}])
def test_limits_that_are_none(arguments: dict[str, Any]) -> None:
    net = mlp(np.random.default_rng(0), [2, 3, 2])
    with pytest.raises(InputError, match=next(iter(arguments))):
        er.verify(net, torch.zeros(2), torch.ones(2), **arguments)


def test_time_is_kept() -> None:
    """A network that takes long to split: the answer comes when it is due."""
    rng = np.random.default_rng(2)
    net = mlp(rng, [100, 256, 256, 256, 10])
    x = normal(rng, 1, 100)
    spec = label_stays(net.decide(net(x)), 10)
    started = time.monotonic()
    found = er.verify(net, x - 0.03, x + 0.03, spec=spec, seconds=2)
    assert time.monotonic() - started < 8
    assert not found or not attacked(net, spec, x[0] - 0.03, x[0] + 0.03)


# ---------------------------------------------------------------------------------------------------------------
# Only the strict check decides


def test_trees_of_another_question_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that answers an easier question than was asked: its trees are not proved."""
    rng = np.random.default_rng(5)
    net = mlp(rng, [30, 20, 20, 4])
    x = 0.3 * normal(rng, 1, 30)
    spec = label_stays(net.decide(net(x)), 4)
    below, above = radii(net, x[0], spec)
    honest, claims = engine.prove, []

    def easier(net: Network, sets: InputSet, spec: Specification, limits: Limits, *_: Any) -> Outcome:
        smaller = replace(sets, radius=sets.radius * (1.05 * below / above))
        out = honest(net, smaller, spec, limits)
        claims.append(bool(out.proved.all()) and len(out.trees[0]) > 0)
        return out

    monkeypatch.setattr(engine, "prove", easier)
    monkeypatch.setattr(decide, "_STEPS", 0)  # no attack finds anything
    monkeypatch.setattr(decide, "_STARTS", 1)
    found = er.verify(net, x - above, x + above, spec=spec, leaves=100)
    assert claims and all(claims)
    assert not found and found.counterexamples == (None,)


def test_a_proof_that_fails_by_rounding_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is proved in parts, but for rounding, is split further: the second search asks for more."""
    asked = []
    honest = engine.prove

    def watched(*arguments: Any) -> Outcome:
        asked.append(arguments[2].offset.clone())
        return honest(*arguments)

    monkeypatch.setattr(engine, "prove", watched)
    strict = decide.Decision._proved
    monkeypatch.setattr(
        decide.Decision, "_proved", lambda self, *a, **k: strict(self, *a, **k) - (1.0 if len(asked) < 2 else 0.0)
    )
    rng = np.random.default_rng(4)
    net = mlp(rng, [30, 20, 20, 4])
    x = 0.3 * normal(rng, 1, 30)
    assert er.verify(net, x - 1e-3, x + 1e-3, leaves=100) and len(asked) == 2
    assert bool((asked[1] < asked[0]).all()) and torch.allclose(asked[0], asked[1], atol=1e-8)


def test_trees_fit_the_proof() -> None:
    for sizes in ([2, 3, 2], [2, 5000, 2]):
        net = mlp(np.random.default_rng(0), sizes)
        assert 1 <= decide.most_leaves(net) * sizes[1] <= MOST_SLOPES
