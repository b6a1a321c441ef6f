"""How a network's file holds the columns of its table: a list of objects, exact numbers, nothing unknown."""

from __future__ import annotations

import math
from typing import Any

from elbowroom.errors import InputError
from elbowroom.network.table import Column, Level, Table

_MOST = 1 << 20  # numbers in all codes of a column; more is taken for a damaged file
_FIELDS = ("name", "levels", "codes", "unknown", "missing", "unit")
_INPUT = "input"  # written where there is one
_DECLARED = ("kind", "decimals", "domain", "parts")  # there only where something was said


def written_table(table: Table | None) -> list[dict[str, Any]] | None:
    """As JSON holds it; `missing` in a list, which is empty for NaN."""
    if table is None:
        return None
    return [
        {
            "name": column.name,
            "levels": None if column.levels is None else list(column.levels),
            "codes": [list(code) for code in column.codes],
            "unknown": None if column.unknown is None else list(column.unknown),
            "missing": [] if isinstance(column.missing, float) and math.isnan(column.missing) else [column.missing],
            "unit": column.unit,
            **({_INPUT: column.input} if column.input else {}),
            **_written_kind(column),
        }
        for column in table.columns
    ]


def _written_kind(column: Column) -> dict[str, Any]:
    """What was declared; an end of a domain that is infinite is null."""
    domain = None if column.domain is None else [end if math.isfinite(end) else None for end in column.domain]
    told = {"kind": column.kind or None, "decimals": column.decimals, "domain": domain, "parts": list(column.parts)}
    return {name: value for name, value in told.items() if value not in (None, [])}


def read_table(found: list[Any], where: str) -> Table:
    """What `written_table` wrote, or an `InputError` that names what is wrong."""
    try:
        return Table(tuple(_column(one, f"{where}: column {k}") for k, one in enumerate(found)))
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def _column(found: Any, where: str) -> Column:
    if not isinstance(found, dict) or not set(_FIELDS) <= set(found) <= {*_FIELDS, _INPUT, *_DECLARED}:
        raise InputError(f"{where} must be an object with {', '.join(_FIELDS)} (and {', '.join(_DECLARED)})")
    for name in ("name", "unit", _INPUT):
        if not isinstance(text := found.get(name, ""), str) or not text.isprintable():
            raise InputError(f"{where}: {name} must be a printable text, got {text!r:.80}")
    levels = None if found["levels"] is None else tuple(_level(v, where) for v in _list(found["levels"], where))
    codes = tuple(_code(code, where) for code in _list(found["codes"], where))
    if sum(map(len, codes)) > _MOST:
        raise InputError(f"{where}: the codes hold more than {_MOST} numbers")
    missing = [_level(v, where) for v in _list(found["missing"], where)] or [math.nan]
    unknown = None if found["unknown"] is None else _code(found["unknown"], where)
    own = found["name"], levels, codes, unknown, missing[0], found["unit"], found.get(_INPUT, "")
    return Column(*own, **_kind(found, where))


def _kind(found: dict[str, Any], where: str) -> dict[str, Any]:
    """What was declared, as `Column` takes it, which looks at the values."""
    told: dict[str, Any] = {name: found[name] for name in ("kind", "decimals") if name in found}
    if not isinstance(told.get("kind", ""), str):
        raise InputError(f"{where}: kind must be a text, got {told['kind']!r:.80}")
    if "domain" in found:
        ends = _list(found["domain"], where)
        good = [end is None or (type(end) in (int, float) and math.isfinite(end)) for end in ends]
        if len(ends) != 2 or not all(good):
            raise InputError(f"{where}: a domain must be two numbers, got {found['domain']!r:.80}")
        told["domain"] = tuple(other if end is None else float(end) for end, other in zip(ends, (-math.inf, math.inf)))
    if "parts" in found:
        told["parts"] = tuple(_list(found["parts"], where))
        if not all(isinstance(name, str) and name.isprintable() for name in told["parts"]):
            raise InputError(f"{where}: parts must be printable texts, got {found['parts']!r:.80}")
    return told


def _list(found: Any, where: str) -> list[Any]:
    if not isinstance(found, list):
        raise InputError(f"{where}: a list was expected, not {found!r:.80}")
    return found


def _level(found: Any, where: str) -> Level:
    if found is None or isinstance(found, bool):
        return found
    if isinstance(found, str) and found.isprintable():
        return found
    if isinstance(found, int | float) and math.isfinite(found):
        return float(found)
    raise InputError(f"{where}: a level must be a printable text, a finite number, true, false or null: {found!r:.80}")


def _code(found: Any, where: str) -> tuple[float, ...]:
    numbers = _list(found, where)
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in numbers):
        raise InputError(f"{where}: a code must be finite numbers, got {found!r:.80}")
    return tuple(map(float, numbers))


__all__ = ["read_table", "written_table"]
