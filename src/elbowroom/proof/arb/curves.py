"""Activations in balls, and lines below and above them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from elbowroom.network import operations as ops
from elbowroom.proof.arb.balls import Balls, flint, largest, smallest


class Curve(NamedTuple):
    """A monotone function, odd up to a constant and concave for x > 0 (or ReLU).

    `value`: in balls. `where`: the x >= 0 at which the derivative is k, an exact positive number, None where it is
    nowhere. `plain`: value and slope in floating point, good enough to propose slopes.
    """

    value: Callable[[Any], Any]
    where: Callable[[Any], Any] | None = None
    plain: Callable[[float], tuple[float, float]] | None = None


def _sigmoid_where(k: Any) -> Any:
    inside = 1 - 4 * k
    return ((1 + inside.sqrt()) ** 2 / (4 * k)).log() if inside >= 0 else None


def _tanh_where(k: Any) -> Any:
    inside = 1 - k
    return ((1 + inside.sqrt()) ** 2 / k).log() / 2 if inside >= 0 else None


def _arctan_where(k: Any) -> Any:
    return (1 / k - 1).sqrt() if k <= 1 else None


def _sigmoid_plain(x: float) -> tuple[float, float]:
    e = math.exp(-abs(x))
    return (1 / (1 + e) if x > 0 else e / (1 + e)), e / (1 + e) ** 2


def _tanh_plain(x: float) -> tuple[float, float]:
    return math.tanh(x), 1 / math.cosh(min(abs(x), 350.0)) ** 2


def _arctan_plain(x: float) -> tuple[float, float]:
    return math.atan(x), 1 / (1 + x * x)


CURVES: dict[type[ops.Operation], Curve] = {
    ops.ReLU: Curve(lambda x: x.max(flint().arb(0))),
    ops.Sigmoid: Curve(lambda x: 1 / (1 + (-x).exp()), _sigmoid_where, _sigmoid_plain),
    ops.Tanh: Curve(lambda x: x.tanh(), _tanh_where, _tanh_plain),
    ops.Arctan: Curve(lambda x: x.atan(), _arctan_where, _arctan_plain),
}

# What has no row here, and why.
LACKS: dict[type[ops.Operation], str] = {
    ops.LeakyReLU: "its lines are not written in balls",
    ops.Clip: "its lines are not written in balls",
    ops.ELU: "it is not odd, as the curves here are",
    ops.Softplus: "it is not odd, as the curves here are",
    ops.SiLU: "it is not monotone",
    ops.GELU: "it is not monotone",
}


def relax(curve: Curve, l: Any, u: Any, parallel: bool) -> tuple[Any, Any, Any, Any]:
    """Lines of one neuron on `[l, u]`, with the slopes the float64 check would take: `k_l, m_l, k_u, m_u`."""
    arb = flint().arb
    zero, one = arb(0), arb(1)
    if curve.where is None or curve.plain is None:  # ReLU
        if u <= 0:
            return zero, zero, zero, zero
        if l >= 0:
            return one, zero, one, zero
        chord = u / (u - l)
        return chord if parallel else (one if l + u > 0 else zero), zero, chord, -l * chord
    slopes = _slopes(curve.plain, float(l), float(u), parallel)
    k_l, k_u = (arb(k if math.isfinite(k) else 0.0) for k in slopes)
    low, high = (_extremes(curve.value, curve.where, k, l, u) for k in (k_l, k_u))
    return k_l, smallest(low), k_u, largest(high)


def _extremes(value: Callable[[Any], Any], where: Callable[[Any], Any], k: Any, l: Any, u: Any) -> Balls:
    """`sigma(x) - k x` at the ends of `[l, u]` and where its derivative vanishes in between; k is an exact number."""
    points = [l, u]
    at = where(k) if k > 0 else None
    if at is not None:
        points += [p for p in (at, -at) if not (p < l or p > u)]
    return [value(p) - k * p for p in points]


def _slopes(plain: Callable[[float], tuple[float, float]], l: float, u: float, parallel: bool) -> tuple[float, float]:
    """Chord, or slopes of the convex and the concave envelope at the midpoint; proposals only."""
    if not (math.isfinite(l) and math.isfinite(u)):
        return 0.0, 0.0
    mid, width = l / 2 + u / 2, u - l
    narrow = width <= 1e-5 * max(abs(l), abs(u), 1.0)
    chord = plain(mid)[1] if narrow else (plain(u)[0] - plain(l)[0]) / width
    if parallel:
        return chord, chord
    # Below is above, seen from the other side: all these functions are odd, up to a constant.
    return _upper_slope(plain, -u, -l, chord), _upper_slope(plain, l, u, chord)


def _upper_slope(plain: Callable[[float], tuple[float, float]], l: float, u: float, chord: float) -> float:
    mid = l / 2 + u / 2
    if u <= 0:
        return chord
    if l >= 0:
        return plain(mid)[1]

    def short(d: float) -> bool:
        """Whether the tangent at d passes above the point at l."""
        value, slope = plain(d)
        return slope * (d - l) < value - plain(l)[0]

    if not short(u):
        return chord
    near, away = 0.0, u
    for _ in range(60):
        d = near / 2 + away / 2
        near, away = (near, d) if short(d) else (d, away)
    return plain(max(away, mid))[1]
