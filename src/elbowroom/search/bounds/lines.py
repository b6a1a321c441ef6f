"""Lines above and below an activation on an interval, by its form: `piecewise` linear, `convex`, `s_shaped` or `wavy`.

For `sigma` on `[l, u]` a relaxation is `k_l x + m_l <= sigma(x) <= k_u x + m_u` (section 3.1 of the paper, where
k_l = k_u). How a slope is chosen is free, and decides only how tight the bound is; the intercept is what makes
it *right*. So the two are kept apart: a row's rule proposes slopes, and every intercept is then the
extreme of `sigma(x) - k x` over `[l, u]` **for the slope as rounded**, found among the end points and the
points where that function can turn (kinks, and stationary points `sigma'(x) = k`). A stationary point found
inexactly costs only second order, and every candidate is a point of the interval, so an intercept is the value
of the function somewhere: right up to the rounding of evaluating it, at every width.

Slopes of `parallel` lines are those of the chord (analytic, as the paper asks). Slopes of `adaptive` lines are
those of the convex (below) and concave (above) envelope at the interval's midpoint, which minimises the area
between line and function; for ReLU this is CROWN's rule, lower slope 1 where u > -l and 0 otherwise.

Intercepts are relative to a reference point `z` in the interval: `m_l <= sigma(x) - sigma(z) - k (x - z) <= m_u`.
With the network's own activations at the region's centre as reference, `m_l <= 0 <= m_u`, biases drop out of
the linear bounds, and large terms need not cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.search.bounds.planes import Planes, Relaxed, Term, ratio

_TURNS = 4  # to the last digit of float64
_FAR = 1e3  # where smooth functions have long been straight
_BISECTIONS = {torch.float64: 48, torch.float32: 27}  # from there to 1e-11 or 2e-5: being off by that costs its square
_SLACK = 128.0
_SIDE = 6  # points on each side of the midpoint

# Functions of an operation and tensors, see `Row`.
Derivative = Callable[[Any, Tensor], Tensor]
Points = Callable[[Any, Tensor, Tensor, Tensor, Tensor], tuple[list[Tensor], list[Tensor]]]
Slopes = Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]]
Chord = Callable[[Any, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Row(Relaxed):
    """What the bounds need to know of an activation.

    `derivative(op, x)`. `points(op, k_l, k_u, l, u)`: where, but for the interval's ends, `sigma(x) - k_l x` may be
    least, and where `sigma(x) - k_u x` may be greatest. `slopes(op, l, u)`: the adaptive lower and upper slope.
    `chord(op, l, u)`: the parallel slope. `turns(op)`: where `sigma` itself turns. `slack`: covers results lost to
    underflow, in units of the smallest normal number; zero where the function is computed exactly.
    """

    derivative: Derivative
    points: Points
    slopes: Slopes
    chord: Chord
    turns: Callable[[Any], tuple[float, ...]] = lambda op: ()
    slack: float = 0.0
    zero_below: bool = False
    smooth: bool = False

    univariate = True

    def interval(self, op: Any, lowers: Sequence[Tensor], uppers: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Also right for functions that are not monotone."""
        (l,), (u,) = lowers, uppers
        # Written with `where`, because a tie (zero width) must not mix the gradients of the two ends.
        at_l, at_u = op(l), op(u)
        falling = at_l > at_u
        low, high = torch.where(falling, at_u, at_l), torch.where(falling, at_l, at_u)
        for point in self.turns(op):
            value = op(torch.minimum(torch.maximum(like(point, l), l), u).detach())
            low, high = torch.where(value < low, value, low), torch.where(value > high, value, high)
        return low, high

    def planes(
        self, op: Any, lowers: Sequence[Tensor], uppers: Sequence[Tensor], values: Sequence[Tensor], parallel: bool
    ) -> Planes:
        (l,), (u,), (z,) = lowers, uppers, values
        if parallel:
            lower_slope = upper_slope = self.chord(op, l, u)
        else:
            lower_slope, upper_slope = self.slopes(op, l, u)
        lower, upper = _extremes(self, op, lower_slope, upper_slope, l, u, z)
        return Planes((Term(0, lower_slope, upper_slope),), lower, upper)


def _extremes(
    row: Row, op: ops.Activation, k_l: Tensor, k_u: Tensor, l: Tensor, u: Tensor, z: Tensor
) -> tuple[Tensor, Tensor]:
    """The least of `sigma(x) - sigma(z) - k_l (x - z)` over `[l, u]`, and the greatest of the same with `k_u`."""
    reference = op(z)
    ends = [(op(x) - reference, x - z) for x in (l, u)]
    with torch.no_grad():
        # Constants to autograd: at a stationary point moving it changes nothing (envelope theorem), a kink does
        # not move, and one clamped to an end is tied with that end, which then wins.
        inner = [[torch.minimum(torch.maximum(p, l), u) for p in points] for points in row.points(op, k_l, k_u, l, u)]
    low = torch.minimum(*(rise - k_l * step for rise, step in ends))
    high = torch.maximum(*(rise - k_u * step for rise, step in ends))
    for point in inner[0]:
        value = (op(point) - reference) - k_l * (point - z)
        low = torch.where(value < low, value, low)
    for point in inner[1]:
        value = (op(point) - reference) - k_u * (point - z)
        high = torch.where(value > high, value, high)
    if row.slack:
        slack = row.slack * torch.finfo(l.dtype).tiny
        low, high = low - slack, high + slack
    return low, high


def like(value: Any, t: Tensor) -> Tensor:
    # (Numbers are not copied from the host, which would have to wait.)
    return (value.to(t) if isinstance(value, Tensor) else t.new_full((), value)).expand_as(t)


# --- piecewise linear functions: everything follows from their kinks


def _bent(kinks: tuple[float, ...], l: Tensor, u: Tensor) -> Tensor:
    """Where a kink lies inside `[l, u]`. Elsewhere the derivative is the slope; a quotient of differences is noise."""
    inside = torch.zeros_like(l, dtype=torch.bool)
    for kink in kinks:
        inside = inside | ((l < kink) & (u > kink))
    return inside


def _kinked_chord(kinks: Callable[[Any], tuple[float, ...]], derivative: Derivative) -> Chord:
    def chord(op: Any, l: Tensor, u: Tensor) -> Tensor:
        flat = derivative(op, (l + u) / 2)
        return torch.where(_bent(kinks(op), l, u), ratio(op(u) - op(l), u - l, flat), flat)

    return chord


def _supporting_slopes(op: Any, points: list[Tensor], l: Tensor, u: Tensor, flat: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes, at the midpoint, of the convex and concave envelope of a function that is linear between `points` of
    `[l, u]`, the midpoint perhaps one of them.

    Of all chords' slopes the one whose line, moved below (above) every point, is highest (lowest) at the midpoint.
    """
    mid = (l + u) / 2
    values = [op(p) for p in points]
    lower = upper = flat
    best_low, best_high = like(-math.inf, l), like(math.inf, l)
    for i, (p, f) in enumerate(zip(points, values)):
        for j in range(i + 1, len(points)):
            slope = ratio(values[j] - f, points[j] - p, flat)
            with torch.no_grad():
                at_mid = f + slope * (mid - p)
                low = high = torch.where(points[j] > p, at_mid, math.nan)  # nan: no chord, and never better
                for h, (q, g) in enumerate(zip(points, values)):
                    if h not in (i, j):
                        through = g + slope * (mid - q)
                        low, high = torch.minimum(low, through), torch.maximum(high, through)
            lower, upper = torch.where(low > best_low, slope, lower), torch.where(high < best_high, slope, upper)
            best_low = torch.where(low > best_low, low, best_low)
            best_high = torch.where(high < best_high, high, best_high)
    return lower, upper


def piecewise(kinks: Callable[[Any], tuple[float, ...]], derivative: Derivative) -> Row:
    def points(op: Any, k_l: Tensor, k_u: Tensor, l: Tensor, u: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        bent = [like(kink, l) for kink in kinks(op)]
        return bent, bent

    def slopes(op: Any, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        flat, bent = derivative(op, (l + u) / 2), _bent(kinks(op), l, u)
        inner = [torch.minimum(torch.maximum(like(kink, l), l), u) for kink in kinks(op)]
        lower, upper = _supporting_slopes(op, [l, *inner, u], l, u, flat)
        return torch.where(bent, lower, flat), torch.where(bent, upper, flat)

    return Row(derivative, points, slopes, _kinked_chord(kinks, derivative), turns=kinks)


# --- smooth functions


def _smooth_chord(derivative: Derivative) -> Chord:
    def chord(op: Any, l: Tensor, u: Tensor) -> Tensor:
        # On narrow intervals the difference of values cancels and its gradient is noise; the slope at the
        # midpoint is then closer to the chord than the chord's own rounding (third root of the precision).
        width = u - l
        with torch.no_grad():
            scale = torch.maximum(l.abs(), u.abs()).clamp_min(1)
            narrow = ~(width > torch.finfo(l.dtype).eps ** (1 / 3) * scale)
        return torch.where(narrow, derivative(op, (l + u) / 2), (op(u) - op(l)) / torch.where(narrow, 1.0, width))

    return chord


def convex(derivative: Derivative, points: Points) -> Row:
    """Convex functions: the chord above, the tangent at the midpoint below."""
    chord = _smooth_chord(derivative)

    def slopes(op: Any, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        return derivative(op, (l + u) / 2), chord(op, l, u)

    return Row(derivative, points, slopes, chord, slack=_SLACK, smooth=True)


def s_shaped(derivative: Derivative, stationary: Callable[[Tensor], Tensor]) -> Row:
    """Functions convex below zero, concave above, and symmetric about zero but for a constant.

    `stationary(k)`: the x >= 0 with sigma'(x) = k.
    """
    chord = _smooth_chord(derivative)

    def sloped(k: Tensor) -> Tensor:
        return stationary(k.clamp_min(torch.finfo(k.dtype).tiny)).clamp_min(0)

    def points(op: Any, k_l: Tensor, k_u: Tensor, l: Tensor, u: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        return [-sloped(k_l)], [sloped(k_u)]

    def upper_slope(op: Any, l: Tensor, u: Tensor) -> Tensor:
        # The concave envelope: a tangent from (l, sigma(l)) up to its point of contact d > 0, sigma itself after.
        mid = (l + u) / 2
        with torch.no_grad():
            # The contact is where the chord from l is steepest, and no farther out than l. In turns: the slope of a
            # chord, and the point where sigma has it (Dinkelbach's method: each turn squares the error).
            f_l, farthest = op(l), torch.minimum(u, -l).clamp_min(0)
            d = farthest / 2
            for _ in range(_TURNS):
                d = torch.minimum(sloped((op(d) - f_l) / (d - l)), farthest)
            contact = torch.where(l >= 0, l, d)
            no_contact = (u <= 0) | ((l < 0) & (derivative(op, u) * (u - l) >= op(u) - f_l))
            tangent_from_l = (l < 0) & (contact > mid)
        # d moves with l; along the tangent dk/dl = (k - sigma'(l)) / (d - l), written so that autograd finds it.
        k = derivative(op, contact)
        reach = (contact - l).detach()
        pull = (k - derivative(op, l)).detach() / torch.where(tangent_from_l & (reach > 0), reach, 1.0)
        from_l = k.detach() + pull * (l - l.detach())
        tangent = torch.where(tangent_from_l, from_l, derivative(op, mid))
        return torch.where(no_contact, chord(op, l, u), tangent)

    def slopes(op: Any, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        mirrored = _Mirrored(op)
        return upper_slope(mirrored, -u, -l), upper_slope(op, l, u)

    return Row(derivative, points, slopes, chord, slack=_SLACK, smooth=True)


class _Mirrored:
    """`x -> -sigma(-x)`: what is below sigma is above this."""

    def __init__(self, op: Any) -> None:
        self.op = op

    def __call__(self, x: Tensor) -> Tensor:
        mirrored: Tensor = -self.op(-x)
        return mirrored


def enveloped(derivative: Derivative) -> Slopes:
    """Slopes, at the midpoint, of the convex and concave envelope as twelve points of the interval show it.

    The envelope there is the lowest (highest) chord from one of six points left of it to one of six right of it; chords
    between neighbours stand for tangents.
    """

    def slopes(op: Any, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        mid, width = (l + u) / 2, u - l
        tangent = derivative(op, mid)
        with torch.no_grad():
            share = _share(torch.arange(_SIDE, device=l.device, dtype=l.dtype)).view(-1, *[1] * l.dim())
            left, right = l + width * share, u - width * share
            at_left, at_right = op(left), op(right)
            # Of the lowest and of the highest chord: its height at the midpoint, and between which points it is.
            none = torch.zeros_like(l)
            best = [(none + torch.inf, none, none), (none - torch.inf, none, none)]
            for i in range(_SIDE):
                rise = (at_right - at_left[i]) / (right - left[i])
                heights = at_left[i] + rise * (mid - left[i])
                for side, (height, j) in enumerate((heights.min(0), heights.max(0))):
                    kept, p, q = best[side]
                    better = height > kept if side else height < kept
                    best[side] = torch.where(better, height, kept), torch.where(better, i, p), torch.where(better, j, q)
            scale = torch.maximum(l.abs(), u.abs()).clamp_min(1)
            narrow = ~(width > 30 * torch.finfo(l.dtype).eps ** (1 / 3) * scale)
        found = []
        for _, p, q in best:
            start, end = l + width * _share(p), u - width * _share(q)
            found.append(torch.where(narrow, tangent, ratio(op(end) - op(start), end - start, tangent)))
        return found[0], found[1]

    return slopes


def _share(number: Tensor) -> Tensor:
    """How far inside an end a point lies, as a share of the width: 0, 0.05, 0.15, ..., 0.45."""
    return (0.1 * number - 0.05).clamp_min(0)


def wavy(
    derivative: Derivative, bends: Callable[[Any], tuple[float, float]], turns: Callable[[Any], tuple[float, ...]]
) -> Row:
    """Functions that are concave, between the two `bends` convex, then concave again."""

    def points(op: Any, k_l: Tensor, k_u: Tensor, l: Tensor, u: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        # Where sigma' is the slope, in each of the three parts, in which it is monotone: by bisection, or at an end.
        first, second = bends(op)
        lo = torch.stack([l, torch.minimum(l.clamp_min(first), u), torch.minimum(l.clamp_min(second), u)])
        hi = torch.stack([torch.maximum(u.clamp_max(first), l), torch.maximum(u.clamp_max(second), l), u])
        lo, hi, k = lo.clamp(-_FAR, _FAR), hi.clamp(-_FAR, _FAR), torch.stack([k_u, k_l, k_u])
        rising = derivative(op, lo) < k
        for _ in range(_BISECTIONS[l.dtype]):
            mid = (lo + hi) / 2
            before = (derivative(op, mid) < k) == rising
            lo, hi = torch.where(before, mid, lo), torch.where(before, hi, mid)
        return [hi[1]], [hi[0], hi[2]]

    chord = _smooth_chord(derivative)
    return Row(derivative, points, enveloped(derivative), chord, turns=turns, slack=_SLACK, smooth=True)


__all__ = ["Row", "convex", "enveloped", "like", "piecewise", "s_shaped", "wavy"]
