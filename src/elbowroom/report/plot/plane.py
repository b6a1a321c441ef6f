"""Boxes in the plane, over what the network decides there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError
from elbowroom.report.plot.drawing import Files, save

YELLOW, BLUE = "#f2c200", "#1f4fd8"
_PASTELS = (
    "#f7d6d0", "#d3e4f3", "#d8efd3", "#efe0f5", "#fbe8cf", "#d5efee", "#f5d9e8", "#e6e6e6", "#ecebc8", "#dcd9f2",
)  # fmt: skip


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
            draw_decisions(ax, xs, ys, logits)
            ax.add_patch(
                Rectangle((low, low), high - low, high - low, fill=False, ec="#777777", lw=0.9, ls=(0, (4, 3)))
            )
            for certs, colour, width in ((box, BLUE, 1.7), (uniform, YELLOW, 1.7)):
                draw_boxes(ax, certs, colour, width)
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
    return save(path, (6.6 * len(panels), height), draw)


def draw_decisions(ax: Any, xs: np.ndarray, ys: np.ndarray, logits: Tensor) -> None:
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


def draw_boxes(ax: Any, certs: Certificates, colour: str, width: float) -> None:
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
