"""GELU and SiLU where a model writes them out: `x / 2 * (1 + erf(x / sqrt 2))` in any order, and the like.

While the pieces come in, a value is kept as a formula `p(x) + q(x) f(x)`: p and q are polynomials in x with exact
coefficients, f is erf, tanh or the sigmoid of something like x. Once it is a GELU or a SiLU it becomes a node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from elbowroom.network import operations as ops
from elbowroom.network.operations import Shape
from elbowroom.readers.onnx.step import Builder, Place, Step, Value, exact
from elbowroom.readers.reading import RefusalError, refuse

Polynomial = dict[int, Fraction]  # coefficients that are not zero, by power
_CLOSE = 2.0**-21  # constants such as 1 / sqrt 2 are rounded to float32, and so are products of them
_DEGREE = 3
_ERF = "read only as a part of GELU, x / 2 * (1 + erf(x / sqrt 2))"
_POWER = "read only as a part of GELU's approximation by tanh"
PRODUCT = "a product of two computed values; read only as a part of GELU or SiLU"


@dataclass(frozen=True)
class Formula:
    """`p(x) + q(x) f(x)`, x being the graph's node `base`.

    `bend`: which f, "erf" (of x / sqrt 2), "tanh" (of the cubic in GELU's approximation) or "sigmoid"; for the last
    one `argument` is the node it is taken of, `slope` times x. `place` and `reason`: which operation to name if
    nothing comes of it.
    """

    base: int
    shape: Shape
    p: Polynomial
    q: Polynomial
    place: Place
    reason: str
    bend: str | None = None
    argument: int = 0
    slope: Fraction = Fraction(1)
    whole = False
    cut = None

    @property
    def finished(self) -> bool:
        """Whether it is a multiple of a GELU or a SiLU."""
        return set(self.q) == {1} and self.p == ({} if self.bend == "sigmoid" else self.q)


def settle(value: Any, build: Builder, notes: list[str]) -> Any:
    """A formula as a value, or a refusal where it is nothing that has a bound; other values as they are."""
    if not isinstance(value, Formula):
        return value
    if not value.finished:
        raise RefusalError(value.reason, value.place)
    if value.bend == "sigmoid":  # q x sigmoid(s x) = q / s silu(s x)
        at = build.once(value.place.name, ops.SiLU(), value.argument, None)
        factor, divisor = value.q[1], value.slope
    else:  # q x (1 + f(x)) = 2 q gelu(x)
        at = build.once(value.place.name, ops.GELU(value.bend == "tanh"), value.base, value.bend)
        factor, divisor = 2 * value.q[1], Fraction(1)
        note = f"GELU is written out around {value.place}, with its constants rounded; it is read as GELU itself"
        notes.extend([note] if note not in notes else [])
    if factor != divisor and factor != 1:
        at = build.once(value.place.name, ops.Scale(_exact(factor, value)), at, factor)
    if factor != divisor and divisor != 1:
        at = build.once(value.place.name, ops.Divide(_exact(divisor, value)), at, divisor)
    return Value(at, value.shape)


def _exact(number: Fraction, value: Formula) -> torch.Tensor:
    if Fraction(float(number)) != number:
        raise RefusalError("its factors, multiplied, would have to be rounded", value.place)
    return torch.from_numpy(exact(float(number)))


# --- the ways in


def erf(to: Step, x: Value) -> Formula:
    base = next((b for b, factor in _multiples(to.build, x.number).items() if _near(factor, math.sqrt(0.5))), None)
    if base is None:
        refuse(_ERF)
    return Formula(base, x.shape, {}, {0: Fraction(1)}, to.place, _ERF, "erf")


def power(to: Step, x: Any, exponent: Any) -> Value | Formula:
    exponents = to.constant(exponent, "exponents")
    if isinstance(x, np.ndarray) or exponents.size != 1 or float(exponents.reshape(())) not in (1, 2, 3):
        refuse(_POWER)
    degree, base = int(exponents.reshape(())), to.build.source(x.number)
    return x if degree == 1 else Formula(base, x.shape, {degree: Fraction(1)}, {}, to.place, _POWER)


def tanh(to: Step, x: Value | Formula) -> Value | Formula:
    if not isinstance(x, Formula) or x.finished:
        return to.apply(ops.Tanh(), settle(x, to.build, to.notes))
    scale = math.sqrt(2 / math.pi)
    fits = not x.q and set(x.p) == {1, 3} and _near(x.p[1], scale) and _near(x.p[3], 0.044715 * scale)
    if not fits:
        raise RefusalError(x.reason, x.place)
    return replace(x, p={}, q={0: Fraction(1)}, bend="tanh")


def product(to: Step, x: Any, y: Any, inverse: bool = False) -> Formula | None:
    """`x y` (or `x / y`) as a formula; None where it is none."""
    for v, other in ((x, y), (y, x)):
        if isinstance(v, Formula) and v.finished and isinstance(other, np.ndarray) and not _power_of_two(other):
            return None  # a constant of the model's own, to be kept as it is
    x, y = _finished(to, x, y)
    if not inverse and isinstance(x, Value) and isinstance(y, Value):
        gated = _gated(to, x, y) or _gated(to, y, x)
        if gated is not None:
            return gated
    pair = _pair(to, x, y)
    if pair is None:
        return None
    f, g = pair
    if inverse:
        if set(g.p) != {0} or g.q:
            return None
        g = replace(g, p={0: 1 / g.p[0]})
    p, q = _times(f.p, g.p), _plus(_times(f.p, g.q), _times(f.q, g.p))
    if (f.q and g.q) or max([*p, *q], default=0) > _DEGREE:
        return None
    return _joined(f, g, p, q)


def total(to: Step, x: Any, y: Any, sign: int) -> Formula | None:
    """`x + sign y` as a formula; None where it is none, or a sum of finished values."""
    x, y = _finished(to, x, y)
    if not any(isinstance(v, Formula) and not v.finished for v in (x, y)):
        return None
    pair = _pair(to, x, y)
    if pair is None or (pair[0].q and pair[1].q):
        return None
    f, g = pair
    other = {0: Fraction(sign)}
    return _joined(f, g, _plus(f.p, _times(other, g.p)), _plus(f.q, _times(other, g.q)))


def _finished(to: Step, x: Any, y: Any) -> list[Any]:
    """What is finished as values, but that a constant may still be multiplied into it."""
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        return [x, y]
    return [settle(v, to.build, to.notes) if isinstance(v, Formula) and v.finished else v for v in (x, y)]


def _gated(to: Step, x: Value, y: Value) -> Formula | None:
    """`x sigmoid(s x)`, if y is that sigmoid."""
    for at, factor in _multiples(to.build, y.number).items():
        if isinstance(to.build.op(at), ops.Sigmoid) and x.shape == y.shape:
            argument = to.build.graph.nodes[at].inputs[0]
            common = _common(to.build, x.number, argument)
            if common is not None and common[1] and common[2]:
                base, own, slope = common
                return Formula(base, x.shape, {}, {1: own * factor}, to.place, PRODUCT, "sigmoid", argument, slope)
    return None


def _pair(to: Step, x: Any, y: Any) -> tuple[Formula, Formula] | None:
    """Both as formulas of one x, if they are."""
    if isinstance(x, Value) and isinstance(y, Value):
        common = _common(to.build, x.number, y.number)
        like = None if common is None else Formula(common[0], x.shape, {}, {}, to.place, PRODUCT)
    else:
        like = next((v for v in (x, y) if isinstance(v, Formula)), None)
    found = [] if like is None else [f for f in (_like(to, v, like) for v in (x, y)) if f is not None]
    return (found[0], found[1]) if len(found) == 2 else None


def _like(to: Step, v: Any, like: Formula) -> Formula | None:
    """A value, a constant or another formula as a formula of the same x, if it is one."""
    if isinstance(v, Formula):
        return v if (v.base, v.shape) == (like.base, like.shape) else None
    if isinstance(v, np.ndarray):
        fits = v.size == 1 and v.ndim <= len(like.shape)
        return replace(like, p=_plus({}, {0: Fraction(float(v.reshape(())))}), q={}, bend=None) if fits else None
    common = _common(to.build, v.number, like.base) if v.shape == like.shape else None
    if common is None or not common[2]:
        return None
    return replace(like, p=_plus({}, {1: common[1] / common[2]}), q={}, bend=None)


def _joined(f: Formula, g: Formula, p: Polynomial, q: Polynomial) -> Formula:
    return replace(g if g.bend else f, p=p, q=q)


def _multiples(build: Builder, number: int) -> dict[int, Fraction]:
    """The nodes that this one is a multiple of, the nearest first, and the factors."""
    number, factor = build.source(number), Fraction(1)
    found = {number: factor}
    while True:
        op = build.op(number)
        if isinstance(op, ops.Scale) and op.factor.numel() == 1:
            factor *= Fraction(op.factor.item())
        elif isinstance(op, ops.Divide) and op.divisor.numel() == 1:
            factor /= Fraction(op.divisor.item())
        else:
            return found
        number = build.source(build.graph.nodes[number].inputs[0])
        found[number] = factor


def _common(build: Builder, x: int, y: int) -> tuple[int, Fraction, Fraction] | None:
    """The nearest node that both are multiples of, and the two factors."""
    others = _multiples(build, y)
    return next(((b, factor, others[b]) for b, factor in _multiples(build, x).items() if b in others), None)


def _near(number: Fraction, wanted: float) -> bool:
    return abs(float(number) - wanted) <= _CLOSE * wanted


def _power_of_two(constant: np.ndarray) -> bool:
    return constant.size == 1 and abs(math.frexp(float(constant.reshape(())))[0]) == 0.5


def _plus(a: Polynomial, b: Polynomial) -> Polynomial:
    found = {k: a.get(k, Fraction(0)) + b.get(k, Fraction(0)) for k in {*a, *b}}
    return {k: c for k, c in found.items() if c}


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    found: Polynomial = {}
    for i, c in a.items():
        for j, d in b.items():
            found = _plus(found, {i + j: c * d})
    return found
