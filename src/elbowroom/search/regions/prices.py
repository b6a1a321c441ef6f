"""The sub-problem of very many features, by the prices of its few rows.

    maximise  sum_k w_k log(c_k + sum_i theta_ki)   subject to   A theta <= b,  0 <= theta <= cap

as in `subproblem`, whose interior point method passes over every feature some eighty times a step. But there are only
a few rows, and once their prices y are known every feature's best answer is: it buys its cheaper side until a unit of
width costs what it is worth, `w / (c + theta) = (y A)`. So the dual is minimised over y alone, by projected Newton
steps (Bertsekas, *SIAM Journal on Control and Optimization* 20, 1982), first on a sample of the features, which tells
prices to a per cent or so, then on all of them. Where both sides of a feature cost about the same, it buys some of
each: an answer that jumped from one to the other would keep Newton's steps from settling. The gap between what is
bought, scaled to what there is, and the dual is known exactly, whatever the prices: an answer is given only where it
is small.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_EVERY = 17  # of so many features one is in the sample
_SAMPLE_GAP = 10.0  # times what is asked for, on the sample
_ROUNDS = 30  # of Newton steps on the sample; on all features
_HALVINGS = 6
_ABOUT = 0.01  # of a price: sides of which one is so much dearer are bought both
_PART = 1 << 12  # entries of a row that are added up at a time: a long sum in float32 is off by more than the gap
_RIDGE = 1e-9


class Prices(NamedTuple):
    """One program: `a`, `g x d`; `b`, `g`, positive; `cap`, `d`; `weight`, `already`, `n`, d = n or 2n; all but the
    first in float64. `share`: how much of the budgets there is."""

    a: Tensor
    b: Tensor
    cap: Tensor
    weight: Tensor
    already: Tensor
    share: float = 1.0

    def sample(self) -> Prices:
        """Every so many features, and as much of the budgets as they weigh."""
        n = self.weight.shape[0]
        at = torch.arange(0, n, _EVERY, device=self.a.device)
        both = torch.cat([at + n * k for k in range(len(self.cap) // n)])
        part = self.weight[at]
        share = float(part.sum() / self.weight.sum())
        return Prices(self.a[:, both], self.b, self.cap[both], part, self.already[at], share)

    def answer(self, y: Tensor) -> Answer:
        """What the features buy at prices y, `g`, of whole budgets."""
        price = ((y / self.b).to(self.a.dtype) @ self.a).double().clamp_min(1e-300)
        found = self._one_side(price) if len(self.cap) == len(self.weight) else self._two_sides(price)
        theta, best, moves = found
        pairs = zip(self.a.split(_PART, 1), theta.to(self.a.dtype).split(_PART))
        spent = torch.stack([a @ own for a, own in pairs]).double().sum(0) / self.b
        # The dual, and what is bought once it is scaled to what there is.
        dual = self._value(best) - (price * best).sum() + self.share * y.sum()
        value = self._value(theta / (spent / self.share).amax().clamp_min(1.0))
        return Answer(theta, spent, moves, float(dual), float((dual - value) / self.weight.sum()))

    def _value(self, theta: Tensor) -> Tensor:
        width = self.already + theta.reshape(-1, len(self.weight)).sum(0)
        return (self.weight * torch.where(self.weight > 0, width, 1.0).log()).sum()

    def _one_side(self, price: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        theta = (self.weight / price - self.already).clamp_min(0).minimum(self.cap)
        moves = torch.where((theta > 0) & (theta < self.cap), self.weight.sqrt() / price, 0.0)
        return theta, theta, [moves]

    def _two_sides(self, price: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """What is bought, `2n`; the very best, `2n`; how these answer to prices, see `Answer.moves`."""
        (down, up), (below, above) = price.chunk(2), self.cap.chunk(2)
        w, c = self.weight, self.already
        # How much of a width is bought below: all where that side is clearly cheaper.
        lean = torch.sigmoid((up / down).log() / _ABOUT)
        cheap, first = torch.minimum(down, up), down <= up
        whole = (w / cheap - c).clamp_min(0)
        low, high = lean * whole, (1 - lean) * whole
        # Where one side has no more room, the other may still be worth its price.
        rest_up, rest_down = (w / up - c - below).clamp_min(0), (w / down - c - above).clamp_min(0)
        full_low, full_high = low >= below, high >= above
        theta_low = torch.where(full_high, torch.maximum(low, rest_down), low).minimum(below)
        theta_high = torch.where(full_low, torch.maximum(high, rest_up), high).minimum(above)
        best_low = torch.where(first, whole, rest_down).minimum(below)
        best_high = torch.where(first, rest_up, whole).minimum(above)
        free = ~full_low & ~full_high & (whole > 0)
        alone_low = full_high & (theta_low < below) & (rest_down >= low) & (rest_down > 0)
        alone_high = full_low & (theta_high < above) & (rest_up >= high) & (rest_up > 0)
        root = w.sqrt()
        by_low = torch.where(free, root / cheap * lean, torch.where(alone_low, root / down, 0.0))
        by_high = torch.where(free, root / cheap * (1 - lean), torch.where(alone_high, root / up, 0.0))
        swap = torch.where(free, (lean * (1 - lean) * whole / cheap / _ABOUT).sqrt(), 0.0)
        return torch.cat([theta_low, theta_high]), torch.cat([best_low, best_high]), [by_low, by_high, swap]

    def bend(self, moves: list[Tensor]) -> Tensor:
        """The dual's second derivatives, `g x g`."""
        n = len(self.weight)
        if len(moves) == 1:
            rows = self.a * moves[0].to(self.a.dtype)
            return self._squared(rows)
        by_low, by_high, swap = moves
        rows = torch.addcmul(self.a[:, :n] * by_low.to(self.a.dtype), self.a[:, n:], by_high.to(self.a.dtype))
        some = (swap > 0).nonzero().squeeze(1)
        across = (self.a[:, some] - self.a[:, some + n]) * swap[some].to(self.a.dtype)
        return self._squared(rows) + self._squared(across)

    def _squared(self, rows: Tensor) -> Tensor:
        return (rows @ rows.T).double() / self.b[:, None] / self.b

    def newton(self, y: Tensor, found: Answer) -> Tensor:
        """The direction, `g`, in which prices should move; rows of no price that are not spent stay out."""
        slope = self.share - found.spent
        out = (y <= 0) & (slope >= 0)
        matrix = self.bend(found.moves)
        unit = torch.where(out, 0.0, matrix.diagonal().clamp_min(1e-300).rsqrt())
        matrix = unit[:, None] * matrix * unit + torch.diag(torch.where(out, 1.0, _RIDGE))
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed):
            return -slope * unit.square()
        return -unit * torch.cholesky_solve((unit * slope)[:, None], factor).squeeze(1)

    def settle(self, y: Tensor, gap: float) -> tuple[Tensor, Answer]:
        """Prices from `y` on, until the gap is at most so much, or nothing more is gained; the least gap's."""
        found = self.answer(y)
        for _ in range(_ROUNDS):
            if found.gap <= gap:
                break
            step, length = self.newton(y, found), 1.0
            for _ in range(_HALVINGS):
                tried = (y + length * step).clamp_min(0)
                there = self.answer(tried)
                if there.dual < found.dual or there.gap < found.gap:
                    break
                length /= 4
            else:
                break
            y, found = tried, there
        return y, found


class Answer(NamedTuple):
    """`theta`: what is bought, `d`; `spent`: what of each budget, `g`; `dual`: the dual's value; `gap`: how far what is
    bought, scaled to what there is, may be from the best, per unit of weight.

    `moves`: roots of how much is bought less as prices rise, `n` each: of one side; or of both sides, together, and of
    one in exchange for the other.
    """

    theta: Tensor
    spent: Tensor
    moves: list[Tensor]
    dual: float
    gap: float


def widths_by_prices(program: Prices, gap: float) -> Tensor | None:
    """The largest widths under the program, `d`, feasible and within `gap` of the best per unit of weight; None where
    that was not found."""
    total = float(program.weight.sum())
    if not (bool((program.b > 0).all()) and total > 0):
        return None
    y = torch.full_like(program.b, total / len(program.b))
    y, _ = program.sample().settle(y, _SAMPLE_GAP * gap)
    y, found = program.settle(y, gap)
    if not found.gap <= gap:  # NaN is no gap
        return None
    return found.theta / found.spent.amax().clamp_min(1.0)


__all__ = ["Prices", "widths_by_prices"]
