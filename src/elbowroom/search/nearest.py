"""The nearest counterexamples: points where a margin is not positive, as near to the input as attacks find them.

Every point found is pulled towards its region along a ray until the margin is about zero; there the margin is
linearised, and the nearest point of that is gone towards. Attacks then look for another one nearer than the best, from
several starts, until they find none. What is found is a proposal: the proof confirms it, or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from elbowroom.search.attack import climb
from elbowroom.search.frame import Frame

# From points, `m x n`, and the numbers of their frames, `m`, to margins, `m x g`.
Margins = Callable[[Tensor, Tensor], Tensor]

FARTHEST = 2.0**13  # no region is scaled by more
_TARGETS = 4  # groups that look nearest by their slopes at the input
_STARTS, _STEPS = 6, 20  # of an attack
_FIRST, _LAST = 0.5, 0.01  # its steps, as shares of the region
_FEW, _SAMPLES = 16, 4096  # features few enough for points at random, and how many, to be shared by the features
_DEEPEST = 0.6  # of them, as a share of the region's size
_AT_ONCE = 1 << 13  # points
_NUMBERS = 1 << 15  # in all points that go downhill at once from several starts
_TRIES = 3  # attacks that find nothing, before the best is taken to be the nearest
_ROUNDS = 8  # attacks that find something, at most
_NEARER = 0.99  # where the next one is looked for, as a share of the best
_POLISHINGS, _LEAST_GAIN = 12, 0.999  # linearisations, and how much one must bring
_SHARES = (1.0, 0.5, 0.25, 0.1, 0.03)  # of the way to the nearest point of a linearisation
_HALVINGS, _LAST_HALVINGS = 10, 40  # of a ray; of the last one


def nearest_broken(frame: Frame, margins: Margins, starts: int = _STARTS) -> tuple[Tensor, Tensor]:
    """The nearest points found where some margin is not positive: their coordinates, `m x n`, and gauges, `m`;
    infinity where none was found. All margins are positive within the region itself, gauge 1."""
    hunt = _Hunt(frame, margins, starts)
    hunt.along_slopes()
    size = 2.0
    while size <= FARTHEST:  # farther and farther, where nothing is known yet
        todo = (hunt.least.isinf() & (size < 2 * frame.most)).nonzero().squeeze(1)
        if not len(todo):
            break
        hunt.attack(todo, frame.most[todo].clamp_max(size), seed=int(size))
        size *= 2
    tries = torch.where(hunt.least.isinf(), 0, _TRIES)
    for seed in range(_ROUNDS + _TRIES):
        todo = (tries > 0).nonzero().squeeze(1)
        if not len(todo):
            break
        found = hunt.attack(todo, _NEARER * hunt.least[todo], seed)
        tries[todo] = torch.where(found, _TRIES, tries[todo] - 1)
    hunt.finish()
    return hunt.best, hunt.least


class _Hunt:
    """The best of what was found so far: `best`, `m x n`, and its gauge `least`, `m`."""

    def __init__(self, frame: Frame, margins: Margins, starts: int) -> None:
        self.frame, self.margins, self.starts = frame, margins, starts
        self.best = torch.zeros_like(frame.x)
        self.least = torch.full_like(frame.x[:, 0], torch.inf)

    def along_slopes(self) -> None:
        """From the input (the middle of what moves for nothing) to where margins would vanish if they were linear."""
        frame, index = self.frame, torch.arange(len(self.frame.x), device=self.frame.x.device)
        v = torch.zeros_like(frame.x).clamp(frame.low, frame.high).requires_grad_()
        values = self.margins(frame.points(v), index)
        if not values.requires_grad:  # nothing depends on the input
            return
        order = values.detach().argsort(1)[:, :_TARGETS]
        far = torch.minimum(frame.most, torch.full_like(frame.most, FARTHEST))
        for k in range(order.shape[1]):
            chosen = values.gather(1, order[:, k : k + 1])
            (slope,) = torch.autograd.grad(chosen.sum(), v, retain_graph=True)
            slope = torch.nan_to_num(slope)
            target = frame.nearest(slope, (slope * v.detach()).sum(1) - chosen.detach().squeeze(1), far)
            for share in (1.0, 1.5, 2.0, 4.0, 8.0):
                self._offer(frame.on_ray(target, torch.full_like(far, share)), index)
        there = self.least.isfinite().nonzero().squeeze(1)
        self._polish(there)

    def attack(self, index: Tensor, most: Tensor, seed: int) -> Tensor:
        """Looks for points in the regions scaled by `most`, `m`; which found one, `m`. The starts are the same for all,
        so that what is found does not depend on which others are looked at beside it."""
        generator = torch.Generator().manual_seed(seed)
        frame, n = self.frame.take(index), self.frame.x.shape[1]
        before, groups = self.least[index], self._targets(index)
        lengths = torch.logspace(math.log10(_FIRST), math.log10(_LAST), _STEPS).tolist()
        size = torch.where(frame.scaled, most[:, None], 1.0)
        units = 2 * torch.rand(self.starts, n, generator=generator, dtype=torch.float64) - 1
        units[1::2] = units[1::2].sign()
        units = units.to(frame.x)
        if n <= _FEW:
            self._sample(index, most, generator)
        starts = units[:, None] * size
        starts[0] = torch.where(before.isfinite()[:, None], self.best[index], starts[0])
        # Every third of them towards one of the nearest groups, the others to whichever is nearest.
        which, none = torch.arange(self.starts, device=index.device)[:, None], torch.tensor(-1, device=index.device)
        aims = torch.where(which % 3 == 2, groups.T[which[:, 0] % groups.shape[1]], none)
        count = max(1, _NUMBERS // (len(index) * n))
        for some, aim in zip(starts.split(count), aims.split(count)):
            self._descend(some, index, most, aim, lengths)
        found = self.least[index] < before
        self._polish(index[found])
        return found

    def _sample(self, index: Tensor, most: Tensor, generator: torch.Generator) -> None:
        """Points at random near the surface of the regions scaled by `most`, `m`: for wedges that no slope leads to.
        What moves for nothing is anywhere between its limits."""
        n = self.frame.x.shape[1]
        unit = 2 * torch.rand(_SAMPLES // n, n, generator=generator, dtype=torch.float64) - 1
        depth = 1 - (1 - _DEEPEST) * torch.rand(len(unit), 1, generator=generator, dtype=torch.float64)
        unit, depth = unit.to(most.device), depth.to(most.device)
        count = max(1, _AT_ONCE // len(index))
        for part, deep in zip(unit.split(count), depth.split(count)):
            every = index.repeat(len(part))
            frame, far = self.frame.take(every), most.repeat(len(part))
            v, deep = (t.repeat_interleave(len(index), 0) for t in (part, deep))
            largest = torch.where(frame.scaled, v.abs(), 0.0).amax(1, keepdim=True).clamp_min(1e-300)
            v = frame.inside(torch.where(frame.scaled, v / largest * deep * far[:, None], v), far)
            self._keep(v, every, self._broken(v, every), len(part))

    def _targets(self, index: Tensor) -> Tensor:
        """Groups worth an attack of their own, nearest to zero at the input first, `m x ...`."""
        frame = self.frame.take(index)
        with torch.no_grad():
            values = self.margins(frame.points(torch.zeros_like(frame.x).clamp(frame.low, frame.high)), index)
        return values.argsort(1)[:, :_TARGETS]

    def _descend(self, starts: Tensor, index: Tensor, most: Tensor, aims: Tensor, lengths: list[float]) -> None:
        """Downhill from several starts at once, `s x m x n`, in the least margin, or in that of the group `aims`,
        `s x m`; -1 for none."""
        count = len(starts)
        every, far, aim = index.repeat(count), most.repeat(count), aims.flatten()
        frame = self.frame.take(every)

        def value(v: Tensor) -> tuple[Tensor, Tensor]:
            values = self.margins(frame.points(v), every)
            least = values.amin(1)
            aimed = values.gather(1, aim.clamp_min(0)[:, None]).squeeze(1)
            return (torch.where(aim < 0, least, aimed) + 0 * v.sum(1)).sum(), least.detach()

        def step(v: Tensor, gradient: Tensor, length: float) -> Tensor:
            return frame.downhill(v, gradient, far, length)

        def seen(v: Tensor, least: Tensor) -> None:
            self._keep(v, every, least <= 0, count)

        v = climb(value, frame.inside(starts.flatten(0, 1), far), step, lengths, seen)
        self._keep(v, every, self._broken(v, every), count)

    def _offer(self, v: Tensor, index: Tensor) -> None:
        self._keep(v, index, self._broken(v, index))

    def _keep(self, v: Tensor, index: Tensor, broken: Tensor, count: int = 1) -> None:
        """Keeps points, `m x n`, that are broken and nearer than the best of their frames, which have these numbers;
        the same numbers, `count` times in a row."""
        gauge = torch.where(broken, self.frame.take(index).gauge(v), torch.inf)
        gauge, at = gauge.reshape(count, -1).min(0)
        index = index[: len(gauge)]
        v = v.reshape(count, len(gauge), v.shape[1])[at, torch.arange(len(gauge), device=at.device)]
        better = gauge < self.least[index]
        self.best[index[better]], self.least[index[better]] = v[better], gauge[better]

    def _broken(self, v: Tensor, index: Tensor) -> Tensor:
        with torch.no_grad():
            return self.margins(self.frame.take(index).points(v), index).amin(1) <= 0

    def _polish(self, index: Tensor) -> None:
        """Improves the best by linearising the margin there, again and again while that pays."""
        self._pull(index, _HALVINGS)
        for _ in range(_POLISHINGS):
            if not len(index):
                return
            frame, before = self.frame.take(index), self.least[index]
            v = self.best[index].requires_grad_()
            margin = self.margins(frame.points(v), index).amin(1)
            (slope,) = torch.autograd.grad((margin + 0 * v.sum(1)).sum(), v)
            slope, v = torch.nan_to_num(slope), v.detach()
            target = frame.nearest(slope, (slope * v).sum(1) - margin.detach(), before)
            goal = _LEAST_GAIN * before
            for share in _SHARES:
                there = v + share * (target - v)
                gauge = frame.gauge(there)
                there = frame.on_ray(there, torch.where(gauge > 0, goal / gauge, 1.0))
                self._offer(frame.inside(there, goal), index)
            index = index[self.least[index] < before]
            self._pull(index, _HALVINGS)

    def _pull(self, index: Tensor, halvings: int) -> None:
        """Moves the best towards the region along a ray, to where the margin is about zero."""
        if not len(index):
            return
        frame, v = self.frame.take(index), self.best[index]
        held, broken = torch.zeros_like(self.least[index]), torch.ones_like(self.least[index])
        for _ in range(halvings):
            middle = (held + broken) / 2
            bad = self._broken(frame.on_ray(v, middle), index)
            held, broken = torch.where(bad, held, middle), torch.where(bad, middle, broken)
        self._offer(frame.on_ray(v, broken), index)

    def finish(self) -> None:
        self._pull(self.least.isfinite().nonzero().squeeze(1), _LAST_HALVINGS)


__all__ = ["FARTHEST", "nearest_broken"]
