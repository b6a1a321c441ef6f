"""Balls of any norm."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.claim.stated import is_norm
from elbowroom.errors import InputError
from elbowroom.machine.recorder import Rounds
from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.box import PlacedBox
from elbowroom.search.regions.l1 import PlacedL1
from elbowroom.search.regions.objective import Objective
from elbowroom.search.regions.subproblem import Program

_STEEPEST = 64.0  # the largest power in a sub-problem: beyond it, numbers differ by too many orders of magnitude
_MOST = 1e80  # the largest number there; more than this many budgets nothing is worth


class PlacedBall(PlacedL1):
    """`||(x' - x) / eps||_p <= 1` for 1 < p < infinity: `theta = eps`. Subclasses say which p. Near p = 1 it is looked
    for as the cross-polytope is."""

    @property
    def q(self) -> float:
        """Of the dual norm."""
        return self.p / (self.p - 1)

    def sharpness(self, step: int) -> float:
        # The derivatives of a high power are about a few features only.
        return min(self.q, super().sharpness(step))

    def respond(self, objective: Objective, a: Tensor, margins: Tensor, theta: Tensor, step: int) -> Tensor:
        if self.q > _STEEPEST:  # next to no difference from a maximum
            return super().respond(objective, a, margins, theta, step)
        return objective.respond(self, a, margins, theta, step)

    def program(self, a: Tensor, margins: Tensor, theta: Tensor, step: int, rounds: Rounds | None = None) -> Program:
        # A margin spends ||c * eps||_q on the region. To the power q, and with v_k = (eps_k / theta_k)^q, it is the
        # box's problem: sum_k share_k v_k <= (budget / spent)^q, where share_k is what feature k spends of the power
        # at theta. The derivatives, smoothed to another power or not, say what it spends of that one. (In float64,
        # since float32 holds no powers of small or large units.)
        least, tiny = torch.finfo(theta.dtype).tiny, torch.finfo(torch.float64).tiny
        theta = theta.double().clamp_min(tiny)
        taken = a.double() * theta[:, None]
        spent = taken.sum(-1)
        # Shares may underflow: the least number bounds how far a feature grows in one step.
        share = taken / taken.amax(-1, keepdim=True).clamp_min(tiny)
        share = share.clamp_min(least) ** (self.q / self.sharpness(step))
        share = share / share.sum(-1, keepdim=True)
        budget = ((1 + margins.double() / spent.clamp_min(tiny)) ** self.q).clamp_max(_MOST)
        cap = ((self.caps.double() / theta) ** self.q).clamp_max(_MOST)

        def to_theta(v: Tensor) -> Tensor:
            return torch.minimum((theta * v ** (1 / self.q)).to(self.caps), self.caps)

        return Program(share, budget, cap, self.importance / self.q, theta=to_theta)


class PlacedEllipsoid(PlacedBall):
    """`||(x' - x) / eps||_2 <= 1`, the paper's p = 2: `theta = eps`."""

    p = 2


_NAMED: dict[float, tuple[str, type[Placed]]] = {
    1.0: ("L1", PlacedL1), 2.0: ("Ellipsoid", PlacedEllipsoid), math.inf: ("Box", PlacedBox)
}  # fmt: skip


@functools.cache
def _placed(p: float) -> type[Placed]:
    """What balls of this norm are around inputs; one class each."""
    return type(f"PlacedBall{p:g}", (PlacedBall,), {"p": p})


@dataclass(frozen=True, eq=False)
class Ball(Region):
    """A ball of the norm p, stretched by an extent of its own per feature: `||(x' - x) / eps||_p <= 1`.

    `Ball(1)` is `L1()`, `Ball(2)` is `Ellipsoid()` and `Ball(math.inf)` is `Box()`, under these names; between them lie
    shapes that allow fewer features to change much at once than the next one does.

    Args:
        p: The norm, from 1 to infinity.

    Raises:
        InputError: p is no such number.
    """

    norm: float

    def __init__(self, p: float) -> None:
        if not is_norm(p):
            raise InputError(f"Ball(p) needs a number p from 1 to infinity, got {p!r:.80}")
        object.__setattr__(self, "norm", float(p))

    @property
    def placed(self) -> type[Placed]:  # type: ignore[override]
        return _NAMED[self.norm][1] if self.norm in _NAMED else _placed(self.norm)

    @property
    def stated_by_corners(self) -> bool:  # type: ignore[override]
        return self.norm == math.inf

    @property
    def name(self) -> str:
        return _NAMED[self.norm][0] if self.norm in _NAMED else f"Ball({self.norm!r})".replace(".0)", ")")
