"""Growing or shrinking a region until its smallest margin is just about zero, without gradients.

Along a ray of regions, `grow(theta, t)`, every margin is a smooth and mostly concave function of t, known at t = 0,
where the region is the input alone. Each is followed on its own by a parabola through its last three points (Muller's
method); the smallest of the roots is where the region has to end. So a change of the margin that binds, a kink of
their minimum, costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.search.solvers.problem import Problem

_FARTHEST = 4.0  # times the largest feasible factor: how far to go without a bracket
_SMOOTH = 2  # evaluations in which a parabola should have found the boundary roughly
_FEW = 1024  # inputs of which a CPU keeps the books
_STUCK = 3  # evaluations after which a bracket that is not half as wide is halved
_STEEP = 3.0  # margins at the input: farther below zero a point says little about where zero is
_TRUSTED = 0.05  # how far a prediction may move at most, as a share, to be believed without a bracket


@dataclass
class Trail:
    """The last three points of each margin on its ray, the latest first: factors `b x 3`, margins `b x 3 x g`, both in
    float64. A factor that is NaN stands for a point that is not known."""

    t: Tensor
    v: Tensor

    @staticmethod
    def at_zero(margins: Tensor) -> Trail:
        """`margins`: `b x g`, of the inputs alone."""
        v = margins.double()[:, None].expand(-1, 3, -1).clone()
        t = torch.full_like(v[..., 0], torch.nan)
        t[:, 0] = 0.0
        return Trail(t, v)

    def with_point(self, t: Tensor, v: Tensor, bend: Tensor | None = None) -> Trail:
        """One point more: the margins `v`, `b x g`, at `t`, `b`. `bend`, `b x g`: where there are but two points then,
        the curvature that a third is made up by, half of a second derivative by the factor in units of t."""
        t, v = t.double()[:, None], v.double()[:, None]
        last_t, last_v = self.t[:, 1:2], self.v[:, 1:2]
        if bend is not None:
            missing = last_t.isnan()
            made_up = (v[:, 0] + self.v[:, 0]) / 2 - bend / 4
            last_t = torch.where(missing, t / 2, last_t)
            last_v = torch.where(missing[..., None], made_up[:, None], last_v)
        return Trail(torch.cat([t, self.t[:, :1], last_t], 1), torch.cat([v, self.v[:, :1], last_v], 1))

    def bend(self) -> Tensor:
        """The curvature of every margin, `b x g`, see `with_point`, in units of the latest factor."""
        return torch.where(self.t[:, :1].isfinite(), self._curve() * self.t[:, :1].square(), 0.0)

    def _curve(self) -> Tensor:
        t0, t1, t2 = (t[:, None] for t in self.t.unbind(1))
        v0, v1, v2 = self.v.unbind(1)
        curve = ((v1 - v2) / (t1 - t2) - (v0 - v1) / (t0 - t1)) / (t2 - t0)
        return torch.where(curve.isfinite(), curve, 0.0)  # two points only, or twice the same

    def take(self, index: Tensor) -> Trail:
        return Trail(self.t[index], self.v[index])

    def put(self, index: Tensor, other: Trail) -> None:
        self.t[index], self.v[index] = other.t, other.v

    def root(self) -> Tensor:
        """Where the first margin becomes negative, by what is known, `b`; infinite where none seems to."""
        t0, t1 = (t[:, None] for t in self.t[:, :2].unbind(1))
        v0, v1 = self.v[:, :2].unbind(1)
        chord, curve = (v0 - v1) / (t0 - t1), self._curve()
        slope = chord - curve * (t1 - t0)
        inner = (slope * slope - 4 * curve * v0).clamp_min(0)
        # The root next to the latest point, on the side where a falling margin meets zero.
        bent = t0 + 2 * v0 / (-slope + inner.sqrt())
        straight = t0 - v0 / chord
        usable = bent.isfinite() & (bent > 0) & ((bent >= t0) == (v0 >= 0))
        found = torch.where(usable, bent, torch.where((chord < 0) & (straight > 0), straight, torch.inf))
        return torch.where(found.isnan(), torch.inf, found).amin(1)


@dataclass
class Crossing:
    """Where the margins of rays end. `low`: the largest factor seen at which none is negative, `b`, zero where there is
    none. Where books are kept: `end`, where they seem to end, `b`, and `met`, whether that was seen, `b`; `points`: the
    last ones."""

    low: Tensor
    end: Tensor
    met: Tensor
    points: Trail


def to_boundary(
    problem: Problem,
    theta: Tensor,
    *,
    tolerance: float = 1e-3,
    points: Trail | None = None,
    bend: Tensor | None = None,
    roughly: float = 0.0,
    most: int = 40,
) -> Crossing:
    """Follows the rays through `theta`, `b x d`, to the largest factor with all margins of `region.grow(theta, factor)`
    still positive.

    Margins need not be monotone; this finds *a* crossing, and `low` was evaluated and found feasible. `tolerance`: it
    is within this share of a factor that is infeasible, or seems so, or at the caps. `points`: what is known already,
    of factors up to the caps. `bend`: see `Trail.with_point`. Both where the caller keeps books. `roughly`: where
    margins are smooth, a factor within this share of the end, on either side, will do.
    """
    dtype, device, books = theta.dtype, theta.device, _books(theta, points, bend)
    limit = _limit(theta, problem.region.caps).to(books)
    low, end, high = torch.zeros_like(limit), torch.zeros_like(limit), torch.full_like(limit, torch.inf)
    met, stuck = torch.ones_like(limit, dtype=torch.bool), torch.zeros_like(limit, dtype=torch.long)
    aim, width = torch.full_like(limit, torch.nan), torch.full_like(limit, torch.inf)
    at_input = problem.at_input.to(books)
    margin, beyond = at_input.double().amin(1), torch.zeros_like(limit)  # at the input; just beyond the end
    trial = limit.clamp_max(1.0)
    known = points is not None
    points = Trail.at_zero(at_input) if points is None else points
    open_ = torch.arange(len(theta), device=books)
    for step in range(most):
        if known:
            t, value = points.t[:, 0], points.v[:, 0].to(dtype)
        else:
            t = trial[open_]
            value, points = _with_margins(problem, theta, open_, t, points, bend)
        known = False
        good = (value >= 0).all(1)
        moved = good & (t > low[open_])
        low[open_] = torch.where(moved, t, low[open_])
        lower = ~good & (t < high[open_])
        high[open_] = torch.where(lower, t, high[open_])
        beyond[open_] = torch.where(lower, value.double().amin(1), beyond[open_])
        halved = high - low <= width / 2
        stuck = torch.where(halved | high.isinf(), 0, stuck + 1)
        width = torch.where(halved, high - low, width)
        root, latest = torch.minimum(points.root(), limit), points.t[:, 0]
        # Beside a point far beyond, where margins are steep or not even numbers, a chord ends right here: it is
        # believed only if it ends where it did before.
        trusted = high.isinf() | (((root - aim).abs() <= _TRUSTED * aim) & (beyond >= -_STEEP * margin))
        near = (latest == low) & (low > 0) & (root <= low * (1 + tolerance)) & trusted
        if roughly > 0 and step < _SMOOTH:
            near = near | (((root - latest).abs() <= roughly * latest) & (beyond >= -_STEEP * margin))
        bracketed = high.isfinite() & (high - low <= tolerance * high)
        closed = near | bracketed | (low >= limit) | (high < torch.finfo(dtype).tiny * 1e3)
        # Where parabolas did not hold (margins jump where a slope changes, or the place of a maximum), what was seen.
        guessed = near & (roughly > 0)
        end[open_], met[open_] = torch.where(guessed, root, low)[open_], ~guessed[open_]
        open_ = (~closed).nonzero().squeeze(1)
        if not len(open_):
            break
        lost = (root <= low * (1 + tolerance)) & ~trusted
        trial = torch.minimum(_next(root, low, high, (stuck >= _STUCK) | lost, tolerance), limit)
        aim = root
    return Crossing(low.to(device, dtype), end.to(dtype), met, points)


def _with_margins(
    problem: Problem, theta: Tensor, at: Tensor, t: Tensor, points: Trail, bend: Tensor | None
) -> tuple[Tensor, Trail]:
    """The margins of the rays `at`, `m`, at factors `t`, and the points with these; see `to_boundary`."""
    if len(at) == len(theta):
        value = problem.margins(problem.region.grow(theta, t.to(theta))).to(t.device)
        return value, points.with_point(t, value, bend)
    some = at.to(theta.device)
    part = problem.take(some)
    value = part.margins(part.region.grow(theta[some], t.to(theta))).to(t.device)
    points.put(at, points.take(at).with_point(t, value, None if bend is None else bend[at]))
    return value, points


def desk(theta: Tensor) -> torch.device:
    """Where the books of regions `theta`, `b x d`, are kept: of few inputs it is next to nothing, but for launching it
    on a GPU."""
    return torch.device("cpu") if len(theta) <= _FEW else theta.device


def _books(theta: Tensor, points: Trail | None, bend: Tensor | None) -> torch.device:
    """Where the caller keeps them, if that is known: it may have begun with more inputs."""
    return bend.device if bend is not None else points.t.device if points is not None else desk(theta)


def _limit(theta: Tensor, caps: Tensor) -> Tensor:
    """The factor, `b`, beyond which everything is at its cap."""
    positive = theta > 0
    ratio = torch.where(positive, caps / torch.where(positive, theta, 1.0), 0.0)
    return ratio.amax(1).double().clamp_min(torch.finfo(theta.dtype).tiny)


def _next(root: Tensor, low: Tensor, high: Tensor, halve: Tensor, tolerance: float) -> Tensor:
    """The next factor to try: just inside of where the margins seem to end, in the bracket, and in reach. `halve`:
    where that is not to be relied on."""
    edge = 0.4 * tolerance
    inside = root * (1 - edge)
    # Without a bracket: at most fourfold.
    grow = torch.minimum(torch.maximum(inside, low * (1 + tolerance)), _FARTHEST * low.clamp_min(1e-30))
    between = torch.where(inside < high, inside, (low + high) / 2)
    between = torch.minimum(torch.maximum(between, low + edge * high), high - edge * high)
    halving = torch.where(low > 0, (low + high) / 2, high / 8)
    between = torch.where(halve | (high - low < 2 * edge * high), halving, between)
    return torch.where(high.isfinite(), between, grow)
