"""Cross-polytopes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.objective import Objective


class PlacedL1(Placed):
    """`||(x' - x) / eps||_1 <= 1`: `theta = eps`."""

    p = 1

    def sharpness(self, step: int) -> float:
        # Soft at first, so that all features are heard; sharper as the region takes its shape.
        return float(min(4 * 2**step, 32))

    def respond(self, objective: Objective, a: Tensor, margins: Tensor, theta: Tensor, step: int) -> Tensor:
        # The same region is the best by any objective that grows with every extent: each has its own limit.
        # A margin spends max_k c_k eps_k; of it, the smoothed derivatives say, a share of (c_k eps_k)^q on feature k,
        # which gives back c_k (exactly for a linear network). Each feature may then spend as much as the largest.
        # Shares may underflow: the least number bounds how far a feature grows in one step.
        tiny = torch.finfo(theta.dtype).tiny
        share = a * theta[:, None]
        spent = share.sum(-1)
        share = (share / share.amax(-1, keepdim=True).clamp_min(tiny)).clamp_min(tiny) ** (1 / self.sharpness(step))
        growth = ((margins + spent) / spent.clamp_min(tiny))[..., None] / share
        return torch.minimum(growth.amin(1) * theta, self.caps)


@dataclass(frozen=True, eq=False)
class L1(Region):
    """A cross-polytope with its own extent per feature: few features change much, or many a little."""

    placed = PlacedL1
