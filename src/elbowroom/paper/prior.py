"""Is the mean direction of earlier regions a good start for new inputs, as the paper expects? Measured.

    python -m elbowroom.paper.prior OUT --data-dir DIR [--inputs 200] [--size full]

OUT holds the models of `elbowroom.paper.compute`; the table goes to OUT/tables/prior.md and prior.csv. One
thread; seconds are of processor time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elbowroom.certify.api import certify
from elbowroom.data.embedded import Dataset
from elbowroom.errors import ElbowroomError, InputError
from elbowroom.network.file import load_network
from elbowroom.network.graph import Network
from elbowroom.paper.compute import Source, source_of
from elbowroom.paper.models import FULL, MAIN, SIZES, Model, Size
from elbowroom.paper.tables import Column, Table, number, percent
from elbowroom.search.regions.box import Box
from elbowroom.search.regions.l1 import L1
from elbowroom.search.solvers.sequential import Sequential
from elbowroom.training.train import one_thread

LEARNED_FROM = 64  # training images
CASES: dict[str, dict[str, Any]] = {
    "paper's bounds": {"bounds": "combined", "margin": "logits"},
    "adaptive, direct": {},
    "asymmetric, in the domain": {
        "domain": (-1.0, 1.0),
        "region": Box(asymmetric=True),
    },
    "l1": {"region": L1()},
}
GRADIENTS = (0, 1, 2, 4)


def prior_table(
    out: Path,
    size: Size,
    source: Source,
    models: Sequence[Model] = MAIN[:2],
    inputs: int = 200,
) -> Table:
    """Sizes and work with and without the prior, for several limits on the number of gradients."""
    rows: list[list[Any]] = []
    for model in models:
        path = out / "models" / f"{size.of(model).name}.elbowroom"
        if not path.exists():
            raise InputError(f"{path} is not there; compute the models first")
        net, (data, _) = load_network(path), source(model)
        for case, arguments in CASES.items():
            with one_thread():
                rows += [[size.of(model).name, case, *row] for row in _measured(net, data, arguments, inputs)]
    columns = (
        Column("model"), Column("certified with"), Column("start"), Column("gradients at most"),
        Column("non-uniform", number(5)), Column("of the default's %", percent(2)), Column("evaluations", number(1)),
        Column("gradients", number(2)), Column("CPU s per input", number(3)),
    )  # fmt: skip
    note = (
        f"{inputs} test images; the prior is learned from {LEARNED_FROM} training images. Means over the certified; "
        "evaluations include the uniform baseline. The default: no prior, 4 gradients at most."
    )
    return Table("prior", columns, rows, note)


def _measured(net: Network, data: Dataset, arguments: dict[str, Any], inputs: int) -> list[list[Any]]:
    def images(x: Any) -> Any:
        return x.reshape(-1, *net.input_shape)

    arguments = {"delta": 1e-4, **arguments}  # the paper's
    learned = certify(net, images(data.x_train[:LEARNED_FROM]), data.y_train[:LEARNED_FROM], **arguments)
    found: list[list[Any]] = []
    for start, prior in (("uniform", None), ("prior", learned)):
        for most in GRADIENTS if prior is not None else GRADIENTS[1:]:
            began = time.process_time()
            certs = certify(
                net, images(data.x_test[:inputs]), data.y_test[:inputs], solver=Sequential(gradients=most), prior=prior,
                **arguments,
            )  # fmt: skip
            seconds = (time.process_time() - began) / inputs
            good = certs.certified
            means = [float(getattr(certs, n)[good].double().mean()) for n in ("geomean", "evaluations", "gradients")]
            found.append([start, most, *means, seconds])
    default = next(row[2] for row in found if row[:2] == ["uniform", GRADIENTS[-1]])
    return [[*row[:3], row[2] / default, *row[3:]] for row in found]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m elbowroom.paper.prior", description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, help="folder with the models")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--size", choices=SIZES, default=FULL.name)
    given = parser.parse_args(arguments)
    try:
        table = prior_table(given.out, SIZES[given.size], source_of(given.data_dir), inputs=given.inputs)
    except ElbowroomError as error:
        print(f"prior: {error}", file=sys.stderr)
        return 2
    table.write(given.out / "tables")
    print(table.markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
