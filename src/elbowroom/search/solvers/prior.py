"""A start from earlier regions of the same network, which are nearly collinear: often most of the answer."""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.search.solvers.boundary import to_boundary
from elbowroom.search.solvers.problem import Problem


def start_from(
    problem: Problem,
    uniform: Tensor,
    radius: Tensor,
    shape: Tensor,
    tolerance: float = 1e-2,
) -> Tensor:
    """The larger of two feasible regions, `b x d`: the uniform one, and the prior's shape scaled to the boundary.

    `uniform`: `b x d`, feasible, and its `radius`, `b`. `shape`: `d`, extents per unit of the uniform radius.
    """
    region = problem.region
    guess = torch.minimum(radius[:, None] * shape.to(uniform), region.caps)
    factor = to_boundary(problem, guess, tolerance=tolerance).low
    found = region.grow(guess, factor)
    larger = (factor > 0) & (problem.size(found) > problem.size(uniform))
    return torch.where(larger[:, None], found, uniform)
