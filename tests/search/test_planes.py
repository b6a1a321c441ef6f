"""Relaxations of several terms: hand-made planes of an operation with two inputs, walked through the linear bounds."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.network.operations import Operation, Shape
from elbowroom.search.bounds.linear import lower_deviation
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.planes import Planes, Relaxed, Term
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.bounds.relaxations import TABLE
from elbowroom.search.memory import Pool
from elbowroom.search.regions.input_set import InputSet

PARALLEL = pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "adaptive"])
BATCH, INPUTS, WIDTH, ROWS = 3, 3, 4, 5


class Product(Operation):
    """Of two inputs, entry by entry."""

    def output_shape(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0] * xs[1]


class McCormick(Relaxed):
    """The product's planes through two corners of the box of its inputs."""

    def interval(self, op: Any, lowers: Any, uppers: Any) -> Any:
        ends = torch.stack([x * y for x in (lowers[0], uppers[0]) for y in (lowers[1], uppers[1])])
        return ends.amin(0), ends.amax(0)

    def planes(self, op: Any, lowers: Any, uppers: Any, values: Any, parallel: Any) -> Any:
        (lx, ly), (ux, uy), (zx, zy) = lowers, uppers, values
        # x y >= ly x + lx y - lx ly and x y <= ly x + ux y - ux ly; parallel ones take the middle's slopes.
        if not parallel:
            below, above = lx * (zy - ly) + ly * zx - zx * zy, ux * (zy - ly) + ly * zx - zx * zy
            return Planes((Term(0, ly, ly), Term(1, lx, ux)), below, above)
        kx, ky = (ly + uy) / 2, (lx + ux) / 2
        # What is left is (x - ky)(y - kx) less a constant, at most the product of half the widths.
        most = (ux - lx) * (uy - ly) / 4
        rest = -(zx - ky) * (zy - kx)
        return Planes((Term(0, kx, kx), Term(1, ky, ky)), rest - most, rest + most)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


def two_products() -> tuple[Network, int, int]:
    """`(u * v) * u` with u, v affine in the input, and the numbers of both products."""
    graph = Graph((INPUTS,))
    u, v = (graph.add(ops.Linear(random(WIDTH, INPUTS, seed=k), random(WIDTH, seed=k)), graph.input) for k in (1, 2))
    first = graph.add(Product(), u, v)
    second = graph.add(Product(), first, u)
    return graph.network(second), first, second


def made_up(parallel: bool, seed: int) -> list[Tensor]:
    """Slopes and intercepts of two terms: numbers alone, no operation's."""
    slopes = [random(BATCH, WIDTH, seed=seed + k) for k in range(4)]
    if parallel:
        slopes[1], slopes[3] = slopes[0], slopes[2]
    gap = random(BATCH, WIDTH, seed=seed + 5).abs()
    middle = random(BATCH, WIDTH, seed=seed + 6)
    return [*slopes, middle - gap, middle + gap]


def planes_of(t: list[Tensor], sources: tuple[Tensor | None, Tensor | None] = (None, None)) -> Planes:
    return Planes((Term(0, t[0], t[1], sources[0]), Term(1, t[2], t[3], sources[1])), t[4], t[5])


def bound(net: Network, node: int, rows: Tensor, planes: dict[int, Planes], inputs: InputSet, parallel: bool) -> Tensor:
    """Lower bounds, `b x r`, with phi added where planes are parallel."""
    found = lower_deviation(net, node, rows, planes, inputs, parallel, 1 << 20, Pool(1 << 20))
    if not parallel:
        return found
    phi: dict[int, Tensor] = {}
    for i, n in enumerate(net.nodes[: node + 1]):
        if i in planes:
            phi[i] = (planes[i].lower + planes[i].upper) / 2
            for term in planes[i].terms:
                below = phi[n.inputs[term.input]]
                phi[i] = phi[i] + term.lower_slope * (below if term.source is None else below.gather(1, term.source))
        else:
            phi[i] = torch.zeros(BATCH, n.size, dtype=torch.float64)  # in these networks nothing affine is above planes
    return found + (rows * phi[node][:, None]).sum(-1)


@PARALLEL
@pytest.mark.parametrize("picked", [False, True], ids=["entry by entry", "picked"])
def test_one_node_is_what_its_corners_say(parallel: bool, picked: bool) -> None:
    """The least value of a row over all corners of the region, by the plane that its sign asks for; its derivatives."""
    net, node, _ = two_products()
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(WIDTH, (BATCH, WIDTH), generator=generator) if picked else None
    numbers = [t.requires_grad_() for t in made_up(parallel, 10)]
    radius = random(BATCH, INPUTS, seed=4).abs().requires_grad_()
    rows = random(BATCH, ROWS, WIDTH, seed=5)
    planes = planes_of(numbers, (None, source))
    found = bound(net, node, rows, {node: planes}, InputSet(torch.zeros(BATCH, INPUTS).double(), radius), parallel)

    corners = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=INPUTS))).double()  # c x n
    x = radius[:, None] * corners
    u, v = (x @ net.nodes[k].op.weight.T for k in net.nodes[node].inputs)  # b x c x w
    if source is not None:
        v = v.gather(2, source[:, None].expand_as(v))
    below, above = (
        (k_u[:, None] * u + k_v[:, None] * v + m[:, None])[:, None]
        for k_u, k_v, m in ((numbers[0], numbers[2], numbers[4]), (numbers[1], numbers[3], numbers[5]))
    )
    a = rows[:, :, None]
    expected = (a * torch.where(a > 0, below, above)).sum(-1).amin(-1)
    torch.testing.assert_close(found, expected)
    weight = random(BATCH, ROWS, seed=6)
    wanted = torch.autograd.grad((weight * expected).sum(), [radius, *numbers], allow_unused=True)
    got = torch.autograd.grad((weight * found).sum(), [radius, *numbers], allow_unused=True)
    if parallel:  # the same slope stands below and above: what counts is the sum of both derivatives
        wanted, got = ((g[0], g[1], g[3], g[5], g[6]) for g in (wanted, got))
    for ours, theirs in zip(got, wanted):
        torch.testing.assert_close(ours, theirs)


@PARALLEL
def test_node_above_node(parallel: bool) -> None:
    """Where a term reads a relaxed node and another the same input again: right at every point between the planes, and
    the derivative is that of finite differences."""
    net, first, second = two_products()
    parts = {first: made_up(parallel, 20), second: made_up(parallel, 30)}
    center, radius = torch.zeros(BATCH, INPUTS).double(), random(BATCH, INPUTS, seed=7).abs()
    rows = random(BATCH, ROWS, WIDTH, seed=8)

    def value(moved: Tensor, numbers: dict[int, list[Tensor]]) -> Tensor:
        planes = {i: planes_of(t) for i, t in numbers.items()}
        return bound(net, second, rows, planes, InputSet(center, moved), parallel)

    found = value(radius, parts)
    generator = torch.Generator().manual_seed(9)
    for _ in range(500):
        x = radius * (2 * torch.rand(BATCH, INPUTS, generator=generator, dtype=torch.float64).round() - 1)
        values = {k: x @ net.nodes[k].op.weight.T for k in net.nodes[first].inputs}
        for i, t in parts.items():
            one, other = (values[j] for j in net.nodes[i].inputs)
            low, high = t[0] * one + t[2] * other + t[4], t[1] * one + t[3] * other + t[5]
            share = torch.rand(BATCH, WIDTH, generator=generator, dtype=torch.float64).round()
            # Planes that are made up may cross, and then there is nothing between them.
            values[i] = torch.where(low <= high, low + share * (high - low), torch.nan)
        reached = (rows * values[second][:, None]).sum(-1)
        assert bool(((found <= reached + 1e-12) | reached.isnan()).all())

    start = radius.clone().requires_grad_()
    (grad,) = torch.autograd.grad(value(start, parts).sum(), start)
    for k in range(INPUTS):
        step = 1e-6 * torch.eye(INPUTS, dtype=torch.float64)[k]
        slope = (value(radius + step, parts) - value(radius - step, parts)).sum(1) / 2e-6
        torch.testing.assert_close(grad[:, k], slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", ["simple", "quadratic", "combined", "adaptive"])
def test_products_through_all_of_the_bounds(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for the product is all that the search lacks: bounds hold, and shrink with the region."""
    monkeypatch.setitem(TABLE, Product, McCormick())
    net, _, _ = two_products()
    center = random(BATCH, INPUTS, seed=40)
    widths = []
    for size in (0.5, 0.05):
        radius = torch.full_like(center, size).requires_grad_()
        found = Propagation(net, InputSet(center, radius), method_named(method))
        low, high = found.lower[-1], found.upper[-1]
        share = 2 * torch.rand(2000, *center.shape, generator=torch.Generator().manual_seed(1)).double() - 1
        share[:1000] = share[:1000].sign()
        reached = net.values((center + size * share).flatten(0, 1))[-1].reshape(2000, BATCH, WIDTH)
        assert bool((low <= reached + 1e-12).all()) and bool((high >= reached - 1e-12).all())
        widths.append(float((high - low).detach().mean()))
        (grad,) = torch.autograd.grad((high - low).sum(), radius)
        assert bool((grad > 0).all())
        spread = float((reached.amax(0) - reached.amin(0)).mean())
        assert widths[-1] <= (30 if size > 0.1 or method == "simple" else 1.5) * spread
    assert math.isfinite(widths[0]) and widths[1] < widths[0] / 5
