"""What must stay true of the outputs: odd arguments are one clear error, never a traceback nor another claim."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network

OUTPUTS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)


@pytest.mark.parametrize("tol", [0.5, [0.5, 0.25], np.array([0.5, 0.25]), torch.full((3, 2), 0.5), torch.ones(1, 2)])
def test_outputs_within(tol: Any) -> None:
    spec = er.outputs_within(OUTPUTS, tol)
    wide = torch.as_tensor(tol, dtype=torch.float64).expand(3, 2)
    assert torch.allclose(spec.margins(OUTPUTS), torch.cat([wide, wide], 1))
    assert bool((spec.margins(OUTPUTS + 0.99 * wide) > 0).all())
    assert bool((spec.margins(OUTPUTS - 1.01 * wide) < 0).any(1).all())


@pytest.mark.parametrize(
    ("tol", "words"),
    [
        ([0.1, 0.2, 0.3], r"one number, or one for each of the 2 outputs; got 3"),
        (torch.ones(2, 2), r"one number, or one for each of the 2 outputs; got shape \(2, 2\)"),
        (torch.ones(1, 3, 2), r"got shape \(1, 3, 2\)"),
        ([0.1, 0.0], "positive"),
        (-1.0, "positive"),
        (float("nan"), "positive"),
        (float("inf"), "finite"),
        ("much", "must be numbers"),
        ([[1.0], [1.0, 2.0]], "must be numbers"),
        (None, "must be numbers"),
    ],
)
def test_tolerances_that_are_refused(tol: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        er.outputs_within(OUTPUTS, tol)


def test_outputs_that_are_refused() -> None:
    for outputs in (torch.ones(3), torch.ones(1, 2, 3), "two"):
        with pytest.raises(InputError, match="outputs"):
            er.outputs_within(outputs, 0.1)


@pytest.mark.parametrize(
    ("rows", "offset", "words"),
    [
        (torch.ones(3), None, r"rows must have the shape \(t, k\) or \(b, t, k\), got \(3,\)"),
        (1.0, None, r"got \(\)"),
        (torch.ones(1, 1, 2, 3), None, r"got \(1, 1, 2, 3\)"),
        ("rows", None, "must be numbers"),
        ([[1.0], [1.0, 2.0]], None, "must be numbers"),
        (torch.zeros(0, 3), None, "nothing to prove"),
        (torch.ones(2, 3), torch.ones(3), "do not fit together"),
        (torch.ones(2, 3), 1.0, "do not fit together"),
        (torch.ones(2, 3), torch.ones(1, 1, 2), "do not fit together"),
        (torch.ones(4, 2, 3), torch.ones(3, 2), "do not fit together"),
        (torch.ones(2, 3), "none", "must be numbers"),
        (torch.full((2, 3), torch.nan), None, "finite"),
        (torch.ones(2, 3), torch.tensor([0.0, torch.inf]), "finite"),
    ],
)
def test_rows_that_are_refused(rows: Any, offset: float | str | Tensor | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        er.linear_specification(rows, offset)


def test_linear_rows() -> None:
    spec = er.linear_specification([[1.0, -1.0]], [0.5])
    assert spec.margins(OUTPUTS).tolist() == [[-0.5]] * 3
    each = er.linear_specification([[1.0, -1.0]], torch.tensor([[0.5], [2.0], [3.0]]))
    assert each.margins(OUTPUTS).tolist() == [[-0.5], [1.0], [2.0]]


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        ([], "not be empty"),
        ([0, 3], r"lie in 0\.\.2"),
        ([-1], r"lie in 0\.\.2"),
        ([0, 1, 2], "nothing to prove"),
        ([0.5], "whole numbers"),
        ([True, False, True], "whole numbers"),
        (torch.tensor([True, False, True]), "whole numbers"),
        ("01", "whole numbers"),
        ([[0], [1, 2]], "whole numbers"),
        (1, "whole numbers"),
        (None, "whole numbers"),
    ],
)
def test_sets_of_classes_that_are_refused(allowed: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        er.label_in(allowed, 3)


@pytest.mark.parametrize("allowed", [[2, 0], {0, 2}, np.array([0, 2]), torch.tensor([2, 0, 2])])
def test_a_set_of_classes(allowed: Any) -> None:
    outputs = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 1.0, 2.0]], dtype=torch.float64)
    assert (er.label_in(allowed, 3).margins(outputs) > 0).flatten().tolist() == [True, False, True]


def test_decisions_that_are_unknown() -> None:
    for make in (lambda: er.label_in([0], 3, "largest"), lambda: er.label_stays(torch.tensor([0]), 3, "largest")):
        with pytest.raises(InputError, match='decision must be "max" or "min"'):
            make()


@pytest.mark.parametrize("labels", [torch.tensor([[0]]), torch.tensor([0.5]), torch.tensor([True]), [0], "a"])
def test_labels_that_are_refused(labels: list[int] | str | Tensor) -> None:
    with pytest.raises(InputError, match="labels must be"):
        er.label_stays(labels, 3)


@pytest.mark.parametrize("decision", ["max", "min"])
@pytest.mark.parametrize("make", [lambda d: er.label_in([0], 2, d), lambda d: er.label_stays(torch.tensor([0]), 2, d)])
def test_specifications_about_decisions_are_for_networks_that_decide_so(
    decision: str, make: Callable[..., Any]
) -> None:
    """By the smallest output, "the label stays in T" is the reverse of what it is by the largest."""
    net = Network.chain((2,), [ops.Linear(torch.eye(2))], decision)
    x = torch.tensor([[3.0, 1.0]]) if decision == "max" else torch.tensor([[1.0, 3.0]])
    other = {"max": "min", "min": "max"}[decision]
    assert er.certify(net, x, spec=make(decision)).certified.all()
    assert er.verify(net, x, x, spec=make(decision))
    for wrong in (make(other), make(other).cast(torch.float32, "cpu"), make(other).part(torch.tensor([0]))):
        for ask in (lambda spec: er.certify(net, x, spec=spec), lambda spec: er.verify(net, x, x, spec=spec)):
            with pytest.raises(InputError, match=f'make it with decision="{decision}"'):
                ask(wrong)


def test_specifications_about_outputs_are_for_all_networks() -> None:
    for decision in ("max", "min"):
        net = Network.chain((2,), [ops.Linear(torch.eye(2))], decision)
        x = torch.tensor([[3.0, 1.0]])
        for spec in (er.outputs_within(net(x), 0.5), er.linear_specification([[1.0, 0.0]])):
            assert spec.decision is None and er.certify(net, x, spec=spec).certified.all()
