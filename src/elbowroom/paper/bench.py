"""Where the experiments are done: a folder of results of one size, its trained models, and who may stop the work.

models/NAME.elbowroom, NAME.json    a network, and how it was trained
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from elbowroom.data import dataset
from elbowroom.data.embedded import Dataset
from elbowroom.errors import InputError
from elbowroom.files import digest, replace_file
from elbowroom.machine.meter import Meter
from elbowroom.network.file import load_network, save_network
from elbowroom.network.graph import Network
from elbowroom.paper.models import TAU, Model, Recipe, Size
from elbowroom.training.adversary import PGD, accuracy_under
from elbowroom.training.sets import as_network, training_data
from elbowroom.training.train import train

Source = Callable[[Model], tuple[Dataset, tuple[str, ...]]]


class Stopped(Exception):
    """An end was asked for; what is done is kept."""


@dataclass
class Bench:
    """The folder, the size, the data, the device; whether to stop; and who hears what was found."""

    out: Path
    size: Size
    source: Source
    device: torch.device
    stop: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = print
    _data: dict[Any, tuple[Dataset, tuple[str, ...]]] = field(default_factory=dict, repr=False)

    def go_on(self) -> None:
        """Ends the work where that was asked for."""
        if self.stop():
            raise Stopped

    def data(self, model: Model) -> tuple[Dataset, tuple[str, ...]]:
        key = (model.data, model.classes)
        if key not in self._data:
            self._data[key] = self.source(model)
        return self._data[key]

    def path(self, folder: str, model: Model, ending: str = "") -> Path:
        return self.out / folder / f"{self.size.of(model).name}{ending}"

    def claim(self) -> None:
        """A folder holds results of one size only, and of models that were trained in one way."""
        path, size = self.out / "size.json", self.size
        recipes = {name: asdict(recipe) for name, recipe in {"": size.recipe, **size.recipes}.items()}
        adversary = asdict(size.adversary)
        own = {"size": size.name, "recipes": recipes, "weight_decay": size.weight_decay, "adversary": adversary}
        if not path.exists():
            write_json(path, own)
            return
        held = json.loads(path.read_text())
        if held != own:
            what = f"size {held['size']}" if held["size"] != size.name else "models that were trained in another way"
            raise InputError(f"{self.out} holds results of {what}; give another folder for {size.name} ones")


def source_of(data_dir: str | os.PathLike[str] | None) -> Source:
    """The data of the models, from their files."""
    return lambda model: training_data(model.data, data_dir, model.classes)


def as_inputs(data: Dataset, classes: tuple[str, ...] | None) -> dataset.Dataset:
    """The test images as a run takes them; their labels are the numbers of the network's outputs."""
    x, y = data.x_test.numpy().reshape(-1, *data.shape), data.y_test.numpy()
    content = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in (("x", x), ("y", y))}
    found = digest({**content, "shape": list(data.shape)})
    where = f"{data.name} test, values in [{data.low:g}, {data.high:g}]"
    ends = (data.low, data.high)
    return dataset.Dataset(where, data.shape, len(x), found, dataset.Rows(x), y, classes, domain=ends)


# --- training


def network(bench: Bench, model: Model) -> Network:
    """The trained network, from its file or by training it."""
    size, recipe = bench.size, bench.size.recipe_of(model)
    adversary = replace(size.adversary, ramp=recipe.ramp) if model.robust else None
    own = size.of(model)
    return trained(
        bench, own.name, lambda: bench.data(model), own.widths, recipe, adversary, size.n_train, size.weight_decay
    )


def trained(
    bench: Bench, name: str, source: Callable[[], tuple[Dataset, tuple[str, ...]]], widths: tuple[int, ...],
    recipe: Recipe, adversary: PGD | None, images: int | None, weight_decay: float,
) -> Network:  # fmt: skip
    """The network of this name: its file, or what training gives, which is kept with how it was trained.

    `images`: the first so many to train on (None: all).
    """
    path = bench.out / "models" / f"{name}.elbowroom"
    if path.exists():
        return load_network(path)
    bench.go_on()
    data, classes = source()
    part = first_images(data, images)
    started = time.perf_counter()
    with Meter(recipe.epochs, "epoch", title=f"{name}: training") as meter:

        def progress(done: int) -> None:
            bench.go_on()
            meter.advance(done)

        module, report = train(
            widths, part, epochs=recipe.epochs, rate=recipe.rate, weight_decay=weight_decay, batch=recipe.batch,
            adversary=adversary, seed=0, device=bench.device, progress=progress,
        )  # fmt: skip
    seconds = time.perf_counter() - started
    x, y = data.x_test.to(bench.device), data.y_test.to(bench.device)
    attacked = accuracy_under(module.to(bench.device), x, y, PGD(TAU), data.low, data.high)
    net = as_network(module.cpu(), data, classes)
    about = {
        "data": data.name, "classes": classes, "widths": widths, "train_images": len(part.x_train),
        "test_images": len(data.x_test), "epochs": recipe.epochs, "rate": recipe.rate, "batch": recipe.batch,
        "weight_decay": weight_decay, "adversary": None if adversary is None else asdict(adversary),
        "loss": report.losses[-1], "train_accuracy": report.train_accuracy, "test_accuracy": report.test_accuracy,
        "attacked_accuracy": attacked, "attack": asdict(PGD(TAU)), "seconds": seconds, "device": _name(bench.device),
    }  # fmt: skip
    write_json(bench.out / "models" / f"{name}.json", about)
    save_network(net, path)  # the last: where it is, all of it is there
    bench.say(
        f"{name}: trained in {seconds:.1f} s; accuracy {report.train_accuracy:.2%} training, "
        f"{report.test_accuracy:.2%} test, {attacked:.2%} attacked"
    )
    return net


def first_images(data: Dataset, n: int | None) -> Dataset:
    """With the first `n` training images only (None: all)."""
    if n is None:
        return data
    return Dataset(
        data.name, data.x_train[:n], data.y_train[:n], data.x_test, data.y_test, data.low, data.high, data.shape
    )


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=1).encode()
    replace_file(path, lambda file: file.write(text))


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
