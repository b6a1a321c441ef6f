"""`Oblique("auto")`: directions that are found, and regions along them that nothing breaks."""

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.claim.directions import coordinates, how_crooked, is_straight, units_of
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Graph, Network
from elbowroom.network.table import Column, Table
from elbowroom.search.directions import found_directions
from forgery import sized
from support import mlp

N, RANK = 6, 2


def network(n: int = N, rank: int = RANK, seed: int = 0) -> Network:
    """n - 10 - 10 - 3 whose first layer sees `rank` directions alone."""
    rng = np.random.default_rng(seed)
    graph = Graph((n,))
    at = graph.input
    first = torch.from_numpy(rng.normal(size=(10, rank)) @ rng.normal(size=(rank, n)))
    for weight in (first, torch.from_numpy(rng.normal(size=(10, 10)))):
        at = graph.add(ops.ReLU(), graph.add(ops.Linear(weight, torch.from_numpy(rng.normal(size=10))), at))
    last = ops.Linear(torch.from_numpy(rng.normal(size=(3, 10))), torch.zeros(3).double())
    return graph.network(graph.add(last, at))


def inputs(count: int = 4, n: int = N, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(0.2, 0.8, size=(count, n)))


def in_units(net: Network, unit: Tensor) -> Network:
    """The same function of features that are measured in others: x = unit * y."""
    graph = Graph(net.input_shape)
    at = graph.add(ops.Linear(torch.diag(1 / unit), torch.zeros(len(unit)).double()), graph.input)
    for node in net.nodes[1:]:
        at = graph.add(node.op, at)
    return graph.network(at)


def corners(certs: Certificates, row: int) -> Tensor:
    """Of a rotated box, `2^m x n`, m being the directions that have an extent."""
    eps = certs.eps[row].flatten()
    sides = [(-1.0, 1.0) if e > 0 else (0.0,) for e in eps.tolist()]
    v = torch.tensor(list(itertools.product(*sides)), dtype=torch.float64)
    basis = torch.eye(len(eps)).double() if certs.basis is None else certs.basis
    return certs.center[row].flatten() + (v * eps) @ basis.T


def decided_alike(certs: Certificates) -> bool:
    net = certs.network
    assert net is not None
    alike = []
    for row in certs.certified.nonzero().flatten().tolist():
        points = corners(certs, row).reshape(-1, *net.input_shape)
        alike.append(bool((net.decide(net(points)) == certs.labels[row]).all()))
    return all(alike)


def test_directions_that_nothing_depends_on_reach_as_far_as_they_may() -> None:
    net, x = network(), inputs()
    certs = er.certify(net, x, region=er.Oblique("auto"), max_eps=3.0)
    assert certs.certified.all() and bool(er.check(certs)) and bool(er.check(certs, arithmetic="arb"))
    assert certs.settings["region"] == "Oblique(Box)" and certs.shape == "Oblique(Box)"
    assert certs.basis is not None and how_crooked(certs.basis) < 1e-12
    assert bool((certs.eps[:, RANK:] > 2.5).all())  # the whole region is shrunk until it is proved
    weight = next(node.op.weight for node in net.nodes if isinstance(node.op, ops.Linear))
    assert float((weight @ certs.basis[:, RANK:]).abs().max()) < 1e-5  # the null space, up to what is called zero
    assert decided_alike(certs)
    boxes = er.certify(net, x, max_eps=3.0)
    assert bool((certs.log_volume > boxes.log_volume + 1).all())
    again = er.certify(net, x, region=er.Oblique("auto"), max_eps=3.0)
    assert torch.equal(again.basis, certs.basis) and torch.equal(again.eps, certs.eps)


def test_a_linear_classifier_is_cut_along_its_normal() -> None:
    """Two classes and one gradient: the first direction is the normal, and reaches to the boundary."""
    weight = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]]).double()
    net = Network.chain((3,), [ops.Linear(weight, torch.zeros(2).double())])
    certs = er.certify(net, torch.tensor([[1.0, 1.0, 1.0]]).double(), region=er.Oblique("auto"), max_eps=9.0)
    assert certs.basis is not None
    torch.testing.assert_close(certs.basis[:, 0], torch.tensor([0.6, 0.8, 0.0]).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(certs.eps, torch.tensor([[1.4, 9.0, 9.0]]).double(), rtol=1e-3, atol=0)
    assert decided_alike(certs) and bool(er.check(certs))


@pytest.mark.parametrize("inner", [er.Box(asymmetric=True), er.Ellipsoid(), er.L1(), er.Ball(3)])
def test_other_shapes_along_directions_that_are_found(inner: Any) -> None:
    net, x = mlp(np.random.default_rng(3), [N, 8, 3]), inputs()
    certs = er.certify(net, x, region=er.Oblique("auto", inner), reach=True, effort="medium")
    assert certs.certified.all() and bool(er.check(certs)), er.check(certs)
    assert certs.settings["region"] == f"Oblique({inner.name})"


def test_units_make_no_difference() -> None:
    """Each feature in a unit of its own: the same regions, larger by the product of the units."""
    net, x = network(), inputs()
    unit = torch.tensor([1.0, 1000.0, 0.01, 5.0, 1e5, 2e-3]).double()
    plain = er.certify(net, x, region=er.Oblique("auto"), domain=(0, 1), precision="float64")
    lowest, highest = torch.zeros(N).double(), unit
    told: Any = {"domain": (lowest, highest), "precision": "float64"}
    scaled = er.certify(in_units(net, unit), x * unit, region=er.Oblique("auto"), **told)
    assert plain.certified.all() and scaled.certified.all() and bool(er.check(scaled))
    assert scaled.basis is not None and is_straight(scaled.basis)
    torch.testing.assert_close(units_of(scaled.basis), unit / unit.log().mean().exp(), rtol=1e-9, atol=0)
    torch.testing.assert_close(scaled.log_volume, plain.log_volume + unit.log().sum(), rtol=0, atol=1e-2)
    torch.testing.assert_close(float(scaled.eps.max()), float(unit.log().mean().exp()), rtol=1e-3, atol=0)
    assert decided_alike(scaled)
    moved = (corners(scaled, 0) - scaled.x[0]) @ torch.linalg.inv(scaled.basis).T
    torch.testing.assert_close(coordinates(scaled.basis, corners(scaled, 0) - scaled.x[0]), moved, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("frozen", [[1], [0, 4]])
def test_frozen_features_stay(frozen: list[int]) -> None:
    mask = torch.zeros(N, dtype=torch.bool)
    mask[frozen] = True
    certs = er.certify(network(), inputs(), region=er.Oblique("auto"), max_eps=1.0, frozen=mask)
    assert certs.certified.all() and bool(er.check(certs)) and decided_alike(certs)
    assert bool((certs.eps[:, mask] == 0).all()) and bool((certs.eps[:, ~mask] > 0).all())
    for row in range(len(certs)):
        assert bool((corners(certs, row)[:, mask] == certs.x[row, mask]).all())  # to the last bit


def test_a_domain_measures_features_and_holds_what_has_one_value() -> None:
    lowest, highest = torch.zeros(N).double(), torch.ones(N).double()
    x = inputs()
    x[:, 3], lowest[3], highest[3] = 0.5, 0.5, 0.5
    certs = er.certify(network(), x, region=er.Oblique("auto"), domain=(lowest, highest))
    assert bool((certs.eps[:, 3] == 0).all()) and float(certs.eps.max()) == pytest.approx(1, rel=1e-3)
    assert bool(er.check(certs)) and decided_alike(certs)


def test_outputs_within_a_tolerance() -> None:
    net, x = network(), inputs()
    spec = er.outputs_within(net(x), 0.3)
    certs = er.certify(net, x, spec=spec, region=er.Oblique("auto"), max_eps=2.0)
    assert certs.certified.all() and bool(er.check(certs))
    for row in range(len(x)):
        assert bool(((net(corners(certs, row)) - net(x[row : row + 1])).abs() <= 0.3).all())
    torch.testing.assert_close(certs.eps[:, RANK:], torch.full((4, N - RANK), 2.0).double(), rtol=1e-3, atol=0)


def test_inputs_that_are_no_numbers_do_not_count() -> None:
    x = inputs(5)
    x[2, 1] = math.nan
    certs = er.certify(network(), x, region=er.Oblique("auto"), max_eps=1.0)
    assert certs.status[2] == "nonfinite" and certs.status.count("certified") == 4
    alone = er.certify(network(), x[[0, 1, 3, 4]], region=er.Oblique("auto"), max_eps=1.0)
    assert torch.equal(certs.basis, alone.basis)


def test_earlier_regions_along_other_directions_are_no_prior() -> None:
    net, x = network(), inputs(8)
    first = er.certify(net, x[:4], region=er.Oblique("auto"), max_eps=1.0)
    with pytest.raises(er.InputError, match=r"along other directions: give its own, as `Oblique\(prior.basis\)`"):
        er.certify(net, x[4:], region=er.Oblique("auto"), max_eps=1.0, prior=first)
    again = er.certify(net, x[4:], region=er.Oblique(first.basis), max_eps=1.0, prior=first)
    assert bool(er.check(again))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "importance": ({"importance": torch.ones(N)}, "importance is about features, and Oblique"),
    "caps": ({"max_eps": torch.ones(N)}, "max_eps must be one number for all directions"),
    "named caps": ({"max_eps": {"a": 1.0}}, "max_eps must be one number for all directions"),
    "frozen by input": ({"frozen": torch.eye(N)[:4].bool()}, "frozen must be the same for all inputs"),
    "objective": ({"objective": "smallest"}, "is about boxes along the axes, not Oblique"),
    "free": ({"objective": "free", "domain": (0, 1)}, "leave out region Oblique"),
    "everything frozen": ({"frozen": torch.ones(N).bool()}, "every feature is frozen"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_refused(name: str) -> None:
    told, words = REFUSED[name]
    with pytest.raises(er.InputError, match=words):
        er.certify(network(), inputs(), region=er.Oblique("auto"), **told)


def test_what_else_is_refused() -> None:
    with pytest.raises(er.InputError, match="basis must be a square matrix or \"auto\", got 'own'"):
        er.Oblique("own")
    wide = Network.chain((5000,), [ops.Linear(torch.ones(2, 5000), torch.zeros(2))])
    with pytest.raises(er.InputError, match=r"4,096 features at most, and the network has 5,000: .* 0.2 GiB"):
        er.certify(wide, torch.zeros(1, 5000), region=er.Oblique("auto"))
    with pytest.raises(er.InputError, match="none holds finite numbers"):
        er.certify(network(), torch.full((2, N), math.nan), region=er.Oblique("auto"))
    columns = (Column("colour", levels=("red", "green"), codes=((1.0, 0.0), (0.0, 1.0))), Column("size"))
    coded = mlp(np.random.default_rng(0), [3, 5, 2])
    coded = Network(coded.nodes, about=About(features=Table(columns).entries, table=Table(columns)))
    with pytest.raises(er.InputError, match="turns features into each other, which those of categories"):
        er.certify(coded, torch.tensor([[1.0, 0.0, 0.5]]), region=er.Oblique("auto"))


# --- forgeries


@functools.cache  # none of the tests changes it
def honest() -> Certificates:
    return er.certify(network(), inputs(), region=er.Oblique("auto"), max_eps=1.0)


def _turn(basis: Tensor, angle: float) -> Tensor:
    found = torch.eye(len(basis)).double()
    found[0, 0] = found[1, 1] = math.cos(angle)
    found[0, 1], found[1, 0] = -math.sin(angle), math.sin(angle)
    return basis @ found


def _parallel(basis: Tensor) -> Tensor:
    """The first two directions nearly the same."""
    found = basis.clone()
    found[:, 1] = found[:, 0] + 1e-7 * found[:, 1]
    return found


def _rows(basis: Tensor, first: float, second: float) -> Tensor:
    unit = torch.ones(len(basis)).double()
    unit[0], unit[1] = first, second
    return unit[:, None] * basis


CROOKED = {
    "scaled": lambda b: 0.5 * b, "a row larger": lambda b: _rows(b, 3.0, 1.0), "parallel": _parallel,
    "a column larger": lambda b: b * torch.tensor([2.0, 0.5, 1, 1, 1, 1]).double(),
    "sheared": lambda b: b @ (torch.eye(N).double() + 0.1 * torch.ones(N, N).double().triu(1)),
    "singular": lambda b: b * torch.tensor([0.0, 1, 1, 1, 1, 1]).double(), "no numbers": lambda b: b * math.nan,
    "without a feature": lambda b: _rows(b, 0.0, 1.0), "infinite": lambda b: _rows(b, math.inf, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CROOKED))
def test_a_basis_that_is_none_fails(name: str) -> None:
    certs = honest()
    forged = dataclasses.replace(certs, basis=CROOKED[name](certs.basis))
    report = er.check(forged)
    assert not report.passed.any() and all("the basis is not orthogonal" in why for why in report.message)
    with pytest.raises(er.InputError, match="basis must be orthogonal"):
        er.Oblique(forged.basis)


STRAIGHT = {
    "turned": lambda b: _turn(b, 0.3), "turned a little": lambda b: _turn(b, 1e-3),
    "other units": lambda b: _rows(b, 20.0, 0.05), "exchanged": lambda b: b[:, [2, 1, 0, 3, 4, 5]],
    "transposed": lambda b: b.T.contiguous(), "the axes": lambda b: torch.eye(N).double(),
    "off by 1e-5": lambda b: b + 1e-5 * torch.ones(N, N).double(),
}  # fmt: skip


@pytest.mark.parametrize("name", list(STRAIGHT))
def test_another_basis_is_proved_for_what_it_says_or_fails(name: str) -> None:
    """The region is another one then, and it is that of which something is proved."""
    certs = honest()
    assert bool(er.check(certs)) and decided_alike(certs)
    failed = 0
    for scale in (1.0, 0.5, 0.1, 1.05):
        forged = sized(dataclasses.replace(certs, basis=STRAIGHT[name](certs.basis), eps=scale * certs.eps))
        report = er.check(forged)
        passed = [k for k in range(len(certs)) if bool(report.passed[k])]
        failed += len(certs) - len(passed)
        assert decided_alike(dataclasses.replace(forged, status=tuple(
            "certified" if k in passed else "error" for k in range(len(certs)))))  # fmt: skip
    assert failed > 0


def test_directions_see_margins_first() -> None:
    net, x = network(), inputs(20)
    every, one = torch.ones(N, dtype=torch.bool), torch.ones(N)
    basis = found_directions(net, x, None, every, one)
    points = x.clone().requires_grad_()
    out = net(points)
    top = out.topk(2, 1).values
    (slope,) = torch.autograd.grad((top[:, 0] - top[:, 1]).sum(), points)
    along = (slope @ basis).square().mean(0).sqrt()
    assert bool((along[RANK:] < 1e-5 * along[0]).all())
    assert bool((basis.abs().amax(0) == basis.amax(0)).all())  # signs are no matter of luck


def test_the_input_lies_in_its_region_however_long_other_directions_are() -> None:
    """A centre beside the input by ten extents of one direction: others that are long do not make that rounding."""
    certs = er.certify(network(), inputs(), region=er.Oblique("auto", er.Box(asymmetric=True)), max_eps=1.0)
    assert bool(er.check(certs)) and certs.basis is not None
    eps = certs.eps.clone()
    eps[:, 0] *= 1e-4
    eps[:, -1] = 1e9  # nothing depends on it
    beside = sized(dataclasses.replace(certs, eps=eps, center=certs.x + (10 * eps[:, :1]) * certs.basis[:, 0]))
    report = er.check(beside)
    assert not report.passed.any() and set(report.message) == {"the input lies outside the region"}
    inside = sized(dataclasses.replace(beside, center=certs.x + (0.99 * eps[:, :1]) * certs.basis[:, 0]))
    assert "the input lies outside the region" not in er.check(inside).message
