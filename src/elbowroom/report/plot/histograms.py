"""How the extents of features are distributed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.report.plot.drawing import NORMAL, ROBUST, Files, plain_ticks, save


def histogram(
    path: Files,
    eps: Mapping[str, Tensor],
    *,
    uniform: Mapping[str, float] | None = None,
    geomean: Mapping[str, float] | None = None,
    tau: float | None = None,
    title: str = "How much room the features have",
    unit: str = "",
) -> tuple[Path, ...]:
    """How the per-feature extents are distributed, one histogram per model (the paper's figure of bounds per feature).

    `eps`: the model's name -> extents, any shape, of one input or many; zeros are left out. `uniform`, `geomean`: the
    model's uniform radius and geometric mean, drawn as lines. `tau`: the adversary's budget. `unit`: of the features.
    """

    def draw(figure: Any) -> None:
        draw_extents(figure.subplots(), eps, uniform=uniform, geomean=geomean, tau=tau, title=title, unit=unit)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)

    if not all(bool((e > 0).any()) for e in eps.values()):
        raise InputError("there is nothing to draw: some model has no eps above zero")
    return save(path, (8.0, 5.4), draw)


def draw_extents(
    ax: Any,
    eps: Mapping[str, Tensor],
    *,
    uniform: Mapping[str, float] | None = None,
    geomean: Mapping[str, float] | None = None,
    tau: float | None = None,
    title: str = "",
    unit: str = "",
    what: str = "certified extent ε of a feature",
    sizes: tuple[str, str] = ("uniform radius", "geometric mean"),
) -> None:
    """The same on axes; `what`: what the numbers are; `sizes`: what the lines are. Without a model's name, nothing is
    said of models."""
    values = {name: e[e > 0].flatten().double().numpy() for name, e in eps.items()}
    least, most = min(v.min() for v in values.values()), max(v.max() for v in values.values())
    # The few smallest extents would stretch the axis over decades; they are counted in the first bin.
    smallest, least = least, max(least, min(float(np.quantile(v, 0.005)) for v in values.values()))
    bins = np.geomspace(least * 0.999, most * 1.001, 36)
    for (name, v), colour in zip(values.items(), (NORMAL, ROBUST, "#4a4a4a", "#2f8f4e")):
        weights = np.full(len(v), 100 / len(v))
        style: Any = {"histtype": "stepfilled", "alpha": 0.45, "edgecolor": colour, "facecolor": colour, "lw": 1.2}
        whose = f"{name}: " if name else ""
        ax.hist(np.maximum(v, least), bins=bins, weights=weights, label=f"{whose}share of features", **style)
        for lines, dash, line in ((uniform, ":", sizes[0]), (geomean, "-", sizes[1])):
            if lines is not None:
                at = lines[name]
                ax.axvline(at, color=colour, ls=dash, lw=2.2, label=f"{whose}{line} {at:.3g}")
    if tau is not None:
        ax.axvline(tau, color="black", ls="--", lw=1.2, label=f"adversary's budget τ = {tau:g}")
    ax.set_xscale("log")
    plain_ticks(ax.xaxis, least, most, (1, 2, 5) if most < 1000 * least else (1,))
    about = (f" ({unit})" if unit else "") + ", log scale" + ("; first bar: or less" if smallest < least else "")
    ax.set_xlabel(f"{what}{about}")
    ax.set_ylabel("% of features")
    ax.set_title(title, fontsize=12)
    ax.grid(alpha=0.25, lw=0.6)
    ax.set_axisbelow(True)


@dataclass(frozen=True, eq=False)
class Counted:
    """Extents of many inputs, counted: `edges`, `k + 1`, and `counts`, `k`; and their mean uniform radius and size."""

    edges: np.ndarray
    counts: np.ndarray
    uniform: float
    geomean: float


def histograms(
    path: Files, panels: Mapping[str, Mapping[str, Counted]], *, tau: float | None = None, title: str = ""
) -> tuple[Path, ...]:
    """A histogram per panel, normal beside robust, of extents that were counted before: those of a whole test set.

    `panels`: its title -> the model's name -> what was counted. The axis leaves out the last 0.1 % on either side.
    """
    if not panels or any(not c.counts.sum() for models in panels.values() for c in models.values()):
        raise InputError("there is nothing to draw: some model has no eps that was counted")

    def draw(figure: Any) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        columns = min(3, len(panels))
        axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False)
        names = list(dict.fromkeys(name for models in panels.values() for name in models))
        for ax, (head, models) in zip(axes.flat, panels.items()):
            ends = [_quantile(c, q) for c in models.values() for q in (0.001, 0.999)]
            for name, counted in models.items():
                colour = (NORMAL, ROBUST)[names.index(name) % 2]
                shares = 100 * counted.counts / counted.counts.sum()
                ax.stairs(shares, counted.edges, fill=True, color=colour, alpha=0.45)
                ax.axvline(counted.uniform, color=colour, ls=":", lw=2)
                ax.axvline(counted.geomean, color=colour, ls="-", lw=1.6)
                ends += [counted.uniform, counted.geomean]
            if tau is not None:
                ax.axvline(tau, color="black", ls="--", lw=1)
            ax.set_xscale("log")
            ax.set_xlim(min(ends) / 1.1, max(ends) * 1.1)
            wide = max(ends) / min(ends)
            ticks = (1, 2, 5) if wide <= 200 else (1, 3) if wide <= 2000 else (1,)
            plain_ticks(ax.xaxis, min(ends) / 1.1, max(ends) * 1.1, ticks)
            ax.set_title(head, fontsize=11)
            ax.set_ylabel("% of features")
            ax.set_xlabel("certified extent ε")
        for ax in axes.flat[len(panels) :]:
            ax.set_axis_off()
        handles: list[Any] = [Patch(facecolor=c, alpha=0.45, label=n) for n, c in zip(names, (NORMAL, ROBUST))]
        handles.append(Line2D([], [], color="#4a4a4a", ls=":", lw=2, label="mean uniform radius"))
        handles.append(Line2D([], [], color="#4a4a4a", lw=1.6, label="mean geometric mean"))
        if tau is not None:
            handles.append(Line2D([], [], color="black", ls="--", lw=1, label=f"adversary's budget τ = {tau:g}"))
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
        if title:
            figure.suptitle(title, fontsize=13)

    columns = min(3, len(panels))
    return save(path, (4.6 * columns + 0.4, 3.3 * -(-len(panels) // columns) + 1.0), draw)


def _quantile(counted: Counted, share: float) -> float:
    """The edge of a bin below which about this share of the extents lie."""
    below = counted.counts.cumsum() / counted.counts.sum()
    k = int(np.searchsorted(below, share))
    return float(counted.edges[k if share < 0.5 else k + 1])
