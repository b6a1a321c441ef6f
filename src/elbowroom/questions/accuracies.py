"""Accuracies as datasheets give them, as extents per input and feature, never rounded to less."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.features import spread
from elbowroom.claim.query import at_least, at_most
from elbowroom.errors import InputError
from elbowroom.questions.asked import Asked, feature_of

OTHERS = "*"  # in a mapping: every feature that is not named
PLAIN, VALUE, RANGE = "", "value", "range"  # what an accuracy is a share of
_NUMBER = r"(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?(?:/[0-9]{1,15})?"
_TEXT = re.compile(rf"(?:±|\+/?-)?\s*({_NUMBER}|inf)\s*(?:(%)\s*(?:of\s+(?:the\s+)?(value|range))?)?")
HOW = 'a number that is not negative, "2%" (of the value) or "0.5% of range"'


@dataclass(frozen=True)
class One:
    """The accuracy of a feature, or its share of the feature's value or range: between two float64 numbers, which are
    the same where float64 holds it."""

    least: float
    most: float
    of: str = PLAIN


@dataclass(frozen=True, eq=False)
class Extents:
    """How far off features may be, `b x n`: between two numbers, as rounding leaves them."""

    least: Tensor
    most: Tensor


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of all values within accuracies, `m x n` corners: `lower`, `upper` hold all of them, which a proof needs,
    `inner_lower`, `inner_upper` nothing else, which a counterexample needs."""

    lower: Tensor
    upper: Tensor
    inner_lower: Tensor
    inner_upper: Tensor

    def take(self, index: Tensor) -> Boxes:
        return Boxes(*(t[index] for t in vars(self).values()))

    def with_exact(self, feature: int, x: Tensor) -> Boxes:
        """The same without width in a feature; `x`: `m`, its values."""
        corners = [t.clone() for t in vars(self).values()]
        for t in corners:
            t[:, feature] = x
        return Boxes(*corners)


def parse(value: Any) -> One:
    """An accuracy from a number or a text; a decimal number that float64 does not hold is rounded up."""
    if isinstance(value, str):
        match = _TEXT.fullmatch(value.strip())
        if match is not None:
            try:
                return _exact(match)
            except (ValueError, ZeroDivisionError, OverflowError):
                pass
    elif not isinstance(value, bool):
        try:
            size = float(value)
        except (TypeError, ValueError, OverflowError):
            size = -1.0
        if size >= 0:
            return One(size, size)
    raise InputError(f"accuracy: an accuracy is {HOW}, got {value!r:.60}")


def _exact(match: re.Match[str]) -> One:
    text, percent, of = match.groups()
    if text == "inf":
        if percent:
            raise ValueError
        return One(math.inf, math.inf)
    number = Fraction(text) / (100 if percent else 1)
    if number > Fraction(sys.float_info.max):
        raise OverflowError
    return One(at_most(number), at_least(number), (of or VALUE) if percent else PLAIN)


def extents_of(asked: Asked, accuracy: Any) -> Extents:
    """How far off each feature may be."""
    if isinstance(accuracy, Mapping):
        table = _by_number(asked, accuracy)
    elif isinstance(accuracy, str | int | float):
        table = {None: parse(accuracy)}
    else:
        found = spread(asked.net, asked.points, accuracy, "accuracy").double()
        if not bool((found >= 0).all()):
            raise InputError(f"accuracy: {HOW}; one is negative or NaN")
        _refuse_fixed(asked, (found > 0) & ~asked.space.free)
        return Extents(found, found)
    least, most = torch.zeros_like(asked.x), torch.zeros_like(asked.x)
    everyone = table.pop(None, None)
    for k in asked.space.free.any(0).nonzero().flatten().tolist() if everyone is not None else ():
        assert everyone is not None
        least[:, k], most[:, k] = (torch.where(asked.space.free[:, k], t, 0.0) for t in _extent(asked, everyone, k))
    for k, one in table.items():
        assert k is not None
        least[:, k], most[:, k] = _extent(asked, one, k)
    _refuse_fixed(asked, (most > 0) & ~asked.space.free)
    return Extents(least, most)


def _by_number(asked: Asked, table: Mapping[Any, Any]) -> dict[int | None, One]:
    found: dict[int | None, One] = {}
    for name, value in table.items():
        key = None if name == OTHERS else feature_of(asked.net, name, "accuracy")
        if key in found:
            raise InputError(f"accuracy: {name!r:.60} is given twice")
        found[key] = parse(value)
    if not found:
        raise InputError("accuracy: no accuracy is given")
    return found


def _refuse_fixed(asked: Asked, wrong: Tensor) -> None:
    columns = wrong.any(0).nonzero().flatten().tolist()
    if columns:
        names = asked.net.about.features
        shown = repr(names[columns[0]]) if names else str(columns[0])
        raise InputError(f"accuracy: feature {shown} cannot move: it is frozen, a category, or has one valid value")


def _extent(asked: Asked, one: One, feature: int) -> tuple[Tensor, Tensor]:
    """Of one feature, at least and at most, `b` each."""
    x = asked.x[:, feature]
    if one.of == PLAIN:
        return torch.full_like(x, one.least), torch.full_like(x, one.most)
    least = most = x.abs()
    if one.of == RANGE:
        low, high = asked.space.lowest[:, feature], asked.space.highest[:, feature]
        if not bool((high - low).isfinite().all()):
            names = asked.net.about.features
            shown = repr(names[feature]) if names else str(feature)
            raise InputError(f"accuracy: a share of the range of feature {shown} needs one: give `domain`")
        least, most = _down(high - low), _up(high - low)
    least, most = least * one.least, most * one.most
    # Nothing of nothing is nothing, also after rounding.
    return torch.where(least > 0, _down(least), 0.0), torch.where((x == 0) & (one.of == VALUE), 0.0, _up(most))


def around(asked: Asked, extents: Extents, index: Tensor) -> Boxes:
    """Boxes around the inputs `index`, `m`, cut to the domain."""
    x, space = asked.x[index], asked.space.part(index)
    least, most = extents.least[index], extents.most[index]
    lower, upper = -_sum(-x, most, 1), _sum(x, most, 1)
    inner_lower, inner_upper = -_sum(-x, least, -1), _sum(x, least, -1)
    lower, inner_lower = (torch.maximum(t, space.lowest) for t in (lower, inner_lower))
    upper, inner_upper = (torch.minimum(t, space.highest) for t in (upper, inner_upper))
    if not bool((lower.isfinite() & upper.isfinite()).all()):
        raise InputError("accuracy: without a domain that is finite, an accuracy must be, and what it leads to")
    return Boxes(lower, upper, inner_lower, inner_upper)


def _sum(x: Tensor, extent: Tensor, side: int) -> Tensor:
    """`x + extent`, rounded to the number next to it above (`side` 1) or below (-1)."""
    total = x + extent
    moved = total - x
    error = (x - (total - moved)) + (extent - moved)  # what rounding took, exactly (Knuth); NaN where infinite
    return torch.where(side * error > 0, torch.nextafter(total, torch.full_like(total, side * torch.inf)), total)


def _up(t: Tensor) -> Tensor:
    return torch.nextafter(t, torch.full_like(t, torch.inf))


def _down(t: Tensor) -> Tensor:
    return torch.nextafter(t, torch.full_like(t, -torch.inf))


__all__ = ["HOW", "OTHERS", "Boxes", "Extents", "One", "around", "extents_of", "parse"]
