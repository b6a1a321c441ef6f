"""The paper's Algorithm 2: the augmented Lagrangian method, for comparison and reproduction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.search.solvers.problem import Problem, Solution


@dataclass(frozen=True)
class AugmentedLagrangian:
    """The authors' numbers of steps, dual updates, rho schedule and eta by default; `rate` and `clip` are ours.

    Seven pairs of rate (3e-3 to 1e-2) and clip were tried on the reference images of `benchmarks/solvers.py`, and
    the best kept: a clip that acts only on explosions. Where rescaling acts all the time, averages fell by up to a
    tenth.

    `steps`: gradient steps; `dual_every`: a dual update after so many; `rho`, `rho_factor`, `rho_every`:
    the coefficient and its schedule; `rate`: Adam's; `clip`: the gradient's l2 norm is rescaled to this at most;
    `eta`: the final shrink factor.
    """

    steps: int = 400
    dual_every: int = 5
    rho: float = 1.0
    rho_factor: float = 5.0
    rho_every: int = 80
    rate: float = 5e-3
    clip: float = 1e4
    eta: float = 0.99

    def solve(self, problem: Problem, start: Tensor) -> Solution:
        """From `start`, `b x d`; if the result is infeasible after the shrink, or smaller, it is `start` again."""
        region = problem.region
        movable = region.caps > 0
        zeta = torch.where(movable, start, 0.0).sqrt().requires_grad_()  # eps = zeta^2
        adam = torch.optim.Adam([zeta], lr=self.rate, betas=(0.9, 0.99))
        dual: Tensor | None = None
        rho = self.rho
        positions = problem.index.cpu()
        for step in range(self.steps):
            if step and step % self.rho_every == 0:
                rho *= self.rho_factor
            theta = torch.minimum(zeta**2, region.caps)
            margins = problem.evaluate(region.input_set(region.sides(theta)), problem.index)
            problem.work.evaluations[positions] += 1
            problem.work.gradients[positions] += 1
            problem.work.rows[positions] += 1
            dual = torch.zeros_like(margins) if dual is None else dual
            # v - y with the best slack y = max(0, v + dual / rho) plugged in.
            short = torch.minimum(margins, -dual / rho)
            loss = -region.objective(theta) + (dual * short).sum(1) + rho / 2 * (short**2).sum(1)
            (grad,) = torch.autograd.grad(loss.sum(), zeta)
            grad = torch.nan_to_num(grad, nan=0.0, posinf=0.0, neginf=0.0)
            norm = torch.linalg.vector_norm(grad, dim=1, keepdim=True)
            zeta.grad = torch.where(movable, grad * (self.clip / norm.clamp_min(self.clip)), 0.0)
            adam.step()
            with torch.no_grad():
                zeta.copy_(torch.where(movable, zeta, 0.0))
            if (step + 1) % self.dual_every == 0:
                dual = (dual + rho * short).detach()
        with torch.no_grad():
            theta = torch.minimum(zeta**2, region.caps)
        found = self._shrink(problem, theta.detach(), start)
        better = region.objective(found) > region.objective(start)
        return Solution(torch.where(better[:, None], found, start), f"augmented Lagrangian: {self.steps} steps")

    def _shrink(self, problem: Problem, theta: Tensor, start: Tensor) -> Tensor:
        """`eps = eta eps` until feasible; an input that never gets there falls back on `start`."""
        pending = torch.arange(len(theta), device=theta.device)
        theta = theta.clone()
        for _ in range(1000):
            part = problem.take(pending)
            bad = ~(part.smallest(theta[pending]) >= 0)
            pending = pending[bad]
            # Smaller than the start: no use going on.
            smaller = problem.region.take(pending).objective(theta[pending]) < problem.region.take(pending).objective(
                start[pending]
            )
            theta[pending[smaller]] = start[pending[smaller]]
            pending = pending[~smaller]
            if not len(pending):
                break
            theta[pending] *= self.eta
        else:
            theta[pending] = start[pending]
        return theta
