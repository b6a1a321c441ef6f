"""Regions of any norm: the dual norm rounded up, held to balls of hundreds of bits; attacks at extreme points."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import elbowroom as er
from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.proof.arb import prove_arb
from elbowroom.proof.kernel import support
from elbowroom.proof.kernel.activations import LIBRARY, TINY
from elbowroom.proof.kernel.prove import prove
from support import cases, mlp

F64 = torch.float64
LEAST = math.nextafter(1.0, 2.0)
NORMS = [LEAST, 1 + 1e-9, 1.001, 1.05, 4 / 3, 1.5, 1.9999999, 2.0000001, 3.0, math.pi, 100.0, 1e8, 1e17, 1e300]


@pytest.fixture(autouse=True)
def bits() -> Any:
    before, ctx.prec = ctx.prec, 400
    yield
    ctx.prec = before


def norm_in_balls(terms: list[arb], p: float) -> arb:
    """The norm dual to p of numbers that are not negative."""
    q = arb(p) / (arb(p) - 1)
    powers = [t**q for t in terms if t > 0]
    return sum(powers[1:], powers[0]) ** (1 / q) if powers else arb(0)


def least_in_balls(center: Tensor, radius: Tensor, a: Tensor, p: float, basis: Tensor | None) -> arb:
    """The least value of `a . x` over a region, enclosed; all `n`."""
    c, r, row = ([arb(v) for v in t.tolist()] for t in (center, radius, a))
    turned = row if basis is None else [sum((x * arb(float(q)) for x, q in zip(row, col)), arb(0)) for col in basis.T]
    middle = sum((x * y for x, y in zip(row, c)), arb(0))
    return middle - norm_in_balls([abs(x) * y for x, y in zip(turned, r)], p)


def torture(rng: np.random.Generator, n: int, rows: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Centres, radii and rows: of all sizes, with zeros, equal entries, and entries next to each other."""
    size = 10.0 ** rng.integers(-150, 150) if rng.random() < 0.3 else 1.0
    spread = 10.0 ** rng.uniform(-rng.choice([0.0, 3.0, 30.0]), 0, (rows, n))
    a = rng.choice([-1.0, 1.0], (rows, n)) * spread * size * rng.choice([0.0, 1.0, 1.0], (rows, n))
    radius = np.where(rng.random(n) < 0.8, rng.choice([1.0, rng.random()], n), 0.0) / size
    if rng.random() < 0.5:
        radius = radius * (1 + rng.integers(-3, 4, n) * 2.0**-52)
    center = rng.normal(size=n) * rng.choice([0.0, 1e-9, 1.0]) / size
    return tuple(torch.from_numpy(np.asarray(t)) for t in (center, radius, a))  # type: ignore[return-value]


def crossings(seed: int, p: float) -> int:
    """How many of some least values the strict check says are larger than they are."""
    rng = np.random.default_rng(seed)
    center, radius, a = torture(rng, int(rng.integers(1, 9)))
    n = len(center)
    basis = torch.linalg.qr(torch.from_numpy(rng.normal(size=(n, n))))[0] if rng.random() < 0.3 else None
    region = Stated(center=center[None], radius=radius[None], p=p, basis=basis)
    value, error = support.least(region, a[None])
    low, high = support.hull(region)
    found = 0
    for row, v, e in zip(a, value[0].tolist(), error[0].tolist()):
        found += not bool(arb(v) - arb(e) <= least_in_balls(center, radius, row, p, basis))
    for k, (l, h) in enumerate(zip(low[0].tolist(), high[0].tolist())):
        unit = torch.zeros(n, dtype=F64).index_fill(0, torch.tensor(k), 1.0)
        exact = least_in_balls(center, radius, unit, p, basis)
        found += not bool(arb(l) <= exact) or not bool(arb(h) >= -least_in_balls(center, radius, -unit, p, basis))
    return found


@pytest.mark.parametrize("p", NORMS)
def test_the_least_value_is_never_above_the_exact_one(p: float) -> None:
    assert sum(crossings(seed, p) for seed in range(25)) == 0


@cases(0.3)
@given(st.floats(1, 1e6, exclude_min=True), st.integers(0, 2**32 - 1))
def test_of_any_norm(p: float, seed: int) -> None:
    assert crossings(seed, p) == 0


def test_the_dual_power_is_rounded_down() -> None:
    rng = np.random.default_rng(0)
    for p in [*NORMS, *(1 + rng.exponential(size=300)).tolist(), *(10.0 ** rng.uniform(0, 300, 100)).tolist()]:
        q, exact = Fraction(support.dual_power(p)), Fraction(p) / (Fraction(p) - 1)
        assert 1 <= q <= exact and q >= exact * (1 - Fraction(1, 2**50))


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a dual power that is too large": lambda patch: patch.setattr(
        support, "dual_power", lambda p: p / (p - 1) * (1 + 1e-12)
    ),
    "the power itself for its dual": lambda patch: patch.setattr(support, "dual_power", lambda p: max(p, p / (p - 1))),
    "no rounding": lambda patch: patch.setattr(support, "gamma", lambda n: 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    assert any(crossings(seed, p) for p in (4 / 3, 1.5, 3.0, math.pi) for seed in range(25))


@pytest.mark.parametrize("exponent", [1 + 1e-9, 1.05, 4 / 3, 1.5, 3.0, 21.0, 1001.0, 1e9, 4.5e15, 0.3, 1 / 3, 1e-9])
def test_the_library_has_powers_as_accurate_as_is_assumed(exponent: float) -> None:
    """Shares under 1 to the dual power, sums of at least 1 to its inverse: within half of what is trusted."""
    rng = np.random.default_rng(1)
    shares = np.concatenate([rng.random(300), 1 - 10.0 ** rng.uniform(-16, 0, 300), 10.0 ** rng.uniform(-300, 0, 100)])
    base = torch.from_numpy(shares if exponent > 1 else 1 / shares)
    for x, y in zip(base.tolist(), base.pow(exponent).tolist()):
        exact = arb(x) ** arb(exponent)
        assert bool(abs(arb(y) - exact) <= exact * (LIBRARY / 2) + TINY)


def test_what_is_no_norm_is_refused() -> None:
    net, one = mlp(np.random.default_rng(0), [2, 3, 2], ops.ReLU()), torch.ones(1, 2, dtype=F64)
    rows, offset, group = torch.ones(1, 1, 2, dtype=F64), torch.zeros(1, 1, dtype=F64), torch.tensor([0])
    for p in (0.99, 0.0, -2.0, math.nan, True):
        with pytest.raises(InputError, match="a norm p from 1 to infinity"):
            prove(net, Stated(center=one, radius=one, p=p), rows, offset, group)
        with pytest.raises(InputError, match="norms from 1 to infinity"):
            support.least(Stated(center=one, radius=one, p=p), rows)


@pytest.mark.parametrize("p", [LEAST, 1.05, 1.5, 3.0, 50.0])
@pytest.mark.parametrize("turned", [False, True])
def test_extreme_points_do_not_break_a_bound(p: float, turned: bool) -> None:
    """Where rows are least over the region, and along the gradients there, values are not below what is proved."""
    rng = np.random.default_rng(5)
    net = mlp(rng, [4, 8, 8, 3], ops.ReLU())
    x, radius = torch.from_numpy(rng.normal(size=(2, 4))), torch.from_numpy(rng.uniform(0.05, 0.3, (2, 4)))
    basis = torch.linalg.qr(torch.from_numpy(rng.normal(size=(4, 4))))[0] if turned else None
    rows = torch.eye(3, dtype=F64)[None].expand(2, -1, -1)
    region, task = Stated(center=x, radius=radius, p=p, basis=basis), (rows, torch.zeros(2, 3, dtype=F64))
    proved = prove(net, region, *task, torch.arange(3))
    by_arb = prove_arb(net, region, *task, torch.arange(3))
    torch.testing.assert_close(proved, by_arb, rtol=1e-9, atol=1e-9)
    for k in range(3):
        v = torch.zeros_like(x)
        for _ in range(30):
            v.requires_grad_()
            moved = v * radius if basis is None else (v * radius) @ basis.T
            value = net(x + moved)[:, k]
            (slope,) = torch.autograd.grad(value.sum(), v)
            assert bool((value.detach() >= proved[:, k]).all())
            share = slope.abs() / slope.abs().amax(1, keepdim=True)
            best = -slope.sign() * share ** (1 / (p - 1))
            best = best / torch.linalg.vector_norm(best, ord=p, dim=1, keepdim=True)
            v = 0.5 * v.detach() + 0.5 * best * (1 - 1e-12)


@pytest.mark.parametrize("p", [1.2, 3.0])
def test_certificates_are_proved_by_balls(p: float) -> None:
    rng = np.random.default_rng(3)
    net, x = mlp(rng, [4, 8, 3], ops.ReLU()), torch.from_numpy(rng.normal(size=(3, 4)))
    certs = er.certify(net, x, region=er.Ball(p))
    assert certs.certified.all() and certs.settings["p"] == p
    assert er.check(certs) and er.check(certs, arithmetic="arb")
