"""The page as a file: one text that needs nothing else, and lets nothing else in.

Whatever comes from files (names of classes, features, folders, messages) is escaped by the template, and inside the
data of the script by `embedded`; the script writes it as text only. Should something slip through, the page's own
policy lets no script run but ours, by its hash, and nothing be loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from elbowroom.certificates.result import STATUSES
from elbowroom.errors import InputError
from elbowroom.files import replace_file
from elbowroom.network.names import printable
from elbowroom.report.page import views
from elbowroom.report.page.compact import compact_detail, compact_table
from elbowroom.report.plain import plain

_SHOWN = ("title", "folder", "network", "claim", "words", "summary", "audit")  # of a run, by the template
_TEMPLATE, _STYLE, _SCRIPT = "page.html", "page.css", "page.js"


def need_jinja() -> None:
    """An error in words where pages cannot be made; worth asking before long work that ends in one."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise InputError("reports need jinja2, which is not installed: pip install 'elbowroom[report]'") from None


def write_page(report: dict[str, Any], path: Path) -> None:
    """Writes a report (see `elbowroom.report.page.gather.report_of`) as a page."""
    text = page_of(report).encode()
    replace_file(path, lambda file: file.write(text))


def write_json(report: dict[str, Any], path: Path) -> None:
    """Writes the same for programs."""
    text = json.dumps(plain(report), allow_nan=False).encode()
    replace_file(path, lambda file: file.write(text))


def page_of(report: dict[str, Any]) -> str:
    """The text of the page."""
    need_jinja()
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FunctionLoader(_part), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, script = _part(_STYLE), _part(_SCRIPT)
    runs = report["runs"]
    shown = {
        "version": report["elbowroom"],
        "runs": [{name: run[name] for name in _SHOWN} for run in runs],
        "table": views.side_by_side(runs),
        "comparisons": [views.comparison(one, runs) for one in report["comparisons"]],
        "overviews": [_overview(run) for run in runs],
        "claims": list(dict.fromkeys(run["claim"] for run in runs)),
    }
    return environment.get_template(_TEMPLATE).render(
        **readable(shown),
        style=Markup(style),
        script=Markup(script),
        data=Markup(embedded(_data(report))),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def embedded(value: Any) -> str:
    """JSON that is the same inside a page: no character of it can end or begin an element, or a comment."""
    text = json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def readable(value: Any) -> Any:
    """The same with every text printable: no control characters, nothing that turns the direction of what follows."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {name if isinstance(name, int) else readable(name): readable(item) for name, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list | tuple) else value


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _overview(run: dict[str, Any]) -> dict[str, Any]:
    what = f"rooms of all features that may move, {'as shares of ' + run['axis'] if run['by_share'] else 'half-widths'}"
    pictures = [
        views.histogram(run["rooms"], what, run["by_share"]),
        views.histogram(run["summary"]["histogram"], "ratios: how much wider ranges are than with one radius"),
    ]
    return {
        "title": run["title"],
        "histograms": [picture for picture in pictures if picture],
        "features": None if run["image"] else views.feature_bars(run),
        "map": views.map_of(run),
        "plane": views.plane(run),
    }


def _data(report: dict[str, Any]) -> dict[str, Any]:
    """What the script works with."""
    runs = []
    for run in report["runs"]:
        features = run["features"]
        runs.append(
            {
                "title": printable(run["title"]),
                "decides": run["decides"],
                "extent": run["summary"]["extent"],
                "region": run["summary"]["region"],
                "classes": readable(run["classes"]),
                "byShare": run["by_share"],
                "axis": run["axis"],
                "image": run["image"],
                "names": [printable(f["feature"]) for f in features],
                "units": [printable(f["unit"]) for f in features] if any(f["unit"] for f in features) else None,
                "low": [f["low"] for f in features],
                "high": [f["high"] for f in features],
                "table": compact_table(run["inputs"]),
                "details": {str(one["input"]): compact_detail(one) for one in run["details"]},
            }
        )
    pairs = [
        {
            "old": one["old"],
            "new": one["new"],
            "shrink": {str(row["input"]): _rounded(row["shrink"]) for row in one["found"]["rows"]},
        }
        for one in report["comparisons"]
        if one["found"]
    ]
    return {"runs": runs, "pairs": pairs, "statuses": list(STATUSES)}


def _rounded(shrink: float | None) -> float | None:
    return None if shrink is None else float(f"{shrink:.4g}")
