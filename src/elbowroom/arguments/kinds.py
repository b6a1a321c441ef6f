"""Kinds of features as users declare them: a network and declarations in, a network with a table that says so out.

A declaration is the name of a kind, or a mapping with `kind` and what belongs to it:

    {"age": "whole number", "balance": {"unit": "EUR", "decimals": 2, "domain": [0, 1e5]}, "sex": "fixed",
     "job": {"kind": "category", "columns": ["job_a", "job_b"], "levels": ["a", "b"], "dropped": "c"}}

Everything else, from reading data to what a certificate says, follows from the network's table.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from elbowroom.arguments.features import feature_titles
from elbowroom.arguments.names import few, nearest_of, printable
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.network.kinds import KINDS
from elbowroom.network.table import MOST_DECIMALS, Code, Column, Level, Table, key_of

_NAMES = tuple(kind for kind in KINDS if kind)
# What may be said of each kind, and which is meant where none is named.
_NUMBERS, _LEVELS = ("unit", "domain"), ("levels", "codes", "columns", "dropped", "unknown")
_TAKES: dict[str, tuple[str, ...]] = {
    "number": (*_NUMBERS, "decimals"), "whole number": _NUMBERS, "category": _LEVELS, "ordered levels": _LEVELS,
    "yes/no": ("levels", "codes"), "fixed": ("unit",),
}  # fmt: skip
_MARKS = "_=-. "  # what may stand between the name of a group and that of a level, in the name of a column


def names_or_kinds(features: Any) -> tuple[Any, Any]:
    """Names, and declarations of kinds, of what may be either; None for the other. They are declarations where a
    feature has a kind, or a mapping of what belongs to one."""
    if not isinstance(features, Mapping):
        return features, None
    values = list(features.values())
    if any(isinstance(v, Mapping) or (isinstance(v, str) and v in _NAMES) for v in values):
        return None, features
    for name, given in features.items():
        near = difflib.get_close_matches(str(given), _NAMES, 1, 0.8)
        if near:
            raise _wrong(str(name), f"{given!r:.60} is no kind; did you mean {near[0]!r}?")
    return features, None


def declared(net: Network, features: Any) -> Network:
    """The network with a table in which columns are what `features` declares them to be.

    Raises:
        InputError: A declaration makes no sense, or does not fit the network; the message names the feature.
    """
    told = _told(features)
    if not told:
        return net
    table = net.about.table or Table(tuple(map(Column, net.about.features or feature_titles(net))))
    table = _grouped(table, {name: own for name, own in told.items() if "columns" in own})
    columns = list(table.columns)
    for name, own in told.items():
        if "columns" in own:
            continue
        if name not in table.names:
            group = next((c.name for c in columns if name in c.parts), None)
            hint = "" if group is None else f"; it is one of the columns of {group!r}"
            raise _wrong(name, f"there is no such feature{hint or nearest_of(name, table.names)}", table)
        at = table.names.index(name)
        columns[at] = _MAKERS[own["kind"]](columns[at], own)
    found = Table(tuple(columns))
    return with_table(net, found)


def with_table(net: Network, table: Table) -> Network:
    """The same network with another table."""
    about = replace(net.about, table=table, features=table.entries)
    return Network(net.nodes, net.decision, about, net.source)


# --- what was declared


def _told(features: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(features, Mapping):
        raise InputError(
            f'features must be a mapping from names to kinds, such as {{"age": "whole number"}}, got {features!r:.80}'
        )
    found: dict[str, dict[str, Any]] = {}
    for name, given in zip(printable(features), features.values()):
        own = {"kind": given} if isinstance(given, str) else given
        if not isinstance(own, Mapping) or not all(isinstance(key, str) for key in own):
            raise _wrong(name, f"a kind or a mapping is needed, such as {_NAMES[1]!r}, not {given!r:.60}")
        kind = own.get("kind", "category" if {"levels", "codes", "columns"} & set(own) else "number")
        if kind not in _NAMES:
            raise _wrong(name, f"{kind!r:.60} is no kind{nearest_of(str(kind), _NAMES)}; there are {few(_NAMES)}")
        for key in own:
            if key != "kind" and key not in _TAKES[kind]:
                known = any(key in keys for keys in _TAKES.values())
                why = f"a {kind} has no {key}" if known else f"{key!r} says nothing{nearest_of(key, _TAKES[kind])}"
                raise _wrong(name, f"{why}; of a {kind} one may say {', '.join(_TAKES[kind])}")
        if name in found:
            raise _wrong(name, "it is declared twice")
        found[name] = {**own, "kind": kind, "named": "kind" in own}
    return found


def _wrong(name: str, why: str, table: Table | None = None) -> InputError:
    known = "" if table is None else f"; there are {few(table.names)}"
    return InputError(f"features: {name!r}: {why}{known}")


# --- numbers


def _number(column: Column, own: Mapping[str, Any]) -> Column:
    """Where the kind is named, it takes back what was declared before, also that numbers are codes of levels; else
    only what is said changes."""
    before = None if own["named"] else column.decimals
    decimals = 0 if own["kind"] == "whole number" else own.get("decimals", before)
    if own["named"] and column.parts == (column.name,):
        (column,) = Table((column,)).raw.columns
    if column.levels is not None:
        raise _wrong(column.name, f"the model takes it as a category ({_some(column.levels)}), which is no number")
    if decimals is not None and (type(decimals) is not int or not 0 <= decimals <= MOST_DECIMALS):
        raise _wrong(column.name, f"decimals must be a whole number from 0 to {MOST_DECIMALS}, got {decimals!r:.60}")
    kind: Any = "whole number" if decimals == 0 else "number"
    domain = _domain(column, own["domain"]) if own.get("domain") is not None else column.domain
    return replace(column, kind=kind, decimals=decimals, domain=domain, unit=_unit(column, own))


def _domain(column: Column, given: Any) -> tuple[float, float]:
    good = isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2
    ends = [
        default if end is None else float(end)
        for end, default in zip(given if good else (), (-math.inf, math.inf))
        if end is None or (isinstance(end, int | float) and not isinstance(end, bool) and not math.isnan(end))
    ]
    if len(ends) != 2:
        raise _wrong(column.name, f"domain must be two numbers, [lowest, highest], got {given!r:.60}")
    if not ends[0] <= ends[1] or math.inf in (ends[0], -ends[1]):
        raise _wrong(column.name, f"domain: the lowest value comes first, got {given!r:.60}")
    return ends[0], ends[1]


def _unit(column: Column, own: Mapping[str, Any]) -> str:
    unit = own.get("unit", column.unit)
    if not isinstance(unit, str):
        raise _wrong(column.name, f"unit must be a text, got {unit!r:.60}")
    if unit and column.levels is not None:
        raise _wrong(column.name, "it has categories, which have no unit")
    return printable([unit])[0]


def _fixed(column: Column, own: Mapping[str, Any]) -> Column:
    return replace(column, kind="fixed", unit=_unit(column, own))


# --- levels


def _levels(column: Column, own: Mapping[str, Any]) -> Column:
    """A category of a column that has levels already, or of one whose numbers are their codes."""
    kind = own["kind"]
    if "dropped" in own or "unknown" in own:
        raise _wrong(column.name, "dropped and unknown are about a group of one-hot columns, named by columns")
    if column.levels is not None:
        return _of_levels(column, own)
    if kind == "yes/no":
        own = {"levels": ["no", "yes"], "codes": [0, 1], **own}
    if "levels" not in own and "codes" not in own:
        raise _wrong(column.name, f"the model takes it as a number: say which ones are levels, as in {_EXAMPLE}")
    which = "codes" if "codes" in own else "levels"
    codes = [_code_of(column.name, v) for v in _listed(column.name, which, own[which])]
    levels = [_level(column.name, v) for v in _listed(column.name, "levels", own.get("levels", codes))]
    if len(codes) != len(levels):
        raise _wrong(column.name, f"{len(levels)} levels need as many codes, got {len(codes)}")
    if len({code[0] for code in codes}) != len(codes):
        raise _wrong(column.name, f"two of the codes {_some([code[0] for code in codes])} are the same")
    missing: Level = math.nan
    if column.fills:
        if (column.missing,) not in codes:
            raise _wrong(column.name, f"the model takes {column.missing} where it is missing, which is no code of it")
        missing = levels[codes.index((column.missing,))]  # type: ignore[arg-type]
    found = Column(column.name, tuple(levels), tuple(codes), None, missing, input=column.input)
    return replace(found, kind=kind, parts=(column.name,))


_EXAMPLE = '{"kind": "category", "levels": ["north", "south"], "codes": [0, 1]}'


def _of_levels(column: Column, own: Mapping[str, Any]) -> Column:
    """A category as the model has it; of ordered levels, in their order."""
    assert column.levels is not None
    if "codes" in own:
        raise _wrong(column.name, "the model has codes of its own for its levels; leave codes out")
    if own["kind"] == "yes/no" and len(column.levels) != 2:
        raise _wrong(column.name, f"yes/no has two levels, and the model knows {_some(column.levels)}")
    known = {key_of(level): k for k, level in enumerate(column.levels)}
    order = list(range(len(known)))
    if "levels" in own:
        given = [key_of(_level(column.name, v)) for v in _listed(column.name, "levels", own["levels"])]
        for key in given:
            if key not in known:
                raise _wrong(
                    column.name, f"the model has never seen the level {_some([key])}; it knows {_some(column.levels)}"
                )
        left = [level for level in column.levels if key_of(level) not in given and level is not None]
        if left or len(set(given)) != len(given):
            raise _wrong(column.name, f"levels must be all of them, once each: {_some(left or column.levels)}")
        order = [known[key] for key in given]
    elif own["kind"] == "ordered levels" and column.kind != "ordered levels":
        order = _natural(column)
    order = [k for k in dict.fromkeys(order) if column.levels[k] is not None]
    order += [k for k, level in enumerate(column.levels) if level is None]
    levels, codes = tuple(column.levels[k] for k in order), tuple(column.codes[k] for k in order)
    return replace(column, levels=levels, codes=codes, kind=own["kind"])


def _natural(column: Column) -> list[int]:
    """The order of levels that are numbers, or have one number as a code."""
    assert column.levels is not None
    levels = column.levels
    if all(isinstance(level, float | int) or level is None for level in levels):
        return sorted(range(len(levels)), key=lambda k: math.inf if levels[k] is None else float(levels[k] or 0))
    if column.width == 1:
        return sorted(range(len(levels)), key=lambda k: column.codes[k])
    raise _wrong(column.name, f"say in which order its levels stand, as in levels={list(levels)!r:.80}")


def _listed(name: str, what: str, given: Any) -> list[Any]:
    if isinstance(given, str | Mapping) or not hasattr(given, "__iter__") or not list(given):
        raise _wrong(name, f"{what} must be a list, got {given!r:.60}")
    return list(given)


def _level(name: str, given: Any) -> Level:
    if isinstance(given, tuple) and len(given) == 1:  # a code, where levels have no names
        given = given[0]
    if given is None or isinstance(given, bool):
        return given
    if isinstance(given, int | float) and math.isfinite(given):
        return float(given)
    if isinstance(given, str) and given:
        return printable([given])[0]
    raise _wrong(name, f"a level must be a text, a number, true or false, got {given!r:.60}")


def _code_of(name: str, given: Any) -> Code:
    if isinstance(given, int | float) and math.isfinite(given):
        return (float(given),)
    raise _wrong(name, f"a code must be a number, got {given!r:.60}; levels that are texts need codes")


def _some(levels: Sequence[Any]) -> str:
    return few([str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in levels])


_MAKERS: dict[str, Callable[[Column, Mapping[str, Any]], Column]] = {
    "number": _number, "whole number": _number, "fixed": _fixed, "category": _levels, "ordered levels": _levels,
    "yes/no": _levels,
}  # fmt: skip


# --- groups of one-hot columns


def _grouped(table: Table, groups: Mapping[str, Mapping[str, Any]]) -> Table:
    """The table with groups of its columns taken together, each as one category."""
    taken: dict[str, str] = {}
    firsts: dict[str, Column] = {}
    for name, own in groups.items():
        parts = printable(_listed(name, "columns", own["columns"]))
        for part in parts:
            if part not in table.names:
                raise _wrong(name, f"there is no column {part!r}{nearest_of(part, table.names)}", table)
            if table.columns[table.names.index(part)].levels is not None:
                raise _wrong(name, f"the model takes {part!r} as a category by itself, so that it is no one-hot column")
            if part in taken:
                both = "is named twice" if taken[part] == name else f"belongs to {taken[part]!r} as well"
                raise _wrong(name, f"the column {part!r} {both}: groups must not overlap")
            taken[part] = name
        places = [table.names.index(part) for part in parts]
        if sorted(places) != list(range(min(places), min(places) + len(places))):
            where = f"among the model's inputs, which are {few(table.names)}"
            told = f"the columns {few(parts)} do not stand side by side {where}"
            raise _wrong(name, f"{told}: give a model that takes them so, by an x[:, order] in front of this one")
        tensors = {table.columns[place].input for place in places}
        if len(tensors) > 1:
            raise _wrong(name, f"its columns belong to several inputs of the model ({few(sorted(tensors))})")
        made = _group(name, parts, [place - min(places) for place in places], own)
        firsts[table.names[min(places)]] = replace(made, input=tensors.pop())
    columns = [firsts.get(c.name, c) for c in table.columns if c.name in firsts or c.name not in taken]
    names = [column.name for column in columns]
    for name in groups:
        if names.count(name) > 1:
            raise _wrong(name, "there is a column of this name beside those of the group; call the group otherwise")
    return Table(tuple(columns))


def _group(name: str, parts: tuple[str, ...], places: list[int], own: Mapping[str, Any]) -> Column:
    """`places`: of each of the columns, among them."""
    if "codes" in own:
        raise _wrong(name, "the codes of a group of one-hot columns are a 1 among zeros; leave codes out")
    levels = [_level(name, v) for v in _listed(name, "levels", own.get("levels", _own_names(name, parts)))]
    if len(levels) != len(parts):
        more = "; one that has no column is said by dropped" if len(levels) > len(parts) else ""
        raise _wrong(name, f"{len(parts)} columns stand for as many levels, got {len(levels)}{more}")
    codes = [tuple(float(place == j) for j in range(len(parts))) for place in places]
    entries = tuple(part for _, part in sorted(zip(places, parts)))
    zeros = (0.0,) * len(parts)
    unknown = own.get("unknown", False)
    if not isinstance(unknown, bool):
        raise _wrong(name, f"unknown must be true (zeros stand for any other value) or false, got {unknown!r:.60}")
    if own.get("dropped") is not None:
        if unknown:
            raise _wrong(name, "zeros stand either for the dropped level or for unknown ones: leave out one of both")
        levels, codes = [_level(name, own["dropped"]), *levels], [zeros, *codes]
    if len({key_of(level) for level in levels}) != len(levels):
        raise _wrong(name, f"two of the levels {_some(levels)} are the same")
    if None in levels[:-1] and own["kind"] == "ordered levels":
        raise _wrong(name, "a missing value has no place among ordered levels")
    if own["kind"] == "ordered levels" and own.get("dropped") is not None:
        levels, codes = _in_order(levels, codes)
    return Column(name, tuple(levels), tuple(codes), zeros if unknown else None, kind=own["kind"], parts=entries)


def _in_order(levels: list[Level], codes: list[Code]) -> tuple[list[Level], list[Code]]:
    """Ordered levels of which one was dropped: the first one, unless all are numbers."""
    if all(isinstance(level, float) for level in levels):
        order = sorted(range(len(levels)), key=lambda k: float(levels[k] or 0))
        return [levels[k] for k in order], [codes[k] for k in order]
    return levels, codes


def _own_names(name: str, parts: Sequence[str]) -> list[str]:
    """Levels by the names of their columns, without that of the group."""
    for mark in _MARKS:
        if all(part.startswith(name + mark) and len(part) > len(name + mark) for part in parts):
            return [part.removeprefix(name + mark) for part in parts]
    return list(parts)


__all__ = ["declared", "names_or_kinds", "with_table"]
