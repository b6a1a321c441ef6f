"""The proof that a counterexample lies in a scaled region: exact arithmetic agrees, and what is forged fails."""

import dataclasses
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import elbowroom as er
from elbowroom.claim.hints import Hints
from elbowroom.claim.stated import Stated
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.proof.reach import broken_on, held_by
from proof import exact
from support import cases, mlp

BASIS = torch.linalg.qr(torch.from_numpy(np.random.default_rng(1).standard_normal((3, 3))))[0]


def strict(net: Network) -> Any:
    def proof(region: Stated, rows: Tensor, offset: Tensor, group: Tensor, hints: Hints) -> Tensor:
        return prove(net, region, rows, offset, group, hints)

    return proof


# --- in the region?


@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1e-300, 1e-12, 1e-3, 1.0, 1e9]))
@cases(20)
def test_boxes_hold_what_exact_arithmetic_says(seed: int, size: float) -> None:
    """At the very boundary, a few units in the last place to both sides of it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8, 3)) * rng.choice([0.0, 1e-6, 1.0, 1e6])
    lower, upper = x - size * rng.random((8, 3)), x + size * rng.random((8, 3))
    scale = 1 + rng.exponential(size=8)
    point = x + scale[:, None] * np.where(rng.random((8, 3)) < 0.5, lower - x, upper - x)
    for _ in range(int(rng.integers(0, 3))):
        point = np.nextafter(point, np.where(rng.random((8, 3)) < 0.8, x, math.inf))
    held, box = held_by(Stated(*map(torch.from_numpy, (lower, upper))), *map(torch.from_numpy, (x, point, scale)))
    for k in range(8):
        s = Fraction(scale[k])
        inside = all(
            s * (Fraction(low) - Fraction(at)) <= Fraction(p) - Fraction(at) <= s * (Fraction(high) - Fraction(at))
            for low, high, at, p in zip(lower[k], upper[k], x[k], point[k])
        )
        assert inside or not held[k]
    assert torch.equal(box.middle(), torch.from_numpy(point))


def surface(rng: np.random.Generator, p: float, turned: bool) -> tuple[Stated, Tensor, Tensor, Tensor]:
    """Regions of 8 inputs, some flat, those inputs, scales, and points on the surface of the scaled regions."""
    x, scale = torch.from_numpy(rng.normal(size=(8, 3))), torch.from_numpy(1 + rng.exponential(size=8))
    radius = torch.from_numpy(rng.random((8, 3)) * rng.choice([1e-3, 1.0, 1e3]))
    radius[:, 0] *= torch.from_numpy(rng.integers(0, 2, 8))
    center = x + (0.3 * radius if p == math.inf and not turned else 0)
    v = torch.where(radius > 0, torch.from_numpy(rng.normal(size=(8, 3))), 0.0)
    moved = radius * v / torch.linalg.vector_norm(v, ord=p, dim=1, keepdim=True)
    moved = moved @ BASIS.T if turned else moved
    region = Stated(center=center, radius=radius, p=p, basis=BASIS if turned else None)
    return region, x, scale, x + scale[:, None] * (center - x + moved)


@given(
    seed=st.integers(0, 2**32 - 1), p=st.sampled_from([1.0, 1.05, 1.5, 2.0, 3.0, 50.0, math.inf]), turned=st.booleans()
)
@cases(20)
def test_other_shapes_hold_what_is_on_their_surface(seed: int, p: float, turned: bool) -> None:
    region, x, scale, near = surface(np.random.default_rng(seed), p, turned)
    held, box = held_by(region, x, near, scale * (1 + 1e-8))
    assert bool(held.all()) and box.lower is not None and box.upper is not None
    assert bool(((box.lower < near) & (near < box.upper)).all())
    assert bool((box.upper - box.lower <= 1e-12 * (1 + near.abs().amax())).all())
    assert not held_by(region, x, near, scale * (1 - 1e-6))[0].any()


@given(seed=st.integers(0, 2**32 - 1), p=st.sampled_from([1.0, 2.0, 3.0, 7.0, math.inf]))
@cases(20)
def test_the_box_holds_a_point_of_the_region_in_exact_arithmetic(seed: int, p: float) -> None:
    """At the very boundary: the box's point that is nearest to the middle lies in the region scaled."""
    rng = np.random.default_rng(seed)
    region, x, scale, near = surface(rng, p, False)
    scale = scale * torch.from_numpy(1 + rng.choice([-1e-9, -3e-16, 0, 3e-16, 1e-9, 3e-9], 8))
    held, box = held_by(region, x, near, scale)
    for k in held.nonzero().squeeze(1).tolist():
        t, shares = Fraction(float(scale[k])), []
        for at, c, r, low, high in zip(
            *(exact.objects(Fraction, m[k]) for m in (x, region.center, region.radius, box.lower, box.upper))
        ):
            middle = at + t * (c - at)
            away = max(low - middle, middle - high, Fraction(0))
            assert r > 0 or away == 0
            shares.append(away / (t * r) if r > 0 else Fraction(0))
        assert (max(shares) if p == math.inf else sum(s ** int(p) for s in shares)) <= 1


def test_no_number_holds_nothing() -> None:
    x, one = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    box, ball = Stated(x - 1, x + 1), Stated(center=x, radius=x + 1, p=2.0)
    for region in (box, ball):
        assert held_by(region, x, x + 0.5, one)[0].all()
        for scale in (math.nan, math.inf, 0.0, -2.0):
            assert not held_by(region, x, x + 0.1, scale * one)[0].any()
        for value in (math.nan, math.inf):
            assert not held_by(region, x, x + value, one)[0].any()
        assert not held_by(region, x, x + 2, one)[0].any()


def test_a_feature_without_extent_does_not_move() -> None:
    x, one = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    point = torch.tensor([[1e-300, 0.5]], dtype=torch.float64)
    flat = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    assert not held_by(Stated(x - flat, x + flat), x, point, one)[0].any()
    held, box = held_by(Stated(center=x, radius=flat, p=2.0), x, point, one)
    # A point of the region is meant: the one beside it, which the box holds.
    assert held.all() and box.lower is not None and box.upper is not None
    assert float(box.lower[0, 0]) <= 0 <= float(box.upper[0, 0])


# --- a counterexample?


@given(seed=st.integers(0, 2**32 - 1), op=st.sampled_from([ops.ReLU(), ops.LeakyReLU(0.1), ops.Clip(-0.5, 0.5)]))
@cases(5)
def test_what_is_proved_broken_is_so_in_exact_arithmetic(seed: int, op: ops.Operation) -> None:
    """Offsets put rows at zero or next to it; groups have one row or two."""
    rng = np.random.default_rng(seed)
    net = mlp(rng, [2, 5, 5, 3], op)
    x = torch.from_numpy(rng.normal(size=(6, 2)))
    rows = torch.from_numpy(rng.normal(size=(6, 3, 3)))
    group = torch.tensor([0, 1, 1] if seed % 2 else [0, 1, 2])
    there = [exact.objects(Fraction, rows[k]).dot(exact.values(net, x[k])[-1]) for k in range(6)]
    offset = -torch.tensor([[float(v) for v in values] for values in there], dtype=torch.float64)
    offset += torch.from_numpy(rng.choice([0, 1e-16, -1e-16, 1e-13, -1e-13, 1, -1], (6, 3)))
    broken = broken_on(Stated(x, x), rows, offset, group, strict(net))
    for k in range(6):
        values = there[k] + exact.objects(Fraction, offset[k])
        groups = [max(v for v, g in zip(values, group.tolist()) if g == j) for j in range(int(group.max()) + 1)]
        assert min(groups) <= 0 or not broken[k]
        assert min(groups) > -1e-3 or broken[k]


def test_one_group_must_be_broken_by_all_of_its_rows() -> None:
    net = mlp(np.random.default_rng(0), [2, 4, 2], ops.ReLU())
    x = torch.zeros(1, 2, dtype=torch.float64)
    outputs = net(x)[0].tolist()
    rows = torch.eye(2, dtype=torch.float64)[None]
    below, above = [-v - 1 for v in outputs], [-v + 1 for v in outputs]
    for offset, group, expected in (
        ([below[0], above[1]], [0, 0], False), ([below[0], above[1]], [0, 1], True), (below, [0, 0], True),
        (above, [0, 1], False),
        (above, [1, 1], False),  # group 0 has no row: of that nothing is broken
    ):  # fmt: skip
        told = torch.tensor([offset], dtype=torch.float64), torch.tensor(group)
        assert bool(broken_on(Stated(x, x), rows, *told, strict(net))) == expected


# --- forged


REGIONS = {
    "box": er.Box(), "ball": er.Ellipsoid(), "l1": er.L1(), "oblique": er.Oblique(BASIS),
    "oblique ball": er.Oblique(BASIS, er.Ellipsoid()),
}  # fmt: skip


@functools.cache  # none of the tests below changes them
def certs(region: str = "box") -> er.Certificates:
    net = mlp(np.random.default_rng(2), [3, 8, 3], ops.ReLU())
    x = torch.from_numpy(np.random.default_rng(3).uniform(-1, 1, (4, 3)))
    found = er.certify(net, x, reach=True, region=REGIONS[region])
    assert bool(found.certified.all()) and found.reach is not None and bool(found.reach.isfinite().all())
    assert bool(er.check(found))
    return found


FORGERIES: dict[str, Callable[[er.Certificates], dict[str, Any]]] = {
    "a smaller reach": lambda c: {"reach": (1 - 1e-6) * c.reach},
    "no reach at all": lambda c: {"reach": torch.zeros_like(c.reach)},
    "another point": lambda c: {"seen": c.x + 2 * (c.seen - c.x)},
    "the input": lambda c: {"seen": c.x},
    "a point of the region": lambda c: {"seen": c.center, "reach": torch.ones_like(c.reach)},
    "a point that is no number": lambda c: {"seen": c.seen * math.nan},
    "a point next to it that is no counterexample": lambda c: {"seen": c.x + 0.99 * (c.seen - c.x)},
}


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("region", ["box", "ball", "oblique"])
def test_forged_limits_fail(region: str, forgery: str) -> None:
    good = certs(region)
    report = er.check(dataclasses.replace(good, **FORGERIES[forgery](good)))
    assert not report.passed.any() and all("seen" in why for why in report.message)


def test_a_reach_that_is_no_number_is_refused() -> None:
    good = certs()
    for value in (math.nan, -1.0):
        with pytest.raises(er.InputError, match="reach must hold numbers from 0 to inf"):
            er.check(dataclasses.replace(good, reach=good.reach * value))
    with pytest.raises(er.InputError, match="no seen"):
        er.check(dataclasses.replace(good, seen=None))


def test_a_point_outside_the_domain_of_a_box_is_none() -> None:
    good = certs()
    assert good.seen is not None and good.lower is not None and good.upper is not None
    # A domain that holds the boxes, and no point beyond them.
    forged = dataclasses.replace(good, lowest=good.lower, highest=good.upper)
    report = er.check(forged)
    assert not report.passed.any() and all("seen" in why for why in report.message)
    assert bool(er.check(dataclasses.replace(forged, reach=torch.full_like(good.reach, math.inf), seen=good.x)))


@pytest.mark.parametrize("region", ["box", "l1", "oblique ball"])
def test_arb_agrees(region: str) -> None:
    good = certs(region)
    assert bool(er.check(good, arithmetic="arb"))
    for forgery in ("a smaller reach", "a point next to it that is no counterexample"):
        assert not er.check(dataclasses.replace(good, **FORGERIES[forgery](good)), arithmetic="arb").passed.any()
