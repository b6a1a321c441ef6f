"""The ways to make bounds, by name. Imports nothing heavy: the command line lists them before torch is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from elbowroom.errors import InputError


@dataclass(frozen=True)
class Method:
    """How bounds are made: `linear` bounds or not, with `parallel` lines or not, met with `intervals` or not.

    `hidden`: linear bounds of the hidden layers, too, not only of the rows asked for.
    """

    linear: bool
    parallel: bool
    intervals: bool
    hidden: bool


METHODS = {
    "adaptive": Method(linear=True, parallel=False, intervals=True, hidden=True),
    "combined": Method(linear=True, parallel=True, intervals=True, hidden=True),
    "quadratic": Method(linear=True, parallel=True, intervals=False, hidden=True),
    "simple": Method(linear=False, parallel=True, intervals=True, hidden=False),
    # For networks where the others take too long; in the field, CROWN-IBP.
    "fast": Method(linear=True, parallel=False, intervals=True, hidden=False),
}
MARGINS = ("direct", "logits")


def method_named(name: str) -> Method:
    try:
        return METHODS[name]
    except KeyError:
        raise InputError(f"unknown bounds {name!r}; choose one of {', '.join(METHODS)}") from None


def check_margin(name: str) -> None:
    if name not in MARGINS:
        raise InputError(f'margin must be "direct" or "logits", got {name!r}')
