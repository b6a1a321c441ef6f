"""Growing or shrinking a region until its smallest margin is just about zero, without gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.search.solvers.problem import Problem


def to_boundary(
    problem: Problem,
    theta: Tensor,
    *,
    tolerance: float = 1e-3,
    at_one: Tensor | None = None,
    most: int = 40,
) -> tuple[Tensor, Tensor]:
    """The largest factor found (`b`) with all margins of `region.grow(theta, factor)` still positive, and the
    smallest margin there (`b`).

    A bracket with a safeguarded secant: margins fall roughly linearly in the scale, so a few evaluations do.
    Margins need not be monotone; this finds *a* crossing, and every factor returned was evaluated and found
    feasible (zero where none was). `tolerance`: the factor is within this share of an infeasible one, or at the caps.
    `at_one`: the smallest margins at factor one, where they are known.
    """
    region = problem.region
    batch = len(theta)
    positive = theta > 0
    # Beyond this factor everything is at its cap.
    ratio = torch.where(positive, region.caps / torch.where(positive, theta, 1.0), 0.0)
    limit = ratio.amax(1).clamp_min(torch.finfo(theta.dtype).tiny)
    low, v_low = torch.zeros_like(limit), problem.at_input.to(theta).clone()
    high, v_high = torch.full_like(limit, torch.inf), torch.full_like(limit, -torch.inf)
    old_low, old_v = low.clone(), v_low.clone()  # the previous feasible point, for extrapolation
    trial = torch.minimum(torch.ones_like(limit), limit)
    stuck = torch.zeros(batch, dtype=torch.long, device=theta.device)
    open_ = torch.arange(batch, device=theta.device)
    for step in range(most):
        if step == 0 and at_one is not None:
            # Where the limit is below one, the region at factor one is the region at the limit.
            value = at_one
        else:
            part = problem if len(open_) == batch else problem.take(open_)
            value = part.smallest(part.region.grow(theta[open_], trial[open_]))
        t = trial[open_]
        good = value >= 0
        moved = good & (t > low[open_])
        old_low[open_] = torch.where(moved, low[open_], old_low[open_])
        old_v[open_] = torch.where(moved, v_low[open_], old_v[open_])
        stuck[open_] = torch.where(good, 0, stuck[open_] + 1)
        v_low[open_] = torch.where(moved, value, v_low[open_])
        low[open_] = torch.where(moved, t, low[open_])
        bad = ~good & (t < high[open_])
        v_high[open_] = torch.where(bad, value, v_high[open_])
        high[open_] = torch.where(bad, t, high[open_])
        met = torch.isfinite(high) & (high - low <= tolerance * high)
        closed = met | (low >= limit) | (high < torch.finfo(theta.dtype).tiny * 1e3)
        open_ = (~closed).nonzero().squeeze(1)
        if not len(open_):
            break
        trial = _next(low, v_low, high, v_high, old_low, old_v, limit, stuck, tolerance)
    return low, v_low


def _next(
    low: Tensor,
    v_low: Tensor,
    high: Tensor,
    v_high: Tensor,
    old_low: Tensor,
    old_v: Tensor,
    limit: Tensor,
    stuck: Tensor,
    tolerance: float,
) -> Tensor:
    """The next factor to try."""
    bracketed = torch.isfinite(high)
    slope = (v_low - v_high) / (high - low)
    inner = low + v_low / slope  # chord of the bracket: on the safe side where margins are concave
    # The chord through the last two feasible points overshoots a little where margins are concave.
    fall = (old_v - v_low) / (low - old_low)
    outer = low + v_low / fall
    outer = torch.where(torch.isfinite(outer) & (outer > low), outer, 4 * low)
    # Without a bracket: extrapolate, at most fourfold.
    grow = torch.minimum(torch.maximum(outer * (1 + tolerance / 2), low * (1 + tolerance)), 4 * low.clamp_min(1e-30))
    # With one: the root of the parabola through the last three points, or of the chord, a little beyond it after a
    # success and short of it after a failure, so that the bracket closes from both sides.
    bend = (-slope + fall) / (high - old_low)
    tilt = -slope - bend * (high - low)
    curved = low + 2 * v_low / (-tilt + (tilt * tilt - 4 * bend * v_low).clamp_min(0).sqrt())
    inside = torch.where(torch.isfinite(curved) & (low > old_low) & (curved > low) & (curved < high), curved, inner)
    inside = torch.where(torch.isfinite(inside), inside, (low + high) / 2)
    edge = 0.4 * tolerance * high
    inside = inside + torch.where(stuck == 0, edge, -edge)
    inside = torch.minimum(torch.maximum(inside, low + edge), high - edge)
    halving = torch.where(low > 0, (low + high) / 2, high / 8)
    inside = torch.where((stuck >= 3) | (high - low < 2 * edge), halving, inside)
    return torch.minimum(torch.where(bracketed, inside, grow), limit)
