"""Trees of splits: what is proved of a leaf is so, and no more than the same sums give without rounding."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb
from torch import Tensor

from elbowroom.claim.hints import Hints
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import EMPTY, USUAL, Leaf, Tree, fitting_leaves, single_leaf
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.proof.arb import leaves as arb_leaves
from elbowroom.proof.arb import prove_arb
from elbowroom.proof.arb.affine import layer_of
from elbowroom.proof.arb.balls import BITS, precision
from elbowroom.proof.arb.bounds import Bounds
from elbowroom.proof.arb.region import Region
from elbowroom.proof.kernel import cuts as cuts_module
from elbowroom.proof.kernel import leaves as leaves_module
from elbowroom.proof.kernel.cuts import Cuts, Splits
from elbowroom.proof.kernel.float32 import Float32Noise
from elbowroom.proof.kernel.leaves import trees_below
from elbowroom.proof.kernel.prove import prove
from elbowroom.proof.kernel.walk import StrictBounds
from proof import torture
from proof.exact import values
from proof.test_arb import area_of
from proof.test_deployed import random_mlp, shuffled
from proof.tree_cases import exact_bound, on_leaf, random_tree
from support import BLOCKS, FULL, Builder, mlp, random_region

F64 = torch.float64


@contextmanager
def recorded() -> Iterator[list[tuple[StrictBounds, Cuts, Tensor, Tensor]]]:
    """Of every chunk of leaves that is proved: its bounds, its cuts, the rows' numbers and what was found, by lines and
    multipliers alone."""
    found: list[tuple[StrictBounds, Cuts, Tensor, Tensor]] = []
    real = leaves_module._leaves_below

    def spy(bounds: StrictBounds, cuts: Cuts, row: Tensor, rows: Tensor, offset: Tensor) -> Tensor:
        result = real(bounds, cuts, row, rows, offset)
        found.append((bounds, cuts, row, result))
        return result

    def lines(self: StrictBounds, *told: Any, intervals: bool = False, **more: Any) -> Tensor:
        below = rows_below(self, *told, **more)
        return torch.full_like(below, -torch.inf) if intervals else below

    rows_below = StrictBounds.rows_below
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaves_module, "_leaves_below", spy)
        patch.setattr(StrictBounds, "rows_below", lines)
        yield found


def false_claims(
    net: Network, tree: Tree, found: list[float], points: list[Tensor], rows: Tensor, offset: Tensor, number: Any
) -> list[str]:
    """Leaves on which a point lies that is worse than what was proved there. `number`: Fraction or arb."""
    leaves, wrong = list(tree.leaves()), []
    for x in points:
        exact = values(net, x, number)
        for leaf, claimed in zip(leaves, found):
            if claimed == -math.inf or not on_leaf(leaf, exact, number):
                continue
            if claimed == math.inf:
                wrong.append(f"a point lies on a leaf that is proved empty: {leaf}")
                continue
            terms = (number(c) * v for c, v in zip(rows[leaf.row].tolist(), exact[-1]))
            margin = sum(terms, number(float(offset[leaf.row])))
            if number(claimed) > margin:
                wrong.append(f"proved {claimed!r}, but at a point {float(margin)!r}: {leaf}")
    return wrong


def tree_below(
    root: StrictBounds, b: int, hidden: bool, tree: Tree, leaves: Sequence[Leaf], rows: Tensor, offset: Tensor
) -> Tensor:
    return trees_below(root, b, hidden, [(tree, leaves)], rows, offset)[0]


def torture_leaves(seed: int) -> tuple[list[str], int, int]:
    """What is claimed and not so of a tree of a network made to break floating point; leaves, and those bounded."""
    case, rng = torture.case(seed), np.random.default_rng(seed)
    points = torture.points(case, rng, 4)
    about = [[float(v) if abs(v) < 1e300 else 0.0 for v in node] for node in values(case.net, points[-1])]
    tree = random_tree(rng, case.net, about, range(len(case.rows)), box=True)
    group = torch.zeros(len(case.rows), dtype=torch.long)
    leaves = fitting_leaves(tree, 0, group, case.net, True)
    root = StrictBounds(case.net.cast(F64), case.area, seed % 2 == 1, sharpened=tree.sharpened, cases=tree.cases)
    with recorded() as chunks:
        found = tree_below(root, 0, True, tree, leaves, case.rows, case.offset).tolist()
    wrong = false_claims(case.net, tree, found, points, case.rows, case.offset, Fraction)
    for bounds, cuts, row, claimed in chunks:
        for k, claim in enumerate(claimed.tolist()):
            if math.isfinite(claim) and int(row[k]) != EMPTY:
                exact = exact_bound(bounds, cuts, k, case.rows[row[k]], float(case.offset[row[k]]))
                if Fraction(claim) > exact:
                    wrong.append(f"{case.kind}: proved {claim!r}, but the sum is {float(exact)!r}")
    return wrong, len(found), int(np.isfinite(found).sum())


def test_networks_made_to_break_floating_point() -> None:
    total = bounded = 0
    for seed in range(1200 if FULL else 40):
        wrong, count, finite = torture_leaves(seed)
        assert not wrong, (seed, wrong[:3])
        total, bounded = total + count, bounded + finite
    assert bounded > 0.2 * total


def random_problem(rng: np.random.Generator) -> tuple[Network, Stated, list[Tensor]]:
    """A random graph of every operation, a region, and points that lie in it exactly."""
    shapes = [(2,), (3,), (4,), (1, 3, 3)]
    builder = Builder(rng, shapes[rng.integers(len(shapes))], str(rng.choice(["plain", "plain", "sparse", "uneven"])))
    for kind in rng.choice(BLOCKS, rng.integers(1, 4)):
        builder.block(str(kind))
        builder.activation("relu" if rng.random() < 0.5 else builder._any_activation())
    net = builder.network(2)
    kind = str(rng.choice(["box", "box", "box", "ball", "cross"]))
    inputs = random_region(
        rng, net.input_shape, kind, batch=1, scale=float(rng.choice([0.0, 1e-3, 0.1, 1.0, 3.0]))
    ).inputs
    center, radius = inputs.center.flatten(1), inputs.radius.flatten(1)
    moved = center + radius * torch.from_numpy(rng.uniform(-1, 1, (6, center.shape[1])))
    if kind == "box":
        region = Stated(center - radius, center + radius)
        corner = torch.where(torch.from_numpy(rng.random((6, center.shape[1]))) < 0.5, region.lower, region.upper)
        inside = torch.minimum(torch.maximum(torch.cat([moved, corner]), region.lower), region.upper)
        return net, region, [center[0], *inside]
    tip = center.clone()
    tip[0, 0] += radius[0, 0] / 2
    return net, Stated(center=center, radius=radius, p=inputs.p, basis=inputs.basis), [center[0], tip[0]]


def random_leaves(seed: int) -> tuple[list[str], int, int]:
    """What is claimed and not so of a tree of a random graph; leaves on which a point lies, and those bounded."""
    rng = np.random.default_rng(seed)
    net, region, points = random_problem(rng)
    rows = torch.from_numpy(rng.standard_normal((1, 3, 2)))
    offset = torch.from_numpy(rng.standard_normal((1, 3)))
    about = [t.flatten().tolist() for t in net.cast(F64).values(points[-1].reshape(1, *net.input_shape))]
    tree = random_tree(rng, net, about, range(3), region.is_box)
    leaves = fitting_leaves(tree, 0, torch.zeros(3, dtype=torch.long), net, region.is_box)
    root = StrictBounds(net.cast(F64), region, seed % 2 == 1, sharpened=tree.sharpened, cases=tree.cases)
    found = tree_below(root, 0, True, tree, leaves, rows[0], offset[0]).tolist()
    return false_claims(net, tree, found, points, rows[0], offset[0], arb), len(found), int(np.isfinite(found).sum())


def test_random_graphs_of_every_operation() -> None:
    bounded = 0
    for seed in range(1500 if FULL else 60):
        wrong, _, finite = random_leaves(seed)
        assert not wrong, (seed, wrong[:3])
        bounded += finite
    assert bounded > (3000 if FULL else 120)


def around(seed: int) -> tuple[list[str], int, int]:
    """As `random_leaves`, of ReLUs with a path around them, where a lower line that is too steep would show."""
    rng = np.random.default_rng(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape))

    n, h = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    g = Graph((n,))
    hidden = g.add(ops.ReLU(), g.add(ops.Linear(numbers(h, n), 0.1 * numbers(h)), g.input))
    paths = g.add(ops.Linear(numbers(2, h)), hidden), g.add(ops.Linear(2 * numbers(2, n)), g.input)
    net = g.network(g.add(ops.Add((1.0, 1.0)), *paths))
    case = torture.Case("around", net, -numbers(n).abs(), numbers(n).abs(), numbers(3, 2), numbers(3))
    points = torture.points(case, rng, 8)
    about = [[float(v) for v in node] for node in values(net, points[-1])]
    tree = random_tree(rng, net, about, range(3), box=True)
    leaves = fitting_leaves(tree, 0, torch.zeros(3, dtype=torch.long), net, True)
    root = StrictBounds(net.cast(F64), case.area, False, sharpened=tree.sharpened, cases=tree.cases)
    found = tree_below(root, 0, True, tree, leaves, case.rows, case.offset).tolist()
    wrong = false_claims(net, tree, found, points, case.rows, case.offset, Fraction)
    return wrong, len(found), int(np.isfinite(found).sum())


def comb(seed: int, splits: int = 150) -> tuple[list[str], int, int]:
    """As `random_leaves`, of one number that is split hundreds of times below its interval, so that one leaf is left:
    it is 0, so that all that is rounded are products of multipliers and values, and their sum."""
    rng = np.random.default_rng(seed)
    net = Network.chain((1,), [ops.Scale(torch.ones(1, dtype=F64))])
    node, below = int(rng.integers(2)), -rng.uniform(0.5, 1, splits)
    multipliers = torch.zeros(splits * (splits + 1) // 2 + splits, dtype=F64)
    multipliers[-splits:] = torch.from_numpy(rng.uniform(0.5, 1, splits))
    tree = Tree(
        torch.tensor([node, -1] * splits + [-1]), torch.tensor([0, EMPTY] * splits + [0]),
        torch.tensor([v for each in below for v in (each, 0.0)] + [0.0], dtype=F64), multipliers,
        torch.zeros(0, 2, dtype=torch.long), torch.zeros(splits + 1, 0, dtype=torch.uint8),
    )  # fmt: skip
    one = torch.ones(1, 1, dtype=F64)
    leaves = fitting_leaves(tree, 0, torch.tensor([0]), net, True)
    root = StrictBounds(net.cast(F64), Stated(0 * one, 0 * one), False)
    with recorded() as chunks:
        found = tree_below(root, 0, True, tree, leaves, one, 0 * one[0])
    ((bounds, cuts, row, claimed),) = chunks
    assert found[:-1].eq(math.inf).all() and float(claimed[row == 0]) == float(found[-1])
    exact = exact_bound(bounds, cuts, int((row == 0).nonzero()), one[0], 0.0)
    wrong = ["rounding"] if Fraction(float(found[-1])) > exact else []
    return wrong, len(found), 1


@pytest.mark.parametrize("kind", [around, comb])
def test_networks_of_a_kind(kind: Any) -> None:
    for seed in range(8 if kind is comb else 60):
        assert not kind(seed)[0], seed


# ---------------------------------------------------------------------------------------------------------------
# The cases above are hard enough: with a fault, something is claimed that is not so


def _other_side(splits: dict[int, Splits]) -> dict[int, Splits]:
    return {i: s._replace(sign=-s.sign) for i, s in splits.items()}


_clamped, _multiplied = Cuts.clamped, Cuts.multiplied
FAULTS: dict[str, Any] = {
    "multipliers of the wrong sign": (Cuts, "multiplied", lambda self, net, size: _multiplied(
        dataclasses.replace(self, splits=_other_side(self.splits)), net, size)),
    "a clamp on the wrong side": (Cuts, "clamped", lambda self, i, low, high: _clamped(
        dataclasses.replace(self, splits=_other_side(self.splits)), i, low, high)),
    "constants of splits left out": (Cuts, "multiplied", lambda self, net, size: (
        0 * _multiplied(self, net, size)[0], *_multiplied(self, net, size)[1:])),
    "slopes above one": (cuts_module, "STEPS", 10),
    "no rounding of multipliers": (Cuts, "multiplied", lambda self, net, size: (
        _multiplied(self, net, size)[0], 0 * _multiplied(self, net, size)[1], _multiplied(self, net, size)[2])),
    "a leaf taken for empty": (Cuts, "clamped", lambda self, i, low, high: (
        *_clamped(self, i, low, high)[:2], _clamped(self, i, low, high)[2] | (low < high).flatten(1).all(1))),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    tried = {"no rounding of multipliers": comb, "slopes above one": around}.get(fault, torture_leaves)
    assert any(tried(seed)[0] for seed in range(100))


# ---------------------------------------------------------------------------------------------------------------
# What trees are good for


def tree_of(
    nodes: list[tuple[int, int, float]],
    multipliers: list[float],
    slopes: dict[tuple[int, int], list[int]] | None = None,
    again: bool = False,
) -> Tree:
    """`nodes`: (node, entry, value), (-1, row, 0) at a leaf."""
    node, entry, value = zip(*nodes)
    neurons = torch.tensor(list(slopes or {}), dtype=torch.long).reshape(-1, 2)
    leaves = sum(n < 0 for n in node)
    listed = [[each[k] for each in (slopes or {}).values()] for k in range(leaves)]
    return Tree(
        torch.tensor(node), torch.tensor(entry), torch.tensor(value, dtype=F64), torch.tensor(multipliers, dtype=F64),
        neurons, torch.tensor(listed, dtype=torch.uint8).reshape(leaves, -1), again,
    )  # fmt: skip


def two_relus() -> tuple[Network, Stated, tuple[Tensor, Tensor, Tensor]]:
    """relu(x) - 0.9 relu(x - 0.1) - 0.01 x + 0.02 on [-1, 1]: at least 0.01, where x = 0 (or so it is left of 0.1)."""
    first = ops.Linear(torch.ones(3, 1, dtype=F64), torch.tensor([0.0, -0.1, 10.0], dtype=F64))
    last = ops.Linear(torch.tensor([[1.0, -0.9, -0.01]], dtype=F64), torch.tensor([0.1 + 0.02], dtype=F64))
    net = Network.chain((1,), [first, ops.ReLU(), last])
    one = torch.ones(1, 1, dtype=F64)
    return net, Stated(-one, one), (one[None], 0 * one, torch.tensor([0]))


# x <= 0.1 (the second is off): x <= 0, x >= 0; x >= 0.1: x <= 0 is empty, x >= 0.
SPLITS = [(1, 1, 0.0), (1, 0, 0.0), (-1, 0, 0.0), (-1, 0, 0.0), (1, 0, 0.0), (-1, EMPTY, 0.0), (-1, 0, 0.0)]


@pytest.mark.parametrize("again", [False, True])
def test_splits_and_multipliers_prove_what_the_whole_does_not(again: bool) -> None:
    net, region, task = two_relus()
    whole = float(prove(net, region, *task))
    # Left of 0 the margin is 0.02 - 0.01 x, between 0 and 0.1 it is 0.02 + 0.99 x, then 0.11 + 0.09 (x - 0.1) + ...
    tree = tree_of(SPLITS, [0.0, 0.01, 0.0, 0.99, 1.0, 1.0, 0.09, 0.0], again=again)
    proved = float(prove(net, region, *task, trees=[[(0, tree)]]))
    assert whole < -0.1 and 0.0197 < proved < 0.02  # 0.09 in 16 bits
    without = tree_of(SPLITS, [0.0] * 8, again=again)
    assert whole <= float(prove(net, region, *task, trees=[[(0, without)]])) < 0
    # Of a leaf that is not empty it is not proved, whatever the multipliers are.
    for place in (2, 3, 6):
        forged = list(SPLITS)
        forged[place] = (-1, EMPTY, 0.0)
        assert (
            float(
                prove(net, region, *task, trees=[[(0, tree_of(forged, [0.0, 0.01, 0.0, 0.99, 1.0, 1.0, 0.09, 0.0]))]])
            )
            == whole
        )
        assert float(prove(net, region, *task, trees=[[(0, tree_of(forged, [1.0] * 8))]])) == whole


def test_splits_of_the_input_come_close_to_the_least_value() -> None:
    net, region, task = two_relus()
    nodes: list[tuple[int, int, float]] = []

    def halve(low: float, high: float, depth: int) -> None:
        if not depth:
            nodes.append((-1, 0, 0.0))
            return
        nodes.append((0, 0, (low + high) / 2))
        halve(low, (low + high) / 2, depth - 1)
        halve((low + high) / 2, high, depth - 1)

    halve(-1.0, 1.0, 7)
    tree = tree_of(nodes, [0.0] * 7 * 128)
    assert 0.0 < float(prove(net, region, *task, trees=[[(0, tree)]])) <= 0.02
    some = float(prove(net, region, *task, trees=[[(0, dataclasses.replace(tree, again=True))]]))
    assert 0.0 < some <= 0.02


def test_slopes_are_used_where_neurons_are_unstable() -> None:
    one = torch.ones(1, 1, dtype=F64)
    g = Graph((1,))
    net = g.network(g.add(ops.Add((1.0, -0.2)), g.add(ops.ReLU(), g.input), g.input))
    task = (one[None], 0 * one, torch.tensor([0]))
    for slope in range(16):
        tree = tree_of([(-1, 0, 0.0)], [], {(1, 0): [slope]})
        found = float(prove(net, Stated(-one, one), *task, trees=[[(0, tree)]]))
        whole = float(prove(net, Stated(-one, one), *task))
        assert found == pytest.approx(max(whole, -abs(slope / 15 - 0.2)), abs=1e-12)
    # One leaf is told a slope, the other one has the usual line, which is zero on [-1, 0.5].
    halves = [(0, 0, 0.5), (-1, 0, 0.0), (-1, 0, 0.0)]
    for slope in (*range(16), USUAL):
        tree = tree_of(halves, [0.0, 0.0], {(1, 0): [slope, USUAL]})
        low, high = tree_below(StrictBounds(net.cast(F64), Stated(-one, one), False), 0, True, tree,
                               list(tree.leaves()), one, 0 * one[0]).tolist()  # fmt: skip
        told = 0.0 if slope == USUAL else slope / 15
        assert low == pytest.approx(max(-0.1, min(0.2 - told, 0.5 * (told - 0.2))), abs=1e-12)  # by intervals, -0.1
        assert high == pytest.approx(0.4, abs=1e-12)


@pytest.mark.parametrize("again", [False, True])
def test_trees_that_share_bounds_prove_what_each_proves_alone(again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of three leaves: of one tree or of several, with the same inputs or others."""
    rng = np.random.default_rng(7)
    net = mlp(rng, [3, 8, 8, 3])
    lower, upper = torch.from_numpy(-rng.random((2, 3))), torch.from_numpy(rng.random((2, 3)))
    root = StrictBounds(net.cast(F64), Stated(lower, upper), False)
    rows, offset = torch.from_numpy(rng.standard_normal((4, 3))), torch.from_numpy(rng.standard_normal(4))
    # Not at the ends of intervals: there, a rounding that depends on the chunk decides whether a leaf is empty.
    values = [t.flatten().tolist() for t in net.cast(F64).values((lower + upper)[1:] / 2)]
    for _ in range(10):
        trees = [
            dataclasses.replace(random_tree(rng, net, values, [t], True), again=again, sharpened=0, cases=0)
            for t in range(3)
        ]
        trees.append(dataclasses.replace(trees[0], slopes=15 - trees[0].slopes.clamp_max(15)))  # of the same inputs
        own = [(tree, list(tree.leaves())) for tree in trees]
        alone = [tree_below(root, 1, True, *one, rows, offset) for one in own]
        with monkeypatch.context() as patch:
            patch.setattr(leaves_module, "_NUMBERS", {"cpu": 3 * 8 * sum(node.size for node in net.nodes)})
            together = trees_below(root, 1, True, own, rows, offset)
        for a, b in zip(alone, together):
            assert torch.equal(a.isinf(), b.isinf())
            assert torch.allclose(a[a.isfinite()], b[a.isfinite()], rtol=1e-9, atol=1e-9)


def test_a_tree_without_splits_proves_what_is_proved_without_it() -> None:
    rng = np.random.default_rng(0)
    for seed in range(10):
        net = mlp(rng, [3, 8, 8, 3], ops.ReLU() if seed % 2 else ops.Tanh())
        center = torch.from_numpy(rng.standard_normal((4, 3)))
        region = Stated(center - 0.1, center + 0.1)
        rows, offset = torch.from_numpy(rng.standard_normal((1, 4, 3))), torch.zeros(1, 4, dtype=F64)
        group, hints = torch.tensor([0, 1, 1, 2]), Hints(parallel=seed % 3 == 0)
        alone = prove(net, region, rows, offset, group, hints)
        root = StrictBounds(net.cast(F64), region, hints.parallel)
        found = [
            tree_below(root, 1, True, single_leaf(t), list(single_leaf(t).leaves()), rows[0], offset[0])
            for t in range(4)
        ]
        assert torch.allclose(
            torch.stack([found[0], torch.maximum(found[1], found[2]), found[3]])[:, 0], alone[1], rtol=1e-12
        )
        trees: list[list[tuple[int, Tree]]] = [[], [(1, single_leaf(2)), (0, single_leaf(0))], [], []]
        assert torch.equal(prove(net, region, rows, offset, group, hints, trees=trees), alone)


def test_chunks_of_leaves_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        net = mlp(rng, [2, 6, 6, 2])
        x = torch.from_numpy(rng.standard_normal((1, 2)))
        about = [t.flatten().tolist() for t in net.cast(F64).values(x)]
        tree = random_tree(rng, net, about, [0, 1], box=True)
        task = (torch.eye(2, dtype=F64)[None], torch.zeros(1, 2, dtype=F64), torch.tensor([0, 0]))
        whole = prove(net, Stated(x - 0.5, x + 0.5), *task, trees=[[(0, tree)]])
        with monkeypatch.context() as patch:
            patch.setattr(leaves_module, "_NUMBERS", {"cpu": 1})
            assert torch.allclose(prove(net, Stated(x - 0.5, x + 0.5), *task, trees=[[(0, tree)]]), whole, rtol=1e-12)


def test_execution_in_float32_is_proved_leaf_by_leaf() -> None:
    """Splits are then of values as executed."""
    rng = np.random.default_rng(5)
    bounded = 0
    for _ in range(60 if FULL else 12):
        net = random_mlp(rng)
        x = torch.from_numpy(rng.standard_normal((8, net.n_inputs))).float()
        low, high = x.amin(0, keepdim=True).double(), x.amax(0, keepdim=True).double()
        about = [t[:1].flatten().tolist() for t in net.cast(F64).values(x.double())]
        tree = random_tree(rng, net, about, range(net.n_outputs), box=True)
        rows, group = torch.eye(net.n_outputs, dtype=F64)[None], torch.zeros(net.n_outputs, dtype=torch.long)
        noise = Float32Noise(net.cast(F64))
        root = StrictBounds(net.cast(F64), Stated(low, high), False, noise, sharpened=tree.sharpened, cases=tree.cases)
        leaves = fitting_leaves(tree, 0, group, net, True)
        found = tree_below(root, 0, True, tree, leaves, rows[0], torch.zeros(net.n_outputs, dtype=F64))
        if not torch.isfinite(found).any():
            continue
        bounded += 1
        executed = [x]
        for node in net.cast(torch.float32).nodes[1:]:
            executed.append(node.op(*(executed[j] for j in node.inputs)))
        for k in range(len(x)):
            for leaf, claim in zip(leaves, found.tolist()):
                if on_leaf(leaf, [t[k].double().tolist() for t in executed], float):
                    assert claim < math.inf and (leaf.row == EMPTY or claim <= float(executed[-1][k, leaf.row]))
        proved = prove(net, Stated(low, high), rows, 0 * rows[:, 0], group, None, "float32", [[(0, tree)]])
        assert float(proved) <= float(shuffled(net, x, rng).amax(1).min())
    assert bounded > 3


def test_hints_that_prove_as_much_as_can_be() -> None:
    """Multipliers and slopes climb uphill, leaf by leaf: what is proved nears the least value, and stays below."""
    gaps = []
    for seed in range(30 if FULL else 5):
        rng = np.random.default_rng(seed)
        net = mlp(rng, [2, 4, 4, 2])
        center, radius = torch.from_numpy(rng.normal(size=2)), torch.from_numpy(rng.uniform(0.3, 1.5, 2))
        low, high = center - radius, center + radius
        steps = torch.linspace(0, 1, 101, dtype=F64)[:, None]
        points = torch.cartesian_prod(*(low + steps * (high - low)).T.unbind())
        points = torch.minimum(torch.maximum(points, low), high)
        exact = net.cast(F64).values(points)
        about = [v[int(rng.integers(len(points)))].tolist() for v in exact]
        tree = random_tree(rng, net, about, range(2), box=True)
        leaves = fitting_leaves(tree, 0, torch.zeros(2, dtype=torch.long), net, True)
        rows, offset = torch.from_numpy(rng.normal(size=(2, 2))), torch.zeros(2, dtype=F64)
        root = StrictBounds(
            net.cast(F64), Stated(low[None], high[None]), False, sharpened=tree.sharpened, cases=tree.cases
        )
        owner = torch.tensor([k for k, leaf in enumerate(leaves) for _ in leaf.path], dtype=torch.long)
        best, betas, slopes = torch.full((len(leaves),), -math.inf, dtype=F64), 0 * tree.multipliers, tree.slopes
        for _ in range(100):
            grown = betas.numpy() * np.exp(rng.normal(size=len(betas)) * (rng.random(len(betas)) < 0.4))
            other = torch.from_numpy(grown + rng.random(len(betas)) * (rng.random(len(betas)) < 0.1))
            turned = torch.from_numpy(rng.integers(0, 16, tuple(slopes.shape))).to(torch.uint8)
            turned = torch.where(torch.from_numpy(rng.random(tuple(slopes.shape))) < 0.2, turned, slopes)
            tried = dataclasses.replace(tree, multipliers=other, slopes=turned)
            found = tree_below(root, 0, True, tried, leaves, rows, offset)
            better = found > best
            best, slopes = torch.where(better, found, best), torch.where(better[:, None], turned, slopes)
            betas = torch.where(better[owner], tried.multipliers, betas)
        for leaf, claimed in zip(leaves, best.tolist()):
            sides = [(1 if s.high else -1) * (exact[s.node][:, s.entry] - s.value) for s in leaf.path]
            on = torch.stack([torch.ones(len(points), dtype=F64), *sides]).amin(0) > 1e-12
            if bool(on.any()):
                least = float((exact[-1][on] @ rows[leaf.row]).min()) if leaf.row != EMPTY else -math.inf
                assert claimed <= least + 1e-12, (seed, leaf)
                gaps.append(least - claimed)
    assert min(gap for gap in gaps if gap < math.inf) < 0.01


# ---------------------------------------------------------------------------------------------------------------
# The third opinion


def small_network(rng: np.random.Generator) -> Network:
    """Of what balls cover: two or three layers of curves, at times a maximum or a path around one."""
    curves = [ops.ReLU(), ops.ReLU(), ops.ReLU(), ops.Sigmoid(), ops.Tanh(), ops.Arctan()]

    def numbers(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape))

    n, h = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    g = Graph((n,))
    at = g.add(curves[rng.integers(6)], g.add(ops.Linear(numbers(h, n), numbers(h)), g.input))
    for _ in range(rng.integers(1, 3)):
        above = g.add(curves[rng.integers(6)], g.add(ops.Linear(numbers(h, h), numbers(h)), at))
        at = g.add(ops.Add((1.0, -0.5)), above, at) if rng.random() < 0.3 else above
    if rng.random() < 0.3:
        at = g.add(ops.Reshape((-1,)), g.add(ops.MaxPool((2,), (1,), (0,)), g.add(ops.Reshape((1, h)), at)))
    return g.network(g.add(ops.Linear(numbers(3, g.nodes[at].size), numbers(3)), at))


def test_balls_agree_on_every_leaf() -> None:
    """Only that balls see more leaves empty: of entries that are constant, or that a ReLU makes zero."""
    rng = np.random.default_rng(11)
    compared = apart = 0
    for trial in range(3000 if FULL else 90):
        net = small_network(rng)
        area = area_of(rng, net, "box" if trial % 4 else "ball", float(rng.choice([0.0, 1e-3, 0.1, 0.5]))).take(
            slice(1)
        )
        rows, offset = torch.from_numpy(rng.normal(size=(3, 3))), torch.from_numpy(rng.normal(size=3))
        about = [t.flatten().tolist() for t in net.cast(F64).values(area.middle().reshape(1, *net.input_shape))]
        tree = random_tree(rng, net, about, range(3), area.is_box)
        leaves = fitting_leaves(tree, 0, torch.zeros(3, dtype=torch.long), net, area.is_box)
        hints = Hints(parallel=trial % 2 == 1)
        root = StrictBounds(net.cast(F64), area, hints.parallel, sharpened=tree.sharpened, cases=tree.cases)
        quick = tree_below(root, 0, True, tree, leaves, rows, offset)
        with precision(BITS):
            layers = [layer_of(net, node) for node in net.nodes]
            balls = Bounds(net, layers, Region(area, 0), hints, sharpened=tree.sharpened, cases=tree.cases)
            slow = torch.tensor(arb_leaves.tree_below(balls, tree, leaves, rows.tolist(), offset.tolist()), dtype=F64)
        size = (
            1 + torch.minimum(quick.abs(), slow.abs()) + float(tree.multipliers.max() if len(tree.multipliers) else 0)
        )
        same = (quick == slow) | ((quick - slow).abs() <= 1e-9 * size * (1 + tree.value.abs().max()))
        assert bool((same | (slow == math.inf)).all()), (trial, quick, slow)
        thin = float(area.half_widths().max()) == 0
        compared, apart = compared + int(torch.isfinite(quick).sum()), apart + (0 if thin else int((~same).sum()))
        task = (rows[None], offset[None], torch.zeros(3, dtype=torch.long))
        if bool(same.all()) and not trial % 5:
            proved = [p(net, area, *task, hints, trees=[[(0, tree)]]) for p in (prove, prove_arb)]
            assert torch.allclose(*proved, rtol=1e-9, atol=1e-9 * float(size.max()))
    assert compared > (6000 if FULL else 180)
    assert apart <= 0.03 * compared, (apart, compared)
