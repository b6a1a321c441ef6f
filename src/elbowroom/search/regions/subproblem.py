"""The largest widths under linear constraints: the sub-problem of the sequential solver.

    maximise  sum_k w_k log(c_k + sum_i theta_ki)   subject to   A theta <= b,  0 <= theta <= cap

by a batched primal-dual interior point method: that of Nocedal and Wright, *Numerical Optimization* (second edition,
2006), algorithm 19.1. Newton steps on the perturbed conditions of optimality, from a strictly feasible start; lengths
for primal and dual apart, by the fraction to the boundary; the barrier weakens once its problem is nearly solved. There
is no line search and no corrector. Slacks are not variables of their own: the start is feasible and rows are linear, so
steps keep them exact, and eliminating the multipliers of bounds and rows leaves the systems of Boyd and Vandenberghe,
*Convex Optimization* (2004), section 11.7. `theta` has one or two entries per feature (a box's
two sides share one width), so the Hessian is diagonal or of 2x2 blocks, plus a term of rank g: each step
costs O(g^2 n) and a Cholesky factor of g rows. Features are in units of their own start and rows in units of their
budget, so that nobody's units matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.search.regions.prices import Prices, widths_by_prices

_MANY = 1 << 14  # entries, from where on prices of the rows are looked for first
_STEPS = 40
_GAP = 1e-4  # per unit of weight: the mean log width is this close to the best
_KEEP = 0.95  # the share of the way to the nearest bound a step may go
_DEAREST = 1e100  # of a feature at its cap, in budgets: what a row without budget asks
_RIDGES = (1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)  # added to a diagonal of ones until it factors


@dataclass(frozen=True, eq=False)
class Program:
    """The largest region under linearised margins, as a shape states it, and apart from who solves it:

        A v <= budget,   0 <= v <= cap,   widths already + sum_i v_ki,   weights of their logs in a volume.

    `a`: `B x g x d`, not negative; `budget`: `B x g`; `cap`: `B x d`; `weight`, `already`: `B x n`, d = n or 2n.
    `theta`: from v to the shape's parameters.
    """

    a: Tensor
    budget: Tensor
    cap: Tensor
    weight: Tensor
    already: Tensor | None = None
    theta: Callable[[Tensor], Tensor] = lambda v: v


def largest_widths(a: Tensor, b: Tensor, cap: Tensor, weight: Tensor, already: Tensor | None = None) -> Tensor:
    """`a`: `B x g x d` not negative, `b`: `B x g`, `cap`: `B x d` finite, `weight`: `B x n` with d = n or 2n.

    `already` c: `B x n`, default zero. Entries with a cap of zero stay zero. Returns theta, `B x d`, strictly feasible
    where b is positive (a row without budget is treated as having next to none).
    """
    dtype = a.dtype
    if a.shape[2] >= _MANY and a.device.type == "cpu":
        found = _by_prices(a, b, cap, weight, already)
        if found is not None:
            return found
    a, b, cap, weight = (t.to(torch.float64) for t in (a, b, cap, weight))
    n = weight.shape[1]
    per = cap.shape[1] // n
    movable = (cap > 0) & (weight.repeat(1, per) > 0)
    c = torch.zeros_like(weight) if already is None else already.to(torch.float64)

    def per_feature(t: Tensor) -> Tensor:
        """The larger of a feature's entries, one unit for both its sides; 1 where neither moves: `B x d`."""
        largest = torch.where(movable, t, 0.0).reshape(-1, per, n).amax(1)
        return torch.where(largest > 0, largest, 1.0).repeat(1, per)

    # Every row's budget becomes 1 (in place: with many classes this is what takes memory).
    unit = per_feature(cap)
    a = torch.where(movable[:, None], a, 0.0)
    a.mul_(unit[:, None]).div_(b.clamp_min(1e-300)[..., None]).nan_to_num_(nan=_DEAREST).clamp_(0, _DEAREST)
    # A start that is feasible: every feature takes its share of the summed prices. It also sets the units.
    share = weight / weight.sum(1, keepdim=True).clamp_min(1e-300)
    start = 0.5 * torch.minimum(share.repeat(1, per) / a.sum(1).clamp_min(1e-300) / per, cap / unit)
    finer = per_feature(start)
    a, unit = a.mul_(finer[:, None]), unit * finer
    theta = torch.where(movable, start / finer, 1.0)
    cap, c = torch.where(movable, cap / unit, 2.0), c / unit[:, :n]
    # Entries that cannot move idle at 1 of 2: no force, no step, no part in a width or in the gap.
    on = movable.to(theta.dtype)
    w = torch.where(movable.reshape(-1, per, n).any(1), weight, 0.0)
    c = torch.where(w > 0, c, 1.0)

    def sum_entries(t: Tensor) -> Tensor:
        return t.reshape(*t.shape[:-1], per, n).sum(-2)

    sides = None if per == 1 else a[..., :n] - a[..., n:]  # the price of shifting a box as it is
    used = _times(a, theta)
    total = w.sum(1, keepdim=True).clamp_min(1e-300)
    count = a.shape[1] + 2 * on.sum(1, keepdim=True)
    slack = 1 - used
    mu = total / count
    y, z_low, z_high = mu / slack, on * mu / theta, on * mu / (cap - theta)
    pace = torch.full_like(total, 0.1)
    done = torch.zeros_like(total, dtype=torch.bool)
    for _ in range(_STEPS):
        room = cap - theta
        slack = (1 - used).clamp_min(1e-14)
        width = c + sum_entries(theta * on)
        pull = on * (w / width).repeat(1, per)
        # How far from optimal: complementarity, and the forces on each entry that do not cancel yet.
        gap = (y * slack).sum(1, keepdim=True) + (z_low * theta + z_high * room).sum(1, keepdim=True)
        uneven = ((pull - _times(a.mT, y) + z_low - z_high) * theta).abs().sum(1, keepdim=True)
        done = done | ((gap <= _GAP * total) & (uneven <= 100 * _GAP * total))
        if bool(done.all()):
            break
        # The barrier weakens once the forces are even at its present strength, and slowly where steps are short.
        ready = (uneven <= mu * count) & (gap <= 3 * mu * count)
        mu = torch.where(ready, mu * pace, mu)
        force = pull - _times(a.mT, mu / slack) + on * (mu / theta - mu / room)
        # The inverse of D + E' diag(bend) E, where E sums a feature's entries: diagonal for one entry. For two it is
        # `inverse` and `swap` times (1, -1)'(1, -1): all terms positive, so that nothing cancels.
        inverse = on / (z_low / theta + z_high / room + (1 - on))
        bend = w / (width * width)
        both = 1 + bend * sum_entries(inverse)
        swap = bend * inverse[:, :n] * inverse[:, n:] / both if per == 2 else None
        inverse = inverse / both.repeat(1, per)

        def solve(r: Tensor, inverse: Tensor = inverse, swap: Tensor | None = swap) -> Tensor:
            if swap is None:
                return r * inverse
            moved = (r[:, :n] - r[:, n:]) * swap
            return r * inverse + torch.cat([moved, -moved], 1)

        schur = (a * inverse[:, None]) @ a.mT
        if sides is not None and swap is not None:
            schur += (sides * swap[:, None]) @ sides.mT
        schur.diagonal(dim1=1, dim2=2).add_(slack / y)
        push = _solve(schur, _times(a, solve(force)))
        step = torch.nan_to_num(solve(force - _times(a.mT, push)), nan=0.0, posinf=0.0, neginf=0.0)
        along = _times(a, step)
        d_y = mu / slack - y + y / slack * along
        d_low = on * mu / theta - z_low - z_low / theta * step
        d_high = on * mu / room - z_high + z_high / room * step
        primal = torch.minimum(_limit(theta, step), torch.minimum(_limit(room, -step), _limit(slack, -along)))
        dual = torch.minimum(_limit(y, d_y), torch.minimum(_limit(z_low, d_low), _limit(z_high, d_high)))
        # Past convergence rounding takes over, so whoever is done stays where it is.
        primal, dual = torch.where(done, 0.0, primal), torch.where(done, 0.0, dual)
        theta, used = theta + primal * step, used + primal * along
        y, z_low, z_high = y + dual * d_y, z_low + dual * d_low, z_high + dual * d_high
        pace = torch.where(torch.minimum(primal, dual) < 0.5, 0.5, 0.1)
    return torch.where(movable, theta * unit, 0.0).to(dtype)


def _by_prices(a: Tensor, b: Tensor, cap: Tensor, weight: Tensor, already: Tensor | None) -> Tensor | None:
    """The same by prices of the rows, one input after the other; None where those of one were not found."""
    found = torch.empty_like(cap)
    c = torch.zeros_like(weight) if already is None else already
    wide = (t.to(torch.float64) for t in (b, cap, weight.expand_as(c), c))
    for k, (own, *rest) in enumerate(zip(a, *wide)):
        theta = widths_by_prices(Prices(own, *rest), _GAP)
        if theta is None:
            return None
        found[k] = theta
    return found


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """`B x r x d` by `B x d`."""
    return torch.bmm(matrix, vector[..., None]).squeeze(-1)


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    """Solves symmetric positive systems, `B x g x g` and `B x g`, by Cholesky factors.

    Rows that say nearly the same make a matrix singular up to rounding: where it does not factor, its diagonal is
    raised. (Not by LU: batches of it never return, or fail, on several threads in some builds of torch.)
    """
    scale = matrix.diagonal(dim1=1, dim2=2).rsqrt()
    matrix = matrix * scale[:, :, None] * scale[:, None]
    # What is not a matrix any more asks for no step.
    lost = ~torch.isfinite(matrix).all(2).all(1)
    eye = torch.eye(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    matrix = torch.where(lost[:, None, None], eye, matrix)
    factor, failed = torch.linalg.cholesky_ex(matrix + _RIDGES[0] * eye)
    for ridge in _RIDGES[1:]:
        again = failed.nonzero().squeeze(1)
        if not len(again):
            break
        factor[again], failed[again] = torch.linalg.cholesky_ex(matrix[again] + ridge * eye)
    found = torch.cholesky_solve((right * scale)[..., None], factor).squeeze(-1) * scale
    return torch.where(lost[:, None], 0.0, found)


def _limit(value: Tensor, step: Tensor) -> Tensor:
    """The largest share of `step`, at most 1, that keeps `value` positive: `B x 1`."""
    ratio = torch.where(step < 0, -value / torch.where(step < 0, step, -1.0), torch.inf)
    return (_KEEP * ratio.amin(1, keepdim=True)).clamp_max(1.0)
