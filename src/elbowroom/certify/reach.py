"""How much larger certified regions could be at most: the nearest counterexamples, looked for and then proved."""

from __future__ import annotations

import functools
import itertools

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
_ROUNDED = 1 + 2.0**-28  # what a scale is raised by, so that its region holds the point beyond rounding
# By how much a point is moved outwards until rounding leaves no doubt about its margin.
OUTWARDS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2)


def reaches(net: Network, inputs: Inputs, region: Stated) -> dict[str, Tensor]:
    """Columns of certificates about what lies beyond their regions, see `Certificates`: `reach`, `seen`, and, of boxes,
    `seen_lower` and `seen_upper`. Regions are certified; features are flat."""
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
        faces = _faces(hunt, inputs, region.lower, region.upper)
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


def _faces(hunt: Quarry, inputs: Inputs, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The value of each feature nearest to its range, below and above, at which a counterexample was found while the
    others stay in theirs, `b x n` each; infinite where none was found, or too many features move."""
    seen = torch.full_like(lower, -torch.inf), torch.full_like(upper, torch.inf)
    few = ((upper > lower).sum(1) <= MOST_FACES)[:, None]
    for above, ends, room in (
        (False, seen[0], lower > inputs.space.lowest), (True, seen[1], upper < inputs.space.highest),
    ):  # fmt: skip
        faces = ((upper > lower) & room & few).nonzero()
        for part in faces.split(_AT_ONCE):
            values = _beyond(hunt, inputs, lower, upper, part[:, 0], part[:, 1], above)
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
    hunt: Quarry, inputs: Inputs, lower: Tensor, upper: Tensor, which: Tensor, feature: Tensor, above: bool
) -> Tensor:
    """The nearest values beyond faces, `m`, each of a feature, `m`, of an input, `m`: all below, or all above."""
    low, high, lowest, highest = (t[which] for t in (lower, upper, inputs.space.lowest, inputs.space.highest))
    frame = Frame.beyond(low, high, inputs.x[which], feature, lowest, highest, above)

    def margins(points: Tensor, index: Tensor) -> Tensor:
        return hunt.margins(points, which[index])

    candidates = [nearest_broken(frame, margins, _STARTS_PER_FACE)]
    if low.shape[1] <= _FEW:
        for seed, share in enumerate(_SLABS):
            v, found = (t.clone() for t in candidates[-1])
            _look_into_slabs(hunt, frame, which, feature, (low, high), share, above, (v, found), seed)
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


def _look_into_slabs(
    hunt: Quarry, frame: Frame, which: Tensor, feature: Tensor, box: tuple[Tensor, Tensor], share: float, above: bool,
    best: tuple[Tensor, Tensor], seed: int,
) -> None:  # fmt: skip
    """Looks for counterexamples in slabs beyond faces, as thin as a share of the width, and puts those that are nearer
    in place of the `best`: coordinates, `m x n`, and gauges, `m`. There may be narrow wedges that no slope from the
    input leads to."""
    points, at = Points(hunt.net.cast(torch.float64, frame.x.device), hunt.spec), feature[:, None]
    (low, high), ends = box, torch.where(frame.scaled, frame.high if above else frame.low, 0.0)
    start = (high if above else low).gather(1, at)
    far = start + (share if above else -share) * (high - low).gather(1, at)
    last = frame.points(ends).gather(1, at)  # of the domain
    far = torch.minimum(far, last) if above else torch.maximum(far, last)
    below, beyond = (start, far) if above else (far, start)
    found, of = points.inside(which, low.scatter(1, at, below), high.scatter(1, at, beyond), seed)
    if not len(found):
        return
    found = points.pulled(found, which[of], found.scatter(1, at[of], start[of]))
    v = frame.take(of).coordinates(found)
    gauge = frame.take(of).gauge(v)
    for k in gauge.argsort(descending=True).tolist():  # the nearest last
        if gauge[k] < best[1][of[k]]:
            best[0][of[k]], best[1][of[k]] = v[k], gauge[k]


__all__ = ["MOST_FACES", "OUTWARDS", "Quarry", "reaches"]
