"""What the rows of SVHN depend on: the same network, trained normally on fewer images, longer, without weight decay.

    python -m elbowroom.experiments.svhn OUT --data-dir DIR [--inputs 200] [--device cuda]

The table goes to OUT/tables/svhn.md and svhn.csv, after every row. A GPU needs some minutes, two cores most of a day.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elbowroom.certify import certify
from elbowroom.data.embedded import Dataset
from elbowroom.errors import ElbowroomError
from elbowroom.experiments.compute import WAYS, first_images
from elbowroom.experiments.tables import Column, Table, number, percent
from elbowroom.train import train
from elbowroom.train_command import as_network, training_data


@dataclass(frozen=True)
class Variant:
    """A normal training: so many images, so many steps on batches of 100."""

    images: int
    steps: int
    weight_decay: float = 1e-4


BATCH, RATE = 100, 1e-4  # the authors'
# The authors' 100 epochs are 73,257 steps on the official set, and 16,000 on ours.
VARIANTS = (Variant(16000, 16000), Variant(16000, 73257), Variant(4000, 73257), Variant(16000, 73257, 0.0))


def rows(
    data: Dataset, classes: tuple[str, ...], widths: Sequence[int], variants: Sequence[Variant], inputs: int,
    device: torch.device,
) -> Iterator[list[Any]]:  # fmt: skip
    """Trains each variant and certifies the first `inputs` test images with the paper's bounds."""
    for variant in variants:
        part = first_images(data, variant.images)
        per_epoch = -(-len(part.x_train) // BATCH)
        module, report = train(
            widths, part, epochs=max(1, round(variant.steps / per_epoch)), rate=RATE, batch=BATCH,
            weight_decay=variant.weight_decay, device=device,
        )  # fmt: skip
        net = as_network(module, data, classes)
        x = data.x_test[:inputs].reshape(-1, *net.input_shape)
        certs = certify(net, x, data.y_test[:inputs], device=device, **WAYS["sequential"].arguments)
        good = certs.certified
        uniform, geomean = (
            float(t[good].double().mean()) if good.any() else None for t in (certs.uniform, certs.geomean)
        )
        ratio = None if uniform is None or geomean is None else geomean / uniform
        capped = float(certs.capped[good].double().mean()) if good.any() else None
        yield [
            variant.images, variant.steps, variant.weight_decay, report.train_accuracy, report.test_accuracy,
            int(good.sum()), uniform, geomean, ratio, capped,
        ]  # fmt: skip


def table(found: Sequence[Sequence[Any]], inputs: int) -> Table:
    columns = (
        Column("images"), Column("steps"), Column("weight decay"), Column("training accuracy %", percent(1)),
        Column("test accuracy %", percent(1)), Column("certified"), Column("uniform", number(4)),
        Column("non-uniform", number(4)), Column(f"ratio (cap: {WAYS['sequential'].cap})", number(3)),
        Column("features at the cap %", percent(2)),
    )  # fmt: skip
    note = (
        f"The normal network of SVHN, Adam at a rate of {RATE:g} on batches of {BATCH}; the first {inputs} test "
        "images, the paper's bounds."
    )
    return Table("svhn", columns, found, note)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m elbowroom.experiments.svhn", description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, help="folder for the table")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args(arguments)
    found: list[list[Any]] = []
    try:
        data, classes = training_data("svhn", given.data_dir)
        for row in rows(data, classes, (1024,) * 3, VARIANTS, given.inputs, torch.device(given.device)):
            found.append(row)
            table(found, given.inputs).write(given.out / "tables")
            print(table(found[-1:], given.inputs).markdown(), flush=True)
    except ElbowroomError as error:
        print(f"svhn: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
