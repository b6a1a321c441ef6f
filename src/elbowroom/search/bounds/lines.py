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

# Functions of an operation and tensors, see `Row`.
Derivative = Callable[[Any, Tensor], Tensor]
Points = Callable[[Any, Tensor, Tensor, Tensor], list[Tensor]]
Chord = Callable[[Any, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Row(Relaxed):
    """What the bounds need to know of an activation.

    `derivative(op, x)`. `points(op, k, l, u)`: where `sigma(x) - k x` may turn inside the interval.
    `slopes(op, l, u)`: the adaptive lower and upper slope. `chord(op, l, u)`: the parallel slope.
    `turns(op)`: where `sigma` itself turns. `slack`: covers results lost to underflow, in units of the smallest
    normal number; zero where the function is computed exactly.
    """

    derivative: Derivative
    points: Points
    slopes: Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]]
    chord: Chord
    turns: Callable[[Any], tuple[float, ...]] = lambda op: ()
    slack: float = 0.0
    zero_below: bool = False

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
            lower, upper = _extremes(self, op, lower_slope, l, u, z)
        else:
            lower_slope, upper_slope = self.slopes(op, l, u)
            lower, _ = _extremes(self, op, lower_slope, l, u, z)
            _, upper = _extremes(self, op, upper_slope, l, u, z)
        return Planes((Term(0, lower_slope, upper_slope),), lower, upper)


def _extremes(row: Row, op: ops.Activation, k: Tensor, l: Tensor, u: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds of `sigma(x) - sigma(z) - k (x - z)` over `[l, u]`."""
    reference = op(z)

    def gap(x: Tensor) -> Tensor:
        return (op(x) - reference) - k * (x - z)

    at_l, at_u = gap(l), gap(u)
    low, high = torch.minimum(at_l, at_u), torch.maximum(at_l, at_u)
    with torch.no_grad():
        points = [torch.minimum(torch.maximum(p, l), u) for p in row.points(op, k, l, u)]
    for point in points:
        # Constants to autograd: at a stationary point moving it changes nothing (envelope theorem), a
        # kink does not move, and one clamped to an end is tied with that end, which then wins.
        value = gap(point)
        low = torch.where(value < low, value, low)
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


def _envelope_slopes(op: Any, points: list[Tensor], l: Tensor, u: Tensor, flat: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes, at the midpoint, of the convex and concave envelope of `sigma` seen at `points` of `[l, u]`.

    The envelope's value there is the lowest (highest) chord between a point to the left and one to the right.
    """
    mid = (l + u) / 2
    values = [op(p) for p in points]
    lower = upper = flat
    best_low, best_high = like(math.inf, l), like(-math.inf, l)
    for i, (p, f) in enumerate(zip(points, values)):
        for q, g in zip(points[i + 1 :], values[i + 1 :]):
            slope = ratio(g - f, q - p, flat)
            with torch.no_grad():
                straddles = (p <= mid) & (mid <= q) & (p < q)
                at_mid = f + slope * (mid - p)
            low = straddles & (at_mid < best_low)
            high = straddles & (at_mid > best_high)
            lower, upper = torch.where(low, slope, lower), torch.where(high, slope, upper)
            best_low, best_high = torch.where(low, at_mid, best_low), torch.where(high, at_mid, best_high)
    return lower, upper


def _supporting_slopes(op: Any, points: list[Tensor], l: Tensor, u: Tensor, flat: Tensor) -> tuple[Tensor, Tensor]:
    """The same for a function that is linear between `points`, whose midpoint may be one of them.

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
    def points(op: Any, k: Tensor, l: Tensor, u: Tensor) -> list[Tensor]:
        return [like(kink, l) for kink in kinks(op)]

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

    return Row(derivative, points, slopes, chord, slack=_SLACK)


def s_shaped(derivative: Derivative, stationary: Callable[[Tensor], Tensor]) -> Row:
    """Functions convex below zero, concave above, and symmetric about zero but for a constant.

    `stationary(k)`: the x >= 0 with sigma'(x) = k.
    """
    chord = _smooth_chord(derivative)

    def points(op: Any, k: Tensor, l: Tensor, u: Tensor) -> list[Tensor]:
        x = stationary(k.clamp_min(torch.finfo(k.dtype).tiny))
        return [x, -x]

    def upper_slope(op: Any, l: Tensor, u: Tensor) -> Tensor:
        # The concave envelope: a tangent from (l, sigma(l)) up to its point of contact d > 0, sigma itself after.
        mid = (l + u) / 2
        with torch.no_grad():
            lo, hi = torch.zeros_like(u), u.clamp_min(0)
            f_l = op(l)
            for _ in range(_BISECTIONS):
                d = (lo + hi) / 2
                beyond = derivative(op, d) * (d - l) < op(d) - f_l
                lo, hi = torch.where(beyond, lo, d), torch.where(beyond, d, hi)
            contact = torch.where(l >= 0, l, hi)
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

    return Row(derivative, points, slopes, chord, slack=_SLACK)


class _Mirrored:
    """`x -> -sigma(-x)`: what is below sigma is above this."""

    def __init__(self, op: Any) -> None:
        self.op = op

    def __call__(self, x: Tensor) -> Tensor:
        mirrored: Tensor = -self.op(-x)
        return mirrored


def wavy(
    derivative: Derivative, bends: Callable[[Any], tuple[float, ...]], turns: Callable[[Any], tuple[float, ...]]
) -> Row:
    """Functions that are neither convex nor S-shaped: `bends` are where the derivative stops being monotone."""
    chord = _smooth_chord(derivative)

    def points(op: Any, k: Tensor, l: Tensor, u: Tensor) -> list[Tensor]:
        edges = [-math.inf, *bends(op), math.inf]
        lo = torch.stack([torch.minimum(l.clamp_min(a), u) for a in edges[:-1]])
        hi = torch.stack([torch.maximum(u.clamp_max(b), l) for b in edges[1:]])
        rising = derivative(op, lo) < k
        for _ in range(_BISECTIONS):
            mid = (lo + hi) / 2
            before = (derivative(op, mid) < k) == rising
            lo, hi = torch.where(before, mid, lo), torch.where(before, hi, mid)
        return [*hi, *(like(b, l) for b in bends(op))]

    def slopes(op: Any, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        # Twelve points, none at the midpoint; chords between neighbours stand for tangents.
        grid = [l + (u - l) * t for t in _GRID]
        lower, upper = _envelope_slopes(op, grid, l, u, derivative(op, (l + u) / 2))
        with torch.no_grad():
            scale = torch.maximum(l.abs(), u.abs()).clamp_min(1)
            narrow = ~(u - l > 30 * torch.finfo(l.dtype).eps ** (1 / 3) * scale)
        tangent = derivative(op, (l + u) / 2)
        return torch.where(narrow, tangent, lower), torch.where(narrow, tangent, upper)

    return Row(derivative, points, slopes, chord, turns=turns, slack=_SLACK)


_BISECTIONS = 56  # from a width of 1e6 to 1e-11
_SLACK = 128.0
_GRID = [0.0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0]


__all__ = ["Row", "convex", "like", "piecewise", "s_shaped", "wavy"]
