"""`elbowroom reproduce`: the paper's experiments, computed, drawn and put beside what it reports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path

from elbowroom.errors import InputError
from elbowroom.machine.device import usable_device
from elbowroom.machine.threads import using_threads
from elbowroom.paper.bench import Bench, source_of
from elbowroom.paper.certified import WAYS
from elbowroom.paper.compute import compute
from elbowroom.paper.models import BINARY, FULL, MAIN, SIZES, Model
from elbowroom.paper.prior import prior_table
from elbowroom.paper.render import PARTS, into_docs, render
from elbowroom.paper.synthetic import synthetic, table
from elbowroom.paper.tables import Table
from elbowroom.paper.toy_bounds import toy_bounds
from elbowroom.paper.unconverged import statements, unconverged_table
from elbowroom.paper.variants import VARIANTS, measure
from elbowroom.paper.variants import table as variants_table
from elbowroom.report.plot import need_matplotlib
from elbowroom.runs.interrupt import on_signals

EXPERIMENTS = ("synthetic", *PARTS, "toy-bounds")
BEYOND = ("variants", "prior", "unconverged")  # not the paper's, and not among "all"
_STOPPING = "stopping when what is in progress is done; once more to stop at once and lose that"


def reproduce_command(
    experiment: str,
    out: Path,
    *,
    data_dir: Path | str | None = None,
    size: str = FULL.name,
    models: str = "*",
    minutes: float | None = None,
    figures: bool = True,
    docs: Path | None = None,
    device: str | None = None,
) -> list[Path]:
    """Runs one of `EXPERIMENTS` or `BEYOND`, or "all"; prints what it finds, writes tables and figures; their files.

    What is in `out` already is used again. `size`: one of `SIZES`; "quick" shows in some minutes on two cores that it
    all works. `models`: only those whose names match, patterns with commas between them. `minutes`: after which to
    stop, cleanly, with `Stopped`, as Ctrl-C does. `figures`: False for tables alone, which need no matplotlib.
    `docs`: a page whose tables are to be filled in. `device`: default, a GPU if there is one.
    """
    if experiment not in (*EXPERIMENTS, *BEYOND, "all"):
        known = ", ".join((*EXPERIMENTS, *BEYOND))
        raise InputError(f"unknown experiment {experiment!r}; choose one of {known}, or all")
    if size not in SIZES:
        raise InputError(f"unknown size {size!r}; choose one of {', '.join(SIZES)}")
    wanted = EXPERIMENTS if experiment == "all" else (experiment,)
    if set(wanted) - {"synthetic", "toy-bounds"} and data_dir is None:
        raise InputError(f"{experiment} needs `data_dir`, the folder that holds MNIST, FashionMNIST and SVHN")
    if figures:
        need_matplotlib()
    started = time.monotonic()
    with on_signals(_STOPPING) as asked:
        bench = Bench(
            out, SIZES[size], source_of(data_dir), usable_device(device), say=_say,
            stop=lambda: asked() or (minutes is not None and time.monotonic() - started > 60 * minutes),
        )  # fmt: skip
        with nullcontext() if bench.size.n_train is None else using_threads(1):
            files = _done(bench, wanted, models.split(","), figures)
    for file in files:
        print(f"wrote {file}")
    if docs is not None:
        print(f"{docs}: filled in {', '.join(into_docs(out, bench.size, docs))}")
    print(f"{time.monotonic() - started:.0f} s")
    return files


def _done(bench: Bench, wanted: Sequence[str], patterns: Sequence[str], figures: bool) -> list[Path]:
    files: list[Path] = []
    if "synthetic" in wanted:
        files += _synthetic(bench, figures)
    if "toy-bounds" in wanted and figures:  # which is a figure, with counts
        files += _toy_bounds(bench)
    parts = [name for name in wanted if name in PARTS]
    if parts:
        files += _images(bench, parts, patterns, figures)
    if "variants" in wanted:
        files += _variants(bench, patterns)
    if "prior" in wanted:
        two = {bench.size.of(m).name: m for m in MAIN[:2]}
        files += _table(bench.out, prior_table(bench, _matching(two, patterns)))
    if "unconverged" in wanted:
        every = {bench.size.of(m).name: m for m in MAIN}
        files += _unconverged(bench, _matching(every, patterns))
    return files


def _images(bench: Bench, parts: Sequence[str], patterns: Sequence[str], figures: bool) -> list[Path]:
    """The experiments on images."""
    size = bench.size
    if size is FULL and bench.device.type == "cpu":
        bench.say("without a GPU this takes days; --quick shows in minutes that it works")
    models = (MAIN if set(parts) - {"bounding-maps"} else ()) + (BINARY if "bounding-maps" in parts else ())
    chosen = _matching({size.of(m).name: m for m in models}, patterns)
    compute(bench, chosen, tuple(WAYS) if "table1" in parts else ("sequential",))
    files = render(bench.out, size, parts, figures)
    print((bench.out / "tables" / "claims.md").read_text(encoding="utf-8"))
    return files


def _matching(named: dict[str, Model], patterns: Sequence[str]) -> list[Model]:
    return [named[name] for name in _names(list(named), patterns)]


def _names(known: Sequence[str], patterns: Sequence[str]) -> list[str]:
    found = [name for name in known if any(fnmatchcase(name, pattern.strip()) for pattern in patterns)]
    if not found:
        raise InputError(f"`models`: {','.join(patterns)} matches none; there are {', '.join(known)}")
    return found


def _synthetic(bench: Bench, figures: bool) -> list[Path]:
    result = synthetic(bench, draw=figures)
    return [*_text(bench.out, "synthetic", table(result)), *result["files"]]


def _toy_bounds(bench: Bench) -> list[Path]:
    with using_threads(1):
        result = toy_bounds(bench.out / "figures", seeds=bench.size.toys)
    return [*_text(bench.out, "toy-bounds", result.table()), *result.files]


def _variants(bench: Bench, patterns: Sequence[str]) -> list[Path]:
    variants = {v.name: v.of(bench.size) for v in VARIANTS}
    for name in _names(list(variants), patterns):
        measure(bench, variants[name])
    return _table(bench.out, variants_table(bench.out, list(variants.values())))


def _unconverged(bench: Bench, models: Sequence[Model]) -> list[Path]:
    made = unconverged_table(bench, models)
    path = bench.out / "tables" / "unconverged-rows.md"
    files = _table(bench.out, made)
    path.write_text(statements(made) + "\n", encoding="utf-8")
    print(statements(made))
    return [*files, path]


def _say(text: str) -> None:
    print(text, flush=True)


def _table(out: Path, made: Table) -> list[Path]:
    print(made.markdown())
    return list(made.write(out / "tables"))


def _text(out: Path, name: str, text: str) -> list[Path]:
    """A table that is plain text: printed, and kept as such."""
    print(f"{name}\n{text}\n", flush=True)
    path = out / "tables" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"```\n{text}\n```\n", encoding="utf-8")
    return [path]
