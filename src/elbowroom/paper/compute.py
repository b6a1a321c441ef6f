"""The numbers behind the paper's tables and figures of images: models trained, certified, proved again, analysed.

Draws nothing, so that it can run where there is a GPU and little else. What is done is kept: a second call goes on
where the first stopped. In the folder: models/ (see `elbowroom.paper.bench`), runs/ and checks/ (see
`elbowroom.paper.certified`), and

analysis/NAME.npz, NAME.json    what the regions of `sequential` have in common, and those of a few inputs
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elbowroom.analyse import cosine_similarity, feature_robustness, spectrum
from elbowroom.certificates.store import Run
from elbowroom.data.embedded import Dataset
from elbowroom.files import replace_file
from elbowroom.paper.bench import Bench, as_inputs, network, write_json
from elbowroom.paper.certified import WAYS, certify_some, inputs_of, parts_of
from elbowroom.paper.models import BINARY, MAIN, Model, Size
from elbowroom.runs.settings import Settings

BINS = np.geomspace(1e-5, 1e3, 241)  # of extents
_EXAMPLES = 12  # inputs whose regions are kept with the analysis


def compute(bench: Bench, models: Iterable[Model] = (*MAIN, *BINARY), ways: Sequence[str] = tuple(WAYS)) -> None:
    """Does what is not done yet, the most important first. Raises `Stopped` where an end is asked for.

    `models`: some of `MAIN` and `BINARY`. `ways`: some of `WAYS`; models of two classes are certified by `sequential`.
    """
    models = list(models)
    bench.claim()
    for model in models:
        network(bench, model)
    for way, upto in _steps(bench.size):
        if way in ways:
            for model in models:
                if model.classes is None or way == "sequential":
                    _certify(bench, model, way, upto)
                    if way == "sequential":
                        analyse(bench, model)


def _steps(size: Size) -> tuple[tuple[str, int | None], ...]:
    """Ways in the order of their importance, and how many inputs are done by then (None: all that are to be): the run
    of the longest way is left when it has as many as the others, and goes on at the end."""
    return (
        ("sequential", size.inputs), ("lagrangian", None), ("adaptive", None), ("asymmetric", None), ("limited", None),
        ("sequential", None),
    )  # fmt: skip


def _certify(bench: Bench, model: Model, way: str, upto: int | None) -> None:
    size, told = bench.size, dict(WAYS[way].settings)
    wanted = {"sequential": size.every, "lagrangian": size.lagrangian}.get(way, size.inputs)
    if way == "lagrangian":
        told["solver_options"] = {"steps": size.steps, "rho_every": max(1, size.steps // 5)}
    data, classes = bench.data(model)
    settings = replace(Settings.of(told), limit=size.maps if model.classes else wanted)
    certify_some(bench, size.of(model).name, way, network(bench, model), as_inputs(data, classes), settings, upto)


# --- what the regions have in common


def analyse(bench: Bench, model: Model) -> None:
    """Similarity, spectrum and feature ranking of the regions there are; and a few of them as they are."""
    target = bench.path("analysis", model, ".npz")
    facts = bench.path("analysis", model, ".json")
    run = Run.open(bench.path("runs", model) / "sequential")
    if facts.exists() and json.loads(facts.read_text())["inputs"] == inputs_of(run):
        return
    eps = np.concatenate([certs.eps.flatten(1).float().numpy() for certs in parts_of(run)])
    good, name = np.flatnonzero(eps.any(1)), bench.size.of(model).name
    if len(good) < 2:
        bench.say(f"{name}: fewer than two inputs are certified, so there is nothing to compare")
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
    write_npz(target, arrays)
    numbers = {
        "inputs": len(eps), "certified": len(good), "mean_cosine": mean, "least_cosine": least,
        "first": {"inputs": bench.size.inputs, "mean_cosine": mean_first, "least_cosine": least_first},
        "participation": found.participation, "entropy": found.entropy,
        "needed": {str(share): found.needed(share) for share in (0.9, 0.99, 0.999)},
    }  # fmt: skip
    write_json(facts, numbers)
    bench.say(f"{name}: cosines of {len(good)} regions: mean {mean:.4f}, least {least:.4f}")


def _contrast(data: Dataset) -> np.ndarray:
    """How far apart the mean images of two classes are, pixel by pixel, `f`."""
    first, second = (data.x_train[data.y_train == k].double().mean(0) for k in (0, 1))
    return np.asarray((first - second).abs().float().numpy())


# --- files


def read_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda file: np.savez_compressed(file, **arrays))
