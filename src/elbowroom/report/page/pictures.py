"""Small pictures as PNG inside the page, and the plane with what a network decides there."""

from __future__ import annotations

import base64
import itertools
import math
import struct
import zlib
from typing import Any

import numpy as np
import torch

from elbowroom.certificates.store import Run
from elbowroom.network.graph import Network
from elbowroom.report.room import Scale
from elbowroom.runs.one_input import numbers_of

# From little to much: light to dark, so that maps can be read without colour.
MAP = ("#ffffd9", "#edf8b1", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#253494", "#081d58")
PALE = (
    "#f7d6d0", "#d3e4f3", "#d8efd3", "#efe0f5", "#fbe8cf", "#d5efee", "#f5d9e8", "#e6e6e6", "#ecebc8", "#dcd9f2",
)  # fmt: skip
_SIDE = 240  # points of the plane along a side
_MOST = 300  # regions drawn
_VIEW = 480  # units of the drawing along its longer side


def png(index: np.ndarray, palette: tuple[str, ...]) -> str:
    """A picture of palette colours, `h x w` numbers of them, as the address of an image."""
    rows = np.zeros((index.shape[0], index.shape[1] + 1), dtype=np.uint8)  # each begins with its filter, none
    rows[:, 1:] = index
    colours = b"".join(bytes.fromhex(colour[1:]) for colour in palette)
    head = struct.pack(">IIBBBBB", index.shape[1], index.shape[0], 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", colours), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


def shades(count: int = 64) -> tuple[str, ...]:
    """The colours of a map, from little room to much."""
    stops = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in MAP])
    at = np.linspace(0, len(MAP) - 1, count)
    mixed = np.stack([np.interp(at, np.arange(len(MAP)), stops[:, k]) for k in range(3)], 1).round().astype(int)
    return tuple(f"#{r:02x}{g:02x}{b:02x}" for r, g, b in mixed.tolist())


def feature_map(features: list[dict[str, Any]], image: dict[str, Any]) -> dict[str, Any] | None:
    """The mean room of each pixel over a run (the least of its channels), as a picture; None where there is none."""
    key = "share" if all(f["share"] is not None for f in features) else "extent"
    values = np.array([f[key] if f[key] is not None else 0.0 for f in features])
    values = pixels(values, image).min(2)
    most, least = float(values.max()), float(values[values > 0].min()) if (values > 0).any() else 0.0
    if not most > 0:
        return None
    logs = np.log(np.maximum(values, least)) - math.log(least)
    whole = math.log(most / least) or 1.0
    palette = shades()
    index = np.minimum((logs / whole * len(palette)).astype(int), len(palette) - 1)
    return {"src": png(index, palette), "least": least, "most": most, "key": key, "colours": list(MAP)}


def pixels(values: np.ndarray, image: dict[str, Any]) -> np.ndarray:
    """Numbers per feature as `h x w x c`."""
    h, w, c = image["height"], image["width"], image["channels"]
    return values.reshape(h, w, c) if image["last"] else values.reshape(c, h, w).transpose(1, 2, 0)


# --- the plane


def plane_of(run: Run, scale: Scale) -> dict[str, Any] | None:
    """Inputs of two features and their regions over what the network decides there (or, of a regression, its first
    output in bands); None for any other run."""
    if run.network.n_inputs != 2 or not run.finished():
        return None
    shapes, ends = _regions(run)
    known = torch.stack([scale.low, scale.high]).tolist()
    corners = np.concatenate([np.empty((0, 2)), *ends, *([known] if np.isfinite(known).all() else [])])
    if not len(corners):
        return None
    low, high = corners.min(0), corners.max(0)
    if not np.isfinite(2 * (high - low)).all():
        return None
    room = np.where(high > low, 0.04 * (high - low), 0.5)
    low, high = low - room, high + room
    picture, legend = _decided(run.network, low, high, run.read().spec_group is not None)
    if picture is None:
        return None
    for shape in shapes:
        shape["points"] = " ".join(
            f"{_VIEW * x:.2f},{_VIEW * (1 - y):.2f}" for x, y in (shape["points"] - low) / (high - low)
        )
        shape["x"], shape["y"] = (
            (_VIEW * np.abs(np.array([0, 1]) - (shape["at"] - low) / (high - low))).round(2).tolist()
        )
        del shape["at"]
    return {
        "src": picture,
        "regions": shapes,
        "view": _VIEW,
        "low": low.tolist(),
        "high": high.tolist(),
        "legend": legend,
    }


def _regions(run: Run) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
    """The outlines of the first regions, and all their corners."""
    found: list[dict[str, Any]] = []
    corners = []
    for k in run.finished():
        certs = run.read(k)
        for row, number in enumerate(numbers_of(run, k, certs)):
            x = certs.x[row].flatten().numpy()
            if len(found) >= _MOST or not np.isfinite(x).all():
                continue
            outline = np.stack([x, x])
            if certs.status[row] == "certified" and certs.basis is None:
                outline = _outline(certs.settings["p"], *(t[row].flatten().numpy() for t in (certs.center, certs.eps)))
                if certs.lower is not None and certs.upper is not None:
                    (a, b), (c, d) = certs.lower[row].flatten().tolist(), certs.upper[row].flatten().tolist()
                    outline = np.array([[a, b], [c, b], [c, d], [a, d]])
            found.append({"number": number, "certified": len(outline) > 2, "points": outline, "at": x})
            corners.append(outline)
    return found, [np.concatenate(corners)] if corners else []


def _outline(p: Any, center: np.ndarray, eps: np.ndarray) -> np.ndarray:
    """Corners of a box or an l1 ball, points of an ellipse (on it, so that what is drawn lies inside)."""
    if p == "inf":
        return np.asarray(center + eps * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]))
    angles = np.linspace(0, 2 * np.pi, 4 if p == 1 else 60, endpoint=False)
    return np.asarray(center + eps * np.stack([np.cos(angles), np.sin(angles)], 1))


def _decided(net: Network, low: np.ndarray, high: np.ndarray, bands: bool) -> tuple[str | None, list[dict[str, str]]]:
    xs, ys = (np.linspace(low[k], high[k], _SIDE) for k in range(2))
    grid = torch.from_numpy(np.stack(np.meshgrid(xs, ys[::-1]), -1).reshape(-1, *net.input_shape))
    with torch.no_grad():
        outputs = net(grid)
    if not bool(outputs.isfinite().all()):
        return None, []
    if bands:
        first = outputs[:, 0].reshape(_SIDE, _SIDE).numpy()
        edges = np.linspace(first.min(), first.max(), len(PALE) + 1)
        index = np.clip(np.searchsorted(edges, first, "right") - 1, 0, len(PALE) - 1)
        named = [f"{a:.3g} to {b:.3g}" for a, b in itertools.pairwise(edges)]
        return png(index, shades(len(PALE))), [{"colour": c, "name": n} for c, n in zip(shades(len(PALE)), named)]
    index = net.decide(outputs).reshape(_SIDE, _SIDE).numpy()
    names = net.about.classes or tuple(map(str, range(net.n_outputs)))
    palette = tuple(PALE[k % len(PALE)] for k in range(net.n_outputs))
    shown = [k for k in range(net.n_outputs) if (index == k).any()][: len(PALE)]
    return png(index % 256, palette[:256]), [{"colour": palette[k], "name": names[k]} for k in shown]
