"""Linear classifiers, where the best region is a convex problem that an independent solver answers too."""

import itertools
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.certify.api import certify
from elbowroom.network.graph import Network
from elbowroom.network.operations import Linear
from elbowroom.search.regions.ball import Ball
from elbowroom.search.regions.box import Box
from elbowroom.search.regions.ellipsoid import Ellipsoid
from elbowroom.search.regions.l1 import L1
from elbowroom.search.regions.oblique import Oblique
from elbowroom.search.regions.registry import region_named
from elbowroom.search.solvers.sequential import Sequential

DELTA = 1e-4
PER_FEATURE = 1e-3  # how close log-volumes must be, per feature


def classifier(n: int, classes: Any, seed: int, batch: int = 3) -> Any:
    """A linear network, inputs in [-1, 1], and each input's rows: margins `w . x + b > 0`."""
    rng = np.random.default_rng(seed)
    weight = torch.tensor(rng.normal(size=(classes, n)), dtype=torch.float32)
    bias = torch.tensor(rng.normal(size=classes), dtype=torch.float32)
    net = Network.chain((n,), [Linear(weight, bias)])
    x = torch.tensor(rng.uniform(-1, 1, size=(40 * batch, n)), dtype=torch.float64)
    top = net(x).topk(2, 1).values
    clear = (top[:, 0] - top[:, 1] > 0.05).nonzero()[:batch, 0]  # no near ties
    return net, x[clear]


def rows_at(net: Network, x: Tensor) -> Any:
    """Rows (classes-1) x n and the margins left at x, less delta."""
    weight = net.nodes[-1].op.weight.double().numpy()
    logits = net(x[None])[0].numpy()
    label = int(logits.argmax())
    others = [j for j in range(len(logits)) if j != label]
    return weight[label] - weight[others], logits[label] - logits[others] - DELTA


def solved(objective: Any, constraints: Any) -> Any:
    problem = cp.Problem(cp.Maximize(objective), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "may be inaccurate": to far more digits than we compare
        problem.solve(solver=cp.CLARABEL)
    assert problem.status in ("optimal", "optimal_inaccurate")
    return problem.value


def random_options(n: int, seed: int, which: Any) -> Any:
    rng = np.random.default_rng(seed + 1000)
    options = {}
    if "cap" in which:
        options["max_eps"] = np.exp(rng.normal(size=n)) * 0.05
    if "frozen" in which and n > 1:
        frozen = rng.random(n) < 0.4
        frozen[rng.integers(n)] = False
        options["frozen"] = frozen
    if "importance" in which:
        options["importance"] = rng.uniform(0.3, 3, size=n)
    return options


def frame(n: int, certs: Certificates, k: Any, options: Any) -> Any:
    """What the independent solver needs: caps (as certify took them), free features, weights."""
    free = ~np.asarray(options.get("frozen", np.zeros(n, bool)))
    cap = np.asarray(options.get("max_eps", np.full(n, 1000 * float(certs.uniform[k]))))
    weight = np.asarray(options.get("importance", np.ones(n)))
    return free, cap, weight


def weighted_log(widths: Any, weight: Tensor, free: Any) -> Any:
    return float((weight * np.log(np.where(free, widths, 1.0)))[free].sum())


CASES = [(1, 2), (2, 3), (5, 2), (5, 10), (20, 5), (100, 10)]
OPTIONS = ["", "cap", "frozen importance", "cap frozen importance"]


@pytest.mark.parametrize("which", OPTIONS)
@pytest.mark.parametrize(("n", "classes"), CASES)
@pytest.mark.parametrize("shape", ["box", "asymmetric", "ellipsoid", "l1", "ball:1.5", "ball:3"])
def test_equals_a_convex_solver(shape: str, n: int, classes: int, which: str) -> None:
    net, x = classifier(n, classes, seed=n + classes)
    if "ball" in shape and "frozen" in which.split()[:1]:
        pytest.skip("the same with caps is enough: the other solver is slow")
    region = Box(asymmetric=True) if shape == "asymmetric" else region_named(shape)
    options = random_options(n, n, which)
    certs = certify(net, x, region=region, delta=DELTA, **options)
    assert set(certs.status) == {"certified"}
    for k in range(len(x)):
        rows, left = rows_at(net, x[k])
        free, cap, weight = frame(n, certs, k, options)
        rows = np.where(free, rows, 0.0)
        if shape == "asymmetric":
            down, up = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
            limits = [down <= cap, up <= cap]
            # Moving against a row's sign costs; moving along it is free.
            spent = [np.maximum(r, 0) @ down + np.maximum(-r, 0) @ up <= m for r, m in zip(rows, left)]
            width = (down + up) / 2
        else:
            eps = cp.Variable(n, nonneg=True)
            limits, width = [eps <= cap], eps
            if shape == "box":
                spent = [np.abs(r) @ eps <= m for r, m in zip(rows, left)]
            elif shape == "ellipsoid":
                spent = [cp.norm2(cp.multiply(r, eps)) <= m for r, m in zip(rows, left)]
            elif isinstance(region, Ball):
                q = region.p / (region.p - 1)
                spent = [cp.pnorm(cp.multiply(r, eps), q) <= m for r, m in zip(rows, left)]
            else:
                spent = [np.abs(r) @ cp.diag(eps) <= m for r, m in zip(rows, left)]
        objective = cp.sum(cp.multiply(weight[free], cp.log(width[np.flatnonzero(free)])))
        best = solved(objective, limits + spent)
        ours = weighted_log(certs.eps[k].numpy(), weight, free)
        assert abs(best - ours) <= PER_FEATURE * weight[free].sum() + 1e-6, (best - ours) / free.sum()


@pytest.mark.parametrize(("n", "classes"), [(1, 2), (2, 3), (5, 2), (5, 10)])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_box_in_a_domain_equals_a_convex_solver(n: int, classes: int, asymmetric: bool) -> None:
    net, x = classifier(n, classes, seed=3 * n + classes)
    certs = certify(net, x, region=Box(asymmetric=asymmetric), domain=(-1, 1), delta=DELTA)
    for k in range(len(x)):
        rows, left = rows_at(net, x[k])
        low, high = x[k].numpy() + 1, 1 - x[k].numpy()
        near, far = np.minimum(low, high), np.maximum(low, high)
        toward_far = np.where(low < high, np.maximum(-rows, 0), np.maximum(rows, 0))
        if asymmetric:
            down, up = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
            spent = [np.maximum(r, 0) @ down + np.maximum(-r, 0) @ up <= m for r, m in zip(rows, left)]
            best = solved(cp.sum(cp.log((down + up) / 2)), [down <= low, up <= high, *spent])
        else:
            # Each feature is in one of two regimes, both sides moving or only the far one: try all.
            best = -np.inf
            for regime in itertools.product([False, True], repeat=n):
                past = np.array(regime)
                extra = cp.Variable(n, nonneg=True)  # eps, or eps - near where past the near edge
                cost = np.where(past, toward_far, np.abs(rows))
                fixed = (np.abs(rows) * near * past).sum(1)
                if (left - fixed <= 0).any():
                    continue
                width = cp.multiply(np.where(past, 0.5, 1.0), extra) + past * near
                limits = [extra <= np.where(past, far - near, near)]
                best = max(best, solved(cp.sum(cp.log(width)), [cost @ extra <= left - fixed, *limits]))
        ours = float(np.log(certs.eps[k].numpy()).sum())
        assert abs(best - ours) <= PER_FEATURE * n + 1e-6, (best - ours) / n


@pytest.mark.parametrize("n", [20, 100])
def test_asymmetric_box_in_a_domain_in_many_dimensions(n: int) -> None:
    net, x = classifier(n, 5, seed=n)
    certs = certify(net, x, region=Box(asymmetric=True), domain=(-1, 1), delta=DELTA)
    symmetric = certify(net, x, domain=(-1, 1), delta=DELTA)
    for k in range(len(x)):
        rows, left = rows_at(net, x[k])
        down, up = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
        spent = [np.maximum(r, 0) @ down + np.maximum(-r, 0) @ up <= m for r, m in zip(rows, left)]
        limits = [down <= x[k].numpy() + 1, up <= 1 - x[k].numpy()]
        best = solved(cp.sum(cp.log((down + up) / 2)), limits + spent)
        assert abs(best - float(certs.eps[k].log().sum())) <= PER_FEATURE * n
        assert symmetric.log_volume[k] <= certs.log_volume[k] + PER_FEATURE * n


@pytest.mark.parametrize("n", [1, 2, 5, 20, 100])
def test_two_classes_have_the_closed_form(n: int) -> None:
    """Every feature spends the same share of the margin: eps_k = margin / (n |w_k|)."""
    net, x = classifier(n, 2, seed=n)
    certs = certify(net, x, delta=DELTA)
    for k in range(len(x)):
        rows, left = rows_at(net, x[k])
        exact = left[0] / (n * np.abs(rows[0]))
        capped = certs.capped[k].numpy()
        if not capped.any():
            np.testing.assert_allclose(certs.eps[k].numpy(), exact, rtol=5e-3)
        assert abs(float(certs.geomean[k]) / np.exp(np.log(exact).mean()) - 1) < 2e-3 or capped.any()


def test_oblique_equals_the_rotated_problem() -> None:
    """A box in a rotated basis is a box for the network with that rotation put in front."""
    net, x = classifier(5, 4, seed=7)
    basis = torch.linalg.qr(torch.tensor(np.random.default_rng(0).normal(size=(5, 5)))).Q
    op = net.nodes[-1].op
    rotated = Network.chain((5,), [Linear((op.weight.double() @ basis), op.bias.double())])
    for inner in (Box(), Ellipsoid(), L1()):
        oblique = certify(net, x, region=Oblique(basis, inner), delta=DELTA)
        straight = certify(rotated, x @ basis, region=inner, delta=DELTA)
        assert oblique.lower is None
        torch.testing.assert_close(oblique.log_volume, straight.log_volume, rtol=0, atol=5 * PER_FEATURE)
        torch.testing.assert_close(oblique.uniform, straight.uniform, rtol=2e-3, atol=0)


@pytest.mark.parametrize(("n", "classes"), CASES)
def test_l1_regions_take_one_step(n: int, classes: int) -> None:
    """Every feature may go as far as the first class that it meets: exact after one linearisation."""
    net, x = classifier(n, classes, seed=3 * n + classes)
    certs = certify(net, x, region=L1(), delta=DELTA, solver=Sequential(gradients=1))
    assert set(certs.status) == {"certified"}
    for k in range(len(x)):
        rows, left = rows_at(net, x[k])
        with np.errstate(divide="ignore"):
            best = (np.asarray(left)[:, None] / np.abs(rows)).min(0)
        best = np.minimum(best, 1000 * float(certs.uniform[k]))
        np.testing.assert_allclose(certs.eps[k].numpy(), best, rtol=2e-3)
