"""Many inputs: the room of each feature, how it is distributed, and how similar regions are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from elbowroom.arguments.features import feature_titles
from elbowroom.certificates.frame import columns_of, levels_allowed
from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError
from elbowroom.network.names import class_title, counted
from elbowroom.report.plot.drawing import Drawing, as_text, as_texts
from elbowroom.report.plot.histograms import draw_extents
from elbowroom.report.room import Scale, of_mixed_units, shares

_SHADES = "cividis_r"  # light to dark from the lowest value to the highest: it reads in grey, too
_BINS = 80  # along the axis, in which dots that would hide each other are spread
_MOST = 1000  # regions compared with each other


@dataclass(frozen=True, eq=False)
class _Feature:
    """One row of the summary: room and value of every certified input, `b` each; NaN where it is held fixed."""

    name: str
    room: np.ndarray
    value: np.ndarray
    levels: bool


def summary(certs: Certificates, scale: Scale, most: int) -> Drawing:
    """A row per feature, a dot per certified input."""
    good = certs[certs.certified]
    by_share = _comparable(good, scale)
    features = _features(good, scale, by_share)
    moving = [f for f in features if np.isfinite(f.room).any()]
    if not moving:
        raise InputError("no feature may move in any certified region, so there is no room to draw")
    moving.sort(key=lambda f: (f.levels and not by_share, float(np.nanmedian(f.room))))
    shown = moving[:most]

    def draw(ax: Any) -> None:
        for at, feature in enumerate(reversed(shown)):
            _dots(ax, at, feature, by_share)
        ax.set_yticks(range(len(shown)), as_texts([f.name for f in shown])[::-1])
        ax.set_ylim(-0.7, len(shown) - 0.3)
        ax.grid(axis="y", alpha=0.35, lw=0.6)
        ax.set_axisbelow(True)
        for side in ("top", "right", "left"):
            ax.spines[side].set_visible(False)
        ax.tick_params(axis="y", length=0)
        if by_share:
            ax.set_xlim(left=0)
            ax.set_xlabel(f"width of the certified range, % of {scale.words}")
        else:
            ax.set_xscale("log")
            ax.set_xlabel("width of the certified range, in the feature's own unit, log scale")
        left, fixed = len(moving) - len(shown), len(features) - len(moving)
        notes = [f"{left:,} more with more room"] * bool(left) + [f"{fixed:,} held fixed"] * bool(fixed)
        notes += ["squares: share of a category's levels"] * any(f.levels for f in shown)
        ax.set_xlabel("\n".join(filter(None, (ax.get_xlabel(), "; ".join(notes)))))
        count = len(good)
        ax.set_title(
            f"Room of each feature: a dot per certified input ({count:,}), | the median", fontsize=11, loc="left"
        )
        _value_bar(ax)

    return Drawing((9.0, 1.9 + 0.36 * len(shown)), draw)


def _comparable(certs: Certificates, scale: Scale) -> bool:
    """Whether every feature that moves has an axis, so that shares can be compared."""
    moving = (certs.eps > 0).flatten(1).any(0)
    return certs.basis is None and bool((scale.low < scale.high)[moving].all())


def _features(certs: Certificates, scale: Scale, by_share: bool) -> list[_Feature]:
    net = certs.network
    assert net is not None
    x, eps = (t.flatten(1).numpy() for t in (certs.x, certs.eps))
    boxes = certs.lower is not None and certs.upper is not None
    width = (certs.upper - certs.lower).flatten(1).numpy() if boxes else 2 * eps  # type: ignore[operator]
    room = 100 * shares(certs, scale).numpy() if by_share else width
    room = np.where(eps > 0, room, math.nan)
    if certs.basis is not None:
        return [_Feature(f"direction {k}", room[:, k], np.full(len(x), math.nan), False) for k in range(x.shape[1])]
    titles, found = feature_titles(net), []
    for column, place in zip(columns_of(net).columns, columns_of(net).places):
        k = place.start
        if column.levels is None:
            found.append(_Feature(column.name if net.about.table else titles[k], room[:, k], x[:, k], False))
        else:
            count = len(column.levels) + (column.unknown is not None)
            sizes = np.array([len(levels) for levels in levels_allowed(certs, column)], dtype=float)
            share = np.where(sizes > 1, 100 * sizes / count, math.nan)
            if by_share:  # a share of levels beside widths in units would be another axis
                found.append(_Feature(column.name, share, np.full(len(x), math.nan), True))
    return found


def _dots(ax: Any, at: float, feature: _Feature, by_share: bool) -> None:
    known = np.isfinite(feature.room)
    room, value = feature.room[known], feature.value[known]
    low, high = (float(np.min(value)), float(np.max(value))) if np.isfinite(value).all() and len(value) else (0.0, 0.0)
    shade = (value - low) / (high - low) if high > low else np.full(len(value), 0.5)
    place = room if by_share else np.log(room)
    offset = _spread(place)
    style: Any = {"marker": "s" if feature.levels else "o", "s": 15, "lw": 0.3, "edgecolors": "#444444"}
    if feature.levels:  # whose values have no order
        ax.scatter(room, at + offset, c="white", zorder=2, rasterized=len(room) > 400, **style)
    else:
        ax.scatter(
            room, at + offset, c=shade, cmap=_SHADES, vmin=0, vmax=1, zorder=2, rasterized=len(room) > 400, **style
        )
    ax.plot([float(np.median(room))] * 2, [at - 0.42, at + 0.42], color="#a61c1c", lw=1.4, zorder=3)


def _spread(place: np.ndarray) -> np.ndarray:
    """How far up or down dots go, so that those at nearly one place lie side by side; at most 0.38."""
    low, high = float(place.min()), float(place.max())
    bins = np.zeros(len(place), dtype=int) if not high > low else ((place - low) / (high - low) * _BINS).astype(int)
    offset = np.zeros(len(place))
    seen: dict[int, int] = {}
    for k in np.argsort(place, kind="stable"):
        count = seen[int(bins[k])] = seen.get(int(bins[k]), -1) + 1
        offset[k] = (count + 1) // 2 * (1 if count % 2 else -1)
    return offset * min(0.11, 0.38 / max(1.0, float(np.abs(offset).max())))


def _value_bar(ax: Any) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    bar = ax.figure.colorbar(ScalarMappable(Normalize(0, 1), _SHADES), ax=ax, ticks=[0, 1], aspect=40, pad=0.02)
    bar.ax.set_yticklabels(["lowest", "highest"])
    bar.set_label("the input's value of the feature")
    bar.outline.set_visible(False)


def extents_histogram(certs: Certificates, scale: Scale) -> Drawing:
    """How the room of all features of certified inputs is distributed: in units where all are alike, else in shares."""
    good = certs[certs.certified]
    free = (good.eps > 0).flatten(1)
    if not bool(free.any()):
        raise InputError("no feature may move in any certified region, so there is no room to draw")
    count = counted(len(good), "certified input")
    if of_mixed_units(scale, good.network):
        values = 100 * shares(good, scale)[free]

        def draw(ax: Any) -> None:
            title = f"How much room the features of {count} have"
            draw_extents(
                ax, {"": values}, what=f"width of a feature's certified range, % of {scale.words}", title=title
            )

        return Drawing((8.0, 4.2), draw)
    unit = _unit(good)

    def draw_lengths(ax: Any) -> None:
        extent = "half-width ε of a feature's certified range" if good.lower is not None else "extent ε of a feature"
        known = good.ratio > 0
        # Measured as the regions are: over the free features, cut to the domain.
        uniform = {"": float((good.geomean[known] / good.ratio[known]).mean())} if bool(known.all()) else None
        draw_extents(
            ax, {"": good.eps.flatten(1)[free]}, uniform=uniform, geomean={"": float(good.geomean.mean())}, what=extent,
            unit=unit, title=f"How much room the features of {count} have",
            sizes=("mean size of the uniform regions:", "mean size of the regions:"),
        )  # fmt: skip
        ax.legend(frameon=False, fontsize=9)

    return Drawing((8.0, 4.2), draw_lengths)


def _unit(certs: Certificates) -> str:
    assert certs.network is not None
    table = certs.network.about.table
    units = {column.unit for column in table.columns if column.levels is None} if table else set()
    return as_text(next(iter(units)), 20) if len(units) == 1 else ""


def similarity(certs: Certificates, scale: Scale) -> Drawing:
    """The cosine between the extents of each two certified inputs, sorted by label."""
    good = certs[certs.certified]
    if len(good) < 2:
        raise InputError(f"similarity is about two certified inputs or more, and there {'is' if len(good) else 'are'} "
                         f"{len(good)}")  # fmt: skip
    left = max(0, len(good) - _MOST)
    good = good[:_MOST]
    good = good[torch.argsort(good.labels, stable=True)]
    by_share = of_mixed_units(scale, good.network)
    extents = (shares(good, scale) if by_share else good.eps.flatten(1)).nan_to_num(0.0)
    lengths = extents.norm(dim=1, keepdim=True)
    if not bool((lengths > 0).all()):
        raise InputError("some certified region has no extent in any feature, so that it has no direction to compare")
    cosines = (extents / lengths) @ (extents / lengths).T
    pairs = cosines[tuple(torch.triu_indices(len(good), len(good), 1))]

    def draw(ax: Any) -> None:
        shown = ax.imshow(cosines.numpy(), cmap="cividis", vmin=float(pairs.min()), vmax=1, interpolation="nearest")
        bar = ax.figure.colorbar(shown, ax=ax, shrink=0.85)
        bar.set_label("cosine; 1: the same features have room")
        _label_ticks(ax, good)
        of = "room as a share" if by_share else "extents"
        mean, least = float(pairs.mean()), float(pairs.min())
        notes = f"{len(good):,} regions, cosine of their {of}: mean {mean:.3f}, least {least:.3f}"
        ax.set_title(f"How similar regions are\n{notes}", fontsize=11, loc="left")
        if left:
            ax.set_xlabel(f"{ax.get_xlabel()}\nthe first {_MOST:,}; {left:,} more are not shown".strip())

    return Drawing((7.2, 6.2), draw)


def _label_ticks(ax: Any, certs: Certificates) -> None:
    labels = certs.labels.tolist()
    firsts = [k for k, label in enumerate(labels) if k == 0 or label != labels[k - 1]]
    if labels[0] < 0 or len(firsts) > 20:
        ax.set_xlabel("input, in the order of the labels")
        return
    assert certs.network is not None
    ends = [*firsts[1:], len(labels)]
    names = as_texts([class_title(certs.network, labels[k]) for k in firsts])
    places = [(a + b - 1) / 2 for a, b in zip(firsts, ends)]
    ax.set_yticks(places, names)
    ax.set_xticks(places, names, rotation=90 if max(map(len, names)) > 3 and len(names) > 3 else 0)
    for at in firsts[1:]:
        for line in (ax.axhline, ax.axvline):
            line(at - 0.5, color="white", lw=1)
    ax.set_xlabel("inputs by the label that stays")


__all__ = ["extents_histogram", "similarity", "summary"]
