"""The least width as an objective: against a convex solver, the uniform region, and domains that cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from search.test_linear_classifiers import DELTA, classifier, rows_at, solved
from search.test_reference import reference
from support import mlp

NEAR = 0.975  # how much of the best least width is found, on linear classifiers


def least(certs: er.Certificates) -> Tensor:
    return certs.eps.flatten(1).amin(1)


@pytest.mark.parametrize("domain", [None, (-1.0, 1.0)])
@pytest.mark.parametrize(("n", "classes"), [(1, 2), (2, 3), (5, 3), (20, 5), (100, 10)])
def test_equals_a_convex_solver(n: int, classes: int, domain: tuple[float, float] | None) -> None:
    net, x = classifier(n, classes, seed=n)
    certs = er.certify(net, x, region=er.Box(asymmetric=True), objective="smallest", domain=domain, delta=DELTA)
    assert set(certs.status) == {"certified"} and er.check(certs)
    for k in range(len(x)):
        rows, left = rows_at(net, x[k])
        cap = 1000 * float(certs.uniform[k])
        below, above = (np.full(n, cap), np.full(n, cap)) if domain is None else (x[k].numpy() + 1, 1 - x[k].numpy())
        down, up, t = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True), cp.Variable()
        spent = [np.maximum(r, 0) @ down + np.maximum(-r, 0) @ up <= m for r, m in zip(rows, left)]
        best = solved(t, [*spent, down <= below, up <= above, (down + up) / 2 >= t])
        assert NEAR * best <= float(least(certs)[k]) <= best * (1 + 1e-6)


@pytest.mark.parametrize("n", [1, 3, 20])
def test_of_a_symmetric_box_it_is_the_uniform_region(n: int) -> None:
    net, x = classifier(n, 4, seed=n)
    found, uniform = er.certify(net, x, objective="smallest"), er.certify(net, x, region=er.Uniform())
    torch.testing.assert_close(found.eps, uniform.eps, rtol=2e-3, atol=0)


def test_a_box_that_a_domain_cuts_has_equal_widths() -> None:
    """Not equal extents, of which some are cut: those reach farther to the other side."""
    net, x = classifier(6, 3, seed=2)
    x = x.clamp(-0.97, 0.97)
    certs = er.certify(net, x, objective="smallest", domain=(-1, 1))
    uniform = er.certify(net, x, region=er.Uniform(), domain=(-1, 1))
    open_ = certs.eps < 0.999 * 1.0  # all of the domain
    for k in range(len(x)):
        widths = certs.eps[k][open_[k]]
        torch.testing.assert_close(widths, widths[:1].expand_as(widths), rtol=1e-3, atol=0)
    assert bool((least(certs) >= least(uniform) * (1 - 1e-6)).all())


def test_what_costs_nothing_is_as_large_as_can_be() -> None:
    """The volume comes second: a feature that no class depends on has its cap."""
    net, x = classifier(5, 3, seed=5)
    op = net.nodes[-1].op
    net = Network.chain((5,), [ops.Linear(op.weight * torch.tensor([0.0, 1, 1, 1, 1]), op.bias)])
    for region in (er.Box(), er.Box(asymmetric=True)):
        for domain in (None, (-1.0, 1.0)):
            certs = er.certify(net, x, region=region, objective="smallest", max_eps=7, domain=domain)
            good = certs.certified
            assert bool((certs.eps[good][:, 0] >= 0.99 * (7 if domain is None else 1)).all()) and good.any()


def test_a_feature_without_more_room_does_not_hold_the_others_back() -> None:
    net, x = classifier(5, 3, seed=5)
    cap = torch.tensor([1e-4, 9, 9, 9, 9]).double()
    wide, narrow = (er.certify(net, x, objective="smallest", max_eps=c) for c in (9.0, cap))
    assert bool((narrow.eps[:, 1:].amin(1) >= least(wide) * (1 - 1e-3)).all()) and bool((narrow.eps[:, 0] > 9e-5).all())


def test_frozen_features_do_not_count() -> None:
    net, x = classifier(5, 3, seed=6)
    certs = er.certify(net, x, objective="smallest", frozen=[True, False, False, False, False], domain=(-1, 1))
    assert certs.certified.all() and bool((certs.eps[:, 0] == 0).all()) and bool((certs.eps[:, 1:] > 0).all())


@pytest.mark.parametrize(("asymmetric", "effort"), [(False, "fast"), (True, "fast"), (True, 10)])
def test_never_less_than_the_uniform_region(asymmetric: bool, effort: Any) -> None:
    """On networks: proved, at least as wide as the uniform box, and wider than the largest one."""
    rng = np.random.default_rng(4)
    net = mlp(rng, [12, 16, 16, 4], ops.ReLU())
    x = torch.from_numpy(rng.uniform(-1, 1, (3, 12)))
    told: dict[str, Any] = {"domain": (-1, 1), "effort": effort}
    box = er.Box(asymmetric=asymmetric)
    certs = er.certify(net, x, region=box, objective="smallest", **told)
    largest = er.certify(net, x, region=box, domain=(-1, 1))
    uniform = er.certify(net, x, region=er.Uniform(), domain=(-1, 1))
    good = certs.certified & uniform.certified
    assert good.sum() >= 2 and er.check(certs)
    assert bool((least(certs) >= least(uniform) * (1 - 2e-3))[good].all())
    assert bool((least(certs) >= least(largest))[good].all())
    assert certs.settings["objective"] == "smallest" and largest.settings["objective"] == "volume"


@pytest.mark.parametrize("name", ["m100", "m100pgd"])
def test_reference_images(shared: Path, name: str) -> None:
    """Sides of their own make the least width larger than any uniform box's."""
    net, x, y, _ = reference(shared, name)
    x, y = x[:4], y[:4]
    uniform = er.certify(net, x, y, region=er.Uniform(), domain=(-1, 1))
    certs = er.certify(net, x, y, region=er.Box(asymmetric=True), objective="smallest", domain=(-1, 1))
    assert certs.certified.all() and bool((least(certs) > 1.1 * least(uniform)).all())


def test_what_is_refused() -> None:
    net, x = classifier(3, 3, seed=1)
    for region in (er.Ellipsoid(), er.L1(), er.Ball(3), er.Oblique(torch.eye(3))):
        with pytest.raises(er.InputError, match='objective="smallest" is about boxes along the axes'):
            er.certify(net, x, region=region, objective="smallest")
    for wrong in ("least", None, 1):
        with pytest.raises(er.InputError, match="objective must be one of volume, smallest, free"):
            er.certify(net, x, objective=wrong)
