"""Pictures of regions. matplotlib is imported when a picture is drawn, and draws straight into files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError

Files = Path | Sequence[Path]
NORMAL, ROBUST = "#d9772b", "#2b6cb0"
YELLOW, BLUE = "#f2c200", "#1f4fd8"
SHADES = " ░▒▓█"
_PASTELS = (
    "#f7d6d0", "#d3e4f3", "#d8efd3", "#efe0f5", "#fbe8cf", "#d5efee", "#f5d9e8", "#e6e6e6", "#ecebc8", "#dcd9f2",
)  # fmt: skip


def bounding_maps(
    path: Files,
    images: Tensor,
    maps: Mapping[str, Tensor],
    *,
    titles: Sequence[str] | None = None,
    low: float = -1.0,
    high: float = 1.0,
    scale: str = "log",
) -> tuple[Path, ...]:
    """One row per image: the image, then the bounding map of each model (the paper's figure of bounding maps).

    `images`: `r x h x w`, pixels in `[low, high]`. `maps`: the model's name -> eps, `r x h x w`.
    `titles`: what stands in front of each row. `scale`: "log", one colour scale for all maps, printed beside them; or
    "paper", shades of grey showing 1 - 5 eps. In both, darker means more room.
    """
    if scale not in ("log", "paper"):
        raise InputError(f'scale must be "log" or "paper", got {scale!r}')
    for name, eps in maps.items():
        if eps.shape != images.shape or images.dim() != 3:
            raise InputError(f"map {name!r} has shape {tuple(eps.shape)}, the images {tuple(images.shape)} (r x h x w)")
    rows, columns = len(images), 1 + len(maps)
    every = torch.stack(list(maps.values()))
    if not bool((every > 0).any()):
        raise InputError("there is nothing to draw: every eps is zero")

    def draw(figure: Any) -> None:
        from matplotlib.colors import LogNorm

        axes = figure.subplots(rows, columns, squeeze=False)
        least, most = float(every[every > 0].min()), float(every.max())
        norm = LogNorm(least, most)
        for r in range(rows):
            axes[r, 0].imshow(images[r].numpy(), cmap="gray", vmin=low, vmax=high)
            axes[r, 0].set_ylabel(titles[r] if titles else "", fontsize=11)
            for c, eps in enumerate(maps.values()):
                if scale == "log":
                    shown = axes[r, c + 1].imshow(eps[r].numpy(), cmap="YlGnBu", norm=norm)
                else:
                    shown = axes[r, c + 1].imshow((1 - 5 * eps[r]).numpy(), cmap="gray", vmin=0, vmax=1)
        for ax, title in zip(axes[0], ("input", *maps)):
            ax.set_title(title, fontsize=11)
        for ax in axes.flat:
            ax.set_xticks([])
            ax.set_yticks([])
        bar = figure.colorbar(shown, ax=axes[:, 1:], shrink=0.9 if rows < 3 else 0.6, pad=0.03)
        if scale == "log":
            bar.set_label(f"ε: how far a pixel may move either way (pixels in [{low:g}, {high:g}])\ndarker: more room")
            _plain_ticks(bar.ax.yaxis, least, most)
        else:
            bar.set_label("1 − 5 ε (the paper's scale; darker: more room)")
        figure.suptitle("Bounding maps: the certified room of every pixel", fontsize=13)

    return _save(path, (1.4 + 2.1 * columns, 0.7 + 2.1 * rows), draw)


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
    values = {name: e[e > 0].flatten().double().numpy() for name, e in eps.items()}
    if not all(len(v) for v in values.values()):
        raise InputError("there is nothing to draw: some model has no eps above zero")
    least, most = min(v.min() for v in values.values()), max(v.max() for v in values.values())
    # The few smallest extents would stretch the axis over decades; they are counted in the first bin.
    smallest, least = least, max(least, min(float(np.quantile(v, 0.005)) for v in values.values()))
    bins = np.geomspace(least * 0.999, most * 1.001, 36)

    def draw(figure: Any) -> None:
        ax = figure.subplots()
        for (name, v), colour in zip(values.items(), (NORMAL, ROBUST, "#4a4a4a", "#2f8f4e")):
            weights = np.full(len(v), 100 / len(v))
            style = {"histtype": "stepfilled", "alpha": 0.45, "edgecolor": colour, "facecolor": colour, "lw": 1.2}
            ax.hist(np.maximum(v, least), bins=bins, weights=weights, label=f"{name}: share of features", **style)
            for lines, dash, what in ((uniform, ":", "uniform radius"), (geomean, "-", "geometric mean")):
                if lines is not None:
                    at = lines[name]
                    ax.axvline(at, color=colour, ls=dash, lw=2.2, label=f"{name}: {what} {at:.3f}")
        if tau is not None:
            ax.axvline(tau, color="black", ls="--", lw=1.2)
            back = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
            place: Any = {"xycoords": ax.get_xaxis_transform(), "textcoords": "offset points", "xytext": (12, 0)}
            ax.annotate(f"adversary's\nbudget τ = {tau:g}", (tau, 0.98), va="top", fontsize=9, bbox=back, **place)
        ax.set_xscale("log")
        _plain_ticks(ax.xaxis, least, most)
        about = (f" ({unit})" if unit else "") + ", log scale" + ("; first bar: or less" if smallest < least else "")
        ax.set_xlabel("certified extent ε of a feature" + about)
        ax.set_ylabel("% of features")
        ax.set_title(title, fontsize=12)
        ax.grid(alpha=0.25, lw=0.6)
        ax.set_axisbelow(True)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)

    return _save(path, (8.0, 5.4), draw)


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
            _plain_ticks(
                ax.xaxis, min(ends) / 1.1, max(ends) * 1.1, (1, 3) if max(ends) / min(ends) > 200 else (1, 2, 5)
            )
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
    return _save(path, (4.6 * columns + 0.4, 3.3 * -(-len(panels) // columns) + 1.0), draw)


def _quantile(counted: Counted, share: float) -> float:
    """The edge of a bin below which about this share of the extents lie."""
    below = counted.counts.cumsum() / counted.counts.sum()
    k = int(np.searchsorted(below, share))
    return float(counted.edges[k if share < 0.5 else k + 1])


def score_maps(path: Files, maps: Mapping[str, Mapping[str, Tensor]], *, title: str = "") -> tuple[Path, ...]:
    """A column per panel, a row per model: how much room each pixel has over a whole set, relative to the average.

    `maps`: the panel's title -> the model's name -> scores, `h x w`, see `elbowroom.analyse.feature_robustness`.
    """
    names = list(dict.fromkeys(name for models in maps.values() for name in models))
    every = [float(e) for models in maps.values() for m in models.values() for e in (m.min(), m.max())]
    if not every or min(every) <= 0 or any(m.dim() != 2 for models in maps.values() for m in models.values()):
        raise InputError("score maps must be h x w with scores above zero")

    def draw(figure: Any) -> None:
        from matplotlib.colors import LogNorm

        axes = figure.subplots(len(names), len(maps), squeeze=False)
        norm = LogNorm(min(every), max(every))
        for c, (head, models) in enumerate(maps.items()):
            for r, name in enumerate(names):
                ax = axes[r, c]
                ax.set_xticks([])
                ax.set_yticks([])
                if name in models:
                    shown = ax.imshow(models[name].numpy(), cmap="YlGnBu", norm=norm)
                if r == 0:
                    ax.set_title(head, fontsize=11)
                if c == 0:
                    ax.set_ylabel(name, fontsize=11)
        bar = figure.colorbar(shown, ax=axes, shrink=0.85, pad=0.02)
        bar.set_label("room, times the input's geometric mean\ndarker: more room")
        _plain_ticks(bar.ax.yaxis, min(every), max(every))
        if title:
            figure.suptitle(title, fontsize=13)

    return _save(path, (1.6 + 2.2 * len(maps), 0.7 + 2.2 * len(names)), draw)


def regions_2d(
    path: Files,
    model: Callable[[Tensor], Tensor],
    panels: Mapping[str, tuple[Certificates, Certificates]],
    *,
    low: float = -1.0,
    high: float = 1.0,
    title: str = "",
    side: int = 500,
) -> tuple[Path, ...]:
    """Certified boxes in the plane, over the network's true decision regions (the paper's figure of synthetic data).

    `model`: `b x 2` -> logits. `panels`: a title -> (uniform, non-uniform) certificates of the same inputs, both boxes.
    The data lie in the square `[low, high]^2`; the picture reaches as far as the boxes. `side`: points per side of the
    grid that shows the decisions.
    """
    for name, pair in panels.items():
        for certs in pair:
            if certs.lower is None or certs.upper is None or certs.x.shape[1:] != (2,):
                raise InputError(f"panel {name!r}: regions_2d draws boxes around points in the plane")
    corners = [c for pair in panels.values() for certs in pair for c in (certs.lower, certs.upper) if c is not None]
    ends = torch.cat([*corners, torch.tensor([[low, low], [high, high]], dtype=torch.float64)])
    room = 0.03 * (high - low)
    (left, bottom), (right, top) = (ends.amin(0) - room).tolist(), (ends.amax(0) + room).tolist()

    def draw(figure: Any) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch, Rectangle

        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        xs, ys = np.linspace(left, right, side), np.linspace(bottom, top, side)
        grid = torch.from_numpy(np.stack(np.meshgrid(xs, ys), -1).reshape(-1, 2))
        with torch.no_grad():
            logits = model(grid)
        for ax, (name, (uniform, box)) in zip(axes, panels.items()):
            _decisions(ax, xs, ys, logits)
            ax.add_patch(
                Rectangle((low, low), high - low, high - low, fill=False, ec="#777777", lw=0.9, ls=(0, (4, 3)))
            )
            for certs, colour, width in ((box, BLUE, 1.7), (uniform, YELLOW, 1.7)):
                _boxes(ax, certs, colour, width)
            _numbers(ax, box)
            ax.set_xlim(left, right)
            ax.set_ylim(bottom, top)
            ax.set_aspect("equal")
            ax.set_title(name, fontsize=11)
            ax.set_xlabel("feature 1")
            ax.set_ylabel("feature 2")
        handles: list[Any] = [
            Patch(facecolor="#fff3b8", edgecolor=YELLOW, lw=1.7, label="uniform box, certified"),
            Patch(facecolor="#cfdcff", edgecolor=BLUE, lw=1.7, label="non-uniform box, certified"),
            Line2D([], [], color="black", lw=0.9, label="decision boundary"),
            Line2D([], [], color="#777777", lw=0.9, ls=(0, (4, 3)), label="the data's square"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
        if title:
            figure.suptitle(title, fontsize=13)

    height = 6.1 * (top - bottom) / (right - left) + 1.4
    return _save(path, (6.6 * len(panels), height), draw)


def need_matplotlib() -> None:
    """An error in words where pictures cannot be drawn; worth asking before long work that ends in one."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("pictures need matplotlib, which is not installed: pip install 'elbowroom[demo]'") from None


def text_map(
    values: Tensor, *, low: float | None = None, high: float | None = None, log: bool = False, unit: str = ""
) -> str:
    """A small map as text, two characters per pixel in five shades, and under it a line that says what the shades mean.

    `values`: `h x w`. `low`, `high`: where the scale begins and ends; default, the smallest and the largest value.
    `log`: shades of equal ratios instead of equal differences. Fuller means larger.
    """
    if values.dim() != 2 or not values.numel() or not bool(values.isfinite().all()):
        raise InputError(f"a text map needs finite values of shape h x w, got shape {tuple(values.shape)}")
    start = float(values.min()) if low is None else low
    end = float(values.max()) if high is None else high
    if log and start <= 0:
        raise InputError(f"a log scale needs values above zero, it would begin at {start:g}")
    if not start <= end:
        raise InputError(f"the scale's low {start:g} is above its high {end:g}")
    n = len(SHADES)
    edges = [start * (end / start) ** (k / n) if log else start + (end - start) * k / n for k in range(1, n)]
    levels = torch.bucketize(values.double(), torch.tensor(edges, dtype=torch.float64), right=True)
    lines = ["".join(SHADES[k] * 2 for k in row) for row in levels.tolist()]
    ends = [_short(e) for e in edges]
    meanings = [f"below {ends[0]}", *(f"to {e}" for e in ends[1:]), "more"]
    legend = "  ".join(f"[{SHADES[k] * 2}] {meanings[k]}" for k in range(n))
    return "\n".join([*lines, legend + (f"  ({unit})" if unit else "")])


def _short(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.0f}"


# --- parts of pictures


def _decisions(ax: Any, xs: np.ndarray, ys: np.ndarray, logits: Tensor) -> None:
    """Where the network decides what, in pale colours, with thin black lines between."""
    from matplotlib.colors import ListedColormap

    n = logits.shape[1]
    colours = ListedColormap([_PASTELS[k % len(_PASTELS)] for k in range(n)])
    labels = logits.argmax(1).reshape(len(ys), len(xs)).numpy()
    step_x, step_y = (xs[1] - xs[0]) / 2, (ys[1] - ys[0]) / 2
    extent = (xs[0] - step_x, xs[-1] + step_x, ys[0] - step_y, ys[-1] + step_y)
    ax.imshow(labels, origin="lower", extent=extent, cmap=colours, vmin=-0.5, vmax=n - 0.5, interpolation="nearest")
    for k in range(n):
        # The margin over the best other class is zero just on the boundary of class k: straight lines stay straight.
        others = logits.clone()
        others[:, k] = -math.inf
        margin = (logits[:, k] - others.amax(1)).reshape(labels.shape).numpy()
        if margin.min() < 0 < margin.max():
            ax.contour(xs, ys, margin, levels=[0.0], colors="black", linewidths=0.7)


def _boxes(ax: Any, certs: Certificates, colour: str, width: float) -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    assert certs.lower is not None and certs.upper is not None
    for k in certs.certified.nonzero().flatten().tolist():
        (x, y), (w, h) = certs.lower[k].tolist(), (certs.upper[k] - certs.lower[k]).tolist()
        ax.add_patch(Rectangle((x, y), w, h, facecolor=to_rgba(colour, 0.16), edgecolor=colour, lw=width, zorder=3))


def _numbers(ax: Any, certs: Certificates) -> None:
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.2, foreground="white")]
    for k, (x, y) in enumerate(certs.x.tolist()):
        ax.plot([x], [y], ".", color="black", ms=4, zorder=5)
        at = {"xytext": (3, 3), "textcoords": "offset points", "zorder": 6, "path_effects": halo}
        ax.annotate(str(k), (x, y), fontsize=8.5, **at)


def _plain_ticks(axis: Any, least: float, most: float, steps: Sequence[int] = (1, 2, 5)) -> None:
    """Ticks at `steps` times powers of ten, as plain numbers: a log axis without exponents."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [m * 10.0**d for d in decades for m in steps]
    inside = [t for t in ticks if least * 0.999 <= t <= most * 1.001]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _save(path: Files, size: tuple[float, float], draw: Callable[[Any], None]) -> tuple[Path, ...]:
    """Draws once, writes every file asked for (the ending decides the format)."""
    need_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    files = (path,) if isinstance(path, Path) else tuple(path)
    # A fixed salt and no date: the same picture is the same file.
    style: Any = {"svg.hashsalt": "elbowroom", "font.size": 10, "figure.constrained_layout.h_pad": 0.07}
    with matplotlib.rc_context(style):
        # Not through pyplot, which would open the caller's backend; files are drawn by Agg as it is.
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            metadata = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=160, metadata=metadata)
    return files


__all__ = [
    "Counted", "bounding_maps", "histogram", "histograms", "need_matplotlib", "regions_2d", "score_maps", "text_map",
]  # fmt: skip
