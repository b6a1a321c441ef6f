"""Where margins end along a ray: smooth ones in a few evaluations, steep and jumping ones all the same."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.claim.space import Space
from elbowroom.search.solvers.boundary import to_boundary
from elbowroom.search.solvers.problem import Problem, Work

Margin = Callable[[Tensor], Tensor]


def problem(*margins: Margin, inputs: int = 1) -> Problem:
    """Margins as functions of the only extent of a box, around zero."""
    one = torch.ones(inputs, 1, dtype=torch.float64)
    space = Space(-torch.inf * one, torch.inf * one, 1e3 * one, one.bool(), one)
    region = er.Box().place(0 * one, space, (1,), torch.float64)

    def evaluate(inputs: Any, index: Any) -> Tensor:
        t = inputs.radius.flatten(1)
        return torch.cat([f(t) for f in margins], 1)

    at_input = torch.cat([f(0 * one) for f in margins], 1)
    return Problem(region, evaluate, torch.arange(inputs), at_input, Work.none(inputs))


def jump(end: float, to: float) -> Margin:
    return lambda t: torch.where(t <= end, 1.0, to)


ENDS = (0.05, 0.3, 0.7, 3.0, 30.0)
STEEP: list[tuple[str, Callable[[float], Margin]]] = [
    ("power 8", lambda end: lambda t: 1 - (t / end) ** 8),
    ("power 16", lambda end: lambda t: 1 - (t / end) ** 16),
    ("exponential", lambda end: lambda t: 1 - torch.expm1(20 * t / end) / math.expm1(20)),
    ("jump", lambda end: jump(end, -1.0)),
    ("far jump", lambda end: jump(end, -1e30)),
    ("no number", lambda end: jump(end, math.nan)),
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", range(len(STEEP)), ids=[name for name, _ in STEEP])
def test_steep_and_jumping_margins(kind: int, end: float) -> None:
    given = problem(STEEP[kind][1](end))
    found = to_boundary(given, torch.ones(1, 1, dtype=torch.float64), tolerance=1e-3)
    assert 0.998 * end <= float(found.low) <= end
    assert int(given.work.evaluations) <= 30


@pytest.mark.parametrize("end", ENDS)
def test_smooth_margins_take_few_evaluations(end: float) -> None:
    curved: Margin = lambda t: 1 - 0.6 * (t / end) - 0.4 * (t / end) ** 2  # noqa: E731
    other: Margin = lambda t: 1.5 - 1.4 * (t / end)  # noqa: E731
    given = problem(curved, other)
    found = to_boundary(given, torch.full((1, 1), 0.8 * end, dtype=torch.float64), tolerance=1e-4)
    assert 0.9998 * end <= 0.8 * end * float(found.low) <= end
    assert int(given.work.evaluations) <= 4


def test_the_margin_that_binds_changes() -> None:
    """The smallest margin has a kink at 0.5; each alone is a line."""
    given = problem(lambda t: 1 - 0.2 * t, lambda t: 2 - 2.5 * t)
    found = to_boundary(given, torch.full((1, 1), 0.4, dtype=torch.float64), tolerance=1e-4)
    assert 0.9998 * 0.8 <= 0.4 * float(found.low) <= 0.8
    assert int(given.work.evaluations) <= 3


@pytest.mark.parametrize("power", [1, 1.5, 2, 3, 5])
@pytest.mark.parametrize("end", [0.01, 0.05, 0.3, 3.0])
def test_powers_take_three_points(end: float, power: float) -> None:
    """However far beyond the first one lies: two of them say by which power what is lost grows."""
    given = problem(lambda t: 2 - 2 * (t / end) ** power, lambda t: 3 - 2 * (t / end) ** power)
    found = to_boundary(given, torch.ones(1, 1, dtype=torch.float64), tolerance=1e-4)
    assert 0.9998 * end <= float(found.low) <= end
    assert int(given.work.evaluations) <= 3


def test_where_to_start_and_by_which_power() -> None:
    power = torch.tensor([[2.0]], dtype=torch.float64)
    given = problem(lambda t: 1 - (t / 0.3) ** 2)
    found = to_boundary(given, torch.ones(1, 1, dtype=torch.float64), power=power, start=torch.tensor([0.2]))
    assert 0.998 * 0.3 <= float(found.low) <= 0.3
    assert int(given.work.evaluations) <= 2


def test_who_is_done_waits_for_nobody() -> None:
    """Of two rays, one has a rough end at once; the other has a jump, which is looked for long after that."""

    def margin(t: Tensor) -> Tensor:
        return torch.where(t < 2, 1 - 0.99 * t, torch.where(t <= 123, 1.0, -1e4))

    given = problem(margin, inputs=2)
    theta = torch.tensor([[1.0], [1000.0]], dtype=torch.float64)
    found = to_boundary(given, theta, tolerance=1e-3, roughly=0.03)
    assert given.work.evaluations.tolist()[0] == 1 and given.work.evaluations.tolist()[1] > 6
    assert float(found.end[0]) == pytest.approx(1 / 0.99) and not found.met[0]
    assert float(found.low[1]) == pytest.approx(0.123, rel=1e-3) and found.met[1]
