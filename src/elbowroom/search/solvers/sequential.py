"""The default solver: solve the problem with the margins linearised, step there, scale to the boundary, repeat.

Margins are close to linear in the region's extents, so this needs 1 to 4 gradients where the paper's
augmented Lagrangian takes 400. For two classes and a linear network the first step is already the answer:
every feature spends the same share of the margin.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.search.solvers.boundary import to_boundary
from elbowroom.search.solvers.problem import Problem, Solution


@dataclass(frozen=True)
class Sequential:
    """`gradients`: at most so many linearisations. `gain`: an input is done when the mean log width grows by less.
    `tolerance`: of scaling to the boundary on the way, `polish`: of the last one (so that the answer does not
    depend on how it was reached). `retries`: shorter steps tried where one did not improve."""

    gradients: int = 4
    gain: float = 5e-4
    tolerance: float = 1e-3
    polish: float = 4e-5
    retries: int = 2

    def solve(self, problem: Problem, start: Tensor) -> Solution:
        """Improves on `start`, `b x d`, feasible. Returns nothing smaller, and nothing not evaluated as feasible."""
        best = start.clone()
        size = problem.region.objective(best)
        least = torch.full_like(size, torch.nan)  # the smallest margin at `best`
        weight = problem.region.importance.sum(1).clamp_min(1e-30)
        share = torch.ones_like(size)
        active = torch.arange(len(best), device=best.device)
        for step in range(self.gradients):
            if not len(active):
                break
            part = problem.take(active)
            theta = best[active]
            margins, jacobian = part.jacobian(theta, step)
            least[active] = margins.amin(1)
            # Where growing would add to a margin it costs nothing, no more.
            target = part.region.respond((-jacobian).clamp_min(0), margins.clamp_min(0), theta, step)
            target = torch.where(torch.isfinite(target), target, theta)
            gained = torch.zeros_like(size[active])
            pending = torch.arange(len(active), device=best.device)
            for _ in range(1 + self.retries):
                tried = part.take(pending)
                mixed = tried.region.mix(theta[pending], target[pending], share[active[pending]])
                factor, left = to_boundary(tried, mixed, tolerance=self.tolerance)
                found = tried.region.grow(mixed, factor)
                new = torch.where(factor > 0, tried.region.objective(found), -torch.inf)
                old = size[active[pending]]
                better = new > old
                where = active[pending[better]]
                best[where], size[where], least[where] = found[better], new[better], left[better]
                gained[pending[better]] = (new - old)[better] / weight[where]
                pending = pending[~better]
                share[active[pending]] /= 2
                if not len(pending):
                    break
            active = active[gained >= self.gain]
        # Without a gradient the start's margins are not known.
        factor, _ = to_boundary(problem, best, tolerance=self.polish, at_one=least if self.gradients else None)
        best = problem.region.grow(best, factor.clamp_min(1))
        return Solution(best, f"sequential: at most {self.gradients} linearisations")
