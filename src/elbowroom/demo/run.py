"""The demo from beginning to end, and the files it leaves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from elbowroom.data.embedded import Dataset, digits
from elbowroom.demo import words
from elbowroom.demo.examine import Examined, Settings, examine
from elbowroom.errors import InputError
from elbowroom.machine.meter import Meter
from elbowroom.machine.threads import using_threads
from elbowroom.report import plot


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo found, and the files it wrote."""

    normal: Examined
    robust: Examined
    files: tuple[Path, ...]
    seconds: float


def run_demo(
    out: Path = Path("out/demo"),
    *,
    seed: int = 0,
    settings: Settings | None = None,
    console: Console | None = None,
) -> Demo:
    """Trains, certifies, compares, attacks, and explains; writes pictures, certificates and weights into `out`.

    `seed`: of the training. The data and their split are always the same.
    """
    started = time.perf_counter()
    use = Settings() if settings is None else settings
    say = Console() if console is None else console
    target = Path(out)
    # What could stop the demo at its end is asked for at its beginning.
    plot.need_matplotlib()
    data = digits()
    with _writing(target):
        target.mkdir(parents=True, exist_ok=True)
    words.introduce(say, data, use)
    with using_threads(1):
        normal = examine("normal", None, data, use, seed, say)
        robust = examine("robust", use.adversary, data, use, seed, say)
        say.print()
        words.main_table(say, normal, robust, use, data)
        words.cosine_table(say, normal, robust)
        index = _example(normal, robust)
        words.one_digit(say, normal, robust, data, index)
        words.attack_table(say, normal, robust, use)
        with Meter(None, title="drawing pictures"), _writing(target):
            files = _write(target, normal, robust, data, index, use)
    seconds = time.perf_counter() - started
    words.conclude(say, target, files, seconds)
    return Demo(normal, robust, tuple(files), seconds)


def _example(normal: Examined, robust: Examined) -> int:
    """The digit shown: the first 7 both networks have a region for (failing that, any digit)."""
    both = normal.regions.certified & robust.regions.certified
    sevens = (both & (normal.regions.labels == 7)).nonzero().flatten()
    any_digit = both.nonzero().flatten()
    if not len(any_digit):
        raise InputError("no digit is certified for both networks; train them for more epochs")
    return int(sevens[0] if len(sevens) else any_digit[0])


def _write(out: Path, normal: Examined, robust: Examined, data: Dataset, index: int, use: Settings) -> dict[Path, str]:
    """Writes everything; says of each file or folder what it is."""
    models = (normal, robust)
    good = [m.regions.certified for m in models]
    rows = _one_per_class(good[0] & good[1], normal.regions.labels, index)
    images = normal.regions.x[rows].reshape(-1, *data.shape)
    maps = {f"{m.name} network": m.regions.eps[rows].reshape(-1, *data.shape) for m in models}
    titles = [f"digit {int(normal.regions.labels[k])}" for k in rows]
    plot.bounding_maps(out / "bounding-maps.png", images, maps, titles=titles)
    counts = f"{int(good[0].sum())} normal, {int(good[1].sum())} robust"
    plot.histogram(
        out / "histogram.png",
        {m.name: m.regions.eps[g] for m, g in zip(models, good)},
        uniform={m.name: m.mean_uniform for m in models},
        geomean={m.name: m.mean_regions for m in models},
        tau=use.adversary.tau,
        title=f"The room of every pixel of every certified digit ({counts})",
        unit=f"pixels in [{data.low:g}, {data.high:g}], ε at most {data.high - data.low:g}",
    )
    files = {
        out / "bounding-maps.png": f"{len(rows)} digits and the room of their pixels, for both networks",
        out / "histogram.png": "how the room of all pixels is distributed, for both networks",
    }
    for m in models:
        folder = out / m.name
        m.uniform.save(folder / "uniform")
        m.regions.save(folder / "non-uniform")
        torch.save(m.model.state_dict(), folder / "weights.pt")
        files[folder / "uniform"] = "certificates, one ε (er.Certificates.load)"
        files[folder / "non-uniform"] = "certificates, an ε for every pixel"
        files[folder / "weights.pt"] = "the network's weights (a torch state_dict)"
    return files


def _one_per_class(usable: Tensor, labels: Tensor, first: int, most: int = 4) -> list[int]:
    """The digit shown and a few more, each of another class."""
    rows = [first]
    for k in usable.nonzero().flatten().tolist():
        if len(rows) < most and int(labels[k]) not in {int(labels[r]) for r in rows}:
            rows.append(k)
    return rows


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write into {target}: {error.strerror or error}") from None
