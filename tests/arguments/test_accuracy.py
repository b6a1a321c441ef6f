"""When an accuracy is hardly more than chance, and that it is said."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.stats import binom

import elbowroom as er
from elbowroom.arguments.accuracy import Accuracy, _at_least
from support import mlp


def of(right: int, count: int, k: int) -> Accuracy:
    """Labels and decisions spread evenly over the classes, the first ones right."""
    labels = np.arange(count) % k
    decided = np.where(np.arange(count) < right, labels, (labels + 1) % k)
    return Accuracy.of(decided, labels, k)


@pytest.mark.parametrize(("right", "count", "k", "warned"), [
    (0, 20, 2, True), (0, 20, 10, True), (10, 20, 2, True), (20, 20, 2, False), (2, 20, 10, True), (6, 20, 10, False),
    (12, 20, 2, True), (15, 20, 2, False), (520, 1000, 2, True), (600, 1000, 2, False), (0, 9, 2, False),
    (0, 10, 2, True), (8, 10, 2, False), (5, 1000, 1000, True), (200, 1000, 1000, False),
])  # fmt: skip
def test_near_chance(right: int, count: int, k: int, warned: bool) -> None:
    found = of(right, count, k)
    assert (found.right, found.count) == (right, count) and found.near_chance == warned


def test_a_network_that_always_says_the_same() -> None:
    labels = np.array([0] * 16 + [1] * 4)
    assert Accuracy.of(np.zeros(20, int), labels, 2).near_chance  # 16 of 20 right, and worth nothing
    assert not Accuracy.of(labels, labels, 2).near_chance
    assert not Accuracy.of(np.zeros(20, int), np.zeros(20, int), 2).near_chance  # one class alone was chosen
    rare = np.array([0] * 19 + [1])
    assert not Accuracy.of(rare, rare, 2).near_chance


@given(st.integers(0, 300), st.integers(1, 300), st.integers(2, 50))
def test_the_binomial_tail(right: int, count: int, k: int) -> None:
    right = min(right, count)
    assert _at_least(right, count, 1 / k) == pytest.approx(binom.sf(right - 1, count, 1 / k), rel=1e-9, abs=1e-300)


def test_it_is_said_in_python() -> None:
    rng = np.random.default_rng(0)
    net, x = mlp(rng, [2, 12, 3]), rng.uniform(-1, 1, (12, 2))
    labels = net.decide(net(x)).numpy()
    er.certify(net, x, labels)
    wrong = (labels + 1) % 3
    with pytest.warns(er.DataWarning, match=r"gets only 0 of 12 right, hardly more than by chance.*order of the feat"):
        er.certify(net, x, wrong)
    er.certify(net, x[:9], wrong[:9])
    holes = x.copy()
    holes[3:, 0] = np.nan
    er.certify(net, holes, wrong)  # of three inputs nothing is concluded
