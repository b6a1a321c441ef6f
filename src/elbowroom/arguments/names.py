"""Names of features and classes: as they can be shown, given to a model, and matched with those of data.

Names are matched exactly. Those that differ in spaces or case are other names, and are offered as the nearest ones.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from elbowroom.errors import InputError

Names = tuple[str, ...]

_SHOWN = 10
_WHOLE = re.compile(r"-?\d{1,20}(\.0*)?", re.ASCII)


def printable(names: Any) -> Names:
    """Names as they can be shown and saved: line breaks and the like are written as Python does, 2.0 as 2."""
    texts = (str(int(n)) if isinstance(n, float) and n.is_integer() else str(n) for n in names)
    return tuple(text if text.isprintable() else ascii(text)[1:-1] for text in texts)


def few(names: Sequence[str]) -> str:
    """Some of many names, for a message."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


# --- given to a model


def feature_names(own: Names | None, given: Any, count: int) -> Names | None:
    """What a model's features are called, `own` being its own names for them.

    Own names are kept. A list of others is refused, since whoever gives it may have the features in another order; a
    mapping from own names to others says which is which.
    """
    if given is None:
        return own
    if isinstance(given, Mapping):
        if own is None:
            raise InputError("features: the model has no names that could be changed; give a list")
        changed = dict(zip(printable(given), given.values()))
        for name in changed:
            if name not in own:
                raise InputError(f"features: the model has no feature {name!r}; it has {few(own)}")
        return _distinct("features", [changed.get(name, name) for name in own], count, "input")
    names = _distinct("features", given, count, "input")
    for k, (name, known) in enumerate(zip(names, own or ())):
        if name != known:
            raise InputError(
                f"features: the model itself calls feature {k} {known!r}, not {name!r}, and keeps its names; leave "
                "features out, or give a mapping {its name: yours} to rename some"
            )
    return names


def class_names(own: Names | None, given: Any, count: int, what: str = "classes") -> Names | None:
    """What a model's classes are called, in the order of its outputs: the names given, else its own.

    A class that the model has itself, at another output, is refused.
    """
    if given is None:
        return own
    names = _distinct(what, given, count, "output")
    for k, name in enumerate(names):
        if own is not None and name in own and own.index(name) != k:
            raise InputError(
                f"{what}: the model's class {name!r} is output {own.index(name)}, not {k}; its classes are {few(own)}"
            )
    return names


def _distinct(what: str, given: Any, count: int, each: str) -> Names:
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise InputError(f"{what} must be a list of names, got {given!r}")
    names = printable(given)
    if len(names) != count or len(set(names)) != count:
        raise InputError(
            f"{what} must be {count} different names, one for each {each}; got {len(names)}, of which "
            f"{len(set(names))} different: {str(list(names))[:80]}"
        )
    return names


# --- matched with those of data


def whole_of(names: Sequence[str]) -> list[int] | None:
    """The whole numbers that names stand for, "007" and "7.0" for 7; None unless all do, each for one of its own."""
    if not all(_WHOLE.fullmatch(name) for name in names):
        return None
    found = [int(name.partition(".")[0]) for name in names]
    return found if len(set(found)) == len(found) else None


def by_value(labels: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Which of the known names different labels are as numbers, where these may be written otherwise; of none, where
    either side has names that are no numbers, or two that are the same one."""
    own, theirs = whole_of(known), whole_of(labels)
    if own is None or theirs is None:
        return {}
    name = dict(zip(own, known))
    return {label: name[number] for label, number in zip(labels, theirs) if number in name}


def places(wanted: Sequence[str], found: Sequence[str], where: str) -> tuple[list[int], Names]:
    """The place among the columns `found` of each feature that the network names, and notes on what was done.

    Columns may stand in any order, and others beside them are left out: exact names leave nothing to guess. Refused
    where a name is missing or there twice. `where`: what has the columns, in words.
    """
    features, columns = printable(wanted), printable(found)
    known, place = set(features), {name: k for k, name in enumerate(columns)}
    missing = [name for name in features if name not in place]
    spare = [name for name in columns if name not in known]
    if missing:
        told = "; ".join(f"{name!r}{nearest_of(name, spare)}" for name in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise InputError(
            f"{where} has no column for {len(missing)} of the {len(features)} features that the model names: {told}"
            f"{more}. Columns are matched by name: rename those that have other names"
        )
    for k, name in enumerate(columns):
        if name in known and place[name] != k:
            raise InputError(f"{where}: the column {name!r} is there twice")
    order = [place[name] for name in features]
    notes = []
    if order != sorted(order):
        notes.append(
            f"the columns of {where} stand in another order than the model's features; they were matched by name"
        )
    if spare:
        notes.append(left_out_of(where, spare))
    return order, tuple(notes)


def left_out_of(where: str, names: Sequence[str]) -> str:
    """A note on columns that are not used."""
    columns = "a column" if len(names) == 1 else "columns"
    verb = "is not a feature of the model and is" if len(names) == 1 else "are not features of the model and are"
    return f"{where} has {columns} that {verb} left out: {few(names)}"


def nearest_of(name: str, spare: Sequence[str]) -> str:
    """The columns that may have been meant; those that differ in case and spaces alone first."""
    plain = ["".join(other.split()).casefold() for other in spare]
    same = [other for other, text in zip(spare, plain) if text == "".join(name.split()).casefold()]
    close = [*same, *(n for n in difflib.get_close_matches(name, spare, 2, 0.5) if n not in same)][:2]
    return f" (nearest: {' and '.join(map(repr, close))})" if close else ""


__all__ = [
    "Names",
    "by_value",
    "class_names",
    "feature_names",
    "few",
    "left_out_of",
    "nearest_of",
    "places",
    "printable",
    "whole_of",
]
