"""What the page's script works with: the same numbers as texts, rounded to the side on which they stay true."""

from __future__ import annotations

import functools
from typing import Any

from elbowroom.certificates.frame import STUCK
from elbowroom.certificates.result import STATUSES
from elbowroom.network.names import printable
from elbowroom.report.digits import at_least, at_most, between, extent_text, near

_between = functools.lru_cache(1 << 16)(between)  # pixels repeat
_near = functools.lru_cache(1 << 16)(near)
_at_most = functools.lru_cache(1 << 16)(at_most)
_at_least = functools.lru_cache(1 << 16)(at_least)
FIXED, DECIDED, CAPPED, PLAIN = "f", "d", "c", "."


def compact_table(table: dict[str, list[Any]]) -> dict[str, Any]:
    """The columns of all inputs: texts that repeat by number; sizes rounded down, reaches up, in four digits."""
    messages = list(dict.fromkeys(table["message"]))
    where = {message: k for k, message in enumerate(messages)}
    names = table["name"]
    return {
        "number": table["number"],
        "name": None if all(name is None for name in names) else [None if n is None else printable(n) for n in names],
        "status": [STATUSES.index(status) for status in table["status"]],
        "label": table["label"],
        "message": [where[message] for message in table["message"]],
        "messages": [printable(message) for message in messages],
        "size": [None if v is None else float(at_most(v, 4)) for v in table["size"]],
        "ratio": [None if v is None else round(v, 3) for v in table["ratio"]],
        "reach": None
        if all(v is None for v in table["reach"])
        else [None if v is None else float(at_least(v, 4)) for v in table["reach"]],
        "least": table["least"],
        "share": [None if v is None else float(at_most(v, 3)) for v in table["share"]],
    }


def _flag(feature: dict[str, Any]) -> str:
    if feature["extent"] == 0:
        return DECIDED if STUCK in feature["note"] else FIXED
    return CAPPED if feature["capped"] else PLAIN


def compact_detail(one: dict[str, Any]) -> dict[str, Any]:
    """One input: columns over its features, in the network's order; ranges rounded inwards, what was seen outwards."""
    features = sorted(one["features"], key=lambda f: f["number"])
    point = one["counterexample"]["point"] if one["counterexample"] else None
    found: dict[str, Any] = {
        "margin": float(at_most(one["margin"], 3)) if features else None,
        "search": printable(one["search"]),
        "outputs": None
        if one["outputs"] is None
        else [
            {
                "output": o["output"],
                "above": None if o["above"] is None else at_most(o["above"]),
                "below": None if o["below"] is None else at_least(o["below"]),
            }
            for o in one["outputs"]
        ],
        "categories": [
            {
                "column": printable(c["column"]),
                "entries": c["entries"],
                "level": printable(c["level"]),
                "levels": [printable(repr(level) if "," in level else level) for level in c["levels"]],
            }
            for c in one["categories"]
        ],
        "point": None if point is None else [_near(v, 0.0) for v in point],
    }
    if not features:
        return {**found, "x": [_near(v, 0.0) for v in one["x"]], "flags": ""}
    found.update(
        x=[_near(f["value"], f["extent"], f["decimals"]) for f in features],
        extent=[extent_text(f) for f in features],
        share=[None if f["share"] is None else float(_at_most(f["share"], 3)) for f in features],
        flags="".join(map(_flag, features)),
    )
    if "lower" in features[0]:
        ends = [_between(f["lower"], f["upper"], f["decimals"]) for f in features]
        found.update(lower=[low for low, _ in ends], upper=[high for _, high in ends])
    if any(f.get("seen_lower") is not None or f.get("seen_upper") is not None for f in features):
        found.update(
            below=[None if f["seen_lower"] is None else _at_most(f["seen_lower"]) for f in features],
            above=[None if f["seen_upper"] is None else _at_least(f["seen_upper"]) for f in features],
        )
    return found
