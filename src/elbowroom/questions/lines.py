"""Lines: one feature moves away from an input, all others stay. How far is it proved, and where is it refuted?

A line is cut into pieces, each a box without width but in one feature, which the strict check proves or not; those that
it does not prove are halved. All pieces of all lines are proved together. Points are looked at on the way: a
counterexample ends its line, and is one when the strict check has proved that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.certify.reach import OUTWARDS, Quarry
from elbowroom.claim.stated import Stated
from elbowroom.proof.kernel.prove import prove
from elbowroom.questions.asked import Asked, Spend
from elbowroom.search.memory import Budget

_LEAST_PIECES = 32  # of a line, whatever the effort
_STEPS, _HALVES = 32, 32  # points looked at first: evenly on the whole line, and towards the input, by halves
_INSIDE = 4  # points looked at in a piece that is not proved
_BISECTIONS = 40
_BLOCK = 4096  # lines at work at the same time


@dataclass(frozen=True, eq=False)
class Ends:
    """Of `m` lines: `proved`, the farthest value up to which it is proved; `seen`, the nearest counterexample found,
    infinite where there is none."""

    proved: Tensor
    seen: Tensor


def ends_of(
    asked: Asked, of: Tensor, feature: Tensor, limit: Tensor, share: float, spend: Spend, memory: int | str | None,
    both: bool = True,
) -> Ends:  # fmt: skip
    """Follows lines from inputs, numbers `of`, `m`, along features, `m`, to the values `limit`, `m`.

    `share`: proved end and counterexample are to be as near to each other, beside how far the latter is from the input.
    `both`: whether lines are followed where a counterexample is met; else nothing is proved of them.
    """
    if not len(of):
        return Ends(limit, limit)
    budget, parts = Budget.of(memory, of.device), []
    # Seconds are per input, all of its lines together.
    seconds = spend.seconds * len(of.unique()) / len(of)
    for block in torch.arange(len(of), device=of.device).split(_BLOCK):
        work = _Lines(asked, of[block], feature[block], limit[block], share if both else 2.0, budget)
        parts.append(work.run(max(_LEAST_PIECES, spend.parts), time.monotonic() + seconds * len(block)))
    return Ends(torch.cat([p.proved for p in parts]), torch.cat([p.seen for p in parts]))


class _Lines:
    """Some lines. `start`, `limit`: values, `m`. `goal`: how far to prove, at first to the limit. `broken`: the nearest
    point seen that looks like a counterexample, infinite where there is none."""

    def __init__(self, asked: Asked, of: Tensor, feature: Tensor, limit: Tensor, share: float, budget: Budget) -> None:
        self.asked, self.of, self.feature, self.limit, self.share = asked, of, feature, limit, share
        self.work = asked.net.cast(torch.float64, of.device)
        self.start = asked.x[of, feature]
        self.sign = torch.where(limit < self.start, -1.0, 1.0).double()
        self.broken, self.goal = self.sign * torch.inf, limit.clone()
        rows = asked.net.n_outputs - 1 if asked.told is None else asked.told.rows.shape[1]
        self.at_once = budget.batch(asked.net, of.device, rows)

    def run(self, pieces: int, deadline: float) -> Ends:
        self._look()
        proved = self._prove(pieces, deadline)
        return Ends(proved, self._confirmed())

    # --- points

    def _margins(self, line: Tensor, value: Tensor) -> Tensor:
        """The least margin where these lines have these values, `m`; NaN counts as not positive."""
        found: list[Tensor] = []
        for part in torch.arange(len(line), device=line.device).split(1024):
            k = line[part]
            points = self.asked.x[self.of[k]].scatter(1, self.feature[k][:, None], value[part][:, None])
            outputs = self.work.values(points.reshape(-1, *self.asked.net.input_shape))[-1]
            found.append(self.asked.spec(self.of[k]).margins(outputs).amin(1).nan_to_num(nan=-torch.inf))
        return torch.cat(found)

    def _look(self) -> None:
        """Points of whole lines, near ones first; a line is left at its first counterexample."""
        even = torch.linspace(0, 1, _STEPS + 1, dtype=torch.float64)[1:]
        shares = torch.cat([even, torch.exp2(-torch.arange(1.0, _HALVES + 1, dtype=torch.float64))]).unique().tolist()
        line, last = torch.arange(len(self.of), device=self.of.device), self.start.clone()
        with torch.no_grad():
            for share in shares:
                value = self._between(self.start[line], self.limit[line], share)
                bad = self._margins(line, value) <= 0
                self._nearer(line[bad], last[line[bad]], value[bad])
                last[line] = value
                line = line[~bad]
                if not len(line):
                    return

    def _nearer(self, line: Tensor, held: Tensor, broken: Tensor) -> None:
        """Takes counterexamples for these lines' ends, after a bisection towards values that hold."""
        if not len(line):
            return
        for _ in range(_BISECTIONS):
            middle = self._between(held, broken, 0.5)
            bad = self._margins(line, middle) <= 0
            held, broken = torch.where(bad, held, middle), torch.where(bad, middle, broken)
        self.broken[line] = broken
        self.goal[line] = self._between(self.start[line], broken, 1 - self.share / 2)  # the start, by a share of 2

    @staticmethod
    def _between(first: Tensor, last: Tensor, share: float) -> Tensor:
        """A value between two, whatever rounding does."""
        value = first + share * (last - first) if share < 1 else last
        value = torch.where(value.isfinite(), value, first * (1 - share) + last * share)  # where a width overflows
        return torch.minimum(torch.maximum(value, torch.minimum(first, last)), torch.maximum(first, last))

    # --- pieces

    def _prove(self, most: int, deadline: float) -> Tensor:
        """How far lines are proved, `m`. Pieces `near` to `far`, of lines `line`; proved ones are kept until the end,
        when those that join up from the input on are counted."""
        device = self.of.device
        line, near, far = torch.arange(len(self.of), device=device), self.start, self.goal.clone()
        count = torch.ones_like(line)
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        while len(line):
            good = self._proved(line, near, far)
            kept.append((line[good], near[good], far[good]))
            line, near, far = line[~good], near[~good], far[~good]
            self._look_inside(line, near, far)
            # A counterexample may have been met: nothing beyond is of interest, and no piece may hold it.
            past = self.sign[line] * (near - self.goal[line]) >= 0
            line, near, far = line[~past], near[~past], far[~past]
            far = torch.where(self.sign[line] * (far - self.goal[line]) > 0, self.goal[line], far)
            middle = self._between(near, far, 0.5)
            whole = (middle == near) | (middle == far) | (count[line] >= most)
            if time.monotonic() > deadline:
                whole = torch.ones_like(whole)
            # Of what lies beyond a piece that is given up nothing is of use.
            stop = self._nearest(self.sign * torch.inf, line[whole], near[whole])
            keep = ~whole & (self.sign[line] * (near - stop[line]) < 0)
            line, near, far, middle = line[keep], near[keep], far[keep], middle[keep]
            count.index_add_(0, line, torch.ones_like(line))
            line, near, far = torch.cat([line, line]), torch.cat([near, middle]), torch.cat([middle, far])
        return self._joined(*(torch.cat(parts) for parts in zip(*kept)))

    def _nearest(self, stop: Tensor, line: Tensor, value: Tensor) -> Tensor:
        """The nearer to the input of what stops lines, `m`, and of these values."""
        away = (self.sign * stop).scatter_reduce(0, line, self.sign[line] * value, "amin")
        return self.sign * away

    def _proved(self, line: Tensor, near: Tensor, far: Tensor) -> Tensor:
        """Which pieces the strict check proves, as boxes of exactly these numbers."""
        found = []
        for part in torch.arange(len(line), device=line.device).split(self.at_once):
            k = line[part]
            x, at = self.asked.x[self.of[k]], self.feature[k][:, None]
            lower = x.scatter(1, at, torch.minimum(near[part], far[part])[:, None])
            upper = x.scatter(1, at, torch.maximum(near[part], far[part])[:, None])
            spec = self.asked.spec(self.of[k])
            margins = prove(self.asked.net, Stated(lower, upper), spec.rows, spec.offset, spec.group)
            found.append((margins > 0).all(1))
        return torch.cat(found)

    def _look_inside(self, line: Tensor, near: Tensor, far: Tensor) -> None:
        """Points of pieces that are not proved; the nearest counterexample of a line takes its end's place."""
        if not len(line):
            return
        with torch.no_grad():
            last, held, broken = near, near.clone(), self.sign[line] * torch.inf
            for step in range(1, _INSIDE + 1):
                value = self._between(near, far, step / _INSIDE)
                bad = (self._margins(line, value) <= 0) & broken.isinf()
                held, broken = torch.where(bad, last, held), torch.where(bad, value, broken)
                last = value
            nearest = self._nearest(self.broken, line, broken)[line]
            bad = broken.isfinite() & (broken == nearest) & (broken != self.broken[line])
            self._nearer(line[bad], held[bad], broken[bad])

    def _joined(self, line: Tensor, near: Tensor, far: Tensor) -> Tensor:
        """How far proved pieces reach from the start without a gap, `m`."""
        reached = self.start.tolist()
        order = (self.sign[line] * near).argsort(stable=True)
        order = order[line[order].argsort(stable=True)]
        for k, a, b in zip(line[order].tolist(), near[order].tolist(), far[order].tolist()):
            if a == reached[k]:
                reached[k] = b
        return self.start.new_tensor(reached)

    # --- counterexamples

    def _confirmed(self) -> Tensor:
        """The nearest counterexamples that are proved, moved outwards by a little where rounding leaves doubt."""
        seen = self.sign * torch.inf
        for outwards in OUTWARDS:
            index = (self.broken.isfinite() & seen.isinf()).nonzero().squeeze(1)
            if not len(index):
                break
            for k in index.split(self.at_once):
                value = self.broken[k] + outwards * (self.broken[k] - self.start[k])
                value = torch.where(self.sign[k] * (value - self.limit[k]) > 0, self.limit[k], value)
                point = self.asked.x[self.of[k]].scatter(1, self.feature[k][:, None], value[:, None])
                hunt = Quarry(self.asked.net, self.asked.spec(self.of[k]))
                good = hunt.proved(Stated(point, point), torch.arange(len(k), device=k.device))
                seen[k[good]] = value[good]
        return seen


__all__ = ["Ends", "ends_of"]
