"""Boxes of very few features, from the outside: the largest without a known counterexample is tried.

It is looked at, points that break it are added to those known, and so on until none is found any more. Then it is
proved, a trifle smaller; a counterexample that comes up there joins the others. Whatever shape the room around an input
has, and however near its edge the input lies, this leads to about the largest box (in two dimensions, where it can be
told, see `benchmarks/plane.py`), if it comes to its end within what may be spent.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from elbowroom.search.branching.cutting import Numbers, largest_without, needed, undominated
from elbowroom.search.branching.engine import prove
from elbowroom.search.branching.faces import Faces
from elbowroom.search.regions.objective import Volume

_FARTHEST = 64.0  # times its width: no feature is larger at first, where there is no end to it
_SAMPLES = 4096  # points in a box
_ADDED = 96  # counterexamples that are added at once, any of those found
_LOOKS, _PROOFS = 40, 24  # per proof; per input
_PATIENCE = 6  # looks, after which a box is smaller by twice as much
_NUMBERS = 20_000  # that are looked at in choosing boxes, beside the leaves that may be bounded
_LOOK = 4  # leaves: what a look takes
_TIME = 0.5  # of what is left
_SMALLER, _FACTOR, _SMALLEST = 0.003, 3.0, 0.2  # how much smaller a box is proved; after one that was not


class Starts:
    """Boxes in place of those that `faces` has, where larger ones are found and proved."""

    def __init__(self, faces: Faces) -> None:
        self.faces, self.placed = faces, faces.placed
        theta = faces.found.theta
        half = self.placed.widths(theta).repeat(1, theta.shape[1] // self.placed.x.shape[1])
        self.most = torch.minimum(self.placed.caps, _FARTHEST * half)
        self._need, self._met = [theta[:0]] * len(theta), [0] * len(theta)  # of counterexamples, so many met so far
        now = time.monotonic()
        self.until = now + _TIME * (faces.spending.deadline - now)
        self.numbers = [Numbers(_NUMBERS * faces.spending.work, self.until) for _ in theta]

    def run(self) -> None:
        faces, theta = self.faces, self.faces.found.theta
        smaller = torch.full_like(theta[:, 0], _SMALLER)
        index = torch.arange(len(theta), device=theta.device)
        for _ in range(_PROOFS):
            index = index[faces.spending.left()[index] & (smaller[index] < _SMALLEST)]
            boxes = [self._without_known(int(i), float(smaller[i])) for i in index]
            there = torch.tensor([box is not None for box in boxes], dtype=torch.bool, device=index.device)
            index = index[there]
            if not len(index):
                return
            goal = torch.stack([box for box in boxes if box is not None])
            worth = self._size(index, goal) > self._size(index, theta[index])
            index, goal = index[worth], goal[worth]
            if not len(index):
                return
            proved, broken = self._prove(index, goal)
            smaller[index] *= torch.where(proved | broken, 1.0, _FACTOR)
            index = index[~proved]

    def _size(self, index: Tensor, theta: Tensor) -> Tensor:
        return Volume().value(self.placed.take(index), theta)

    def _without_known(self, i: int, smaller: float) -> Tensor | None:
        """The largest box of input i, by some share smaller, in which no counterexample is found, `d`; others that are
        found on the way are remembered. The longer that takes, the smaller."""
        faces, placed = self.faces, self.placed.take(torch.tensor([i], device=self.placed.x.device))
        owner, box = torch.tensor([i], device=placed.x.device), self.most[i]
        for look in range(_LOOKS):
            if time.monotonic() > self.until or not bool(faces.spending.left()[i]):
                return None
            faces.spending.spent[i] += _LOOK
            new = needed(placed, faces.known[i][self._met[i] :], self.most[i])
            self._need[i], self._met[i] = undominated(torch.cat([self._need[i], new])), len(faces.known[i])
            found = largest_without(placed, self._need[i], self.most[i], self.numbers[i])
            if found is None:
                return None
            box = (1 - smaller * (1 + look / _PATIENCE)) * found
            lower, upper = (t.flatten(1) for t in placed.input_set(placed.sides(box[None])).hull())
            points, _ = faces.points.inside(owner, lower, upper, len(faces.known[i]), _SAMPLES)
            if not len(points):
                break
            draw = torch.Generator().manual_seed(look)
            points = points[torch.randperm(len(points), generator=draw)[:_ADDED].to(points.device)]
            points = faces.points.pulled(points, owner.expand(len(points)), placed.x.expand(len(points), -1))
            faces.known[i] = torch.cat([faces.known[i], points])
        return box

    def _prove(self, index: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
        """Which boxes were proved, `m`, and now stand there; and which hold a counterexample, `m`."""
        faces = self.faces
        sets = faces._sets(index, goal)
        out = prove(faces.net, sets, faces.spec.part(index), faces.spending.limits())
        faces.spending.note(index, out)
        proved = out.proved.all(1)
        broken = torch.zeros_like(proved)
        for k, i in enumerate(index.tolist()):
            point = out.points[k]
            if point is not None:
                broken[k] = True
                faces.known[i] = torch.cat([faces.known[i], point.reshape(1, -1)])
            elif bool(proved[k]):
                proved[k] = faces.fits(out.trees[k])
                if bool(proved[k]):
                    faces.found.theta[i], faces.found.trees[i] = goal[k], out.trees[k]
        return proved, broken
