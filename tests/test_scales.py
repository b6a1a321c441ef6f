"""Units do not matter: of inputs, of outputs, and of margins so small that float32 does not see them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import elbowroom as er
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from support import cases, mlp

N = 5
SHAPES = {
    "box": er.Box(),
    "asymmetric": er.Box(asymmetric=True),
    "uniform": er.Uniform(),
    "ellipsoid": er.Ellipsoid(),
    "l1": er.L1(),
    "ball": er.Ball(1.5),
}
# Asymmetric boxes have many local answers: where margins jump, other roundings may lead to another one.
LOCAL = {"asymmetric": 0.3}
ACTIVATIONS = {"relu": ops.ReLU(), "tanh": ops.Tanh()}


def network(
    seed: int,
    activation: str = "relu",
    unit: float = 1.0,
    out: float = 1.0,
    offset: float = 0.0,
    gap: Any = None,
    x: Tensor | None = None,
) -> Any:
    """A network for inputs `unit * x + offset` whose outputs are `out` times what they were.

    `gap`: the margin at `x` (`n`), as a share of the largest output.
    """
    layers = [node.op for node in mlp(np.random.default_rng(seed), [N, 10, 10, 3], ACTIVATIONS[activation]).nodes[1:]]
    if gap is not None:
        z = er.Network.chain((N,), layers)(x[None])[0]
        first, second = z.topk(2).indices.tolist()
        bias = layers[-1].bias.clone()
        bias[first] -= z[first] - z[second] - gap * z.abs().max()
        layers[-1] = ops.Linear(layers[-1].weight, bias)
    first, last = layers[0], layers[-1]
    layers[0] = ops.Linear(first.weight / unit, first.bias - (first.weight / unit).sum(1) * offset)
    layers[-1] = ops.Linear(last.weight * out, last.bias * out)
    return er.Network.chain((N,), layers)


def inputs(seed: int, count: int = 2) -> Any:
    return torch.from_numpy(np.random.default_rng(seed + 1).uniform(-1, 1, size=(count, N)))


def same(found: Any, expected: Any, tolerance: Any, unit: float = 1.0) -> None:
    """Certified alike, and of the same size."""
    assert found.status == expected.status
    good = expected.certified
    assert ((found.geomean / unit / expected.geomean - 1).abs()[good] < tolerance).all()


SEED, KIND, NAME = st.integers(0, 1000), st.sampled_from(list(ACTIVATIONS)), st.sampled_from(list(SHAPES))


@given(
    seed=SEED, activation=KIND, name=NAME, unit=st.sampled_from([1e-30, 1e-12, 1e-6, 1e6, 1e12, 1e20]),
    out=st.sampled_from([1e-30, 1e-12, 1e-6, 1.0, 1e6, 1e12, 1e30]), limited=st.booleans(), zero=st.booleans(),
)  # fmt: skip
@cases()
def test_regions_are_the_same_in_any_units(
    seed: int, activation: Any, name: str, unit: float, out: float, limited: bool, zero: bool
) -> None:
    x = inputs(seed) * (not zero)  # zeros say nothing about their unit
    region = SHAPES[name]
    expected = er.certify(network(seed, activation), x, region=region, domain=(-2, 2) if limited else None)
    domain = (-2 * unit, 2 * unit) if limited else None
    found = er.certify(network(seed, activation, unit, out), unit * x, region=region, domain=domain)
    same(found, expected, LOCAL.get(name, 3e-3), unit)


@given(seed=SEED, activation=KIND, name=NAME, offset=st.sampled_from([1e3, 1e5, 1e7, 1e9]))
@cases(0.6)
def test_small_regions_around_large_inputs(seed: int, activation: Any, name: str, offset: float) -> None:
    """Such as timestamps: float32 does not hold the ends of the region, nor, beyond 1e7, the input itself."""
    x, region = inputs(seed), SHAPES[name]
    net = network(seed, activation, offset=offset)
    found, exact = (er.certify(net, x + offset, region=region, precision=p) for p in ("float32", "float64"))
    assert found.status == er.certify(network(seed, activation), x, region=region).status
    same(found, exact, LOCAL.get(name, 1e-2))


@pytest.mark.parametrize("seed", [3, 6, 7, 10])
def test_extents_that_float32_hardly_tells_from_zero(seed: int) -> None:
    """The input is a float32 number, and so is everything computed from it, but not the ends of the region."""
    rng = np.random.default_rng(seed)
    offset = 2.0**20
    first, bias, last = (torch.from_numpy(rng.integers(-m, m + 1, size=s) / q) for m, s, q in WHOLE)
    net = er.Network.chain((3,), [ops.Linear(first, bias - first.sum(1) * offset), ops.Tanh(), ops.Linear(last)])
    x = torch.full((1, 3), offset, dtype=torch.float64)
    same(er.certify(net, x), er.certify(net, x, precision="float64"), 1e-3)


WHOLE = [(16, (8, 3), 8), (4, 8, 4), (16, (3, 8), 8)]  # numerators up to, how many, and over what


@given(seed=SEED, activation=KIND, name=NAME, gap=st.sampled_from([1e-3, 1e-5, 1e-7, 1e-9, 1e-11]))
@cases()
def test_margins_that_float32_does_not_see(seed: int, activation: Any, name: str, gap: float) -> None:
    """A margin that is a billionth of the outputs is certified, with a region as large as a search in float64 finds."""
    x, region = inputs(seed, 1), SHAPES[name]
    net = network(seed, activation, gap=gap, x=x[0])
    found, exact = (er.certify(net, x, region=region, precision=p) for p in ("float32", "float64"))
    assert found.status == ("certified",) and (found.margins > 0).all()
    same(found, exact, LOCAL.get(name, 1e-2))


def test_only_the_inputs_that_need_it_are_searched_in_float64() -> None:
    x = inputs(0, 3)
    net, seen = network(0, gap=1e-8, x=x[1]), []

    def bound(net: Network, sets: Any, spec: Any) -> Any:
        from elbowroom.search.bounds.propagate import margins_of

        seen.append((sets.center.dtype, len(sets.center)))
        return margins_of("adaptive")(net, sets, spec)

    certs = er.certify(net, x, bounds=bound)
    assert set(certs.status) == {"certified"}
    assert max(n for dtype, n in seen if dtype == torch.float32) == 2
    assert {n for dtype, n in seen if dtype == torch.float64} == {1}
    seen.clear()
    er.certify(net, x, bounds=bound, precision="float64")
    assert {dtype for dtype, _ in seen} == {torch.float64}


def test_weights_that_cancel_are_searched_in_float64() -> None:
    """Nothing but noise in float32; once a precision had to be asked for."""
    w = torch.tensor([[1e9, -1e9], [1e9, -1e9 + 1]], dtype=torch.float64)
    net = er.Network.chain(
        (2,), [ops.Linear(w), ops.ReLU(), ops.Linear(torch.tensor([[1.0, -1.0], [0.0, 0.0]], dtype=torch.float64))]
    )
    x = torch.tensor([[1.1, 0.7], [2.1, -3.3]]).double()
    same(er.certify(net, x), er.certify(net, x, precision="float64"), 1e-2)


def test_a_margin_of_less_than_the_papers_delta(shared: Path) -> None:
    """ACAS Xu: scores are small, and so is the margin of this encounter."""
    net = er.load(shared / "models" / "acasxu" / "ACASXU_run2a_1_1_batch_2000.onnx", decision="min")
    shape = net.input_shape
    x = torch.from_numpy(np.random.default_rng(0).uniform(-0.3, 0.5, size=(4000, *shape))).float()
    best = net(x).topk(2, largest=False).values
    margin = best[:, 1] - best[:, 0]
    few = x[(margin > 1e-6) & (margin < 1e-4)][:5]
    assert len(few) > 1
    assert set(er.certify(net, few, delta=1e-4).status) == {"not_certified"}
    certs = er.certify(net, few)
    assert set(certs.status) == {"certified"} and (certs.margins > 0).all() and bool(er.check(certs, net))


@pytest.mark.parametrize("name", list(SHAPES))
def test_margins_need_only_be_positive(name: str) -> None:
    x = inputs(3, 4)
    plain = er.certify(network(3), x, region=SHAPES[name])
    paper = er.certify(network(3), x, region=SHAPES[name], delta=0.05)
    assert plain.settings["delta"] == 0
    assert (plain.margins[plain.certified] > 0).all() and (paper.margins[paper.certified] >= 0.05).all()
    both = plain.certified & paper.certified
    assert both.any() and (plain.uniform > paper.uniform)[both].all()
    assert (plain.geomean > (1 - LOCAL.get(name, 0.0)) * paper.geomean)[both].all()
