"""The largest widths under linear constraints: right, feasible, and finished, for any number of rows and features."""

import json
import os
import subprocess
import sys
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.search.regions.subproblem import largest_widths
from support import FULL, cases

SIZES = [1e-12, 1.0, 1e12]


def problem(
    rng: np.random.Generator,
    rows: Any,
    n: int,
    per: Any,
    odd: Any = (),
    unit: float = 1.0,
    budget: float = 1.0,
    batch: int = 2,
) -> Any:
    """Random rows, budgets, caps and weights in given units; `odd`: what is unusual about them."""
    a = rng.uniform(size=(batch, rows, per * n)) ** 3
    if per == 2:  # a side costs, or is free
        a *= rng.random(a.shape) < 0.6
    b = rng.uniform(0.05, 1, size=(batch, rows))
    if "duplicate rows" in odd:
        a[:, rows // 2 :], b[:, rows // 2 :] = a[:, :1], b[:, :1]
    if "zero rows" in odd:
        a[:, -1] = 0
    if "nearly duplicate rows" in odd:
        a[:, rows // 2 :] = a[:, :1] * (1 + 1e-13)
        b[:, rows // 2 :] = b[:, :1]
    cap = rng.uniform(0.5, 20, size=(batch, per * n))
    if "fixed entries" in odd:
        cap[:, rng.random(per * n) < 0.3] = 0
    a, b, cap = (torch.from_numpy(t) for t in (a * budget / unit, b * budget, cap * unit))
    weight = torch.from_numpy(rng.uniform(0.3, 3, size=(batch, n)))
    return a, b, cap, weight


def is_feasible(a: Any, b: Any, cap: Any, theta: Tensor) -> Any:
    spent = (a @ theta[..., None]).squeeze(-1)
    return bool((theta >= 0).all() and (theta <= cap).all() and (spent <= b * (1 + 1e-9)).all())


def log_widths(theta: Tensor, cap: Any, weight: Tensor, already: Any = None) -> Any:
    """The mean log width of the features that can move, weighted: `B`."""
    n = weight.shape[1]
    widths = theta.reshape(len(theta), -1, n).sum(1) + (0 if already is None else already)
    moving = (cap > 0).reshape(len(theta), -1, n).any(1)
    return (weight * torch.where(moving, widths, 1.0).log() * moving).sum(1) / (weight * moving).sum(1).clamp_min(1e-9)


def by_conic_solver(a: Any, b: Any, cap: Any, weight: Tensor, already: Any) -> Any:
    """The same number from an independent solver, one input at a time."""
    found = []
    n = weight.shape[1]
    for k in range(len(a)):
        theta = cp.Variable(cap.shape[1], nonneg=True)
        widths = sum(theta[i : i + n] for i in range(0, cap.shape[1], n)) + already[k].numpy()
        moving = (cap[k] > 0).reshape(-1, n).any(0).numpy()
        w = weight[k].numpy() * moving
        objective = cp.sum(cp.multiply(w[moving], cp.log(widths[np.flatnonzero(moving)]))) / w.sum()
        limits = [theta <= cap[k].numpy(), a[k].numpy() @ theta <= b[k].numpy()]
        task = cp.Problem(cp.Maximize(objective), limits)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "may be inaccurate": to far more digits than we compare
            task.solve(solver=cp.CLARABEL)
        assert task.status in ("optimal", "optimal_inaccurate")
        found.append(task.value)
    return torch.tensor(found)


ODD = st.sets(st.sampled_from(["duplicate rows", "nearly duplicate rows", "zero rows", "fixed entries"]))


@given(
    seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 8), n=st.integers(1, 6), per=st.integers(1, 2), odd=ODD,
    already=st.booleans(),
)  # fmt: skip
@cases()
def test_equals_a_conic_solver(seed: int, rows: int, n: int, per: int, odd: Any, already: bool) -> None:
    rng = np.random.default_rng(seed)
    a, b, cap, weight = problem(rng, rows, n, per, odd)
    if not bool((cap > 0).any(1).all()):
        return
    c = torch.from_numpy(rng.uniform(0, 2, size=weight.shape)) * already
    theta = largest_widths(a, b, cap, weight, c)
    assert is_feasible(a, b, cap, theta)
    assert (by_conic_solver(a, b, cap, weight, c) - log_widths(theta, cap, weight, c)).abs().max() < 1e-3


@given(
    seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 40), n=st.integers(1, 40), per=st.integers(1, 2), odd=ODD,
    unit=st.sampled_from(SIZES), budget=st.sampled_from(SIZES),
)  # fmt: skip
@cases(2)
def test_units_do_not_matter(seed: int, rows: int, n: int, per: int, odd: Any, unit: float, budget: float) -> None:
    """The units of features, and of margins: the same widths, each in its own units."""
    plain = problem(np.random.default_rng(seed), rows, n, per, odd)
    scaled = problem(np.random.default_rng(seed), rows, n, per, odd, unit, budget)
    expected, found = largest_widths(*plain), largest_widths(*scaled)
    assert is_feasible(plain[0], plain[1], plain[2], expected)
    assert is_feasible(scaled[0], scaled[1], scaled[2], found)
    torch.testing.assert_close(
        log_widths(found / unit, *plain[2:]), log_widths(expected, *plain[2:]), rtol=0, atol=1e-4
    )


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 20), n=st.integers(1, 20), per=st.integers(1, 2))
@cases()
def test_rows_without_budget_leave_next_to_nothing(seed: int, rows: int, n: int, per: int) -> None:
    """All of them, or some: what they ask of has no room, and nothing is NaN; what they do not ask of has its own."""
    rng = np.random.default_rng(seed)
    a, b, cap, weight = problem(rng, rows, n, per)
    empty = torch.from_numpy(rng.random(b.shape) < 0.5)
    b[empty] = torch.from_numpy(rng.choice([0.0, -1.0], size=int(empty.sum())))
    theta = largest_widths(a, b, cap, weight)
    assert theta.isfinite().all() and (theta >= 0).all() and (theta <= cap).all()
    asked = (a * empty[..., None]).amax(1) > 1e-9
    assert (theta[asked] < 1e-60).all()
    plenty = (theta > 1e-60) | asked | (cap == 0)
    assert per == 2 or plenty.all()


# In a process of its own, which is ended if it does not finish: batches of LU, in some builds of torch, never do.
MANY = """
import json, sys, torch
from elbowroom.search.regions.subproblem import largest_widths
threads, sizes = json.loads(sys.argv[1])
torch.set_num_threads(threads)
generator = torch.Generator().manual_seed(0)
for batch, rows, n, per in sizes:
    a = torch.rand(batch, rows, n * per, generator=generator)
    b = torch.rand(batch, rows, generator=generator) + 0.1
    a[:, rows // 2], b[:, rows // 2] = a[:, 0], b[:, 0]
    if rows > 2:
        a[:, -1] = 0
    cap, weight = torch.full((batch, n * per), 10.0), torch.ones(batch, n)
    theta = largest_widths(a, b, cap, weight).double()
    spent = (a.double() @ theta[..., None]).squeeze(-1)
    best = (a / b[..., None]).sum(1).double()  # every row's price: a region that certainly fits
    fits = (1 / (n * per) / best).clamp_max(10.0)
    assert theta.isfinite().all() and (theta >= 0).all() and (theta <= 10).all(), (batch, rows, n, per)
    assert (spent <= b * (1 + 1e-5)).all(), (batch, rows, n, per)
    larger = [t.reshape(batch, per, n).sum(1).log().mean(1) for t in (theta, fits)]
    assert (larger[0] >= larger[1] - 1e-3).all(), (batch, rows, n, per)
print("done")
"""
# Inputs, rows (classes but one), features, sides.
SMALL = [(4, 1, 1, 1), (4, 1, 1, 2), (4, 149, 3, 1), (4, 150, 20, 2), (4, 299, 100, 1), (2, 1, 10_000, 1)]
LARGE = [(2, 999, 1, 1), (2, 999, 200, 1), (2, 9, 10_000, 2)]
HUGE = [(8, 999, 50, 2), (16, 499, 784, 1), (1, 999, 10_000, 1)]


def finishes(script: Any, *given: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(given)],
        capture_output=True, text=True, timeout=1200 if FULL else 120, env={**os.environ, "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr[-2000:]


@pytest.mark.parametrize("threads", [1, 2])
def test_two_to_a_thousand_classes_in_one_to_ten_thousand_dimensions(threads: int) -> None:
    finishes(MANY, threads, SMALL + LARGE + (HUGE if FULL else []))


CERTIFY = """
import json, sys, torch, elbowroom as er
from elbowroom.network import operations as ops
threads, classes = json.loads(sys.argv[1])
torch.set_num_threads(threads)
generator = torch.Generator().manual_seed(0)
normal = lambda *shape: torch.randn(*shape, generator=generator) / shape[-1] ** 0.5
for k in classes:
    first, last = ops.Linear(normal(20, 30)), ops.Linear(normal(k, 20), normal(k, 1)[:, 0])
    net = er.Network.chain((30,), [first, ops.ReLU(), last])
    for region in [er.Box()] if k == 200 else [er.Box(), er.Box(asymmetric=True), er.Ellipsoid()]:
        certs = er.certify(net, torch.rand(4, 30, generator=generator), region=region)
        assert set(certs.status) == {"certified"} and (certs.ratio >= 1 - 1e-5).all(), (k, region, certs.status)
print("done")
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_many_classes_are_certified(threads: int) -> None:
    finishes(CERTIFY, threads, [2, 200] if not FULL else [2, 3, 10, 100, 151, 300, 1000])
