"""The uniform region: one radius for all features, by bracketing. The baseline, and every solver's start."""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.search.solvers.boundary import to_boundary
from elbowroom.search.solvers.problem import Problem


def uniform_radius(problem: Problem, scale: Tensor, guess: Tensor, tolerance: float = 5e-4) -> Tensor:
    """The largest radius found, `b`, with `radius * scale` (capped) feasible; zero where none was found.

    `scale`: `b x n`. `guess`: `b`, where to start looking.
    """
    region = problem.region
    # Not capped yet: growing caps it, and a capped start would keep its shape where it has to shrink.
    start = (guess[:, None] * scale).repeat(1, region.caps.shape[1] // scale.shape[1])
    factor = to_boundary(problem, start, tolerance=tolerance).low
    return torch.where(torch.isfinite(factor), factor, 0.0) * guess
