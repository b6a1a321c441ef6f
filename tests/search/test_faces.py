"""Boxes of few features made larger: the largest box without known counterexamples, slabs, faces."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.claim.space import Space
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Tree
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove as proof
from elbowroom.search.branching import faces
from elbowroom.search.branching.counterexamples import Points
from elbowroom.search.branching.cutting import Numbers, largest_without, needed, undominated
from elbowroom.search.branching.engine import Limits, prove
from elbowroom.search.branching.faces import Faces, Proved, Spending
from elbowroom.search.branching.slabs import beside
from elbowroom.search.regions.base import Placed
from elbowroom.search.regions.box import PlacedAsymmetricBox, PlacedBox
from elbowroom.search.regions.input_set import InputSet


def placed_at(x: Tensor, kind: type[Placed], weight: Tensor | None = None) -> Placed:
    """A shape around one input, `1 x n`, in the domain [-1, 1]."""
    one = torch.ones_like(x)
    importance = one if weight is None else weight.expand_as(x)
    space = Space(-one, one, torch.full_like(x, torch.inf), torch.ones_like(x, dtype=torch.bool), importance)
    return kind(x, space, tuple(x.shape[1:]), torch.float64)


def value(placed: Placed, theta: Tensor) -> float:
    return float((placed.importance * placed.widths(theta[None]).log()).sum())


@pytest.mark.parametrize("kind", [PlacedBox, PlacedAsymmetricBox])
@pytest.mark.parametrize("seed", range(6))
def test_no_larger_box_excludes_all_counterexamples(kind: type[Placed], seed: int) -> None:
    """Beside all boxes whose faces lie at a point's coordinate, or at the domain's end: the largest is one of these."""
    draw = torch.Generator().manual_seed(seed)
    n = 2
    x = torch.rand(1, n, generator=draw, dtype=torch.float64) - 0.5
    points = 2 * torch.rand(7, n, generator=draw, dtype=torch.float64) - 1
    placed = placed_at(x, kind, torch.tensor([1.0, 2.0]) if seed % 2 else None)
    need = needed(placed, points, placed.caps[0])
    found = largest_without(placed, need, placed.caps[0], Numbers(math.inf))
    assert found is not None and not (need < found * (1 - 1e-9)).all(1).any()
    best = -torch.inf
    for theta in itertools.product(*[
        [float(cap), *(float(v) for v in column if 0 < v < cap)] for cap, column in zip(placed.caps[0], need.T)
    ]):  # fmt: skip
        box = torch.tensor(theta, dtype=torch.float64)
        if not (need < box * (1 - 1e-9)).all(1).any():
            best = max(best, value(placed, box))
    assert value(placed, found) == pytest.approx(best, abs=1e-9)


def test_features_that_stay_exclude_nothing() -> None:
    x = torch.zeros(1, 2, dtype=torch.float64)
    one = torch.ones_like(x)
    free = torch.tensor([[True, False]])
    placed = PlacedAsymmetricBox(x, Space(-one, one, one * torch.inf, free, one), (2,), torch.float64)
    need = needed(placed, torch.tensor([[0.5, 0.0]], dtype=torch.float64), placed.caps[0])
    found = largest_without(placed, need, placed.caps[0], Numbers(math.inf))
    assert found is not None and found.tolist() == [1.0, 0.0, 0.5, 0.0]


@pytest.mark.parametrize("kind", [PlacedBox, PlacedAsymmetricBox])
def test_counterexamples_behind_others_change_nothing(kind: type[Placed]) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.zeros(1, 3, dtype=torch.float64)
    placed = placed_at(x, kind, None)
    for _ in range(20):
        need = needed(placed, 2 * torch.rand(40, 3, generator=draw, dtype=torch.float64) - 1, placed.caps[0])
        few = undominated(torch.cat([need, need[:5]]))
        assert 0 < len(few) <= len(need)
        boxes = torch.rand(200, need.shape[1], generator=draw, dtype=torch.float64)
        held, by_few = ((t < boxes[:, None]).all(2).any(1) for t in (need, few))
        assert torch.equal(held, by_few) and bool(held.any()) and not bool(held.all())


def test_choosing_a_box_ends_with_its_numbers() -> None:
    placed = placed_at(torch.zeros(1, 2, dtype=torch.float64), PlacedAsymmetricBox, None)
    points = 2 * torch.rand(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1
    need = needed(placed, points, placed.caps[0])
    assert largest_without(placed, need, placed.caps[0], Numbers(100.0)) is None
    some = largest_without(placed, need, placed.caps[0], Numbers(1e5))
    assert some is None or not (need < some * (1 - 1e-9)).all(1).any()


@pytest.mark.parametrize("sizes", [(3, 16, 16, 3), (2, 16, 16, 3)])
def test_seconds_are_kept_and_nothing_is_lost_by_them(sizes: tuple[int, ...]) -> None:
    """All goes to good starts, if it is let: what scaling proves comes first."""
    net = chain(3, sizes)
    x = 2 * torch.rand(4, sizes[0], generator=torch.Generator().manual_seed(1), dtype=torch.float64) - 1
    told: dict[str, Any] = {"region": er.Box(asymmetric=True), "domain": (-2.0, 2.0), "progress": False}
    fast = er.certify(net, x, **told)
    started = time.process_time()
    found = er.certify(net, x, effort="0.5s", **told)
    assert time.process_time() - started < 10  # of 2, and what begins before their end
    good = fast.certified
    assert torch.equal(found.certified, good) and bool(good.any())
    assert bool((found.geomean[good] >= fast.geomean[good]).all())
    assert float((found.geomean / fast.geomean)[good].log().mean()) > 0.02


def test_a_few_leaves_go_to_scaling_before_they_go_to_starts() -> None:
    """Starts take all that may be spent, and prove nothing with six leaves."""
    net = chain(3, (3, 16, 16, 3))
    x = 2 * torch.rand(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) - 1
    told: dict[str, Any] = {"region": er.Box(asymmetric=True), "domain": (-2.0, 2.0), "progress": False}
    fast, found = er.certify(net, x, **told), er.certify(net, x, effort=6, **told)
    assert float((found.geomean / fast.geomean).log().mean()) > 0.5  # 0.66; 0.33 if regions are not scaled first


# --- slabs


def chain(seed: int, sizes: tuple[int, ...]) -> Network:
    draw = torch.Generator().manual_seed(seed)
    layers: list[torch.nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layer = torch.nn.Linear(a, b)
        layer.weight.data = torch.randn(b, a, generator=draw) * (1.5 / a**0.5)
        layer.bias.data = 0.3 * torch.randn(b, generator=draw)
        layers += [layer, torch.nn.ReLU()]
    return er.load(torch.nn.Sequential(*layers[:-1]), input_shape=(sizes[0],))


def proofs(net: Network, lower: Tensor, upper: Tensor, spec: Specification) -> dict[int, Tree] | None:
    out = prove(net.cast(torch.float32), InputSet.box(lower.float(), upper.float()), spec.cast(torch.float32, "cpu"),
                Limits(leaves=60), every=True)  # fmt: skip
    return out.trees[0] if bool(out.proved.all()) else None


@pytest.mark.parametrize("seed", range(3))
def test_a_box_and_a_slab_are_proved_by_the_trees_of_both(seed: int) -> None:
    net = chain(seed, (3, 8, 8, 3))
    x = torch.zeros(1, 3, dtype=torch.float64)
    spec = label_stays(net.decide(net(x)), 3)
    scale, trees = 2.0, None
    while trees is None:
        scale /= 1.2
        lower, upper = x - scale, x + scale
        trees = proofs(net, lower, upper, spec)
    assert sorted(trees) == [0, 1]  # every group has one, whether it was split or not
    for feature, high in itertools.product(range(3), (False, True)):
        wide = 0.2 * scale
        while wide > 1e-4:  # until a slab can be proved
            low, up = lower.clone(), upper.clone()
            low[:, feature], up[:, feature] = (scale, scale + wide) if high else (-scale - wide, -scale)
            slab = proofs(net, low, up, spec)
            if slab is not None:
                break
            wide /= 4
        if slab is None:
            continue
        at = float(upper.float()[0, feature] if high else lower.float()[0, feature])
        both = beside(feature, at, *((trees, slab) if high else (slab, trees)))
        box = Stated(torch.minimum(lower, low), torch.maximum(upper, up))
        margins = proof(net, box, spec.rows, spec.offset, spec.group, trees=[tuple(both.items())])
        assert (margins > 0).all()
        # Of the sides' trees in each other's place nothing is proved that is not so.
        wrong = beside(feature, at, *((slab, trees) if high else (trees, slab)))
        points = box.lower + torch.rand(2000, 3, dtype=torch.float64) * (box.upper - box.lower)
        least = spec.margins(net.cast(torch.float64)(points)).amin(0)
        for own in (both, wrong):
            bound = proof(net, box, spec.rows, spec.offset, spec.group, trees=[tuple(own.items())])
            assert (bound[0] <= least).all()


def test_points_that_break_are_found_and_pulled_to_where_they_begin_to() -> None:
    net = chain(1, (2, 8, 3))
    x = torch.zeros(2, 2, dtype=torch.float64)
    spec, net64 = label_stays(net.decide(net(x)), 3), net.cast(torch.float64)
    points = Points(net64, spec)
    owner = torch.tensor([1, 0])
    lower, upper = torch.full_like(x, -3), torch.full_like(x, 3)
    found, box = points.inside(owner, lower, upper, 0)
    assert len(found) and (points.margins(found, owner[box]) <= 0).all()
    assert ((found >= -3) & (found <= 3)).all()
    pulled = points.pulled(found, owner[box], x[owner[box]])
    assert (points.margins(pulled, owner[box]) <= 0).all()
    assert (points.margins(pulled * (1 - 2**-12), owner[box]) > 0).float().mean() > 0.9


def test_no_boxes_have_no_counterexamples_inside() -> None:
    net = chain(1, (2, 8, 3))
    x = torch.zeros(1, 2, dtype=torch.float64)
    points = Points(net.cast(torch.float64), label_stays(net.decide(net(x)), 3))
    found, box = points.inside(torch.zeros(0, dtype=torch.long), x[:0], x[:0], 0)
    assert found.shape == (0, 2) and box.shape == (0,)


def test_a_corner_where_another_class_than_the_nearest_wins_is_found() -> None:
    # Of two classes, one is nearly as good everywhere and nowhere better; the other one is, in a corner.
    weight = torch.tensor([[0.0] * 5, [1e-9] * 5, [1.0] * 5], dtype=torch.float64)
    net = Network.chain((5,), [ops.Linear(weight, torch.tensor([0.0, -0.1, -4.99], dtype=torch.float64))])
    points = Points(net.cast(torch.float64), label_stays(torch.tensor([0]), 3))
    corner = torch.zeros(1, 5, dtype=torch.float64)
    found, _ = points.inside(torch.tensor([0]), corner, corner + 1, 0)
    assert len(found) and (found.sum(1) > 4.98).all()


def test_slabs_that_took_too_many_leaves_may_have_more_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    net, draw = chain(4, (4, 16, 16, 3)), torch.Generator().manual_seed(3)
    x = torch.rand(1, 4, generator=draw, dtype=torch.float64) - 0.5
    areas = []
    for slabs in ((8, 8), (8, 600)):
        monkeypatch.setattr(faces, "_LARGEST_SLABS", slabs)
        certs = er.certify(net, x, region=er.Box(True), domain=(-1, 1), effort="medium")
        assert certs.upper is not None and certs.lower is not None and bool(er.check(certs, net))
        areas.append(float((certs.upper - certs.lower).prod()))
    assert areas[1] > 1.2 * areas[0]


def test_what_a_proof_meets_is_remembered_where_it_begins() -> None:
    """The counterexample that a proof of a slab comes upon may lie at its far side: there, a face would end too far."""
    net, met = chain(0, (2, 8, 8, 2)).cast(torch.float64), 0
    every = 2 * torch.rand(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1
    for face, x in itertools.product(range(4), every[:, None]):
        end = x.clone()
        end[0, face % 2] = 1.0 if face >= 2 else -1.0
        if net.decide(net(x)) == net.decide(net(end)):
            continue
        spec, placed = label_stays(net.decide(net(x)), 2), placed_at(x, PlacedAsymmetricBox)
        theta = torch.full((1, 4), 1e-4, dtype=torch.float64)
        spending = Spending(60, 1000, math.inf, None, torch.zeros(1, dtype=torch.long))
        faces = Faces(net, placed, spec, Proved(theta, [{}]), lambda trees: True, spending, 0.02)
        held = faces._prove(torch.tensor([0]), torch.tensor([face]), placed.caps[:, face])
        assert not bool(held[0])
        for point in faces.known[0]:
            start = point.clone()
            start[face % 2] = x[0, face % 2]
            nearer = start + (1 - 2**-10) * (point - start)
            values = spec.margins(net(torch.stack([point, nearer]))).amin(1)
            assert float(values[0]) <= 0 < float(values[1])
            met += 1
    assert met > 10


# --- two dimensions


def grid_areas(net: Network, x: Tensor, label: int, spacing: float) -> tuple[float, float]:
    """Of the boxes in [-1, 1]^2 around `x` without a point of another class of a grid inside, the largest area, and the
    largest when all are two spacings smaller along each axis, as far as the grid can be wrong."""
    line = torch.linspace(-1, 1, round(2 / spacing) + 1, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    bad = (net.decide(net.cast(torch.float64)(grid)) != label).reshape(len(line), -1)
    up = torch.where(bad & (line >= x[1]), line, 1.0).amin(1)
    down = torch.where(bad & (line < x[1]), line, -1.0).amax(1)
    most = smaller = 0.0
    for i in (line <= x[0]).nonzero().flatten().tolist():  # from there to all others, what is between them taken in
        tops = torch.cat([torch.ones(1).double(), up[i + 1 : -1]]).cummin(0).values
        floors = torch.cat([-torch.ones(1).double(), down[i + 1 : -1]]).cummax(0).values
        wide, high = (line[i + 1 :] - line[i])[line[i + 1 :] >= x[0]], (tops - floors)[line[i + 1 :] >= x[0]]
        if len(wide):
            most = max(most, float((wide * high).max()))
            smaller = max(smaller, float(((wide - 2 * spacing) * (high - 2 * spacing)).max()))
    return most, smaller


@pytest.mark.parametrize("seed", [0, 1])
def test_in_two_dimensions_boxes_are_about_the_largest_there_are(seed: int) -> None:
    """Of one input at random, and one a hundredth from the edge of its class."""
    net, draw = chain(seed, (2, 8, 8, 2)), torch.Generator().manual_seed(seed)
    points = 2 * torch.rand(400, 2, generator=draw, dtype=torch.float64) - 1
    labels = net.decide(net.cast(torch.float64)(points))
    a, b = points[labels == 0][0], points[labels == 1][0]
    for _ in range(30):
        middle = (a + b) / 2
        a, b = (middle, b) if int(net.decide(net.cast(torch.float64)(middle[None]))) == 0 else (a, middle)
    near = a + 0.01 * (points[labels == 0][0] - a) / (points[labels == 0][0] - a).norm()
    x = torch.stack([points[0], near])
    certs = er.certify(net, x, region=er.Box(asymmetric=True), domain=(-1, 1), effort="medium")
    assert certs.lower is not None and certs.upper is not None and bool(er.check(certs, net))
    for k in range(2):
        most, smaller = grid_areas(net, x[k], int(certs.labels[k]), 0.004)
        area = float((certs.upper[k] - certs.lower[k]).prod())
        assert 0.95 * smaller < area < 1.0001 * most, (k, area, smaller, most)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_faces_end_at_counterexamples_or_the_domain(asymmetric: bool) -> None:
    """Of a network small enough for all of them; of a symmetric box, one of each pair."""
    net, draw = chain(3, (4, 6, 6, 3)), torch.Generator().manual_seed(3)
    x = torch.rand(2, 4, generator=draw, dtype=torch.float64) - 0.5
    certs = er.certify(net, x, region=er.Box(asymmetric), domain=(-1, 1), effort="medium", reach=True)
    assert bool(er.check(certs, net)) and certs.lower is not None and certs.upper is not None
    assert certs.seen_lower is not None and certs.seen_upper is not None
    width = certs.upper - certs.lower
    below = (certs.lower - certs.seen_lower <= 0.05 * width) | (certs.lower < -1 + 1e-6)
    above = (certs.seen_upper - certs.upper <= 0.05 * width) | (certs.upper > 1 - 1e-6)
    assert (below & above).all() if asymmetric else (below | above).all(), (below, above)
