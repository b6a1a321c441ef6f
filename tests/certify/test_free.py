"""Features that may take any value: against exact answers, a complete verifier, points, and forgers."""

from __future__ import annotations

import dataclasses
import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from commands import run
from elbowroom.certificates.result import FIXED, NEEDED, UNDECIDED
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.readers.onnx.write import write_onnx
from search.test_linear_classifiers import classifier
from support import mlp
from vnnlib.complete import Query, Verifier


def explained(net: Network, x: Any, **told: Any) -> er.Certificates:
    return er.certify(net, x, **{"domain": (-1, 1), "objective": "free", **told})


def small(seed: int, n: int = 5) -> tuple[Network, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return mlp(rng, [n, 10, 10, 3], ops.ReLU()), torch.from_numpy(rng.uniform(-1, 1, (4, n)))


def free_of(certs: er.Certificates) -> torch.Tensor:
    assert certs.lower is not None and certs.upper is not None
    return (certs.lower == -1) & (certs.upper == 1)


def test_domains_that_are_declared() -> None:
    """They are the domain, also of a table, whose features may else move by no more than the range of their data."""
    net = Network.chain((2,), [ops.Linear(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double())])
    x = np.random.default_rng(1).uniform(-0.5, 0.5, (12, net.n_inputs))
    kinds = {f"feature {k}": {"domain": [-1, 1]} for k in range(net.n_inputs)}
    certs, same = explained(net, x, domain=None, features=kinds), explained(net, x)
    assert certs.status == same.status and torch.equal(free_of(certs), free_of(same)) and bool(free_of(same).any())


@pytest.mark.parametrize(("n", "classes"), [(1, 2), (2, 3), (6, 3), (30, 5)])
def test_linear_classifiers_have_nothing_undecided(n: int, classes: int) -> None:
    """Bounds are exact there: what is free is so in exact arithmetic, and what is kept cannot be added."""
    net, x = classifier(n, classes, seed=n + 1, batch=6)
    certs = explained(net, x)
    op = net.nodes[-1].op
    weight, bias = ([[Fraction(v) for v in r] for r in t.double().tolist()] for t in (op.weight, op.bias[:, None]))
    for k in range(len(x)):
        label, free = int(certs.labels[k]), free_of(certs)[k].tolist()
        if certs.status[k] != "certified":
            free = [False] * n
        point = [Fraction(v) for v in x[k].tolist()]

        def least(free: list[bool], point: list[Fraction] = point, label: int = label) -> Fraction:
            found = []
            for other in (j for j in range(classes) if j != label):
                rows = [a - b for a, b in zip(weight[label], weight[other])]
                value = sum(-abs(w) if f else w * p for w, f, p in zip(rows, free, point))
                found.append(value + bias[label][0] - bias[other][0])
            return min(found)

        assert least(free) > 0
        for j in range(n):
            if not free[j]:
                assert least([f or i == j for i, f in enumerate(free)]) <= Fraction(1, 1000)
        if certs.status[k] == "certified":
            assert bool(((certs.kept[k] == NEEDED) == ~free_of(certs)[k]).all())
    assert not certs.certified.any() or er.check(certs)


@pytest.mark.parametrize("effort", ["fast", 60])
def test_no_point_of_a_region_decides_otherwise(effort: Any) -> None:
    rng = np.random.default_rng(1)
    for seed in range(3):
        net, x = small(seed)
        certs = explained(net, x, effort=effort)
        assert not certs.certified.any() or er.check(certs)
        corners = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=5))).double()
        for k in certs.certified.nonzero().squeeze(1).tolist():
            free = free_of(certs)[k]
            points = torch.cat([corners, torch.from_numpy(rng.uniform(-1, 1, (2000, 5)))])
            points = torch.where(free, points, x[k])
            assert bool((net.decide(net(points)) == certs.labels[k]).all())
            assert bool((certs.kept[k][free] == FIXED).all()) and bool((certs.kept[k][~free] != FIXED).all())
            assert bool((certs.eps[k][~free] == 0).all())


def test_more_effort_frees_no_fewer_and_decides() -> None:
    freed, undecided = [], []
    for effort in ("fast", 200):
        found = [explained(*small(seed), effort=effort) for seed in range(3)]
        freed.append(sum(int(free_of(c)[c.certified].sum()) for c in found))
        undecided.append(sum(int((c.kept == UNDECIDED).sum()) for c in found))
    assert 2 * freed[0] < freed[1] and undecided[1] <= 2 < undecided[0]


def test_a_complete_verifier_agrees(marabou: Any, tmp_path: Path) -> None:
    """Unsatisfiable on what is free; satisfiable for some class with one needed feature more."""
    verifier = Verifier(marabou, tmp_path / "network.onnx")
    seen = {"free": 0, "needed": 0}
    for seed in range(4):
        net, x = small(seed, n=4)
        net = net.cast(torch.float32)
        x = x.float().double()
        certs = explained(net, x[:2], effort=200)
        write_onnx(net, tmp_path / "network.onnx")
        for k in certs.certified.nonzero().squeeze(1).tolist():
            label, free = int(certs.labels[k]), free_of(certs)[k].tolist()

            def answers(free: list[bool], point: list[float], label: int) -> set[str]:
                low = [Fraction(-1) if f else Fraction(v) for f, v in zip(free, point)]
                high = [Fraction(1) if f else Fraction(v) for f, v in zip(free, point)]
                rows = [[Fraction((j == label) - (j == other)) for j in range(3)] for other in range(3)]
                clauses = [[(row, Fraction(0))] for other, row in enumerate(rows) if other != label]
                return {verifier.clause(Query(low, high, clauses), c)[0] for c in range(2)}

            assert "sat" not in answers(free, x[k].tolist(), label)
            seen["free"] += 1
            for j in (certs.kept[k] == NEEDED).nonzero().squeeze(1).tolist():
                more = [f or i == j for i, f in enumerate(free)]
                assert answers(more, x[k].tolist(), label) != {"unsat"}
                seen["needed"] += 1
    assert min(seen.values()) >= 5 and verifier.answers["unknown"] <= 2


def test_frozen_features_are_not_freed_and_edges_are_values() -> None:
    net, x = classifier(6, 3, seed=3)
    x[0, 1], x[1, 2] = -1.0, 1.0
    frozen = [True, False, False, False, False, False]
    certs = explained(net, x, frozen=frozen, domain=(torch.tensor([-9.0, *[-1] * 5]), torch.tensor([9.0, *[1] * 5])))
    good = certs.certified
    assert good.any() and er.check(certs) and bool((certs.kept[:, 0] == FIXED).all())
    assert bool((certs.eps[good][:, 0] == 0).all()) and bool((certs.lower[good][:, 0] == x[good][:, 0]).all())


def test_a_feature_that_does_not_matter_is_free() -> None:
    net, x = classifier(4, 3, seed=4)
    op = net.nodes[-1].op
    net = Network.chain((4,), [ops.Linear(op.weight * torch.tensor([0.0, 1, 1, 1]), op.bias)])
    for told in ({}, {"deployed": "float32"}, {"precision": "float64"}, {"delta": 1e-3}):
        certs = explained(net, x, **told)
        assert certs.certified.any() and bool(free_of(certs)[certs.certified][:, 0].all()) and er.check(certs)


def test_where_nothing_may_take_any_value() -> None:
    net = Network.chain((2,), [ops.Linear(torch.tensor([[9.0, 9.0], [0.0, 0.0]]))])
    certs = explained(net, torch.tensor([[0.1, 0.1]]))
    assert certs.status == ("not_certified",) and "no feature was found" in certs.message[0]
    assert bool((certs.eps == 0).all()) and bool((certs.kept == FIXED).all())


def test_what_is_refused() -> None:
    net, x = classifier(3, 3, seed=1)
    for told, words in (
        ({"domain": None}, "feature 0 has none that is finite"),
        ({"domain": (-1, torch.tensor([1, 1, torch.inf]))}, "feature 2 has none that is finite"),
        ({"max_eps": 0.5}, "leave out max_eps"),
        ({"region": er.Uniform()}, "leave out region"),
        ({"region": er.Ball(3)}, "leave out region"),
        ({"reach": True}, "leave out reach"),
    ):
        with pytest.raises(er.InputError, match=words):
            explained(net, x, **told)


def test_what_a_file_says_of_needed_features_is_a_statement(tmp_path: Path) -> None:
    """Free is what the corners prove, whatever else is written; numbers that mean nothing are refused."""
    net, x = classifier(6, 3, seed=3)
    certs = explained(net, x)
    for value, words in ((3, "kept"), (-1, "kept")):
        with pytest.raises(er.InputError, match=words):
            dataclasses.replace(certs, kept=torch.full_like(certs.kept, value)).save(tmp_path)
    dataclasses.replace(certs, kept=torch.zeros_like(certs.kept)).save(tmp_path)
    k = int(certs.certified.nonzero()[0])
    one = json.loads(run("show", tmp_path, "--index", k, "--json").stdout)
    said = {f["number"]: f["state"] for f in one["features"]}
    assert [said[j] == "free" for j in range(6)] == free_of(certs)[k].tolist() and "features: state" in one["stated"]


def test_a_run_is_shown(tmp_path: Path) -> None:
    net, x = classifier(6, 3, seed=3, batch=5)
    er.save_network(net, tmp_path / "net.elbowroom")
    np.save(tmp_path / "x.npy", x.numpy())
    told = ("--objective", "free", "--domain=-1,1", "--predicted", "--device", "cpu", "--out", tmp_path / "run")
    assert run("certify", tmp_path / "net.elbowroom", tmp_path / "x.npy", *told).exit_code == 0
    certs = er.Certificates.load(tmp_path / "run")
    assert torch.equal(certs.kept, explained(net, x).kept) and certs.settings["objective"] == "free"
    k = int(certs.certified.nonzero()[0])
    page = run("show", tmp_path / "run", "--index", k).stdout
    assert "needed" in page and "may take any value of their domain" in page and "which are needed" in page
    summary = run("show", tmp_path / "run").stdout
    assert "objective: free" in summary
    assert "explanations: in the median" in summary and "of an input's size" not in summary
    assert "times the uniform" not in repr(certs) and "free" in repr(certs)
