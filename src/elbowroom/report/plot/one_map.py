"""One input as a map: the room of an image's pixels, or a box in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from elbowroom.arguments.features import feature_titles
from elbowroom.certificates.result import Certificates
from elbowroom.network.names import class_title
from elbowroom.report.explain import called, one_of
from elbowroom.report.page.pictures import pixels
from elbowroom.report.plot.drawing import Drawing, as_text, plain_ticks
from elbowroom.report.plot.plane import BLUE, draw_boxes, draw_decisions
from elbowroom.report.room import Scale

_SIDE = 300  # points of the plane along a side
_FIXED = "#8a8f96"


def image_map(certs: Certificates, image: dict[str, Any], scale: Scale) -> Drawing:
    """How wide the certified range of each pixel of the one image in `certs` is, in the units of the data."""
    boxes = certs.lower is not None and certs.upper is not None
    widths = certs.upper[0] - certs.lower[0] if boxes else 2 * certs.eps[0]  # type: ignore[index]
    moves, capped = (pixels(t[0].flatten().numpy(), image) for t in (certs.eps > 0, certs.capped))
    room = pixels(widths.flatten().numpy(), image)
    room = np.where(moves, room, np.inf).min(2)  # of the channels that move, the least
    room = np.where(np.isfinite(room), room, np.nan)
    values = pixels(certs.x[0].flatten().numpy(), image)
    one = one_of(certs)

    def draw(ax: Any) -> None:
        from matplotlib.colors import LogNorm, Normalize
        from matplotlib.patches import Patch

        least, most = float(np.nanmin(room)), float(np.nanmax(room))
        logs = most > 3 * least
        norm = LogNorm(least, most) if logs else Normalize(0, most)
        ax.set_facecolor(_FIXED)
        shown = ax.imshow(room, cmap="YlGnBu", norm=norm)
        bar = ax.figure.colorbar(shown, ax=ax, shrink=0.85)
        if logs:
            plain_ticks(bar.ax.yaxis, least, most, (1, 2, 5) if most < 100 * least else (1,))
        kind = "width of the certified range" if boxes else "width of the range while the others stay"
        channels = f",\nleast of the {image['channels']} channels" if image["channels"] > 1 else ""
        bar.set_label(f"{kind}{channels}, in the inputs' units\ndarker: more room")
        handles = []
        if np.isnan(room).any():
            handles.append(Patch(color=_FIXED, label="held fixed"))
        ends = (capped & moves).any(2)
        if 0 < ends.sum() < ends.size:
            rows, columns = np.nonzero(ends)
            ax.scatter(columns, rows, s=5, marker=".", color="black", label="ends at its cap")
            handles.append(ax.collections[-1])
        if handles:
            ax.legend(
                handles=handles, loc="upper left", bbox_to_anchor=(0, -0.02), ncols=2, frameon=False, fontsize=8.5
            )
        _plain(ax, "room of each pixel (all at once)" if boxes else "room of each pixel alone")

    def image_itself(ax: Any) -> None:
        low, high = (float(t.nanmean() if not t.isfinite().all() else t.min()) for t in (scale.low, scale.high))
        known = low < high
        if image["channels"] in (3, 4) and known:
            ax.imshow(np.clip((values - low) / (high - low), 0, 1))
        else:
            shown = ax.imshow(values[..., 0], cmap="gray", **({"vmin": low, "vmax": high} if known else {}))
            ax.figure.colorbar(shown, ax=ax, shrink=0.85)
        what = f"{as_text(called(one), 24)} stays" if one["label"] is not None else "the specification holds"
        _plain(ax, f"input {one['input']}: {what}")

    return Drawing((9.6, 4.4), draw, image_itself)


def _plain(ax: Any, title: str) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(title, fontsize=11)


def plane_map(certs: Certificates, scale: Scale) -> Drawing:
    """The box of the one input in `certs`, of two features, over what the network decides around it."""
    net = certs.network
    assert net is not None and certs.lower is not None and certs.upper is not None
    corners = torch.stack([certs.lower[0].flatten(), certs.upper[0].flatten()])
    width = (corners[1] - corners[0]).clamp_min(1e-12)
    low, high = corners[0] - width, corners[1] + width
    known = scale.low < scale.high
    low = torch.where(known, torch.minimum(scale.low, corners[0]), low)
    high = torch.where(known, torch.maximum(scale.high, corners[1]), high)
    room = 0.03 * (high - low)
    (left, bottom), (right, top) = (low - room).tolist(), (high + room).tolist()
    one, names = one_of(certs), feature_titles(net)
    units = [c.unit for c in net.about.table.columns] if net.about.table else ["", ""]

    def draw(ax: Any) -> None:
        xs, ys = np.linspace(left, right, _SIDE), np.linspace(bottom, top, _SIDE)
        grid = torch.from_numpy(np.stack(np.meshgrid(xs, ys), -1).reshape(-1, 2))
        with torch.no_grad():
            outputs = net(grid.reshape(-1, *net.input_shape)).double()
        if one["label"] is not None and bool(outputs.isfinite().all()):
            logits = outputs if net.decision == "max" else -outputs
            draw_decisions(ax, xs, ys, logits)
            for k, at in _middles(logits.argmax(1), xs, ys).items():
                ax.text(*at, as_text(class_title(net, k), 24), ha="center", va="center", fontsize=9, color="#444444")
        draw_boxes(ax, certs, BLUE, 1.8)
        x, y = certs.x[0].flatten().tolist()
        ax.plot([x], [y], "o", color="black", ms=5, zorder=5)
        ax.set_xlim(left, right)
        ax.set_ylim(bottom, top)
        ax.set_aspect("auto")
        labels = [as_text(name) + (f" ({as_text(unit, 16)})" if unit else "") for name, unit in zip(names, units)]
        ax.set_xlabel(labels[0])
        ax.set_ylabel(labels[1])
        what = f"{as_text(called(one), 24)} stays" if one["label"] is not None else "the specification holds"
        ax.set_title(
            f"Input {one['input']}: {what} in the blue box\n(around it: what the network decides, on a grid)",
            fontsize=11,
        )

    return Drawing((6.4, 5.8), draw)


def _middles(decided: torch.Tensor, xs: np.ndarray, ys: np.ndarray) -> dict[int, tuple[float, float]]:
    """For each class that is decided somewhere, the point of a coarse grid farthest from where another is."""
    step = max(1, len(xs) // 30)
    coarse = decided.reshape(len(ys), len(xs))[step // 2 :: step, step // 2 :: step]
    rows, columns = coarse.shape
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()
    edge = torch.stack([places[:, 0], rows - 1 - places[:, 0], places[:, 1], columns - 1 - places[:, 1]]).amin(0) + 1
    found = {}
    for k in coarse.unique().tolist():
        own = coarse.flatten() == k
        others = places[~own]
        away = torch.cdist(places[own], others).amin(1) if len(others) else edge[own]
        row, column = places[own][torch.minimum(away, edge[own]).argmax()].long().tolist()
        found[k] = (float(xs[step // 2 + step * column]), float(ys[step // 2 + step * row]))
    return found


__all__ = ["image_map", "plane_map"]
