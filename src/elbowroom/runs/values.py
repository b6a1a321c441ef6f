"""What the values of settings may be: each function takes a value and gives it back as JSON can hold it.

A value is text (a flag, or text in a TOML file), a number, a list or a table. `Wrong` says what it should have been.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from elbowroom.network.kinds import KINDS

ALL = "*"  # in tables of features: every feature that is not named
FROM_DATA = "data"  # a domain: the data set's own
OBSERVED = "observed"  # a domain: the range in which the data lie


class Wrong(Exception):
    """What a value should have been, in words."""


def nearest(name: Any, known: Iterable[str]) -> str:
    """A question about what may have been meant, or nothing."""
    close = difflib.get_close_matches(str(name), list(known), 1, 0.5)
    return f"; did you mean {close[0]}?" if close else ""


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise Wrong("text")
    return value


def text_or_none(value: Any) -> str:
    """Text; empty where there is to be none."""
    return "" if value == "" else text(value)


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong("true or false")
    return value


def number(value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(Fraction(value)) if "/" in value else float(value)
        except (ValueError, ZeroDivisionError, OverflowError):
            raise Wrong("a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong("a number")
    try:
        found = float(value)
    except OverflowError:  # whole numbers have no end
        found = math.nan
    if math.isnan(found):
        raise Wrong("a number")
    return found


def finite(value: Any) -> float:
    found = number(value)
    if math.isinf(found):
        raise Wrong("a finite number")
    return found


def positive(value: Any) -> float:
    found = finite(value)
    if found <= 0:
        raise Wrong("a number above 0")
    return found


def not_negative(value: Any) -> float:
    found = finite(value)
    if found < 0:
        raise Wrong("a number that is not negative")
    return found


def probability(value: Any) -> float:
    found = finite(value)
    if not 0 < found < 1:
        raise Wrong("a number above 0 and below 1")
    return found


def count(least: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise Wrong(f"a whole number of at least {least}")
        return value

    return parse


@dataclass(frozen=True)
class OneOf:
    """One of a few words."""

    choices: tuple[str, ...]

    def __call__(self, value: Any) -> str:
        if value not in self.choices:
            raise Wrong(f"one of {', '.join(self.choices)}{nearest(value, self.choices)}")
        return str(value)


def one_of(*names: str) -> OneOf:
    return OneOf(names)


@dataclass(frozen=True)
class Shape(OneOf):
    """The name of a shape, or of a ball and its norm, as in ball:1.5; oblique:auto is oblique."""

    ball: str = "ball:"

    def __call__(self, value: Any) -> str:
        if value == "oblique:auto":
            value = "oblique"
        if not isinstance(value, str) or not value.startswith(self.ball):
            return super().__call__(value)
        try:
            p = number(value.removeprefix(self.ball))
        except Wrong:
            p = math.nan
        if not p >= 1:
            raise Wrong(f"{self.ball}P with a norm P from 1 to inf, such as {self.ball}1.5")
        return f"{self.ball}{p!r}".removesuffix(".0")


def effort(value: Any) -> str:
    """A name, leaves or seconds, as text; what it means `certify` says."""
    found = str(value).strip().lower()
    if not re.fullmatch(r"fast|medium|high|[0-9]{1,15}|[0-9]{1,15}(\.[0-9]{1,15})? ?s", found):
        raise Wrong("fast, medium, high, a number of leaves, or seconds such as 30s")
    return found


def items(value: Any) -> list[Any]:
    """A list, or the items of a text with commas."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",")]
    if isinstance(value, Sequence):
        return list(value)
    return [value]


def numbers(value: Any) -> float | list[Any]:
    """A number, or a list of them (of lists, as deep as an input has axes)."""
    if isinstance(value, list | tuple):
        return [numbers(item) for item in value]
    found = [finite(item) for item in items(value)]
    return found[0] if len(found) == 1 else found


def positive_numbers(value: Any) -> float | list[float]:
    found = [positive(item) for item in items(value)]
    return found[0] if len(found) == 1 else found


def shape(value: Any) -> list[int]:
    sizes = re.split("[x,]", value) if isinstance(value, str) else items(value)
    return [count(1)(n.strip() if isinstance(n, str) else n) for n in sizes]


def size(value: Any) -> int | str:
    """A number, or text such as 4GiB that is looked into where it is used."""
    return text(value) if isinstance(value, str) else count(1)(value)


def names(value: Any) -> list[str]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence) or not all(isinstance(item, str | int) for item in value):
        raise Wrong("a list of names")
    return [str(item) for item in value]


def columns(value: Any) -> list[str]:
    return names(items(value))


def class_names(value: Any) -> list[str]:
    """Names; 0..9 stands for the numbers in between as well."""
    found: list[str] = []
    for name in columns(value):
        match = re.fullmatch(r"([0-9]{1,6})\.\.([0-9]{1,6})", name)
        found += [name] if match is None else map(str, range(int(match[1]), int(match[2]) + 1))
    if not all(found) or len(found) < 2:
        raise Wrong("names of the network's outputs, in their order, such as cat,dog or 1..10")
    return found


def numbers_or_text(value: Any) -> str | list[Any]:
    """A choice such as "0-9,17", which is looked into where the data are known; or a list."""
    if isinstance(value, list | tuple) and all(isinstance(item, str | int) for item in value):
        return list(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    return text(value)


def by_feature(parse: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """A table from feature to value: from a table, from one value for all, or from texts such as "age=3"."""

    def one(text: Any) -> tuple[str, Any]:
        if isinstance(text, str) and "=" in text:
            name, _, value = text.rpartition("=")
            return name.strip(), parse(value)
        return ALL, parse(text)

    def table(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            return {str(name): parse(item) for name, item in value.items()}
        texts = value if isinstance(value, list) and all(isinstance(v, str) and v for v in value) else [value]
        found: dict[str, Any] = {}
        for name, item in map(one, texts):
            if name in found:
                raise Wrong(f"one value for {'all features' if name == ALL else name}, not several")
            found[name] = item
        return found

    return table


def units(value: Any) -> dict[str, str]:
    """A table from feature to unit, or texts such as "age=years"."""
    found = by_feature(text)(value)
    if ALL in found or not all(found):
        raise Wrong("a feature and its unit, such as age=years")
    return found


def kinds(value: Any) -> dict[str, Any]:
    """A table from feature to its kind, or to a table of what belongs to one, or texts such as "age=whole number"; what
    these say is looked into where the model is known."""
    found: dict[str, Any] = {}
    for name, own in (value if isinstance(value, Mapping) else by_feature(text)(value)).items():
        if isinstance(own, Mapping):
            found[str(name)] = {str(key): _plain(item) for key, item in own.items()}
        elif own in KINDS and own and name != ALL:
            found[str(name)] = own
        else:
            named = [kind for kind in KINDS if kind]
            raise Wrong(f"a feature and its kind, one of {', '.join(named)}{nearest(own, named)}")
    return found


def _plain(value: Any) -> Any:
    """As JSON holds it; an end that is infinite is none."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return None
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and not math.isnan(value)):
        return value
    raise Wrong("texts, numbers and lists of them")


def ends(value: Any) -> list[float | None]:
    """(lowest, highest); None where there is no end."""
    given = re.split("[,:]", value) if isinstance(value, str) else items(value)
    if len(given) != 2:
        raise Wrong("the lowest and the highest value, such as 0,1")
    low = -math.inf if given[0] is None else number(given[0])
    high = math.inf if given[1] is None else number(given[1])
    if low > high or low == math.inf or high == -math.inf:
        raise Wrong("the lowest and then the highest value")
    return [None if math.isinf(v) else v for v in (low, high)]


def domain(value: Any) -> str | dict[str, Any]:
    for word in (FROM_DATA, OBSERVED):
        if value in (word, [word]):
            return word
    if isinstance(value, list) and not any(isinstance(item, str) for item in value):
        return {ALL: ends(value)}
    return by_feature(ends)(value)


def options(value: Any) -> dict[str, float]:
    found = by_feature(number)(value)
    if ALL in found:
        raise Wrong("options such as steps=2000")
    return found
