"""What a certificate says of its region, on the way to being proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.claim.space import Space
from elbowroom.proof.kernel.walk import Area
from elbowroom.search.regions.base import Placed
from elbowroom.search.regions.box import PlacedBox


@dataclass
class Claim:
    """Regions in float64, `b x n`: boxes by their corners, anything else by centre, radius and basis (`lower` and
    `upper` then mean nothing)."""

    lower: Tensor
    upper: Tensor
    middle: Tensor | None = None
    radius: Tensor | None = None
    p: float = torch.inf
    basis: Tensor | None = None

    @staticmethod
    def of(region: Placed, theta: Tensor, limits: Space, boxes: bool) -> Claim:
        """The regions that `theta` stands for; `boxes`: whether they are stated by their corners."""
        sides = region.input_set(region.sides(theta))
        center, radius = sides.center.flatten(1), sides.radius.flatten(1)
        if not (boxes and isinstance(region, PlacedBox)):
            return Claim(center - radius, center + radius, center, radius, region.p, sides.basis)
        down, up = region.extents(theta)
        x, free = region.x, limits.free
        lower, upper = x - down, x + up
        # Rounded inwards, so that no extent exceeds its cap.
        lower = torch.where(x - lower > down, torch.nextafter(lower, x), lower)
        upper = torch.where(upper - x > up, torch.nextafter(upper, x), upper)
        lower = torch.where(free, torch.maximum(lower, limits.lowest), x)
        upper = torch.where(free, torch.minimum(upper, limits.highest), x)
        return Claim(lower, upper)

    def take(self, index: Tensor) -> Claim:
        middle = None if self.middle is None else self.middle[index]
        radius = None if self.radius is None else self.radius[index]
        return Claim(self.lower[index], self.upper[index], middle, radius, self.p, self.basis)

    def scaled(self, x: Tensor, factor: Tensor) -> Claim:
        """The regions shrunk about their inputs by `factor`, `b`, at most 1: all sides alike, those cut to the domain
        included. They lie in the regions they were, whatever rounding does."""
        f = factor[:, None]

        def towards(t: Tensor) -> Tensor:
            return torch.where(f < 1, x + f * (t - x), t)

        lower, upper = torch.maximum(towards(self.lower), self.lower), torch.minimum(towards(self.upper), self.upper)
        middle = None if self.middle is None else towards(self.middle)
        radius = None if self.radius is None else f * self.radius
        return Claim(lower, upper, middle, radius, self.p, self.basis)

    def put(self, index: Tensor, other: Claim) -> None:
        """Replaces some of the regions by those of `other`."""
        for name in ("lower", "upper", "middle", "radius"):
            t = getattr(self, name)
            if t is not None:
                t[index] = getattr(other, name)

    def thinnest(self, x: Tensor, free: Tensor) -> Tensor:
        """By how many powers of 2 the regions can shrink before float64 holds no number beside `x`, `b`: of boxes. (The
        extents of the others are numbers by themselves.)"""
        if self.radius is not None:
            return torch.full_like(x[:, 0], torch.inf)
        grain = (torch.finfo(x.dtype).eps * x.abs()).clamp_min(torch.finfo(x.dtype).tiny)
        return torch.where(free, self.half_widths() / grain, torch.inf).amin(1).log2()

    def area(self) -> Area:
        if self.middle is None:
            return Area(self.lower, self.upper)
        return Area(center=self.middle, radius=self.radius, p=self.p, basis=self.basis)

    def center(self) -> Tensor:
        if self.middle is not None:
            return self.middle
        # Halves of subnormal numbers are rounded, and may leave the box.
        return torch.minimum(torch.maximum(self.lower / 2 + self.upper / 2, self.lower), self.upper)

    def half_widths(self) -> Tensor:
        """Rounded inwards."""
        if self.radius is not None:
            return self.radius
        half = self.upper / 2 - self.lower / 2
        return torch.where(half > 0, torch.nextafter(half, torch.zeros_like(half)), 0.0)


# How regions shrink, by powers of 2: the first step, its growth, the last, and how near to the largest they end.
_FIRST, _GROWTH, _LAST, _NEAR = 1e-7, 4.0, 40.0, 5e-3


def largest_proved(
    whole: Claim,
    x: Tensor,
    free: Tensor,
    wanted: Tensor,
    prove: Callable[[Claim, Tensor], Tensor],
    passes: Callable[[Tensor], Tensor],
    margins: Tensor,
) -> tuple[Claim, Tensor, Tensor]:
    """The largest regions found that are proved, `whole` or smaller; their margins; and how much smaller they are, `b`:
    zero where nothing was proved.

    `x`, `free`: `b x n`, the inputs and which features may move. `wanted`: `b`, for whom. `prove`: from some regions
    and the numbers of their inputs to margins, `passes`: from those to which will do. `margins`: `b x g`, filled in.
    First by steps that grow, tiny ones for what rounding took, then by halving the gap between the last that was
    refused and the first that was proved. Proofs need not be monotone in the size: what is returned was proved.
    """
    claim = whole.scaled(x, torch.ones_like(x[:, 0]))
    # Of each factor 2^-t: the last t refused, the least t proved, the next to try, the last worth trying.
    refused, proved = x.new_zeros(len(x)), x.new_full((len(x),), torch.inf)
    trial, last = refused.clone(), whole.thinnest(x, free).clamp(0, _LAST)
    pending = wanted.nonzero().squeeze(1)
    while len(pending):
        part = whole.take(pending).scaled(x[pending], torch.exp2(-trial[pending]))
        found = prove(part, pending)
        # A region too thin for float64 in some free feature is no region.
        ok = passes(found) & ((part.half_widths() > 0) | ~free[pending]).all(1)
        good, bad = pending[ok], pending[~ok]
        margins[good], proved[good], refused[bad] = found[ok], trial[good], trial[bad]
        claim.put(good, part.take(ok))
        step = torch.where(refused > 0, _GROWTH * refused, _FIRST)
        trial = torch.where(proved.isfinite(), (refused + proved) / 2, torch.minimum(step, last))
        ended = (proved - refused <= _NEAR) | (proved.isinf() & (refused >= last))
        pending = pending[~ended[pending]]
    return claim, margins, torch.exp2(-proved)


__all__ = ["Claim", "largest_proved"]
