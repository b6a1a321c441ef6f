"""How work goes, for people: of a run what is about to be done, then a bar, or lines where there is no terminal. On
stderr. The one display of progress: whatever takes long is a `Meter`."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Protocol, Self

from elbowroom.report.flags import as_flags
from elbowroom.runs.runner import Start
from elbowroom.runs.settings import FLAGS
from elbowroom.runs.stored import stored_settings
from elbowroom.runs.summary import Tally, cap_in_words

_EVERY = 10.0  # seconds between lines
_SILENCE = 60.0  # seconds without news after which a line says that the work goes on
_TICK = 1.0  # seconds between looks at the clock


class Meter:
    """Work that is counted up to `total` of what `unit` calls it (None: not counted), `done` of it already.

    A bar where stderr is a terminal; else a line every now and then. `title`: what is done, in front. `step`: what
    comes in one piece, by default the unit. A thread of its own tells how long a piece has taken, if that is long.
    """

    def __init__(
        self, total: int | None, unit: str = "input", *, title: str = "", step: str | None = None, done: int = 0,
        quiet: bool = False,
    ) -> None:  # fmt: skip
        self._total, self._unit, self._title, self._step = total, f"{unit}s", title, step or unit
        self._before = self._done = done
        self._started = self._since = self._last = time.monotonic()
        self._told, self._words, self._quiet = 0.0, "", quiet
        self._bar: Any = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if not quiet:
            if sys.stderr.isatty():
                self._open_bar()
            self._thread = threading.Thread(target=self._watch_the_clock, daemon=True)
            self._thread.start()

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        counted = (BarColumn(30), MofNCompleteColumn()) if self._total is not None else ()
        titled = (TextColumn(self._title),) if self._title else ()
        columns = (SpinnerColumn(), *titled, *counted, TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=self._total, completed=self._done)
        self._bar.start()

    def _watch_the_clock(self) -> None:
        while not self._over.wait(_TICK):
            self.tick()

    def tick(self) -> None:
        """A look at the clock: where nothing happened for long, says that the work goes on."""
        waited = time.monotonic() - self._since
        if self._bar is not None:
            # The rate says enough where pieces come quickly.
            if not self._words or waited >= _SILENCE:
                self._bar.update(self._task, description=f"{self._words}{self._in_work(waited)}")
        elif waited - self._told >= _SILENCE:
            self._told = waited
            self._print(self._in_work(waited))

    def _in_work(self, waited: float) -> str:
        which = "" if self._total is None else f"{'next' if self._done > self._before else 'first'} {self._step} "
        return f"{which}in work, {in_words(waited)} so far"

    def add(self, more: int) -> None:
        """So many more are done."""
        self.advance(self._done + more)

    def advance(self, done: int, news: str = "") -> None:
        """So many are done in all. `news`: what else there is to say, in a few words."""
        if self._quiet:
            return
        now = time.monotonic()
        self._done, self._since, self._told = done, now, 0.0
        rate = (done - self._before) / max(1e-9, now - self._started)
        left = in_words(((self._total or 0) - done) / rate) if rate else "unknown time"
        pace = f"{rate:.3g} {self._unit}/s{f', {news}' if news else ''}, {left} left"
        if self._bar is not None:
            self._words = f"{pace}; "
            self._bar.update(self._task, completed=done, description=pace)
        elif now - self._last >= _EVERY:
            self._last = now
            self._print(pace)

    def _print(self, words: str) -> None:
        title = f"{self._title}: " if self._title else ""
        count = "" if self._total is None else f"{self._done:,} of {self._total:,} {self._unit}, "
        print(f"{title}{count}{words}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """No more of it; a bar is cleared away."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            self._bar.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


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


def in_words(seconds: float) -> str:
    """A duration for people."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
