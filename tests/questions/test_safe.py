"""Given accuracies: what is called safe is attacked, what is called unsafe has a counterexample within them."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network
from elbowroom.network.table import Column, Table
from elbowroom.questions.accuracies import parse
from support import cases, mlp, normal

F64 = torch.float64


def attack(net: Network, found: er.Safety, labels: torch.Tensor, count: int = 300) -> None:
    """Corners and random points of the boxes that are called safe; counterexamples of those that are not."""
    rng = torch.Generator().manual_seed(0)
    for i, status in enumerate(found.status):
        example = found.counterexamples[i]
        if status == "safe":
            share = torch.rand(count, *found.lower.shape[1:], generator=rng, dtype=F64)
            share[::2] = share[::2].round()
            points = found.lower[i] + share * (found.upper[i] - found.lower[i])
            assert bool((net.decide(net(points)) == labels[i]).all())
        elif status == "unsafe":
            assert bool(((found.lower[i] <= example) & (example <= found.upper[i])).all())
            assert int(net.decide(net(example[None]))) != int(labels[i])
        assert (status == "unsafe") == bool(example.isfinite().all())


@cases(0.15)
@given(seed=st.integers(0, 10**6), size=st.floats(0.01, 1.0), effort=st.sampled_from(["fast", 2, "medium"]))
def test_answers_are_true(seed: int, size: float, effort: Any) -> None:
    rng = np.random.default_rng(seed)
    net = mlp(rng, [3, 10, 10, 3], [ops.ReLU(), ops.Tanh()][seed % 2])
    x = normal(rng, 6, 3)
    accuracy = size * torch.from_numpy(rng.uniform(0, 1, 3)).round(decimals=1)
    found = er.safe_share(net, x, accuracy, effort=effort, domain=(-2.5, 2.5) if seed % 3 else None)
    asked = [k for k, s in enumerate(found.status) if s in ("safe", "unsafe", "unknown")]
    attack(net, found, net.decide(net(x)))
    assert sum(found.counts.values()) == 6 and sum(found.shares.values()) == pytest.approx(1)
    # What is said of single features fits what is said of all: exact ones never make an input less safe.
    for sensor in found.sensors:
        for counts in (sensor.exact, sensor.only):
            assert sum(counts.values()) == len(asked)
            assert counts["safe"] >= found.counts["safe"] and counts["unsafe"] <= found.counts["unsafe"]
    gains = [s.exact["safe"] for s in found.sensors]
    assert gains == sorted(gains, reverse=True)
    assert {s.feature for s in found.sensors} == set((accuracy > 0).nonzero().flatten().tolist())
    # The boxes that are safe are certificates like others.
    certs = found.certificates
    report = er.check(certs)
    assert certs.certified.tolist() == [s == "safe" for s in found.status] == report.passed.tolist()


def test_certificates_with_trees_are_saved_and_proved_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    net = mlp(rng, [3, 30, 30, 3], gain=2.0)
    x = normal(rng, 30, 3)
    fast = er.safe_share(net, x, 0.25, effort="fast", ranking=False)
    found = er.safe_share(net, x, 0.25, effort="high", ranking=False)
    assert found.counts["safe"] > fast.counts["safe"] and found.counts["unknown"] == 0 and not found.sensors
    run = found.certificates.save(tmp_path / "run")
    again = er.Certificates.load(run)
    assert any(len(t) for t in again.trees) and torch.equal(again.lower, found.certificates.lower)
    assert int(er.check(again).passed.sum()) == found.counts["safe"]
    forged = dataclasses.replace(again, status=("certified",) * 30, lower=found.lower, upper=found.upper)
    assert int(er.check(forged).passed.sum()) <= found.counts["safe"]
    assert "30 inputs" in repr(found) and "safe" in repr(found)


def test_boxes_hold_exactly_what_was_said() -> None:
    """Rounded outwards by an ulp at most, and not at all where float64 holds the ends; counterexamples inside."""
    x = torch.tensor([[0.1, 3.0, -7.3, 1e17, 0.0]], dtype=F64)
    net = mlp(np.random.default_rng(0), [5, 4, 2])
    said = {0: "0.3", 1: "1", 2: "2%", 3: "3", 4: "5 %"}
    found = er.safe_share(net, x, said, ranking=False)
    exact = [Fraction(3, 10), Fraction(1), Fraction(-x[0, 2].item()) / 50, Fraction(3), Fraction(0)]
    for k, size in enumerate(exact):
        value, low, high = Fraction(x[0, k].item()), found.lower[0, k].item(), found.upper[0, k].item()
        assert Fraction(low) <= value - size and Fraction(high) >= value + size
        steps = 3 if k == 2 else 2
        near = [low, high]
        for _ in range(steps):
            near = [math.nextafter(near[0], math.inf), math.nextafter(near[1], -math.inf)]
        assert Fraction(near[0]) >= value - size and Fraction(near[1]) <= value + size
    assert (found.lower[0, 1], found.upper[0, 1]) == (2, 4) and found.lower[0, 4] == found.upper[0, 4] == 0


def test_a_counterexample_lies_within_what_was_said_not_within_its_rounding() -> None:
    """The decision changes at 1.3 + 2^-52 or so; 0.3 in float64 is less than 0.3, and the box reaches beyond."""
    for said in ("0.3", "30%"):
        edge = Fraction(13, 10)
        border = float(edge)
        border = border if Fraction(border) >= edge else math.nextafter(border, 2)  # the first number not below 1.3
        # Positive margin below the border, negative from it on.
        weight = torch.tensor([[-1.0], [0.0]], dtype=F64)
        net = Network.chain((1,), [ops.Linear(weight, torch.tensor([border, 0.0], dtype=F64))])
        found = er.safe_share(net, torch.ones(1, 1), said, ranking=True, effort=4)
        assert found.status in (("unknown",), ("safe",))
        if found.status == ("unsafe",):
            assert Fraction(found.counterexamples[0, 0].item()) <= edge


@pytest.mark.parametrize(
    ("accuracy", "wanted"),
    [
        (0.5, [0.5, 0.5]), ("0.5", [0.5, 0.5]), ({"a": 0.25}, [0.25, 0]), ({"*": 1, "b": 0}, [1, 0]),
        ({0: "25%", "b": "10% of range"}, [0.5, 0.4]), (np.array([0.1, 0.2]), [0.1, 0.2]), ("±0.5", [0.5, 0.5]),
        ([0.1, 0.2], [0.1, 0.2]), ({"a": "+/- 1/4"}, [0.25, 0]), ({"b": "50% of the value"}, [0, 0.5]), (0, [0, 0]),
        (math.inf, [math.inf, math.inf]), ({"a": "inf"}, [math.inf, 0]),
    ],
)  # fmt: skip
def test_ways_to_say_it(accuracy: Any, wanted: list[float]) -> None:
    net = mlp(np.random.default_rng(0), [2, 4, 2])
    net = er.Network(net.nodes, net.decision, About(features=("a", "b")))
    found = er.safe_share(net, torch.tensor([[2.0, 1.0]], dtype=F64), accuracy, domain=(-1.0, 3.0))
    torch.testing.assert_close(found.extents, torch.tensor([wanted], dtype=F64))
    assert bool((found.lower >= -1).all() and (found.upper <= 3).all())


@pytest.mark.parametrize(
    ("accuracy", "message"),
    [
        (-1, "an accuracy is"), (math.nan, "an accuracy is"), ("two", "an accuracy is"), ("-1", "an accuracy is"),
        ({"c": 1}, "no feature 'c'"), ({"a": 1, 0: 2}, "twice"), ({}, "no accuracy"), ([1, 2, 3], "does not fit"),
        (True, "an accuracy is"), ({"a": None}, "an accuracy is"), ("1e999", "an accuracy is"),
        ("1%%", "an accuracy is"),
        ("5% of range", "give `domain`"), (math.inf, "finite"), ([-1.0, 0], "negative"), ([math.nan, 0], "negative"),
        ("1/0", "an accuracy is"), ({"a": "inf%"}, "an accuracy is"), (None, "numbers"), (1e308, "finite"),
    ],
)  # fmt: skip
def test_accuracies_that_are_refused(accuracy: Any, message: str) -> None:
    net = mlp(np.random.default_rng(0), [2, 4, 2])
    net = er.Network(net.nodes, net.decision, About(features=("a", "b")))
    with pytest.raises(InputError, match=message):
        er.safe_share(net, torch.tensor([[2.0, 1e308]], dtype=F64), accuracy)


def test_numbers_are_read_exactly() -> None:
    assert parse("0.1").least < Fraction(1, 10) < parse("0.1").most and parse("0.25").least == parse("0.25").most
    assert parse("2%").of == "value" and parse("2 % of range").of == "range"


def test_categories_are_exact() -> None:
    net = mlp(np.random.default_rng(0), [3, 8, 2])
    columns = (Column("age"), Column("job", ("a", "b"), ((1.0, 0.0), (0.0, 1.0))))
    net = er.Network(net.nodes, net.decision, About(features=("age", "job=a", "job=b"), table=Table(columns)))
    x = torch.tensor([[0.3, 1.0, 0.0]], dtype=F64)
    found = er.safe_share(net, x, 0.1)
    assert found.extents.tolist() == [[0.1, 0.0, 0.0]] and torch.equal(found.lower[:, 1:], x[:, 1:])
    for accuracy in ({"job=a": 0.1}, [0.1, 0.1, 0.0]):
        with pytest.raises(InputError, match="'job=a' cannot move"):
            er.safe_share(net, x, accuracy)


def test_inputs_about_which_nothing_can_be_asked_and_exact_ones() -> None:
    net = mlp(np.random.default_rng(0), [2, 8, 2])
    x = torch.tensor([[0.1, 0.2], [math.nan, 0.0], [9.0, 0.0], [0.3, -0.2]], dtype=F64)
    right = net.decide(net(x[3:]))
    own = int(net.decide(net(x[:1])))
    found = er.safe_share(net, x, 0.0, domain=(-1, 1), labels=[own, 0, 0, 1 - int(right)])
    assert found.status == ("safe", "nonfinite", "error", "misclassified") and found.counts["unknown"] == 0
    assert found.certificates.status == ("certified", "nonfinite", "error", "misclassified")
    assert er.check(found.certificates).passed.tolist() == [True, False, False, False]
    none = er.safe_share(net, x[1:2], 0.1)
    assert none.status == ("nonfinite",) and not any(s.exact["safe"] for s in none.sensors)


def test_a_regression() -> None:
    rng = np.random.default_rng(3)
    net = mlp(rng, [4, 10, 1])
    x = normal(rng, 8, 4)
    found = er.safe_share(net, x, 0.2, spec=er.outputs_within(net(x), 0.3))
    assert found.counts["safe"] and found.counts["unsafe"]
    for i, status in enumerate(found.status):
        if status == "unsafe":
            assert abs(float(net(found.counterexamples[i][None]) - net(x[i][None]))) >= 0.3
    assert int(er.check(found.certificates).passed.sum()) == found.counts["safe"]
    assert bool((found.certificates.labels == -1).all())


def test_images() -> None:
    net = Network.chain((1, 3, 3), [
        ops.Conv(normal(np.random.default_rng(1), 2, 1, 2, 2), None, (1, 1), (0, 0)), ops.ReLU(), ops.Reshape((8,)),
        ops.Linear(normal(np.random.default_rng(2), 3, 8), None)])  # fmt: skip
    x = torch.rand(3, 1, 3, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    found = er.safe_share(net, x, 0.02, domain=(0, 1))
    assert found.lower.shape == x.shape and len(found.sensors) == 9
    attack(net, found, net.decide(net(x)))
