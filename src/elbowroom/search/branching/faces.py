"""Boxes of few features, larger face by face: each face (of a symmetric box, each pair) moves outwards in its turn.

A slab is looked at before it is proved: where it holds a counterexample, the face goes less far, and ends close to it.
What is proved is the slab alone, see `slabs`; when trees become too long, the whole box is proved anew, which takes
fewer leaves. A face has come to its end where a counterexample is near, or the domain's; or, neither proved nor broken,
where even a thin slab takes more than there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.claim.tree import Tree
from elbowroom.network.graph import Network
from elbowroom.search.branching.counterexamples import Points
from elbowroom.search.branching.engine import SHARPENED_HALVES, Limits, Outcome, prove
from elbowroom.search.branching.slabs import beside
from elbowroom.search.regions.base import Placed
from elbowroom.search.regions.input_set import InputSet

_FIRST, _MOST = 0.5, 1.0  # how far a face is moved, beside its extent: the first time, and ever
_WIDER, _NARROWER = 1.5, 0.4  # the next time, at most, after a proof, and after none
_FULL = 0.9  # of the leaves that a slab may have: what the next one is to take, if it takes as many as the last
_BEFORE = 0.8  # how far towards a counterexample
_LOOKS = 4  # at a slab, each time a thinner one, in one turn
_LEAST_SHARE = 0.25  # of a feature's half-width: what a face of less extent is moved by
_SLAB, _LARGEST_SLABS = 0.2, (600, 2400)  # of the leaves that there may be, and so many at most: for a slab
_AGAIN = 0.2  # how far faces are moved whose slabs may have more leaves then, beside their extents
_FEWEST = 8  # leaves of a slab, at least
_HAIR = 1e-5  # of the width: what lies as near as that to a box is in it
_NEAREST = 16  # counterexamples of a slab that are remembered
_ROOM = 0.85  # of the leaves there were: what the whole box, proved anew, must take for more to be worth trying

# Whether a certificate can carry these trees.
Fits = Callable[[dict[int, Tree]], bool]


@dataclass
class Proved:
    """Boxes, `b x d`, and their proofs: per input, by group. `known`: per input, what the search takes for
    counterexamples, `m x n`; empty where none were looked for."""

    theta: Tensor
    trees: list[dict[int, Tree]]
    known: list[Tensor] = field(default_factory=list)


@dataclass
class Spending:
    """What may be spent. `leaves`: of one tree; `work`: leaves that are bounded in all, per input; `deadline`: when it
    ends. `spent`: leaves so far, `b`; `slab`: leaves of a slab, at most."""

    leaves: int
    work: int
    deadline: float
    memory: int | None
    spent: Tensor
    slab: int = _LARGEST_SLABS[0]

    def limits(self, slab: bool = False, time_share: float = 0.3) -> Limits:
        leaves = max(min(_FEWEST, self.leaves), min(self.slab, int(_SLAB * self.leaves))) if slab else self.leaves
        seconds = max(0.0, time_share * (self.deadline - time.monotonic()))
        return Limits(leaves=leaves, seconds=seconds, sharpened_halves=SHARPENED_HALVES, memory=self.memory)

    def note(self, index: Tensor, out: Outcome) -> None:
        self.spent.index_add_(0, index, out.leaves.sum(1))

    def left(self) -> Tensor:
        """Which inputs may have more, `b`."""
        return (self.spent < self.work) & (time.monotonic() < self.deadline)


@dataclass
class Faces:
    """Boxes that grow. `fits`: whether trees are short enough; `near`: how close to a counterexample a face ends, and
    how thin its last slab is, beside the width; `known`: counterexamples of each input, `m x n`."""

    net: Network
    placed: Placed
    spec: Specification
    found: Proved
    fits: Fits
    spending: Spending
    near: float
    known: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = self.placed.x.shape[1]
        self.known = self.known or [self.placed.x[:0]] * len(self.placed.x)
        self.points = Points(self.net, self.spec, self.spending.memory)
        self.again = False  # whether faces are moved a second time, by slabs of more leaves
        self.open = torch.zeros_like(self.found.theta, dtype=torch.bool)  # neither proved nor broken any farther
        self.pairs = self.found.theta.shape[1] == n

    def grow(self) -> None:
        """Moves faces in turns until all have come to their end; then those again of which a thin slab was neither
        proved nor broken, by slabs of more leaves. (Thin ones take hardly fewer than others: what is hard to prove is
        near another face.)"""
        theta = self.found.theta
        self.whole = torch.ones(len(theta), dtype=torch.bool, device=theta.device)  # of those, all groups have trees
        self._prove_every_group()
        self.open = self.placed.caps > 0
        before = 0
        for self.spending.slab, first in zip(_LARGEST_SLABS, (_FIRST, _AGAIN)):
            self.again, leaves = before > 0, self.spending.limits(slab=True).leaves
            if leaves > before:  # else it would be the same once more
                self._take_turns(torch.where(self.open, first, 0.0).to(theta))
            before = leaves

    def _take_turns(self, step: Tensor) -> None:
        """Moves faces by these shares of their extents, `b x d`, none where that is 0, then by more or less."""
        turns = torch.zeros_like(step)
        self.open = torch.zeros_like(self.open)
        while True:
            index = (self.spending.left() & self.whole & (step > 0).any(1)).nonzero().squeeze(1)
            if not len(index):
                return
            face = torch.where(step[index] > 0, turns[index], torch.inf).argmin(1)
            turns[index, face] += 1
            step[index, face] = self._move(index, face, step[index, face])

    def _prove_every_group(self) -> None:
        if time.monotonic() > self.spending.deadline:
            self.whole[:] = False
            return
        index = torch.arange(len(self.found.theta), device=self.found.theta.device)
        out = prove(
            self.net, self._sets(index, self.found.theta), self.spec, self.spending.limits(), self.found.trees,
            every=True,
        )  # fmt: skip
        for k, trees in enumerate(out.trees):
            self.whole[k] = bool(out.proved[k].all()) and self.fits(trees)
            if bool(self.whole[k]):
                self.found.trees[k] = trees

    def _sets(self, index: Tensor, theta: Tensor) -> InputSet:
        part = self.placed.take(index)
        return part.input_set(part.sides(theta))

    def _corners(self, index: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = self._sets(index, theta).hull()
        return lower.flatten(1), upper.flatten(1)

    # --- one turn

    def _move(self, index: Tensor, face: Tensor, step: Tensor) -> Tensor:
        """Moves a face of each of some inputs, `m`, by a share of its extent; the shares for the next time, zero where
        a face has come to its end."""
        theta = self.found.theta[index]
        at, (width, extent) = theta.gather(1, face[:, None]).squeeze(1), self._scales(index, theta, face)
        cap = self.placed.caps[index, face]
        goal = torch.minimum(at + step * extent, cap)
        going = torch.ones_like(goal, dtype=torch.bool)
        clean = torch.zeros_like(going)
        for look in range(_LOOKS):
            # A counterexample is kept at a distance, which becomes less and less from turn to turn.
            ceiling = self._ceilings(index, face)
            goal = torch.minimum(goal, at + _BEFORE * (ceiling - at))
            going &= (torch.minimum(ceiling, cap) - at > self.near * width) | ((cap < ceiling) & (goal > at))
            some = (going & ~clean).nonzero().squeeze(1)
            if not len(some):
                break
            clean[some] = ~self._broken(index[some], face[some], goal[some], look)
        proved, used = torch.zeros_like(going), torch.ones_like(goal)
        some = (going & clean & (goal > at)).nonzero().squeeze(1)
        if len(some):
            proved[some], used[some] = self._prove(index[some], face[some], goal[some])
        taken = (goal - at) / extent
        wider = (_FULL / used).clamp_max(_WIDER)
        after = torch.where(proved, (wider * torch.maximum(taken, 0.5 * step)).clamp_max(_MOST), _NARROWER * taken)
        thin = ~proved & clean & ((goal - at <= 1.01 * self.near * width) | self.again)
        self.open[index, face] = going & thin
        after = torch.maximum(after, 1.001 * self.near * width / extent)  # the last slab is that thin, no thinner
        return torch.where(going & ~thin & ~(proved & (goal >= cap)), after, 0.0)

    def _feature(self, face: Tensor) -> Tensor:
        return face % self.placed.x.shape[1]

    def _scales(self, index: Tensor, theta: Tensor, face: Tensor) -> tuple[Tensor, Tensor]:
        """The width of a face's feature, `m`, and the extent by which it is moved, `m`."""
        half = self.placed.take(index).widths(theta).gather(1, self._feature(face)[:, None]).squeeze(1)
        own = theta.gather(1, face[:, None]).squeeze(1)
        return 2 * half, torch.maximum(own, _LEAST_SHARE * half)

    def _slabs(self, index: Tensor, face: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is added to boxes when a face, or a pair of them, goes so far: whose it is, `s`, by position in `index`;
        whether it is above, `s`; its corners, `s x n` each."""
        theta, feature = self.found.theta[index], self._feature(face)[:, None]
        lower, upper = self._corners(index, theta)
        below, above = self._corners(index, theta.scatter(1, face[:, None], goal[:, None]))
        parts = []
        for high, (start, end) in enumerate(((below, lower), (upper, above))):
            there = (start < end).gather(1, feature).squeeze(1).nonzero().squeeze(1)
            own = feature[there]
            low, up = (
                corner[there].scatter(1, own, face_at[there].gather(1, own))
                for corner, face_at in ((lower, start), (upper, end))
            )
            parts.append((there, torch.full_like(there, high, dtype=torch.bool), low, up))
        owner, above_, low, up = (torch.cat(both) for both in zip(*parts))
        return owner, above_, low, up

    # --- counterexamples

    def _ceilings(self, index: Tensor, face: Tensor) -> Tensor:
        """How far faces may go at most before a known counterexample is in the box, `m`; infinite where none is."""
        lower, upper = self._corners(index, self.found.theta[index])
        x, found = self.placed.x, torch.full_like(lower[:, 0], torch.inf)
        # Many lie on a side of the box, which is rounded anew when the other one moves.
        hair = _HAIR * (upper - lower)
        n = x.shape[1]
        for k, (i, at) in enumerate(zip(index.tolist(), face.tolist())):
            points, j = self.known[i], at % n
            outside = (points < lower[k] - hair[k]) | (points > upper[k] + hair[k])
            outside[:, j] = False
            moved = points[:, j] - x[i, j]
            away = moved.abs() if self.pairs else moved if at >= n else -moved
            away = away[~outside.any(1) & (away > 0)]
            if len(away):
                found[k] = away.min()
        return found

    def _broken(self, index: Tensor, face: Tensor, goal: Tensor, seed: int) -> Tensor:
        """Whether counterexamples were found in slabs, `m`; they are remembered."""
        owner, high, lower, upper = self._slabs(index, face, goal)
        broken = torch.zeros_like(goal, dtype=torch.bool)
        points, slab = self.points.inside(index[owner], lower, upper, seed)
        if not len(points):
            return broken
        broken[owner[slab]] = True
        self._remember(index, face, points, owner[slab], torch.where(high[:, None], lower, upper)[slab])
        return broken

    def _remember(self, index: Tensor, face: Tensor, points: Tensor, own: Tensor, start: Tensor) -> None:
        """Adds counterexamples, `p x n`, in slabs of the faces with these places in `index`, `p`, to those known, as
        near as they are such to where slabs begin: a corner each, `p x n`."""
        feature = self._feature(face)[own][:, None]
        start = start.gather(1, feature)
        points = self.points.pulled(points, index[own], points.scatter(1, feature, start))
        away = (points.gather(1, feature) - start).abs().squeeze(1)
        for k in own.unique().tolist():
            mine = (own == k).nonzero().squeeze(1)
            mine = mine[away[mine].argsort()[:_NEAREST]]
            i = int(index[k])
            self.known[i] = torch.cat([self.known[i], points[mine]])

    # --- proofs

    def _prove(self, index: Tensor, face: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
        """Which boxes were proved with a face moved, `m`; they are so now. And how many of the leaves that a slab may
        have its longest tree took, `m`, as a share."""
        owner, high, lower, upper = self._slabs(index, face, goal)
        shape = (-1, *self.placed.shape)
        sets, spec = InputSet.box(lower.reshape(shape), upper.reshape(shape)), self.spec.part(index[owner])
        limits = self.spending.limits(slab=True)
        out = prove(self.net, sets, spec, limits, every=True)
        self.spending.note(index[owner], out)
        used = torch.zeros_like(goal).scatter_reduce(0, owner, out.leaves.amax(1).to(goal) / limits.leaves, "amax")
        held = torch.ones_like(goal, dtype=torch.bool)
        held[owner[~out.proved.all(1)]] = False
        met = [s for s, point in enumerate(out.points) if point is not None]
        if met:
            points = torch.stack([point.flatten() for point in out.points if point is not None])
            self._remember(index, face, points, owner[met], torch.where(high[:, None], lower, upper)[met])
        theta = self.found.theta[index].scatter(1, face[:, None], goal[:, None])
        for k in held.nonzero().squeeze(1).tolist():
            i, j = int(index[k]), int(self._feature(face)[k])
            trees = self.found.trees[i]
            for s in (owner == k).nonzero().squeeze(1).tolist():
                if bool(high[s]):
                    trees = beside(j, float(lower[s, j]), trees, out.trees[s])
                else:
                    trees = beside(j, float(upper[s, j]), out.trees[s], trees)
            held[k] = self._accept(i, theta[k], trees)
        return held, used

    def _accept(self, i: int, theta: Tensor, trees: dict[int, Tree]) -> bool:
        """Whether a box with its proof stands now for input i: if need be proved anew, by shorter trees."""
        most = max(tree.n_leaves for tree in trees.values())
        if most > self.spending.leaves or not self.fits(trees):
            index = torch.tensor([i], device=theta.device)
            out = prove(
                self.net, self._sets(index, theta[None]), self.spec.part(index), self.spending.limits(), every=True
            )
            self.spending.note(index, out)
            if not bool(out.proved.all()) or not self.fits(out.trees[0]):
                self.whole[i] = False  # this is as far as trees go
                return False
            trees = out.trees[0]
            self.whole[i] = max(tree.n_leaves for tree in trees.values()) < _ROOM * most
        self.found.theta[i], self.found.trees[i] = theta, trees
        return True
