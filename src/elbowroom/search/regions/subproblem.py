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

from elbowroom.machine.recorder import Rounds
from elbowroom.search.regions.newton import AT_ONCE, GAP, Newton, solved, steps
from elbowroom.search.regions.prices import Prices, widths_by_prices

_MANY = 1 << 14  # entries, from where on prices of the rows are looked for first
_STEPS = 40
_DEAREST = 1e100  # of a feature at its cap, in budgets: what a row without budget asks


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


def largest_widths(
    a: Tensor, b: Tensor, cap: Tensor, weight: Tensor, already: Tensor | None = None, rounds: Rounds | None = None
) -> Tensor:
    """`a`: `B x g x d` not negative, `b`: `B x g`, `cap`: `B x d` finite, `weight`: `B x n` with d = n or 2n.

    `already` c: `B x n`, default zero. Entries with a cap of zero stay zero. Returns theta, `B x d`, strictly feasible
    where b is positive (a row without budget is treated as having next to none). `rounds`: where steps are recorded.
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

    problem = Newton(a, cap, c, w, on)
    state = problem.start(theta)
    after = None if rounds is None else rounds.after("newton", steps, problem.tensors, state, _STEPS, AT_ONCE, True)
    if after is not None:
        found = after[0]
    else:
        for _ in range(_STEPS):
            state, forces = problem.judged(state)
            if bool(state.done.all()):
                break
            state = problem.moved(state, forces, solved)
        found = state.theta
    return torch.where(movable, found * unit, 0.0).to(dtype)


def _by_prices(a: Tensor, b: Tensor, cap: Tensor, weight: Tensor, already: Tensor | None) -> Tensor | None:
    """The same by prices of the rows, one input after the other; None where those of one were not found."""
    found = torch.empty_like(cap)
    c = torch.zeros_like(weight) if already is None else already
    wide = (t.to(torch.float64) for t in (b, cap, weight.expand_as(c), c))
    for k, (own, *rest) in enumerate(zip(a, *wide)):
        theta = widths_by_prices(Prices(own, *rest), GAP)
        if theta is None:
            return None
        found[k] = theta
    return found
