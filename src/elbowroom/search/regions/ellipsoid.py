"""Axis-aligned ellipsoids."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.subproblem import Program


class PlacedEllipsoid(Placed):
    """`||(x' - x) / eps||_2 <= 1`, the paper's p = 2: `theta = eps`."""

    p = 2

    def log_unit_volume(self, n: Tensor) -> Tensor:
        return n.double() / 2 * math.log(math.pi) - torch.lgamma(n.double() / 2 + 1)

    def program(self, a: Tensor, margins: Tensor, theta: Tensor) -> Program:
        # The margin spends ||c * eps||_2 on the region: squared, sum_k c_k^2 eps_k^2, it is the box's problem in eps^2.
        # The derivative by eps_k is -c_k^2 eps_k / ||c * eps||, which gives c_k^2. (In float64, since float32 holds
        # no squares of small or large units.)
        spent = (a * theta[:, None]).sum(-1).double()
        squares = a.double() * spent[..., None] / theta.double().clamp_min(torch.finfo(torch.float64).tiny)[:, None]
        caps = self.caps.double() ** 2
        budget = (margins + spent) ** 2
        return Program(squares, budget, caps, self.importance / 2, theta=lambda v: v.sqrt().to(theta.dtype))


@dataclass(frozen=True, eq=False)
class Ellipsoid(Region):
    """An axis-aligned ellipsoid with its own semi-axis per feature."""

    placed = PlacedEllipsoid
