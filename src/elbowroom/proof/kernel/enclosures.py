"""Enclosures of activations, and lines that are valid for their rounded slopes.

A smooth activation is split at its inflection points into pieces that are convex or concave. On a convex piece
the tangent of `g(x) = sigma(x) - k x` at *any* point p lies below g, and g is at most its value at the ends; on a
concave piece the other way round. So every intercept is right whatever slope and p are, up to the stated errors
of evaluating sigma and its derivative, which are added.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.proof.kernel.activations import LIBRARY, TINY, Smooth, row_of
from elbowroom.proof.kernel.rounding import SAFE, U, down, up

# Inflection points are rounded to float64. On the sliver between, under 5e-16 wide, the second derivative has the wrong
# sign by under 1e-15, so a tangent is crossed by less than this per width.
SLIVER = 1e-30


class Lines(NamedTuple):
    """`k_l x + m_l <= sigma(x) <= k_u x + m_u` on the node's interval, `b x *shape` each."""

    k_l: Tensor
    m_l: Tensor
    k_u: Tensor
    m_u: Tensor


def interval(op: ops.Activation, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers below and above every value of `op` on `[l, u]`."""
    row = row_of(op)
    if not isinstance(row, Smooth):
        values = [op(l), op(u), *(op(_inside(k, l, u)) for k in row(op))]
        low, high = torch.stack(values).amin(0), torch.stack(values).amax(0)
        exact = isinstance(op, (ops.ReLU, ops.Clip))
        return (low, high) if exact else (_lower(low), _upper(high))
    (low_l, high_l), (low_u, high_u) = _enclose(row, op, l), _enclose(row, op, u)
    low, high = torch.minimum(low_l, low_u), torch.maximum(high_l, high_u)
    least = row.least(op)
    if least is not None:
        at, value = least
        low = torch.where((l < at + 1e-9) & (u > at - 1e-9), torch.clamp_max(low, value), low)
    return low, high


def _lower(t: Tensor) -> Tensor:
    return down(t - t.abs() * (4 * U))


def _upper(t: Tensor) -> Tensor:
    return up(t + t.abs() * (4 * U))


def _inside(point: float, l: Tensor, u: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(torch.full_like(l, point), l), u)


def _enclose(row: Smooth, op: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    value = row.value(op, x)
    error = (value.abs() * row.error(op, x) + row.tiny(op)) * SAFE
    return down(value - error), up(value + error)


def lines(op: ops.Activation, l: Tensor, u: Tensor, parallel: bool) -> Lines:
    """Valid lines on `[l, u]`."""
    row = row_of(op)
    if isinstance(row, Smooth):
        k_l, k_u = _smooth_slopes(row, op, l, u, parallel)
        # A slope that is not finite would only make the line useless, but zero is always a fair one.
        k_l, k_u = torch.nan_to_num(k_l, 0.0, 0.0, 0.0), torch.nan_to_num(k_u, 0.0, 0.0, 0.0)
        return Lines(
            k_l, _smooth_extreme(row, op, k_l, l, u, lower=True), k_u, -_smooth_extreme(row, op, k_u, l, u, False)
        )
    kinks = [_inside(k, l, u) for k in row(op)]
    k_l, k_u = _kinked_slopes(op, [l, *kinks, u], l, u, parallel)
    k_l, k_u = torch.nan_to_num(k_l, 0.0, 0.0, 0.0), torch.nan_to_num(k_u, 0.0, 0.0, 0.0)
    low = [_gap(op, k_l, p)[0] for p in (l, *kinks, u)]
    high = [_gap(op, k_u, p)[1] for p in (l, *kinks, u)]
    return Lines(k_l, torch.stack(low).amin(0), k_u, torch.stack(high).amax(0))


def _gap(op: Any, k: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Below and above `sigma(x) - k x` for a piecewise linear sigma."""
    value, product = op(x), k * x
    gap = value - product
    # k x is a rounded product, and so is a leaky ReLU's value left of zero (where it may underflow); elsewhere all is
    # exact, which is the common case.
    exact = (k == 0) | (k == 1) | (x == 0)
    if isinstance(op, ops.LeakyReLU):
        exact = exact & (x >= 0)
    error = torch.where(
        exact & ((gap == 0) | (value == 0) | (product == 0)), 0.0, (value.abs() + product.abs()) * (4 * U) + TINY
    )
    return torch.where(error > 0, down(gap - error), gap), torch.where(error > 0, up(gap + error), gap)


def _kinked_slopes(op: Any, points: list[Tensor], l: Tensor, u: Tensor, parallel: bool) -> tuple[Tensor, Tensor]:
    """Proposed slopes of a piecewise linear function: the chord, or the envelopes' slopes at the midpoint."""
    mid = l / 2 + u / 2
    flat = _one_sided_slope(op, mid)
    values = [op(p) for p in points]
    if parallel:
        inside = torch.stack([(p > l) & (p < u) for p in points]).any(0)
        chord = (values[-1] - values[0]) / torch.where(u > l, u - l, 1.0)
        chord = torch.where(inside & (u > l), chord, flat)
        return chord, chord
    return _hull_slopes(points, values, mid, flat)


def _hull_slopes(points: list[Tensor], values: list[Tensor], mid: Tensor, flat: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes at the midpoint of the lowest and of the highest chord that spans it; `flat` where none does."""
    lower = upper = flat
    least, most = torch.full_like(mid, torch.inf), torch.full_like(mid, -torch.inf)
    for i in range(len(points)):
        for j in range(i + 1, len(points)):
            p, q = points[i], points[j]
            slope = (values[j] - values[i]) / torch.where(q > p, q - p, 1.0)
            height = values[i] + slope * (mid - p)
            spans = (p <= mid) & (mid <= q) & (p < q)
            lowest, highest = spans & (height < least), spans & (height > most)
            lower, least = torch.where(lowest, slope, lower), torch.where(lowest, height, least)
            upper, most = torch.where(highest, slope, upper), torch.where(highest, height, most)
    return lower, upper


def _one_sided_slope(op: Any, x: Tensor) -> Tensor:
    if isinstance(op, ops.ReLU):
        return (x > 0).to(x.dtype)
    if isinstance(op, ops.LeakyReLU):
        return torch.where(x > 0, torch.ones_like(x), torch.as_tensor(op.slope, dtype=x.dtype, device=x.device))
    slopes: Tensor = ((x > op.low) & (x < op.high)).to(x.dtype)
    return slopes


# --- smooth functions


def _pieces(row: Smooth, op: Any, l: Tensor, u: Tensor) -> list[tuple[Tensor, Tensor, bool]]:
    """`[l, u]` cut at the inflection points and kinks: (start, end, convex?); empty pieces have start = end."""
    cuts = sorted({*row.bends(op), *row.kinks(op)})
    bends, kinks = row.bends(op), row.kinks(op)
    convex, out, start = row.convex, [], -math.inf
    for cut in (*cuts, math.inf):
        a, b = l.clamp_min(start), u.clamp_max(cut)
        a, b = torch.minimum(a, u), torch.maximum(b, l)
        out.append((a, torch.maximum(a, b), convex))
        start = cut
        if cut in bends and cut not in kinks:
            convex = not convex
    return out


def _smooth_extreme(row: Smooth, op: Any, k: Tensor, l: Tensor, u: Tensor, lower: bool) -> Tensor:
    """A number below `sigma(x) - k x` on `[l, u]`; or, `lower` false, below `k x - sigma(x)`."""
    sign = 1.0 if lower else -1.0

    def below(p: Tensor) -> tuple[Tensor, Tensor]:
        """Below sign * g(p), and a bound on the size of the terms."""
        low, high = _enclose(row, op, p)
        value, product = (low if lower else -high), sign * k * p
        error = ((value.abs() + product.abs()) * (4 * U) + TINY) * SAFE
        return down(value - product - error), error

    result = torch.minimum(below(l)[0], below(u)[0])
    for a, b, convex in _pieces(row, op, l, u):
        if convex != lower:
            # sign * g is concave here: least at the ends of the piece.
            ends = torch.minimum(below(a)[0], below(b)[0])
            result = torch.minimum(result, ends)
            continue
        p = _turning_point(row, op, k, a, b)
        inner = p
        for kink in row.kinks(op):
            # The slope of this piece at the kink it starts from: that just inside.
            inner = torch.where(p == kink, torch.where(b > p, torch.nextafter(p, b), p), inner)
        computed = row.slope(op, inner)
        tilt = sign * (computed - k)
        terms = computed.abs() if row.slope_terms is None else row.slope_terms(op, inner)
        # How far the true tilt may be from the computed one.
        doubt = terms * (row.error(op, p) + 4 * LIBRARY) + (computed.abs() + k.abs()) * (4 * U) + row.tiny(op)
        doubt = doubt * SAFE
        fall_left = torch.minimum(tilt * (a - p), torch.zeros_like(p))
        fall_right = torch.minimum(tilt * (b - p), torch.zeros_like(p))
        width = (b - a) * (1 + 4 * U)
        tangent = (
            torch.minimum(fall_left, fall_right) * (1 + 8 * U) - doubt * width * SAFE - SLIVER * width * (1 + width)
        )
        result = torch.minimum(result, down(below(p)[0] + tangent - tangent.abs() * (4 * U)))
    return result


def _turning_point(row: Smooth, op: Any, k: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """About where `sigma' = k` in `[a, b]`, on which sigma' is monotone; an end where it is nowhere."""
    first, last = a, b
    rising = row.slope(op, a) < k
    for _ in range(64):
        mid = a / 2 + b / 2
        before = (row.slope(op, mid) < k) == rising
        a, b = torch.where(before, mid, a), torch.where(before, b, mid)
    best, miss = b, (row.slope(op, b) - k).abs()
    for other in (a, first):  # where sigma' - k does not change sign, bisection runs to the wrong end half of the time
        closer = (row.slope(op, other) - k).abs()
        best, miss = torch.where(closer < miss, other, best), torch.minimum(closer, miss)
    return torch.minimum(torch.maximum(best, first), last)  # halves of subnormal numbers may have left the piece


def _smooth_slopes(row: Smooth, op: Any, l: Tensor, u: Tensor, parallel: bool) -> tuple[Tensor, Tensor]:
    """Proposed slopes: the chord, or those of the convex and concave envelope at the midpoint."""
    mid, width = l / 2 + u / 2, u - l
    tangent = row.slope(op, mid)
    narrow = ~(width > 1e-5 * torch.maximum(l.abs(), u.abs()).clamp_min(1))
    chord = torch.where(narrow, tangent, (row.value(op, u) - row.value(op, l)) / torch.where(narrow, 1.0, width))
    if parallel:
        return chord, chord
    bends = row.bends(op)
    if not bends and not (isinstance(op, ops.ELU) and op.alpha > 1):
        return tangent, chord  # convex
    if bends == (0.0,) and row.convex:
        below = _touching_slope(row, op, l, u, from_end=u, sign=-1.0)
        above = _touching_slope(row, op, l, u, from_end=l, sign=1.0)
        # Where the envelope is the chord alone, touching gives nothing.
        return torch.where(torch.isnan(below), chord, below), torch.where(torch.isnan(above), chord, above)
    grid = [l + width * t for t in (0.0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0)]
    values = [row.value(op, p) for p in grid]
    k_l, k_u = _hull_slopes(grid, values, mid, tangent)
    wide = width > 2e-4 * torch.maximum(l.abs(), u.abs()).clamp_min(1)
    return torch.where(wide, k_l, tangent), torch.where(wide, k_u, tangent)


def _touching_slope(row: Smooth, op: Any, l: Tensor, u: Tensor, from_end: Tensor, sign: float) -> Tensor:
    """An S-shaped function's envelope at the midpoint: the tangent through `from_end`, or at the midpoint.

    NaN where the envelope is the chord. `sign` 1: above, where the function is concave for x > 0; -1: below.
    """
    mid = l / 2 + u / 2
    far = u if sign > 0 else l
    near, away = torch.zeros_like(far), torch.where(sign * far > 0, far, 0.0)
    start = row.value(op, from_end)
    for _ in range(60):
        d = near / 2 + away / 2
        beyond = sign * (row.slope(op, d) * (d - from_end) - (row.value(op, d) - start)) < 0
        near, away = torch.where(beyond, near, d), torch.where(beyond, d, away)
    crossing = sign * from_end < 0
    contact = torch.where(crossing, away, from_end)
    touch = torch.where(sign * contact > sign * mid, contact, mid)
    none = (sign * far <= 0) | (
        crossing & (sign * (row.slope(op, far) * (far - from_end) - (row.value(op, far) - start)) >= 0)
    )
    return torch.where(none, torch.nan, row.slope(op, torch.where(crossing, touch, mid)))
