"""What the regions' sizes owe to the training: one thing at a time changed, the rest as in the paper.

    python -m elbowroom.paper.variants OUT --data-dir DIR [--only 'mnist-*'] [--inputs 200] [--device cuda]

Each network is trained and certified (the paper's bounds, the first test images), and what was found is kept in
OUT/variants/NAME.json; the table of what is there goes to OUT/tables/variants.md and variants.csv. A GPU needs some
minutes, two cores most of a day.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from elbowroom.certify.api import certify
from elbowroom.data.embedded import Dataset
from elbowroom.errors import ElbowroomError
from elbowroom.machine.device import usable_device
from elbowroom.paper.compute import WAYS, first_images, write_json
from elbowroom.paper.models import TAU, TITLES
from elbowroom.paper.tables import Column, Table, number, percent
from elbowroom.training.sets import as_network, training_data
from elbowroom.training.train import PGD, train


@dataclass(frozen=True)
class Variant:
    """One training. `what`: for people. `steps`: of Adam, on batches of `batch`. `images`: the first (None: all)."""

    name: str
    what: str
    data: str
    widths: tuple[int, ...]
    steps: int
    batch: int = 100
    rate: float = 1e-4
    weight_decay: float = 1e-4
    images: int | None = None
    adversary: PGD | None = None

    def epochs(self, images: int) -> tuple[int, int]:
        """The whole epochs of so many images that come closest, and the steps they have."""
        per_epoch = -(-images // self.batch)
        count = max(1, round(self.steps / per_epoch))
        return count, count * per_epoch


_UNCLIPPED = PGD(TAU, clip=False)
_MNIST: dict[str, Any] = {
    "data": "mnist", "widths": (300,) * 3, "steps": 3600, "batch": 1000, "rate": 1e-3, "adversary": PGD(TAU),
}  # fmt: skip
_SVHN: dict[str, Any] = {"data": "svhn", "widths": (1024,) * 3, "steps": 73257}
# On SVHN the authors' 100 epochs are 73,257 steps on the official set, and 16,000 on our subset.
VARIANTS = (
    Variant("mnist-large-batches", "large batches", **_MNIST),
    Variant("mnist-no-decay", "large batches, no weight decay", **_MNIST, weight_decay=0.0),
    Variant("mnist-more-decay", "large batches, three times the weight decay", **_MNIST, weight_decay=3e-4),
    Variant(
        "mnist-unclipped", "large batches, the adversary may leave [-1, 1]",
        **{**_MNIST, "adversary": _UNCLIPPED},
    ),
    *(
        Variant(
            f"mnist-{width}-unclipped", "the adversary may leave [-1, 1]", "mnist", (width,) * 3, 60000,
            adversary=_UNCLIPPED,
        )
        for width in (100, 300)
    ),
    Variant("svhn-100-epochs", "100 epochs", **{**_SVHN, "steps": 16000}),
    Variant("svhn-as-many-steps", "as many steps as the paper's", **_SVHN),
    Variant("svhn-quarter", "as many steps, a quarter of the images", **_SVHN, images=4000),
    Variant("svhn-no-decay", "as many steps, no weight decay", **_SVHN, weight_decay=0.0),
)  # fmt: skip


def measure(
    variant: Variant, data: Dataset, classes: tuple[str, ...], inputs: int, device: torch.device
) -> dict[str, Any]:
    """Trains the network and certifies the first `inputs` test images with the paper's bounds."""
    part = first_images(data, variant.images)
    module, report = train(
        variant.widths, part, epochs=variant.epochs(len(part.x_train))[0], rate=variant.rate, batch=variant.batch,
        weight_decay=variant.weight_decay, adversary=variant.adversary, device=device,
    )  # fmt: skip
    net = as_network(module, data, classes)
    x = data.x_test[:inputs].reshape(-1, *net.input_shape)
    certs = certify(net, x, data.y_test[:inputs], device=device, **WAYS["sequential"].arguments)
    good = certs.certified
    found: dict[str, Any] = {
        "images": len(part.x_train), "train_accuracy": report.train_accuracy, "test_accuracy": report.test_accuracy,
        "inputs": inputs, "certified": int(good.sum()),
    }  # fmt: skip
    if good.any():
        found |= {name: float(getattr(certs, name)[good].double().mean()) for name in ("uniform", "geomean", "capped")}
    return found


def table(out: Path, variants: Sequence[Variant]) -> Table:
    """Of those variants that were measured."""
    columns = (
        Column("data"), Column("hidden layers"), Column("trained against"), Column("what is special"),
        Column("images"), Column("steps"), Column("batch"), Column("rate"), Column("weight decay"),
        Column("training accuracy %", percent(1)), Column("test accuracy %", percent(1)), Column("uniform", number(4)),
        Column("non-uniform", number(4)), Column(f"ratio (cap: {WAYS['sequential'].cap})", number(3)),
        Column("features at the cap %", percent(2)), Column("inputs"), Column("certified"),
    )  # fmt: skip
    rows: list[list[Any]] = []
    for v in variants:
        path = out / "variants" / f"{v.name}.json"
        if not path.exists():
            continue
        found = json.loads(path.read_text())
        uniform, geomean = found.get("uniform"), found.get("geomean")
        rows.append([
            TITLES[v.data], "-".join(map(str, v.widths)), "nobody" if v.adversary is None else f"PGD, τ = {TAU:g}",
            v.what, found["images"], v.epochs(found["images"])[1], v.batch, v.rate, v.weight_decay,
            found["train_accuracy"], found["test_accuracy"], uniform, geomean,
            None if uniform is None else geomean / uniform, found.get("capped"), found["inputs"], found["certified"],
        ])  # fmt: skip
    return Table("variants", columns, rows, "The paper's bounds and the sequential solver, the first test images.")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m elbowroom.paper.variants", description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, help="folder for what is found")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=["*"], help="only those whose names match, as in 'svhn-*'")
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--device", help="default: a GPU, where there is one")
    given = parser.parse_args(arguments)
    chosen = [v for v in VARIANTS if any(fnmatchcase(v.name, pattern) for pattern in given.only)]
    if not chosen:
        parser.error(f"no variant matches; there are {', '.join(v.name for v in VARIANTS)}")
    try:
        device = usable_device(given.device)
        for variant in chosen:
            path = given.out / "variants" / f"{variant.name}.json"
            if not path.exists():
                data, classes = training_data(variant.data, given.data_dir)
                found = measure(variant, data, classes, given.inputs, device)
                write_json(path, found)
                print(f"{variant.name}: {found}", flush=True)
    except ElbowroomError as error:
        print(f"variants: {error}", file=sys.stderr)
        return 2
    made = table(given.out, VARIANTS)
    made.write(given.out / "tables")
    print(made.markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
