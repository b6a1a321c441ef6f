"""How far one feature may move alone: both ends against a dense scan, and every claim attacked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import elbowroom as er
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network
from elbowroom.network.table import Column, Table
from support import cases, mlp, normal

F64 = torch.float64
GRID = 10001


def pooled(rng: np.random.Generator) -> Network:
    layers = [
        ops.Conv(normal(rng, 2, 1, 2, 2), 0.3 * normal(rng, 2), (1, 1), (0, 0)), ops.ReLU(),
        ops.MaxPool((2, 2), (1, 1)), ops.Reshape((8,)), ops.Linear(normal(rng, 3, 8), normal(rng, 3)),
    ]  # fmt: skip
    return Network.chain((1, 4, 4), layers)


NETWORKS = {
    "relu": lambda rng: mlp(rng, [4, 16, 16, 3]),
    "tanh": lambda rng: mlp(rng, [4, 12, 12, 3], ops.Tanh()),
    "sigmoid": lambda rng: mlp(rng, [4, 12, 3], ops.Sigmoid(), gain=4.0),
    "least decides": lambda rng: mlp(rng, [4, 16, 3], decision="min"),
    "max-pool": pooled,
}


def scan(net: Network, x: Tensor, label: int, feature: int, limit: float) -> float:
    """The first value on a dense grid at which the decision is another one; infinite where there is none."""
    values = torch.linspace(float(x.flatten()[feature]), limit, GRID, dtype=F64)
    points = x.flatten().repeat(GRID, 1)
    points[:, feature] = values
    bad = (net.decide(net(points.reshape(GRID, *x.shape))) != label).nonzero()
    return float(values[bad[0, 0]]) if len(bad) else math.inf


def against_scan(net: Network, found: er.Alone) -> int:
    """Holds both ends of all lines against the scan; how many lines ended at a counterexample."""
    count = 0
    flat = {name: getattr(found, name).flatten(1) for name in
            ("x", "lower", "upper", "seen_lower", "seen_upper", "lowest", "highest", "asked")}  # fmt: skip
    for i, k in flat["asked"].nonzero().tolist():
        start = float(flat["x"][i, k])
        for end, seen, limit in (("lower", "seen_lower", "lowest"), ("upper", "seen_upper", "highest")):
            far = float(flat[limit][i, k])
            truth = scan(net, found.x[i], int(found.labels[i]), k, far)
            grain = abs(far - start) / (GRID - 1)
            proved, broken = abs(float(flat[end][i, k]) - start), abs(float(flat[seen][i, k]) - start)
            if math.isinf(truth):
                assert proved >= 0.999 * abs(far - start) or broken < math.inf
                continue
            count += 1
            away = abs(truth - start)
            assert proved <= away, "proved past a counterexample"
            assert proved >= 0.99 * (away - grain) - 1e-12 and broken <= 1.01 * away + 1e-12
            point = found.x[i].flatten().clone()
            point[k] = flat[seen][i, k]
            assert int(net.decide(net(point.reshape(1, *found.x.shape[1:])))) != int(found.labels[i])
    return count


@pytest.mark.parametrize("name", NETWORKS)
def test_both_ends_equal_a_dense_scan(name: str) -> None:
    rng = np.random.default_rng(1)
    net = NETWORKS[name](rng)
    x = normal(rng, 3, *net.input_shape)
    found = er.alone(net, x, domain=(-4, 4))
    assert found.status == ("answered",) * 3 and bool(found.settled.all())
    assert against_scan(net, found) > 3
    assert torch.equal(found.labels, net.decide(net(x)))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_scikit_learn(activation: str) -> None:
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_wine
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = load_wine(return_X_y=True)
    last = MLPClassifier((8,), activation, alpha=1.0, max_iter=3000, random_state=0)
    net = er.load(make_pipeline(StandardScaler(), last).fit(x, y))
    found = er.alone(net, x[::60], domain=(x.min(0), x.max(0)))
    assert against_scan(net, found) > 3 and bool(found.settled.all())


@cases(0.15)
@given(seed=st.integers(0, 10**6), activation=st.sampled_from(["relu", "tanh", "leaky"]), effort=st.integers(2, 60))
def test_nothing_is_claimed_past_a_counterexample(seed: int, activation: str, effort: int) -> None:
    """Whatever the effort: a line may stay open, but never be wrong."""
    rng = np.random.default_rng(seed)
    activations: dict[str, Any] = {"relu": ops.ReLU(), "tanh": ops.Tanh(), "leaky": ops.LeakyReLU(-0.2)}
    net = mlp(rng, [3, 10, 10, 3], activations[activation], gain=2.5)
    x = normal(rng, 3, 3)
    found = er.alone(net, x, effort=effort, max_eps=3.0)
    assert bool((found.lower <= x).all() and (found.upper >= x).all())
    assert bool((found.seen_lower < found.lower).all() and (found.seen_upper > found.upper).all())
    for i in range(3):
        for k in range(3):
            values = torch.linspace(float(found.lower[i, k]), float(found.upper[i, k]), 2001, dtype=F64)
            points = x[i].repeat(len(values), 1)
            points[:, k] = values
            assert bool((net.decide(net(points)) == found.labels[i]).all())


def test_a_narrow_counterexample_between_the_first_points_is_met() -> None:
    """A dip of width 0.0008 at 0.7123 that the first look misses: the proof does not pass it, and finds it."""
    up, width = 0.7123, 4e-4
    first = ops.Linear(torch.ones(3, 1, dtype=F64), torch.tensor([-(up - width), -up, -(up + width)], dtype=F64))
    second = ops.Linear(
        torch.tensor([[-2e4, 4e4, -2e4], [0.0, 0.0, 0.0]], dtype=F64), torch.tensor([4.0, 0.0]).double()
    )
    net = Network.chain((1,), [first, ops.ReLU(), second])
    found = er.alone(net, torch.zeros(1, 1), domain=(-3, 3), effort="high")
    assert up - width < float(found.upper) < float(found.seen_upper) < up
    assert float(found.lower) == -3 and float(found.seen_lower) == -math.inf and bool(found.settled)


def test_a_regression_and_frozen_features() -> None:
    rng = np.random.default_rng(3)
    net = mlp(rng, [4, 10, 1])
    x = normal(rng, 3, 4)
    spec = er.outputs_within(net(x), 0.5)
    found = er.alone(net, x, spec=spec, max_eps=2.0, frozen=[False, True, False, False])
    assert set(found.status) == {"answered"} and bool((found.labels == -1).all())
    assert torch.equal(found.lower[:, 1], x[:, 1]) and torch.equal(found.upper[:, 1], x[:, 1])
    assert not bool(found.asked[:, 1].any()) and bool(found.settled[:, 0].all())
    for i in range(3):
        for k in (0, 2, 3):
            for end, inside in ((found.lower[i, k], True), (found.upper[i, k], True), (found.seen_upper[i, k], False)):
                if math.isfinite(end):
                    point = x[i].clone()
                    point[k] = end
                    assert (abs(float(net(point[None]) - net(x[i][None]))) < 0.5) == inside
    with pytest.raises(InputError, match="one output"):
        er.alone(net, x)
    with pytest.raises(InputError, match="1 is frozen"):
        er.alone(net, x, 1, spec=spec, frozen=[False, True, False, False])


def test_which_features() -> None:
    net = mlp(np.random.default_rng(0), [3, 8, 2])
    named = er.Network(net.nodes, net.decision, About(features=("age", "job=a", "job=b"), table=Table(
        (Column("age"), Column("job", ("a", "b"), ((1.0, 0.0), (0.0, 1.0)))))))  # fmt: skip
    x = torch.tensor([[0.3, 1.0, 0.0]], dtype=F64)
    for feature in ("age", 0, ["age"], "0", np.int64(0)):
        found = er.alone(named, x, feature, max_eps=1.0)
        assert found.asked.tolist() == [[True, False, False]] and float(found.upper[0, 0]) > 0.3
    # Codes of categories do not move.
    assert er.alone(named, x, max_eps=1.0).asked.tolist() == [[True, False, False]]
    with pytest.raises(InputError, match="'job=a' is frozen"):
        er.alone(named, x, "job=a", max_eps=1.0)
    for wrong, message in (
        ("agee", "no feature 'agee'"),
        (3, "0 to 2"),
        (-1, "0 to 2"),
        (True, "0 to 2"),
        (0.0, "0 to 2"),
    ):
        with pytest.raises(InputError, match=message):
            er.alone(named, x, wrong, max_eps=1.0)


def test_inputs_about_which_nothing_can_be_asked() -> None:
    net = mlp(np.random.default_rng(0), [2, 8, 2])
    x = torch.tensor([[0.1, 0.2], [math.nan, 0.0], [9.0, 0.0], [0.3, -0.2]], dtype=F64)
    right = net.decide(net(x[3:]))
    found = er.alone(net, x, domain=(-1, 1), labels=[0, 0, 0, 1 - int(right)])
    assert found.status[1:] == ("nonfinite", "error", "misclassified")
    assert all(found.message[1:]) and not bool(found.asked[1:].any())
    assert torch.equal(found.lower[2:], x[2:]) and torch.equal(found.upper[2:], x[2:])
    one = er.alone(net, x[0], domain=(-1, 1))
    assert len(one) == 1 and one.lower.shape == (1, 2)


def test_without_a_domain_lines_have_an_end() -> None:
    """And a feature that the network does not look at may go as far as is looked."""
    net = Network.chain(
        (2,), [ops.Linear(torch.tensor([[1e-6, 0.0], [-1e-6, 0.0]], dtype=F64), torch.tensor([1.0, 0.0]).double())]
    )
    found = er.alone(net, torch.tensor([[3.0, 5.0]]).double())
    true = -(1.0 / 2e-6)
    assert float(found.seen_lower[0, 0]) == pytest.approx(true, rel=0.011) and found.lower[0, 0] > true
    assert float(found.seen_upper[0, 0]) == math.inf and float(found.upper[0, 0]) == float(found.highest[0, 0])
    assert float(found.upper[0, 1]) == float(found.highest[0, 1]) > 1e6
    constant = Network.chain((1,), [ops.Linear(torch.zeros(2, 1).double(), torch.tensor([1.0, 0.0]).double())])
    assert float(er.alone(constant, torch.zeros(1, 1)).upper) == 1000


@pytest.mark.parametrize(
    "wrong", [{"share": 0.0}, {"share": math.nan}, {"effort": "lots"}, {"domain": 3}, {"labels": [5]}]
)
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    net = er.load(nn.Sequential(nn.Linear(2, 2)), input_shape=(2,))
    with pytest.raises(InputError):
        er.alone(net, torch.zeros(1, 2), **wrong)
