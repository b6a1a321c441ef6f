"""`elbowroom check`: the parts of a run proved again, one after the other, so that a run of any size fits in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from elbowroom.certificate import STATUSES, Certificates
from elbowroom.check.api import CheckReport, check
from elbowroom.network.files import load_network
from elbowroom.run.files import Run


@dataclass
class Outcome:
    """What was found of a whole run. `failures`: the inputs' numbers, and why not. `missing`: still to be certified."""

    network_hash: str
    arithmetic: str
    deployed: str | None
    inputs: int = 0
    missing: int = 0
    claims: int = 0
    proved: int = 0
    seconds: float = 0.0
    status: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, report: CheckReport, certs: Certificates) -> None:
        self.inputs += len(report)
        self.claims += int(report.checked.sum())
        self.proved += int(report.passed.sum())
        self.seconds += report.seconds
        self.failures += [(certs.number(k), report.message[k]) for k in report.failures]
        for name in STATUSES:
            self.status[name] += certs.status.count(name)


def check_run(folder: Path, network: Path | None, arithmetic: str, deployed: str | None) -> Outcome:
    """Proves all that is there of a run. `network`: file of the network it must speak of, by default its own."""
    run = Run.open(folder)
    net = None if network is None else load_network(network)
    outcome = None
    with _progress(run.plan.inputs) as advance:
        # No part at all is checked as well: the network may be the wrong one.
        parts: list[tuple[int, ...]] = [(k,) for k in run.finished()]
        for part in parts or [()]:
            certs = run.read(*part)
            report = check(certs, net, arithmetic, deployed, progress=advance)
            if outcome is None:
                outcome = Outcome(certs.settings["network_hash"], report.arithmetic, report.deployed)
            outcome.add(report, certs)
    assert outcome is not None
    outcome.missing = run.plan.inputs - outcome.inputs
    return outcome


@contextmanager
def _progress(inputs: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("proving again"), BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=inputs)
        yield lambda count: bar.advance(task, count)
