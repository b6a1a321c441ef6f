"""What a certificate says of its region, on the way to being proved."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.check.strict import Area
from elbowroom.limits import Limits
from elbowroom.regions.shapes import Placed, PlacedBox


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
    def of(region: Placed, theta: Tensor, limits: Limits, boxes: bool) -> Claim:
        """The regions that `theta` stands for; `boxes`: whether they are stated by their corners."""
        sides = region.input_set(region.sides(theta))
        center, radius = sides.center.flatten(1), sides.radius.flatten(1)
        if not (boxes and isinstance(region, PlacedBox)):
            return Claim(center - radius, center + radius, center, radius, region.p, sides.basis)
        down, up = region.extents(theta)
        x, free = region.room.x, limits.free
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

    def pull_in(self, index: Tensor, x: Tensor, factor: float) -> None:
        """Scales some of the regions about their inputs, all sides alike, those cut to the domain included."""
        corners = ("lower", "upper") if self.middle is None else ("middle",)
        for name in corners:
            t = getattr(self, name)
            t[index] = x[index] + factor * (t[index] - x[index])
        if self.radius is not None:
            self.radius[index] *= factor

    def area(self) -> Area:
        if self.middle is None:
            return Area(self.lower, self.upper)
        return Area(center=self.middle, radius=self.radius, p=self.p, basis=self.basis)

    def center(self) -> Tensor:
        return self.lower / 2 + self.upper / 2 if self.middle is None else self.middle

    def half_widths(self) -> Tensor:
        """Rounded inwards."""
        if self.radius is not None:
            return self.radius
        half = self.upper / 2 - self.lower / 2
        return torch.where(half > 0, torch.nextafter(half, torch.zeros_like(half)), 0.0)


__all__ = ["Claim"]
