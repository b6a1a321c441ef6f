"""Is the mean direction of earlier regions a good start for new inputs, as the paper expects? Measured.

`elbowroom reproduce prior`: with the models of the main table; the table goes to tables/prior.md and prior.csv. The
runner has no setting for a prior, so that the certificates are found by `certify`, and saved as runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elbowroom.certificates.result import Certificates
from elbowroom.certify.api import certify
from elbowroom.machine.meter import Meter
from elbowroom.machine.threads import using_threads
from elbowroom.paper.bench import Bench, network
from elbowroom.paper.certified import save_once
from elbowroom.paper.models import Model
from elbowroom.paper.tables import Column, Table, number, percent
from elbowroom.search.regions.box import Box
from elbowroom.search.regions.l1 import L1
from elbowroom.search.solvers.sequential import Sequential

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
_DELTA: dict[str, Any] = {"delta": 1e-4}  # the paper's
GRADIENTS = (0, 1, 2, 4)


def prior_table(bench: Bench, models: Sequence[Model]) -> Table:
    """Sizes and work with and without the prior, for several limits on the number of gradients."""
    bench.claim()
    rows: list[list[Any]] = []
    for model in models:
        for case in CASES:
            with using_threads(1):
                rows += [[bench.size.of(model).name, case, *row] for row in _measured(bench, model, case)]
    columns = (
        Column("model"), Column("certified with"), Column("start"), Column("gradients at most"),
        Column("non-uniform", number(5)), Column("of the default's %", percent(2)), Column("evaluations", number(1)),
        Column("gradients", number(2)),
    )  # fmt: skip
    note = (
        f"{bench.size.few} test images; the prior is learned from {LEARNED_FROM} training images. Means over the "
        "certified; evaluations include the uniform baseline. The default: no prior, 4 gradients at most."
    )
    return Table("prior", columns, rows, note)


def _measured(bench: Bench, model: Model, case: str) -> list[list[Any]]:
    net, (data, _) = network(bench, model), bench.data(model)
    name = bench.size.of(model).name

    def found(way: str, x: Any, y: Any, **told: Any) -> Certificates:
        def make() -> Certificates:
            with Meter(None, title=f"{name}: {way}"):
                return certify(
                    net, x.reshape(-1, *net.input_shape), y, delta=1e-4, progress=False, **CASES[case], **told
                )  # the paper's

        return save_once(bench, name, way, make)

    slug = "prior-" + "".join(c if c.isalnum() else "-" for c in case.replace(",", "").replace("'", ""))
    few = bench.size.few
    learned = found(f"{slug}-learned", data.x_train[:LEARNED_FROM], data.y_train[:LEARNED_FROM])
    rows: list[list[Any]] = []
    for start, prior in (("uniform", None), ("prior", learned)):
        for most in GRADIENTS if prior is not None else GRADIENTS[1:]:
            certs = found(
                f"{slug}-{start}-{most}", data.x_test[:few], data.y_test[:few], solver=Sequential(gradients=most),
                prior=prior,
            )  # fmt: skip
            good = certs.certified
            means = [float(getattr(certs, n)[good].double().mean()) for n in ("geomean", "evaluations", "gradients")]
            rows.append([start, most, *means])
    default = next(row[2] for row in rows if row[:2] == ["uniform", GRADIENTS[-1]])
    return [[*row[:3], row[2] / default, *row[3:]] for row in rows]
