"""The default solver: solve the problem with the margins linearised, step there, scale to the boundary, repeat.

Margins are close to linear in the region's extents, so this needs 1 to 4 gradients where the paper's
augmented Lagrangian takes 400. For two classes and a linear network the first step is already the answer:
every feature spends the same share of the margin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.search.solvers.boundary import to_boundary
from elbowroom.search.solvers.driver import Best
from elbowroom.search.solvers.problem import Problem


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

    def run(self, problem: Problem, best: Best) -> Iterator[None]:
        """A linearisation each, then the last scaling."""
        least = torch.full_like(best.size, torch.nan)  # the smallest margin at the best region
        weight = problem.region.importance.sum(1).clamp_min(1e-30)
        share = torch.ones_like(best.size)
        active = torch.arange(len(best.theta), device=best.theta.device)
        best.end(active, f"after {_count(self.gradients)}" if self.gradients else "with a scaling alone")
        for step in range(self.gradients):
            if not len(active):
                break
            gained = self._linearise(problem.take(active), best, active, share, least, step) / weight[active]
            best.end(active[gained < self.gain], f"with too little to gain, after {_count(step + 1)}")
            active = active[gained >= self.gain]
            yield
        # Without a gradient the start's margins are not known.
        at_one = least if self.gradients else None
        factor, _ = to_boundary(problem, best.theta, tolerance=self.polish, at_one=at_one)
        best.theta = problem.region.grow(best.theta, factor.clamp_min(1))
        best.size = problem.size(best.theta)
        yield

    def _linearise(self, part: Problem, best: Best, active: Tensor, share: Tensor, least: Tensor, step: int) -> Tensor:
        """One step for the inputs `active`, whose problem is `part`; how much their objectives grew, `m`. `share`: how
        much of a step to go, `least`: the smallest margins, both of all inputs and brought up to date."""
        theta = best.theta[active]
        margins, jacobian = part.jacobian(theta, step)
        least[active] = margins.amin(1)
        target = part.respond(jacobian, margins, theta, step)
        target = torch.where(torch.isfinite(target), target, theta)
        gained = torch.zeros_like(best.size[active])
        pending = torch.arange(len(active), device=theta.device)
        for _ in range(1 + self.retries):
            tried = part.take(pending)
            mixed = tried.region.mix(theta[pending], target[pending], share[active[pending]])
            factor, left = to_boundary(tried, mixed, tolerance=self.tolerance)
            better, gain = best.offer(tried, active[pending], tried.region.grow(mixed, factor), factor > 0)
            least[active[pending[better]]] = left[better]
            gained[pending[better]] = gain[better]
            pending = pending[~better]
            share[active[pending]] /= 2
            if not len(pending):
                break
        return gained


def _count(linearisations: int) -> str:
    return "1 linearisation" if linearisations == 1 else f"{linearisations} linearisations"
