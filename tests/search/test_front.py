"""Rows that end in an input laid out in phases give what rows over the input itself give."""

import gc
import math
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.claim.specification import label_stays
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds import route
from elbowroom.search.bounds.front import Front
from elbowroom.search.bounds.propagate import margins_of
from elbowroom.search.regions.input_set import InputSet
from support import normal

# Shape of the input, kernel, stride, padding.
CONVOLUTIONS = {
    "phases of one size": ((2, 8, 8), (4, 4), (2, 2), (1, 1)),
    "phases of two sizes": ((2, 9, 8), (3, 3), (2, 2), (1, 1)),
    "ends that no window reaches": ((1, 11, 10), (3, 2), (3, 2), (0, 0)),
    "one axis": ((3, 14), (5,), (2,), (2,)),
    "three axes": ((1, 6, 5, 7), (2, 3, 3), (2, 1, 2), (0, 1, 1)),
    "no strides": ((2, 6, 6), (3, 3), (1, 1), (1, 1)),
}


def network(case: str, before: bool = True) -> Network:
    """Two convolutions and a matrix, random, behind a scale for each channel."""
    rng = np.random.default_rng(0)
    shape, kernel, stride, padding = CONVOLUTIONS[case]
    graph, dims = Graph(shape), len(kernel)
    at = graph.input
    if before:
        at = graph.add(ops.Shift(normal(rng, shape[0], *[1] * dims)), at)
        at = graph.add(ops.Divide(normal(rng, shape[0], *[1] * dims).abs() + 0.5), at)
        at = graph.add(ops.Scale(-normal(rng, *shape).abs() - 0.1), at)
    at = graph.add(ops.Conv(normal(rng, 4, shape[0], *kernel), normal(rng, 4), stride, padding, (1,) * dims), at)
    at = graph.add(ops.ReLU(), at)
    at = graph.add(ops.Conv(normal(rng, 3, 4, *[2] * dims), None, (1,) * dims, (0,) * dims, (1,) * dims), at)
    at = graph.add(ops.Reshape((-1,)), graph.add(ops.ReLU(), at))
    return graph.network(graph.add(ops.Linear(normal(rng, 3, graph.nodes[at].size)), at))


def margins_and_derivatives(net: Network, method: str, p: float = math.inf) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(1)
    x, radius = normal(rng, 3, *net.input_shape), 0.02 * normal(rng, 3, *net.input_shape).abs()
    radius.requires_grad_()
    spec = label_stays(net.decide(net(x)), net.n_outputs)
    margins = margins_of(method)(net.cast(torch.float64), InputSet(x, radius, p), spec)
    units = torch.eye(margins.shape[1], dtype=torch.float64)[:, None].expand(-1, 3, -1)
    rows = torch.func.vmap(lambda u: torch.autograd.grad(margins, radius, u, retain_graph=True)[0])(units)
    return margins.detach(), rows


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing is known of any network, now and afterwards."""
    monkeypatch.setattr(route, "_KNOWN", type(route._KNOWN)())
    return monkeypatch


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("method", ["combined", "adaptive"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_the_same_margins_and_derivatives(case: str, method: str, windows: bool, anew: pytest.MonkeyPatch) -> None:
    anew.setattr(route, "_NEARLY_ALL", torch.inf if windows else 0.0)
    net = network(case)
    assert Front.of(net) is not None
    found = margins_and_derivatives(net, method)
    anew.setattr(Front, "of", staticmethod(lambda net: None))
    route._KNOWN.clear()
    for now, before in zip(found, margins_and_derivatives(net, method)):
        torch.testing.assert_close(now, before)


def test_a_matrix_behind_single_features(anew: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    before = [ops.Scale(normal(rng, 2, 1, 1)), ops.Transpose((1, 2, 0)), ops.Reshape((24,))]
    after = [ops.Linear(normal(rng, 9, 24)), ops.ReLU(), ops.Linear(normal(rng, 3, 9))]
    net = Network.chain((2, 3, 4), [*before, *after])
    seen = Front.of(net)
    assert seen is not None and seen.nodes[0].shape == (24,) and seen.nodes[4].inputs == (0,)
    found = margins_and_derivatives(net, "adaptive")
    anew.setattr(Front, "of", staticmethod(lambda net: None))
    route._KNOWN.clear()
    for now, plain in zip(found, margins_and_derivatives(net, "adaptive")):
        torch.testing.assert_close(now, plain)


def test_rows_are_not_interleaved(anew: pytest.MonkeyPatch) -> None:
    """Of two convolutions with strides only the one that does not read the input has phases to put together."""
    from elbowroom.search.bounds.maps import _Conv

    net, seen = network("phases of one size"), []
    plain = _Conv._by_phases

    def noted(self: Any, op: Any, a: Tensor) -> Tensor:
        seen.append(max(op.stride))
        return plain(self, op, a)

    anew.setattr(_Conv, "_by_phases", noted)
    margins_and_derivatives(net, "adaptive")
    assert 2 not in seen
    anew.setattr(Front, "of", staticmethod(lambda net: None))
    route._KNOWN.clear()
    margins_and_derivatives(net, "adaptive")
    assert 2 in seen


@pytest.mark.parametrize("why", ["others read the input", "groups", "phases of nothing", "nothing to gain"])
def test_what_it_is_not_for(why: str) -> None:
    rng = np.random.default_rng(0)
    graph = Graph((2, 6, 6))
    size, stride, groups = (1, 2, 1) if why == "phases of nothing" else (2, 2, 2 if why == "groups" else 1)
    stride = 1 if why == "nothing to gain" else stride
    weight = normal(rng, 2, 2 // groups, size, size)
    at = graph.add(ops.Conv(weight, None, (stride,) * 2, (0, 0), (1, 1), groups), graph.input)
    at = graph.add(ops.Reshape((-1,)), at)
    at = graph.add(ops.Linear(normal(rng, 3, graph.nodes[at].size)), at)
    if why == "others read the input":
        other = graph.add(ops.Reshape((-1,)), graph.input)
        at = graph.add(ops.Add((1.0, 1.0)), at, graph.add(ops.Linear(normal(rng, 3, 72)), other))
    assert Front.of(graph.network(at)) is None


def test_balls_have_no_phases() -> None:
    net = network("phases of one size")
    inputs = InputSet(torch.zeros(1, 2, 8, 8), torch.ones(1, 2, 8, 8), 2.0)
    assert route.Route.of(net, inputs, len(net.nodes) - 1, False, False).front is None


@pytest.mark.parametrize("through", ["itself", "data", "numpy"])
def test_weights_that_change_are_seen(anew: pytest.MonkeyPatch, through: str) -> None:
    net = network("phases of two sizes").cast(torch.float64)
    margins_and_derivatives(net, "adaptive")
    for node in net.nodes:
        if type(node.op) is ops.Conv:
            view = {"itself": node.op.weight, "data": node.op.weight.data, "numpy": node.op.weight.numpy()}[through]
            view *= -0.5
    found = margins_and_derivatives(net, "adaptive")
    route._KNOWN.clear()
    anew.setattr("elbowroom.search.bounds.phases._KNOWN", type(route._KNOWN)())
    for now, fresh in zip(found, margins_and_derivatives(net, "adaptive")):
        torch.testing.assert_close(now, fresh)


@pytest.mark.parametrize("stride", [1, 2])
def test_nothing_keeps_a_network(stride: int) -> None:
    conv = ops.Conv(torch.ones(2, 3, 2, 2), None, (stride, stride))
    net = Network.chain((3, 8, 8), [conv, ops.ReLU(), ops.Reshape((-1,)), ops.Mean((0,), False)])
    x = torch.rand(1, 3, 8, 8)
    er.bounds(net, x, x + 0.1)
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None
