"""The experiments' certificates: every one in a run, made by the runner and proved again by the check.

runs/NAME/WAY           a run as `elbowroom certify` makes it, for `elbowroom check`, `show` and `status`
checks/NAME/WAY.json    what the check found of it
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from elbowroom.certificates.result import STATUSES, Certificates
from elbowroom.certificates.store import HEADER, Run
from elbowroom.data.dataset import Dataset
from elbowroom.machine.meter import Meter
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from elbowroom.paper.bench import Bench, Stopped, write_json
from elbowroom.report.progress import Display, display
from elbowroom.runs.check import check_run
from elbowroom.runs.runner import Start, run_dataset
from elbowroom.runs.settings import Settings
from elbowroom.runs.summary import Tally
from elbowroom.runs.values import ALL
from elbowroom.search.find import CAP

RANGE = 2.0  # of a pixel: an extent of this much lets it take every value, wherever it is
DOMAIN = (-1.0, 1.0)
_MOST = {"cuda": 1000, "cpu": 50}  # inputs in a part: what is lost by a kill, and what a stop waits for
_DELTA: dict[str, Any] = {"delta": 1e-4}  # the paper's, so that all ways prove the same
_PAPER: dict[str, Any] = {"bounds": "combined", "margin": "logits", **_DELTA}
_COLUMNS = ("uniform", "geomean", "ratio", "evaluations", "gradients", "seconds")


@dataclass(frozen=True)
class Way:
    """One way to certify: a run's settings, and how far an extent may reach, in words."""

    title: str
    cap: str
    settings: dict[str, Any]


_NO_CAP = f"{CAP:g} uniform radii"
WAYS = {
    "sequential": Way("paper's bounds, sequential", _NO_CAP, _PAPER),
    "lagrangian": Way("paper's bounds, augmented Lagrangian", _NO_CAP, {**_PAPER, "solver": "augmented-lagrangian"}),
    "adaptive": Way("adaptive bounds, direct margins, sequential", _NO_CAP, _DELTA),
    "limited": Way(
        "paper's bounds, sequential, extents at most a pixel's range",
        f"{RANGE:g}",
        {**_PAPER, "max_eps": {ALL: RANGE}},
    ),
    "asymmetric": Way(
        "adaptive bounds, direct margins, asymmetric boxes in the domain",
        "the domain [-1, 1]",
        {"domain": {ALL: list(DOMAIN)}, "region": "box-asymmetric", **_DELTA},
    ),
}


def certify_some(
    bench: Bench, name: str, way: str, net: Network, data: Dataset, settings: Settings, upto: int | None = None
) -> None:
    """Certifies inputs in the run NAME/WAY, as far as that is not done, and proves all of them again.

    The run is planned with all inputs that the settings select, so that one and the same run goes on from call to
    call. `upto`: this time, stop after the part in which this many are done (None: all of them).
    """
    folder, report = bench.out / "runs" / name / way, _report(bench.out, name, way)
    if not (folder / HEADER).exists():
        report.unlink(missing_ok=True)  # of a run that was removed
    elif _enough(run := Run.open(folder), net, upto):
        _prove(bench, name, way, run)
        return
    bench.go_on()
    # A run keeps the size of its parts: that of its first step, so that it can stop just there.
    most = _MOST.get(bench.device.type, _MOST["cpu"])
    rows = None if (folder / HEADER).exists() else min(upto or most, most)
    settings = replace(settings, device=str(bench.device), part_rows=rows)
    watch = _Upto(display(False, f"{name}: {way}"), upto)
    try:
        outcome = run_dataset(
            net, data, folder, settings, resume=True, watch=watch, stop=lambda: watch.reached or bench.stop()
        )
    finally:
        watch.end()
    if not (outcome.complete or watch.reached):
        raise Stopped
    proved = _prove(bench, name, way, outcome.run)
    bench.say(f"{name}: {way}: {_in_words(outcome.tally, proved)}")


def save_once(bench: Bench, name: str, way: str, make: Callable[[], Certificates]) -> Certificates:
    """The certificates in the run NAME/WAY, or those that `make` finds, saved there; proved again in either case.

    For what the runner has no settings for.
    """
    folder = bench.out / "runs" / name / way
    if not (folder / HEADER).exists() or Certificates.load(folder).missing:
        bench.go_on()
        _report(bench.out, name, way).unlink(missing_ok=True)
        make().save(folder)
    _prove(bench, name, way, Run.open(folder))
    return Certificates.load(folder)


def parts_of(run: Run) -> Iterator[Certificates]:
    """The certificates of a run, part by part, as far as they are there without a gap."""
    for k, number in enumerate(run.finished()):
        if number != k:
            return
        yield run.read(number)


def inputs_of(run: Run) -> int:
    """How many inputs `parts_of` gives."""
    return sum(len(run.rows(number)) for k, number in enumerate(run.finished()) if k == number)


def held_of(out: Path, name: str, way: str) -> dict[str, np.ndarray] | None:
    """What is known of every input of a run that was proved again, `n` each; None where there is no such run.

    Columns of certificates, and: "status", its place in `STATUSES`; "capped", the share of features at their cap;
    "proved", by the check; "check_seconds", evenly shared.
    """
    report = _report(out, name, way)
    if not report.exists() or not (out / "runs" / name / way / HEADER).exists():
        return None
    found = json.loads(report.read_text())
    run = Run.open(out / "runs" / name / way)
    columns = [_columns(certs) for certs in parts_of(run)]
    held = {key: np.concatenate([part[key] for part in columns])[: found["inputs"]] for key in columns[0]}
    good = held["status"] == STATUSES.index("certified")
    held["proved"] = good & ~np.isin(held["index"], found["failures"])
    held["check_seconds"] = np.full(len(good), found["seconds"] / len(good))
    return held


def _columns(certs: Certificates) -> dict[str, np.ndarray]:
    found = {name: getattr(certs, name).numpy() for name in _COLUMNS}
    found["index"] = np.array([certs.number(k) for k in range(len(certs))], dtype=np.int64)
    found["status"] = np.array([STATUSES.index(s) for s in certs.status], dtype=np.int8)
    found["capped"] = certs.capped.flatten(1).double().mean(1).numpy()
    return found


def _report(out: Path, name: str, way: str) -> Path:
    return out / "checks" / name / f"{way}.json"


def _enough(run: Run, net: Network, upto: int | None) -> bool:
    """Whether a run needs no more; of another network it is not enough, and the runner refuses it by name."""
    wanted = run.plan.inputs if upto is None else min(upto, run.plan.inputs)
    return inputs_of(run) >= wanted and run.claim["network_hash"] == network_hash(net)


def _prove(bench: Bench, name: str, way: str, run: Run) -> dict[str, Any]:
    """Proves the run again, unless all that is there was proved before; what is kept of that."""
    path, done = _report(bench.out, name, way), inputs_of(run)
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        if found["inputs"] == done:
            return found
    with Meter(done, title=f"{name}: {way}: proving again", step="batch") as meter:
        outcome = check_run(run, device=bench.device, progress=meter.add)
    found = {
        "inputs": outcome.inputs, "proved": outcome.proved, "failures": [number for number, _ in outcome.failures],
        "seconds": outcome.seconds,
    }  # fmt: skip
    write_json(path, found)
    return found


def _in_words(tally: Tally, proved: dict[str, Any]) -> str:
    """What was found, for people who watch."""
    if not tally.certified:
        return f"none of {tally.count} inputs certified in {tally.seconds:.1f} s"
    uniform, size = tally.uniform / tally.certified, tally.geomean / tally.certified
    return (
        f"{tally.certified} of {tally.count} inputs certified in {tally.seconds:.1f} s, {proved['proved']} proved "
        f"again in {proved['seconds']:.1f} s; uniform {uniform:.4f}, non-uniform {size:.4f}"
    )


class _Upto:
    """Watches a run until so many inputs are done, and tells another who watches."""

    def __init__(self, other: Display, upto: int | None) -> None:
        self._other, self._upto, self._done = other, upto, 0

    @property
    def reached(self) -> bool:
        return self._upto is not None and self._done >= self._upto

    def begin(self, start: Start) -> None:
        self._done = start.done
        self._other.begin(start)

    def advance(self, tally: Tally) -> None:
        self._done = tally.count
        self._other.advance(tally)

    def end(self) -> None:
        self._other.end()
