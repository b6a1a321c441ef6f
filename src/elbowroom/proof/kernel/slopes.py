"""Lower lines of ReLUs with a slope of its own for each row: proposals, improved step by step.

Below a ReLU lies every line through the origin with a slope from 0 to 1, and of which slope a row's bound is the
largest depends on the row. A row's bound is attained at some point of the region; where a ReLU's input, along the lines
taken, is positive there, a steeper line is better, where it is negative a flatter one. These inputs are the derivatives
of the bound by the coefficients that arrive below the ReLU, so autograd tells them. Nothing here needs trust but that
slopes are numbers from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elbowroom.network.graph import Network

_STEP = 3.0  # how much a slope changes in the first step, where the ReLU's input is a whole interval away from zero


class OwnSlopes:
    """Slopes of the rows that are carried back together, by ReLU node, `b x r x size`.

    `value`: the rows' bounds, `b x r`, as autograd recorded them; whoever carries rows back sets it.
    """

    def __init__(self, net: Network, ends: Sequence[Sequence[Tensor]], chosen: Tensor) -> None:
        """`ends`: lower and upper ends of every node, `b x *shape`; `chosen`: which inputs of the batch."""
        self._net, self._ends, self._chosen = net, ends, chosen
        self._slopes: dict[int, Tensor] = {}
        self._usual: dict[int, Tensor] = {}
        self._met: dict[int, Tensor] = {}
        self._steps = 0
        self.value: Tensor | None = None

    def _interval(self, k: int) -> tuple[Tensor, Tensor]:
        """Of the input of node k, `b x size` each."""
        low, high = (of[self._net.nodes[k].inputs[0]][self._chosen].flatten(1) for of in self._ends)
        return low, high

    def _bent(self, k: int) -> Tensor:
        low, high = self._interval(k)
        return (low < 0) & (high > 0)

    def constant(self, k: int, low: Tensor) -> Tensor:
        """The lower lines' constants, `b x size`: lines of ours go through the origin."""
        return torch.where(self._bent(k), 0.0, low) if k in self._slopes else low

    def slope(self, k: int, usual: Tensor) -> Tensor:
        """The lower lines' slopes, `b x r x size`; `usual`: those of all rows, `b x 1 x size`."""
        self._usual[k] = usual
        return torch.where(self._bent(k)[:, None], self._slopes[k], usual) if k in self._slopes else usual

    def meet(self, k: int, below: Tensor) -> None:
        """Notes the coefficients that arrive below node k, `b x r x size`."""
        if not below.requires_grad:
            below.requires_grad_()
        self._met[k] = below

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
            self._slopes[k] = torch.nan_to_num(self._slopes.get(k, self._usual[k]) + step, 0.0, 1.0, 0.0).clamp(0, 1)
