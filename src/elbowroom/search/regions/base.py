"""What a shape of a certified region is (the paper's section 2 and 5; see docs for a table of them).

A shape is a small frozen object. `place` puts it around a batch of inputs in their `Space`, which gives a `Placed`
region: everything a solver needs to know of the geometry, in terms of parameters `theta` (`b x d`, all >= 0).
Features are flat here (`b x n`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from elbowroom.claim.directions import coordinates
from elbowroom.claim.space import Space
from elbowroom.claim.stated import Stated
from elbowroom.machine.recorder import Rounds
from elbowroom.machine.torch_modes import recordable
from elbowroom.search.regions.input_set import InputSet, long_dot
from elbowroom.search.regions.objective import Objective
from elbowroom.search.regions.subproblem import Program


class Placed:
    """A shape around a batch of inputs. Subclasses say what `theta` means.

    `x`: the inputs, `b x n`; `below`, `above`: how far each feature may move; `importance`: all in `dtype`. `free`:
    features that may move. `shape`: that of one input, without the batch.
    """

    p: ClassVar[float] = math.inf

    def __init__(
        self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype, basis: Tensor | None = None
    ) -> None:
        """`x`, `space`: in float64."""
        # As given: what is cast down and up again would be another place, and another basis.
        self._given = x, space, basis
        self.shape = shape
        self.dtype = dtype
        self.x, self.importance, self.free = x.to(dtype), space.importance.to(dtype), space.free
        self.below, self.above = (t.to(dtype) for t in space.around(x))
        self.basis = None if basis is None else recordable(basis.to(self.x))
        self.caps = self._caps()

    def take(self, index: Tensor) -> Placed:
        """The same shape around some of the inputs."""
        x, space, basis = self._given
        return type(self)(x[index], space.part(index), self.shape, self.dtype, basis)

    @property
    def n_free(self) -> Tensor:
        return self.free.sum(1)

    # --- what theta means

    def _caps(self) -> Tensor:
        """The largest theta. Of a symmetric shape: the farther of the two edges; zero where frozen."""
        return torch.where(self.free, torch.maximum(self.below, self.above), 0.0)

    def uniform(self, radius: Tensor, scale: Tensor) -> Tensor:
        """The parameters of the uniform region of this shape: `radius` (`b`) times `scale` (`b x n`), capped."""
        return torch.minimum(radius[:, None] * scale, self.caps)

    def sides(self, theta: Tensor) -> Tensor:
        """The quantities margins are linearised in, `b x s`. They determine the input set."""
        return theta

    def input_set(self, sides: Tensor) -> InputSet:
        """The set of inputs, differentiable by `sides`."""
        return self._set(self.x, sides)

    def by_sides(self, sides: Tensor, by_radius: Tensor, by_center: Tensor | None) -> Tensor:
        """Derivatives by the sides, `k x b x s`, at `sides`, given those by what the input set is made of there, `k x
        b x *input_shape`; `by_center` None where the centre stays where it is."""
        with torch.enable_grad():
            sides = sides.detach().requires_grad_()
            inputs = self.input_set(sides)
        made, by = [inputs.radius], [by_radius]
        if by_center is not None:
            made, by = [*made, inputs.center], [*by, by_center]

        def along(*unit: Tensor) -> Tensor:
            return torch.autograd.grad(made, sides, unit, retain_graph=True)[0]

        found: Tensor = torch.func.vmap(along)(*by)
        return found

    def stated(self, theta: Tensor) -> Stated:
        """The region as a certificate states it. Placed in float64."""
        found = self.input_set(self.sides(theta))
        return Stated(center=found.center.flatten(1), radius=found.radius.flatten(1), p=self.p, basis=self.basis)

    def sharpness(self, step: int) -> float:
        """Of the derivatives that serve a solver best in its step number `step`, see `InputSet`."""
        return math.inf

    def _set(self, center: Tensor, radius: Tensor) -> InputSet:
        shape, space = (len(center), *self.shape), self._given[1]
        if space.held is not None:
            low, high = space.held.lower.to(center), space.held.upper.to(center)
            center = torch.where(space.held.features, low / 2 + high / 2, center)
            radius = torch.where(space.held.features, high / 2 - low / 2, radius)
        return InputSet(
            center.reshape(shape), radius.reshape(shape), self.p, self.basis, categories=space.categories,
            allowed=space.allowed,
        )  # fmt: skip

    def widths(self, theta: Tensor) -> Tensor:
        """Half the extent of each feature, `b x n`; a volume is the weighted sum of their logs."""
        return theta

    def grow(self, theta: Tensor, factor: Tensor) -> Tensor:
        """The region scaled about the input, capped; `factor`: `b`."""
        return torch.minimum(theta * factor[:, None], self.caps)

    def mix(self, old: Tensor, new: Tensor, share: Tensor) -> Tensor:
        """Between two regions, in log space (zero stays zero)."""
        tiny = torch.finfo(old.dtype).tiny
        t = share[:, None]
        mixed = torch.exp((1 - t) * old.clamp_min(tiny).log() + t * new.clamp_min(tiny).log())
        return torch.where(self.caps > 0, torch.minimum(mixed, self.caps), 0.0)

    # --- how large it is

    def log_geomean(self, theta: Tensor) -> Tensor:
        """Log of the geometric mean of the half-widths over the free features, `b`."""
        log = torch.where(self.free, self.widths(theta), 1.0).log()
        return log.sum(1) / self.n_free

    def log_volume(self, theta: Tensor) -> Tensor:
        """Log of the volume in the free features' space, `b`."""
        n = self.n_free
        return n * self.log_geomean(theta) + self.log_unit_volume(n)

    def log_unit_volume(self, n: Tensor) -> Tensor:
        """Log-volume of the shape with all half-widths 1 in `n` dimensions, `b`."""
        n = n.double()
        return n * (math.log(2) + math.lgamma(1 + 1 / self.p)) - torch.lgamma(1 + n / self.p)

    # --- the sub-problem, and points

    def program(self, a: Tensor, margins: Tensor, theta: Tensor, step: int, rounds: Rounds | None = None) -> Program:
        """What is asked for under margins linearised at `theta`, with derivatives of `sharpness(step)`.

        `a`: `b x g x s`, minus the derivatives of the margins by the sides, not negative; `margins`: `b x g`.
        `rounds`: where what is done again and again is recorded.
        """
        budget = margins + long_dot(a, self.sides(theta))
        return Program(a, budget, self.caps, self.importance)

    def respond(self, objective: Objective, a: Tensor, margins: Tensor, theta: Tensor, step: int) -> Tensor:
        """The best region under margins linearised at `theta`, see `program`."""
        return objective.respond(self, a, margins, theta, step)

    def growth(self, a: Tensor, left: Tensor, theta: Tensor) -> Program:
        """What can be added to the region `theta`, no extent becoming less, where `left`, `b x g`, may be spent."""
        already = theta.reshape(len(theta), -1, self.x.shape[1]).sum(1)
        return Program(a, left, self.caps - theta, self.importance, already, lambda v: theta + v)

    def of_widths(self, widths: Tensor, lean: Tensor) -> Tensor:
        """The parameters, `b x d`, of regions with these half-widths, `b x n`, none beyond what there is room for.
        `lean`: `b x n`, how much of each should lie below the input, where that is a choice."""
        return widths

    def contains(self, theta: Tensor, points: Tensor) -> Tensor:
        """Which of `points` (`b x m x n`) lie in the region, `b x m`."""
        moved = points - self.x[:, None]
        if self.basis is not None:
            moved = coordinates(self.basis, moved)
        return self._inside(theta, moved)

    def _inside(self, theta: Tensor, moved: Tensor) -> Tensor:
        size = theta[:, None]
        scaled = torch.where(
            size > 0, moved / torch.where(size > 0, size, 1.0), torch.where(moved == 0, 0.0, torch.inf)
        )
        inside: Tensor = torch.linalg.vector_norm(scaled, ord=self.p, dim=-1) <= 1
        return inside

    def sample(self, theta: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Points drawn uniformly from the region, `b x count x n`."""
        moved = self._draw(theta, count, generator)
        if self.basis is not None:
            moved = moved @ self.basis.T
        return self.x[:, None] + moved

    def _draw(self, theta: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        b, n = self.x.shape
        free = self.free[:, None]
        unit = _uniform_in_ball(b, count, n, self.p, free.expand(b, count, n), generator).to(theta)
        return unit * theta[:, None]


def _uniform_in_ball(b: int, count: int, n: int, p: float, free: Tensor, generator: torch.Generator | None) -> Tensor:
    """Uniform in `||v||_p <= 1` over the free coordinates, zero in the others."""
    if p == math.inf:
        v = 2 * torch.rand(b, count, n, dtype=torch.float64, generator=generator) - 1
        return torch.where(free.cpu(), v, 0.0)
    # A direction with density exp(-|v|^p), then a radius: uniform in the ball.
    if p == 2:
        v = torch.randn(b, count, n, dtype=torch.float64, generator=generator)
    else:
        # |v|^p is then distributed by Gamma(1 / p); of p = 1 it is the exponential distribution.
        shape = torch.full((b, count, n), 1 / p, dtype=torch.float64)
        v = torch._standard_gamma(shape, generator=generator).clamp_min(1e-300) ** (1 / p)
        v = v * torch.sign(torch.rand(b, count, n, dtype=torch.float64, generator=generator) - 0.5)
    v = torch.where(free.cpu(), v, 0.0)
    v = v / v.abs().amax(-1, keepdim=True).clamp_min(1e-300)
    norm = torch.linalg.vector_norm(v, ord=p, dim=-1, keepdim=True).clamp_min(1e-300)
    dims = free.sum(-1, keepdim=True).cpu().to(torch.float64)
    points: Tensor = (
        v / norm * torch.rand(b, count, 1, dtype=torch.float64, generator=generator) ** (1 / dims.clamp_min(1))
    )
    return points


@dataclass(frozen=True, eq=False)
class Region:
    """A shape: see the subclasses, each in a file of its own, and `registry`, which knows them by name.

    `placed`: what it is around inputs. `stated_by_corners`: a certificate states it by its corners; else by centre,
    extents and basis. `one_radius`: its only parameter is a radius, so that there is nothing to solve for. `basis`: of
    a shape that is rotated, `n x n`.
    """

    placed: ClassVar[type[Placed]]
    stated_by_corners: ClassVar[bool] = False
    one_radius: ClassVar[bool] = False
    basis: ClassVar[Tensor | None] = None

    @property
    def name(self) -> str:
        """As certificates state it."""
        return type(self).__name__

    @property
    def p(self) -> float:
        """The norm of the region."""
        return self.placed.p

    def place(self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype) -> Placed:
        """The shape around inputs `x`, `b x n`, each of `shape`, computing in `dtype`."""
        return self.placed(x, space, shape, dtype)

    def scale(self, placed: Placed) -> Tensor:
        """The direction, `b x n`, along which the uniform baseline grows."""
        return torch.where(placed.free, torch.ones_like(placed.x), 0.0)

    def binding(self, space: Space) -> Space:
        """What of the space the shape is held to."""
        return space

    def theta(self, down: Tensor, up: Tensor) -> Tensor:
        """The parameters, `b x d`, of regions that reach so far down and up, `b x n` each."""
        return torch.maximum(down, up)
