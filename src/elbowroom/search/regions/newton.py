"""Newton steps of the sub-problem, see `subproblem`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

GAP = 1e-4  # per unit of weight: the mean log width is this close to the best
_KEEP = 0.95  # the share of the way to the nearest bound a step may go
_RIDGES = (1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)  # added to a diagonal of ones until it factors
_FIRM = 1e-10  # the same where nobody looks whether it does, and the least pivot beside it
AT_ONCE = 4  # steps of a recording


class State(NamedTuple):
    """Where the steps are: `theta`, `B x d`, what rows use, `B x g`, multipliers of rows and of lower and upper bounds,
    the barrier, how fast it weakens, and who is done, `B x 1` each."""

    theta: Tensor
    used: Tensor
    y: Tensor
    z_low: Tensor
    z_high: Tensor
    mu: Tensor
    pace: Tensor
    done: Tensor


class Forces(NamedTuple):
    """What a step is made of: room and slack left, widths, and their pull on each entry."""

    room: Tensor
    slack: Tensor
    width: Tensor
    pull: Tensor


class Newton:
    """A sub-problem in its own units: rows `a`, `B x g x d`, of budget one, caps, `B x d`, what widths there are
    already, weights, `B x n`, and which entries move, 1 or 0, `B x d`."""

    def __init__(self, a: Tensor, cap: Tensor, already: Tensor, weight: Tensor, on: Tensor) -> None:
        self.a, self.cap, self.c, self.w, self.on = a, cap, already, weight, on
        self.n = weight.shape[1]
        self.per = cap.shape[1] // self.n

    @property
    def tensors(self) -> list[Tensor]:
        return [self.a, self.cap, self.c, self.w, self.on]

    @cached_property
    def _sides(self) -> Tensor | None:
        """The price of shifting a box as it is."""
        return None if self.per == 1 else self.a[..., : self.n] - self.a[..., self.n :]

    @cached_property
    def _total(self) -> Tensor:
        return self.w.sum(1, keepdim=True).clamp_min(1e-300)

    @cached_property
    def _count(self) -> Tensor:
        return self.a.shape[1] + 2 * self.on.sum(1, keepdim=True)

    def _summed(self, t: Tensor) -> Tensor:
        return t.reshape(*t.shape[:-1], self.per, self.n).sum(-2)

    def start(self, theta: Tensor) -> State:
        """From a point that is feasible, `B x d`."""
        used = _times(self.a, theta)
        mu, on = self._total / self._count, self.on
        pace, done = torch.full_like(mu, 0.1), torch.zeros_like(mu, dtype=torch.bool)
        return State(theta, used, mu / (1 - used), on * mu / theta, on * mu / (self.cap - theta), mu, pace, done)

    def judged(self, s: State) -> tuple[State, Forces]:
        """Who is done by now, and how strong the barrier is to be."""
        room, slack = self.cap - s.theta, (1 - s.used).clamp_min(1e-14)
        width = self.c + self._summed(s.theta * self.on)
        pull = self.on * (self.w / width).repeat(1, self.per)
        # How far from optimal: complementarity, and the forces on each entry that do not cancel yet.
        gap = (s.y * slack).sum(1, keepdim=True) + (s.z_low * s.theta + s.z_high * room).sum(1, keepdim=True)
        uneven = ((pull - _times(self.a.mT, s.y) + s.z_low - s.z_high) * s.theta).abs().sum(1, keepdim=True)
        done = s.done | ((gap <= GAP * self._total) & (uneven <= 100 * GAP * self._total))
        # The barrier weakens once the forces are even at its present strength, and slowly where steps are short.
        ready = (uneven <= s.mu * self._count) & (gap <= 3 * s.mu * self._count)
        return s._replace(done=done, mu=torch.where(ready, s.mu * s.pace, s.mu)), Forces(room, slack, width, pull)

    def moved(self, s: State, f: Forces, solver: Callable[[Tensor, Tensor], Tensor]) -> State:
        """A step further; `solver`: of symmetric positive systems."""
        a, on, n, mu, room, slack = self.a, self.on, self.n, s.mu, f.room, f.slack
        force = f.pull - _times(a.mT, mu / slack) + on * (mu / s.theta - mu / room)
        # The inverse of D + E' diag(bend) E, where E sums a feature's entries: diagonal for one entry. For two it is
        # `inverse` and `swap` times (1, -1)'(1, -1): all terms positive, so that nothing cancels.
        inverse = on / (s.z_low / s.theta + s.z_high / room + (1 - on))
        bend = self.w / (f.width * f.width)
        both = 1 + bend * self._summed(inverse)
        swap = bend * inverse[:, :n] * inverse[:, n:] / both if self.per == 2 else None
        inverse = inverse / both.repeat(1, self.per)

        def solve(r: Tensor) -> Tensor:
            if swap is None:
                return r * inverse
            shifted = (r[:, :n] - r[:, n:]) * swap
            return r * inverse + torch.cat([shifted, -shifted], 1)

        schur = (a * inverse[:, None]) @ a.mT
        if self._sides is not None and swap is not None:
            schur += (self._sides * swap[:, None]) @ self._sides.mT
        schur.diagonal(dim1=1, dim2=2).add_(slack / s.y)
        push = solver(schur, _times(a, solve(force)))
        step = torch.nan_to_num(solve(force - _times(a.mT, push)), nan=0.0, posinf=0.0, neginf=0.0)
        along = _times(a, step)
        d_y = mu / slack - s.y + s.y / slack * along
        d_low = on * mu / s.theta - s.z_low - s.z_low / s.theta * step
        d_high = on * mu / room - s.z_high + s.z_high / room * step
        primal = _limit((s.theta, -step), (room, step), (slack, along))
        dual = _limit((s.y, -d_y), (s.z_low, -d_low), (s.z_high, -d_high))
        # Past convergence rounding takes over, so whoever is done stays where it is.
        primal, dual = torch.where(s.done, 0.0, primal), torch.where(s.done, 0.0, dual)
        pace = torch.where(torch.minimum(primal, dual) < 0.5, 0.5, 0.1)
        return State(
            s.theta + primal * step, s.used + primal * along, s.y + dual * d_y, s.z_low + dual * d_low,
            s.z_high + dual * d_high, mu, pace, s.done,
        )  # fmt: skip


def steps(fixed: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], State]:
    """Steps of the problem whose `tensors` are given, for `Rounds`: nothing is looked at."""
    problem = Newton(*fixed)

    def step(state: Sequence[Tensor]) -> State:
        judged, forces = problem.judged(State(*state))
        return problem.moved(judged, forces, solved_at_once)

    return step


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """`B x r x d` by `B x d`."""
    return torch.bmm(matrix, vector[..., None]).squeeze(-1)


def solved(matrix: Tensor, right: Tensor) -> Tensor:
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


def solved_at_once(matrix: Tensor, right: Tensor) -> Tensor:
    """The same without looking whether a factor was found, which would have to be waited for: by elimination, with a
    diagonal that is firm enough."""
    scale = matrix.diagonal(dim1=1, dim2=2).rsqrt()
    matrix = matrix * scale[:, :, None] * scale[:, None]
    lost = ~torch.isfinite(matrix).all(2).all(1)
    size = matrix.shape[1]
    eye = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    matrix = torch.where(lost[:, None, None], eye, matrix) + _FIRM * eye
    rows = torch.cat([matrix, (right * scale)[..., None]], 2)
    for k in range(size):
        row = rows[:, k] / rows[:, k, k, None].clamp_min(_FIRM)
        # Of every row its share of this one; of this one itself all but one.
        rows = torch.addcmul(rows, (rows[:, :, k] - eye[k])[..., None], row[:, None], value=-1)
    return torch.where(lost[:, None], 0.0, rows[..., -1] * scale)


def _limit(*pairs: tuple[Tensor, Tensor]) -> Tensor:
    """The largest share, at most 1, of what is taken from values, (value, taken) each, that leaves all of them
    positive: `B x 1`."""
    ratios = [torch.where(taken > 0, value / taken, torch.inf).amin(1, keepdim=True) for value, taken in pairs]
    return (_KEEP * torch.cat(ratios, 1).amin(1, keepdim=True)).clamp_max(1.0)


__all__ = ["AT_ONCE", "GAP", "Newton", "solved", "solved_at_once", "steps"]
