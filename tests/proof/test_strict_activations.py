"""Enclosures and lines of every activation against balls of 400 bits, without any tolerance.

Centres from the inflection points to 1e6 and beyond, widths from nothing over one unit in the last place to 1e6.
"""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from flint import arb, ctx
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.proof.kernel import activations as rows
from elbowroom.proof.kernel import enclosures
from elbowroom.proof.kernel.activations import Smooth
from elbowroom.proof.kernel.enclosures import interval, lines
from proof.exact import activation
from support import ACTIVATIONS, FULL

ACTIVATIONS = ACTIVATIONS | {
    "flat leaky": ops.LeakyReLU(1e-20),
    "nearly straight": ops.LeakyReLU(1 - 2.0**-53),
    "narrow clip": ops.Clip(0.1, 0.1 + 1e-15),
    "huge elu": ops.ELU(1e10),
    "faint elu": ops.ELU(1e-10),
    "blunt softplus": ops.Softplus(1e-3),
    "very blunt softplus": ops.Softplus(1e-12),
    "very sharp softplus": ops.Softplus(1e6),
}
CENTRES = (
    0.0, 5e-324, 1e-310, 1e-200, 1e-17, 1e-9, 1e-3, 0.1, 0.3, 0.7, 0.75179152469356, 1.0, 1.2784645427610738,
    math.sqrt(2), 1.4185040087908284, 2.3993572805154677, 3.0, 6.0, 8.5, 12.0, 19.0, 27.0, 36.0, 38.5, 100.0, 700.0,
    709.9, 745.2, 1e3, 1e4, 1e6, 1e20, 1e160,
)  # fmt: skip
WIDTHS = (0.0, 1e-323, 1e-308, 1e-100, 1e-16, 1e-12, 1e-8, 1e-5, 1e-3, 0.03, 0.3, 1.0, 3.0, 10.0, 60.0, 1e3, 1e6)


@pytest.fixture(autouse=True)
def bits() -> Iterator[None]:
    before, ctx.prec = ctx.prec, 400
    yield
    ctx.prec = before


def intervals(rng: np.random.Generator, count: int | None) -> tuple[Tensor, Tensor]:
    """Pairs `l <= u`; `count` of them, or all."""
    found = []
    for c in CENTRES:
        for sign in (1, -1):
            found += [(math.nextafter(sign * c, -math.inf), sign * c), (sign * c, math.nextafter(sign * c, math.inf))]
            for w in WIDTHS:
                part = rng.choice([0.0, 0.5, 1.0, rng.random()])
                found.append((sign * c - part * w, sign * c + (1 - part) * w))
    if count is not None:
        found = [found[i] for i in rng.choice(len(found), count, replace=False)]
    l, u = torch.tensor(found, dtype=torch.float64).T
    return torch.minimum(l, u)[None], torch.maximum(l, u)[None]


def points(op: ops.Activation, rng: np.random.Generator, l: float, u: float) -> list[float]:
    """Where a line is likeliest to be crossed: the ends and their neighbours, bends, kinks, and anywhere."""
    row = rows.TABLE[type(op)]
    special = [*row.bends(op), *row.kinks(op)] if isinstance(row, Smooth) else list(row(op))
    if isinstance(row, Smooth) and row.least(op) is not None:
        special.append(row.least(op)[0])
    near = [math.nextafter(p, d) for p in special for d in (-math.inf, math.inf)]
    inside = [l, u, math.nextafter(l, u), math.nextafter(u, l), l / 2 + u / 2, *special, *near]
    inside += [l + t * (u - l) for t in rng.random(3)] + [l + t * (u - l) for t in (1e-9, 1e-3, 0.1, 0.9, 1 - 1e-6)]
    return sorted({p for p in inside if l <= p <= u})


def crossings(name: str, count: int | None) -> list[str]:
    """Where a value leaves its enclosure, or lies on the wrong side of a line."""
    op = ACTIVATIONS[name]
    rng = np.random.default_rng(1)
    l, u = intervals(rng, count)
    enclosure = interval(op, l, u)
    both = {kind: lines(op, l, u, kind == "parallel") for kind in ("adaptive", "parallel")}
    for line in both.values():
        assert all(bool(torch.isfinite(t).all()) for t in line)  # where not, nothing would be claimed
    found = []
    for i in range(l.shape[1]):
        for x in points(op, rng, float(l[0, i]), float(u[0, i])):
            value, at = activation(op, x, 400), arb(x)
            low, high = (arb(float(t[0, i])) for t in enclosure)
            wrong = ["enclosure"] if low > value or high < value else []
            for kind, line in both.items():
                k_l, m_l, k_u, m_u = (arb(float(t[0, i])) for t in line)
                if k_l * at + m_l > value or k_u * at + m_u < value:
                    wrong.append(f"{kind} line")
            found += [f"{name} on [{float(l[0, i])!r}, {float(u[0, i])!r}] at {x!r}: {what}" for what in wrong]
    return found


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_no_value_leaves_its_enclosure_or_crosses_its_line(name: str) -> None:
    found = crossings(name, None if FULL else 250)
    assert not found, found[:3]


@pytest.mark.parametrize("term", ["LIBRARY", "TINY", "U"])
def test_a_missing_error_term_is_caught(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rows, enclosures):
        monkeypatch.setattr(module, term, 0.0)
    assert any(crossings(name, 250) for name in ("gelu", "silu", "leaky", "very blunt softplus"))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_any_slope_gets_a_valid_intercept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes are proposals only: lines hold for bad ones, too."""
    op = ACTIVATIONS[name]
    rng = np.random.default_rng(2)
    l, u = intervals(rng, None if FULL else 60)
    drawn = torch.from_numpy(rng.choice([0.0, 1.0, -1.0, 1e-9, 0.3, 1e8, *rng.standard_normal(6)], l.shape[1]))[None]
    for proposal in ("_kinked_slopes", "_smooth_slopes"):
        monkeypatch.setattr(enclosures, proposal, lambda *args: (drawn, drawn.flip(1)))
    line = lines(op, l, u, False)
    for i in range(l.shape[1]):
        for x in points(op, rng, float(l[0, i]), float(u[0, i])):
            value, at = activation(op, x, 400), arb(x)
            k_l, m_l, k_u, m_u = (arb(float(t[0, i])) for t in line)
            assert not k_l * at + m_l > value, (name, float(l[0, i]), float(u[0, i]), x)
            assert not k_u * at + m_u < value, (name, float(l[0, i]), float(u[0, i]), x)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_lines_are_tight(name: str) -> None:
    """A check that always says minus infinity would pass the tests above; these gaps are the relaxation's own."""
    op = ACTIVATIONS[name]
    for l, u in ((0.2, 0.200001), (-3.0, -2.9), (-0.1, 0.1), (4.0, 4.0)):
        low, high = (torch.full((1, 1), t, dtype=torch.float64) for t in (l, u))
        line = lines(op, low, high, False)
        for x in (l, u):
            gap = float((line.k_u - line.k_l) * x + line.m_u - line.m_l)
            steep = max(1.0, abs(getattr(op, "alpha", 1.0)), float(torch.as_tensor(getattr(op, "slope", 1.0)).abs()))
            size = steep * max(1.0, float(op(high).abs()))
            kinked = not isinstance(rows.TABLE[type(op)], Smooth) or isinstance(op, ops.ELU) or "sharp" in name
            assert gap <= (2.0 if kinked else 2 * (u - l)) * (u - l) * size + 1e-12 * size, (name, l, u, gap)


def test_inflection_points_and_minima() -> None:
    """The constants in the table: bends within one unit in the last place, minima's values rounded down."""

    def curvature(op: ops.Activation, x: float) -> arb:
        h = 2.0**-20
        here = [activation(op, x + d, 400) for d in (-h, 0.0, h)]
        return here[0] - 2 * here[1] + here[2]

    for op in (ops.SiLU(), ops.GELU(), ops.GELU(tanh=True)):
        row = rows.TABLE[type(op)]
        low, high = row.bends(op)
        signs = [curvature(op, x) > 0 for x in np.concatenate([np.linspace(-30, 30, 6001), [low - 1e-5, low + 1e-5]])]
        expected = [low < x < high for x in np.concatenate([np.linspace(-30, 30, 6001), [low - 1e-5, low + 1e-5]])]
        assert signs == expected
        at, value = row.least(op)
        for d in (-1e-9, 0.0, 1e-9):
            assert activation(op, at + d, 400) > arb(value)
        assert activation(op, at, 400) - arb(value) < 1e-15
