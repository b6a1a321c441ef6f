"""Work under way, for people: a bar on a terminal, a line that changes in a notebook, else lines now and then; on
stderr. The one display of progress: whatever takes long is a `Meter`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

_EVERY = 10.0  # seconds between lines
_SILENCE = 60.0  # seconds without news after which a line says that the work goes on
_TICK = 1.0  # seconds between looks at the clock
_SOON = 3.0  # seconds of work after which it is worth showing, where nobody asked
_WIDTH = 100  # characters of a line that changes
_stages: list[list[str]] = []  # of what this process is doing, in words; the last is shown


@contextmanager
def doing(words: str) -> Iterator[None]:
    """While this goes on, whoever shows that work goes on says so. (Of another process, nobody knows.)"""
    own = [words]
    _stages.append(own)
    try:
        yield
    finally:  # other threads may have come and gone meanwhile
        _stages[:] = [stage for stage in _stages if stage is not own]


class Meter:
    """Work that is counted up to `total` of what `unit` calls it (None: not counted), `done` of it already.

    A bar where stderr is a terminal; in a notebook a line that changes; else a line every now and then. `title`: what
    is done, in front. `step`: what comes in one piece, by default the unit. `late`: nothing is shown of what is soon
    done. A thread of its own tells how long a piece has taken, if that is long.
    """

    def __init__(
        self, total: int | None, unit: str = "input", *, title: str = "", step: str | None = None, done: int = 0,
        quiet: bool = False, late: bool = False,
    ) -> None:  # fmt: skip
        self._total, self._unit, self._title, self._step = total, f"{unit}s", title, step or unit
        self._before = self._done = done
        self._started = self._since = self._last = time.monotonic()
        self._told, self._words, self._quiet = 0.0, "", quiet
        self._bar: Any = None
        self._shown, self._changing = not late, in_notebook() and not sys.stderr.isatty()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if not quiet:
            if self._shown and sys.stderr.isatty():
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
        if not self._shown and time.monotonic() - self._started >= _SOON:
            self._shown = True
            if sys.stderr.isatty():
                self._open_bar()
        if self._bar is not None:
            # The rate says enough where pieces come quickly.
            if not self._words or waited >= _SILENCE:
                self._bar.update(self._task, description=f"{self._words}{self._in_work(waited)}")
        elif self._changing and self._shown:
            self._print(
                f"{self._words}{self._in_work(waited)}" if not self._words or waited >= _SILENCE else self._words
            )
        elif self._shown and waited - self._told >= _SILENCE:
            self._told = waited
            self._print(self._in_work(waited))

    def _in_work(self, waited: float) -> str:
        which = "" if self._total is None else f"{'next' if self._done > self._before else 'first'} {self._step} "
        now = "".join(f" ({words})" for (words,) in _stages[-1:])
        return f"{which}in work{now}, {in_words(waited)} so far"

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
        elif self._changing:
            self._words = f"{pace}; "
        elif self._shown and now - self._last >= _EVERY:
            self._last = now
            self._print(pace)

    def _print(self, words: str) -> None:
        title = f"{self._title}: " if self._title else ""
        count = "" if self._total is None else f"{self._done:,} of {self._total:,} {self._unit}, "
        text = f"{title}{count}{words}"
        if self._changing:
            print(f"\r{text.removesuffix('; ')[:_WIDTH]:{_WIDTH}}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """No more of it; a bar is cleared away."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            self._bar.stop()
        elif self._changing and self._shown and not self._quiet:
            print(f"\r{'':{_WIDTH}}\r", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


def in_notebook() -> bool:
    """Whether this runs in a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def watched(progress: bool | None, total: int) -> Meter:
    """A meter of inputs, as somebody asks for it; None: on a terminal or in a notebook, of what takes longer than a
    moment."""
    someone = sys.stderr.isatty() or in_notebook()
    return Meter(total, step="batch", quiet=not (someone if progress is None else progress), late=progress is None)


def in_words(seconds: float) -> str:
    """A duration for people."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


__all__ = ["Meter", "doing", "in_notebook", "in_words", "watched"]
