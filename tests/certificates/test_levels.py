"""Levels in words: none is named that was not proved, and none could be taken for another."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import elbowroom as er
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Graph, Network
from elbowroom.network.levels import levels_of, listed, named, words
from elbowroom.network.table import Column, Table


def network(column: Column, weight: float = 1.0, bias: float = 1.0) -> Network:
    """The second class where `max(0, weight * code + bias)` plus an eighth of the number `n` is above a half."""
    table = Table((Column("n"), column))
    graph = Graph((table.width,))
    first = torch.zeros(2, table.width).double()
    first[0, 1], first[1, 0] = weight, 1.0
    at = graph.add(ops.ReLU(), graph.add(ops.Linear(first, torch.tensor([bias, 0.0]).double()), graph.input))
    graph.add(ops.Linear(torch.tensor([[0.0, 0.0], [1.0, 0.125]]).double(), torch.tensor([0.0, -0.5]).double()), at)
    return graph.network(about=About(features=table.entries, table=table))


def ordinal(levels: tuple[str | None, ...], codes: tuple[float, ...], unknown: float | None = None) -> Column:
    return Column("c", levels, tuple((code,) for code in codes), None if unknown is None else (unknown,))


def test_codes_that_are_alike_in_float32_are_told_apart() -> None:
    column = ordinal(("a", "b"), (2.0**24, 2.0**24 + 1))
    assert words(column, [2.0**24]) == "a" and words(column, [2.0**24 + 1]) == "b"
    assert levels_of(ordinal(("a", "b"), (0.1, 0.5)), [float(torch.tensor(0.1))]) == ["a"]  # rounded, and of no other
    net = network(column)
    x = torch.tensor([[0.5, 2.0**24]]).double()
    certs = er.certify(net, x, region=er.Ellipsoid(), max_eps=0.1)
    assert certs.status == ("certified",) and certs.to_frame()["levels"].tolist() == ["", "a"]


def test_a_level_is_not_taken_for_a_missing_value_or_for_others() -> None:
    column = ordinal(("missing", None, "none of the levels"), (0.0, 1.0, 2.0), 9.0)
    assert named(column, [True] * 4) == ["'missing'", "missing", "'none of the levels'", "none of the levels"]
    assert named(ordinal(("missing", "b"), (0.0, 1.0)), [True, False]) == ["missing"]


def test_a_level_with_a_comma_is_one() -> None:
    assert listed(["red, blue", "green"], ", ") == "'red, blue', green"
    assert listed(["color", "x or y"], " or ") == "color or 'x or y'"
    assert listed(["red, blue"], ", ") == "red, blue"
    column = ordinal(("red", "blue", "red, blue", "a|b"), (-9.0, -9.0, 1.0, 1.0))
    certs = er.certify(network(column), torch.tensor([[0.5, 1.0]]).double(), max_eps=0.1)
    row = certs.to_frame().iloc[1]
    assert row["note"] == "any of 'red, blue', a|b" and row["levels"] == "red, blue | 'a|b'"


def test_levels_under_other_names_are_refused() -> None:
    """The same codes: `check` with the model finds that a run calls them otherwise."""
    net = network(ordinal(("a", "b"), (1.0, -5.0)))
    certs = er.certify(net, torch.tensor([[0.5, 1.0]]).double(), max_eps=0.1)
    other = Table((Column("n"), ordinal(("b", "a"), (1.0, -5.0))))
    forged = Network(net.nodes, net.decision, dataclasses.replace(net.about, table=other))
    assert bool(er.check(certs, net))
    with pytest.raises(er.InputError, match="call the levels"):
        er.check(dataclasses.replace(certs, network=forged), net)
    held = er.certify(net, torch.tensor([[0.5, 1.0]]).double(), max_eps=0.1, region=er.Ellipsoid())
    with pytest.raises(er.InputError, match="call the levels"):
        er.check(dataclasses.replace(held, network=forged), net)


def test_a_network_in_float32_is_not_given_codes_that_float32_cannot_hold() -> None:
    net = network(ordinal(("a", "b", "c"), (0.5, 0.1, 2.0)))
    x = torch.tensor([[0.5, 0.5]]).double()
    plain = er.certify(net, x, max_eps=0.1)
    assert plain.allowed.tolist() == [[True, True, True]]
    certs = er.certify(net, x, max_eps=0.1, deployed="float32")
    assert certs.status == ("certified",) and certs.allowed.tolist() == [[True, False, True]] and bool(er.check(certs))
    assert not bool(er.check(plain, net, deployed="float32"))
