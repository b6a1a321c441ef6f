"""What the regions' sizes owe to the training: one thing at a time changed, the rest as in the paper.

`elbowroom reproduce variants`: each network is trained and certified (the paper's bounds, the first test images) as the
paper's are, see `elbowroom.paper.bench` and `certified`; the table goes to tables/variants.md and variants.csv. A GPU
needs some minutes, two cores most of a day.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elbowroom.data.embedded import Dataset
from elbowroom.paper.bench import Bench, as_inputs, trained
from elbowroom.paper.certified import WAYS, certify_some, held_of
from elbowroom.paper.findings import Summary
from elbowroom.paper.models import TAU, TITLES, Model, Recipe, Size
from elbowroom.paper.tables import Column, Table, number, percent
from elbowroom.runs.settings import Settings
from elbowroom.training.adversary import PGD

_FEW_STEPS = 400


@dataclass(frozen=True)
class Variant:
    """One training. `what`: for people. `steps`: of Adam, on batches of `batch`. `images`: the first (None: all).
    `pixels`: a range that they are brought to, in which extents are then measured (None: their own)."""

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
    pixels: tuple[float, float] | None = None

    def of(self, size: Size) -> Variant:
        """The same in another size: small networks, few images, and no more steps than those need."""
        if size.n_train is None:
            return self
        images = min(self.images or size.n_train, size.n_train)
        widths = tuple(size.shrink.get(w, w) for w in self.widths)
        return replace(self, widths=widths, images=images, steps=min(self.steps, _FEW_STEPS))

    def epochs(self, images: int) -> tuple[int, int]:
        """The whole epochs of so many images that come closest, and the steps they have."""
        per_epoch = -(-images // self.batch)
        count = max(1, round(self.steps / per_epoch))
        return count, count * per_epoch


_OUT = PGD(TAU, clip=False)  # as the models of the main table
_MNIST: dict[str, Any] = {
    "data": "mnist", "widths": (300,) * 3, "steps": 3600, "batch": 1000, "rate": 1e-3, "adversary": _OUT,
}  # fmt: skip
_SVHN: dict[str, Any] = {"data": "svhn", "widths": (1024,) * 3, "steps": 73257}
_UNIT: dict[str, Any] = {**_SVHN, "pixels": (0.0, 1.0)}
# On SVHN the authors' 100 epochs are 73,257 steps on the official set, and 16,000 on our subset.
VARIANTS = (
    Variant("mnist-large-batches", "large batches", **_MNIST),
    Variant("mnist-no-decay", "large batches, no weight decay", **_MNIST, weight_decay=0.0),
    Variant("mnist-more-decay", "large batches, three times the weight decay", **_MNIST, weight_decay=3e-4),
    Variant(
        "mnist-kept-in", "large batches, the adversary kept in [-1, 1]",
        **{**_MNIST, "adversary": PGD(TAU)},
    ),
    Variant("svhn-100-epochs", "100 epochs", **{**_SVHN, "steps": 16000}),
    Variant("svhn-as-many-steps", "as many steps as the paper's", **_SVHN),
    Variant("svhn-quarter", "as many steps, a quarter of the images", **_SVHN, images=4000),
    Variant("svhn-no-decay", "as many steps, no weight decay", **_SVHN, weight_decay=0.0),
    Variant("svhn-unit", "as many steps, pixels in [0, 1]", **_UNIT),
    Variant(
        "svhn-unit-robust", "half as many steps at twice the rate, pixels in [0, 1]",
        **{**_UNIT, "steps": 36800, "rate": 2e-4}, adversary=replace(_OUT, ramp=20),
    ),
)  # fmt: skip


def measure(bench: Bench, variant: Variant) -> None:
    """Trains the network and certifies the first test images with the paper's bounds, as far as that is not done."""
    bench.claim()
    model = Model(variant.data, variant.widths, variant.adversary is not None)  # which says where the data are

    def source() -> tuple[Dataset, tuple[str, ...]]:
        data, classes = bench.data(model)
        return (data if variant.pixels is None else within(data, *variant.pixels)), classes

    data, classes = source()
    count = len(data.x_train[: variant.images])
    recipe = Recipe(variant.epochs(count)[0], variant.batch, variant.rate)
    net = trained(
        bench, variant.name, source, variant.widths, recipe, variant.adversary, variant.images, variant.weight_decay
    )
    settings = replace(Settings.of(WAYS["sequential"].settings), limit=bench.size.few)
    certify_some(bench, variant.name, "sequential", net, as_inputs(data, classes), settings)


def within(data: Dataset, low: float, high: float) -> Dataset:
    """With its values brought from their own range to another."""
    scale = (high - low) / (data.high - data.low)
    x_train, x_test = (low + (x - data.low) * scale for x in (data.x_train, data.x_test))
    return replace(data, x_train=x_train, x_test=x_test, low=low, high=high)


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
        path = out / "models" / f"{v.name}.json"
        held = held_of(out, v.name, "sequential")
        if not path.exists() or held is None:
            continue
        facts, found = json.loads(path.read_text()), Summary.of(held)
        images = facts["train_images"]
        sizes = [None] * 4 if found is None else [found.uniform, found.nonuniform, found.ratio, found.capped]
        rows.append([
            TITLES[v.data], "-".join(map(str, v.widths)), "nobody" if v.adversary is None else f"PGD, τ = {TAU:g}",
            v.what, images, v.epochs(images)[1], v.batch, v.rate, v.weight_decay, facts["train_accuracy"],
            facts["test_accuracy"], *sizes, len(held["status"]), 0 if found is None else found.certified,
        ])  # fmt: skip
    return Table("variants", columns, rows, "The paper's bounds and the sequential solver, the first test images.")
