"""Boxes: one radius for all features, an extent per feature, or one per feature and side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from elbowroom.arguments.tensors import tensor_of
from elbowroom.claim.space import Space
from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError
from elbowroom.machine.recorder import Rounds
from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.input_set import InputSet, long_dot
from elbowroom.search.regions.subproblem import Program


class PlacedBox(Placed):
    """A symmetric box, the paper's: `theta = eps`. Where an edge is nearer than eps, the box is cut there."""

    def __init__(
        self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype, basis: Tensor | None = None
    ) -> None:
        super().__init__(x, space, shape, dtype, basis)
        self.cut = bool(((self.below != self.above) & self.free).any())

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

    def by_sides(self, sides: Tensor, by_radius: Tensor, by_center: Tensor | None) -> Tensor:
        if self.basis is not None or self._given[1].held is not None or by_center is None:
            return super().by_sides(sides, by_radius, by_center)
        # Of many features each step that is written out takes as long as the bounds do.
        found = by_radius.new_empty(*by_radius.shape[:2], 2, self.x.shape[1])
        torch.sub(by_radius.flatten(2), by_center.flatten(2), out=found[:, :, 0])
        torch.add(by_radius.flatten(2), by_center.flatten(2), out=found[:, :, 1])
        return found.flatten(2).div_(2)

    def stated(self, theta: Tensor) -> Stated:
        """By its corners, unless it is rotated."""
        if self.basis is not None:
            return super().stated(theta)
        _, space, _ = self._given
        x, (down, up) = self.x, self.extents(theta)
        lower, upper = x - down, x + up
        # Rounded inwards, so that no extent exceeds its cap.
        lower = torch.where(x - lower > down, torch.nextafter(lower, x), lower)
        upper = torch.where(upper - x > up, torch.nextafter(upper, x), upper)
        lower = torch.where(self.free, torch.maximum(lower, space.lowest), x)
        upper = torch.where(self.free, torch.minimum(upper, space.highest), x)
        if space.held is not None:
            held = space.held
            lower, upper = torch.where(held.features, held.lower, lower), torch.where(held.features, held.upper, upper)
        if space.categories is None or space.allowed is None:
            return Stated(lower, upper)
        corners = space.categories.hull(space.allowed, lower, upper)
        return Stated(*corners, categories=space.categories, allowed=space.allowed.clone())

    def widths(self, theta: Tensor) -> Tensor:
        down, up = self.extents(theta)
        return (down + up) / 2

    def growth(self, a: Tensor, left: Tensor, theta: Tensor) -> Program:
        if not self.cut:
            return super().growth(a, left, theta)
        down, up = a.chunk(2, -1)
        near = torch.minimum(self.below, self.above)
        # As far as to the nearer edge: beyond it one side moves, at another price; unless neither costs anything.
        both = (theta < near) & ((down + up) > 0).any(1)
        cost = torch.where(both[:, None], (down + up) / 2, torch.where((self.below < self.above)[:, None], up, down))
        already = 2 * self.widths(theta)
        end = torch.where(both, torch.minimum(near, self.caps), self.caps)
        return Program(
            cost, left, 2 * self.widths(end) - already, self.importance, already,
            lambda v: self.of_widths((already + v) / 2, v),
        )  # fmt: skip

    def of_widths(self, widths: Tensor, lean: Tensor) -> Tensor:
        near = torch.minimum(self.below, self.above)  # beyond which one side stays behind
        return torch.minimum(torch.maximum(widths, 2 * widths - near), self.caps)

    def program(self, a: Tensor, margins: Tensor, theta: Tensor, step: int, rounds: Rounds | None = None) -> Program:
        if not self.cut:
            return super().program(a, margins, theta, step, rounds)
        budget = margins + long_dot(a, self.sides(theta))
        down, up = a.chunk(2, -1)
        near = torch.where(self.free, torch.minimum(self.below, self.above), 0.0)
        far_price = torch.where((self.below < self.above)[:, None], up, down)
        # Per feature one of two regimes: both sides moving, or one side at its edge and only the other moving.
        # A few rounds of prices choose the regime; given it the problem is convex and solved exactly.
        price = down + up
        beyond = _beyond_the_near_edge(price, far_price, budget, near, self.caps, self.importance, rounds)
        fixed = long_dot(price, torch.where(beyond, near, 0.0))
        cost = torch.where(beyond[:, None], far_price, price)
        rest = torch.where(beyond, self.caps - near, near)
        # Widths: 2 eps while both sides move, near + eps = 2 near + (eps - near) beyond.
        already = torch.where(beyond, 2 * near, 0.0)
        rate = torch.where(beyond, 1.0, 2.0)

        def to_theta(v: Tensor) -> Tensor:
            extra = v / rate
            return torch.where(beyond, near + extra, extra)

        return Program(cost.div_(rate[:, None]), budget - fixed, rest * rate, self.importance, already, to_theta)

    def _inside(self, theta: Tensor, moved: Tensor) -> Tensor:
        down, up = self.extents(theta)
        return ((moved >= -down[:, None]) & (moved <= up[:, None])).all(-1)

    def _draw(self, theta: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        down, up = (t[:, None] for t in self.extents(theta))
        share = torch.rand(theta.shape[0], count, self.x.shape[1], dtype=torch.float64, generator=generator)
        return share.to(theta) * (down + up) - down


def _beyond_the_near_edge(
    both: Tensor, far: Tensor, budget: Tensor, near: Tensor, caps: Tensor, importance: Tensor,
    rounds: Rounds | None = None,
) -> Tensor:  # fmt: skip
    """Which features should reach past their nearer edge: `b x n` booleans. `rounds`: where they are recorded."""
    budget = budget.clamp_min(torch.finfo(budget.dtype).tiny)
    weight = importance.sum(1, keepdim=True)
    price = weight / budget / both.shape[1]  # lambda, b x g
    count, every = _PRICE_ROUNDS, (both, far, near, caps, importance)
    if both.shape[2] >= _MANY:  # prices of a sample are nearly those of all
        part = tuple(t[..., ::_EVERY] for t in every)
        fixed = budget * part[-1].sum(1, keepdim=True) / weight, *part
        state = price, torch.zeros_like(part[2], dtype=torch.bool)
        for _ in range(count):
            state = _settled(fixed, state)
        price, count = state[0], _LAST_ROUNDS
    fixed, state = (budget, *every), (price, torch.zeros_like(near, dtype=torch.bool))
    after = (
        None
        if rounds is None
        else rounds.after("prices", lambda held: partial(_settled, held), fixed, state, count, _AT_ONCE)
    )
    if after is not None:
        return after[1]
    for _ in range(count):
        state = _settled(fixed, state)
    return state[1]


def _settled(fixed: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Prices of the rows, `b x g`, after one more round, and which features then reach past their nearer edge, `b x
    n`. `fixed`: budgets, prices of both sides and of the farther one, nearer edges, caps, weights."""
    budget, both, far, near, caps, importance = fixed
    price = state[0]
    p_both, p_far = (torch.bmm(price[:, None], t).squeeze(1).clamp_min(1e-30) for t in (both, far))
    inner = torch.minimum(near, importance / p_both)
    outer = torch.minimum(torch.maximum(importance / p_far - near, near), caps)
    gain_inner = importance * (2 * inner).clamp_min(1e-30).log() - p_both * inner
    gain_outer = importance * (near + outer).clamp_min(1e-30).log() - p_both * near - p_far * (outer - near)
    beyond = (gain_outer >= gain_inner) & (caps > near)
    spent = torch.bmm(both, torch.where(beyond, near, inner)[..., None]).squeeze(-1)
    spent = spent + torch.bmm(far, torch.where(beyond, outer - near, 0.0)[..., None]).squeeze(-1)
    return price * (spent / budget).clamp(0.2, 5.0), beyond


_PRICE_ROUNDS, _LAST_ROUNDS = 30, 4
_AT_ONCE = 5  # rounds of a recording
_MANY, _EVERY = 1 << 14, 17  # features, from where on prices are settled on a sample first; one of how many is in it


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

    def growth(self, a: Tensor, left: Tensor, theta: Tensor) -> Program:
        return Placed.growth(self, a, left, theta)

    def of_widths(self, widths: Tensor, lean: Tensor) -> Tensor:
        below, above = self.caps.chunk(2, 1)
        down = torch.minimum(2 * widths * lean, below)
        up = torch.minimum(2 * widths - down, above)
        return torch.cat([torch.minimum(2 * widths - up, below), up], 1)

    def program(self, a: Tensor, margins: Tensor, theta: Tensor, step: int, rounds: Rounds | None = None) -> Program:
        return Program(a, margins + long_dot(a, theta), self.caps, self.importance)


@dataclass(frozen=True, eq=False)
class Uniform(Region):
    """The same radius for all features, times `scale` where given: the baseline.

    Args:
        scale: Positive, broadcasts to the input; the sensible choice where features have different units.

    Raises:
        InputError: The scale is not positive and finite for every feature.
    """

    scale_by: Tensor | None = None

    placed = PlacedBox
    stated_by_corners = True
    one_radius = True

    def __init__(self, scale: Tensor | float | None = None) -> None:
        value = None if scale is None else tensor_of(scale).detach().to(torch.float64)
        if value is not None and not bool(((value > 0) & value.isfinite()).all()):
            raise InputError("Uniform(scale=...) must be positive and finite for every feature")
        object.__setattr__(self, "scale_by", value)

    @property
    def name(self) -> str:
        return "Box(uniform)"

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
    """A box with its own extent per feature: the paper's shape.

    Args:
        asymmetric: Whether each side of a feature has an extent of its own.
    """

    asymmetric: bool = False

    stated_by_corners = True

    @property
    def placed(self) -> type[Placed]:  # type: ignore[override]
        return PlacedAsymmetricBox if self.asymmetric else PlacedBox

    @property
    def name(self) -> str:
        return "Box(asymmetric)" if self.asymmetric else "Box"

    def theta(self, down: Tensor, up: Tensor) -> Tensor:
        return torch.cat([down, up], 1) if self.asymmetric else super().theta(down, up)
