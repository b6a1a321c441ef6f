"""Lower lines of ReLUs with a slope of its own for each row, improved step by step; and rows bounded case by case.

Below a ReLU lies every line through the origin with a slope from 0 to 1, and of which slope a row's bound is the
largest depends on the row. A row's bound is attained at some point of the region; where a ReLU's input, along the lines
taken, is positive there, a steeper line is better, where it is negative a flatter one. These inputs are the derivatives
of the bound by the coefficients that arrive below the ReLU, so autograd tells them.

Then the ReLUs whose upper lines cost a row most are taken by cases: at any point the input of each of them is not
positive, and it gives 0, or not negative, and it gives its input. The least bound of all cases is a bound of the row.

Nothing here needs trust but that slopes are numbers from 0 to 1, and that all cases are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from elbowroom.network.graph import Network

_STEP = 3.0  # how much a slope changes in the first step, where the ReLU's input is a whole interval away from zero


class OwnSlopes:
    """Slopes of the rows that are carried back together, by ReLU node, `b x r x size`.

    `value`: the rows' bounds, `b x r`, as autograd recorded them; whoever carries rows back sets it. `case`: of the
    ReLUs that are taken by cases, which are on the high side: a bit of it for each.
    """

    def __init__(self, net: Network, ends: Sequence[Sequence[Tensor]], chosen: Tensor) -> None:
        """`ends`: lower and upper ends of every node, `b x *shape`; `chosen`: which inputs of the batch."""
        self._net, self._ends, self._chosen = net, ends, chosen
        self._slopes: dict[int, Tensor] = {}
        self._usual: dict[int, Tensor] = {}
        self._met: dict[int, Tensor] = {}
        self._kept: dict[int, Tensor] = {}
        self._steps = 0
        self._costs: dict[int, Tensor] | None = None  # while it is asked for
        self._bits: dict[int, Tensor] = {}  # of ReLUs that are taken by cases; 0 for others
        self.case = 0
        self.value: Tensor | None = None

    def _interval(self, k: int) -> tuple[Tensor, Tensor]:
        """Of the input of node k, `b x size` each."""
        low, high = (of[self._net.nodes[k].inputs[0]][self._chosen].flatten(1) for of in self._ends)
        return low, high

    def _bent(self, k: int) -> Tensor:
        low, high = self._interval(k)
        return (low < 0) & (high > 0)

    # --- while rows are carried past a ReLU

    def constant(self, k: int, low: Tensor) -> Tensor:
        """The lower lines' constants, `b x size`: lines of ours go through the origin."""
        return torch.where(self._bent(k), 0.0, low) if k in self._slopes else low

    def slope(self, k: int, usual: Tensor) -> Tensor:
        """The lower lines' slopes, `b x r x size`; `usual`: those of all rows, `b x 1 x size`."""
        self._usual[k] = usual
        return torch.where(self._bent(k)[:, None], self._slopes[k], usual) if k in self._slopes else usual

    def in_case(self, k: int, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """The slopes of both lines, `b x r x size`: where node k is taken by cases, it is one line through the
        origin."""
        if k not in self._bits:
            return lower, upper
        taken, side = self._bits[k] > 0, ((self._bits[k] & self.case) > 0).to(upper.dtype)
        return torch.where(taken, side, lower), torch.where(taken, side, upper)

    def constants(self, k: int, flat: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients over node k, `b x r x size`, without those whose lines go through the origin in this case; and
        the lower lines' constants, `b x size`."""
        flat = torch.where(self._bits[k] > 0, 0.0, flat) if k in self._bits else flat
        return flat, self.constant(k, low)

    def meet(self, k: int, flat: Tensor, below: Tensor, high: Tensor) -> None:
        """Notes the coefficients that arrive at node k and below it, `b x r x size`; `high`: the constants of its upper
        lines, `b x size`."""
        if self._costs is not None:
            cost = flat.clamp_max(0) * torch.where(self._bent(k), -high, 0.0)[:, None]
            self._costs[k] = torch.nan_to_num(cost, 0.0, 0.0, 0.0)
        elif torch.is_grad_enabled():
            self._met[k] = below if below.requires_grad else below.requires_grad_()

    # --- between

    def keep(self, better: Tensor) -> None:
        """The slopes as they are become the best ones of some rows, `b x r`."""
        for k, usual in self._usual.items():
            now = self._slopes.get(k, usual)
            self._kept[k] = torch.where(better[..., None], now, self._kept.get(k, now))

    def improve(self) -> None:
        """A step for each row, after its bound was computed; shorter from one to the next."""
        met, value = self._met, self.value
        self._met, self.value = {}, None
        if value is None or not met:
            return
        inputs = torch.autograd.grad(value, list(met.values()), torch.ones_like(value))
        self._steps += 1
        for k, at in zip(met, inputs):
            low, high = self._interval(k)
            step = _STEP * self._steps**-0.5 * at / (high - low)[:, None]
            self._slopes[k] = _between(self._slopes.get(k, self._usual[k]) + step)

    def weigh(self) -> None:
        """From now on with the best slopes; and what upper lines cost is noted when rows are next carried back."""
        self._slopes = {k: _between(t) for k, t in self._kept.items()}
        self._costs = {}

    def choose(self, most: int) -> int:
        """Takes the ReLUs that cost each row most by cases, at most so many; how many they are at most."""
        costs, self._costs = self._costs, None
        if not costs:
            return 0
        cost = torch.cat(list(costs.values()), 2)
        worst, at = cost.topk(min(most, cost.shape[2]), 2)
        bits = torch.where(worst > 0, 2 ** torch.arange(worst.shape[2], device=at.device), 0).to(torch.uint8)
        every = torch.zeros(cost.shape, dtype=torch.uint8, device=at.device).scatter_(2, at, bits)
        self._bits = dict(zip(costs, every.split([t.shape[2] for t in costs.values()], 2)))
        return int((worst > 0).sum(2).max())


def _between(slopes: Tensor) -> Tensor:
    """Numbers from 0 to 1, whatever they were."""
    return torch.nan_to_num(slopes, 0.0, 1.0, 0.0).clamp(0, 1)


def improved(own: OwnSlopes, below: Callable[[], Tensor], steps: int, cases: int) -> Tensor:
    """Numbers below rows, `b x r`: after so many steps of their slopes, then with so many ReLUs taken by cases.

    `below`: carries the rows back with the slopes and in the case that `own` says.
    """
    best: Tensor | None = None
    for step in range(steps + 1):
        with torch.set_grad_enabled(step < steps):
            found = below().detach()
        better = torch.ones_like(found, dtype=torch.bool) if best is None else found > best
        best = found if best is None else torch.maximum(best, found)
        own.keep(better)
        if step < steps:
            own.improve()
    assert best is not None
    return torch.maximum(best, _by_cases(own, below, cases)) if cases else best


@torch.no_grad()
def _by_cases(own: OwnSlopes, below: Callable[[], Tensor], cases: int) -> Tensor:
    """The least number below each row of all cases, `b x r`."""
    own.weigh()
    least = below()
    for case in range(2 ** own.choose(cases)):
        own.case = case
        least = torch.minimum(least, below()) if case else below()
    return least
