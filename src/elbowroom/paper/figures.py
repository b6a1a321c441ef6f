"""The paper's figures of regions: histograms and bounding maps, normal models against robust ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from elbowroom.paper.compute import BINS
from elbowroom.paper.findings import Finding, image_shape, pairs
from elbowroom.paper.models import TAU
from elbowroom.report import plot


def _files(out: Path, name: str) -> list[Path]:
    return [out / "figures" / f"{name}.{kind}" for kind in ("png", "svg")]


def histogram_figures(out: Path, found: Sequence[Finding]) -> list[Path]:
    """One image per pair, as in the paper, and all certified inputs of all pairs."""
    files: list[Path] = []
    panels: dict[str, dict[str, plot.Counted]] = {}
    for pair in pairs(found):
        if not all(f.analysis and f.summary("sequential") for f in pair):
            continue
        named = dict(zip(("normal", "robust"), pair))
        title = pair[0].title
        panels[title] = {
            name: plot.Counted(BINS, f.analysis["counts"], s.uniform, s.nonuniform)
            for name, f in named.items() for s in [f.summary("sequential")] if f.analysis and s
        }  # fmt: skip
        common = [int(k) for k in pair[0].analysis["index"] if k in pair[1].analysis["index"]]  # type: ignore[index]
        if not common:
            continue
        shown = common[0]
        eps = {name: _region(f, shown) for name, f in named.items()}
        held = {name: f.held["sequential"] for name, f in named.items()}
        files += plot.histogram(
            _files(out, f"histogram-{pair[0].model.name.removesuffix('-normal')}"),
            eps,
            uniform={name: float(h["uniform"][shown]) for name, h in held.items()},
            geomean={name: float(h["geomean"][shown]) for name, h in held.items()},
            tau=TAU,
            title=f"{title}: the room of the pixels of test image {shown}",
            unit="pixels in [-1, 1]",
        )
    if panels:
        files += plot.histograms(
            _files(out, "histograms"), panels, tau=TAU, title="The room of every pixel of every certified test image"
        )
    return files


def _region(f: Finding, index: int) -> Tensor:
    assert f.analysis is not None
    return torch.from_numpy(f.analysis["eps"][list(f.analysis["index"]).index(index)])


def map_figures(out: Path, found: Sequence[Finding]) -> list[Path]:
    """Bounding maps of the models of two classes: an image of each class, beside the maps of both models."""
    files: list[Path] = []
    for pair in pairs(found):
        first, second = (f.analysis for f in pair)
        if first is None or second is None:
            continue
        common = [k for k in first["index"] if k in second["index"]]
        labels = dict(zip(first["index"].tolist(), first["y"].tolist()))
        rows = [next((int(k) for k in common if labels[k] == c), None) for c in (0, 1)]
        shown = [k for k in rows if k is not None]
        if not shown:
            continue
        shape = image_shape(first["shape"])
        at = [first["index"].tolist().index(k) for k in shown]
        images = torch.from_numpy(first["x"][at]).reshape(-1, *shape)
        maps = {
            name: torch.stack([_region(f, k) for k in shown]).reshape(-1, *shape)
            for name, f in zip(("normal", "robust"), pair)
        }
        classes = pair[0].model.classes or ()
        titles = [f"digit {classes[labels[k]]}" for k in shown]
        for scale in ("paper", "log"):
            name = f"bounding-maps-{'v'.join(classes)}" + ("" if scale == "paper" else "-log")
            files += plot.bounding_maps(_files(out, name), images, maps, titles=titles, scale=scale)
    return files


def ranking_figure(out: Path, found: Sequence[Finding]) -> list[Path]:
    """Which pixels have room over the whole test set."""
    maps: dict[str, dict[str, Tensor]] = {}
    for pair in pairs(found):
        for name, f in zip(("normal", "robust"), pair):
            if f.analysis:
                score = torch.from_numpy(f.analysis["score"]).log().reshape(image_shape(f.analysis["shape"]))
                mean = score.mean(0) if score.dim() == 3 else score  # over colours
                maps.setdefault("\n".join(f.about[:2]), {})[name] = mean.exp()
    if not maps:
        return []
    return list(
        plot.score_maps(_files(out, "ranking"), maps, title="Which pixels have room, over all certified images")
    )
