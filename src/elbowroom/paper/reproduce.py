"""`elbowroom reproduce`: the paper's experiments, computed, drawn and put beside what it reports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from elbowroom.errors import InputError
from elbowroom.machine.device import usable_device
from elbowroom.paper.compute import WAYS, Bench, compute, source_of
from elbowroom.paper.models import BINARY, FULL, MAIN, QUICK, Size
from elbowroom.paper.render import PARTS, render
from elbowroom.report.plot import need_matplotlib
from elbowroom.training.train import one_thread

EXPERIMENTS = ("synthetic", *PARTS, "toy-bounds")


def reproduce_command(
    experiment: str,
    out: Path,
    *,
    data_dir: Path | None = None,
    quick: bool = False,
    device: str | None = None,
) -> list[Path]:
    """Runs one of `EXPERIMENTS`, or "all"; prints what it finds, writes tables and figures; their files.

    Trained models and certified inputs in `out` are used again. `quick`: small networks, few inputs: whether it all
    works, in some minutes on two cores. `device`: default, a GPU if there is one.
    """
    if experiment not in (*EXPERIMENTS, "all"):
        raise InputError(f"unknown experiment {experiment!r}; choose one of {', '.join(EXPERIMENTS)}, or all")
    wanted = EXPERIMENTS if experiment == "all" else (experiment,)
    need_matplotlib()
    size = QUICK if quick else FULL
    parts = [name for name in wanted if name in PARTS]
    if parts and data_dir is None:
        raise InputError(f"{experiment} needs `data_dir`, the folder that holds MNIST, FashionMNIST and SVHN")
    started = time.perf_counter()
    files: list[Path] = []
    if "synthetic" in wanted:
        files += _synthetic(out, quick)
    if "toy-bounds" in wanted:
        files += _toy_bounds(out, quick)
    if parts and data_dir is not None:
        files += _images(out, size, parts, data_dir, device)
    for file in files:
        print(f"wrote {file}")
    print(f"{time.perf_counter() - started:.0f} s")
    return files


def _images(out: Path, size: Size, parts: Sequence[str], data_dir: Path, device: str | None) -> list[Path]:
    """The experiments on images."""
    where = usable_device(device)
    if size is FULL and where.type == "cpu":
        print("without a GPU this takes days; --quick shows in minutes that it works", flush=True)
    models = (MAIN if set(parts) - {"bounding-maps"} else ()) + (BINARY if "bounding-maps" in parts else ())
    bench = Bench(out, size, source_of(data_dir), where, say=lambda text: print(text, flush=True))
    with nullcontext() if size is FULL else one_thread():
        compute(bench, models, tuple(WAYS) if "table1" in parts else ("sequential",))
    files = render(out, size, parts)
    print((out / "tables" / "claims.md").read_text(encoding="utf-8"))
    return files


def _synthetic(out: Path, quick: bool) -> list[Path]:
    from elbowroom.paper.synthetic import synthetic, table

    result = synthetic(out / "figures", epochs=400 if quick else 1500)
    return [*_text(out, "synthetic", table(result)), *result["files"]]


def _toy_bounds(out: Path, quick: bool) -> list[Path]:
    from elbowroom.paper.toy_bounds import toy_bounds

    with one_thread():
        result = toy_bounds(out / "figures", seeds=40 if quick else 200)
    return [*_text(out, "toy-bounds", result.table()), *result.files]


def _text(out: Path, name: str, text: str) -> list[Path]:
    """A table that is plain text: printed, and kept as such."""
    print(f"{name}\n{text}\n", flush=True)
    path = out / "tables" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"```\n{text}\n```\n", encoding="utf-8")
    return [path]
