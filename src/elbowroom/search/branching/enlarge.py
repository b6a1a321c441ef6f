"""Regions made larger by branch and bound: scaled as far as trees prove, then in their shape.

Of a few features, face by face, see `faces`; of very few, from larger `starts`. Of many, the leaves that bind are
linearised, as the solvers do with the plain bounds, and the best region under them is tried at a size a little larger
than before. What is proved on the way is never lost: a region is replaced by a larger one with its proof.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.network.graph import Network
from elbowroom.search.branching.binding import binding
from elbowroom.search.branching.engine import FEW_FEATURES, SHARPENED_HALVES, Limits, prove
from elbowroom.search.branching.faces import Faces, Fits, Proved, Spending
from elbowroom.search.branching.scaling import largest_scalings
from elbowroom.search.branching.starts import Starts
from elbowroom.search.regions.base import Placed
from elbowroom.search.regions.input_set import InputSet
from elbowroom.search.regions.objective import Objective, Volume

# How close to a counterexample faces end, beside the width: of few features, and of very few, so many.
_NEAR, _FEWEST, _NEAR_FEWEST = 0.02, 3, 0.002
_MIXED = (0.5, 0.2)  # how much of the way to the best region under linearised leaves is tried
_GAINS = (0.6, 0.25)  # and how much of what that promises
_WORTH = 2e-3  # of the mean log width: gains that another linearisation is worth
_BINDING = 4  # leaves of each tree that are linearised
_SMALLER = 0.6  # times the leaves there may be, where trees are too long


@dataclass(frozen=True)
class Effort:
    """What may be spent on larger regions.

    Attributes:
        leaves: The most leaves of one tree.
        seconds: Per input.
        rounds: Linearisations of binding leaves, where there are many features.
        starts: Orders in which features are set free, where that is asked for.
        few: The most leaves of one tree of boxes of few features: cut across these, they are cheap.
        work: Leaves that are bounded in all, per input, after which no face of such a box is moved any more.
        memory: Bytes, or None for a share of what is free.
    """

    leaves: int
    seconds: float
    rounds: int
    starts: int
    few: int
    work: int
    memory: int | None = None


def enlarge(
    net: Network,
    placed: Placed,
    theta: Tensor,
    spec: Specification,
    effort: Effort,
    fits: Fits,
    one_shape: bool = False,
    objective: Objective | None = None,
) -> Proved:
    """Larger regions than these, or the same.

    Args:
        net: The network, in the type and on the device to compute with.
        placed: The shape around the inputs, likewise.
        theta: Regions, `b x d`, that plain bounds prove.
        spec: What must hold, likewise.
        effort: What may be spent.
        fits: Whether trees are short enough.
        one_shape: Whether regions may be scaled, but not reshaped.
        objective: What makes a region good.

    Returns:
        The regions and their trees.
    """
    work = _Enlarging(net, placed, theta, spec, effort, fits, objective or Volume())
    by_faces = work.low_dimensional and isinstance(work.objective, Volume)  # by which the least width is no larger
    work.scale()
    if one_shape:
        return work.found
    if by_faces:
        work.move_faces()
    elif effort.rounds:
        work.reshape()
        work.scale()
    return work.found


class _Enlarging:
    def __init__(
        self, net: Network, placed: Placed, theta: Tensor, spec: Specification, effort: Effort, fits: Fits,
        objective: Objective,
    ) -> None:  # fmt: skip
        self.net, self.placed, self.spec, self.effort, self.fits = net, placed, spec, effort, fits
        self.objective = objective
        self.deadline = time.monotonic() + effort.seconds * len(theta)
        self.found = Proved(theta.clone(), [{} for _ in theta])
        # Only boxes along the axes are cut across their features.
        is_box = self._sets(torch.arange(len(theta), device=theta.device), theta).is_box
        self.very_few = int(placed.n_free.max()) <= _FEWEST
        self.low_dimensional = is_box and int(placed.n_free.max()) <= FEW_FEATURES and theta.shape[1] > 1

    def _sets(self, index: Tensor, theta: Tensor) -> InputSet:
        part = self.placed.take(index)
        return part.input_set(part.sides(theta))

    def _limits(self, share: float) -> Limits:
        """For one attempt: a share of the time that is left."""
        seconds = max(0.0, share * (self.deadline - time.monotonic()))
        return Limits(
            leaves=self.effort.leaves, seconds=seconds, sharpened_halves=SHARPENED_HALVES, memory=self.effort.memory
        )

    # --- the size

    def scale(self) -> None:
        """Scales regions as far as trees prove that are short enough."""
        todo = torch.arange(len(self.found.theta), device=self.found.theta.device)
        leaves = self.effort.leaves
        while len(todo) and leaves >= 2 and time.monotonic() < self.deadline:
            base = self.found.theta[todo]

            def at(index: Tensor, factor: Tensor, todo: Tensor = todo, base: Tensor = base) -> InputSet:
                part = self.placed.take(todo[index])
                return part.input_set(part.sides(part.grow(base[index], factor.to(base.dtype))))

            limits = replace(self._limits(0.5), leaves=leaves)
            start = [self.found.trees[k] for k in todo.tolist()]
            scaled = largest_scalings(self.net, at, len(todo), self.spec.part(todo), limits, start=start)
            grown = self.placed.take(todo).grow(base, scaled.factor.to(base.dtype))
            too_long = []
            for k, (place, factor) in enumerate(zip(todo.tolist(), scaled.factor.tolist())):
                trees = scaled.trees[k]
                if factor <= 1 or trees is None:
                    continue
                if self.fits(trees):
                    self.found.theta[place], self.found.trees[place] = grown[k], trees
                else:
                    too_long.append(place)
            todo = torch.tensor(too_long, dtype=torch.long, device=todo.device)
            leaves = int(_SMALLER * leaves)

    # --- attempts

    def _attempt(self, index: Tensor, theta: Tensor, share: float) -> Tensor:
        """Tries regions in place of those of some inputs, `m`; which were proved, `m`, and now stand there."""
        start = [self.found.trees[k] for k in index.tolist()]
        out = prove(self.net, self._sets(index, theta), self.spec.part(index), self._limits(share), start)
        proved = out.proved.all(1)
        for k in proved.nonzero().squeeze(1).tolist():
            proved[k] = self.fits(out.trees[k])
            if bool(proved[k]):
                self.found.theta[index[k]], self.found.trees[int(index[k])] = theta[k], out.trees[k]
        return proved

    # --- few features

    def move_faces(self) -> None:
        """Moves face after face outwards (of a symmetric box, pairs); of very few features, from good starts."""
        theta, effort = self.found.theta, self.effort
        spending = Spending(
            effort.few, effort.work, self.deadline, effort.memory,
            torch.zeros(len(theta), dtype=torch.long, device=theta.device),
        )  # fmt: skip
        near = _NEAR_FEWEST if self.very_few else _NEAR
        faces = Faces(self.net, self.placed, self.spec, self.found, self.fits, spending, near)
        if self.very_few:
            Starts(faces).run()
        faces.grow()
        self.found.known = faces.known

    # --- many features

    def reshape(self) -> None:
        """Linearises the leaves that bind, and tries the best region under them."""
        weight = self.placed.importance.sum(1).clamp_min(1e-30)
        index = torch.tensor([k for k, trees in enumerate(self.found.trees) if trees], dtype=torch.long).to(
            weight.device
        )
        for step in range(self.effort.rounds):
            if not len(index) or time.monotonic() > self.deadline:
                return
            before = self._size(index)
            self._towards(index, self._best_linearised(index, step), weight)
            gained = (self._size(index) - before) / weight[index]
            index = index[gained > _WORTH]

    def _size(self, index: Tensor) -> Tensor:
        return self.objective.value(self.placed.take(index), self.found.theta[index])

    def _best_linearised(self, index: Tensor, step: int) -> Tensor:
        """The best regions under the leaves that bind, linearised, `m x d`."""
        part, theta = self.placed.take(index), self.found.theta[index]
        trees = [self.found.trees[k] for k in index.tolist()]
        found = binding(self.net, self._sets(index, theta), self.spec.part(index), trees, _BINDING, self._limits(1.0))
        own = part.take(found.input)
        with torch.enable_grad():
            sides = own.sides(theta[found.input]).detach().requires_grad_()
            sets = own.input_set(sides)
            value = (sets.center * found.by_center).sum() + (sets.radius * found.by_radius).sum()
            (slopes,) = torch.autograd.grad(value, sides)
        # Per input, its leaves beside each other; what fills up is a margin that costs nothing.
        place = _rank_within(found.input, len(index))
        most = int(place.max()) + 1
        prices = slopes.new_zeros(len(index), most, slopes.shape[1])
        left = slopes.new_ones(len(index), most)
        prices[found.input, place] = (-slopes).clamp_min(0)
        left[found.input, place] = found.bound.to(slopes).clamp_min(0)
        target = part.respond(self.objective, prices, left, theta, step)
        return torch.where(torch.isfinite(target), target, theta)

    def _towards(self, index: Tensor, target: Tensor, weight: Tensor) -> None:
        """Tries regions on the way to others, scaled so that they are a little larger than before."""
        pending = torch.arange(len(index), device=index.device)
        for mixed, gain in zip(_MIXED, _GAINS):
            if not len(pending):
                return
            some = index[pending]
            part, theta = self.placed.take(some), self.found.theta[some]
            share = torch.full_like(weight[some], mixed)
            new = part.mix(theta, target[pending], share)
            promised = (self.objective.value(part, new) - self.objective.value(part, theta)) / weight[some]
            new = part.grow(new, torch.exp((gain - 1) * promised.clamp_min(0)).to(new.dtype))
            worth = (promised > _WORTH).nonzero().squeeze(1)
            if not len(worth):
                return
            proved = torch.zeros_like(promised, dtype=torch.bool)
            proved[worth] = self._attempt(some[worth], new[worth], 0.3)
            pending = pending[~proved]


def _rank_within(group: Tensor, count: int) -> Tensor:
    """The how-manieth of its group each is, `l`; `group`: `l`, numbers below `count`."""
    order = torch.argsort(group, stable=True)
    first = torch.zeros(count, dtype=torch.long, device=group.device)
    sizes = torch.bincount(group, minlength=count)
    first[1:] = sizes.cumsum(0)[:-1]
    rank = torch.empty_like(group)
    rank[order] = torch.arange(len(group), device=group.device) - first[group[order]]
    return rank
