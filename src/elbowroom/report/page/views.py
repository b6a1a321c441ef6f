"""What the page's template draws: tables, bars and histograms as texts and places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from elbowroom.machine.meter import in_words
from elbowroom.network.names import counted
from elbowroom.report.diffs import change, decided, percent, sentences, worst
from elbowroom.report.digits import at_least, at_most
from elbowroom.report.flags import as_flags
from elbowroom.report.page.words import room_in_percent
from elbowroom.runs.settings import FLAGS

_WIDTH, _HEIGHT = 320, 120  # of a histogram, in its own units
_TICKS = 5
_FEATURES = 15  # in the overview
_CHANGES = 12
_NONE = "none"


def side_by_side(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs' table: a row per measure, a cell per run."""
    found = [{"head": head, "cells": [cell(run) for run in runs]} for head, cell in _MEASURES.items()]
    return [row for row in found if any(cell not in ("-", _NONE) for cell in row["cells"])]


_MEASURES: dict[str, Callable[[dict[str, Any]], str]] = {
    "inputs": lambda run: f"{run['summary']['done']:,}",
    "data": lambda run: run["summary"]["data"] or "-",
    "certified": lambda run: _part(run["summary"]["status"]["certified"], run["summary"]["done"]),
    "decided wrongly": lambda run: _part(run["summary"]["status"]["misclassified"], run["summary"]["done"]),
    "not certified": lambda run: _part(run["summary"]["status"]["not_certified"], run["summary"]["done"]),
    "could not be tried": lambda run: _part(
        run["summary"]["status"]["nonfinite"] + run["summary"]["status"]["error"], run["summary"]["done"]
    ),
    "accuracy": lambda run: _or_dash(run["summary"]["accuracy"], lambda v: f"{v:.2%}"),
    "size of a region (mean over inputs)": lambda run: _or_dash(run["summary"]["size"], lambda v: at_most(v, 4)),
    "uniform size: with one radius for all features": lambda run: _or_dash(
        run["summary"]["uniform_size"], lambda v: f"{v:.4g}"
    ),
    "ratio of these sizes": lambda run: _or_dash(run["summary"]["ratio_of_sizes"], lambda v: f"{v:.3f}"),
    "counterexample at (median, times the region)": lambda run: _or_dash(
        (run["summary"]["reach"] or {}).get("median"), lambda v: at_least(v, 4)
    ),
    "similarity of regions (mean cosine)": lambda run: _or_dash(run["similarity"], lambda v: f"{v:.3f}"),
    "shape": lambda run: run["summary"]["region"],
    "arithmetic": lambda run: run["summary"]["deployed"] or "real numbers",
    "effort": lambda run: run["effort"] or "-",
    "computing time": lambda run: in_words(run["summary"]["seconds"]),
}


def _part(count: int, of: int) -> str:
    return f"{count:,} ({count / of:.1%})" if count else _NONE


def _or_dash(value: Any, words: Callable[[Any], str]) -> str:
    return "-" if value is None else words(value)


def histogram(counted: dict[str, list[float]] | None, what: str, share: bool = False) -> dict[str, Any] | None:
    """Bars of a histogram, ticks under them, and the same in words. `share`: whether edges are shares."""
    if not counted or not sum(counted["counts"]):
        return None
    edges, counts = counted["edges"], counted["counts"]
    texts = [percent(edge) if share else f"{edge:.3g}" for edge in edges]
    each, most = _WIDTH / len(counts), max(counts)
    bars = [
        {
            "x": round(k * each + 0.5, 2),
            "width": round(each - 1, 2),
            "height": round(_HEIGHT * count / most, 2),
            "y": round(_HEIGHT * (1 - count / most), 2),
            "title": f"{texts[k]} to {texts[k + 1]}: {count:,}",
        }
        for k, count in enumerate(counts)
    ]
    step = max(1, math.ceil(len(counts) / _TICKS))
    ticks = [{"x": round(k * each, 2), "text": texts[k]} for k in range(0, len(edges), step)]
    peak = counts.index(most)
    alt = f"Histogram of {what}: {sum(counts):,} in all, most of them between {texts[peak]} and {texts[peak + 1]}."
    return {"what": what, "bars": bars, "ticks": ticks, "alt": alt, "width": _WIDTH, "height": _HEIGHT}


def feature_bars(run: dict[str, Any]) -> dict[str, Any] | None:
    """The features with the least room over all certified inputs, as bars."""
    key = "share" if run["by_share"] else "extent"
    moving = sorted((f for f in run["features"] if f["extent"] and f[key] is not None), key=lambda f: f[key])
    if not moving:
        return None
    shown, most = moving[:_FEATURES], max(f[key] for f in moving[:_FEATURES])
    rows = [
        {
            "name": f["feature"],
            "text": room_in_percent(f["share"])
            if run["by_share"]
            else f"{at_most(f['extent'], 3)} {f['unit']}".strip(),
            "width": round(100 * f[key] / most, 1) if most > 0 else 0,
            "least": f["least"],
        }
        for f in shown
    ]
    what = f"as a share of {run['axis']}" if run["by_share"] else f"by {run['summary']['extent']}"
    return {"rows": rows, "what": what, "more": len(moving) - len(shown)}


def comparison(one: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Two runs compared, for the page."""
    old, new = runs[one["old"]]["title"], runs[one["new"]]["title"]
    if one["refused"]:
        return {"old": old, "new": new, "refused": as_flags(one["refused"], FLAGS)}
    found = one["found"]
    rows = [
        {
            "input": row["input"],
            "name": row["name"] or "",
            "old": _or_dash(row["old"], lambda v: at_most(v, 4)),
            "new": _or_dash(row["new"], lambda v: at_most(v, 4)),
            "change": change(row),
            "decision": decided(row, " → "),
        }
        for row in worst(found, _CHANGES)
    ]
    shrinks = [row["shrink"] for row in found["rows"] if row["new"] is not None and row["shrink"] is not None]
    return {
        "old": old,
        "new": new,
        "refused": None,
        "sentences": [f"{line[0].upper()}{line[1:]}." for line in sentences(found)],
        "rows": rows,
        "picture": histogram(_factors(shrinks), "new size / old size, of the inputs certified in both"),
    }


def _factors(shrinks: list[float]) -> dict[str, list[float]] | None:
    """New size over old one, in bars about 1."""
    edges = [0, 1 / 4, 1 / 2, 1 / 1.5, 1 / 1.2, 1 / 1.05, 1.05, 1.2, 1.5, 2, 4, math.inf]
    if not shrinks:
        return None
    counts = [0.0] * (len(edges) - 1)
    for shrink in shrinks:
        place = sum(1 - shrink >= edge for edge in edges[1:-1])
        counts[place] += 1
    return {"edges": edges, "counts": [int(count) for count in counts]}


def plane(run: dict[str, Any]) -> dict[str, Any] | None:
    """The plane with what surrounds it."""
    if not run["plane"]:
        return None
    names = [f["feature"] + (f" ({f['unit']})" if f["unit"] else "") for f in run["features"]]
    low, high = ([f"{v:.3g}" for v in run["plane"][end]] for end in ("low", "high"))
    drawn = sum(1 for region in run["plane"]["regions"] if region["certified"])
    alt = (
        f"{counted(len(run['plane']['regions']), 'input')} in the plane, {drawn:,} with their certified regions, over "
        f"what the network {'decides' if run['decides'] else 'gives'}."
    )
    head = "Regions over what the network decides" if run["decides"] else "Regions over the first output"
    return {**run["plane"], "head": head, "names": names, "from": low, "to": high, "alt": alt}


def map_of(run: dict[str, Any]) -> dict[str, Any] | None:
    """The mean room of pixels with its legend in words."""
    found = run["map"]
    if not found:
        return None
    words = [
        room_in_percent(found[end]) if found["key"] == "share" else at_most(found[end], 3) for end in ("least", "most")
    ]
    unit = f"share of {run['axis']}" if found["key"] == "share" else run["summary"]["extent"]
    stops = list(zip(itertools.count(), found["colours"]))
    alt = (
        f"Map of the mean room of each pixel over {counted(run['certified'], 'input')}, from {words[0]} to {words[1]}; "
        "darker: more room."
    )
    return {**found, "words": words, "unit": unit, "alt": alt, "stops": stops}
