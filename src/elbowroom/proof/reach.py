"""The other side of a certificate: that the region could not be so much larger, since a counterexample lies there.

Proved of a point: that the region scaled about its input holds it (or one next to it), and that there, beyond rounding,
some group of the specification is not positive. Bounds are those that prove certificates, over a box of next to no
width, of the rows with their signs turned.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from elbowroom.claim.hints import Hints
from elbowroom.claim.stated import Stated
from elbowroom.proof.kernel.rounding import ETA, SAFE, down, gamma, up

# From regions, rows, offsets, groups and hints to margins proved: `prove`, or another proof of the same claim.
Prove = Callable[[Stated, Tensor, Tensor, Tensor, Hints], Tensor]

_WAYS = (Hints(hidden=False), Hints())  # without width intervals are mostly enough, and cost next to nothing
_NEAR = 1 + 2.0**-30  # how far a point is called one of a rotated box; the one that is meant lies in it
_VANISHED = 1e-150  # what powers that underflow may take from a sum


def held_by(region: Stated, x: Tensor, point: Tensor, scale: Tensor) -> tuple[Tensor, Stated]:
    """Whether regions scaled about their inputs hold these points, `b`, and boxes that then hold a point of them.

    `x`, `point`: `b x n`; `scale`: `b`. Boxes given by corners hold the point itself or not. The points of other shapes
    are hardly ever float64 numbers: what is stated stands for one next to it, which lies in the region by the numbers
    found here, and the box goes as far as that may be from `point`.
    """
    known = scale.isfinite() & (scale > 0) & point.isfinite().all(1)
    if region.lower is not None and region.upper is not None:
        inside = _at_most(point - x, scale, region.upper - x) & _at_most(x - point, scale, x - region.lower)
        return known & inside.all(1), Stated(point, point)
    assert region.center is not None and region.radius is not None
    # Coordinates `w` of any origin will do: center' + basis w is a point of the region where |w / (scale radius)| <= 1.
    shift = scale[:, None] * (region.center - x)
    away = point - (x + shift)
    w = away if region.basis is None else torch.linalg.solve(region.basis, away.T).T
    room = down(scale[:, None] * region.radius).clamp_min(0)
    w = torch.where(region.radius > 0, w, 0.0)
    if region.p == math.inf:
        # An input at the very side of its region has next to no room there, beside which w, counted from the middle,
        # is rounded coarsely.
        inside = (w.abs() <= _NEAR * room).all(1)
        w = torch.clamp(w, -room, room)
    else:
        inside = _powers(torch.where(w == 0, 0.0, up(w.abs() / room)), region.p) <= 1
    turned, size = (w, w.abs()) if region.basis is None else (w @ region.basis.T, w.abs() @ region.basis.abs().T)
    n = x.shape[1]
    error = SAFE * gamma(n + 4) * (x.abs() + shift.abs() + size) + 4 * n * ETA
    distance = up(up((point - (x + shift + turned)).abs()) + error)
    return known & inside, Stated(down(point - distance), up(point + distance))


def broken_on(box: Stated, rows: Tensor, offset: Tensor, group: Tensor, prove: Prove) -> Tensor:
    """Where it is proved that at every point of the box some group, one and the same, is not positive, `b`.

    `rows`: `b x t x k` (or `1 x ...`), `offset`: `b x t`, `group`: `t`.
    """
    found = torch.zeros(len(box), dtype=torch.bool, device=rows.device)
    each = torch.arange(len(group), device=group.device)
    for hints in _WAYS:
        left = (~found).nonzero().squeeze(1)
        if not len(left):
            break
        own = [-(t if len(t) == 1 else t[left]) for t in (rows, offset)]
        below = (prove(box.take(left), own[0], own[1], each, hints) >= 0).to(torch.int8)
        all_rows = below.new_ones(len(left), int(group.max()) + 1)
        all_rows = all_rows.scatter_reduce(1, group.expand_as(below), below, "amin")
        # A number that no row bears is no group: of that nothing could be wrong.
        there = torch.zeros_like(all_rows[0], dtype=torch.bool).index_fill(0, group, True)
        found[left] = ((all_rows == 1) & there).any(1)
    return found


def _at_most(moved: Tensor, scale: Tensor, extent: Tensor) -> Tensor:
    """Whether `moved <= scale * extent` in real arithmetic, or `moved` is not positive; differences of two numbers,
    rounded once."""
    return (moved <= 0) | (up(moved) <= down(scale[:, None] * down(extent)))


def _powers(share: Tensor, p: float) -> Tensor:
    """A number above the sum of the powers p of numbers that are not negative, `b`: at most 1 where their norm is."""
    return SAFE * share.pow(p).sum(1) + _VANISHED


__all__ = ["broken_on", "held_by"]
