"""The picture of both sensor examples: how far features may be off, alone and all at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ALONE, TOGETHER, CHANGES, STATED = "#b9d3ea", "#0072b2", "#d55e00", "#222222"  # told apart by everyone


@dataclass(frozen=True)
class Row:
    """One feature: `value`, and `width` of its range. `low`, `high`: proved, with all others fixed; `seen_low`,
    `seen_high`: where the decision changes then, infinite where it was not seen to. `tolerance`: needed, all at once;
    `accuracy`: as stated. `text`: the tolerance, for people."""

    name: str
    value: float
    width: float
    low: float
    high: float
    seen_low: float
    seen_high: float
    tolerance: float
    accuracy: float
    text: str


def draw(path: Path, rows: list[Row], title: str, together: str, alone: str, threshold: float = 0.1) -> None:
    """Bars in per cent of each feature's range. `together`, `alone`: what the bars are, for the legend; `threshold`: up
    to which the axis is linear."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = Figure(figsize=(9.5, 1.9 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for at, row in enumerate(rows):
        share = 100 / row.width
        low, high = share * (row.low - row.value), share * (row.high - row.value)
        axes.barh(at, high - low, 0.7, left=low, color=ALONE, zorder=1)
        size = share * row.tolerance
        axes.barh(at, 2 * size, 0.36, left=-size, color=TOGETHER, zorder=2)
        for side in (-1, 1):
            stated = side * share * row.accuracy
            if row.accuracy:
                axes.plot([stated, stated], [at - 0.3, at + 0.3], color=STATED, lw=1.6, zorder=3)
        for seen in (row.seen_low, row.seen_high):
            if abs(seen) < float("inf"):
                axes.plot(share * (seen - row.value), at, "x", color=CHANGES, ms=6, mew=1.8, zorder=4)
        axes.annotate(row.text, (1.01, at), xycoords=("axes fraction", "data"), va="center", fontsize=8.5)
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xscale("symlog", linthresh=threshold, linscale=0.6)
    ticks = [t for t in (0.1, 1.0, 10.0, 100.0) if t >= threshold]
    axes.set_xticks(
        [*(-t for t in reversed(ticks)), 0, *ticks],
        [*(f"-{t:g}" for t in reversed(ticks)), "0", *(f"{t:g}" for t in ticks)],
    )
    axes.set_xlim(-130, 130)
    axes.axvline(0, color="black", lw=0.8)
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    axes.set_xlabel("off by, in % of the feature's range (right: what is needed, in its unit)", fontsize=9)
    axes.set_title(title, fontsize=10.5, loc="left")
    handles = [
        Patch(color=TOGETHER, label=together),
        Patch(color=ALONE, label=alone),
        Line2D(
            [],
            [],
            marker="x",
            ls="",
            color=CHANGES,
            mew=1.8,
            label="the decision changes there (no cross: the range ends)",
        ),
    ]
    if any(row.accuracy for row in rows):
        handles.insert(1, Line2D([], [], marker="|", ls="", ms=10, mew=1.6, color=STATED, label="accuracy as stated"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, facecolor="white")
