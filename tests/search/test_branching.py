"""Branch and bound: bounds of leaves, trees that are complete, and what is stored gives what was claimed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from elbowroom.claim.specification import Specification, label_in, label_stays
from elbowroom.claim.tree import EMPTY, STEPS, USUAL, Leaf, Tree
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation, margins_of
from elbowroom.search.bounds.sharpened import PLAIN, Sharpening
from elbowroom.search.branching.binding import binding
from elbowroom.search.branching.carry import Carrier
from elbowroom.search.branching.climb import climb
from elbowroom.search.branching.engine import Limits, Outcome, prove
from elbowroom.search.branching.leaves import Leaves
from elbowroom.search.branching.roots import Neurons, Roots
from elbowroom.search.branching.scaling import largest_scalings, scaled_boxes
from elbowroom.search.memory import Budget
from elbowroom.search.regions.input_set import InputSet
from support import ACTIVATIONS, mlp, normal

LIMITS = Limits(leaves=400, halve=False)


def problem(
    seed: int, sizes: list[int], share: float = 0.9, activation: ops.Activation | None = None
) -> tuple[Network, InputSet, Specification, Tensor]:
    """A network, a box in it that the plain bounds do not prove, what must hold there, and the box's input: the box is
    somewhat smaller than the largest that many points do not break."""
    rng = np.random.default_rng(seed)
    net = mlp(rng, sizes, activation)
    x = normal(rng, 1, sizes[0])
    spec = label_stays(net.decide(net(x)), sizes[-1])
    points = torch.from_numpy(rng.uniform(-1, 1, (4000, sizes[0])))
    points[::2] = points[::2].sign()
    radius = 2.0
    for _ in range(40):
        if bool((spec.margins(net(x + radius * points)) > 0).all()):
            break
        radius *= 0.9
    radius *= share
    return net, InputSet.box(x - radius, x + radius), spec, x


def run(net: Network, sets: InputSet, spec: Specification, limits: Limits = LIMITS) -> Outcome:
    return prove(net.cast(torch.float64), sets, spec, limits)


# --- a slow bound of a leaf, from the tree alone: chains of linear maps and ReLUs, one number at a time


def slow_bound(net: Network, sets: InputSet, spec: Specification, tree: Tree, leaf: Leaf, k: int) -> float:
    """The bound of leaf number k of a tree, on one box."""
    lower, upper = (t[0].clone() for t in corners(sets))
    for split in leaf.path:
        if split.node == 0:
            side = lower if split.high else upper
            side[split.entry] = split.value
    box = InputSet.box(lower[None], upper[None])
    found = Propagation(
        net, box, method_named("adaptive"), skip_inactive=True, sharpened=Sharpening(tree.sharpened, tree.cases)
    )
    low, high = ([t[0].clone() for t in ts] for ts in (found.lower, found.upper))
    for split in leaf.path:
        if split.node and split.high:
            low[split.node][split.entry] = max(float(low[split.node][split.entry]), split.value)
        elif split.node:
            high[split.node][split.entry] = min(float(high[split.node][split.entry]), split.value)
    places = zip(tree.neurons.tolist(), tree.slopes[k].tolist())
    slopes = {(i, e): slope / STEPS for (i, e), slope in places if slope != USUAL}
    a, constant = spec.rows[0, leaf.row].clone(), float(spec.offset[0, leaf.row])
    for i in reversed(range(1, len(net.nodes))):
        for d, split in enumerate(leaf.path):
            if split.node == i:
                sign, beta = (1 if split.high else -1), float(tree.multipliers[leaf.first + d])
                assert beta >= 0 and math.frexp(beta)[0] * 2**11 % 1 == 0  # half precision holds it
                a[split.entry] -= beta * sign
                constant += beta * sign * split.value
        op = net.nodes[i].op
        if isinstance(op, ops.Linear):
            constant += float(a @ op.bias)
            a = a @ op.weight
            continue
        for e in range(len(a)):
            l, u = float(low[i - 1][e]), float(high[i - 1][e])
            if u <= 0:
                a[e] = 0.0
            elif l < 0 and a[e] > 0:
                a[e] *= slopes.get((i, e), float(u > -l))
            elif l < 0:
                constant -= float(a[e]) * u * l / (u - l)
                a[e] *= u / (u - l)
    return constant + float(a.clamp_min(0) @ lower + a.clamp_max(0) @ upper)


def corners(sets: InputSet) -> tuple[Tensor, Tensor]:
    return sets.center - sets.radius, sets.center + sets.radius


@pytest.mark.parametrize("halve", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 4, 6, 7])
def test_what_is_stored_gives_the_bound_that_was_claimed(seed: int, halve: bool) -> None:
    net, sets, spec, _ = problem(seed, [4, 12, 12, 3])
    out = run(net, sets, spec, Limits(leaves=400, halve=halve))
    assert bool(out.proved.all())
    for g, tree in out.trees[0].items():
        bounds = []
        for k, leaf in enumerate(tree.leaves()):
            if leaf.row != EMPTY:
                assert int(spec.group[leaf.row]) == g
                bounds.append(slow_bound(net, sets, spec, tree, leaf, k))
        assert len(tree.slopes) == tree.n_leaves == int(out.leaves[0, g])
        assert min(bounds) > 0
        assert min(bounds) == pytest.approx(float(out.bound[0, g]), rel=1e-6, abs=1e-9)


def test_trees_are_needed_and_their_leaves_cover_the_box() -> None:
    count = 0
    for seed in (1, 2, 4, 6, 7):
        net, sets, spec, _ = problem(seed, [4, 12, 12, 3])
        out = run(net, sets, spec)
        lower, upper = corners(sets)
        x = lower + torch.rand(500, 4, dtype=torch.float64) * (upper - lower)
        values = net.cast(torch.float64).values(x)
        rows = values[-1] @ spec.rows[0].T + spec.offset[0]
        for tree in out.trees[0].values():
            count += 1
            seen = torch.zeros(len(x), dtype=torch.bool)
            for leaf in tree.leaves():
                inside = torch.ones(len(x), dtype=torch.bool)
                for split in leaf.path:
                    z = values[split.node][:, split.entry]
                    inside &= z >= split.value if split.high else z <= split.value
                seen |= inside
                assert leaf.row != EMPTY or not bool(inside.any())
                assert bool((rows[inside, leaf.row] > 0).all())
            assert bool(seen.all())
    assert count > 3


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_bounds_of_leaves_are_below_what_the_network_does_there(name: str) -> None:
    """Of leaves that are left, too: every bound, whatever slopes and multipliers."""
    net, sets, spec, _ = problem(3, [3, 8, 8, 3], 1.3, ACTIVATIONS[name])
    out = run(net, sets, spec, Limits(leaves=12, steps=3, halve=False))
    for leaves in out.left[0].values():
        _hold_on_samples(net, sets, spec, leaves)


def _hold_on_samples(net: Network, sets: InputSet, spec: Specification, leaves: Leaves) -> None:
    work = net.cast(torch.float64)
    roots = Roots(work, sets, Budget.of(None, torch.device("cpu")))
    leaves = leaves.with_(root=torch.zeros_like(leaves.root))
    carrier = Carrier(work, Neurons(net), roots, leaves, spec.rows[0, leaves.row], spec.offset[0, leaves.row])
    bound = carrier.down(leaves.slope.double() / STEPS, leaves.multiplier.double()).bound
    lower, upper = corners(sets)
    generator = torch.Generator().manual_seed(0)
    share = torch.rand(3000, *lower.shape[1:], dtype=torch.float64, generator=generator)
    values = work.values(lower + share * (upper - lower))
    outputs = values[-1]
    for k in range(len(leaves)):
        inside = torch.ones(len(share), dtype=torch.bool)
        for d in range(int(leaves.depth[k])):
            z = values[int(leaves.node[k, d])].flatten(1)[:, int(leaves.entry[k, d])]
            inside &= float(leaves.sign[k, d]) * (z - float(leaves.value[k, d])) >= 0
        row = outputs[inside] @ spec.rows[0, leaves.row[k]] + spec.offset[0, leaves.row[k]]
        assert not len(row) or float(row.min()) >= float(bound[k]) - 1e-9


def test_derivatives_by_slopes_and_multipliers() -> None:
    net, sets, spec, _ = problem(5, [4, 10, 10, 3], 1.2)
    out = run(net, sets, spec, Limits(leaves=10, steps=2, halve=False))
    (leaves,) = list(out.left[0].values())[:1]
    work = net.cast(torch.float64)
    roots = Roots(work, sets, Budget.of(None, torch.device("cpu")))
    carrier = Carrier(work, Neurons(net), roots, leaves, spec.rows[0, leaves.row], spec.offset[0, leaves.row])
    generator = torch.Generator().manual_seed(1)
    slope = torch.rand(leaves.slope.shape, dtype=torch.float64, generator=generator).requires_grad_()
    multiplier = torch.rand(leaves.multiplier.shape, dtype=torch.float64, generator=generator).requires_grad_()
    sweep = carrier.down(slope, multiplier)
    expected = torch.autograd.grad(sweep.bound.sum(), [slope, multiplier])
    with torch.no_grad():
        sweep = carrier.down(slope, multiplier)
        found = carrier.gradient(sweep, carrier.up(sweep), multiplier)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b)


def test_splitting_every_neuron_decides_tiny_networks() -> None:
    """With all leaves it may have, a box that no point breaks is proved, unless its margin is next to nothing."""
    for seed in range(8):
        net, sets, spec, _ = problem(seed, [2, 6, 6, 3], 0.97)
        grid = torch.tensor(list(itertools.product(np.linspace(-1, 1, 301), repeat=2)), dtype=torch.float64)
        least = spec.margins(net(sets.center + sets.radius * grid)).amin()
        out = run(net, sets, spec, Limits(leaves=4096, halve=False))
        assert bool(out.proved.all()) == (float(least) > 0), (seed, float(least), out.leaves, out.bound)
        assert float(out.bound.min()) <= float(least) + 1e-9


def test_units_do_not_matter() -> None:
    """Margins and inputs in other units, by powers of 2: the same trees."""
    net, sets, spec, _ = problem(1, [4, 12, 12, 3])
    first = run(net, sets, spec)
    for unit in (2.0**-40, 2.0**30):
        scaled = Specification(spec.rows * unit, spec.offset, spec.group)
        again = run(net, sets, scaled)
        torch.testing.assert_close(again.bound, first.bound * unit, rtol=1e-9, atol=0)
        assert torch.equal(again.leaves, first.leaves)


def test_a_broken_box_is_given_up_with_the_point() -> None:
    net, sets, spec, _ = problem(1, [4, 12, 12, 3], 2.0)
    out = run(net, sets, spec)
    assert not bool(out.proved.all())
    (point,) = out.points
    assert point is not None
    lower, upper = corners(sets)
    assert bool(((point >= lower[0] - 1e-12) & (point <= upper[0] + 1e-12)).all())
    assert float(spec.margins(net(point[None])).min()) <= 0


def test_deterministic_and_within_limits() -> None:
    net, sets, spec, _ = problem(1, [4, 12, 12, 3], 0.97)
    first, second = (run(net, sets, spec) for _ in range(2))
    torch.testing.assert_close(first.bound, second.bound, rtol=0, atol=0)
    for g, tree in first.trees[0].items():
        for name in ("node", "entry", "value", "multipliers", "slopes"):
            assert torch.equal(getattr(tree, name), getattr(second.trees[0][g], name))
    few = run(net, sets, spec, Limits(leaves=3, halve=False))
    assert int(few.leaves.max()) <= 3
    assert not bool(few.proved.all())
    assert few.left[0] and few.trees[0].keys().isdisjoint(few.left[0])
    none = run(net, sets, spec, Limits(seconds=0.0, halve=False))
    assert not bool(none.proved.all())


def test_several_inputs_at_once_are_as_good_as_alone() -> None:
    parts = [problem(seed, [4, 12, 12, 3], 0.8) for seed in range(3)]
    net = parts[0][0]
    center = torch.cat([p[3] for p in parts])
    spec = label_stays(net.decide(net(center)), 3)
    sets = InputSet(center, torch.tensor([[0.05], [0.1], [0.2]], dtype=torch.float64).expand(3, 4))
    together = run(net, sets, spec)
    for k in range(3):
        alone = run(net, sets.part(k, k + 1), spec.part(torch.tensor([k])))
        assert torch.equal(alone.proved[0], together.proved[k])


def test_groups_of_several_rows() -> None:
    """Where either of two classes may win, another row may be proved on each leaf."""
    for seed in range(5):
        net, sets, _, x = problem(seed, [3, 10, 10, 4], 0.5)
        spec = label_in([int(net.decide(net(x))), 3 - int(net.decide(net(x)))], 4)
        out = run(net, sets, spec)
        for g, tree in out.trees[0].items():
            assert {leaf.row for leaf in tree.leaves()} <= {EMPTY, *(spec.group == g).nonzero().squeeze(1).tolist()}
        if bool(out.proved.all()):
            lower, upper = corners(sets)
            share = torch.rand(2000, 3, dtype=torch.float64)
            assert bool((spec.margins(net(lower + share * (upper - lower))) > 0).all())


@pytest.mark.parametrize("p", [1, 2])
def test_other_shapes(p: float) -> None:
    net, sets, spec, _ = problem(4, [4, 12, 12, 3])
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=generator)).Q
    ball = InputSet(sets.center, 1.5 * sets.radius, p, basis)
    out = run(net, ball, spec)
    for leaves in out.left[0].values():
        assert len(leaves)
    if bool(out.proved.all()):
        v = torch.randn(3000, 4, dtype=torch.float64, generator=generator)
        v = v / torch.linalg.vector_norm(v, p, dim=1, keepdim=True)
        points = ball.center + (ball.radius * v) @ basis.T
        assert bool((spec.margins(net(points)) > 0).all())


def test_degenerate_boxes_and_networks() -> None:
    net, _, spec, x = problem(0, [4, 12, 12, 3])
    point = run(net, InputSet.box(x, x), spec)
    assert bool(point.proved.all()) and not point.trees[0]
    tiny = run(net, InputSet.box(x - 1e-6, x + 1e-6), spec)
    assert bool(tiny.proved.all()) and not tiny.trees[0] and float(tiny.bound.min()) > 0
    linear = Network.chain((4,), [ops.Linear(normal(np.random.default_rng(0), 3, 4), None)])
    spec = label_stays(linear.decide(linear(x)), 3)
    out = run(linear, InputSet.box(x - 10, x + 10), spec)
    assert not bool(out.proved.all()) and out.points[0] is not None
    dead = Network.chain(
        (2,), [ops.Linear(torch.eye(2).double(), torch.tensor([-9.0, -9.0]).double()), ops.ReLU(),
               ops.Linear(torch.eye(2).double(), torch.tensor([1.0, 0.0]).double())],
    )  # fmt: skip
    zero = torch.zeros(1, 2, dtype=torch.float64)
    assert bool(run(dead, InputSet.box(zero - 1, zero + 1), label_stays(torch.tensor([0]), 2)).proved.all())


def test_max_pooling_and_residuals() -> None:
    rng = np.random.default_rng(0)
    graph = Graph((1, 6, 6))
    first = graph.add(ops.Conv(normal(rng, 2, 1, 3, 3) / 3, normal(rng, 2) * 0.1, padding=(1, 1)), 0)
    relu = graph.add(ops.ReLU(), first)
    second = graph.add(ops.Conv(normal(rng, 2, 2, 3, 3) / 4, None, padding=(1, 1)), relu)
    both = graph.add(ops.Add(), second, relu)
    pooled = graph.add(ops.MaxPool((2, 2), (2, 2)), both)
    flat = graph.add(ops.Reshape((-1,)), pooled)
    net = graph.network(graph.add(ops.Linear(normal(rng, 3, 18) / 4, None), flat))
    x = normal(rng, 1, 1, 6, 6)
    spec = label_stays(net.decide(net(x)), 3)
    for radius in (0.02, 0.05, 0.1, 0.2):
        sets = InputSet(x, torch.full_like(x, radius))
        out = run(net, sets, spec, Limits(leaves=60, steps=5, halve=False))
        for leaves in out.left[0].values():
            _hold_on_samples(net, sets, spec, leaves)
        points = x + radius * torch.from_numpy(rng.uniform(-1, 1, (2000, 1, 6, 6)))
        assert not bool(out.proved.all()) or bool((spec.margins(net(points)) > 0).all())


def test_the_climb_keeps_the_best() -> None:
    net, sets, spec, _ = problem(6, [4, 12, 12, 3], 1.1)
    out = run(net, sets, spec, Limits(leaves=8, steps=1, halve=False))
    (leaves,) = list(out.left[0].values())[:1]
    work, neurons = net.cast(torch.float64), Neurons(net)
    roots = Roots(work, sets, Budget.of(None, torch.device("cpu")))

    def prepare(some: Leaves) -> tuple[Carrier, Tensor]:
        rows, offset = spec.rows[0, some.row], spec.offset[0, some.row]
        return Carrier(work, neurons, roots, some, rows, offset), torch.full_like(offset, 1e9)

    before, after = climb(prepare, leaves, 0), climb(prepare, leaves, 30)
    assert bool((after.bound > before.bound).all())
    torch.testing.assert_close(climb(prepare, after.leaves, 0).bound, after.bound)


# --- trees as starts, and scalings


def test_a_tree_starts_the_search_on_a_larger_box() -> None:
    for seed in (1, 4, 7):
        for halve in (False, True):
            net, sets, spec, _ = problem(seed, [4, 12, 12, 3], 0.9)
            limits = Limits(leaves=400, halve=halve, sharpened=Sharpening(6))  # by cases no split would be needed
            first = run(net, sets, spec, limits)
            larger = InputSet(sets.center, sets.radius * 1.05)
            again = prove(net, larger, spec, limits, first.trees)
            assert bool(again.proved.all()) and first.trees[0]
            for g, tree in again.trees[0].items():
                bounds = [
                    slow_bound(net, larger, spec, tree, leaf, k)
                    for k, leaf in enumerate(tree.leaves())
                    if leaf.row != EMPTY
                ]
                assert min(bounds) == pytest.approx(float(again.bound[0, g]), rel=1e-6, abs=1e-9)
                old = first.trees[0].get(g)
                if old is not None:
                    assert int(tree.node[0]) == int(old.node[0]) and int(tree.entry[0]) == int(old.entry[0])


@pytest.mark.parametrize("halve", [False, True])
def test_scalings_lie_between_what_is_proved_and_what_is_broken(halve: bool) -> None:
    rng = np.random.default_rng(0)
    net = mlp(rng, [3, 16, 16, 3])
    x = normal(rng, 6, 3)
    spec = label_stays(net.decide(net(x)), 3)
    radius = torch.full((6, 3), 0.1, dtype=torch.float64)
    for _ in range(60):
        proved = (margins_of("adaptive")(net, InputSet(x, radius), spec) > 0).all(1)
        radius[~proved] *= 0.9
    at = scaled_boxes(x, x - radius, x + radius, x - 0.5, x + 0.5, torch.float64)
    found = largest_scalings(net, at, 6, spec, Limits(300, halve=halve))
    assert bool((found.factor >= 1).all()) and bool((found.factor <= found.failed).all())
    assert bool((found.factor < found.reach).all())
    assert float(found.factor.max()) > 1
    for k in range(6):
        index = torch.tensor([k])
        sets = at(index, found.factor[index])
        lower, upper = corners(sets)
        points = lower + torch.rand(2000, 3, dtype=torch.float64) * (upper - lower)
        assert bool((spec.part(index).margins(net(points)) > 0).all())
        assert (found.trees[k] is None) == (float(found.factor[k]) == 1)
        for tree in (found.trees[k] or {}).values():
            for n, leaf in enumerate(tree.leaves()):
                assert leaf.row == EMPTY or slow_bound(net, sets, spec.part(index), tree, leaf, n) > 0
        point = found.points[k]
        if point is not None:
            lower, upper = corners(at(index, found.reach[index]))
            assert bool(((point >= lower[0] - 1e-9) & (point <= upper[0] + 1e-9)).all())
            assert float(spec.part(index).margins(net(point[None])).min()) <= 0


def test_without_time_nothing_is_lost() -> None:
    net, sets, spec, x = problem(1, [4, 12, 12, 3], 0.3)
    far = torch.full_like(x, torch.inf)
    at = scaled_boxes(x, *corners(sets), -far, far, torch.float64)
    found = largest_scalings(net, at, 1, spec, Limits(seconds=0.0))
    assert found.factor.tolist() == [1.0] and found.trees == [None]


@pytest.mark.parametrize("halve", [False, True])
def test_what_binds_and_how_it_changes(halve: bool) -> None:
    """Derivatives by centre and radius are those of the worst leaf's bound, by differences."""
    net, sets, spec, _ = problem(4, [4, 12, 12, 3], 0.9)
    # Slopes of hidden rows count as constants: only without them are derivatives exact.
    for sharpened in (Sharpening(6), Sharpening(4, 3), Sharpening(0, 2), PLAIN):
        limits = Limits(leaves=400, halve=halve, sharpened=sharpened)
        out = run(net, sets, spec, limits)
        found = binding(net, sets, spec, out.trees, limits=limits)
        assert found.group.tolist() == [0, 1]
        split = [g for g in (0, 1) if g in out.trees[0] or not sharpened]  # others were proved by plain bounds
        assert split
        torch.testing.assert_close(found.bound[split], out.bound[0, split])
    generator = torch.Generator().manual_seed(0)
    step = 1e-7
    for _ in range(5):
        c, r = (torch.randn(1, 4, dtype=torch.float64, generator=generator) for _ in range(2))
        moved = [
            binding(net, InputSet(sets.center + s * c, sets.radius + s * r), spec, out.trees, limits=limits).bound
            for s in (-step, step)
        ]
        slope = (moved[1] - moved[0]) / (2 * step)
        torch.testing.assert_close((found.by_center * c + found.by_radius * r).sum(1), slope, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("halve", [False, True])
def test_what_overflows_is_not_proved_and_ends(halve: bool) -> None:
    rng = np.random.default_rng(0)
    huge = mlp(rng, [3, 6, 6, 2], gain=1e30).cast(torch.float32)
    x = normal(rng, 2, 3).float()
    spec = label_stays(huge.decide(huge.values(x)[-1].nan_to_num()), 2).cast(torch.float32, "cpu")
    out = prove(huge, InputSet(x, torch.full_like(x, 1e10)), spec, Limits(leaves=20, steps=3, halve=halve))
    assert not bool(out.proved.any())


def test_no_inputs() -> None:
    net, sets, spec, _ = problem(1, [4, 12, 12, 3])
    none = torch.zeros(0, dtype=torch.long)
    out = run(net, sets.part(0, 0), spec.part(none))
    assert out.proved.shape == (0, 2) and out.trees == []
