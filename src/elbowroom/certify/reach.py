"""How much larger certified regions could be at most: the nearest counterexamples, looked for and then proved."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from elbowroom.claim.hints import Hints
from elbowroom.claim.specification import Specification
from elbowroom.claim.stated import Stated
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.proof.reach import broken_on, held_by
from elbowroom.search.branching.counterexamples import Points
from elbowroom.search.find import Inputs
from elbowroom.search.frame import Frame
from elbowroom.search.nearest import nearest_broken

MOST_FACES = 64  # features that move, at most, for each face to be looked at by itself
_AT_ONCE = 1024  # faces
_STARTS_PER_FACE = 3
_FEW, _SLABS = 16, (1.0, 0.3, 0.1, 0.05, 0.02)  # features few enough for points at random in slabs; how thin they are
# Of the width, and of values: what lies as near as that to the range of a feature is taken to be in it. Searches in
# float32 round the range itself, of a feature that does not move to a point beside it.
_HAIR, _COARSE = 1e-5, 2.0**-22
_NEAREST = 16  # points beyond a face
_FARTHER = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # of the width: how far beyond them
_ROUNDED = 1 + 2.0**-28  # what a scale is raised by, so that its region holds the point beyond rounding
# By how much a point is moved outwards until rounding leaves no doubt about its margin.
OUTWARDS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2)


def reaches(net: Network, inputs: Inputs, region: Stated, known: Sequence[Tensor]) -> dict[str, Tensor]:
    """Columns of certificates about what lies beyond their regions, see `Certificates`: `reach`, `seen`, and, of boxes,
    `seen_lower` and `seen_upper`. Regions are certified; features are flat. `known`: of each input, points, `m x n`,
    that are likely next to a counterexample."""
    x, space = inputs.x, inputs.space
    frame = Frame.around(region, x, space.lowest, space.highest)
    hunt = Quarry(net, inputs.spec)
    v, found = nearest_broken(frame, hunt.margins)
    seen, reach = x.clone(), torch.full_like(x[:, 0], torch.inf)
    for outwards in OUTWARDS:
        index = (found.isfinite() & reach.isinf()).nonzero().squeeze(1)
        if not len(index):
            break
        part = frame.take(index)
        moved = part.on_ray(v[index], torch.full_like(reach[index], 1 + outwards))
        point = part.points(moved)
        if region.is_box:
            point = torch.clamp(point, space.lowest[index], space.highest[index])
            moved = part.coordinates(point)
        scale = part.gauge(moved) * _ROUNDED
        held, box = held_by(region.take(index), x[index], point, scale)
        good = held & hunt.proved(box, index)
        seen[index[good]], reach[index[good]] = point[good], scale[good]
    columns = {"reach": reach, "seen": seen}
    if region.lower is not None and region.upper is not None:
        faces = _faces(hunt, inputs, region.lower, region.upper, known)
        columns["seen_lower"], columns["seen_upper"] = _with_points(faces, seen, region.lower, region.upper)
    return columns


class Quarry:
    """Margins of points of some inputs, and proofs that some are not positive."""

    def __init__(self, net: Network, spec: Specification) -> None:
        self.net, self.spec = net, spec
        self._cast = functools.cache(lambda device: net.cast(torch.float64, device))  # looks at every parameter

    def margins(self, points: Tensor, index: Tensor) -> Tensor:
        """At points, `m x n`, of the inputs with these numbers, `m`: `m x g`; differentiable."""
        outputs = self._cast(points.device).values(points.reshape(-1, *self.net.input_shape))[-1]
        return self.spec.part(index).margins(outputs)

    def proved(self, box: Stated, index: Tensor) -> Tensor:
        """Where no point of the box satisfies the specification, `m`: in real arithmetic, whatever is executed."""

        def strict(part: Stated, rows: Tensor, offset: Tensor, group: Tensor, hints: Hints) -> Tensor:
            return prove(self.net, part, rows, offset, group, hints)

        spec = self.spec.part(index)
        return broken_on(box, spec.rows, spec.offset, spec.group, strict)


def _faces(
    hunt: Quarry, inputs: Inputs, lower: Tensor, upper: Tensor, known: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """The value of each feature nearest to its range, below and above, at which a counterexample was found while the
    others stay in theirs, `b x n` each; infinite where none was found, or too many features move."""
    seen = torch.full_like(lower, -torch.inf), torch.full_like(upper, torch.inf)
    few = ((upper > lower).sum(1) <= MOST_FACES)[:, None]
    for above, ends, room in (
        (False, seen[0], lower > inputs.space.lowest), (True, seen[1], upper < inputs.space.highest),
    ):  # fmt: skip
        faces = ((upper > lower) & room & few).nonzero()
        for part in faces.split(_AT_ONCE):
            values = _beyond(hunt, inputs, lower, upper, part[:, 0], part[:, 1], above, known)
            ends[part[:, 0], part[:, 1]] = values
    return seen


def _with_points(faces: tuple[Tensor, Tensor], seen: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The same where a counterexample, `seen`, `b x n`, that leaves its box in one feature alone may be nearer."""
    outside = (seen < lower) | (seen > upper)
    alone = outside & (outside.sum(1, keepdim=True) == 1) & ((upper > lower).sum(1, keepdim=True) <= MOST_FACES)
    below, above = (torch.where(alone & beyond, seen, sign) for beyond, sign in (
        (seen < lower, -torch.inf), (seen > upper, torch.inf),
    ))  # fmt: skip
    return torch.maximum(faces[0], below), torch.minimum(faces[1], above)


def _beyond(
    hunt: Quarry, inputs: Inputs, lower: Tensor, upper: Tensor, which: Tensor, feature: Tensor, above: bool,
    known: Sequence[Tensor],
) -> Tensor:  # fmt: skip
    """The nearest values beyond faces, `m`, each of a feature, `m`, of an input, `m`: all below, or all above."""
    low, high, lowest, highest = (t[which] for t in (lower, upper, inputs.space.lowest, inputs.space.highest))
    frame = Frame.beyond(low, high, inputs.x[which], feature, lowest, highest, above)

    def margins(points: Tensor, index: Tensor) -> Tensor:
        return hunt.margins(points, which[index])

    candidates = [nearest_broken(frame, margins, _STARTS_PER_FACE)]
    slabs = _Slabs(hunt, frame, which, feature, low, high, above)
    for look in (partial(slabs.met, known), *(partial(slabs.inside, *one) for one in enumerate(slabs.shares))):
        v, found = (t.clone() for t in candidates[-1])
        look((v, found))
        candidates.append((v, found))
    values = torch.full_like(candidates[0][1], torch.inf if above else -torch.inf)
    least, most = torch.where(frame.scaled, lowest, low), torch.where(frame.scaled, highest, high)
    # The nearest first; one that is not proved leaves the place to those found before it.
    for (v, found), outwards in itertools.product(reversed(candidates), OUTWARDS):
        index = (found.isfinite() & values.isinf()).nonzero().squeeze(1)
        if not len(index):
            continue
        part = frame.take(index)
        point = part.points(part.on_ray(v[index], torch.full_like(found[index], 1 + outwards)))
        point = torch.clamp(point, least[index], most[index])
        good = hunt.proved(Stated(point, point), which[index])
        values[index[good]] = point.gather(1, feature[index][:, None]).squeeze(1)[good]
    return values


class _Slabs:
    """What lies right beyond faces, each of a `feature`, `m`, of the input `which`, `m`: below boxes, or `above`."""

    def __init__(
        self, hunt: Quarry, frame: Frame, which: Tensor, feature: Tensor, low: Tensor, high: Tensor, above: bool
    ) -> None:
        self.frame, self.which, self.at = frame, which, feature[:, None]
        self.low, self.high, self.sign = low, high, 1.0 if above else -1.0
        self.points = Points(hunt.net.cast(torch.float64, frame.x.device), hunt.spec)
        self.start = (high if above else low).gather(1, self.at)
        ends = torch.where(frame.scaled, frame.high if above else frame.low, 0.0)
        self.last = frame.points(ends).gather(1, self.at)  # of the domain
        self.shares = _SLABS if low.shape[1] <= _FEW else ()

    def _far(self, share: float) -> Tensor:
        """Where slabs end that are as thin as a share of the width, `m x 1`."""
        far = self.start + self.sign * share * (self.high - self.low).gather(1, self.at)
        return torch.minimum(far, self.last) if self.sign > 0 else torch.maximum(far, self.last)

    def inside(self, seed: int, share: float, best: tuple[Tensor, Tensor]) -> None:
        """Looks for counterexamples in slabs as thin as a share of the width, and puts those that are nearer in place
        of the `best`: coordinates, `m x n`, and gauges, `m`. There may be narrow wedges that no slope from the input
        leads to."""
        ends = self.start, self._far(share)
        below, beyond = ends if self.sign > 0 else ends[::-1]
        lower, upper = self.low.scatter(1, self.at, below), self.high.scatter(1, self.at, beyond)
        self._take(*self.points.inside(self.which, lower, upper, seed), best)

    def met(self, known: Sequence[Tensor], best: tuple[Tensor, Tensor]) -> None:
        """The same with what lies beyond `known` points, of each input: some were met by proofs that failed, where no
        attack led to. A search that rounds more coarsely may be a trifle wrong about them."""
        found, of = [self.low[:0]], [self.which[:0]]
        for k, (i, at) in enumerate(zip(self.which.tolist(), self.at[:, 0].tolist())):
            points, low, high = known[i], self.low[k], self.high[k]
            hair = torch.maximum(_HAIR * (high - low), _COARSE * torch.maximum(low.abs(), high.abs()))
            inside = (points >= low - hair) & (points <= high + hair)
            inside[:, at] = (points[:, at] - self.start[k]) * self.sign > 0
            points = points[inside.all(1)]
            points = points[((points[:, at] - self.start[k]) * self.sign).argsort()[:_NEAREST]]
            own = torch.clamp(points, low, high)
            own[:, at] = points[:, at]
            found.append(own)
            of.append(torch.full_like(self.which[:1], k).expand(len(own)))
        points, at = torch.cat(found), torch.cat(of)
        if not len(points):
            return
        value, last = points.gather(1, self.at[at]), self.last[at]
        for outwards in _FARTHER:
            there = value + self.sign * outwards * (self.high - self.low)[at].gather(1, self.at[at])
            there = torch.minimum(there, last) if self.sign > 0 else torch.maximum(there, last)
            moved = points.scatter(1, self.at[at], there)
            with torch.no_grad():
                broken = self.points.margins(moved, self.which[at]) <= 0
            self._take(moved[broken], at[broken], best)

    def _take(self, found: Tensor, of: Tensor, best: tuple[Tensor, Tensor]) -> None:
        """Pulls counterexamples, `p x n`, beyond the faces `of`, `p`, towards these, and keeps the nearest."""
        if not len(found):
            return
        away = ((found - self.start[of]) * self.sign).gather(1, self.at[of]).squeeze(1)
        order = away.argsort(stable=True)
        order = order[of[order].argsort(stable=True)]  # by face, the nearest first
        sorted_ = of[order].contiguous()
        near = order[torch.arange(len(order), device=of.device) - torch.searchsorted(sorted_, sorted_) < _NEAREST]
        found, of = found[near], of[near]
        found = self.points.pulled(found, self.which[of], found.scatter(1, self.at[of], self.start[of]))
        v = self.frame.take(of).coordinates(found)
        gauge = self.frame.take(of).gauge(v)
        least = best[1].scatter_reduce(0, of, gauge, "amin")
        nearest = (gauge == least[of]) & (gauge < best[1][of])
        place = torch.where(nearest, torch.arange(len(of), device=of.device), len(of))
        first = torch.full_like(self.which, len(of)).scatter_reduce(0, of, place, "amin")  # of several, one
        face = (first < len(of)).nonzero().squeeze(1)
        best[0][face], best[1][face] = v[first[face]], gauge[first[face]]


__all__ = ["MOST_FACES", "OUTWARDS", "Quarry", "reaches"]
