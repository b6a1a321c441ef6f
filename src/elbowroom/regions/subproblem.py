"""The largest widths under linear constraints: the sub-problem of the sequential solver.

    maximise  sum_k w_k log(c_k + sum_i theta_ki)   subject to   A theta <= b,  0 <= theta <= cap

by a batched primal-dual interior point method. `theta` has one or two entries per feature (a box's
two sides share one width), so the Hessian is diagonal or of 2x2 blocks, plus a term of rank g: each step
costs O(g^2 n).
"""

from __future__ import annotations

import torch
from torch import Tensor

_STEPS = 40
_GAP = 1e-4  # per unit of weight: the mean log width is this close to the best
_KEEP = 0.95  # the share of the way to the nearest bound a step may go


def largest_widths(a: Tensor, b: Tensor, cap: Tensor, weight: Tensor, already: Tensor | None = None) -> Tensor:
    """`a`: `B x g x d` not negative, `b`: `B x g`, `cap`: `B x d` finite, `weight`: `B x n` with d = n or 2n.

    `already` c: `B x n`, default zero. Entries with a cap of zero stay zero. Returns theta, `B x d`, strictly feasible
    where b is positive (a row without budget is treated as having next to none).
    """
    dtype = a.dtype
    a, b, cap, weight = (t.to(torch.float64) for t in (a, b, cap, weight))
    n = weight.shape[1]
    per = cap.shape[1] // n
    movable = (cap > 0) & (weight.repeat(1, per) > 0)
    c = torch.zeros_like(weight) if already is None else already.to(torch.float64)
    a = torch.where(movable[:, None], a, 0.0) / b.clamp_min(1e-300)[..., None]  # now every row's budget is 1
    a = torch.nan_to_num(a, nan=1e300, posinf=1e300)

    # A start that is feasible: every feature takes its share of the summed prices. It also sets the units.
    share = weight / weight.sum(1, keepdim=True).clamp_min(1e-300)
    price = a.sum(1)
    start = 0.5 * torch.minimum(share.repeat(1, per) / price.clamp_min(1e-300) / per, cap)
    unit = torch.where(movable, start, 0.0).reshape(-1, per, n).amax(1)  # one per feature, for both its sides
    unit = torch.where(unit > 0, unit, 1.0)
    unit_d = unit.repeat(1, per)
    a, cap, c = a * unit_d[:, None], torch.where(movable, cap / unit_d, 2.0), c / unit
    theta = torch.where(movable, start / unit_d, 1.0)
    # Entries that cannot move idle at 1 of 2: no force, no step, no part in a width or in the gap.
    on = movable.to(theta.dtype)
    w = torch.where(movable.reshape(-1, per, n).any(1), weight, 0.0)
    c = torch.where(w > 0, c, 1.0)

    def sum_entries(t: Tensor) -> Tensor:
        return t.reshape(*t.shape[:-1], per, n).sum(-2)

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
        inverse = on / (z_low / theta + z_high / room + (1 - on))
        # (D + E' diag(bend) E)^-1, where E sums a feature's entries, is `inverse` less a term of its own form.
        bend = w / (width * width)
        gain = bend / (1 + bend * sum_entries(inverse))

        def solve(r: Tensor, inverse: Tensor = inverse, gain: Tensor = gain) -> Tensor:
            first = r * inverse
            return first - inverse * (sum_entries(first) * gain).repeat(1, per)

        scaled = a * inverse[:, None]
        summed = scaled if per == 1 else sum_entries(scaled)
        schur = scaled @ a.mT - (summed * gain[:, None]) @ summed.mT + torch.diag_embed(slack / y)
        push = torch.linalg.solve_ex(schur, _times(a, solve(force))[..., None])[0].squeeze(-1)
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
    return torch.where(movable, theta * unit_d, 0.0).to(dtype)


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """`B x r x d` by `B x d`."""
    return torch.bmm(matrix, vector[..., None]).squeeze(-1)


def _limit(value: Tensor, step: Tensor) -> Tensor:
    """The largest share of `step`, at most 1, that keeps `value` positive: `B x 1`."""
    ratio = torch.where(step < 0, -value / torch.where(step < 0, step, -1.0), torch.inf)
    return (_KEEP * ratio.amin(1, keepdim=True)).clamp_max(1.0)
