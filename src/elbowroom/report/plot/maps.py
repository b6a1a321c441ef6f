"""Maps of an image's pixels: how much room each has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.report.plot.drawing import Files, plain_ticks, save


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
            bar.set_label(
                f"ε: half the width of a pixel's certified range (pixels in [{low:g}, {high:g}])\ndarker: more room"
            )
            plain_ticks(bar.ax.yaxis, least, most)
        else:
            bar.set_label("1 − 5 ε (the paper's scale; darker: more room)")
        figure.suptitle("Bounding maps: the certified room of every pixel", fontsize=13)

    return save(path, (1.4 + 2.1 * columns, 0.7 + 2.1 * rows), draw)


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
        plain_ticks(bar.ax.yaxis, min(every), max(every))
        if title:
            figure.suptitle(title, fontsize=13)

    return save(path, (1.6 + 2.2 * len(maps), 0.7 + 2.2 * len(names)), draw)
