"""One input: the certified range of every feature as a bar, the least room first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from elbowroom.certificates.frame import IMPUTED, STUCK
from elbowroom.certificates.result import Certificates
from elbowroom.network.levels import alike, listed, named
from elbowroom.network.names import counted
from elbowroom.report.digits import around, at_most, near
from elbowroom.report.explain import along_what, called, one_of
from elbowroom.report.plot.drawing import Drawing, as_text, as_texts
from elbowroom.report.room import DOMAIN, Scale

BAR, TRACK, DOT, SEEN = "#2b6cb0", "#e4e7eb", "#d9772b", "#a61c1c"
_WORDS = 46  # characters of what stands beside a bar
_BEYOND = 0.25  # how far the picture goes beyond an axis, where ranges do
_HEIGHT = 0.62  # of a bar, where rows are 1 apart
# The ends of the axes, and what lies between them, which may be another one for each feature.
_OF_DOMAIN = ("lowest of the domain", "highest", "the domain")
_OBSERVED = ("lowest observed", "highest observed", "the inputs' range")
_BOTH = ("lowest of the domain, or observed", "highest", "the domain, or the inputs' range")


@dataclass(frozen=True, eq=False)
class _Row:
    """One feature: where things lie along the axis, and what is said of it."""

    name: str
    text: str
    start: float = math.nan  # of the bar; NaN without one
    end: float = math.nan
    at: float = math.nan  # the input's value
    seen: tuple[float, ...] = ()
    cells: tuple[bool, ...] = ()  # of a category: which levels are in the set
    own: tuple[bool, ...] = ()  # of a category: which level the input has; several, where they have one code
    capped: bool = False
    imputed: bool = False
    track: bool = False


def tolerance(certs: Certificates, scale: Scale, most: int) -> Drawing:
    """The features of the one input in `certs`, on the axes of `scale` where each that moves has one, else by how far
    they may move from the input's value; `most`: how many."""
    one = one_of(certs)
    shown = one["features"][:most]
    placed = all(_has_axis(f, scale) for f in shown)
    shared = not placed and all(f["share"] for f in shown if f["extent"] > 0)
    rows = [_row(certs, f, scale, placed, shared) for f in shown]
    numbers = [f["number"] for f in shown if "levels" not in f]
    of = {scale.of[k] for k in numbers if float(scale.low[k]) < float(scale.high[k])}
    axis = _BOTH if len(of) > 1 else _OF_DOMAIN if of == {DOMAIN} else _OBSERVED

    def draw(ax: Any) -> None:
        for at, row in enumerate(reversed(rows)):
            _draw_row(ax, at, row)
        _frame(ax, rows, placed, shared, axis)
        ax.set_title(_title(one), fontsize=11, loc="left", x=0.0)
        left = len(one["features"]) - len(shown)
        under = f"... and {counted(left, 'more feature')}, with more room or held fixed" if left else ""
        ax.set_xlabel("\n".join(filter(None, (ax.get_xlabel(), under))), fontsize=9)
        _legend(ax, rows, axis)

    return Drawing((9.5, 1.9 + 0.31 * len(rows)), draw)


def _title(one: dict[str, Any]) -> str:
    what = f"{as_text(called(one), 30)} stays" if one["label"] is not None else "the specification holds"
    along = along_what(one)
    if "lower" in one["features"][0]:
        return f"Input {one['input']}: {what} while every {along} lies in its range (all at once)"
    return f"Input {one['input']}: {what} while one {along} moves in its range and the others stay"


def _has_axis(f: dict[str, Any], scale: Scale) -> bool:
    low, high = float(scale.low[f["number"]]), float(scale.high[f["number"]])
    return "levels" in f or f["extent"] == 0 or low < high


def _row(certs: Certificates, f: dict[str, Any], scale: Scale, placed: bool, shared: bool) -> _Row:
    imputed = IMPUTED in f["note"]
    if "levels" in f:
        return _levels(certs, f, imputed)
    k, value = f["number"], f["value"]
    low, high = float(scale.low[k]), float(scale.high[k])
    width = certs.scale.flatten()[k].item() if shared and certs.scale is not None else 1.0

    def along(v: float) -> float:
        if placed:
            return (v - low) / (high - low) if low < high else math.nan
        return (v - value) / width if width > 0 else math.nan

    unit = f" {f['unit']}" if f["unit"] else ""
    if f["extent"] == 0:
        by = f", {STUCK}" if STUCK in f["note"] else ""
        text = as_text(f"held at {near(value, 0.0, f['decimals'])}{unit}{by}", _WORDS)
        return _Row(f["feature"], text, at=along(value), imputed=imputed, track=placed and low < high)
    ends = (f["lower"], f["upper"]) if "lower" in f else (value - f["extent"], value + f["extent"])
    if "lower" in f:
        printed = around(ends[0], value, ends[1], f["decimals"], 4)
        text = f"{printed[0]} to {printed[2]}{unit}"
    else:
        text = f"{near(value, f['extent'])} ± {at_most(f['extent'], 4)}{unit}"
    seen = [v for v in (f.get("seen_lower"), f.get("seen_upper")) if v is not None]
    return _Row(
        f["feature"], as_text(text, _WORDS), along(ends[0]), along(ends[1]), along(value),
        tuple(along(v) for v in seen), capped=bool(f["capped"]), imputed=imputed, track=placed,
    )  # fmt: skip


def _levels(certs: Certificates, f: dict[str, Any], imputed: bool) -> _Row:
    """A category: a cell per level, full where it is in the set."""
    assert certs.network is not None and certs.network.about.table is not None
    table = certs.network.about.table
    column = table.columns[table.names.index(f["feature"])]
    count = len(column.levels or ()) + (column.unknown is not None)
    own = alike(column, certs.x[0].flatten()[table.places[table.names.index(column.name)]].tolist())
    names = named(column, [True] * count)
    cells = tuple(name in f["levels"] or mine for name, mine in zip(names, own))
    many = f"any of {listed(f['levels'], ', ')}" if len(f["levels"]) > 1 else f"held at {f['value']}"
    text = many if len(many) <= _WORDS else f"any of {sum(cells)} of {len(cells)} levels (here {f['value']})"
    return _Row(f["feature"], as_text(text, _WORDS), cells=cells, own=tuple(own), imputed=imputed)


def _draw_row(ax: Any, at: float, row: _Row) -> None:
    if row.cells:
        each = 1 / len(row.cells)
        for k, inside in enumerate(row.cells):
            gap = min(0.006, each / 10)
            style = {"color": BAR} if inside else {"facecolor": "white", "edgecolor": "#9aa3ad", "lw": 0.8}
            ax.barh(at, each - 2 * gap, left=k * each + gap, height=_HEIGHT, zorder=2, **style)
        for k in (k for k, mine in enumerate(row.own) if mine):
            _dot(ax, (k + 0.5) * each, at, row.imputed)
        return
    if row.track:
        ax.barh(at, 1, height=_HEIGHT, color=TRACK, zorder=1)
    if not math.isnan(row.start):
        hatch = {"hatch": "////", "edgecolor": "white", "lw": 0} if row.capped else {}
        ax.barh(at, row.end - row.start, left=row.start, height=_HEIGHT, color=BAR, zorder=2, **hatch)
    for where in row.seen:
        ax.plot(where, at, "x", color=SEEN, mew=2, ms=6.5, zorder=3, clip_on=True)
    if not math.isnan(row.at):
        _dot(ax, row.at, at, row.imputed)


def _dot(ax: Any, x: float, y: float, imputed: bool) -> None:
    face = "white" if imputed else DOT
    ax.plot(x, y, "o", mfc=face, mec=DOT if imputed else "white", mew=1.6 if imputed else 1.2, ms=8, zorder=4)


def _frame(ax: Any, rows: list[_Row], placed: bool, shared: bool, axis: tuple[str, str, str]) -> None:
    ax.set_yticks(range(len(rows)), as_texts([row.name for row in rows])[::-1])
    for at, row in enumerate(reversed(rows)):
        ax.text(1.02, at, row.text, transform=ax.get_yaxis_transform(), va="center", fontsize=8.5, color="#333333")
    ax.set_ylim(-0.7, len(rows) - 0.3)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    moving = [row for row in rows if not math.isnan(row.start)]
    if placed:
        low = max(-_BEYOND, min((row.start for row in moving), default=0.0))
        high = min(1 + _BEYOND, max((row.end for row in moving), default=1.0))
        ax.set_xlim(min(0.0, low) - 0.015, max(1.0, high) + 0.015)
        for at, row in enumerate(reversed(rows)):
            for cut, end, sign in ((row.start < low, low, "<"), (row.end > high, high, ">")):
                if cut:  # the bar goes on
                    ax.plot(end, at, sign, color="white", ms=6, zorder=3)
        ax.set_xticks([0, 1], axis[:2])
        ax.get_xticklabels()[0].set_horizontalalignment("left")
        ax.get_xticklabels()[1].set_horizontalalignment("right")
        return
    most = max((max(-row.start, row.end) for row in moving), default=1.0) or 1.0
    ax.set_xlim(-1.06 * most, 1.06 * most)
    ax.axvline(0, color="#9aa3ad", lw=0.8, zorder=0)
    what = "as a share of its range" if shared else "in its own unit"
    ax.set_xlabel(f"distance from the input's value, {what}")


def _legend(ax: Any, rows: list[_Row], axis: tuple[str, str, str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=BAR, label="certified (right: in its own unit)")]
    if any(row.capped for row in rows):
        handles.append(Patch(facecolor=BAR, edgecolor="white", hatch="////", label="certified, ends at its cap"))
    dot: Any = {"marker": "o", "ls": "", "ms": 8}
    handles.append(Line2D([], [], mfc=DOT, mec="white", label="the input's value", **dot))
    if any(row.imputed for row in rows):
        handles.append(Line2D([], [], mfc="white", mec=DOT, mew=1.6, label="missing: what the model takes", **dot))
    if any(row.track for row in rows):
        handles.append(Patch(color=TRACK, label=axis[2]))
    if any(row.seen for row in rows):
        cross: Any = {"marker": "x", "ls": "", "mew": 2, "ms": 6.5, "color": SEEN}
        handles.append(Line2D([], [], label="nearest counterexample found", **cross))
    below = -0.055 - 0.9 / max(3, len(rows))
    ax.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0, below), ncols=min(3, len(handles)), frameon=False,
        fontsize=8.5,
    )  # fmt: skip


__all__ = ["tolerance"]
