"""The uniform region: one radius for all features, by bracketing. The baseline, and every solver's start."""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.search.solvers.boundary import desk, to_boundary
from elbowroom.search.solvers.problem import Problem

_POWER = 1.3  # of the radius, that what margins lose is taken to grow by while one point is all that is known


def uniform_radius(problem: Problem, scale: Tensor, guess: Tensor, tolerance: float = 5e-4) -> Tensor:
    """The largest radius found, `b`, with `radius * scale` (capped) feasible; zero where none was found.

    `scale`: `b x n`. `guess`: `b`, where to start looking.
    """
    region = problem.region
    # Not capped yet: growing caps it, and a capped start would keep its shape where it has to shrink.
    start = (guess[:, None] * scale).repeat(1, region.caps.shape[1] // scale.shape[1])
    power = torch.full_like(problem.at_input, _POWER, dtype=torch.float64, device=desk(start))
    factor = to_boundary(problem, start, tolerance=tolerance, power=power).low.to(start)
    return torch.where(torch.isfinite(factor), factor, 0.0) * guess
