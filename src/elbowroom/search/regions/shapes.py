"""The shapes a certified region can have (the paper's section 2 and 5; see docs for a table of them).

A shape is a small frozen object. `place` puts it around a batch of inputs in their `Space`, which gives a `Placed`
region: everything a solver needs to know of the geometry, in terms of parameters `theta` (`b x d`, all >= 0).
Features are flat here (`b x n`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.arguments.tensors import tensor_of
from elbowroom.claim.space import Space
from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import in_own_modes, recordable
from elbowroom.search.regions.input_set import InputSet
from elbowroom.search.regions.subproblem import largest_widths


class Placed:
    """A shape around a batch of inputs. Subclasses say what `theta` means.

    `x`: the inputs, `b x n`; `below`, `above`: how far each feature may move; `importance`: all in `dtype`. `free`:
    features that may move. `shape`: that of one input, without the batch.
    """

    p = math.inf

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

    def sharpness(self, step: int) -> float:
        """Of the derivatives that serve a solver best in its step number `step`, see `InputSet`."""
        return math.inf

    def _set(self, center: Tensor, radius: Tensor) -> InputSet:
        shape = (len(center), *self.shape)
        return InputSet(center.reshape(shape), radius.reshape(shape), self.p, self.basis)

    def widths(self, theta: Tensor) -> Tensor:
        """Half the extent of each feature, `b x n`; the objective is the weighted sum of their logs."""
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

    def objective(self, theta: Tensor) -> Tensor:
        """`sum_k importance_k log width_k` over the free features, `b`."""
        log = torch.where(self.free, self.widths(theta), 1.0).log()
        return (self.importance * log).sum(1)

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
        return n.double() * math.log(2)

    # --- the sub-problem, and points

    def respond(self, a: Tensor, margins: Tensor, theta: Tensor, step: int = 0) -> Tensor:
        """The largest region under margins linearised at `theta`.

        `a`: `b x g x s`, minus the derivatives of the margins by the sides, not negative, of `sharpness(step)`;
        `margins`: `b x g`.
        """
        budget = margins + (a * self.sides(theta)[:, None]).sum(-1)
        return largest_widths(a, budget, self.caps, self.importance)

    def contains(self, theta: Tensor, points: Tensor) -> Tensor:
        """Which of `points` (`b x m x n`) lie in the region, `b x m`."""
        moved = points - self.x[:, None]
        if self.basis is not None:
            moved = moved @ self.basis
        return self._inside(theta, moved)

    def _inside(self, theta: Tensor, moved: Tensor) -> Tensor:
        size = theta[:, None]
        scaled = torch.where(
            size > 0, moved / torch.where(size > 0, size, 1.0), torch.where(moved == 0, 0.0, torch.inf)
        )
        return torch.linalg.vector_norm(scaled, ord=self.p, dim=-1) <= 1

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
        v = -torch.rand(b, count, n, dtype=torch.float64, generator=generator).clamp_min(1e-300).log()
        v = v * torch.sign(torch.rand(b, count, n, dtype=torch.float64, generator=generator) - 0.5)
    v = torch.where(free.cpu(), v, 0.0)
    norm = torch.linalg.vector_norm(v, ord=p, dim=-1, keepdim=True).clamp_min(1e-300)
    dims = free.sum(-1, keepdim=True).cpu().to(torch.float64)
    return v / norm * torch.rand(b, count, 1, dtype=torch.float64, generator=generator) ** (1 / dims.clamp_min(1))


class PlacedBox(Placed):
    """A symmetric box, the paper's: `theta = eps`. Where an edge is nearer than eps, the box is cut there."""

    def __init__(
        self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype, basis: Tensor | None = None
    ) -> None:
        super().__init__(x, space, shape, dtype, basis)
        self.cut = bool((self.below != self.above)[self.free].any())

    def extents(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """How far the box reaches down and up, `b x n` each."""
        return torch.minimum(theta, self.below), torch.minimum(theta, self.above)

    def sides(self, theta: Tensor) -> Tensor:
        return torch.cat(self.extents(theta), 1) if self.cut else theta

    def input_set(self, sides: Tensor) -> InputSet:
        if sides.shape[1] == self.x.shape[1]:
            return self._set(self.x, sides)
        down, up = sides.chunk(2, 1)
        shift = (up - down) / 2
        if self.basis is not None:
            shift = shift @ self.basis.T
        return self._set(self.x + shift, (up + down) / 2)

    def widths(self, theta: Tensor) -> Tensor:
        down, up = self.extents(theta)
        return (down + up) / 2

    def respond(self, a: Tensor, margins: Tensor, theta: Tensor, step: int = 0) -> Tensor:
        if not self.cut:
            return super().respond(a, margins, theta)
        budget = margins + (a * self.sides(theta)[:, None]).sum(-1)
        down, up = a.chunk(2, -1)
        near = torch.where(self.free, torch.minimum(self.below, self.above), 0.0)
        far_price = torch.where((self.below < self.above)[:, None], up, down)
        # Per feature one of two regimes: both sides moving, or one side at its edge and only the other moving.
        # A few rounds of prices choose the regime; given it the problem is convex and solved exactly.
        beyond = _beyond_the_near_edge(down + up, far_price, budget, near, self.caps, self.importance)
        both = torch.where(beyond, 0.0, 1.0)[:, None]
        cost = torch.where(beyond[:, None], far_price, down + up)
        fixed = (torch.where(beyond, near, 0.0)[:, None] * (down + up)).sum(-1)
        rest = torch.where(beyond, self.caps - near, near)
        # Widths: 2 eps while both sides move, near + eps = 2 near + (eps - near) beyond.
        already = torch.where(beyond, 2 * near, 0.0)
        rate = torch.where(both.squeeze(1) > 0, 2.0, 1.0)
        extra = largest_widths(cost / rate[:, None], budget - fixed, rest * rate, self.importance, already) / rate
        return torch.where(beyond, near + extra, extra)

    def _inside(self, theta: Tensor, moved: Tensor) -> Tensor:
        down, up = self.extents(theta)
        return ((moved >= -down[:, None]) & (moved <= up[:, None])).all(-1)

    def _draw(self, theta: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        down, up = (t[:, None] for t in self.extents(theta))
        share = torch.rand(theta.shape[0], count, self.x.shape[1], dtype=torch.float64, generator=generator)
        return share.to(theta) * (down + up) - down


def _beyond_the_near_edge(
    both: Tensor, far: Tensor, budget: Tensor, near: Tensor, caps: Tensor, importance: Tensor
) -> Tensor:
    """Which features should reach past their nearer edge: `b x n` booleans."""
    budget = budget.clamp_min(torch.finfo(budget.dtype).tiny)
    weight = importance.sum(1, keepdim=True)
    price = weight / budget / both.shape[1]  # lambda, b x g
    beyond = torch.zeros_like(near, dtype=torch.bool)
    for _ in range(_PRICE_ROUNDS):
        p_both = (price[:, :, None] * both).sum(1).clamp_min(1e-30)
        p_far = (price[:, :, None] * far).sum(1).clamp_min(1e-30)
        inner = torch.minimum(near, importance / p_both)
        outer = torch.minimum(torch.maximum(importance / p_far - near, near), caps)
        gain_inner = importance * (2 * inner).clamp_min(1e-30).log() - p_both * inner
        gain_outer = importance * (near + outer).clamp_min(1e-30).log() - p_both * near - p_far * (outer - near)
        beyond = (gain_outer >= gain_inner) & (caps > near)
        spent = torch.where(
            beyond[:, None], both * near[:, None] + far * (outer - near)[:, None], both * inner[:, None]
        ).sum(-1)
        price = price * (spent / budget).clamp(0.2, 5.0)
    return beyond


_PRICE_ROUNDS = 30


class PlacedAsymmetricBox(PlacedBox):
    """A box with its own extent on each side: `theta = (down, up)`, `b x 2n`."""

    def _caps(self) -> Tensor:
        return torch.cat([torch.where(self.free, side, 0.0) for side in (self.below, self.above)], 1)

    def uniform(self, radius: Tensor, scale: Tensor) -> Tensor:
        return torch.minimum((radius[:, None] * scale).repeat(1, 2), self.caps)

    def extents(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        down, up = theta.chunk(2, 1)
        return down, up

    def sides(self, theta: Tensor) -> Tensor:
        return theta

    def mix(self, old: Tensor, new: Tensor, share: Tensor) -> Tensor:
        # A side may rightly be zero, so the mix is of extents, not of their logs.
        return torch.minimum((1 - share[:, None]) * old + share[:, None] * new, self.caps)

    def respond(self, a: Tensor, margins: Tensor, theta: Tensor, step: int = 0) -> Tensor:
        budget = margins + (a * theta[:, None]).sum(-1)
        return largest_widths(a, budget, self.caps, self.importance)


class PlacedEllipsoid(Placed):
    """`||(x' - x) / eps||_2 <= 1`, the paper's p = 2: `theta = eps`."""

    p = 2

    def log_unit_volume(self, n: Tensor) -> Tensor:
        return n.double() / 2 * math.log(math.pi) - torch.lgamma(n.double() / 2 + 1)

    def respond(self, a: Tensor, margins: Tensor, theta: Tensor, step: int = 0) -> Tensor:
        # The margin spends ||c * eps||_2 on the region: squared, sum_k c_k^2 eps_k^2, it is the box's problem in eps^2.
        # The derivative by eps_k is -c_k^2 eps_k / ||c * eps||, which gives c_k^2. (In float64, since float32 holds
        # no squares of small or large units.)
        spent = (a * theta[:, None]).sum(-1).double()
        squares = a.double() * spent[..., None] / theta.double().clamp_min(torch.finfo(torch.float64).tiny)[:, None]
        caps = self.caps.double() ** 2
        found = largest_widths(squares, (margins + spent) ** 2, caps, self.importance / 2)
        return found.sqrt().to(theta.dtype)


class PlacedL1(Placed):
    """`||(x' - x) / eps||_1 <= 1`: `theta = eps`."""

    p = 1

    def log_unit_volume(self, n: Tensor) -> Tensor:
        return n.double() * math.log(2) - torch.lgamma(n.double() + 1)

    def sharpness(self, step: int) -> float:
        # Soft at first, so that all features are heard; sharper as the region takes its shape.
        return float(min(4 * 2**step, 32))

    def respond(self, a: Tensor, margins: Tensor, theta: Tensor, step: int = 0) -> Tensor:
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
class Region:
    """A shape: see the subclasses."""

    p = math.inf  # the norm of the region

    def place(self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype) -> Placed:
        """The shape around inputs `x`, `b x n`, each of `shape`, computing in `dtype`."""
        raise NotImplementedError

    def scale(self, placed: Placed) -> Tensor:
        """The direction, `b x n`, along which the uniform baseline grows."""
        return torch.where(placed.free, torch.ones_like(placed.x), 0.0)

    def binding(self, space: Space) -> Space:
        """What of the space the shape is held to."""
        return space


@dataclass(frozen=True, eq=False)
class Uniform(Region):
    """The same radius for all features, times `scale` where given: the baseline.

    `scale`: positive, broadcasts to the input; the sensible choice where features have different units.
    """

    scale_by: Tensor | None = None

    def __init__(self, scale: Tensor | float | None = None) -> None:
        value = None if scale is None else tensor_of(scale).detach().to(torch.float64)
        if value is not None and not bool(((value > 0) & value.isfinite()).all()):
            raise InputError("Uniform(scale=...) must be positive and finite for every feature")
        object.__setattr__(self, "scale_by", value)

    def place(self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype) -> Placed:
        return PlacedBox(x, space, shape, dtype)

    def scale(self, placed: Placed) -> Tensor:
        base = super().scale(placed)
        if self.scale_by is None:
            return base
        x = placed.x
        factor = self.scale_by.to(x)
        factor = factor.reshape(-1) if factor.numel() == x.shape[1] else factor
        try:
            return base * factor.expand_as(x)
        except RuntimeError:
            raise InputError(
                f"Uniform(scale=...) of shape {tuple(self.scale_by.shape)} does not fit {x.shape[1]} features"
            ) from None


@dataclass(frozen=True, eq=False)
class Box(Region):
    """A box with its own extent per feature (the paper's shape); `asymmetric`: per feature and side."""

    asymmetric: bool = False

    def place(self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype) -> Placed:
        return (PlacedAsymmetricBox if self.asymmetric else PlacedBox)(x, space, shape, dtype)


@dataclass(frozen=True, eq=False)
class Ellipsoid(Region):
    """An axis-aligned ellipsoid with its own semi-axis per feature."""

    p = 2

    def place(self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype) -> Placed:
        return PlacedEllipsoid(x, space, shape, dtype)


@dataclass(frozen=True, eq=False)
class L1(Region):
    """A cross-polytope with its own extent per feature: few features change much, or many a little."""

    p = 1

    def place(self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype) -> Placed:
        return PlacedL1(x, space, shape, dtype)


@dataclass(frozen=True, eq=False)
class Oblique(Region):
    """Another shape in a rotated basis (the paper's "oblique bounds").

    `basis`: orthogonal, `n x n`, columns are the directions. Extents, `frozen` and `importance` then
    belong to directions, not to features.
    """

    basis: Tensor
    inner: Region = Box()

    @in_own_modes
    def __post_init__(self) -> None:
        basis = tensor_of(self.basis).detach()
        if basis.dim() != 2 or basis.shape[0] != basis.shape[1]:
            raise InputError(f"basis must be a square matrix, got shape {tuple(basis.shape)}")
        error = (basis.double().T @ basis.double() - torch.eye(len(basis)).to(basis.double())).abs().max()
        if not float(error) < 1e-4:
            raise InputError(f"basis must be orthogonal: its columns are off by {float(error):.1e}")
        object.__setattr__(self, "basis", basis)
        if isinstance(self.inner, (Oblique, Uniform)):
            raise InputError("inner must be Box, Ellipsoid or L1")

    def place(self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype) -> Placed:
        if len(self.basis) != x.shape[1]:
            raise InputError(f"basis is for {len(self.basis)} features, the network has {x.shape[1]}")
        placed = self.inner.place(x, space, shape, dtype)
        return type(placed)(x, space, shape, dtype, self.basis)

    def binding(self, space: Space) -> Space:
        """A domain limits features, not the directions of a rotated shape: those have their caps alone."""
        return space.without_domain()

    @property
    def p(self) -> float:  # type: ignore[override]
        return self.inner.p
