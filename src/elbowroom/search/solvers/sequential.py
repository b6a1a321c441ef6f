"""The default solver: solve the problem with the margins linearised, step there, repeat; scale to the boundary at the
end.

Margins are close to linear in the region's extents, so this needs 2 to 4 gradients, 12 on deep networks, where the
paper's augmented Lagrangian takes 400. For two classes and a linear network the first step is already the answer:
every feature spends the same share of the margin. On the way nothing is scaled to the boundary exactly: an evaluation
or two tell how far a step went beyond it or stayed behind, the margins on the way say by how much to shrink or
grow, and the next linearisation, made there, corrects them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from elbowroom.search.solvers.boundary import Trail, desk, to_boundary
from elbowroom.search.solvers.driver import Best
from elbowroom.search.solvers.problem import Problem

_FIRST = 4  # linearisations, within which small gains count
_JUMP = 0.01  # of the mean log width: a step that loses more meets margins that jump
_COLLAPSED = 0.02  # of a step: what is left of it where it does not lose, but margins jump all the same
_CLOSE = 2e-3  # of a factor: how far a rough end may be from a precise one, to be put right without a bracket
_SLOWER = 10.0  # times the gain that quadratic convergence promises: what a step may bring
_INSIDE = 0.7  # times the region: where to linearise where that lost as well
_HALVED = 0.5  # times a share that lost
_LEAST_SHARE = 0.05  # of the way to where linearised margins lead
_SHORTER = 0.8  # times a step: one that is to be shorter by less is made as it is
_BENT = 2.5  # power of the share, that what a step loses grows by
_LONGER = 1.25  # times the last step's share: the next one's
_CREEPS = 0.25  # of a step: where its share is less, no less is to be gained
_SLIGHT = 0.05  # of the log width, lost by scaling a step back: too little to say how long it should be
_TENTH, _ROUGHER = 0.1, 2.5  # of what the first step gains, and times `roughly` at most: how roughly its end is found
_LEAST_POWER, _MOST_POWER = 0.5, 16.0  # of the factor, that losses are believed to grow by
_WITHIN = 0.4  # of the tolerance: how far inside of it


@dataclass(frozen=True)
class Sequential:
    """The default solver, see above.

    Args:
        gradients: At most so many linearisations.
        gain: An input is done when the mean log width grows by less.
        later: The same after the first four linearisations. Both of a whole step; of a share of one, that share.
        tolerance: Of scaling to the boundary on the way, where margins jump.
        roughly: The same where they are smooth; either side of the boundary will do. The first step, which gains most,
            may end up to 2.5 times as far from it.
        polish: Of the last scaling, so that the answer does not depend on how it was reached.
        retries: Shorter steps tried where one did not improve.
    """

    gradients: int = 12
    gain: float = 5e-4
    later: float = 4e-3
    tolerance: float = 2e-3
    roughly: float = 0.03
    polish: float = 4e-5
    retries: int = 2

    def run(self, problem: Problem, best: Best) -> Iterator[None]:
        """A linearisation each, then the last scaling.

        Args:
            problem: What to solve.
            best: The best regions so far, which it starts from and offers to.

        Yields:
            After every step.
        """
        books = desk(best.theta)
        everyone = active = torch.arange(len(best.theta), device=books)
        course = Course.begin(problem, best)
        here, sure = course.here, course.sure
        best.end(active, f"after {_count(self.gradients)}" if self.gradients else "with a scaling alone")
        for step in range(self.gradients):
            if not len(active):
                break
            part = problem.take(active)
            self._put_right(part, course, active)
            gained = self._step(part, course, active, step)
            done, stuck = self._ended(course, active, gained, step)
            best.end(active[done], f"with too little to gain, after {_count(step + 1)}")
            best.end(active[stuck], f"where margins jump, after {_count(step + 1)}")
            active = active[~(done | stuck)]
            yield
        here.put(everyone, sure, sure.size > here.size)
        self._scale(problem, here, best)
        yield

    def _ended(self, course: Course, active: Tensor, gained: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Which of the inputs `active` are done, now that a step has `gained` so much, and which are stuck where
        margins jump, `m` each; what is to be done otherwise with those that are not stuck yet."""
        share, last, jumps = course.share[active], course.last[active], course.jumps[active]
        # Whole steps converge quadratically: what the next one would gain is nearly known.
        ahead = torch.where(last > 0, _SLOWER * gained.square() / last, torch.inf)
        course.last[active] = torch.where(share == 1, gained, 0.0)
        little = self.gain if step + 1 < _FIRST else self.later
        done = (gained < little * share.clamp_min(_CREEPS)) | ((share == 1) & (ahead < self.gain))
        # What lost much did not converge: margins jump there, and rays that seemed to end may not. So the next step is
        # from where they do end. If that loses, too, with the small share that is left: once more from inside.
        lost = (gained < -_JUMP) & ((jumps == 0) | (share < _LEAST_SHARE))
        lost = lost | ((share < _COLLAPSED) & (gained < self.later) & (jumps == 0))
        again, done = active[lost], done & (gained >= -_JUMP) & ~lost
        course.jumps[again] += 1
        course.here.met[again] = False
        inside = active[lost & (jumps == 1)]
        course.here.factor[inside] *= _INSIDE
        course.share[inside] = 1.0
        return done, lost & (jumps == 2)

    def _scale(self, problem: Problem, here: Ray, best: Best) -> None:
        """Offers the ends of the rays."""
        everyone, region = torch.arange(len(problem), device=best.theta.device), problem.region
        precise = problem.precise()
        if precise is problem:
            points = here.points if self.gradients else None
            end = to_boundary(problem, here.base, tolerance=self.polish, points=points).low
            best.offer(problem, everyone, region.grow(here.base, end), end > 0)
            return
        # Rough margins say nearly where rays end: from there a precise one does, by the power that is known.
        theta = region.grow(here.base, here.factor.to(best.theta))
        found = to_boundary(precise, theta, tolerance=self.polish, power=here.points.powers(), roughly=_CLOSE)
        end = torch.where(found.met, found.end, (1 - _WITHIN * self.polish) * found.end).to(theta)
        best.offer(problem, everyone, region.grow(theta, end), end > 0)

    def _put_right(self, part: Problem, course: Course, active: Tensor) -> None:
        """Finds where rays of the inputs `active`, whose problem is `part`, really end, if margins jump there."""
        some = ((course.jumps == 1) & ~course.here.met)[active].nonzero().squeeze(1)
        if not len(some):
            return
        own, at = part.take(some), active[some]
        rays = course.here.take(at)
        end = to_boundary(own, rays.base, tolerance=self.tolerance, points=rays.points)
        seen = torch.ones_like(end.met)
        ray = Ray.through(own, rays.base, end.points, end.low.to(seen.device), seen)
        # Whole steps again, unless those were taken from this very place.
        moved = (end.low.to(rays.factor) - rays.factor).abs() > self.tolerance * rays.factor
        untried = course.share[at] < _HALVED ** (1 + self.retries)
        course.share[at] = torch.where(moved | untried, 1.0, course.share[at])
        course.here.put(at, ray, seen)
        course.sure.put(at, ray, seen)

    def _step(self, part: Problem, course: Course, active: Tensor, step: int) -> Tensor:
        """Linearises the margins of the inputs `active`, whose problem is `part`, at the end of the rays they are on,
        and takes them to better ones; how much their mean log width seems to have grown, `m`."""
        here, sure, share, careful = course.here, course.sure, course.share, course.jumps > 0
        base = here.base[active]
        theta = part.region.grow(base, here.factor[active].to(base))
        linear = part.jacobian(theta, step)
        slopes = linear.along(part.region.sides(theta))
        margins, slopes, at_input = (t.to(active.device) for t in (linear.margins, slopes, part.at_input))
        power = _powers(margins.double(), slopes.double(), at_input.double())
        points = Trail.at_zero(at_input, power).with_point(torch.ones_like(margins[:, 0]), margins)
        met = here.met[active]
        # A margin that jumps to a negative value ends elsewhere than its power of the factor does.
        ray = Ray.through(part, theta, points, torch.where(met, 1.0, points.root()), met)
        # Of rays whose margins jump, only an end that was seen is believed.
        sure.put(active, ray, (ray.size > sure.size[active]) & (met | ~careful[active]))
        target = part.respond(linear, theta, step)
        del linear
        target = torch.where(torch.isfinite(target), target, theta)
        before, gained = sure.size[active], torch.zeros_like(ray.size)
        ahead = Walk.of(part, theta, target, torch.ones_like(gained)).gain
        pending = (ahead >= self.gain).nonzero().squeeze(1)  # the others need not be followed
        share[active] = (_LONGER * share[active]).clamp_max(1.0)
        here.put(active, sure.take(active), torch.ones_like(met))
        for attempt in range(1 + self.retries):
            if not len(pending):
                break
            tried, own = part.take(pending), active[pending]
            walk = Walk.of(tried, theta[pending], target[pending], share[own])
            probe = step > 0 and attempt == 0
            found = self._along(tried, walk, power[pending], careful[own], first=step == 0, probe=probe)
            share[own] = walk.share
            gain = (found.size - before[pending]) / walk.weight
            better = gain > 0
            here.put(own, found, better)
            gained[pending] = gain
            pending = pending[~better]
            share[active[pending]] *= _HALVED
        return gained

    def _along(self, part: Problem, walk: Walk, power: Tensor, careful: Tensor, *, first: bool, probe: bool) -> Ray:
        """The ray through where a walk leads to. `first`: whether others follow, so that its end matters less the more
        it gains; `probe`: whether to find out whether it leads too far; `careful`: where margins jump."""
        rough = self.roughly * torch.ones_like(walk.gain)
        if first:
            rough = torch.minimum(torch.maximum(_TENTH * walk.gain, rough), _ROUGHER * rough)
        rough = torch.where(careful, 0.0, rough)
        follow = partial(to_boundary, part, tolerance=self.tolerance, roughly=rough, power=power)
        points = start = None
        if probe:
            points, start = walk.shorten(part, follow(walk.to, most=1).points, ~careful)
        end = follow(walk.to, points=points, start=start)
        return Ray.through(part, walk.to, end.points, end.end, end.met)


@dataclass
class Walk:
    """From regions `old` towards `new`, `b x d`, a `share` of the way, `b`: regions `to`. `gain`: by how much the mean
    log width grows, `b`; `weight`: of all features, `b`."""

    old: Tensor
    new: Tensor
    share: Tensor
    weight: Tensor
    to: Tensor
    gain: Tensor

    @staticmethod
    def of(part: Problem, old: Tensor, new: Tensor, share: Tensor) -> Walk:
        walk = Walk(old, new, share, part.region.importance.sum(1).clamp_min(1e-30).to(share.device), old, share)
        walk._go(part)
        return walk

    def _go(self, part: Problem) -> None:
        self.to = part.region.mix(self.old, self.new, self.share.to(self.old))
        self.gain = (part.size(self.to) - part.size(self.old)).to(self.share.device) / self.weight

    def shorten(self, part: Problem, points: Trail, may: Tensor) -> tuple[Trail, Tensor]:
        """Less far, where it `may` be and `points`, one per ray, show that more is lost by scaling back than is gained;
        the points that still hold, and where to look for the ends of the other rays, `b`.

        A step is made where linearised margins end, so what it loses is of higher order: a share r of it gains `r gain
        - r^p lost`, most where r^(p - 1) = gain / (p lost).
        """
        lost = points.lost().to(self.gain)
        shorter = (self.gain / (_BENT * lost)) ** (1 / (_BENT - 1))
        shorter = torch.where(may & (lost > _SLIGHT) & (shorter < _SHORTER), shorter.clamp_min(_LEAST_SHARE), 1.0)
        self.share = self.share * shorter
        self._go(part)
        return points.without(shorter < 1), (-lost * shorter**_BENT).exp()


@dataclass
class Ray:
    """Regions `grow(base, t)`, `base`: `b x d`, and what is known of their margins, on the `desk`. `factor`: where they
    seem to end, `b`; `size`: how good the region there is, `b`; `met`: whether they were seen to end there, `b`."""

    base: Tensor
    points: Trail
    factor: Tensor
    size: Tensor
    met: Tensor

    @staticmethod
    def unknown(problem: Problem, best: Best) -> Ray:
        """Through the best regions so far; of their margins nothing is known."""
        books = desk(best.theta)
        lost = torch.full_like(best.size, -torch.inf, device=books)
        one, met = torch.ones_like(lost), torch.ones_like(lost, dtype=torch.bool)
        return Ray(best.theta.clone(), Trail.at_zero(problem.at_input.to(books)), one, lost, met)

    @staticmethod
    def through(problem: Problem, base: Tensor, points: Trail, end: Tensor, met: Tensor) -> Ray:
        latest = points.t[:, 0].to(base.dtype)
        factor = torch.minimum(torch.maximum(end.to(base.dtype), latest / 4), 4 * latest)
        size = problem.size(problem.region.grow(base, factor.to(base))).to(factor.device)
        return Ray(base, points, factor, torch.where(points.v[:, 0].isfinite().all(1), size, -torch.inf), met)

    def take(self, index: Tensor) -> Ray:
        return Ray(self.base[index], self.points.take(index), self.factor[index], self.size[index], self.met[index])

    def put(self, index: Tensor, other: Ray, where: Tensor) -> None:
        """Writes the rays of `other`, one per `index`, those that `where` says."""
        rows = where.nonzero().squeeze(1)  # once: a device has to be waited for
        at = index[rows]
        self.points.put(at, other.points.take(rows))
        for name in ("base", "factor", "size", "met"):
            getattr(self, name)[at] = getattr(other, name)[rows]


@dataclass
class Course:
    """How far inputs are. `here`: the rays they are on; `sure`: the best ones along which margins were linearised;
    `share`: how much of a step to go; `last`: what the last step gained, if it was a whole one, else zero; `jumps`: how
    often margins were found to jump, so that rays are followed to their very ends. `b` each."""

    here: Ray
    sure: Ray
    share: Tensor
    last: Tensor
    jumps: Tensor

    @staticmethod
    def begin(problem: Problem, best: Best) -> Course:
        here = Ray.unknown(problem, best)
        one = torch.ones_like(here.factor)
        return Course(
            here, here.take(torch.arange(len(one), device=one.device)), one, one - 1, torch.zeros_like(one).long()
        )


def _powers(margins: Tensor, slopes: Tensor, at_input: Tensor) -> Tensor:
    """Of the factor, that what margins have lost grows by, `b x g`; where slopes are NaN, as the others' on average."""
    power = -slopes / (at_input - margins)
    power = torch.where(power.isfinite(), power.clamp(_LEAST_POWER, _MOST_POWER), torch.nan)
    return torch.where(power.isnan(), power.nanmean(1, keepdim=True).nan_to_num(nan=1.0), power)


def _count(linearisations: int) -> str:
    return "1 linearisation" if linearisations == 1 else f"{linearisations} linearisations"
