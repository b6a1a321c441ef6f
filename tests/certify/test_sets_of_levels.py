"""Regions with sets of categories: brute force over all levels, maximality, files, and what is held."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import elbowroom as er
from elbowroom.certificates.store import Run
from elbowroom.claim.categories import Categories
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Graph, Network
from elbowroom.network.table import Column, Table
from elbowroom.runs.one_input import one_input
from support import cases

LEVELS = ("a", "b", "c", "d")


def table(numbers: int = 2) -> Table:
    one_hot = tuple(tuple(map(float, row)) for row in torch.eye(4).tolist())
    dropped = tuple(row[1:] for row in one_hot[:3])
    dropped = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    return Table(
        (
            *(Column(f"n{k}") for k in range(numbers)),
            Column("job", LEVELS, one_hot, unknown=(0.0,) * 4),
            Column("kind", ("x", "y", "z"), dropped),
            Column("size", (1.0, 2.0, 3.0), ((0.0,), (1.0,), (2.0,))),
        )
    )


def network(seed: int, numbers: int = 2, hidden: int = 12, outputs: int = 3) -> Network:
    torch.manual_seed(seed)
    own = table(numbers)
    graph = Graph((own.width,))
    at = graph.add(ops.Linear(torch.randn(hidden, own.width).double(), torch.randn(hidden).double()), graph.input)
    at = graph.add(ops.ReLU(), at)
    graph.add(ops.Linear(torch.randn(outputs, hidden).double(), torch.randn(outputs).double()), at)
    return graph.network(about=About(features=own.entries, table=own))


def inputs(seed: int, count: int, numbers: int = 2) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    categories = Categories.of(table(numbers))
    assert categories is not None
    x = torch.randn(count, table(numbers).width, generator=draw).double()
    for one in categories.each:
        x[:, one.entries] = one.codes[torch.randint(len(one.codes), (count,), generator=draw)]
    return x


def points(certs: er.Certificates, row: int, draw: torch.Generator) -> Tensor:
    """Every combination of levels that is allowed, at random numbers and corners."""
    categories = Categories.of(certs.network.about.table)
    assert categories is not None and certs.allowed is not None
    lower, upper = certs.lower[row], certs.upper[row]
    choices = [one.codes[certs.allowed[row, place]].tolist() for one, place in categories]
    found = []
    for codes in itertools.product(*choices):
        share = torch.rand(12, len(lower), generator=draw).double()
        share[6:] = share[6:].round()
        x = lower + share * (upper - lower)
        for one, code in zip(categories.each, codes):
            x[:, one.entries] = torch.tensor(code, dtype=torch.float64)
        found.append(x)
    return torch.cat(found)


def attack(net: Network, certs: er.Certificates, seed: int) -> int:
    """How many certificates hold at every combination of levels; fails where one does not."""
    draw = torch.Generator().manual_seed(seed)
    good = certs.certified.nonzero().squeeze(1).tolist()
    for k in good:
        assert bool((net.decide(net(points(certs, k, draw))) == certs.labels[k]).all())
    return len(good)


@pytest.mark.parametrize("options", [{}, {"region": er.Box(asymmetric=True)}, {"region": er.Uniform()}, {"effort": 30}])
@given(seed=st.integers(0, 10**6))
@cases(0.05)
def test_no_combination_of_levels_changes_the_decision(options: dict[str, Any], seed: int) -> None:
    net, x = network(seed), inputs(seed, 4)
    certs = er.certify(net, x, **options)
    attack(net, certs, seed)
    assert bool(er.check(certs, net).passed[certs.certified].all())
    if bool(certs.certified.any()):
        assert bool((certs.allowed.sum(1) >= 3)[certs.certified].all()) and bool(certs.maximal[certs.certified].all())


def test_sets_grow_and_are_maximal() -> None:
    """More levels than the inputs' own; and no further one can be proved with the region as it is."""
    grown = total = 0
    for seed in range(3):
        net, x = network(seed), inputs(seed, 8)
        certs = er.certify(net, x)
        assert certs.allowed is not None and bool(er.check(certs, net).passed[certs.certified].all())
        categories = Categories.of(net.about.table)
        assert categories is not None
        for k in certs.certified.nonzero().squeeze(1).tolist():
            own = int(categories.sets_of(x[k : k + 1]).sum())
            grown += int(certs.allowed[k].sum()) > own
            total += 1
            for level in (~certs.allowed[k]).nonzero().squeeze(1).tolist():
                more = certs.allowed[k : k + 1].clone()
                more[0, level] = True
                lower, upper = categories.hull(more, certs.lower[k : k + 1], certs.upper[k : k + 1])
                one = dataclasses.replace(certs.rows(k, k + 1), allowed=more, lower=lower, upper=upper)
                assert not bool(er.check(one, net).passed.any())
    assert grown > 0.25 * total > 5


def test_frozen_categories_stay_as_they_are() -> None:
    net, x = network(1), inputs(1, 6)
    certs = er.certify(net, x, frozen=["job", "size"])
    categories = Categories.of(net.about.table)
    assert categories is not None and certs.allowed is not None
    job, kind, size = categories.places
    own = categories.sets_of(x)
    good = certs.certified
    assert bool((certs.allowed[good][:, job] == own[good][:, job]).all())
    assert bool((certs.allowed[good][:, size] == own[good][:, size]).all())
    assert bool((certs.allowed[good][:, kind].sum(1) > own[good][:, kind].sum(1)).any())


def test_weights_say_what_a_level_is_worth() -> None:
    net, x = network(3), inputs(3, 10)
    categories = Categories.of(net.about.table)
    assert categories is not None
    counts = []
    for weight in (0.01, 100.0):
        certs = er.certify(net, x, importance={"job": weight, "kind": weight, "size": weight})
        counts.append(int(certs.allowed[certs.certified].sum()))
    assert counts[1] > counts[0]


def test_files_keep_sets_and_forged_ones_fail(tmp_path: Path) -> None:
    net, x = network(5), inputs(5, 6)
    certs = er.certify(net, x)
    certs.save(tmp_path / "run")
    again = er.Certificates.load(tmp_path / "run")
    assert torch.equal(again.allowed, certs.allowed) and bool(er.check(again))
    everything = torch.ones_like(certs.allowed)
    categories = Categories.of(net.about.table)
    assert categories is not None
    lower, upper = categories.hull(everything, certs.lower, certs.upper)
    for change in (
        {"allowed": everything},
        {"allowed": everything, "lower": lower, "upper": upper},
        {"allowed": torch.zeros_like(everything)},
        {"allowed": certs.allowed.roll(1, 1)},
        {"lower": lower},
    ):
        report = er.check(dataclasses.replace(certs, **change), net)
        wrong = (dataclasses.replace(certs, **change).allowed != certs.allowed).any(1) | (len(change) == 1)
        wrong = wrong & certs.certified
        assert not bool(report.passed[wrong & ~_same(certs, change)].any())


def _same(certs: er.Certificates, change: dict[str, Tensor]) -> Tensor:
    """Certificates that a change leaves as they are, or that have all levels in truth."""
    same = torch.ones(len(certs), dtype=torch.bool)
    for name, value in change.items():
        same &= (value == getattr(certs, name)).flatten(1).all(1)
    return same | certs.allowed.all(1)


def test_a_region_without_the_inputs_own_level_is_none_of_its() -> None:
    """What is left of it is true, and not around the input."""
    tried = 0
    for seed in range(3):
        net, x = network(seed), inputs(seed, 8)
        certs, categories = er.certify(net, x), Categories.of(net.about.table)
        assert certs.allowed is not None and categories is not None
        own = categories.sets_of(x)
        for k in certs.certified.nonzero().squeeze(1).tolist():
            for _, place in categories:
                left = certs.allowed[k : k + 1].clone()
                left[:, place] &= ~own[k : k + 1, place]
                if not bool(left[:, place].any()):
                    continue
                lower, upper = categories.hull(left, certs.lower[k : k + 1], certs.upper[k : k + 1])
                one = dataclasses.replace(certs.rows(k, k + 1), allowed=left, lower=lower, upper=upper)
                report = er.check(one, net)
                assert not bool(report.passed.any()) and "own level" in report.message[0]
                tried += 1
    assert tried > 5


def test_a_network_with_other_codes_is_refused() -> None:
    net, x = network(5), inputs(5, 3)
    certs = er.certify(net, x)
    columns = list(net.about.table.columns)
    columns[-1] = dataclasses.replace(columns[-1], codes=((0.0,), (1.0,), (5.0,)))
    about = dataclasses.replace(net.about, table=Table(tuple(columns)))
    other = Network(net.nodes, net.decision, about)
    with pytest.raises(er.InputError, match="codes"):
        er.check(certs, other)
    bare = Network(net.nodes, net.decision, dataclasses.replace(net.about, table=None))  # whose corners would be ranges
    with pytest.raises(er.InputError, match="codes"):
        er.check(dataclasses.replace(certs, network=bare), net)


def test_an_input_that_is_no_level_is_an_error() -> None:
    net, x = network(2), inputs(2, 2)
    x[0, 2:6] = 0.5
    certs = er.certify(net, x)
    assert certs.status[0] == "error" and "level" in certs.message[0]


def test_other_shapes_hold_categories() -> None:
    net, x = network(4), inputs(4, 4)
    certs = er.certify(net, x, region=er.Ellipsoid())
    assert certs.allowed is None and bool(er.check(certs, net).passed[certs.certified].all())


def test_counterexamples_are_those_of_the_inputs_own_levels() -> None:
    net, x = network(6), inputs(6, 4)
    certs = er.certify(net, x, reach=True)
    good = certs.certified & certs.reach.isfinite()
    assert bool(good.any()) and bool(er.check(certs, net).passed[certs.certified].all())
    moves = torch.from_numpy(net.about.table.moves)
    assert bool((certs.seen[good][:, ~moves] == x[good][:, ~moves]).all())


def test_explanations_hold_categories(tmp_path: Path) -> None:
    """The ends of codes may be those of the domain while levels between are not allowed: then nothing is free."""
    net, x = network(6), inputs(6, 8)
    categories = Categories.of(net.about.table)
    assert categories is not None
    x[:, :2] *= 0.05
    domain = {"n0": (-0.2, 0.2), "n1": (-0.2, 0.2), "job": (0, 1), "kind": (0, 1), "size": (0, 2)}
    certs = er.certify(net, x, objective="free", domain=domain)
    good = certs.certified
    assert bool(good.any()) and bool((certs.allowed[good] == categories.sets_of(x)[good]).all())
    ends = torch.tensor([True, False, True])
    allowed = certs.allowed.clone()
    allowed[good, categories.places[-1]] = ends
    lower, upper = categories.hull(allowed, certs.lower, certs.upper)
    dataclasses.replace(certs, allowed=allowed, lower=lower, upper=upper).save(tmp_path / "run")
    found = one_input(Run.open(tmp_path / "run"), int(good.nonzero()[0]))
    states = {f["feature"]: f["state"] for f in found["features"]}
    assert {states[name] for name in ("job", "kind", "size")} == {"frozen"}
