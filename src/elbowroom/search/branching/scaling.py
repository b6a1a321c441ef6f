"""How far regions can be scaled about their inputs until branch and bound ends.

Above, the reach of an attack says where no proof can be; below, the region as it is. Between them factors are tried,
all inputs at once, each with its own: the tree of the last factor that was proved is the start at the next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.claim.tree import Tree
from elbowroom.network.graph import Network
from elbowroom.search.attack import pgd
from elbowroom.search.branching.engine import Limits, Outcome, prove
from elbowroom.search.regions.input_set import InputSet

_FIRST = 1.15  # the first factor tried
_FARTHEST = 1.5  # from one factor to the next, at most
_USED = 0.6  # of the leaves that there may be: what a factor is chosen for
_STARTS, _STEPS = 8, 30  # of the attack
_NUMBERS = 1 << 15  # in all points that go downhill at once from several starts
_ATTACKS, _NEAR = 14, 1.02  # factors that are attacked, and how close they come to each other
_SHARE_OF_TIME, _OF_ATTACKS = 0.5, 0.25  # that is left: for one factor, and for attacks
_LIMIT = 64.0  # no factor beyond

# From the numbers of some inputs, `m`, and their factors, `m` in float64, to their regions.
At = Callable[[Tensor, Tensor], InputSet]


@dataclass
class Scaled:
    """What was found, per input.

    Attributes:
        factor: `b`, float64: the largest factor that was proved; 1 where none was.
        trees: By group: the proof at that factor; None where nothing beyond 1 was proved, and 1 needs none.
        reach: `b`, float64: the smallest factor at which a counterexample was found, infinite where none was.
        points: The counterexample, `*input_shape`, or None.
        failed: `b`, float64: the smallest factor that was tried and not proved.
        leaves: `b`: of the trees.
    """

    factor: Tensor
    trees: list[dict[int, Tree] | None]
    reach: Tensor
    points: list[Tensor | None]
    failed: Tensor
    leaves: Tensor


@dataclass
class _Record:
    """The last two factors that were proved, as logarithms, and those of the leaves they took."""

    factor: Tensor
    leaves: Tensor
    factor_before: Tensor
    leaves_before: Tensor


def largest_scalings(
    net: Network,
    at: At,
    count: int,
    spec: Specification,
    limits: Limits | None = None,
    share: float = 0.01,
    tries: int = 8,
    start: Sequence[dict[int, Tree]] | None = None,
) -> Scaled:
    """Scales regions as far as branch and bound proves.

    Args:
        net: The network, in the type and on the device to compute with.
        at: The regions by numbers of inputs and factors; those at factor 1 are taken as proved.
        count: How many inputs there are.
        spec: What must hold, in the network's type.
        limits: What may be spent: leaves per tree at each factor, seconds in all.
        share: Ends where a factor that was not proved is closer than this share.
        tries: The most factors tried per input.
        start: Per input, by group: trees that prove factor 1.

    Returns:
        The factors, their proofs, and where counterexamples are.
    """
    limits = limits or Limits()
    search = _Scaling(net, at, count, spec, limits)
    if start is not None:
        search.found.trees = [trees or None for trees in start]
    search.attack()
    for _ in range(tries):
        left = search.left(share)
        if not len(left) or time.monotonic() > search.deadline:
            break
        search.attempt(left)
    return search.found


class _Scaling:
    def __init__(self, net: Network, at: At, count: int, spec: Specification, limits: Limits) -> None:
        self.net, self.at, self.spec, self.limits = net, at, spec, limits
        self.deadline = time.monotonic() + limits.seconds
        self.device = spec.rows.device
        one = torch.ones(count, dtype=torch.float64, device=self.device)
        far = torch.full_like(one, torch.inf)
        whole = torch.zeros(count, dtype=torch.long, device=self.device)
        self.found = Scaled(one, [None] * count, far, [None] * count, far.clone(), whole)
        zero = torch.zeros_like(one)
        self.record = _Record(zero.clone(), zero.clone(), torch.full_like(one, -0.05), zero.clone())

    def left(self, share: float) -> Tensor:
        """The inputs that are worth another try."""
        found = self.found
        end = torch.minimum(found.failed, found.reach).clamp_max(_LIMIT)
        return (end > (1 + share) * found.factor).nonzero().squeeze(1)

    # --- attacks

    def attack(self) -> None:
        """Looks for counterexamples, farther and farther until there is one, then nearer and nearer; of boxes."""
        found = self.found
        every = torch.arange(len(found.factor), device=self.device)
        held, factor = torch.ones_like(found.factor), torch.full_like(found.factor, 2.0)
        until = time.monotonic() + _OF_ATTACKS * self.limits.seconds
        for _ in range(_ATTACKS):
            sets = self.at(every, factor[every])
            if not sets.is_box or not len(every) or time.monotonic() > until:
                return
            points, broken = self._descend(sets, every)
            for k, point in zip(every[broken].tolist(), points[broken]):
                found.points[k] = point
            found.reach[every[broken]] = factor[every[broken]]
            held[every[~broken]] = factor[every[~broken]]
            known = found.reach < torch.inf
            factor = torch.where(known, (held * found.reach).sqrt(), factor * 1.5)
            going = torch.where(known, found.reach > _NEAR * held, factor < _LIMIT)
            every = every[going[every]]

    def _descend(self, sets: InputSet, index: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest points met, `m x *input_shape`, and whether they are counterexamples, `m`."""
        lower, upper = sets.hull()
        generator = torch.Generator().manual_seed(0)
        least = torch.full((len(index),), torch.inf, dtype=lower.dtype, device=lower.device)
        best, starts = sets.center.clone(), [sets.center]
        for start in range(_STARTS):
            share = torch.rand(lower.shape, generator=generator, dtype=torch.float64).to(lower)
            starts.append(lower + (share.round() if start % 2 else share) * (upper - lower))
        del starts[1]  # the input itself is the first
        for some in torch.stack(starts).split(max(1, _NUMBERS // lower.numel())):
            points, margin = self._lowest(some, lower, upper, index)
            better = margin < least
            best[better], least[better] = points[better], margin[better]
        return best, least <= 0

    def _lowest(self, starts: Tensor, lower: Tensor, upper: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest points met from several starts, `s x m x *input_shape`, in boxes `m x *input_shape`, and their
        margins, `m`."""
        count, m = len(starts), len(index)
        low, high = (t.repeat(count, *[1] * (t.dim() - 1)) for t in (lower, upper))
        spec = self.spec.part(index.repeat(count))
        least, best = torch.full((count * m,), torch.inf, dtype=low.dtype, device=low.device), low.clone()

        def value(x: Tensor) -> tuple[Tensor, Tensor]:
            margin = spec.margins(self.net.values(x)[-1]).amin(1)
            return -margin.sum(), margin.detach()

        def seen(x: Tensor, margin: Tensor) -> None:
            better = margin < least
            best[better], least[better] = x[better], margin[better]

        lengths = (0.3 * (0.01 ** (t / _STEPS)) * (high - low) for t in range(_STEPS + 1))
        with torch.enable_grad():
            pgd(value, starts.flatten(0, 1), low, high, lengths, seen)
        margin, at = least.reshape(count, m).min(0)
        return best.reshape(count, m, *best.shape[1:])[at, torch.arange(m, device=at.device)], margin

    # --- attempts

    def attempt(self, index: Tensor) -> None:
        """Tries a factor for each of these inputs."""
        found = self.found
        factor = self._next()[index]
        start = [found.trees[k] or {} for k in index.tolist()]
        # Not all of the time that is left: were this lost, all were.
        limits = replace(self.limits, seconds=_SHARE_OF_TIME * (self.deadline - time.monotonic()))
        out = prove(self.net, self.at(index, factor), self.spec.part(index), limits, start)
        proved = out.proved.all(1)
        self._note(index[proved], factor[proved], out, proved)
        lost = ~proved
        found.failed[index[lost]] = torch.minimum(found.failed[index[lost]], factor[lost])
        for position, k in enumerate(index.tolist()):
            point = out.points[position]
            if point is not None:
                found.points[k] = point
                found.reach[k] = min(float(found.reach[k]), float(factor[position]))

    def _note(self, index: Tensor, factor: Tensor, out: Outcome, proved: Tensor) -> None:
        found, record = self.found, self.record
        record.factor_before[index], record.leaves_before[index] = record.factor[index], record.leaves[index]
        record.factor[index] = factor.log()
        record.leaves[index] = out.leaves[proved].amax(1).double().log()
        found.factor[index], found.leaves[index] = factor, out.leaves[proved].sum(1)
        for k, position in zip(index.tolist(), proved.nonzero().squeeze(1).tolist()):
            found.trees[k] = out.trees[position]

    def _next(self) -> Tensor:
        """The factors to be tried next, `b`: where the leaves, as they have grown from factor to factor so far, would
        be a good part of what there may be; nearer the last proved one than the first that failed."""
        found, record = self.found, self.record
        steep = (record.leaves - record.leaves_before) / (record.factor - record.factor_before).clamp_min(1e-6)
        room = math.log(max(2.0, _USED * self.limits.leaves)) - record.leaves
        step = (room / steep.clamp_min(1.0)).clamp(math.log(1.01), math.log(_FARTHEST))
        step = torch.where(record.factor > 0, step, math.log(_FIRST))
        end = torch.minimum(found.failed, found.reach)
        gap = (end / found.factor).log()
        step = torch.minimum(torch.maximum(step, 0.3 * torch.where(gap.isfinite(), gap, 0.0)), 0.6 * gap)
        # Where nothing was proved yet, farther back: each failure costs all the leaves there may be.
        lost = (found.factor == 1) & found.failed.isfinite()
        return found.factor * torch.where(lost, 0.35 * gap, step).exp()


def scaled_boxes(x: Tensor, lower: Tensor, upper: Tensor, low: Tensor, high: Tensor, dtype: torch.dtype) -> At:
    """Boxes `[lower, upper]` around inputs `x` as they are scaled, cut to `[low, high]`, which hold them; all of them
    `b x *input_shape`, float64."""

    def at(index: Tensor, factor: Tensor) -> InputSet:
        f = factor.reshape(-1, *[1] * (x.dim() - 1))
        middle = x[index]
        below = torch.maximum(middle + f * (lower[index] - middle), low[index])
        above = torch.minimum(middle + f * (upper[index] - middle), high[index])
        return InputSet.box(below.to(dtype), above.to(dtype))

    return at
