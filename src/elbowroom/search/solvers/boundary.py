"""Growing or shrinking a region until its smallest margin is just about zero, without gradients.

Along a ray of regions, `grow(theta, t)`, what a margin has lost of its value at the input alone grows like a power of
t: 1 where the network is linear, up to its depth where intervals multiply. So its logarithm is followed over that of t,
for each margin on its own, by a line, then by a parabola through its last three points (Muller's method); the smallest
of the roots is where the region has to end. A point at which a hundred times the margin is lost tells as much as one
next to the end, and a change of the margin that binds, a kink of their minimum, costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from elbowroom.search.solvers.problem import Problem

_FARTHEST = 4.0  # times the largest feasible factor: how far to go without a bracket
_SMOOTH = 4  # evaluations in which a parabola should have found the boundary roughly
_FEW = 1024  # inputs of which a CPU keeps the books
_STUCK = 3  # evaluations after which a bracket that is not half as wide is halved
_FAR, _STEEP = 1.0, 2.5  # e-fold losses, from where on they grow by no smaller power on the way there
_FLAT = 0.1  # a power of the factor: what grows by less does not tell where it ends
_TRUSTED = 0.05  # how far a prediction may move at most, as a share, to be believed without a bracket


@dataclass
class Trail:
    """The last three points of each margin on its ray, the latest first: factors `b x 3`, margins `b x 3 x g`, both in
    float64. A factor that is NaN stands for a point that is not known. `start`: margins of the inputs alone, `b x g`;
    `power`: of the factor, that losses are taken to grow by where one point is all that is known, `b x g`."""

    t: Tensor
    v: Tensor
    start: Tensor
    power: Tensor

    @staticmethod
    def at_zero(margins: Tensor, power: Tensor | None = None) -> Trail:
        """`margins`: `b x g`, of the inputs alone."""
        start = margins.double()
        v = start[:, None].expand(-1, 3, -1).clone()
        return Trail(
            torch.full_like(v[..., 0], torch.nan), v, start, torch.ones_like(start) if power is None else power
        )

    def with_point(self, t: Tensor, v: Tensor) -> Trail:
        """One point more: the margins `v`, `b x g`, at `t`, `b`."""
        t, v = t.double()[:, None], v.double()[:, None]
        return replace(self, t=torch.cat([t, self.t[:, :2]], 1), v=torch.cat([v, self.v[:, :2]], 1))

    def take(self, index: Tensor) -> Trail:
        return Trail(*(getattr(self, f.name)[index] for f in fields(self)))

    def put(self, index: Tensor, other: Trail) -> None:
        for f in fields(self):
            getattr(self, f.name)[index] = getattr(other, f.name)

    def without(self, rows: Tensor) -> Trail:
        """Where `rows`, `b`, says so, no point is known."""
        return replace(self, t=torch.where(rows[:, None], torch.nan, self.t))

    def lost(self) -> Tensor:
        """By how much regions have to be scaled back from the latest point, as a logarithm, `b`; negative where they
        may grow."""
        return self.t[:, 0].log() - self.root().log()

    def powers(self) -> Tensor:
        """Of the factor, that losses grow by at the latest points, `b x g`."""
        chord, curve, (_, u0, u1) = self._lines()
        slope = chord + curve * (u0 - u1)
        return torch.where(slope > _FLAT, slope, chord)

    def root(self) -> Tensor:
        """Where the first margin becomes negative, by what is known, `b`; infinite where none seems to."""
        chord, curve, (w0, u0, u1) = self._lines()
        straight = -w0 / chord
        slope = chord + curve * (u0 - u1)
        inner = slope * slope - 4 * curve * w0
        bent = -2 * w0 / (slope + inner.clamp_min(0).sqrt())
        usable = (inner >= 0) & (slope > _FLAT) & bent.isfinite()
        found = u0 + torch.where(usable, bent, straight)
        return torch.where(found.isnan() | (w0 == torch.inf), torch.inf, found.exp()).amin(1)

    def _lines(self) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Through the logarithms of losses, in units of the margin, over those of factors: the slope between the latest
        two, the curvature, `b x g`; the latest loss, the latest two factors."""
        u0, u1, u2 = (u[:, None] for u in self.t.log().unbind(1))
        w0, w1, w2 = ((self.start[:, None] - self.v) / self.start[:, None]).clamp_min(0).log().unbind(1)
        chord = (w0 - w1) / (u0 - u1)
        curve = (chord - (w1 - w2) / (u1 - u2)) / (u0 - u2)
        known = (chord > _FLAT) & chord.isfinite()
        return (
            torch.where(known, chord, torch.where(w0 > _FAR, self.power.clamp_min(_STEEP), self.power)),
            torch.where(known & curve.isfinite(), curve, 0.0),  # else: twice the same, or two points only
            (w0, u0, torch.where(known, u1, u0)),
        )


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
    start: Tensor | None = None,
    power: Tensor | None = None,
    roughly: float | Tensor = 0.0,
    most: int = 40,
) -> Crossing:
    """Follows the rays through `theta`, `b x d`, to the largest factor with all margins of `region.grow(theta, factor)`
    still positive.

    Margins need not be monotone; this finds *a* crossing, and `low` was evaluated and found feasible. `tolerance`: it
    is within this share of a factor that is infeasible, or seems so, or at the caps. `points`: what is known already,
    of factors up to the caps. `start`: the first factor to try where no point is known, `b`, 1 by default. `power`: see
    `Trail`. All three where the caller keeps books. `roughly`: where margins are smooth, a factor within this share of
    the end, on either side, will do; one for all, or `b`.
    """
    dtype, device, books = theta.dtype, theta.device, _books(theta, points, power)
    limit = _limit(theta, problem.region.caps).to(books)
    low, end, high = torch.zeros_like(limit), torch.zeros_like(limit), torch.full_like(limit, torch.inf)
    met, stuck = torch.ones_like(limit, dtype=torch.bool), torch.zeros_like(limit, dtype=torch.long)
    aim, width = torch.full_like(limit, torch.nan), torch.full_like(limit, torch.inf)
    at_input = problem.at_input.to(books)
    begin = torch.minimum(limit, torch.ones_like(limit) if start is None else start.to(limit))
    trial = begin
    rough = torch.as_tensor(roughly, device=books) > 0
    known = points is not None
    points = Trail.at_zero(at_input, power) if points is None else points
    open_ = torch.arange(len(theta), device=books)
    for step in range(most):
        if known:
            t, value = points.t[:, 0], points.v[:, 0].to(dtype)
        else:
            t = trial[open_]
            value, points = _with_margins(problem, theta, open_, t, points)
        known = False
        good = (value >= 0).all(1)
        moved = good & (t > low[open_])
        low[open_] = torch.where(moved, t, low[open_])
        lower = ~good & (t < high[open_])
        high[open_] = torch.where(lower, t, high[open_])
        halved = high - low <= width / 2
        stuck = torch.where(halved | high.isinf(), 0, stuck + 1)
        width = torch.where(halved, high - low, width)
        root, latest = torch.minimum(points.root(), limit), points.t[:, 0]
        # Beside a point far beyond, where margins are steep or not even numbers, a chord ends right here: it is
        # believed only if it ends where it did before.
        trusted = high.isinf() | ((root - aim).abs() <= _TRUSTED * aim)
        near = (latest == low) & (low > 0) & (root <= low * (1 + tolerance)) & trusted
        if step < _SMOOTH:
            near = near | (rough & ((root - latest).abs() <= roughly * latest))
        bracketed = high.isfinite() & (high - low <= tolerance * high)
        closed = near | bracketed | (low >= limit) | (high < torch.finfo(dtype).tiny * 1e3)
        # Where parabolas did not hold (margins jump where a slope changes, or the place of a maximum), what was seen.
        guessed = near & rough
        end[open_], met[open_] = torch.where(guessed, root, low)[open_], ~guessed[open_]
        open_ = open_[~closed[open_]]  # who is done stays so: later on there is less that counts as an end
        if not len(open_):
            break
        lost = (root <= low * (1 + tolerance)) & ~trusted
        trial = torch.minimum(_next(root, low, high, (stuck >= _STUCK) | lost, tolerance), limit)
        trial = torch.where(latest.isnan(), begin, trial)
        aim = root
    return Crossing(low.to(device, dtype), end.to(dtype), met, points)


def _with_margins(problem: Problem, theta: Tensor, at: Tensor, t: Tensor, points: Trail) -> tuple[Tensor, Trail]:
    """The margins of the rays `at`, `m`, at factors `t`, and the points with these; see `to_boundary`."""
    if len(at) == len(theta):
        value = problem.margins(problem.region.grow(theta, t.to(theta))).to(t.device)
        return value, points.with_point(t, value)
    some = at.to(theta.device)
    part = problem.take(some)
    value = part.margins(part.region.grow(theta[some], t.to(theta))).to(t.device)
    points.put(at, points.take(at).with_point(t, value))
    return value, points


def desk(theta: Tensor) -> torch.device:
    """Where the books of regions `theta`, `b x d`, are kept: of few inputs it is next to nothing, but for launching it
    on a GPU."""
    return torch.device("cpu") if len(theta) <= _FEW else theta.device


def _books(theta: Tensor, points: Trail | None, power: Tensor | None) -> torch.device:
    """Where the caller keeps them, if that is known: it may have begun with more inputs."""
    return power.device if power is not None else points.t.device if points is not None else desk(theta)


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
