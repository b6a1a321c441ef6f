"""What a run found, in numbers: gathered part by part, so that a run of any length fits into memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from elbowroom.certificates.header import Plan
from elbowroom.certificates.result import NEEDED, STATUSES, UNDECIDED, Certificates, norm_of
from elbowroom.certificates.store import Run
from elbowroom.network.names import counted
from elbowroom.runs.origin import origin_lines
from elbowroom.runs.stored import stored_settings
from elbowroom.runs.values import ALL

EXAMPLES = 3  # of each status that is not "certified"
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
HALF_WIDTH, SEMI_AXIS, REACH = "half-width", "semi-axis", "reach along the axis alone"
_EXTENTS = {math.inf: HALF_WIDTH, 2.0: SEMI_AXIS}  # by norm; other shapes have no word for it
_BINS = 10
_NAMED = 3  # features whose own limits are told
# What a summary has that no proof covers.
_STATED = (
    "data", "searched_as", "objective", "origin", "tried", "accuracy", "uniform_size", "ratio_of_sizes", "cap",
    "beyond_domain", "capped_share", "ratios", "histogram", "explained", "examples", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What all certificates of a run are about: the regions' shape and what an extent of theirs is, by the fields that
    a proof uses; what the search called it; the arithmetic of a network as executed; whether regions
    may stick out of the domain; where the run says its network comes from, in lines; and what was to be large."""

    shape: str
    extent: str
    searched_as: str
    deployed: str | None
    beyond_domain: bool
    origin: list[str]
    objective: str = "volume"


@dataclass
class Tally:
    """Sums over the certificates seen so far. `ratios`: of the certified inputs."""

    count: int = 0
    status: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    examples: dict[str, list[tuple[int, str]]] = field(default_factory=dict)  # number of the input, message
    ratios: list[np.ndarray] = field(default_factory=list)
    reaches: list[np.ndarray] | None = None  # of the certified inputs, where counterexamples were looked for
    explained: list[np.ndarray] | None = None  # of the certified inputs: features free, needed, not decided
    geomean: float = 0.0
    uniform: float = 0.0
    seconds: float = 0.0
    capped: int = 0
    extents: int = 0  # of certified inputs, those of frozen features left out

    def add(self, certs: Certificates) -> None:
        for row, (status, message) in enumerate(zip(certs.status, certs.message)):
            self.status[status] += 1
            shown = self.examples.setdefault(status, [])
            if status != "certified" and len(shown) < EXAMPLES:
                shown.append((certs.number(row), message))
        good = certs.certified
        self.count += len(certs)
        self.seconds += float(certs.seconds.sum())
        ratio, geomean = certs.ratio[good], certs.geomean[good]
        if certs.kept is None:
            self.ratios.append(ratio.numpy())
        else:  # whose regions are not compared with a uniform one
            counts = [certs.eps[good] > 0, certs.kept[good] == NEEDED, certs.kept[good] == UNDECIDED]
            counts = [t.flatten(1).sum(1) for t in counts]
            self.explained = [*(self.explained or []), torch.stack(counts, 1).numpy()]
        if certs.reach is not None:
            self.reaches = [*(self.reaches or []), certs.reach[good].numpy()]
        self.geomean += float(geomean.sum())
        # The uniform region measured as the other one is: cut to the domain, over the free features.
        self.uniform += float(torch.where(ratio > 0, geomean / ratio, 0.0).sum())
        self.capped += int(certs.capped[good].sum())
        self.extents += int((certs.eps[good] > 0).sum())

    @property
    def certified(self) -> int:
        return self.status["certified"]

    @property
    def mean_ratio(self) -> float | None:
        """Of the inputs' own ratios."""
        if not self.certified or self.explained is not None:
            return None
        return sum(float(part.sum()) for part in self.ratios) / self.certified


def summarise(tally: Tally, plan: Plan, found: Found) -> dict[str, Any]:
    """The run as a JSON object: the row of the paper's table, how the ratios are distributed, what failed and why.

    `size`: the mean of the regions' sizes (`Certificates.geomean`); `uniform_size`: that of the uniform regions,
    measured alike; `ratio_of_sizes`: the first divided by the second; `ratios`: how the inputs' own ratios
    (`Certificates.ratio`) are distributed. `accuracy`: of the inputs that were `tried`: all but those without finite
    numbers, or with an error.
    `beyond_domain`: whether regions may stick out of the domain, since only boxes are cut to it. `stated`: which of it
    the run states, and no proof covers.
    """
    data, settings = plan.data or {}, stored_settings(plan)
    right = tally.certified + tally.status["not_certified"]
    judged = right + tally.status["misclassified"]
    told = data.get("kept") == "labels" or (not data and tally.status["misclassified"] > 0)
    ratios = np.concatenate([np.empty(0), *tally.ratios])
    return {
        "inputs": plan.inputs,
        "done": tally.count,
        "complete": tally.count == plan.inputs,
        "data": data.get("name"),
        "notes": plan.notes,
        "region": found.shape,
        "extent": found.extent,
        "searched_as": found.searched_as,
        "objective": found.objective,
        "deployed": found.deployed,
        "status": tally.status,
        "tried": judged,
        "accuracy": right / judged if told and judged else None,
        "uniform_size": tally.uniform / tally.certified if tally.certified and tally.explained is None else None,
        "size": tally.geomean / tally.certified if tally.certified else None,
        "ratio_of_sizes": tally.geomean / tally.uniform if tally.uniform else None,
        "cap": cap_in_words(settings),
        "beyond_domain": found.beyond_domain,
        "capped_share": tally.capped / tally.extents if tally.extents else None,
        "ratios": {f"{q:.0%}": float(v) for q, v in zip(QUANTILES, np.quantile(ratios, QUANTILES))}
        if len(ratios)
        else None,
        "histogram": _histogram(ratios),
        "reach": _reach(tally.reaches),
        "explained": _explained(tally.explained),
        "examples": {
            status: [{"input": k, "message": why} for k, why in shown]
            for status, shown in tally.examples.items()
            if shown
        },
        "seconds": tally.seconds,
        "origin": found.origin,
        "stated": list(_STATED),
    }


def _explained(counts: list[np.ndarray] | None) -> dict[str, float] | None:
    """Medians over the certified inputs of how many features are free, needed, and not decided."""
    whole = np.concatenate(counts) if counts else np.empty((0, 3))
    return dict(zip(("free", "needed", "undecided"), np.median(whole, 0).tolist())) if len(whole) else None


def summary_of(run: Run) -> dict[str, Any]:
    """What a run has found so far, from its parts, one at a time in memory."""
    tally = Tally()
    for k in run.finished():
        tally.add(run.read(k))
    return summarise(tally, run.plan, found_by(run))


def found_by(run: Run) -> Found:
    """What the certificates of a run are about."""
    certs = run.read()
    return Found(
        certs.shape, extent_of(certs), certs.settings["region"], certs.settings["deployed"],
        certs.lowest is not None and certs.lower is None, origin_lines(run.network),
        str(certs.settings.get("objective", "volume")),
    )  # fmt: skip


def extent_of(certs: Certificates) -> str:
    """What the extent of a feature is (of a direction, in a basis): it follows from the norm of the regions."""
    return _EXTENTS.get(norm_of(certs.settings["p"]), REACH)


def cap_in_words(settings: dict[str, Any] | None) -> str:
    """What stops an extent from growing for ever."""
    if settings is None:
        return "not stated"
    found = []
    limits, domain = settings.get("max_eps"), settings.get("domain")
    if isinstance(limits, dict) and limits == settings.get("room_scale") and domain is None:
        found.append("the width of each feature's range in the data")
    elif isinstance(limits, dict):
        found.append(
            _by_feature("max_eps", {k: f"{v:g}" if isinstance(v, int | float) else str(v) for k, v in limits.items()})
        )
    if isinstance(domain, dict):
        ends = {k: f"[{_end(v[0], '-')}, {_end(v[1], '')}]" for k, v in domain.items()}
        found.append(_by_feature("the domain", ends))
    return " and ".join(found) or "1000 uniform radii"


def _by_feature(what: str, texts: dict[str, str]) -> str:
    """A limit in words: for all features, and for those that have another."""
    own = {k: text for k, text in texts.items() if k != ALL}
    told = f"{what} {texts[ALL]}" if ALL in texts else what
    if not own:
        return told
    if len(own) <= _NAMED:
        each = ", ".join(f"{f'feature {k}' if k.isdecimal() else k}: {text}" for k, text in own.items())
        return f"{told} ({each})"
    return (
        f"{told}, and other values of {counted(len(own), 'feature')}"
        if ALL in texts
        else f"{what} of {counted(len(own), 'feature')}"
    )


def _end(value: float | None, sign: str) -> str:
    return f"{sign}inf" if value is None else f"{value:g}"


def _reach(reaches: list[np.ndarray] | None) -> dict[str, Any] | None:
    """Beyond how many regions a counterexample was found, and the median of the scales at which regions hold one; None
    where fewer than half do. None where counterexamples were not looked for."""
    if reaches is None:
        return None
    every = np.sort(np.concatenate([np.empty(0), *reaches]))
    # The upper one of two in the middle: regions are known to be scalable by no more.
    median = float(every[len(every) // 2]) if len(every) else math.inf
    return {"found": int(np.isfinite(every).sum()), "median": median if math.isfinite(median) else None}


def _histogram(ratios: np.ndarray) -> dict[str, list[float]] | None:
    """Counts of ratios in bins of equal width, except for the last one, which has all that are larger."""
    if not len(ratios):
        return None
    low, high = float(ratios.min()), float(np.quantile(ratios, 0.99))
    if not high > low:
        return {"edges": [low, float(ratios.max())], "counts": [len(ratios)]}
    edges = np.linspace(low, high, _BINS + 1)
    counts, _ = np.histogram(np.minimum(ratios, high), edges)
    return {"edges": [*edges[:-1].tolist(), float(ratios.max())], "counts": counts.tolist()}
