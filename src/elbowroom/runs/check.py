"""The parts of a run proved again, one after the other, so that a run of any size fits in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from elbowroom.certificates.result import STATUSES, Certificates
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.network.file import load_network
from elbowroom.network.graph import Network, Origin
from elbowroom.proof.recheck import CheckReport, check
from elbowroom.runs.origin import described, read_again


@dataclass
class Outcome:
    """What was found of a whole run. `network`: which network was proved, in lines; `origin`: where the run says its
    network comes from. `margins`: of the inputs proved, number and smallest margin. `failures`: the inputs' numbers,
    and why not. `missing`: still to be certified."""

    network_hash: str
    network: list[str]
    origin: Origin | None
    arithmetic: str
    deployed: str | None
    inputs: int = 0
    missing: int = 0
    claims: int = 0
    proved: int = 0
    seconds: float = 0.0
    status: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    margins: list[tuple[int, float]] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, report: CheckReport, certs: Certificates) -> None:
        self.inputs += len(report)
        self.claims += int(report.checked.sum())
        self.proved += int(report.passed.sum())
        self.seconds += report.seconds
        proved, margins = report.passed.nonzero().squeeze(1).tolist(), report.margins.tolist()
        self.margins += [(certs.number(k), min(margins[k])) for k in proved]
        self.failures += [(certs.number(k), report.message[k]) for k in report.failures]
        for name in STATUSES:
            self.status[name] += certs.status.count(name)

    @property
    def verdict(self) -> str:
        """ "passed", "failed", or "incomplete": nothing proved, or a part that is missing, is no success."""
        if self.failures:
            return "failed"
        return "incomplete" if self.missing or not self.proved else "passed"


def check_run(
    run: Run,
    network: Path | None = None,
    arithmetic: str = "float64",
    deployed: str | None = None,
    model: Path | None = None,
    trust_pickle: bool = False,
    progress: Callable[[int], None] | None = None,
    device: str | torch.device = "cpu",
) -> Outcome:
    """Proves all that is there of a run.

    `network`: file of the network it must be about, by default its own. `model`: the model that network must be read
    from, see `elbowroom.runs.origin`; `trust_pickle`: read it also where that runs code.
    `progress`: is told how many more inputs were looked at. `device`: where the proof is computed.
    """
    net, lines = _network(run, network, model, trust_pickle)
    outcome = None
    # No part at all is checked as well: the network may be the wrong one.
    parts: list[tuple[int, ...]] = [(k,) for k in run.finished()]
    for part in parts or [()]:
        certs = run.read(*part)
        report = check(certs, net, arithmetic, deployed, device, progress)
        if outcome is None:
            stated = run.network.about.origin
            outcome = Outcome(run.claim["network_hash"], lines, stated, report.arithmetic, report.deployed)
        outcome.add(report, certs)
    assert outcome is not None
    outcome.missing = run.plan.inputs - outcome.inputs
    return outcome


def _network(
    run: Run, network: Path | None, model: Path | None, trust_pickle: bool
) -> tuple[Network | None, list[str]]:
    """The network to prove, where it is not the run's own, and what to say of it."""
    if network is not None and model is not None:
        raise InputError("give `model` or `network`, not both")
    if model is not None:
        return read_again(run, model, trust_pickle)
    named = bool(run.network.about.features or run.network.about.classes)
    coded = run.network.about.table is not None and not run.network.about.table.moves.all()
    also = "; levels of categories and their codes, too" if coded and network is None else ""
    names = [f"names: of features and classes, as the run states them{also}"] if named else []
    if network is not None:
        return load_network(network), [f"network: that of {network}", *names]
    origin = run.network.about.origin
    stated = "it does not say from where" if origin is None else f"it says that it was read from {described(origin)}"
    return None, [f"network: the run's own; {stated}. To compare it with yours: `model=FILE`", *names]
