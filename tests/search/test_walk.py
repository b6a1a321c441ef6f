"""Rows that go down together with their negatives, against each on its own."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from elbowroom.claim.specification import label_stays
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds import linear, propagate
from elbowroom.search.bounds.coefficients import numbers
from elbowroom.search.bounds.linear import lower_deviation
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.planes import Planes
from elbowroom.search.bounds.propagate import BoundFunction, Propagation, margins_of
from elbowroom.search.bounds.relaxations import TABLE
from elbowroom.search.bounds.sizes import Active
from elbowroom.search.bounds.walk import Walk
from elbowroom.search.derivatives import derivatives
from elbowroom.search.memory import Budget, Pool
from elbowroom.search.regions.input_set import InputSet
from support import ACTIVATIONS, mlp

WIDE, NARROW = Budget(1 << 30, 4 << 20, 1 << 30), Budget(1 << 30, 1, 0)


def problem() -> tuple[Network, Tensor, Tensor]:
    """Inputs of which one has no open neuron and others have some, up to half of the active ones."""
    net = mlp(np.random.default_rng(0), [6, 150, 150, 150, 4])
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((4, 6)))
    return net, x, torch.tensor([0.0, 0.03, 0.05, 0.1], dtype=torch.float64)[:, None].expand_as(x)


def bounds(net: Network, inputs: InputSet, budget: Budget = WIDE) -> Propagation:
    return Propagation(net, inputs, method_named("adaptive"), budget, skip_inactive=True)


@pytest.mark.parametrize("budget", [WIDE, NARROW])
@pytest.mark.parametrize("p", [math.inf, 2.0, 1.0])
def test_rows_and_their_negatives_together_are_each_on_its_own(
    budget: Budget, p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, x, radius = problem()
    plain, together = Walk.has_pairs, []

    def told(self: Walk, i: int) -> bool:
        together.append(plain(self, i))
        return together[-1]

    monkeypatch.setattr(Walk, "has_pairs", told)
    found = bounds(net, InputSet(x, radius, p), budget)
    assert any(together)
    monkeypatch.setattr(Walk, "has_pairs", lambda *_: False)
    other = bounds(net, InputSet(x, radius, p), budget)
    for one, two in zip((*found.lower, *found.upper), (*other.lower, *other.upper), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: nothing is known of how many entries are open."""
    monkeypatch.setattr(Active, "of", staticmethod(lambda index, differ: Active(index, None)))


def gradients(method: str, budget: Budget, p: float) -> tuple[Tensor, Tensor]:
    """Of every margin: asked for one by one, and all at once."""
    net, x, radius = problem()
    spec, margins = label_stays(net.decide(net(x)), 4), margins_of(method, budget=budget)
    at = radius.clone().requires_grad_()
    value = margins(net, InputSet(x, at, p), spec)
    one_by_one = [torch.autograd.grad(v.sum(), at, retain_graph=True)[0] for v in value.unbind(1)]
    return torch.stack(one_by_one), derivatives(value, [at])[0]


@pytest.mark.parametrize("budget", [WIDE, NARROW])
@pytest.mark.parametrize("p", [math.inf, 2.0, 1.0])
@pytest.mark.parametrize("method", ["adaptive", "combined", "quadratic"])
def test_derivatives_are_those_of_each_on_its_own(
    method: str, p: float, budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = gradients(method, budget, p)
    unknown(monkeypatch)
    for one, other in zip(found, gradients(method, budget, p), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_where_one_of_a_pair_is_asked_for_both_go_down() -> None:
    """Of a neuron whose other end is the interval's, say."""
    net, x, radius = problem()
    at = radius.clone().requires_grad_()
    found = bounds(net, InputSet(x, at))
    ends = torch.stack([found.lower[5], found.upper[5]], 2)[1:]
    both, low, high = (
        torch.autograd.grad(t.sum(), at, retain_graph=True)[0] for t in (ends, ends[..., 0], ends[..., 1])
    )
    torch.testing.assert_close(low + high, both, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [n for n, op in ACTIVATIONS.items() if TABLE[type(op)].straight])
@pytest.mark.parametrize("parallel", [True, False])
def test_lines_that_are_one_do_not_move(name: str, parallel: bool) -> None:
    op, draw = ACTIVATIONS[name], torch.Generator().manual_seed(0)
    middle = torch.randn(1, 500, generator=draw, dtype=torch.float64)
    width = torch.rand(1, 500, generator=draw, dtype=torch.float64)
    l, u = ((middle + side * width).requires_grad_() for side in (-1, 1))
    planes = TABLE[type(op)].planes(op, [l], [u], [middle], parallel)
    (term,) = planes.terms
    one = (term.lower_slope == term.upper_slope) & (planes.lower == planes.upper)
    assert 0 < int(one.sum()) < 500
    parts = [t[one] for t in (term.lower_slope, term.upper_slope, planes.lower, planes.upper)]
    for k, part in enumerate(parts):
        if part.requires_grad:
            for by in torch.autograd.grad((k + 1) * part.sum(), (l, u), retain_graph=True, allow_unused=True):
                assert by is None or bool((by == 0).all())


def test_open_entries_come_first() -> None:
    entries = torch.tensor([[0, 2, 3, 5], [1, 4, -1, -1], [-1, -1, -1, -1]])
    differ = torch.tensor([[1, 1, 0, 1, 1, 0], [1, 0, 0, 0, 1, 0], [1, 1, 1, 1, 1, 1]]).bool()
    found = Active.of(entries, differ)
    assert found.entries.tolist() == [[0, 3, 2, 5], [4, 1, -1, -1], [-1, -1, -1, -1]]
    assert found.open is not None
    assert found.open.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("method", "kind", "share"),
    [("adaptive", "value", 0.75), ("adaptive", "gradient", 0.6), ("combined", "gradient", 0.8)],
)
def test_few_open_neurons_take_few_products(
    method: str, kind: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = mlp(np.random.default_rng(0), [300, 150, 150, 4])
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((4, 300)))
    spec, margins = label_stays(net.decide(net(x)), 4), margins_of(method)

    def products() -> int:
        at = torch.full_like(x, 3e-3).requires_grad_()
        with FlopCounterMode(display=False) as first:
            value = margins(net, InputSet(x, at), spec)
        with FlopCounterMode(display=False) as then:
            torch.autograd.grad(value.amin(1).sum(), at)
        return (first if kind == "value" else then).get_total_flops()

    few = products()
    unknown(monkeypatch)
    assert few < share * products()


@pytest.mark.parametrize("kind", ["relu", "clip"])
def test_of_each_input_only_its_own_active_entries(kind: str) -> None:
    """One has nearly all, the others few: together they take no more than one after the other."""
    op = ops.ReLU() if kind == "relu" else ops.Clip(-1.0, 1.0)
    net = mlp(np.random.default_rng(0), [6, 150, 150, 150, 4], op)
    layers = [replace(n.op, weight=4 * n.op.weight) if type(n.op) is ops.Linear else n.op for n in net.nodes[1:]]
    net = Network.chain((6,), layers)  # steep, so that most are cut off
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((8, 6)))
    radius = torch.full_like(x, 1e-3)
    radius[0] = 0.5

    def products(some: slice) -> int:
        with FlopCounterMode(display=False) as counter:
            bounds(net, InputSet(x[some], radius[some]), Budget(1 << 30, 1 << 18, 1 << 30))
        return counter.get_total_flops()

    alone = sum(products(slice(k, k + 1)) for k in range(8))
    assert products(slice(0, 8)) < 1.2 * alone


def test_who_asks_once_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, radius = problem()
    at, taken = radius.clone().requires_grad_(), []
    value = margins_of("adaptive")(net, InputSet(x, at), label_stays(net.decide(net(x)), 4))
    monkeypatch.setattr(Pool, "take", lambda self, size: taken.append(size) or True)
    found, kept = [], []
    for _ in range(3):
        found.append(torch.autograd.grad(value.sum(), at, retain_graph=True)[0])
        kept.append(len(taken))
    assert kept[0] == 0 < kept[1] == kept[2]  # the third finds what the second kept
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    torch.testing.assert_close(found[0], found[2], rtol=1e-12, atol=0)


# --- ways down that are kept

SMOOTH = [name for name, op in ACTIVATIONS.items() if TABLE[type(op)].smooth]


def scaled(rng: np.random.Generator, *shape: int) -> Tensor:
    """Weights that keep numbers as large as they are."""
    return torch.from_numpy(rng.standard_normal(shape)) / math.sqrt(math.prod(shape[1:]))


def smooth(kind: str) -> tuple[Network, Tensor]:
    """Networks of smooth activations: deep, of images, beside ReLUs, with a sum, on a wide input; and inputs."""
    rng, batch = np.random.default_rng(0), 3
    weight = partial(scaled, rng)
    if kind == "image":
        net = Network.chain((2, 6, 6), [
            ops.Conv(weight(4, 2, 3, 3), weight(4), (2, 2), (1, 1)), ops.Tanh(), ops.Conv(weight(3, 4, 2, 2), None),
            ops.SiLU(), ops.Reshape((-1,)), ops.Linear(weight(4, 12)),
        ])  # fmt: skip
    elif kind == "sum":
        g = Graph((6,))
        a = g.add(ops.Sigmoid(), g.add(ops.Linear(weight(9, 6)), g.input))
        b = g.add(ops.Add(), a, g.add(ops.Linear(weight(9, 9)), a))
        net = g.network(g.add(ops.Linear(weight(4, 9)), g.add(ops.GELU(), b)))
    elif kind == "beside ReLUs":
        layers = [ops.Linear(weight(150, 6)), ops.ReLU(), ops.Linear(weight(20, 150)), ops.Tanh()]
        net = Network.chain((6,), [*layers, ops.Linear(weight(150, 20)), ops.ReLU(), ops.Linear(weight(4, 150))])
    else:
        net = mlp(rng, [8200, 12, 12, 4] if kind == "wide" else [6, 40, 40, 40, 4], ops.Tanh())
    return net, torch.from_numpy(rng.standard_normal((batch, *net.input_shape)))


@pytest.mark.parametrize("kind", ["deep", "image", "beside ReLUs", "sum", "wide"])
@pytest.mark.parametrize("p", [math.inf, 2.0, 1.0])
@pytest.mark.parametrize("method", ["adaptive", "combined"])
def test_ways_that_are_kept_give_the_same_derivatives(method: str, p: float, kind: str) -> None:
    """Of one margin or several, asked once or more often, in pieces of one row or of all, with room for them or not."""
    net, x = smooth(kind)
    spec, found = label_stays(net.decide(net(x)), 4), []
    for budget in (WIDE, Budget(1 << 30, 1 << 12, 1 << 30), NARROW):
        radius = torch.full_like(x, 0.02 if kind == "wide" else 0.1).requires_grad_()
        margins = margins_of(method, budget=budget)
        for several in (True, False):
            value = margins(net, InputSet(x, radius, p), spec)
            rows = derivatives(value, [radius])[0] if several else torch.empty(0)
            first, again = (torch.autograd.grad(value[:2, 0].sum(), radius, retain_graph=True)[0] for _ in range(2))
            torch.testing.assert_close(first, again, rtol=1e-10, atol=1e-13)
            found.append((rows, first))
    for several, one in zip(found[::2], found[1::2], strict=True):
        torch.testing.assert_close(several[0], found[0][0], rtol=1e-9, atol=1e-12)
        for first in (several[1], one[1]):
            torch.testing.assert_close(first, found[0][1], rtol=1e-9, atol=1e-12)


def hidden(pooled: bool) -> tuple[Network, InputSet, dict[int, Planes]]:
    """A node before a smooth activation with more rows than go down at once, perhaps behind a pooled one."""
    rng = np.random.default_rng(0)
    weight = partial(scaled, rng)
    layers: list[ops.Operation] = [ops.Conv(weight(3, 1, 1, 1), None)]
    layers += [ops.MaxPool((3, 3), (1, 1), (1, 1)) if pooled else ops.Tanh(), ops.Conv(weight(2, 3, 1, 1), None)]
    net = Network.chain((1, 8, 8), [*layers, ops.Tanh(), ops.Reshape((-1,)), ops.Linear(weight(2, 128))])
    x = torch.from_numpy(rng.standard_normal((3, 1, 8, 8)))
    inputs = InputSet(x, torch.full_like(x, 0.1).requires_grad_())
    return net, inputs, bounds(net, inputs).planes


@pytest.mark.parametrize("row", [0, 1, 70, 255])
def test_a_single_row_of_those_whose_way_was_kept(row: int) -> None:
    net, inputs, planes = hidden(False)
    found = []
    for keep in (True, False):
        below = lower_deviation(net, 3, None, planes, inputs, False, 1, Pool(1 << 30), keep_ways=keep)
        found.append(torch.autograd.grad(below[1, row], inputs.radius, retain_graph=True)[0])
    assert bool(found[0][1].any()) and not bool(found[0][[0, 2]].any())
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("pooled", [True, False])
def test_ways_take_the_room_that_they_asked_for(pooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more, also where rows are whole images; until derivatives were asked for."""
    net, inputs, planes = hidden(pooled)
    jobs, made = [], linear._Job.keep_ways
    monkeypatch.setattr(linear._Job, "keep_ways", lambda self: jobs.append(self) or made(self))
    pool = Pool(1 << 30)
    below = lower_deviation(net, 3, None, planes, inputs, False, 1 << 20, pool, keep_ways=True)
    (job,), asked = jobs, (1 << 30) - pool.left
    assert job._ways
    held = [numbers(c).nbytes for _, _, walk in job._ways for c in walk.trace.values()]
    assert 0.5 * asked <= sum(held) <= asked
    assert not any(walk.lines or walk._matrices for _, _, walk in job._ways)
    torch.autograd.grad(below.sum(), inputs.radius)
    assert job._ways is None


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("method", ["adaptive", "combined"])
def test_derivatives_of_smooth_activations_take_one_way_up(method: str, name: str) -> None:
    """And none down, where there is room; and nothing is kept where nothing can be asked for."""
    net, taken = mlp(np.random.default_rng(0), [60, 50, 50, 50, 4], ACTIVATIONS[name]), []
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((4, 60)))
    spec = label_stays(net.decide(net(x)), 4)

    class Told(Pool):
        def take(self, size: int) -> bool:
            taken.append(size)
            return super().take(size)

    def products(margins: BoundFunction) -> tuple[int, int]:
        at = torch.full_like(x, 0.05).requires_grad_()
        with FlopCounterMode(display=False) as first:
            value = margins(net, InputSet(x, at), spec)
        with FlopCounterMode(display=False) as then:
            torch.autograd.grad(value.amin(1).sum(), at)
        return first.get_total_flops(), then.get_total_flops()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagate, "Pool", Told)
        down, up = products(margins_of(method, budget=WIDE))
        assert len(taken) == 2 and up < 1.1 * down
        taken.clear()
        with torch.no_grad():
            margins_of(method, budget=WIDE)(net, InputSet(x, torch.full_like(x, 0.05)), spec)
        margins_of(method, budget=WIDE)(net, InputSet(x, torch.full_like(x, 0.05)), spec)
        assert not taken
    assert up < 0.8 * products(margins_of(method, budget=Budget(1 << 30, 4 << 20, 0)))[1]
