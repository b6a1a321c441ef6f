"""Inputs of very many features: rows in blocks and the sub-problem by prices, beside what they stand for."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.claim.specification import label_stays
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds import absolute, wide
from elbowroom.search.bounds.propagate import margins_of
from elbowroom.search.regions import box, subproblem
from elbowroom.search.regions.input_set import InputSet
from search.test_subproblem import ODD, is_feasible, log_widths, problem
from support import cases, mlp, normal


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Everything is wide, and blocks are small."""
    for name, value in {"_WIDE": 1, "_BLOCK": 64, "_LEAST": 5}.items():
        monkeypatch.setattr(wide, name, value)
    monkeypatch.setattr(absolute, "_LARGE", 1)
    monkeypatch.setattr(absolute, "_PART", 7)
    return monkeypatch


def nets() -> dict[str, Network]:
    rng = np.random.default_rng(0)

    def layers(*sizes: int) -> list[ops.Operation]:
        return [node.op for node in mlp(rng, list(sizes)).nodes[1:]]

    factor, shift = normal(rng, 3, 1, 1), normal(rng, 2, 4)
    pixels = [ops.Scale(factor), ops.Shift(shift), ops.Divide(normal(rng, 4).abs() + 1), ops.Transpose((1, 2, 0))]
    return {
        "plain": mlp(rng, [24, 9, 8, 4]),
        "rows cut to active neurons": mlp(rng, [24, 9, 150, 140, 4]),
        "pixels": Network.chain((3, 2, 4), [*pixels, ops.Reshape((24,)), *layers(24, 9, 8, 4)]),
        "linear": mlp(rng, [24, 4]),
    }


def margins_and_derivatives(net: Network, method: str, asymmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(1)
    x = normal(rng, 3, *net.input_shape)
    spec = label_stays(net.decide(net(x)), net.n_outputs)
    radius = (0.05 * normal(rng, 3, *net.input_shape).abs()).requires_grad_()
    center = x + (0.3 * radius if asymmetric else 0.0)
    margins = margins_of(method)(net.cast(torch.float64), InputSet(center, radius), spec)
    units = torch.eye(margins.shape[1], dtype=torch.float64)[:, None].expand(-1, 3, -1)
    rows = torch.func.vmap(lambda u: torch.autograd.grad(margins, radius, u, retain_graph=True)[0])(units)
    one = torch.autograd.grad(margins[:, 0].sum(), radius)[0]
    torch.testing.assert_close(rows[0], one)
    return margins.detach(), rows


@pytest.mark.parametrize("name", nets())
@pytest.mark.parametrize("method", ["adaptive", "combined", "quadratic", "fast"])
def test_blocks_give_the_same_margins_and_derivatives(name: str, method: str, narrow: pytest.MonkeyPatch) -> None:
    net = nets()[name]
    for asymmetric in (False, True):
        found = margins_and_derivatives(net, method, asymmetric)
        narrow.setattr(wide, "_WIDE", 1 << 40)
        expected = margins_and_derivatives(net, method, asymmetric)
        narrow.setattr(wide, "_WIDE", 1)
        for a, b in zip(found, expected):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_rows_over_a_wide_input_are_not_written_out(narrow: pytest.MonkeyPatch) -> None:
    net = nets()["plain"]
    blocks: list[int] = []
    plain = wide.Entry._blocks

    def seen(entry: Any, c: Any) -> Any:
        for at, weight, rows in plain(entry, c):
            blocks.append(rows.shape[2])
            yield at, weight, rows

    narrow.setattr(wide.Entry, "_blocks", seen)
    narrow.setattr(InputSet, "support", lambda *_: pytest.fail("rows were carried to the input"))
    er.certify(net, torch.zeros(2, 24))
    assert blocks and max(blocks) < 24


@pytest.mark.parametrize("change", ["read twice", "ball", "activation first", "repeated"])
def test_no_blocks_where_rows_do_not_end_in_one_matrix(change: str, narrow: pytest.MonkeyPatch) -> None:
    matrix, square = ops.Linear(torch.ones(2, 24)), ops.Linear(torch.ones(24, 24))
    graph = Graph((24,) if change != "repeated" else (1, 6))
    match change:
        case "read twice":
            last = graph.add(ops.Add((1.0, 1.0)), graph.add(square, graph.input), graph.input)
        case "activation first":
            last = graph.add(ops.ReLU(), graph.input)
        case "repeated":
            last = graph.add(ops.Reshape((24,)), graph.add(ops.Shift(torch.ones(4, 6)), graph.input))
        case _:
            last = graph.input
    net = graph.network(graph.add(matrix, last))
    size = (1, *net.input_shape)
    assert (
        wide.Entry.of(net, InputSet(torch.zeros(size), torch.ones(size), 2.0 if change == "ball" else np.inf)) is None
    )


@given(
    seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 12), n=st.integers(1, 400), per=st.integers(1, 2), odd=ODD,
    already=st.booleans(),
)  # fmt: skip
@cases()
def test_prices_give_what_the_interior_point_method_gives(
    seed: int, rows: int, n: int, per: int, odd: Any, already: bool
) -> None:
    rng = np.random.default_rng(seed)
    a, b, cap, weight = problem(rng, rows, n, per, odd, batch=1)
    c = torch.from_numpy(rng.uniform(0, 2, size=weight.shape)) * already
    expected = subproblem.largest_widths(a, b, cap, weight, c)
    found = subproblem._by_prices(a, b, cap, weight, c)
    if found is None:  # then it is not used
        return
    assert is_feasible(a, b, cap, found)
    assert (log_widths(expected, cap, weight, c) - log_widths(found, cap, weight, c)).max() < 3e-4


def test_prices_are_found_where_there_are_many_features(monkeypatch: pytest.MonkeyPatch) -> None:
    for per in (1, 2):
        a, b, cap, weight = problem(np.random.default_rng(per), 9, 3000, per, batch=2)
        a, b, cap, weight = (t.float() for t in (a, b, cap, weight))
        found = subproblem._by_prices(a, b, cap, weight, None)
        assert found is not None and found.dtype == torch.float32
        expected = subproblem.largest_widths(a, b, cap, weight)
        assert (log_widths(expected, cap, weight) - log_widths(found, cap, weight)).abs().max() < 3e-4


@pytest.mark.parametrize("broken", ["no budget", "not a number"])
def test_what_prices_cannot_answer_is_left_to_the_other_method(broken: str) -> None:
    a, b, cap, weight = problem(np.random.default_rng(0), 3, 40, 2, batch=1)
    if broken == "no budget":
        b[0, 1] = 0.0
    else:
        a[0, 1, 3] = torch.nan
    assert subproblem._by_prices(a, b, cap, weight, None) is None


def test_edges_are_chosen_as_with_all_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices settled on a sample first choose the same sides, but for features that hardly care."""
    rng = np.random.default_rng(0)
    both, budget = torch.from_numpy(rng.uniform(0.1, 1, (1, 4, 4000))), torch.from_numpy(rng.uniform(5, 20, (1, 4)))
    far, near = both * torch.from_numpy(rng.random((1, 4, 4000))), torch.from_numpy(rng.uniform(0, 0.01, (1, 4000)))
    told = (both, far, budget, near, near + torch.from_numpy(rng.uniform(0, 0.1, (1, 4000))), torch.ones_like(near))
    expected = box._beyond_the_near_edge(*told)
    monkeypatch.setattr(box, "_MANY", 1)
    found = box._beyond_the_near_edge(*told)
    assert 0.05 < float(expected.double().mean()) < 0.95
    assert float((found != expected).double().mean()) < 0.02


@pytest.mark.parametrize("asymmetric", [False, True])
def test_regions_are_as_large(asymmetric: bool, narrow: pytest.MonkeyPatch) -> None:
    net = mlp(np.random.default_rng(3), [200, 16, 12, 5])
    x = torch.rand(3, 200, generator=torch.Generator().manual_seed(0))
    region = er.Box(asymmetric=asymmetric)
    narrow.setattr(subproblem, "_MANY", 1)
    narrow.setattr(box, "_MANY", 1)
    found = er.certify(net, x, region=region, domain=(0, 1))
    narrow.undo()
    expected = er.certify(net, x, region=region, domain=(0, 1))
    assert found.status == expected.status
    assert (found.geomean.log() - expected.geomean.log()).abs().max() < 1e-3
