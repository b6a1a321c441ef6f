"""How a run goes, for people: what is about to be done, then a bar, or lines where there is no terminal. On stderr."""

from __future__ import annotations

import sys
from typing import Protocol

from elbowroom.machine.meter import Meter
from elbowroom.network.names import counted
from elbowroom.report.flags import as_flags
from elbowroom.runs.runner import Start
from elbowroom.runs.settings import FLAGS
from elbowroom.runs.stored import stored_settings
from elbowroom.runs.summary import Tally, cap_in_words


class Display(Protocol):
    """A `Watch` that may have something to clear away at the end."""

    def begin(self, start: Start) -> None: ...

    def advance(self, tally: Tally) -> None: ...

    def end(self) -> None: ...


def display(quiet: bool, title: str = "") -> Display:
    """Of a run; warnings alone where `quiet`. `title`: what the run is, where that was introduced before."""
    return _Quiet() if quiet else _Told(title)


def introduction(start: Start) -> list[str]:
    """What is about to be done, a line each."""
    run, plan = start.run, start.run.plan
    settings, net = stored_settings(plan) or {}, run.network
    lines = [f"network: {net!r}", *(f"note: {note}" for note in net.about.notes)]
    chosen = (
        f"{plan.inputs:,} of its {counted(start.data.count, 'input')}"
        if plan.inputs < start.data.count
        else "all inputs"
    )
    lines += [f"data: {start.data!r}; {chosen}", *(note for note in plan.notes if note.startswith("note: "))]
    if start.right is not None:
        lines.append(f"the network gets {start.right:,} of these {plan.inputs:,} right")
    kept = {"labels": "the data's labels stay", "decisions": "what the network decides stays"}
    what = kept.get((plan.data or {}).get("kept", ""), f"outputs stay within {settings.get('within')}")
    lines.append(
        f"to certify: {what}; region {settings['region']}, bounds {settings['bounds']}, solver {settings['solver']}, "
        f"extents end at {cap_in_words(settings)}; on {start.device}{_by_whom(start)}"
    )
    domain = start.data.domain
    if settings["domain"] is None and domain is not None:
        lines.append(
            f"note: without a domain, regions may leave the data's range [{domain[0]:g}, {domain[1]:g}]; "
            "--domain data ends them there"
        )
    before = f"; {counted(start.done, 'input')} done already" if start.done else ""
    of = counted(plan.part_rows, "input")
    lines.append(f"into {run.folder}: {counted(run.n_parts, 'part')} of up to {of}{before}")
    return lines


def _by_whom(start: Start) -> str:
    threads = counted(start.threads, "thread") if start.threads else ""
    if start.workers > 1:
        return f" by {start.workers:,} workers" + (f" of {threads} each" if threads else "")
    return f" by this process, {threads}" if threads else ""


def warnings(start: Start) -> list[str]:
    """What looks wrong before anything is certified."""
    return [as_flags(note, FLAGS) for note in start.run.plan.notes if note.startswith("warning: ")]


class _Quiet:
    def begin(self, start: Start) -> None:
        for line in warnings(start):
            print(line, file=sys.stderr, flush=True)

    def advance(self, tally: Tally) -> None:
        pass

    def end(self) -> None:
        pass


class _Told(_Quiet):
    def __init__(self, title: str) -> None:
        self._title = title
        self._meter: Meter | None = None

    def begin(self, start: Start) -> None:
        if not self._title:
            print("\n".join(introduction(start)), file=sys.stderr, flush=True)
        super().begin(start)
        plan = start.run.plan
        step = "input" if min(plan.part_rows, plan.inputs) == 1 else "part"
        self._meter = Meter(plan.inputs, title=self._title, step=step, done=start.done)

    def advance(self, tally: Tally) -> None:
        assert self._meter is not None
        self._meter.advance(tally.count, "" if tally.mean_ratio is None else f"mean ratio {tally.mean_ratio:.3f}")

    def end(self) -> None:
        if self._meter is not None:
            self._meter.end()
