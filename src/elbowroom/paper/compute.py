"""The numbers behind the paper's tables and figures: trains the models, certifies, proves again, analyses.

    python -m elbowroom.paper.compute --data-dir DIR --out OUT [--size full] [--models 'mnist-*'] [--minutes 9]

Draws nothing, and needs torch and numpy only, so that it can run where there is a GPU and little else. What is done is
kept: a second call goes on where the first stopped. In OUT:

    models/NAME.elbowroom, NAME.json    a network, and how it was trained
    certified/NAME/WAY.npz              sizes and verdicts of the first test inputs, certified one way (see `WAYS`)
    regions/NAME.npy                    extents of the inputs certified by `sequential`, float32; zeros: no certificate
    analysis/NAME.npz, NAME.json        what these regions have in common, and the regions of a few inputs
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.analyse import cosine_similarity, feature_robustness, spectrum
from elbowroom.certificates.result import STATUSES, Certificates
from elbowroom.certify.api import certify
from elbowroom.data.embedded import Dataset
from elbowroom.errors import ElbowroomError, InputError
from elbowroom.files import replace_file
from elbowroom.machine.device import usable_device
from elbowroom.network.file import load_network, save_network
from elbowroom.network.graph import Network
from elbowroom.paper.models import BINARY, FULL, MAIN, SIZES, TAU, Model, Size
from elbowroom.proof.recheck import check
from elbowroom.search.find import CAP
from elbowroom.search.regions.box import Box
from elbowroom.search.solvers.augmented_lagrangian import AugmentedLagrangian
from elbowroom.training.sets import as_network, training_data
from elbowroom.training.train import PGD, accuracy_under, train

RANGE = 2.0  # of a pixel: an extent of this much lets it take every value, wherever it is
DOMAIN = (-1.0, 1.0)
BINS = np.geomspace(1e-5, 1e3, 241)  # of extents
_CHUNK = 1000  # inputs certified before results are written and the clock is looked at
_EXAMPLES = 12  # inputs whose regions are kept with the analysis
_DELTA: dict[str, Any] = {"delta": 1e-4}  # the paper's, so that all ways prove the same
_PAPER: dict[str, Any] = {"bounds": "combined", "margin": "logits", **_DELTA}


@dataclass(frozen=True)
class Way:
    """One way to certify: `certify`'s arguments, and how far an extent may reach, in words."""

    title: str
    cap: str
    arguments: dict[str, Any]


_NO_CAP = f"{CAP:g} uniform radii"
WAYS = {
    "sequential": Way("paper's bounds, sequential", _NO_CAP, _PAPER),
    "lagrangian": Way("paper's bounds, augmented Lagrangian", _NO_CAP, _PAPER),
    "adaptive": Way("adaptive bounds, direct margins, sequential", _NO_CAP, _DELTA),
    "limited": Way(
        "paper's bounds, sequential, extents at most a pixel's range", f"{RANGE:g}", {**_PAPER, "max_eps": RANGE}
    ),
    "asymmetric": Way(
        "adaptive bounds, direct margins, asymmetric boxes in the domain",
        "the domain [-1, 1]",
        {"domain": DOMAIN, "region": Box(asymmetric=True), **_DELTA},
    ),
}

Source = Callable[[Model], tuple[Dataset, tuple[str, ...]]]


class OutOfTimeError(Exception):
    """The time given is over; what is done is kept."""


@dataclass
class Bench:
    """Where the work is done: the folder, the size, the device, the clock, and who hears how it goes."""

    out: Path
    size: Size
    source: Source
    device: torch.device
    deadline: float = float("inf")
    say: Callable[[str], None] = print
    started: float = field(default_factory=time.perf_counter)
    _data: dict[Any, tuple[Dataset, tuple[str, ...]]] = field(default_factory=dict, repr=False)

    def look_at_the_clock(self) -> None:
        if time.perf_counter() > self.deadline:
            raise OutOfTimeError

    def tell(self, model: Model, text: str) -> None:
        self.say(f"[{time.perf_counter() - self.started:7.1f} s] {self.size.of(model).name}: {text}")

    def data(self, model: Model) -> tuple[Dataset, tuple[str, ...]]:
        key = (model.data, model.classes)
        if key not in self._data:
            self._data[key] = self.source(model)
        return self._data[key]

    def path(self, folder: str, model: Model, ending: str) -> Path:
        return self.out / folder / f"{self.size.of(model).name}{ending}"


def compute(bench: Bench, models: Iterable[Model] = (*MAIN, *BINARY), ways: Sequence[str] = tuple(WAYS)) -> bool:
    """Does what is not done yet, the most important first; whether all of it is done.

    `models`: some of `MAIN` and `BINARY`. `ways`: some of `WAYS`; models of two classes are certified by `sequential`.
    """
    models = list(models)
    main = [m for m in models if m.classes is None]
    size = bench.size
    _claim(bench)
    try:
        for model in models:
            network(bench, model)
        for way, wanted in _steps(size):
            if way in ways:
                for model in models if way == "sequential" else main:
                    certify_some(bench, model, way, size.maps if model.classes else wanted)
                    if way == "sequential":
                        analyse(bench, model)
    except OutOfTimeError:
        bench.say(f"[{time.perf_counter() - bench.started:7.1f} s] time is over; the next call goes on from here")
        return False
    return True


def _steps(size: Size) -> tuple[tuple[str, int | None], ...]:
    """Ways and numbers of inputs in the order of their importance: what takes long is begun with a few inputs."""
    few = size.lagrangian
    return (
        ("sequential", size.inputs), ("lagrangian", few), ("limited", few), ("asymmetric", few),
        ("adaptive", size.inputs), ("sequential", size.every), ("asymmetric", size.inputs), ("limited", size.inputs),
    )  # fmt: skip


def _claim(bench: Bench) -> None:
    """A folder holds results of one size only, and of models that were trained in one way."""
    path = bench.out / "size.json"
    size = bench.size
    recipes = {name: asdict(recipe) for name, recipe in {"": size.recipe, **size.recipes}.items()}
    adversary = asdict(size.adversary)
    own = {"size": size.name, "recipes": recipes, "weight_decay": size.weight_decay, "adversary": adversary}
    if not path.exists():
        write_json(path, own)
        return
    held = json.loads(path.read_text())
    if held != own:
        what = f"size {held['size']}" if held["size"] != size.name else "models that were trained in another way"
        raise InputError(f"{bench.out} holds results of {what}; give another folder for {size.name} ones")


# --- training


def network(bench: Bench, model: Model) -> Network:
    """The trained network, from its file or by training it."""
    path = bench.path("models", model, ".elbowroom")
    if path.exists():
        return load_network(path)
    bench.look_at_the_clock()
    size, (data, classes), recipe = bench.size, bench.data(model), bench.size.recipe_of(model)
    part = first_images(data, size.n_train)
    adversary = replace(size.adversary, ramp=recipe.ramp) if model.robust else None
    started = time.perf_counter()
    module, report = train(
        size.of(model).widths, part, epochs=recipe.epochs, rate=recipe.rate, weight_decay=size.weight_decay,
        batch=recipe.batch, adversary=adversary, seed=0, device=bench.device,
        progress=lambda _: bench.look_at_the_clock(),
    )  # fmt: skip
    seconds = time.perf_counter() - started
    x, y = data.x_test.to(bench.device), data.y_test.to(bench.device)
    attacked = accuracy_under(module.to(bench.device), x, y, PGD(TAU), data.low, data.high)
    net = as_network(module.cpu(), data, classes)
    about = {
        "data": data.name, "classes": classes, "widths": size.of(model).widths, "train_images": len(part.x_train),
        "test_images": len(data.x_test), "epochs": recipe.epochs, "rate": recipe.rate, "batch": recipe.batch,
        "weight_decay": size.weight_decay, "adversary": None if adversary is None else asdict(adversary),
        "loss": report.losses[-1], "train_accuracy": report.train_accuracy, "test_accuracy": report.test_accuracy,
        "attacked_accuracy": attacked, "attack": asdict(PGD(TAU)), "seconds": seconds, "device": _name(bench.device),
    }  # fmt: skip
    write_json(bench.path("models", model, ".json"), about)
    save_network(net, path)
    bench.tell(
        model,
        f"trained in {seconds:.1f} s; accuracy {report.train_accuracy:.2%} training, {report.test_accuracy:.2%} test, "
        f"{attacked:.2%} attacked",
    )
    return net


def first_images(data: Dataset, n: int | None) -> Dataset:
    """With the first `n` training images only (None: all)."""
    if n is None:
        return data
    return Dataset(
        data.name, data.x_train[:n], data.y_train[:n], data.x_test, data.y_test, data.low, data.high, data.shape
    )


# --- certifying

_COLUMNS = ("uniform", "geomean", "ratio", "evaluations", "gradients")


def certify_some(bench: Bench, model: Model, way: str, wanted: int | None) -> None:
    """Certifies the first `wanted` test inputs (None: all) one way, those that are not done yet; proves each again."""
    path = bench.path("certified", model, f"/{way}.npz")
    data, _ = bench.data(model)
    total = len(data.x_test) if wanted is None else min(wanted, len(data.x_test))
    kept = read_npz(path) if path.exists() else {}
    first = len(kept["status"]) if kept else 0
    if first >= total:
        return
    regions = bench.path("regions", model, ".npy")
    if way == "sequential" and not regions.exists():  # results that were sent without them
        kept, first = {}, 0
    net = network(bench, model)
    arguments = dict(WAYS[way].arguments)
    if way == "lagrangian":
        steps = bench.size.steps
        arguments["solver"] = AugmentedLagrangian(steps=steps, rho_every=max(1, steps // 5))
    began = first
    try:
        while first < total:
            bench.look_at_the_clock()
            last = min(first + _CHUNK, total)
            x = data.x_test[first:last].reshape(-1, *net.input_shape).to(bench.device)
            started = time.perf_counter()
            certs = certify(net, x, data.y_test[first:last].to(bench.device), device=bench.device, **arguments)
            seconds = time.perf_counter() - started
            report = check(certs, net, device=bench.device)
            new = _columns(certs, report.passed, seconds, report.seconds)
            kept = {name: np.concatenate([kept[name], new[name]]) for name in new} if kept else new
            if way == "sequential":
                _append(regions, first, certs.eps.flatten(1))
            _write_npz(path, kept)
            first = last
    finally:
        if first > began:
            bench.tell(model, f"{way}: {summary_line(kept)}")


def _columns(certs: Certificates, proved: Tensor, seconds: float, check_seconds: float) -> dict[str, np.ndarray]:
    n = len(certs)
    found = {name: getattr(certs, name).numpy() for name in _COLUMNS}
    found["status"] = np.array([STATUSES.index(s) for s in certs.status], dtype=np.int8)
    found["capped"] = certs.capped.flatten(1).double().mean(1).numpy()
    found["proved"] = proved.numpy()
    found["seconds"], found["check_seconds"] = np.full(n, seconds / n), np.full(n, check_seconds / n)
    return found


def summary_line(kept: dict[str, np.ndarray]) -> str:
    """What was found, for people who watch."""
    good = kept["status"] == STATUSES.index("certified")
    n, seconds, check_seconds = len(good), float(kept["seconds"].sum()), float(kept["check_seconds"].sum())
    if not good.any():
        return f"none of {n} inputs certified in {seconds:.1f} s"
    mean = {name: float(kept[name][good].mean()) for name in _COLUMNS}
    return (
        f"{int(good.sum())} of {n} inputs certified in {seconds:.1f} s, {int(kept['proved'].sum())} proved again in "
        f"{check_seconds:.1f} s; uniform {mean['uniform']:.4f}, non-uniform {mean['geomean']:.4f}, "
        f"{mean['evaluations']:.1f} evaluations, {mean['gradients']:.1f} gradients"
    )


def _append(path: Path, first: int, eps: Tensor) -> None:
    rows = eps.float().numpy()
    before = np.load(path, allow_pickle=False)[:first] if first else rows[:0]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda file: np.save(file, np.concatenate([before, rows])))


# --- what the regions have in common


def analyse(bench: Bench, model: Model) -> None:
    """Similarity, spectrum and feature ranking of the regions there are; and a few of them as they are."""
    regions = bench.path("regions", model, ".npy")
    target = bench.path("analysis", model, ".npz")
    facts = bench.path("analysis", model, ".json")
    done = len(read_npz(bench.path("certified", model, "/sequential.npz"))["status"])
    held = json.loads(facts.read_text()) if facts.exists() else {}
    if not regions.exists() or (held.get("inputs") == done and "first" in held):
        return
    eps = np.load(regions, allow_pickle=False)[:done]
    good = np.flatnonzero(eps.any(1))
    if len(good) < 2:
        bench.tell(model, "fewer than two inputs are certified, so there is nothing to compare")
        return
    every = torch.from_numpy(eps[good]).to(bench.device)
    mean, least = cosine_similarity(every)
    few = every[: int((good < bench.size.inputs).sum())]
    mean_first, least_first = cosine_similarity(few) if len(few) > 1 else (None, None)
    found, ranked = spectrum(every), feature_robustness(every)
    counts = np.histogram(eps[good].clip(BINS[0], BINS[-1]), BINS)[0]
    data, _ = bench.data(model)
    kept = good[: _EXAMPLES if model.classes is None else None]
    arrays = {
        "index": kept, "x": data.x_test[kept].numpy(), "y": data.y_test[kept].numpy(), "eps": eps[kept],
        "counts": counts,
        "score": ranked.score.float().cpu().numpy(), "spread": ranked.spread.float().cpu().numpy(),
        "shares": found.shares[:64].numpy(), "shape": np.array(data.shape),
    }  # fmt: skip
    if model.classes is not None:
        arrays["contrast"] = _contrast(data)
    _write_npz(target, arrays)
    numbers = {
        "inputs": len(eps), "certified": len(good), "mean_cosine": mean, "least_cosine": least,
        "first": {"inputs": bench.size.inputs, "mean_cosine": mean_first, "least_cosine": least_first},
        "participation": found.participation, "entropy": found.entropy,
        "needed": {str(share): found.needed(share) for share in (0.9, 0.99, 0.999)},
    }  # fmt: skip
    write_json(facts, numbers)
    bench.tell(model, f"cosines of {len(good)} regions: mean {mean:.4f}, least {least:.4f}")


def _contrast(data: Dataset) -> np.ndarray:
    """How far apart the mean images of two classes are, pixel by pixel, `f`."""
    first, second = (data.x_train[data.y_train == k].double().mean(0) for k in (0, 1))
    return np.asarray((first - second).abs().float().numpy())


# --- files


def read_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def _write_npz(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda file: np.savez_compressed(file, **arrays))


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=1).encode()
    replace_file(path, lambda file: file.write(text))


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def source_of(data_dir: str | os.PathLike[str]) -> Source:
    """The data of the models, from their files."""
    return lambda model: training_data(model.data, data_dir, model.classes)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m elbowroom.paper.compute", description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is found")
    parser.add_argument("--size", choices=SIZES, default=FULL.name)
    parser.add_argument("--models", nargs="+", default=["*"], help="only those whose names match, as in 'mnist-1v*'")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS), help="none: train only")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--device", help="default: a GPU, where there is one")
    given = parser.parse_args(arguments)
    named = {SIZES[given.size].of(m).name: m for m in (*MAIN, *BINARY)}
    models = [m for name, m in named.items() if any(fnmatchcase(name, pattern) for pattern in given.models)]
    if not models:
        parser.error(f"no model matches; there are {', '.join(named)}")
    try:
        bench = Bench(
            given.out, SIZES[given.size], source_of(given.data_dir), usable_device(given.device),
            deadline=time.perf_counter() + 60 * given.minutes, say=lambda text: print(text, flush=True),
        )  # fmt: skip
        done = compute(bench, models, given.ways)
    except ElbowroomError as error:
        print(f"compute: {error}", file=sys.stderr)
        return 2
    return 0 if done else 3


if __name__ == "__main__":
    sys.exit(main())
