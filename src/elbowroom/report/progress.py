"""How work goes, for people: of a run what is about to be done, then a bar, or lines where there is no terminal. On
stderr."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from elbowroom.report.flags import as_flags
from elbowroom.runs.runner import Start
from elbowroom.runs.settings import FLAGS
from elbowroom.runs.stored import stored_settings
from elbowroom.runs.summary import Tally, cap_in_words

_EVERY = 10.0  # seconds between lines
_SILENCE = 60.0  # seconds without a part after which a line says that the work goes on
_TICK = 1.0  # seconds between looks at the clock


class Display(Protocol):
    """A `Watch` that may have something to clear away at the end."""

    def begin(self, start: Start) -> None: ...

    def advance(self, tally: Tally) -> None: ...

    def end(self) -> None: ...


def display(quiet: bool) -> Display:
    """Warnings alone where `quiet`; else a bar, or lines where stderr is no terminal."""
    if quiet:
        return _Quiet()
    return _Bar() if sys.stderr.isatty() else _Lines()


def introduction(start: Start) -> list[str]:
    """What is about to be done, a line each."""
    run, plan = start.run, start.run.plan
    settings, net = stored_settings(plan) or {}, run.network
    lines = [f"network: {net!r}", *(f"note: {note}" for note in net.about.notes)]
    chosen = f"{plan.inputs:,} of its {start.data.count:,} inputs" if plan.inputs < start.data.count else "all inputs"
    lines += [f"data: {start.data!r}; {chosen}", *(note for note in plan.notes if note.startswith("note: "))]
    if start.right is not None:
        lines.append(
            f"the network gets {start.right:,} of these {plan.inputs:,} right ({start.right / plan.inputs:.1%})"
        )
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
    before = f"; {start.done:,} inputs are done already" if start.done else ""
    parts = "1 part" if run.n_parts == 1 else f"{run.n_parts:,} parts"
    lines.append(f"into {run.folder}: {parts} of up to {plan.part_rows:,} inputs{before}")
    return lines


def _by_whom(start: Start) -> str:
    threads = f"{start.threads} thread{'s' * (start.threads != 1)}" if start.threads else ""
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


class _Pace:
    """The rate since the start, and the time left at that rate."""

    def __init__(self, start: Start) -> None:
        self.total, self._before, self._started = start.run.plan.inputs, start.done, time.monotonic()

    def words(self, tally: Tally) -> str:
        done = tally.count - self._before
        rate = done / max(1e-9, time.monotonic() - self._started)
        ratio = "" if tally.mean_ratio is None else f", mean ratio {tally.mean_ratio:.3f}"
        left = in_words((self.total - tally.count) / rate) if done else "unknown time"
        return f"{rate:.3g} inputs/s{ratio}, {left} left"


class _Clock:
    """How long the parts in work have taken so far. `tick` is called every second or so, by a thread of its own."""

    def __init__(self, start: Start, tick: Callable[[], None]) -> None:
        self._each = "input" if min(start.run.plan.part_rows, start.run.plan.inputs) == 1 else "part"
        self._which, self._since = "first", time.monotonic()
        self._tick, self._over = tick, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(_TICK):
            self._tick()

    @property
    def waited(self) -> float:
        return time.monotonic() - self._since

    def words(self) -> str:
        return f"{self._which} {self._each} in work, {in_words(self.waited)} so far"

    def advance(self) -> None:
        self._which, self._since = "next", time.monotonic()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


class _Lines(_Quiet):
    def begin(self, start: Start) -> None:
        print("\n".join(introduction(start)), file=sys.stderr, flush=True)
        super().begin(start)
        self._pace, self._last = _Pace(start), time.monotonic()
        self._done, self._told = start.done, 0.0
        self._clock = _Clock(start, self._tick)

    def _tick(self) -> None:
        waited = self._clock.waited
        if waited - self._told >= _SILENCE:
            self._told = waited
            print(f"{self._done:,} of {self._pace.total:,} inputs, {self._clock.words()}", file=sys.stderr, flush=True)

    def advance(self, tally: Tally) -> None:
        self._clock.advance()
        self._done, self._told = tally.count, 0.0
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            done = f"{tally.count:,} of {self._pace.total:,} inputs"
            print(f"{done}, {self._pace.words(tally)}", file=sys.stderr, flush=True)

    def end(self) -> None:
        if hasattr(self, "_clock"):
            self._clock.stop()


class _Bar(_Quiet):
    def begin(self, start: Start) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        print("\n".join(introduction(start)), file=sys.stderr, flush=True)
        super().begin(start)
        self._pace = _Pace(start)
        self._bar: Any = Progress(
            SpinnerColumn(), BarColumn(30), MofNCompleteColumn(), TextColumn("{task.description}"),
            console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=start.run.plan.inputs, completed=start.done)
        self._bar.start()
        self._words = ""
        self._clock = _Clock(start, self._tick)

    def _tick(self) -> None:
        # The rate says enough where parts come quickly.
        if not self._words or self._clock.waited >= _SILENCE:
            self._bar.update(self._task, description=f"{self._words}{self._clock.words()}")

    def advance(self, tally: Tally) -> None:
        self._clock.advance()
        self._words = f"{self._pace.words(tally)}; "
        self._bar.update(self._task, completed=tally.count, description=self._pace.words(tally))

    def end(self) -> None:
        if hasattr(self, "_clock"):
            self._clock.stop()
            self._bar.stop()


@contextmanager
def proving(inputs: int) -> Iterator[Callable[[int], None] | None]:
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


@contextmanager
def training(epochs: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, or a line every now and then where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("epoch"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    last = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("", total=epochs)

        def show(done: int) -> None:
            nonlocal last
            bar.update(task, completed=done)
            if not (quiet or console.is_terminal) and time.monotonic() - last > _EVERY:
                last = time.monotonic()
                print(f"epoch {done} of {epochs}", file=sys.stderr, flush=True)

        yield show


def in_words(seconds: float) -> str:
    """A duration for people."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
