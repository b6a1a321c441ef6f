"""Tables that put the paper's figures beside ours, and whether its claims hold here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from elbowroom.analyse import correlation, neighbour_correlation
from elbowroom.paper.certified import WAYS
from elbowroom.paper.findings import Finding, Summary, image_shape, pairs
from elbowroom.paper.tables import Column, Table, number, percent

_MODEL = (Column("data"), Column("hidden layers"), Column("trained against"))
_FOUR, _THREE = number(4), number(3)
FIRST = 1000  # inputs for which times are given in any case


def _of(value: Any, get: Callable[[Any], Any]) -> Any:
    return None if value is None else get(value)


def main_table(found: Sequence[Finding]) -> Table:
    """The paper's table 1: accuracy, uniform and non-uniform bounds, ratio."""
    cap = WAYS["sequential"].cap
    columns = (
        *_MODEL, Column("accuracy %, paper", percent(1)), Column("accuracy %", percent(1)),
        Column("attacked %", percent(1)), Column("uniform, paper", _FOUR), Column("uniform", _FOUR),
        Column("non-uniform, paper", _FOUR), Column("non-uniform", _FOUR), Column("ratio, paper", _THREE),
        Column(f"ratio (cap: {cap})", _THREE), Column("features at the cap %", percent(2)), Column("inputs"),
        Column("certified"),
    )  # fmt: skip
    rows = []
    for f in found:
        paper, s = f.model.reported, f.summary("sequential")
        rows.append([
            *f.about, _of(paper, lambda p: p.accuracy / 100), f.training["test_accuracy"],
            f.training["attacked_accuracy"], _of(paper, lambda p: p.uniform), _of(s, lambda s: s.uniform),
            _of(paper, lambda p: p.nonuniform), _of(s, lambda s: s.nonuniform), _of(paper, lambda p: p.ratio),
            _of(s, lambda s: s.ratio), _of(s, lambda s: s.capped), _of(s, lambda s: s.inputs),
            _of(s, lambda s: s.certified),
        ])  # fmt: skip
    note = (
        "The paper's bounds (combined, margins from the logits) and the sequential solver; pixels in [-1, 1]. Inputs: "
        "the first of the test set; means are over the certified ones, and the ratio is that of the means, as in the "
        "paper, which states no cap. Attacked: accuracy under PGD of 20 steps with τ = 0.1."
    )
    return Table("main", columns, rows, note)


def solvers_table(found: Sequence[Finding]) -> Table:
    """The paper's solver and ours, with the paper's bounds, on the same inputs."""
    cap = WAYS["lagrangian"].cap
    columns = (
        *_MODEL, Column("inputs, both certified"), Column("augmented Lagrangian", _FOUR), Column("sequential", _FOUR),
        Column("sequential / aug. Lagr.", _THREE), Column("ratio, paper", _THREE),
        Column(f"ratio, aug. Lagr. (cap: {cap})", _THREE), Column(f"ratio, sequential (cap: {cap})", _THREE),
        Column("gradients, aug. Lagr.", number(1)), Column("gradients, sequential", number(1)),
        Column("evaluations, aug. Lagr.", number(1)), Column("evaluations, sequential", number(1)),
    )  # fmt: skip
    rows = []
    for f in found:
        both = f.on_common("lagrangian", "sequential")
        row: list[Any] = [*f.about, *[None] * 11]
        if both is not None:
            a, b = both
            row[3:] = [
                a.certified, a.nonuniform, b.nonuniform, b.nonuniform / a.nonuniform,
                _of(f.model.reported, lambda p: p.ratio), a.ratio, b.ratio, a.gradients, b.gradients, a.evaluations,
                b.evaluations,
            ]  # fmt: skip
        rows.append(row)
    note = "Non-uniform bounds. Evaluations of the bounds and gradients: per input, with the uniform baseline."
    return Table("solvers", columns, rows, note)


def ways_table(found: Sequence[Finding]) -> Table:
    """Every way of certifying, a row each."""
    columns = (
        *_MODEL, Column("certified with"), Column("inputs"), Column("certified"), Column("uniform", _FOUR),
        Column("non-uniform", _FOUR), Column("ratio", _THREE), Column("cap on ε"),
        Column("features at the cap %", percent(2)), Column("evaluations", number(1)), Column("gradients", number(1)),
        Column("s", number(1)), Column("proved again"), Column("s for that", number(1)),
    )  # fmt: skip
    rows = []
    for f in found:
        for way, kind in WAYS.items():
            s = f.summary(way)
            if s is not None:
                rows.append([
                    *f.about, kind.title, s.inputs, s.certified, s.uniform, s.nonuniform, s.ratio, kind.cap, s.capped,
                    s.evaluations, s.gradients, s.seconds, s.proved, s.check_seconds,
                ])  # fmt: skip
    note = (
        "Uniform: the geometric mean of the uniform region's half-widths, which is its radius but where the region is "
        "cut to the domain. Evaluations of the bounds and gradients: per certified input, with the uniform baseline."
    )
    return Table("ways", columns, rows, note)


def ours_table(found: Sequence[Finding]) -> Table:
    """Our bounds and shapes beside the paper's, on the same inputs."""
    caps = {way: WAYS[way].cap for way in WAYS}
    columns = (
        *_MODEL, Column("inputs, certified by all"), Column("paper's bounds", _FOUR),
        Column(f"ratio (cap: {caps['sequential']})", _THREE),
        Column(f"ratio (cap: {caps['limited']})", _THREE), Column("adaptive, direct", _FOUR),
        Column("/ paper's bounds", _THREE), Column(f"ratio (cap: {caps['adaptive']})", _THREE),
        Column("in the domain: uniform", _FOUR), Column("asymmetric", _FOUR),
        Column(f"ratio (cap: {caps['asymmetric']})", _THREE),
    )  # fmt: skip
    rows = []
    for f in found:
        row: list[Any] = [*f.about, *[None] * 10]
        common = f.on_common("sequential", "limited", "adaptive", "asymmetric")
        if common is not None:
            paper, limited, ours, cut = common
            row[3:] = [
                paper.certified, paper.nonuniform, paper.ratio, limited.ratio, ours.nonuniform,
                ours.nonuniform / paper.nonuniform, ours.ratio, cut.uniform, cut.nonuniform, cut.ratio,
            ]  # fmt: skip
        rows.append(row)
    note = "In the domain: half-widths of boxes cut to [-1, 1], geometric means; a pixel has at most 1 there."
    return Table("ours", columns, rows, note)


def cosine_table(found: Sequence[Finding]) -> Table:
    """The paper's table of cosines."""
    firsts = {f.analysis["first"]["inputs"] for f in found if f.analysis}
    first = ", ".join(str(n) for n in sorted(firsts))
    columns = (
        *_MODEL, Column("mean cosine, paper", _FOUR), Column("mean cosine", _FOUR), Column("minimum, paper", _FOUR),
        Column("minimum", _FOUR), Column("pairs of inputs", lambda n: f"{n:,}"),
        Column(f"mean, first {first} inputs", _FOUR), Column(f"minimum, first {first} inputs", _FOUR),
    )  # fmt: skip
    rows = []
    for f in found:
        a, paper = f.analysis, f.model.reported
        rows.append([
            *f.about, _of(paper, lambda p: p.mean_cosine), _of(a, lambda a: a["mean_cosine"]),
            _of(paper, lambda p: p.least_cosine), _of(a, lambda a: a["least_cosine"]),
            _of(a, lambda a: a["certified"] * (a["certified"] - 1) // 2), _of(a, lambda a: a["first"]["mean_cosine"]),
            _of(a, lambda a: a["first"]["least_cosine"]),
        ])  # fmt: skip
    note = (
        "Of the regions of table 1 (the paper's bounds), all pairs of certified inputs; and of the first inputs alone."
    )
    return Table("cosines", columns, rows, note)


def dimension_table(found: Sequence[Finding]) -> Table:
    """How many directions the regions need."""
    columns = (
        *_MODEL, Column("features"), Column("participation", _THREE), Column("entropy", _THREE),
        Column("directions for 90 %"), Column("for 99 %"), Column("for 99.9 %"), Column("regions"),
    )  # fmt: skip
    rows = []
    for f in found:
        a = f.analysis
        if a is not None:
            n = int(np.prod(a["shape"]))
            rows.append([
                *f.about, n, a["participation"], a["entropy"], *(a["needed"][s] for s in ("0.9", "0.99", "0.999")),
                a["certified"],
            ])  # fmt: skip
    note = (
        "Of the regions' unit directions: the number of equally strong directions that would spread as much "
        "(participation, entropy; 1 where all regions are collinear), and how many principal directions hold a share "
        "of the squared length."
    )
    return Table("dimension", columns, rows, note)


def maps_table(found: Sequence[Finding]) -> Table:
    """How much bounding maps show, in numbers: smoothness, and what tells the two classes apart."""
    columns = (
        *_MODEL, Column("accuracy %", percent(1)), Column("uniform", _FOUR), Column("non-uniform", _FOUR),
        Column("neighbours' correlation", _THREE), Column("correlation with the classes' difference", _THREE),
        Column("maps"),
    )  # fmt: skip
    rows = []
    for f in found:
        a, s = f.analysis, f.summary("sequential")
        if a is None or s is None:
            continue
        logs = torch.from_numpy(a["eps"]).double().log()
        told = correlation(-logs, torch.from_numpy(a["contrast"])[None]).mean()
        smooth = neighbour_correlation(logs.reshape(-1, *image_shape(a["shape"])))
        rows.append([*f.about, f.training["test_accuracy"], s.uniform, s.nonuniform, smooth, float(told), len(logs)])
    note = (
        "Correlations of log ε, means over the maps: between pixels that are neighbours (noise: 0), and, with its sign "
        "turned, with how far apart the two classes' mean images are (1: little room just where the classes differ)."
    )
    return Table("maps", columns, rows, note)


def training_table(found: Sequence[Finding]) -> Table:
    """How the models were trained, and how long it took."""
    columns = (
        *_MODEL, Column("images"), Column("epochs"), Column("batch"), Column("rate"), Column("weight decay"),
        Column("epochs until full τ"),
        Column("training accuracy %", percent(1)), Column("test accuracy %", percent(1)),
        Column("attacked %", percent(1)), Column("s", number(1)), Column("on"),
    )  # fmt: skip
    rows = []
    for f in found:
        t = f.training
        rows.append([
            *f.about, t["train_images"], t["epochs"], t["batch"], t["rate"], t["weight_decay"],
            _of(t["adversary"], lambda a: a["ramp"]), t["train_accuracy"], t["test_accuracy"], t["attacked_accuracy"],
            t["seconds"], t["device"],
        ])  # fmt: skip
    return Table("training", columns, rows)


def time_table(found: Sequence[Finding]) -> Table:
    """What each way cost in all, over the main table's models."""
    columns = (
        Column("what"), Column("models"), Column("inputs, in all"), Column("s", number(1)), Column("proved again"),
        Column("not proved again"), Column("s for that", number(1)),
    )  # fmt: skip
    rows: list[list[Any]] = [
        ["training", len(found), None, sum(f.training["seconds"] for f in found), None, None, None]
    ]
    first: dict[str, Callable[[Finding, str], Summary | None]] = {
        f"{FIRST} inputs each, ": lambda f, way: f.first(way, FIRST),
        "": lambda f, way: f.summary(way),
    }
    for way, kind in WAYS.items():
        for text, get in first.items():
            sums = [s for s in (get(f, way) for f in found) if s is not None]
            if sums and not (text and all(len(f.held[way]["status"]) <= FIRST for f in found if way in f.held)):
                rows.append([
                    text + kind.title, len(sums), sum(s.inputs for s in sums), sum(s.seconds for s in sums),
                    sum(s.proved for s in sums), sum(s.certified - s.proved for s in sums),
                    sum(s.check_seconds for s in sums),
                ])  # fmt: skip
    return Table("time", columns, rows, "Proved again: by the checker that `elbowroom check` runs, every certificate.")


def claims(main: Sequence[Finding], binary: Sequence[Finding]) -> str:
    """Whether what the paper claims holds here, with numbers."""
    lines = []
    sums = [(f, s) for f in main for s in [f.summary("sequential")] if s is not None]
    larger = [s.ratio for _, s in sums if s.nonuniform > s.uniform]
    lines.append(
        _claim("Non-uniform bounds are larger than uniform ones", len(larger), len(sums), "models", _range(larger))
    )
    lagrangian = [b for b in (f.on_common("lagrangian", "sequential") for f in main) if b is not None]
    gains = [b.nonuniform / a.nonuniform for a, b in lagrangian]
    lines.append(
        _claim(
            "Ours, not the paper's: the sequential solver's regions are at least as large as the augmented "
            "Lagrangian's on the same inputs",
            sum(g >= 1 for g in gains), len(gains), "models", f"by factors of {_range(gains)}",
        )
    )  # fmt: skip
    two = [(n, r) for n, r in pairs(main) if n.summary("sequential") and r.summary("sequential")]
    ratios = [tuple(f.summary("sequential").ratio for f in pair) for pair in two]  # type: ignore[union-attr]
    listed = ", ".join(f"{n.title} {a:.2f} and {b:.2f}" for (n, _), (a, b) in zip(two, ratios))
    held = sum(b > a for a, b in ratios)
    lines.append(
        _claim("The ratio is larger for robust models", held, len(ratios), "pairs", f"normal and robust: {listed}")
    )
    alike = [(n, r) for n, r in pairs(main) if n.analysis and r.analysis]
    for what, key in (("mean", "mean_cosine"), ("minimum", "least_cosine")):
        cosines = [tuple(f.analysis[key] for f in pair) for pair in alike]  # type: ignore[index]
        listed = ", ".join(f"{a:.4f} and {b:.4f}" for a, b in cosines)
        text = f"Regions of robust models are more similar: the {what} cosine is larger"
        lines.append(
            _claim(text, sum(b > a for a, b in cosines), len(cosines), "pairs", f"normal and robust: {listed}")
        )
    table = maps_table(binary)
    if table.rows:
        by_kind = {(row[0], row[2] != "nobody"): row for row in table.rows}
        kinds = [
            k for k in dict.fromkeys(row[0] for row in table.rows) if (k, False) in by_kind and (k, True) in by_kind
        ]
        for text, at in (("smoother", -3), ("closer to what tells the classes apart", -2)):
            values = [(by_kind[k, False][at], by_kind[k, True][at]) for k in kinds]
            listed = ", ".join(f"{k} {a:.2f} and {b:.2f}" for k, (a, b) in zip(kinds, values))
            held = sum(b > a for a, b in values)
            what = f"Bounding maps of robust models are easier to read: {text}"
            lines.append(_claim(what, held, len(values), "pairs", f"correlations, normal and robust: {listed}"))
    return "\n".join(lines)


def _claim(text: str, held: int, of: int, what: str, numbers: str) -> str:
    if not of:  # nothing to compare is no verdict
        return f"- **{text}**: not looked at, there are no {what} to compare."
    verdict = "holds" if held == of else "does not hold" if not held else "holds in part"
    return f"- **{text}**: {verdict}, on {held} of {of} {what} ({numbers})."


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}" if values else "none"


TABLES: dict[str, tuple[str, Callable[[Sequence[Finding]], Table]]] = {
    "main": ("table1", main_table), "solvers": ("table1", solvers_table), "ours": ("table1", ours_table),
    "ways": ("table1", ways_table), "training": ("table1", training_table), "time": ("table1", time_table),
    "cosines": ("table2", cosine_table), "dimension": ("table2", dimension_table),
    "maps": ("bounding-maps", maps_table),
}  # fmt: skip
