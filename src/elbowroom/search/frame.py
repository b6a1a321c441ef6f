"""Points around inputs, measured in their own regions: how often a region must be enlarged to reach one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.claim.stated import Stated

_HALVINGS = 50  # of an interval of gauges


@dataclass(frozen=True, eq=False)
class Frame:
    """Points `x + basis (v+ up - v- down)`, by their coordinates v, `m x n`; v = 0 is the input.

    `x`, `down`, `up`: `m x n`, extents of the region to both sides. `low`, `high`: `m x n`, between which v stays.
    `scaled`: `m x n`, coordinates that count for the gauge, the p-norm of v: by how much the region must be scaled to
    hold the point. The others move between their limits for nothing (only with p = inf). `basis`: `n x n`, or None.
    """

    x: Tensor
    down: Tensor
    up: Tensor
    low: Tensor
    high: Tensor
    scaled: Tensor
    p: float = math.inf
    basis: Tensor | None = None

    @staticmethod
    def around(region: Stated, x: Tensor, lowest: Tensor, highest: Tensor) -> Frame:
        """That of regions around inputs `x`, `m x n`; of boxes, inside a domain: other shapes are not cut to it."""
        every, inf = torch.ones_like(x, dtype=torch.bool), torch.full_like(x, torch.inf)
        if region.lower is not None and region.upper is not None:
            down, up = x - region.lower, region.upper - x
            low, high = -_share(x - lowest, down), _share(highest - x, up)
            return Frame(x, down, up, low, high, every)
        assert region.center is not None and region.radius is not None
        shift = region.center - x
        shift = shift if region.basis is None else torch.linalg.solve(region.basis, shift.T).T
        down, up = (region.radius - shift).clamp_min(0), (region.radius + shift).clamp_min(0)
        return Frame(x, down, up, -inf, inf, every, region.p, region.basis)

    @staticmethod
    def beyond(
        lower: Tensor, upper: Tensor, x: Tensor, feature: Tensor, lowest: Tensor, highest: Tensor, above: bool
    ) -> Frame:
        """That of single faces of boxes, all below their inputs or all `above`: one feature moves from the input to the
        domain's end, in units of half its range; the others stay in theirs. `feature`: `m`; all else `m x n`."""
        moves = torch.zeros_like(x, dtype=torch.bool).scatter(1, feature[:, None], True)
        half = (upper - lower) / 2
        low = torch.where(moves, 0.0 if above else -_share(x - lowest, half), -1.0)
        high = torch.where(moves, _share(highest - x, half) if above else 0.0, 1.0)
        return Frame(
            x, torch.where(moves, half, x - lower), torch.where(moves, half, upper - x), low, high, moves
        )  # fmt: skip

    @property
    def most(self) -> Tensor:
        """The gauge beyond which there is nothing more, `m`."""
        ends = torch.where(self.scaled, torch.maximum(-self.low, self.high), 0.0)
        return ends.amax(1) if self.p == math.inf else torch.full_like(ends[:, 0], torch.inf)

    def take(self, index: Tensor) -> Frame:
        x, down, up, low, high = (t[index] for t in (self.x, self.down, self.up, self.low, self.high))
        return Frame(x, down, up, low, high, self.scaled[index], self.p, self.basis)

    def points(self, v: Tensor) -> Tensor:
        """The points of these coordinates, `m x n`."""
        moved = torch.where(v > 0, v * self.up, v * self.down)
        return self.x + (moved if self.basis is None else moved @ self.basis.T)

    def coordinates(self, points: Tensor) -> Tensor:
        """The coordinates of points, `m x n`, as rounding left them; where there is no basis."""
        moved = points - self.x
        return torch.where(moved == 0, 0.0, moved / torch.where(moved > 0, self.up, self.down))

    def gauge(self, v: Tensor) -> Tensor:
        """By how much regions must be scaled to hold these points, `m`."""
        v = torch.where(self.scaled, v, 0.0)
        largest = v.abs().amax(1, keepdim=True).clamp_min(1e-300)  # powers would overflow, or all vanish
        size: Tensor = torch.linalg.vector_norm(v / largest, ord=self.p, dim=1) * largest.squeeze(1)
        return size

    def on_ray(self, v: Tensor, share: Tensor) -> Tensor:
        """Points between the region itself, share 0, and `v`, share 1 (or beyond it): their gauge is that share of
        its own. `share`: `m`."""
        return torch.where(self.scaled, v * share[:, None], v).clamp(self.low, self.high)

    def inside(self, v: Tensor, most: Tensor) -> Tensor:
        """The points brought into the regions scaled by `most`, `m`, and their limits."""
        t = most[:, None]
        if self.p == math.inf:
            v = torch.where(self.scaled, v.clamp(-t, t), v)
        else:
            v = v * (t / self.gauge(v).clamp_min(1e-300)[:, None]).clamp_max(1)
        return v.clamp(self.low, self.high)

    def downhill(self, v: Tensor, gradient: Tensor, most: Tensor, length: float) -> Tensor:
        """A step against the gradient, `m x n`, in the regions scaled by `most`, `m`; `length`: as a share of them."""
        t = most[:, None]
        if self.p == math.inf:
            size = torch.where(self.scaled, t, (self.high - self.low) / 2)
            moved = v - length * size * gradient.sign()
        elif self.p == 2:
            norm = gradient.norm(dim=1, keepdim=True)
            moved = v - length * t * torch.where(norm > 0, gradient / norm, 0.0)
        else:
            moved = (1 - length) * v - length * t * self._steepest(gradient)
        return self.inside(moved, most)

    def nearest(self, gradient: Tensor, value: Tensor, most: Tensor) -> Tensor:
        """The points of least gauge with `gradient . v <= value`, `m x n`; `most`: `m`, a gauge that will do."""
        if self.p == 2:
            norm = gradient.square().sum(1, keepdim=True)
            return torch.where(norm > 0, value.clamp_max(0)[:, None] * gradient / norm, 0.0)
        if self.p != math.inf:
            steepest = self._steepest(gradient)
            gain = (gradient * steepest).sum(1, keepdim=True)
            return torch.where(gain > 0, value.clamp_max(0)[:, None] / gain * steepest, 0.0)
        small, large = torch.zeros_like(most), most
        for _ in range(_HALVINGS):
            middle = (small + large) / 2
            enough = (gradient * self._corner(gradient, middle)).sum(1) <= value
            small, large = torch.where(enough, small, middle), torch.where(enough, middle, large)
        return self._corner(gradient, large)

    def _corner(self, gradient: Tensor, most: Tensor) -> Tensor:
        """The point of the boxes scaled by `most` where `gradient . v` is least."""
        t = most[:, None]
        low = torch.where(self.scaled, torch.maximum(self.low, -t), self.low)
        high = torch.where(self.scaled, torch.minimum(self.high, t), self.high)
        return torch.where(gradient > 0, low, torch.where(gradient < 0, high, torch.zeros_like(low).clamp(low, high)))

    def _steepest(self, gradient: Tensor) -> Tensor:
        """The direction of norm p, `m x n`, along which the gradient gains most; of p = 1 along its largest entry."""
        if self.p == 1:
            at = gradient.abs().argmax(1, keepdim=True)
            return torch.zeros_like(gradient).scatter(1, at, gradient.gather(1, at).sign())
        share = gradient.abs() / gradient.abs().amax(1, keepdim=True).clamp_min(1e-300)
        moved = gradient.sign() * share ** (1 / (self.p - 1))
        norm: Tensor = torch.linalg.vector_norm(moved, ord=self.p, dim=1, keepdim=True)
        return torch.where(norm > 0, moved / norm, 0.0)


def _share(room: Tensor, extent: Tensor) -> Tensor:
    """How many extents there is room for; none where there is no extent."""
    return torch.where(extent > 0, room / extent, 0.0).clamp_min(0)


__all__ = ["Frame"]
