"""Sets of categories in regions: what is proved holds at every combination of levels, and is tight."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import elbowroom as er
from elbowroom.claim.categories import Categories, Category
from elbowroom.claim.hints import Hints
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import EMPTY, Tree
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.arb import prove_arb
from elbowroom.proof.kernel.prove import prove
from support import cases

KINDS = ("one-hot", "dropped", "code", "any")


def codes_of(kind: str, levels: int, draw: random.Random) -> Tensor:
    match kind:
        case "one-hot":
            return torch.eye(levels, dtype=torch.float64)
        case "dropped":
            return torch.eye(levels, dtype=torch.float64)[:, 1:]
        case "code":
            return torch.arange(levels, dtype=torch.float64)[:, None]
        case _:
            return torch.tensor([[draw.uniform(-3, 3) for _ in range(2)] for _ in range(levels)], dtype=torch.float64)


def problem(seed: int, activation: ops.Operation | None) -> tuple[Network, Stated, Tensor, Tensor, Tensor]:
    """A small network over some numbers and categories, a region around an input, and rows over its outputs."""
    draw = random.Random(seed)
    numbers = draw.randint(0, 2)
    first, each = numbers, []
    for _ in range(draw.randint(1, 2)):
        kind = draw.choice(KINDS)
        each.append(Category(first, codes_of(kind, draw.randint(2, 4), draw)))
        first += each[-1].codes.shape[1]
    categories = Categories(tuple(each), first)
    torch.manual_seed(seed)
    layers: list[ops.Operation] = [ops.Linear(torch.randn(5, first).double(), torch.randn(5).double())]
    if activation is not None:
        layers += [activation, ops.Linear(torch.randn(5, 5).double(), torch.randn(5).double()), activation]
    layers += [ops.Linear(torch.randn(3, 5).double(), None)]
    net = Network.chain((first,), layers)
    allowed = torch.rand(2, categories.count) < 0.6
    for _, place in categories:
        allowed[:, place.start] |= ~allowed[:, place].any(1)
    x, r = torch.randn(2, first).double(), torch.rand(2, first).double()
    lower, upper = categories.hull(allowed, x - r, x + r)
    rows = torch.tensor([[1.0, -1, 0], [1, 0, -1]], dtype=torch.float64).expand(2, -1, -1)
    offset = 2 * torch.rand(2, 2).double()
    return net, Stated(lower, upper, categories=categories, allowed=allowed), rows, offset, torch.arange(2)


def combinations(region: Stated, b: int) -> list[Tensor]:
    """Every point of region b at corners of its numbers and all levels, and a few more."""
    assert region.categories is not None and region.allowed is not None
    sides: list[list[tuple[int, list[float]]]] = []
    for k in region.categories.moves.nonzero().squeeze(1).tolist():
        low, high = float(region.lower[b, k]), float(region.upper[b, k])
        sides.append([(k, [value]) for value in (low, high, low + 0.37 * (high - low))])
    for one, place in region.categories:
        sides.append([(one.first, code) for code in one.codes[region.allowed[b, place]].tolist()])
    found = []
    for chosen in itertools.product(*sides):
        point = torch.zeros(region.lower.shape[1], dtype=torch.float64)
        for first, values in chosen:
            point[first : first + len(values)] = torch.tensor(values, dtype=torch.float64)
        found.append(point)
    return found


@pytest.mark.parametrize("activation", [None, ops.ReLU(), ops.Tanh()], ids=["linear", "relu", "tanh"])
@given(seed=st.integers(0, 10**6))
@cases(0.4)
def test_what_is_proved_holds_at_every_combination(activation: ops.Operation | None, seed: int) -> None:
    net, region, rows, offset, group = problem(seed, activation)
    hints = [Hints(), Hints(parallel=True), Hints(hidden=False)]
    found = [prove(net, region, rows, offset, group, one) for one in hints] + [
        prove_arb(net, region, rows, offset, group)
    ]
    loose = prove(net, Stated(region.lower, region.upper), rows, offset, group)
    for b in range(2):
        points = torch.stack(combinations(region, b))
        true = (net(points) @ rows[b].T + offset[b]).amin(0)
        for margins in found:
            assert bool((margins[b] <= true + 1e-9).all())
        if activation is None:  # attained at a level and corners
            torch.testing.assert_close(found[0][b], true, rtol=1e-9, atol=1e-9)
    if activation is None:
        assert bool((found[0] >= loose - 1e-9).all())
    torch.testing.assert_close(found[0], found[3], rtol=1e-7, atol=1e-7)


def test_exactly_the_least_level_in_fractions() -> None:
    """Of linear networks, against exact arithmetic: never above, and within rounding."""
    for seed in range(60):
        net, region, rows, offset, group = problem(seed, None)
        found = prove(net, region, rows, offset, group)
        layers = [(n.op.weight, n.op.bias) for n in net.nodes[1:]]
        for b in range(2):
            for t in range(2):
                least = min(
                    _exact(layers, p.tolist(), rows[b, t].tolist(), offset[b, t]) for p in combinations(region, b)
                )
                assert Fraction(float(found[b, t])) <= least
                assert float(least) - float(found[b, t]) < 1e-12 * (1 + abs(float(least)))


def _exact(layers: list[tuple[Tensor, Any]], x: list[float], row: list[float], offset: Tensor) -> Fraction:
    z = [Fraction(v) for v in x]
    for weight, bias in layers:
        add = [0.0] * len(weight) if bias is None else bias.tolist()
        z = [sum((Fraction(w) * v for w, v in zip(ws, z)), Fraction(c)) for ws, c in zip(weight.tolist(), add)]
    return sum((Fraction(r) * v for r, v in zip(row, z)), Fraction(float(offset)))


def test_codes_are_tighter_than_columns_that_move_freely() -> None:
    gains = []
    for seed in range(40):
        net, region, rows, offset, group = problem(seed, ops.ReLU())
        own = prove(net, region, rows, offset, group)
        gains.append(own - prove(net, Stated(region.lower, region.upper), rows, offset, group))
    gain = torch.stack(gains)
    assert float((gain > 1e-9).double().mean()) > 0.5 and float(gain.mean()) > 0


# --- what is no set


def one() -> tuple[Network, Stated, Tensor, Tensor, Tensor]:
    categories = Categories((Category(1, torch.eye(3, dtype=torch.float64)),), 4)
    net = Network.chain((4,), [ops.Linear(torch.tensor([[1.0, 3.0, 2.0, -1.0]]).double(), None)])
    allowed = torch.tensor([[True, True, False]])
    lower, upper = categories.hull(allowed, torch.zeros(1, 4).double(), torch.ones(1, 4).double())
    region = Stated(lower, upper, categories=categories, allowed=allowed)
    return net, region, torch.ones(1, 1, 1).double(), torch.zeros(1, 1).double(), torch.arange(1)


def test_an_empty_set_proves_nothing() -> None:
    net, region, *rest = one()
    assert float(prove(net, region, *rest)) == pytest.approx(2.0)
    for allowed in ([[False, False, False]], [[True, True, True]], [[True, False, False]]):  # none; not these corners
        other = Stated(region.lower, region.upper, categories=region.categories, allowed=torch.tensor(allowed))
        assert float(prove(net, other, *rest)) == -torch.inf
        assert float(prove_arb(net, other, *rest)) == -torch.inf


def test_sets_that_do_not_fit_are_refused() -> None:
    net, region, *rest = one()
    for other in (
        Stated(region.lower, region.upper, categories=region.categories),
        Stated(region.lower, region.upper, allowed=region.allowed),
        Stated(region.lower, region.upper, categories=region.categories, allowed=region.allowed[:, :2]),
        Stated(center=region.lower, radius=region.upper, categories=region.categories, allowed=region.allowed),
    ):
        with pytest.raises(er.InputError):
            prove(net, other, *rest)
    with pytest.raises(er.InputError, match="overlap"):
        Categories((Category(0, torch.eye(2).double()), Category(1, torch.eye(2).double())), 4)


# --- trees


def tree(node: list[int], entry: list[int], value: list[float]) -> Tree:
    leaves, depth, count = sum(n < 0 for n in node), [0], 0
    for n in node:  # how many splits are above each leaf
        own = depth.pop()
        if n >= 0:
            depth += [own + 1, own + 1]
        else:
            count += own
    return Tree(
        node=torch.tensor(node), entry=torch.tensor(entry), value=torch.tensor(value, dtype=torch.float64),
        multipliers=torch.zeros(count, dtype=torch.float64), neurons=torch.zeros(0, 2, dtype=torch.long),
        slopes=torch.zeros(leaves, 0, dtype=torch.uint8),
    )  # fmt: skip


@given(seed=st.integers(0, 10**6))
@cases(0.4)
def test_a_split_through_codes_leaves_the_levels_on_its_side(seed: int) -> None:
    net, region, rows, offset, group = problem(seed, ops.ReLU())
    assert region.categories is not None
    entry = region.categories.each[0].first
    value = float(region.categories.each[0].codes[:, 0].median()) + random.Random(seed).choice([0.0, 0.5, -0.5])
    split = tree([0, -1, -1], [entry, 0, 0], [value, 0.0, 0.0])
    trees = [[(0, split)], [(0, split)]]
    whole = prove(net, region, rows, offset, group)
    for margins in (
        prove(net, region, rows, offset, group, trees=trees),
        prove_arb(net, region, rows, offset, group, trees=trees),
    ):
        for b in range(2):
            true = (net(torch.stack(combinations(region, b))) @ rows[b].T + offset[b]).amin(0)
            assert bool((margins[b] <= true + 1e-9).all())
        assert bool((margins >= whole - 1e-7).all())


def test_a_side_without_levels_is_empty() -> None:
    """Two of three levels, each split off: what is left has no level, and is proved as such; one that has is not."""
    net, region, rows, offset, group = one()
    offset = offset - 2.5  # holds for the first level, 3 + x, and not for the second, 2 + x
    # entry 1 <= 0.5 (not the first level), then entry 2 <= 0.5 (nor the second), else; else.
    splits, entries = [0, 0, -1, -1, -1], [1, 2, EMPTY, 0, 0]
    alone = tree(splits, entries, [0.5, 0.5, 0.0, 0.0, 0.0])
    for by in (prove, prove_arb):
        assert float(by(net, region, rows, offset, group, trees=[[(0, alone)]])) <= 0  # the second level breaks it
        fine = by(net, region, rows, offset + 1, group, trees=[[(0, alone)]])
        assert float(fine) == pytest.approx(0.5)
        for forged in ([1, 2, EMPTY, EMPTY, 0], [1, 2, EMPTY, 0, EMPTY]):
            false = tree(splits, forged, [0.5, 0.5, 0.0, 0.0, 0.0])
            assert float(by(net, region, rows, offset, group, trees=[[(0, false)]])) <= 0
