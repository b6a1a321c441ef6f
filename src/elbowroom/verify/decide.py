"""Boxes decided: proved, whole or part by part, or refuted by a counterexample.

The search (`search.branching`) proposes trees of parts, and points. It decides nothing: a box is proved when the strict
check has proved its trees on the box's own numbers, and a point is a counterexample when the strict check has proved
that. The search is in float64, too: what is left in the end are close calls, which float32 would not see.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from elbowroom.claim.hints import Hints
from elbowroom.claim.specification import Specification
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import MOST_MULTIPLIERS, MOST_NODES, MOST_SLOPES, Tree
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.branching import engine
from elbowroom.search.regions.input_set import InputSet
from elbowroom.verify.counterexample import Counterexample, descend, starting_points

_STARTS, _STEPS = 16, 40  # of the first descents, per clause
_FEW, _FEW_STEPS = 32, 5  # of the descents from leaves that are not proved: the lowest so many in a round
_NUMBERS = 1 << 23  # of the specifications of descents at the same time
_TRIED = 4  # points of a box that the strict check looks at, of the first descents
_ATTACK, _SEARCH = 0.2, 0.7  # shares of the time that is left; the rest is for the proof
# What bounds must exceed, of the largest magnitude that a row adds up: first nothing (but the search's own rounding);
# where a proof then fails, by more rounding than that, something that does not matter otherwise.
_SLACKS = (0.0, 2.0**-36)
_SPLITS = 64  # on a leaf's path, on average: more would be a tree that the proof does not take

# From the number of a box, a point (flat, float64) and a group to the counterexample there, if it is one.
Confirm = Callable[[int, Tensor, int], Counterexample | None]


@dataclass(eq=False)
class Decided:
    """What became of `b` boxes and `g` groups.

    Attributes:
        margins: What was proved of each group, `b x g`.
        counterexamples: Per box, one that is proved, or None.
        parts: Into how many parts each box was cut, all groups together, `b`; 1 where it was not.
        near: Whether a counterexample was seen that rounding could explain, `b`.
        full: Whether the limit of parts was reached, `b`.
        late: Whether the limit of time was, `b`.
        trees: Per box, by group: how boxes were cut that were not proved whole.
    """

    margins: Tensor
    counterexamples: list[Counterexample | None]
    parts: Tensor
    near: Tensor
    full: Tensor
    late: Tensor
    trees: list[dict[int, Tree]]

    @property
    def proved(self) -> Tensor:
        return (self.margins > 0).all(1)

    def open(self) -> Tensor:
        """The numbers of the boxes that are neither proved nor refuted."""
        free = torch.tensor([c is None for c in self.counterexamples], device=self.margins.device)
        return (free & ~self.proved).nonzero().squeeze(1)


def most_leaves(net: Network) -> int:
    """The most leaves of a tree that the proof surely takes."""
    neurons = sum(net.nodes[i].size for i in net.relaxed)
    return max(1, min(MOST_NODES // 2, MOST_MULTIPLIERS // _SPLITS, MOST_SLOPES // max(1, neurons)))


class Decision:
    """Boxes, what must hold on them, and what is known of that so far: `found`."""

    def __init__(
        self,
        net: Network,
        lower: Tensor,
        upper: Tensor,
        spec: Specification,
        hints: Hints | None = None,
        deployed: str | None = None,
    ) -> None:
        """Proves what can be proved of the boxes as a whole.

        `lower`, `upper`: `b x *input_shape`, float64; `spec`: float64, on the same device, its numbers taken as exact;
        `hints`: how to prove the boxes as a whole.
        """
        self.net, self.lower, self.upper, self.spec, self.deployed = net, lower, upper, spec, deployed
        self.work = net.cast(torch.float64, lower.device)
        margins = self._proved(torch.arange(len(lower), device=lower.device), hints)
        none = torch.zeros(len(lower), dtype=torch.bool, device=lower.device)
        parts = torch.ones(len(lower), dtype=torch.long, device=lower.device)
        self.found = Decided(margins, [None] * len(lower), parts, none, none.clone(), none.clone(), [{} for _ in lower])

    def _proved(
        self, index: Tensor, hints: Hints | None = None, trees: list[list[tuple[int, Tree]]] | None = None
    ) -> Tensor:
        """What the strict check proves of the groups on these boxes, `m x g`."""
        region, spec = Stated(self.lower[index].flatten(1), self.upper[index].flatten(1)), self.spec.part(index)
        return prove(self.net, region, spec.rows, spec.offset, spec.group, hints, self.deployed, trees)

    def run(self, confirm: Confirm, leaves: int, deadline: float) -> Decided:
        """Goes on until all boxes are decided, or `leaves` (of each group of a box) or `deadline` (monotonic) is
        reached."""
        self.attack(confirm, _part_of(deadline, _ATTACK))
        for slack in _SLACKS:
            index = self.found.open()
            if not len(index):
                break
            if time.monotonic() >= deadline:
                self.found.late[index] = True
                break
            retry = self._search(index, slack, min(leaves, most_leaves(self.net)), deadline)
            if not retry:
                break
        return self.found

    # --- counterexamples

    def attack(self, confirm: Confirm, deadline: float = math.inf) -> None:
        """Descents from several points of every box, for every group that is left, until `deadline` (monotonic)."""
        self.confirm = confirm
        each = self.spec.rows.shape[1] * self.spec.rows.shape[2] * _STARTS * self.spec.n_groups
        for boxes in self.found.open().split(max(1, _NUMBERS // each)):
            self._descend(boxes, deadline)

    def _descend(self, boxes: Tensor, deadline: float) -> None:
        """Descents in some boxes, `m` numbers, at the same time."""
        of, groups = (~(self.found.margins[boxes] > 0)).nonzero(as_tuple=True)
        if not len(of):
            return
        starts = [starting_points(self.lower[k], self.upper[k], _STARTS) for k in boxes[of].tolist()]
        of, group = boxes[of].repeat_interleave(_STARTS), groups.repeat_interleave(_STARTS)
        spec = self.spec.part(boxes if len(boxes) == 1 else of)
        box = self.lower[of], self.upper[of]
        points, margins = descend(self.work, spec, *box, torch.cat(starts), group, _STEPS, deadline)
        # The best of every group: rounding may explain one and not another.
        lowest = margins.reshape(-1, _STARTS).argmin(1) + _STARTS * torch.arange(len(groups), device=of.device)
        for k in boxes.tolist():
            own = lowest[of[lowest] == k]
            for m in own[margins[own].argsort()][:_TRIED].tolist():
                if float(margins[m]) <= 0 and self._is_one(k, points[m], int(group[m])):
                    break

    def _is_one(self, k: int, point: Tensor, group: int) -> bool:
        """Whether a point that looks like a counterexample of box k is one."""
        found = self.confirm(k, point.flatten().cpu(), group)
        if found is None:
            self.found.near[k] = True
            return False
        self.found.counterexamples[k] = found
        return True

    def _look(self, of: Tensor, group: Tensor, points: Tensor, box: tuple[Tensor, Tensor]) -> Tensor:
        """Short descents from where leaves' bounds are attained, each in the box that holds its leaf; `of`: `m`,
        numbers of boxes. Which of them led to a counterexample, `m`."""
        broken = torch.zeros_like(of, dtype=torch.bool)
        margins = self.spec.part(of).margins(self.work.values(points)[-1]).gather(1, group[:, None]).squeeze(1)
        few = margins.argsort()[:_FEW]
        of, group, lower, upper = of[few], group[few], box[0][few], box[1][few]
        start = torch.clamp(points[few], lower, upper)
        ends, margins = descend(self.work, self.spec.part(of), lower, upper, start, group, _FEW_STEPS)
        seen: set[int] = set()
        for m in margins.argsort().tolist():
            k = int(of[m])
            if float(margins[m]) <= 0 and k not in seen:
                seen.add(k)
                broken[few[m]] = self._is_one(k, ends[m], int(group[m]))
        return broken

    # --- proofs

    def _search(self, index: Tensor, slack: float, leaves: int, deadline: float) -> bool:
        """Cuts boxes into parts and has these proved; whether a proof failed where the search had none to fear.

        Begins with the trees that there are; those found take their places.
        """
        found, spec, trees = self.found, self.spec.part(index), self.found.trees
        sets = InputSet.box(self.lower[index], self.upper[index])
        if slack:
            spec = self._harder(sets, spec, slack)
        until = _part_of(deadline, _SEARCH)
        limits = engine.Limits(leaves=leaves, seconds=until - time.monotonic())

        def look(of: Tensor, group: Tensor, points: Tensor, box: tuple[Tensor, Tensor]) -> Tensor:
            return self._look(index[of], group, points, box)

        out = engine.prove(self.work, sets, spec, limits, [trees[k] for k in index.tolist()], look)
        found.parts[index] = 1 + (out.leaves - 1).sum(1)
        done = out.proved.all(1)
        found.full[index] = ~done & (out.leaves.amax(1) >= leaves)
        found.late[index] = ~done & ~found.full[index] & (time.monotonic() >= until)
        for position, k in enumerate(index.tolist()):
            trees[k] = out.trees[position]
        ready = index[done & torch.tensor([_fits(t) for t in out.trees], device=index.device)]
        if len(ready):
            margins = self._proved(ready, trees=[list(trees[k].items()) for k in ready.tolist()])
            found.margins[ready] = torch.maximum(found.margins[ready], margins)
        return bool((~found.proved[ready]).any())

    def _harder(self, sets: InputSet, spec: Specification, slack: float) -> Specification:
        """The specification with less to spare, by a share of the magnitudes that its rows add up at the centres."""
        outputs = self.work.values(sets.center)[-1].abs()
        size = (spec.rows.abs() @ outputs[..., None]).squeeze(-1) + spec.offset.abs()
        rows = spec.rows.expand(len(size), -1, -1)
        return replace(spec, rows=rows, offset=spec.offset - slack * size)


def _part_of(deadline: float, share: float) -> float:
    """The moment when this share of the time until the deadline has passed."""
    now = time.monotonic()
    return now + share * (deadline - now)


def _fits(trees: dict[int, Tree]) -> bool:
    return all(len(tree.multipliers) <= MOST_MULTIPLIERS for tree in trees.values())
