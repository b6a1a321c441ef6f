"""All solvers on one list of problems; and a solver of one's own, which touches no other file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.claim.space import Space
from elbowroom.network import operations as ops
from elbowroom.search import find
from elbowroom.search.regions.registry import REGIONS, region_named
from elbowroom.search.solvers.boundary import Trail, to_boundary
from elbowroom.search.solvers.driver import Best, improve
from elbowroom.search.solvers.problem import Problem, Work
from elbowroom.search.solvers.registry import SOLVERS, solver_class
from elbowroom.search.solvers.sequential import Course, Sequential, Walk
from support import mlp


@dataclass(frozen=True)
class Stretching:
    """Stretches features at random, and keeps what is larger."""

    tries: int = 6

    def run(self, problem: Problem, best: Best) -> Iterator[None]:
        draw = torch.Generator().manual_seed(0)
        everyone = torch.arange(len(best.theta))
        for _ in range(self.tries):
            stretched = best.theta * (1 + torch.rand(best.theta.shape, generator=draw)).to(best.theta)
            guess = problem.region.grow(stretched, torch.ones(len(everyone)).to(stretched))
            factor = to_boundary(problem, guess).low
            best.offer(problem, everyone, problem.region.grow(guess, factor), factor > 0)
            yield
        best.end(everyone, f"after {self.tries} tries")


SOLVED_BY = {
    "sequential": er.Sequential(),
    "sequential, no gradients": er.Sequential(gradients=0),
    "augmented-lagrangian": er.AugmentedLagrangian(steps=40, rho_every=10),
    "stretching": Stretching(),
}
_RNG = np.random.default_rng(0)


def _linear() -> er.Network:
    return mlp(np.random.default_rng(1), [6, 3])


def _hidden() -> er.Network:
    return mlp(np.random.default_rng(2), [6, 12, 3])


# Network, inputs, and what else is told.
PROBLEMS: dict[str, tuple[er.Network, np.ndarray, dict]] = {}
for _name in REGIONS:
    PROBLEMS[f"linear, {_name}"] = (_linear(), _RNG.normal(size=(4, 6)), {"region": region_named(_name)})
    PROBLEMS[f"hidden, {_name}"] = (_hidden(), _RNG.normal(size=(4, 6)), {"region": region_named(_name)})
_X = _RNG.uniform(0.1, 0.9, size=(4, 6))
PROBLEMS["domain"] = (_hidden(), _X, {"domain": (0, 1)})
PROBLEMS["domain, asymmetric"] = (_hidden(), _X, {"domain": (0, 1), "region": er.Box(asymmetric=True)})
PROBLEMS["frozen"] = (_hidden(), _X, {"frozen": [True, False, False, True, False, False]})
PROBLEMS["importance"] = (_hidden(), _X, {"importance": [1, 2, 3, 4, 5, 6.0]})
PROBLEMS["caps"] = (_hidden(), _X, {"max_eps": 1e-3})
PROBLEMS["oblique"] = (
    _hidden(),
    _X,
    {"region": er.Oblique(torch.linalg.qr(torch.from_numpy(_RNG.normal(size=(6, 6))))[0])},
)
PROBLEMS["one input"] = (_hidden(), _X[:1], {})


def test_every_solver_is_here() -> None:
    assert {type(solver) for solver in SOLVED_BY.values()} >= {solver_class(name) for name in SOLVERS}


@pytest.mark.parametrize("solver", SOLVED_BY)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_all_problems(problem: str, solver: str) -> None:
    net, x, told = PROBLEMS[problem]
    certs = er.certify(net, x, solver=SOLVED_BY[solver], **told)
    assert set(certs.status) == {"certified"} and er.check(certs)
    if certs.lower is None:  # of the same shape, by the certificates' own word
        assert (certs.ratio >= 1 - 1e-3).all()
    else:
        uniform = er.certify(net, x, **{**told, "region": er.Uniform()})
        weight = torch.tensor(told.get("importance", [1.0] * 6), dtype=torch.float64)
        free = (certs.eps > 0) & (uniform.eps > 0)
        gain = torch.where(free, certs.eps.log() - uniform.eps.log(), 0.0) @ weight / weight.sum()
        assert (gain > -1e-3).all()
    one_radius = isinstance(told.get("region"), er.Uniform)
    assert all(bool(why) != one_radius for why in certs.ended)
    assert (certs.evaluations > 0).all()


def test_how_it_ended_is_kept(tmp_path: Path) -> None:
    net, x, told = PROBLEMS["domain"]
    certs = er.certify(net, x, solver=Stretching(2), **told)
    assert certs.ended == ("after 2 tries",) * 4
    assert Certificates.load(certs.save(tmp_path / "run")).ended == certs.ended
    assert all("linearisation" in why for why in er.certify(net, x, **told).ended)


# --- the driver


def _margins(weights: Tensor) -> Problem:
    """`1 - weights . theta >= 0` around an input of zeros, two features."""
    from elbowroom.claim.space import Space

    n = weights.shape[1]
    whole = torch.ones(1, n, dtype=torch.float64)
    space = Space(-torch.inf * whole, torch.inf * whole, 100 * whole, whole.bool(), whole)
    region = er.Box().place(torch.zeros(1, n, dtype=torch.float64), space, (n,), torch.float64)

    def evaluate(inputs: Any, index: Any) -> Any:
        return 1 - inputs.radius.flatten(1) @ weights.T

    return Problem(region, evaluate, torch.tensor([0]), torch.ones(1, 1, dtype=torch.float64), Work.none(1))


@dataclass(frozen=True)
class Careless:
    """Offers what is smaller, and what is not feasible."""

    def run(self, problem: Problem, best: Best) -> Iterator[None]:
        one = torch.tensor([0])
        better, _ = best.offer(problem, one, 0.5 * best.theta, torch.tensor([True]))
        assert not better
        yield
        better, _ = best.offer(problem, one, 2 * best.theta, torch.tensor([False]))
        assert not better
        yield
        best.end(one, "never reached")
        yield


def test_the_driver_keeps_the_best_and_stops() -> None:
    problem = _margins(torch.tensor([[1.0, 2.0]], dtype=torch.float64))
    start = torch.tensor([[0.1, 0.1]], dtype=torch.float64)
    found = improve(problem, Careless(), start, most=2)
    assert torch.equal(found.theta, start) and found.ended == ("",)
    assert improve(problem, Careless(), start).ended == ("never reached",)


def test_a_linear_problem_is_solved_exactly() -> None:
    problem = _margins(torch.tensor([[1.0, 2.0]], dtype=torch.float64))
    found = improve(problem, er.Sequential(), torch.full((1, 2), 0.1, dtype=torch.float64))
    assert torch.allclose(found.theta, torch.tensor([[0.5, 0.25]], dtype=torch.float64), rtol=1e-3)
    assert int(problem.work.gradients) >= 1


def test_steps_that_lead_nowhere_are_not_followed() -> None:
    """At the answer already: the linearisation says so, and only the last scaling evaluates again."""
    work = []
    for gain in (5e-4, -1.0):
        problem = _margins(torch.tensor([[1.0, 2.0]], dtype=torch.float64))
        found = improve(problem, er.Sequential(gradients=1, gain=gain), torch.tensor([[0.5, 0.25]]).double())
        assert torch.allclose(found.theta, torch.tensor([[0.5, 0.25]]).double(), rtol=1e-3)
        work.append(int(problem.work.evaluations))
    assert work[0] < work[1]


def test_where_margins_jump_the_search_ends() -> None:
    """Any step leads beyond where they do, from however far inside."""
    smooth = _margins(torch.tensor([[1.0, 2.0]], dtype=torch.float64))

    def evaluate(inputs: Any, index: Any) -> Any:
        return smooth.evaluate(inputs, index) - 5.0 * (inputs.radius.flatten(1) > 0.1001).any(1, keepdim=True)

    problem = replace(smooth, evaluate=evaluate)
    start = torch.full((1, 2), 0.1, dtype=torch.float64)
    found = improve(problem, er.Sequential(), start)
    assert found.ended == ("where margins jump, after 4 linearisations",)
    assert bool((found.theta >= 0.999 * start).all()) and float(problem.smallest(found.theta)) >= 0


def test_where_margins_jump_rays_are_followed_to_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that goes on from where rays only seem to end finds less."""
    net = mlp(np.random.default_rng(0), [5, 12, 12, 12, 12, 3])
    x = torch.rand(24, 5, generator=torch.Generator().manual_seed(0))
    careful = er.certify(net, x, region=er.Box(asymmetric=True))
    monkeypatch.setattr(Sequential, "_put_right", lambda *_: None)
    plain = er.certify(net, x, region=er.Box(asymmetric=True))
    both = careful.certified & plain.certified
    assert any("margins jump" in why for why in careful.ended)
    assert float((careful.geomean / plain.geomean)[both].log().mean()) > 0.005  # 0.017 when this was written


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("count", [24, 1200])  # books on the host, and on the device
def test_where_margins_jump_on_a_gpu(count: int) -> None:
    net = mlp(np.random.default_rng(0), [5, 12, 12, 12, 12, 3])
    x = torch.rand(count, 5, generator=torch.Generator().manual_seed(0))
    found, plain = (er.certify(net, x, region=er.Box(asymmetric=True), device=d) for d in ("cuda", "cpu"))
    assert found.status == plain.status and any("margins jump" in why for why in found.ended)
    assert abs(float((found.geomean / plain.geomean)[plain.certified].log().mean())) < 0.02


def test_who_is_done_and_who_is_stuck() -> None:
    """After a fifth linearisation: one gained enough; whole steps converge; a small share gained what is little of a
    whole step; the same of much less; one that lost much is looked at closely, as is one of whose step next to nothing
    is left; with little of it left it goes on from inside; and once more it is stuck."""
    problem = _margins(torch.ones(1, 2, dtype=torch.float64)).take(torch.zeros(8, dtype=torch.long))
    course = Course.begin(problem, Best(problem, torch.full((8, 2), 0.1, dtype=torch.float64)))
    course.share[:] = torch.tensor([1, 1, 0.1, 0.1, 0.5, 0.01, 0.01, 0.01])
    course.last[:2] = torch.tensor([0.02, 1.0])
    course.jumps[6:] = torch.tensor([1, 2])
    gained = torch.tensor([5e-3, 5e-3, 2e-3, 5e-4, -0.1, 5e-4, -0.1, -0.1]).double()
    done, stuck = er.Sequential()._ended(course, torch.arange(8), gained, step=4)
    assert done.tolist() == [False, True, False, True, False, False, False, False]
    assert stuck.tolist() == [False] * 7 + [True]
    assert course.jumps.tolist() == [0, 0, 0, 0, 1, 1, 2, 3] and course.here.met.tolist() == [True] * 4 + [False] * 4
    assert course.share[:7].tolist() == pytest.approx([1, 1, 0.1, 0.1, 0.5, 0.01, 1.0])
    assert course.here.factor.tolist() == pytest.approx([1, 1, 1, 1, 1, 1, 0.7, 1])
    assert course.last.tolist() == pytest.approx([5e-3, 5e-3, 0, 0, 0, 0, 0, 0])


def test_ends_beyond_a_jump_are_not_believed() -> None:
    """From inside margins say that a ray reaches far beyond where they jump."""
    smooth = _margins(torch.tensor([[1.0, 2.0]], dtype=torch.float64))

    def evaluate(inputs: Any, index: Any) -> Any:
        return smooth.evaluate(inputs, index) - 5.0 * (inputs.radius.flatten(1) > 0.1001).any(1, keepdim=True)

    problem = replace(smooth, evaluate=evaluate)
    solver, one = er.Sequential(), torch.tensor([0])
    course = Course.begin(problem, Best(problem, torch.full((1, 2), 0.1, dtype=torch.float64)))
    course.jumps[:], course.here.met[:] = 1, False
    solver._put_right(problem, course, one)
    known = course.sure.size.clone()
    course.jumps[:], course.here.met[:] = 2, False
    course.here.factor *= 0.7
    solver._step(problem, course, one, step=3)
    assert torch.equal(course.sure.size, known)


def test_where_margins_jump_ends_are_not_rough(monkeypatch: pytest.MonkeyPatch) -> None:
    told, plain = [], to_boundary

    def watched(part: Problem, theta: Tensor, **how: Any) -> Any:
        told.extend(how["roughly"].tolist() if torch.is_tensor(how.get("roughly")) else [])
        return plain(part, theta, **how)

    monkeypatch.setattr("elbowroom.search.solvers.sequential.to_boundary", watched)
    net = mlp(np.random.default_rng(0), [5, 12, 12, 12, 12, 3])
    x = torch.rand(24, 5, generator=torch.Generator().manual_seed(0))
    er.certify(net, x, region=er.Box(asymmetric=True))
    assert 0 < told.count(0.0) < len(told)


def test_losses_are_taken_to_grow_a_little_faster_than_the_radius() -> None:
    smooth = _margins(torch.ones(1, 2, dtype=torch.float64))
    problem = replace(smooth, evaluate=lambda inputs, index: 1 - inputs.radius.flatten(1).amax(1, keepdim=True) ** 1.3)
    radius = find.uniform_radius(problem, torch.ones(1, 2).double(), torch.tensor([0.5]).double())
    assert float(radius) == pytest.approx(1, rel=5e-4) and int(problem.work.evaluations) == 2


def test_where_a_ray_really_ends_steps_are_whole_again_unless_they_were_made_there() -> None:
    """Three rays that should end at one: it does; the same, of a step cut short; it ends before."""
    smooth = _margins(torch.tensor([[1.0, 2.0]], dtype=torch.float64)).take(torch.zeros(3, dtype=torch.long))
    jump = torch.tensor([1.0, 1.0, 0.5])

    def evaluate(inputs: Any, index: Any) -> Any:
        far = inputs.radius.flatten(1).amax(1) > jump[index] / 2.999
        return smooth.evaluate(inputs, index) - 5.0 * far[:, None]

    problem = replace(smooth, evaluate=evaluate, index=torch.arange(3), work=Work.none(3))
    course = Course.begin(problem, Best(problem, torch.full((3, 2), 1 / 3, dtype=torch.float64)))
    course.jumps[:] = 1
    course.here.met[:] = False
    course.share[:] = torch.tensor([0.125, 0.05, 0.125])
    er.Sequential()._put_right(problem, course, torch.arange(3))
    assert course.share.tolist() == [0.125, 1.0, 1.0]
    assert course.here.factor.tolist() == pytest.approx([1.0, 1.0, 0.5], rel=3e-3) and course.here.met.all()
    assert torch.equal(course.here.size, course.sure.size)


def test_the_first_step_may_end_more_roughly(monkeypatch: pytest.MonkeyPatch) -> None:
    told, plain = [], to_boundary

    def watched(part: Problem, theta: Tensor, **how: Any) -> Any:
        told.append(how.get("roughly"))
        return plain(part, theta, **how)

    monkeypatch.setattr("elbowroom.search.solvers.sequential.to_boundary", watched)
    weight = torch.randn(16, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 1, 3, 10, 30, 100.0])
    last = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))
    net = er.Network.chain((6,), [ops.Linear(weight.double()), ops.ReLU(), ops.Linear(last.double())])
    certs = er.certify(net, torch.rand(5, 6, generator=torch.Generator().manual_seed(0)))
    steps = [rough for rough in told if torch.is_tensor(rough)]
    roughly = er.Sequential().roughly
    assert 1.01 * roughly < float(steps[0].max()) <= 2.51 * roughly and float(steps[0].min()) > 0.99 * roughly
    assert int(certs.gradients.max()) > 1 and float(steps[-1].max()) < 1.01 * roughly


@pytest.mark.parametrize("scale", [None, 3.0])
def test_the_uniform_radius_is_looked_for_near_where_linearised_margins_end(
    scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares, plain = [], find.uniform_radius

    def watched(problem: Problem, direction: Tensor, guess: Tensor) -> Tensor:
        radius = plain(problem, direction, guess)
        shares.append(guess / radius)
        return radius

    monkeypatch.setattr(find, "uniform_radius", watched)
    x = 1e-3 * np.random.default_rng(0).normal(size=(4, 6))
    er.certify(_linear(), x, region=er.Uniform(scale))
    assert bool((shares[0] >= 0.45).all()) and bool((shares[0] <= 1.01).all())


def test_steps_that_lead_too_far_are_shortened() -> None:
    """At the ends of two steps a hundred times the margin is lost, and a hundredth of it more than all."""
    one = torch.ones(2, 1, dtype=torch.float64)
    space = Space(-torch.inf * one, torch.inf * one, 1e3 * one, one.bool(), one)
    region = er.Box().place(0 * one, space, (1,), torch.float64)
    part = Problem(region, lambda inputs, index: one, torch.arange(2), one, Work.none(2))
    walk = Walk.of(part, 0.1 * one, one, torch.ones(2, dtype=torch.float64))
    assert walk.gain.tolist() == pytest.approx([math.log(10)] * 2)
    trail = Trail.at_zero(one, 2.5 * one).with_point(one[:, 0], torch.tensor([[-99.0], [-0.01]]))
    points, start = walk.shorten(part, trail, torch.tensor([True, True]))
    lost = math.log(100) / 2.5
    share = (math.log(10) / (2.5 * lost)) ** (1 / 1.5)
    assert walk.share.tolist() == pytest.approx([share, 1.0]) and 0.5 < share < 0.7
    assert walk.to[:, 0].tolist() == pytest.approx([0.1 ** (1 - share), 1.0])
    assert float(start[0]) == pytest.approx(math.exp(-lost * share**2.5))
    assert points.t[0].isnan().all() and points.t[1, 0] == 1.0  # of another ray nothing is known
    walk = Walk.of(part, 0.1 * one, one, torch.ones(2, dtype=torch.float64))
    walk.shorten(part, trail, torch.tensor([False, True]))  # where margins jump that says nothing
    assert walk.share.tolist() == [1.0, 1.0]


def test_every_step_but_the_first_is_tried_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, plain = [], Walk.shorten

    def watched(walk: Walk, part: Problem, points: Trail, may: Tensor) -> Any:
        assert (points.t[:, 0] > 0).all() and points.t[:, 1:].isnan().all()
        seen.append(len(part))
        return plain(walk, part, points, may)

    monkeypatch.setattr(Walk, "shorten", watched)
    certs = er.certify(
        mlp(np.random.default_rng(0), [6, 16, 16, 3]), torch.rand(5, 6, generator=torch.Generator().manual_seed(0))
    )
    # The last one of some leads nowhere, and is not taken.
    assert int((certs.gradients - 2).sum()) <= sum(seen) <= int((certs.gradients - 1).sum()) and sum(seen) > 0
