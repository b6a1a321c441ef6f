"""Parts shared out to workers that may die: each part is done once, tried again where its worker died under it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from elbowroom.certificates.result import Certificates
from elbowroom.errors import ElbowroomError
from elbowroom.network.graph import Network
from elbowroom.runs.engines.transport import unpacked
from elbowroom.runs.engines.worker import Part

TRIES = 3  # of a part whose worker dies, and of workers that die before they are ready
_KEPT = "Finished parts are kept: mend this, and go on with `resume=True`"


@dataclass(frozen=True)
class News:
    """Of a worker: `kind` "ready" (it waits for a part), "done" (`content`: the certificates, packed; it waits for
    the next part), "failed" (the message of an error made on purpose), "broken" (the traceback of another one) or
    "died" (in which way, in words)."""

    worker: Hashable
    kind: str
    content: Any = None


class Crew(Protocol):
    """Workers, wherever they run."""

    def hire(self) -> Hashable:
        """Begins to start a worker."""

    def give(self, worker: Hashable, part: Part) -> None:
        """Hands a part to a worker that waits for one."""

    def news(self) -> list[News]:
        """Waits until there are any."""

    def dismiss(self) -> None:
        """Ends all workers at once."""


def share_out(
    crew: Crew, count: int, net: Network, work: Iterable[Part]
) -> Generator[tuple[int, Certificates], None, None]:
    """Has `count` workers compute the parts, one each at a time; a worker that dies is replaced.

    A part is taken when a worker waits for it. What makes the run fail lets the others finish what they have begun.
    """
    try:
        yield from _Foreman(crew, count, net, work).run()
    finally:
        crew.dismiss()


class _Foreman:
    def __init__(self, crew: Crew, count: int, net: Network, work: Iterable[Part]) -> None:
        self._crew, self._count, self._net, self._work = crew, count, net, iter(work)
        self._again: deque[Part] = deque()
        self._tries: Counter[int] = Counter()
        self._busy: dict[Hashable, Part] = {}
        self._idle: list[Hashable] = []
        self._starting: set[Hashable] = set()
        self._false_starts = 0
        self._over = False  # there are no more parts
        self._failure: Exception | None = None

    def run(self) -> Generator[tuple[int, Certificates], None, None]:
        while True:
            self._hand_out()
            if not self._busy and (self._failure or (self._over and not self._again)):
                break
            found = [done for news in self._crew.news() if (done := self._heed(news))]
            self._hand_out()  # before the results are written, so that nobody waits for that
            for part, content in found:
                yield part.number, unpacked(content, self._net)
        if self._failure:
            raise self._failure

    def _hand_out(self) -> None:
        while self._idle and (part := self._next()):
            worker = self._idle.pop()
            self._busy[worker] = part
            self._crew.give(worker, part)
        wanted = 0 if self._failure else self._count if not self._over else len(self._again)
        for _ in range(wanted - len(self._busy) - len(self._idle) - len(self._starting)):
            self._starting.add(self._crew.hire())

    def _next(self) -> Part | None:
        if self._failure:
            return None
        if self._again:
            return self._again.popleft()
        part = None if self._over else next(self._work, None)
        self._over = part is None
        return part

    def _heed(self, news: News) -> tuple[Part, Any] | None:
        """Takes note; the part and what was found, where one is done."""
        worker, part = news.worker, self._busy.pop(news.worker, None)
        if news.kind in ("ready", "done"):
            self._false_starts = 0  # something works
        if news.kind == "ready":
            self._starting.remove(worker)
            self._idle.append(worker)
        elif news.kind == "done":
            assert part is not None
            self._idle.append(worker)
            return part, news.content
        elif news.kind == "died":
            self._mourn(worker, part, news.content)
        else:
            self._starting.discard(worker)
            kind = ElbowroomError if news.kind == "failed" else RuntimeError
            self._failure = self._failure or kind(news.content)
        return None

    def _mourn(self, worker: Hashable, part: Part | None, how: str) -> None:
        if worker in self._starting:
            self._starting.remove(worker)
            self._false_starts += 1
            if self._false_starts == TRIES:
                self._failure = self._failure or ElbowroomError(
                    f"{TRIES} workers ended before they were ready, the last one {how}. {_KEPT}"
                )
        elif part is None:
            self._idle = [other for other in self._idle if other != worker]
        else:
            self._tries[part.number] += 1
            if self._tries[part.number] < TRIES:
                self._again.append(part)
                return
            self._failure = self._failure or ElbowroomError(
                f"part {part.number} ({len(part)} inputs, the first of them number {part.index[0]}) ended {TRIES} "
                f"workers, the last one {how}. {_KEPT}"
            )
