"""Sets of inputs with categories: bounds of the search, and their derivatives, against every combination of levels."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import elbowroom as er
from elbowroom.claim.categories import Categories, Category
from elbowroom.claim.specification import label_stays
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.bounds.propagate import margins_of
from elbowroom.search.regions.input_set import InputSet
from support import cases

CODES = (torch.eye(3), torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0], [1.0], [4.0]]))


def problem(seed: int) -> tuple[Network, InputSet]:
    torch.manual_seed(seed)
    each, first = [], 2
    for codes in CODES:
        each.append(Category(first, codes.double()))
        first += codes.shape[1]
    categories = Categories(tuple(each), first)
    allowed = torch.rand(3, categories.count) < 0.6
    own = torch.stack([torch.randint(3, (3,)) for _ in each], 1)
    center = torch.randn(3, first).double()
    for k, (one, place) in enumerate(categories):
        allowed[:, place][torch.arange(3), own[:, k]] = True
        center[:, one.entries] = one.codes[own[:, k]]
    radius = torch.where(categories.moves, torch.rand(3, first).double(), 0.0)
    layers: list[ops.Operation] = [ops.Linear(torch.randn(6, first).double(), torch.randn(6).double()), ops.ReLU()]
    layers += [ops.Linear(torch.randn(6, 6).double(), None), ops.ReLU(), ops.Linear(torch.randn(3, 6).double(), None)]
    return Network.chain((first,), layers), InputSet(center, radius, categories=categories, allowed=allowed)


def points(sets: InputSet, b: int) -> Tensor:
    categories, allowed = sets.categories, sets.allowed
    assert categories is not None and allowed is not None
    found = []
    for chosen in itertools.product(*(one.codes[allowed[b, place]] for one, place in categories)):
        share = 2 * torch.rand(10, sets.center.shape[1], generator=torch.Generator().manual_seed(b)).double() - 1
        share[5:] = share[5:].sign()
        x = sets.center[b] + share * sets.radius[b]
        for one, code in zip(categories.each, chosen):
            x[:, one.entries] = code
        found.append(x)
    return torch.cat(found)


@pytest.mark.parametrize("method", ["simple", "quadratic", "combined", "adaptive", "fast"])
@given(seed=st.integers(0, 10**6))
@cases(0.2)
def test_bounds_hold_at_every_combination(method: str, seed: int) -> None:
    net, sets = problem(seed)
    spec = label_stays(net.decide(net(sets.center)), 3, "max").cast(torch.float64, "cpu")
    found = margins_of(method)(net, sets, spec)
    ends = er.bounds(net, sets, method=method)
    low, high = ends.lower, ends.upper
    for b in range(3):
        x = points(sets, b)
        outputs = net(x)
        true = spec.part(torch.tensor([b])).margins(outputs).amin(0)
        assert bool((found[b] <= true + 1e-9).all())
        assert bool((low[b] <= outputs + 1e-9).all()) and bool((outputs <= high[b] + 1e-9).all())


@pytest.mark.parametrize("both", [False, True])
def test_supports_and_their_derivatives(both: bool) -> None:
    for seed in range(20):
        _, sets = problem(seed)
        a = torch.randn(3, 4, sets.center.shape[1], dtype=torch.float64, requires_grad=True)
        value = sets.support(a, both)
        (by_a,) = torch.autograd.grad(value.sum(), a)
        torch.testing.assert_close(by_a, sets.support_gradient(a.detach(), both)[0])
        for b in range(3):
            moved = (points(sets, b) - sets.center[b]) @ a[b].detach().T
            lowest = (moved.abs() if both else -moved).amax(0)
            assert bool((value[b].detach() >= lowest - 1e-9).all())
