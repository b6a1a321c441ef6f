"""Branch and bound over the inputs: a box is proved, refuted by a counterexample, or halved.

The search decides nothing: a piece is done with when the strict check has proved it, and a counterexample is one when
the strict check has proved that. Halves share their border, a float64, so that the pieces cover the box. The search is
in float64, too: what is left in the end are close calls, which float32 would not see.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.claim.query import Case
from elbowroom.network.graph import Network
from elbowroom.search.bounds.propagate import margins_of
from elbowroom.search.regions.input_set import InputSet
from elbowroom.verify.box import verify
from elbowroom.verify.counterexample import Counterexample, confirm, descend, starting_points

_BATCH = 256  # pieces at a time
_STARTS, _STEPS = 16, 40  # of the first descent, per clause
_FEW_STEPS = 5  # of the descents in the pieces


@dataclass(frozen=True)
class Pieces:
    """Boxes to be looked at: corners `m x n` in float64; the clauses not proved yet, `m x g`; how often each box was
    halved, `m`."""

    lower: Tensor
    upper: Tensor
    todo: Tensor
    depth: Tensor

    @staticmethod
    def whole(case: Case) -> Pieces:
        todo = torch.ones(1, len(case.clauses), dtype=torch.bool)
        return Pieces(case.lower[None], case.upper[None], todo, torch.zeros(1, dtype=torch.long))

    def __len__(self) -> int:
        return len(self.depth)

    def take(self, index: Tensor | slice) -> Pieces:
        return Pieces(self.lower[index], self.upper[index], self.todo[index], self.depth[index])

    def joined(self, other: Pieces) -> Pieces:
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("lower", "upper", "todo", "depth"))
        return Pieces(*(torch.cat(pair) for pair in pairs))

    def volume(self) -> float:
        """As a share of the first box."""
        return float(torch.exp2(-self.depth.double()).sum())


class Search:
    """Looks for a proof of one case, or a counterexample.

    Afterwards: `looked`, the number of pieces; `proved`, the share of the box's volume; `left`, the pieces not looked
    at; `stuck`, whether a piece could be neither proved nor halved; `near`, whether a counterexample was seen that
    rounding could explain.
    """

    def __init__(self, net: Network, case: Case) -> None:
        self.net, self.case = net, case
        self.work = net.cast(torch.float64)
        self.spec = case.specification(net.n_outputs)
        self.left = Pieces.whole(case)
        self.looked, self.proved = 0, 0.0
        self.stuck = self.near = False

    def run(self, boxes: int, deadline: float) -> Counterexample | None:
        """Goes on until all is proved, a counterexample is found, or `boxes` or `deadline` (monotonic) is reached."""
        pace = torch.inf  # seconds per piece
        while len(self.left) and self.looked < boxes and (remaining := deadline - time.monotonic()) > 0:
            begun, first = time.monotonic(), self.looked == 0
            count = min(_BATCH, boxes - self.looked, len(self.left), max(1, int(remaining / pace)))
            # The last ones, so that few wait: those of one ancestor are done before the next.
            some, self.left = self.left.take(slice(-count, None)), self.left.take(slice(0, -count))
            self.looked += count
            some, clause, share = self._prune(some)
            if len(some):
                found = self._from_many_points(some) if first else self._from_midpoints(some, clause)
                if found is not None:
                    return found
                self._halve(some, share)
            pace = max(1e-9, (time.monotonic() - begun) / count)
        return None

    # --- bounds

    def _prune(self, some: Pieces) -> tuple[Pieces, Tensor, Tensor]:
        """The pieces that are not proved; of each the clause farthest from a proof, `m`, and how much every input
        contributes to that, `m x n`."""
        with torch.no_grad():
            margins = self._margins(self._inputs(some), "adaptive")
        some, _ = self._without_proved(some, margins, "adaptive")
        if not len(some):
            return some, torch.empty(0), torch.empty(0)
        # Parallel lines prove some clauses that the others do not, and their derivatives cost less.
        inputs = self._inputs(some)
        radius = inputs.radius.requires_grad_()
        margins = self._margins(inputs, "combined")
        least, clause = margins.masked_fill(~some.todo, torch.inf).min(1)
        (slope,) = torch.autograd.grad(least.sum(), radius)
        share = torch.nan_to_num((slope * radius.detach()).abs().flatten(1), 0.0, 0.0, 0.0)
        some, kept = self._without_proved(some, margins.detach(), "combined")
        return some, clause[kept], share[kept]

    def _inputs(self, some: Pieces) -> InputSet:
        return InputSet.box(*(t.reshape(-1, *self.net.input_shape) for t in (some.lower, some.upper)))

    def _margins(self, inputs: InputSet, method: str) -> Tensor:
        return margins_of(method)(self.work, inputs, self.spec)

    def _without_proved(self, some: Pieces, margins: Tensor, method: str) -> tuple[Pieces, Tensor]:
        """The pieces with clauses left, and their numbers, after a strict check of those with likely ones."""
        todo = some.todo.clone()
        likely = (todo & (margins > 0)).any(1).nonzero().squeeze(1)
        if len(likely):
            corners = (t[likely].reshape(-1, *self.net.input_shape) for t in (some.lower, some.upper))
            todo[likely] &= ~(verify(self.net, *corners, spec=self.spec, method=method).margins > 0)
        done = ~todo.any(1)
        self.proved += some.take(done).volume()
        kept = (~done).nonzero().squeeze(1)
        return Pieces(some.lower, some.upper, todo, some.depth).take(kept), kept

    # --- counterexamples

    def _from_many_points(self, some: Pieces) -> Counterexample | None:
        """Descents from several points of one box, for every clause that is left."""
        clauses = some.todo[0].nonzero().squeeze(1)
        start = starting_points(some.lower[0], some.upper[0], _STARTS).repeat(len(clauses), 1)
        lower, upper = some.lower.expand_as(start), some.upper.expand_as(start)
        return self._descend(lower, upper, start, clauses.repeat_interleave(_STARTS), _STEPS)

    def _from_midpoints(self, some: Pieces, clause: Tensor) -> Counterexample | None:
        """A short descent in every piece, for the clause farthest from a proof."""
        return self._descend(some.lower, some.upper, some.lower / 2 + some.upper / 2, clause, _FEW_STEPS)

    def _descend(
        self, lower: Tensor, upper: Tensor, start: Tensor, clause: Tensor, steps: int
    ) -> Counterexample | None:
        points, margins = descend(self.work, self.spec, lower, upper, start, clause, steps)
        best = int(margins.argmin())
        if not float(margins[best]) <= 0:
            return None
        found = confirm(self.net, self.case, points[best], int(clause[best]))
        self.near = self.near or found is None
        return found

    # --- halves

    def _halve(self, some: Pieces, share: Tensor) -> None:
        """Halves each piece across the input that costs its proof most."""
        middle = some.lower / 2 + some.upper / 2
        divisible = (some.lower < middle) & (middle < some.upper)
        whole = (self.case.upper - self.case.lower).clamp_min(torch.finfo(torch.float64).tiny)
        width = (some.upper - some.lower) / whole
        # Where no input has a share, as where bounds overflowed: the widest, compared with the whole box.
        share = torch.where((share * divisible).amax(1, keepdim=True) > 0, share, width)
        across = torch.where(divisible, share, -1.0).argmax(1, keepdim=True)
        good = divisible.gather(1, across).squeeze(1)
        self.stuck = self.stuck or not bool(good.all())
        some, across = some.take(good), across[good]
        cut = middle[good].gather(1, across)
        lower, upper = some.lower.scatter(1, across, cut), some.upper.scatter(1, across, cut)
        below = Pieces(some.lower, upper, some.todo, some.depth + 1)
        self.left = self.left.joined(below).joined(Pieces(lower, some.upper, some.todo, some.depth + 1))
