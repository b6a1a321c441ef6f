"""Hidden bounds with slopes of their own for each row: right, better, alike in search and proof, and differentiable."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.claim.specification import label_stays
from elbowroom.claim.tree import MOST_CASES, MOST_SHARPENED, fitting_leaves, single_leaf
from elbowroom.claim.tree_bytes import as_bytes, unpack
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel import prove as kernel
from elbowroom.proof.kernel import slopes
from elbowroom.proof.kernel.walk import StrictBounds
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.bounds.sharpened import Sharpening
from elbowroom.search.branching.engine import Limits, prove
from elbowroom.search.regions.input_set import InputSet
from proof.test_strict_tightness import area_of
from support import mlp

F64 = torch.float64
PLAIN = method_named("adaptive")


def found(net: Network, inputs: InputSet, steps: int, cases: int = 0) -> Propagation:
    how = Sharpening(steps, cases)
    return Propagation(net, inputs, PLAIN, bound_outputs=False, skip_inactive=True, sharpened=how)


def deep(seed: int = 0) -> tuple[Network, InputSet]:
    rng = np.random.default_rng(seed)
    net = mlp(rng, [6, 20, 20, 20, 3]).cast(F64)
    center = torch.from_numpy(rng.normal(size=(2, 6)))
    return net, InputSet(center, torch.full_like(center, 0.3))


def width(bounds: Propagation, net: Network) -> float:
    return float(sum((bounds.upper[i] - bounds.lower[i]).sum() for i in net.preactivations))


def test_widths_shrink_with_every_few_steps() -> None:
    net, inputs = deep()
    widths = [width(found(net, inputs, k), net) for k in (0, 1, 3, 8)]
    assert widths == sorted(widths, reverse=True) and widths[3] < 0.985 * widths[0], widths


def test_widths_shrink_with_every_case() -> None:
    net, inputs = deep()
    for steps in (0, 3):
        widths = [width(found(net, inputs, steps, k), net) for k in range(MOST_CASES + 1)]
        assert widths == sorted(widths, reverse=True) and widths[2] < 0.98 * widths[0], widths


def test_cases_are_exact_where_they_are_all() -> None:
    """relu(x + y) + relu(x - y) is at most 2 on [-1, 1]^2, where one of both is x + y or both are; with a chord 3."""
    first = ops.Linear(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=F64), None)
    last = ops.Linear(torch.ones(1, 2, dtype=F64), torch.tensor([-1.0], dtype=F64))
    net = Network.chain((2,), [first, ops.ReLU(), last, ops.ReLU(), ops.Linear(torch.ones(1, 1, dtype=F64), None)])
    inputs = InputSet(torch.zeros(1, 2, dtype=F64), torch.ones(1, 2, dtype=F64))
    for cases, most in enumerate((2.0, 2.0, 1.0, 1.0)):
        searched = found(net, inputs, 0, cases).upper[3]
        with torch.no_grad():
            strict = StrictBounds(net, area_of(inputs), False, cases=cases).upper[3]
        assert float(strict) >= most
        assert float(strict) == pytest.approx(most) == float(searched), cases


def test_search_and_proof_agree_on_ordinary_networks() -> None:
    for seed, (steps, cases) in enumerate([(4, 0), (4, 2), (0, 3), (4, 6), (1, 4)]):
        net, inputs = deep(seed)
        searched = found(net, inputs, steps, cases)
        with torch.no_grad():
            strict = StrictBounds(net, area_of(inputs), False, sharpened=steps, cases=cases)
        for i in net.preactivations:
            bent = (strict.lower[i] < 0) & (strict.upper[i] > 0)
            for ours, theirs in ((searched.lower, strict.lower), (searched.upper, strict.upper)):
                assert torch.allclose(ours[i][bent], theirs[i][bent], rtol=1e-8, atol=1e-8)


def test_points_stay_within_bounds_whatever_the_shape() -> None:
    rng = np.random.default_rng(3)
    net, inputs = deep(3)
    basis = torch.linalg.qr(torch.from_numpy(rng.normal(size=(6, 6)))).Q
    for p, turn in ((float("inf"), None), (2.0, None), (1.0, None), (3.0, basis), (float("inf"), basis)):
        sets = dataclasses.replace(inputs, p=p, basis=turn)
        bounds = found(net, sets, 5, 3)
        v = torch.from_numpy(rng.normal(size=(2, 400, 6)))
        v = v / torch.linalg.vector_norm(v, ord=p, dim=-1, keepdim=True)
        moved = sets.radius[:, None] * v
        points = sets.center[:, None] + (moved if turn is None else moved @ turn.T)
        values = net.values(points.reshape(-1, 6))
        for i in net.preactivations:
            at = values[i].reshape(2, 400, -1)
            assert bool((at >= bounds.lower[i][:, None] - 1e-9).all() and (at <= bounds.upper[i][:, None] + 1e-9).all())


@pytest.mark.parametrize("cases", [0, 3])
def test_derivatives_are_those_of_the_bounds(cases: int) -> None:
    net, inputs = deep(5)
    last = max(net.preactivations)

    def total(radius: torch.Tensor) -> torch.Tensor:
        bounds = found(net, dataclasses.replace(inputs, radius=radius), 3, cases)
        bent = (bounds.lower[last] < 0) & (bounds.upper[last] > 0)
        return (bounds.upper[last] * bent).sum()

    radius = inputs.radius.clone().requires_grad_()
    (slope,) = torch.autograd.grad(total(radius), radius)
    direction = torch.from_numpy(np.random.default_rng(1).uniform(0.5, 1, size=radius.shape))
    with torch.no_grad():
        step = 1e-6
        change = (total(inputs.radius + step * direction) - total(inputs.radius - step * direction)) / (2 * step)
    # Slopes are taken as constants: where they are near their best, they hardly matter.
    assert float((slope * direction).sum()) == pytest.approx(float(change), rel=0.2)


@pytest.mark.parametrize("features", [24, 4])
def test_trees_say_so_and_are_proved_again(features: int) -> None:
    """Of few features, whose boxes are halved, in one step for each part."""
    rng = np.random.default_rng(2)
    net = mlp(rng, [features, 8, 8, 3])
    x = torch.from_numpy(rng.normal(size=(2, features)))
    certs = er.certify(net, x, effort=20)
    trees = [tree for words in certs.trees for _, tree in unpack(as_bytes(words))]
    sharpest = [(tree.sharpened, tree.cases) for tree in trees]
    assert trees and all(own == (1, 0) if features == 4 else min(own) > 0 for own in sharpest)
    assert any(bool((tree.node == 0).any()) for tree in trees) == (features == 4)
    assert bool(er.check(certs, net).passed[certs.certified].all())
    pytest.importorskip("flint")
    assert bool(er.check(certs, net, arithmetic="arb").passed[certs.certified].all())


@pytest.mark.parametrize("more", [Sharpening(6), Sharpening(0, 4), Sharpening(4, 4)])
def test_fewer_leaves_are_needed(more: Sharpening) -> None:
    rng = np.random.default_rng(4)
    net = mlp(rng, [30, 24, 24, 24, 3]).cast(F64)
    x = torch.from_numpy(rng.normal(size=(4, 30)))
    certs = er.certify(net, x)
    spec = label_stays(net.decide(net(x)), 3, net.decision).cast(F64, torch.device("cpu"))
    center = (certs.lower + certs.upper).double() / 2
    sets = InputSet(center, 1.15 * (certs.upper - certs.lower).double() / 2)
    leaves = [prove(net, sets, spec, Limits(leaves=400, sharpened=how)) for how in (Sharpening(), more)]
    assert bool((leaves[1].proved | ~leaves[0].proved).all())
    assert int(leaves[1].leaves.sum()) < int(leaves[0].leaves.sum())
    # What was found so is proved so, and not without.
    trees = leaves[1].trees
    plain = [{g: dataclasses.replace(tree, sharpened=0, cases=0) for g, tree in own.items()} for own in trees]
    found = [
        kernel.prove(net, area_of(sets), spec.rows, spec.offset, spec.group, trees=[list(own.items()) for own in some])
        for some in (trees, plain)
    ]
    held = leaves[1].proved.all(1)
    assert bool(held.any()) and bool((found[0][held] > 0).all()) and not bool((found[1][held] > 0).all())


def test_fewer_halves_are_needed() -> None:
    """Boxes of few features are halved: each half has hidden bounds of its own, and these are sharpened."""
    rng = np.random.default_rng(5)
    net = mlp(rng, [4, 24, 24, 24, 24, 3]).cast(F64)
    x = torch.from_numpy(rng.normal(size=(4, 4)))
    certs = er.certify(net, x)
    spec = label_stays(net.decide(net(x)), 3, net.decision).cast(F64, torch.device("cpu"))
    center = (certs.lower + certs.upper).double() / 2
    sets = InputSet(center, 2.0 * (certs.upper - certs.lower).double() / 2)
    plain, sharp = (prove(net, sets, spec, Limits(leaves=400, sharpened_halves=Sharpening(k))) for k in (0, 1))
    held = plain.proved.all(1)
    assert bool(held.any()) and bool(sharp.proved[held].all())
    assert int(sharp.leaves[held].sum()) < 0.85 * int(plain.leaves[held].sum())
    assert all(tree.sharpened == 1 for own in sharp.trees for tree in own.values())
    found = kernel.prove(
        net, area_of(sets), spec.rows, spec.offset, spec.group, trees=[list(own.items()) for own in sharp.trees]
    )
    assert bool((found[held] > 0).all())


@pytest.mark.parametrize("name, most", [("sharpened", MOST_SHARPENED), ("cases", MOST_CASES)])
@pytest.mark.parametrize("wrong", [-1, "more", 1.0, True, None])
def test_forged_numbers_are_refused(name: str, most: int, wrong: object) -> None:
    net = mlp(np.random.default_rng(0), [4, 8, 8, 2])
    tree = dataclasses.replace(single_leaf(0), **{name: most + 1 if wrong == "more" else wrong})
    with pytest.raises(InputError, match=name):
        fitting_leaves(tree, 0, torch.zeros(1, dtype=torch.long), net, True)


# --- faults of the proof's side, which points must tell


def crossed(cases: int = 0) -> bool:
    """Whether points of small sets lie outside of the bounds that the proof has of them."""
    rng = np.random.default_rng(0)
    for seed in range(5):
        net, inputs = deep(seed)
        inputs = dataclasses.replace(inputs, radius=inputs.radius / 3)
        with torch.no_grad():
            bounds = StrictBounds(net, area_of(inputs), False, sharpened=2, cases=cases)
        v = torch.from_numpy(rng.choice([-1.0, 1.0], (2, 500, 6)))
        values = net.values((inputs.center[:, None] + inputs.radius[:, None] * v).reshape(-1, 6))
        for i in net.preactivations:
            at = values[i].reshape(2, 500, -1)
            if bool((at < bounds.lower[i][:, None]).any() or (at > bounds.upper[i][:, None]).any()):
                return True
    return False


def steep(self: slopes.OwnSlopes, k: int, usual: torch.Tensor) -> torch.Tensor:
    self._usual[k] = usual
    return torch.where(self._bent(k)[:, None], 1.5, usual)


def test_faults_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not crossed()
    with monkeypatch.context() as patch:
        patch.setattr(slopes.OwnSlopes, "slope", steep)
        assert crossed()
    with monkeypatch.context() as patch:
        patch.setattr(slopes.OwnSlopes, "constant", lambda self, k, low: low + 0.1 * self._bent(k))
        assert crossed()
    with monkeypatch.context() as patch:
        patch.setattr(
            slopes.OwnSlopes, "_bent", lambda self, k: torch.ones_like(self._interval(k)[0], dtype=torch.bool)
        )
        patch.setattr(slopes.OwnSlopes, "constant", lambda self, k, low: 0 * low + 0.1)
        assert crossed()


_in_case, _choose = slopes.OwnSlopes.in_case, slopes.OwnSlopes.choose
CASES: dict[str, tuple[str, object]] = {
    "cases left out": ("choose", lambda self, most: _choose(self, most) - 1),
    "one side of each ReLU only": ("in_case", lambda self, k, low, high: [
        torch.where(self._bits[k] > 0, 0.0, t) if k in self._bits else t for t in (low, high)]),
    "a line between the sides": ("in_case", lambda self, k, low, high: [
        torch.where(self._bits[k] > 0, 0.5, t) if k in self._bits else t for t in (low, high)]),
    "constants left out of other lines": ("constants", lambda self, k, flat, low: (
        0 * flat if k in self._bits else flat, self.constant(k, low))),
}  # fmt: skip


@pytest.mark.parametrize("fault", CASES)
def test_faults_of_cases_are_told(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not crossed(3)
    monkeypatch.setattr(slopes.OwnSlopes, *CASES[fault])
    assert crossed(3)


def test_slopes_that_are_no_numbers_become_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives that are NaN or infinite, as after overflow, still give slopes from 0 to 1."""
    net, inputs = deep(6)
    real = torch.autograd.grad

    def broken(*told: object, **more: object) -> tuple[torch.Tensor, ...]:
        parts = real(*told, **more)
        return tuple(torch.where(torch.rand_like(t) < 0.3, torch.nan, t * 1e300) for t in parts)

    monkeypatch.setattr(torch.autograd, "grad", broken)
    with torch.no_grad():
        bounds = StrictBounds(net, area_of(inputs), False, sharpened=3, cases=2)
    values = net.values(inputs.center)
    for i in net.preactivations:
        assert bool(torch.isfinite(bounds.lower[i]).all()) and bool((bounds.lower[i] <= values[i]).all())


def test_nothing_to_sharpen() -> None:
    """Smooth activations, one layer only, dead and always active neurons."""
    rng = np.random.default_rng(8)
    smooth = mlp(rng, [4, 6, 6, 2], ops.Tanh()).cast(F64)
    inputs = InputSet(torch.zeros(1, 4, dtype=F64), torch.full((1, 4), 0.2, dtype=F64))
    for net in (smooth, mlp(rng, [4, 6, 2]).cast(F64)):
        a, b = found(net, inputs, 0), found(net, inputs, 4)
        assert all(torch.allclose(a.lower[i], b.lower[i]) for i in net.preactivations)
    still = InputSet(torch.zeros(1, 4, dtype=F64), torch.zeros(1, 4, dtype=F64))
    net = mlp(rng, [4, 6, 6, 2]).cast(F64)
    bounds = found(net, still, 4)
    assert all(torch.allclose(bounds.lower[i], bounds.upper[i]) for i in net.preactivations)
