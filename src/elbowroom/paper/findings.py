"""What was found of the models, read back from their runs: a `Finding` per model, a `Summary` per way of certifying."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elbowroom.certificates.result import STATUSES
from elbowroom.paper.certified import WAYS, held_of
from elbowroom.paper.compute import read_npz
from elbowroom.paper.models import TAU, TITLES, Model, Size

_CERTIFIED = STATUSES.index("certified")


@dataclass(frozen=True)
class Summary:
    """Of some inputs certified one way; means are over those with a certificate.

    `uniform`: the geometric mean of the uniform region's half-widths, which is its radius where nothing is cut.
    `ratio`: of the means, as in the paper. `capped`: share of features whose extent is at its cap.
    `proved`: certificates that `check` proved again.
    """

    inputs: int
    certified: int
    uniform: float
    nonuniform: float
    ratio: float
    capped: float
    evaluations: float
    gradients: float
    seconds: float
    proved: int
    check_seconds: float

    @staticmethod
    def of(held: dict[str, np.ndarray], chosen: np.ndarray | None = None) -> Summary | None:
        """`chosen`: the inputs, `b` booleans, by default all with a certificate. None where there are none."""
        good = held["status"] == _CERTIFIED
        use = good if chosen is None else good & chosen
        if not use.any():
            return None
        names = ("geomean", "capped", "evaluations", "gradients")
        nonuniform, capped, evaluations, gradients = (float(held[name][use].mean()) for name in names)
        uniform = float((held["geomean"][use] / held["ratio"][use]).mean())
        return Summary(
            len(good), int(use.sum()), uniform, nonuniform, nonuniform / uniform, capped, evaluations, gradients,
            float(held["seconds"].sum()), int(held["proved"][use].sum()), float(held["check_seconds"].sum()),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Finding:
    """Of one model, in the size it was computed in. `training`, `analysis`: what their files hold; `held`: by way, what
    is known of every input, see `elbowroom.paper.certified.held_of`."""

    model: Model
    training: dict[str, Any]
    held: dict[str, dict[str, np.ndarray]] = field(repr=False)
    analysis: dict[str, Any] | None = field(repr=False, default=None)

    @property
    def about(self) -> tuple[str, str, str]:
        """Data, architecture, and whom it was trained against, for people."""
        model = self.model
        name = TITLES[model.data] + (f" {'/'.join(model.classes)}" if model.classes else "")
        return name, model.architecture, f"PGD, τ = {TAU:g}" if model.robust else "nobody"

    @property
    def title(self) -> str:
        return ", ".join(self.about[:2])

    def summary(self, way: str) -> Summary | None:
        return Summary.of(self.held[way]) if way in self.held else None

    def first(self, way: str, n: int) -> Summary | None:
        """Of the first `n` inputs at most."""
        return Summary.of({k: v[:n] for k, v in self.held[way].items()}) if way in self.held else None

    def on_common(self, *ways: str) -> list[Summary] | None:
        """Several ways on the inputs that all of them have a certificate for; None where there are none."""
        if any(way not in self.held for way in ways):
            return None
        n = min(len(self.held[way]["status"]) for way in ways)
        held = [{name: column[:n] for name, column in self.held[way].items()} for way in ways]
        common = np.all([h["status"] == _CERTIFIED for h in held], axis=0)
        found = [s for s in (Summary.of(h, common) for h in held) if s is not None]
        return found if len(found) == len(ways) else None


def read(out: Path, size: Size, models: Iterable[Model]) -> list[Finding]:
    """The findings of those models that were trained."""
    found = []
    for model in models:
        own = size.of(model)
        training = out / "models" / f"{own.name}.json"
        if not training.exists():
            continue
        ways = {way: held_of(out, own.name, way) for way in WAYS}
        held = {way: columns for way, columns in ways.items() if columns is not None}
        facts, arrays = (out / "analysis" / f"{own.name}.{kind}" for kind in ("json", "npz"))
        analysis = {**json.loads(facts.read_text()), **read_npz(arrays)} if facts.exists() else None
        found.append(Finding(own, json.loads(training.read_text()), held, analysis))
    return found


def pairs(found: Iterable[Finding]) -> list[tuple[Finding, Finding]]:
    """Normal and robust models of the same kind, side by side."""
    by_kind: dict[Any, dict[bool, Finding]] = {}
    for f in found:
        by_kind.setdefault((f.model.data, f.model.widths, f.model.classes), {})[f.model.robust] = f
    return [(two[False], two[True]) for two in by_kind.values() if len(two) == 2]


def image_shape(shape: np.ndarray) -> tuple[int, ...]:
    """Height and width, with channels in front where there are several."""
    sizes = tuple(int(n) for n in shape)
    return sizes[1:] if len(sizes) == 3 and sizes[0] == 1 else sizes
