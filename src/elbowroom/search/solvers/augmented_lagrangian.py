"""The paper's Algorithm 2: the augmented Lagrangian method, for comparison and reproduction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.search.solvers.driver import Best
from elbowroom.search.solvers.problem import Problem


@dataclass(frozen=True)
class AugmentedLagrangian:
    """The paper's solver: the authors' numbers of steps, dual updates, rho schedule and eta by default.

    `rate` and `clip` are ours. Seven pairs of rate (3e-3 to 1e-2) and clip were tried on the reference images of
    `benchmarks/solvers.py`, and the best kept: a clip that acts only on explosions. Where rescaling acts all the time,
    averages fell by up to a tenth.

    Args:
        steps: Gradient steps.
        dual_every: A dual update after so many.
        rho: The coefficient at the start.
        rho_factor: What it is multiplied by.
        rho_every: After so many steps.
        rate: Adam's learning rate.
        clip: The gradient's l2 norm is rescaled to this at most.
        eta: The final shrink factor.
    """

    steps: int = 400
    dual_every: int = 5
    rho: float = 1.0
    rho_factor: float = 5.0
    rho_every: int = 80
    rate: float = 5e-3
    clip: float = 1e4
    eta: float = 0.99

    def run(self, problem: Problem, best: Best) -> Iterator[None]:
        """A gradient step each, then the shrink. What is infeasible after it, or smaller, is the start again.

        Args:
            problem: What to solve.
            best: The best regions so far, which it starts from and offers to.

        Yields:
            After every step.
        """
        start = best.theta.clone()
        everyone = torch.arange(len(start), device=start.device)
        zeta = torch.where(problem.region.caps > 0, start, 0.0).sqrt().requires_grad_()
        yield from self.descend(problem, zeta, torch.optim.Adam([zeta], lr=self.rate, betas=(0.9, 0.99)))
        theta = torch.minimum(zeta.detach() ** 2, problem.region.caps)
        found = self.shrink(problem, theta, start)
        better, _ = best.offer(problem, everyone, found, torch.ones_like(best.size, dtype=torch.bool))
        best.end(everyone, f"after {self.steps} gradient steps")
        best.end(everyone[~better], f"without a larger region, after {self.steps} gradient steps")
        yield

    def descend(self, problem: Problem, zeta: Tensor, optimiser: torch.optim.Optimizer) -> Iterator[None]:
        """The gradient steps, and the updates of multipliers and coefficient.

        Args:
            problem: What to solve.
            zeta: Square roots of the extents, `b x d`, or of one extent for all features, `b x 1`; moved in place.
            optimiser: What moves it.

        Yields:
            After every step.
        """
        caps = problem.region.caps
        movable = (caps > 0).any(1, keepdim=True) if zeta.shape != caps.shape else caps > 0
        dual: Tensor | None = None
        rho = self.rho
        for step in range(self.steps):
            if step and step % self.rho_every == 0:
                rho *= self.rho_factor
            theta = torch.minimum(zeta**2, caps)  # eps = zeta^2
            margins = problem.recorded(theta)
            dual = torch.zeros_like(margins) if dual is None else dual
            # v - y with the best slack y = max(0, v + dual / rho) plugged in.
            short = torch.minimum(margins, -dual / rho)
            loss = -problem.size(theta) + (dual * short).sum(1) + rho / 2 * (short**2).sum(1)
            (grad,) = torch.autograd.grad(loss.sum(), zeta)
            grad = torch.nan_to_num(grad, nan=0.0, posinf=0.0, neginf=0.0)
            norm, most = torch.linalg.vector_norm(grad, dim=1, keepdim=True), self.longest(rho)
            zeta.grad = torch.where(movable, grad * torch.where(norm > most, most / norm, 1.0), 0.0)
            optimiser.step()
            with torch.no_grad():
                zeta.copy_(torch.where(movable, zeta, 0.0))
            if (step + 1) % self.dual_every == 0:
                dual = (dual + rho * short).detach()
            yield

    def longest(self, rho: float) -> float:
        """The l2 norm that gradients are rescaled to at most.

        Args:
            rho: The coefficient of the step.

        Returns:
            The same at every step.
        """
        return self.clip

    def shrink(self, problem: Problem, theta: Tensor, start: Tensor) -> Tensor:
        """`eps = eta eps` until feasible.

        Args:
            problem: What to solve.
            theta: The extents, `b x d`.
            start: Feasible ones, `b x d`, which are taken where that ends with less.

        Returns:
            The extents, `b x d`.
        """
        pending = torch.arange(len(theta), device=theta.device)
        theta = theta.clone()
        for _ in range(1000):
            part = problem.take(pending)
            bad = ~(part.smallest(theta[pending]) >= 0)
            pending = pending[bad]
            # Smaller than the start: no use going on.
            left = problem.take(pending)
            smaller = left.size(theta[pending]) < left.size(start[pending])
            theta[pending[smaller]] = start[pending[smaller]]
            pending = pending[~smaller]
            if not len(pending):
                break
            theta[pending] *= self.eta
        else:
            theta[pending] = start[pending]
        return theta
