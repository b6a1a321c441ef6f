"""A pool of workers that may die: each part is done once, and retried where its worker died under it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from elbowroom.certificates.result import Certificates
from elbowroom.errors import ElbowroomError
from elbowroom.network.graph import Network
from elbowroom.network.names import counted
from elbowroom.runs.engines.transport import unpacked
from elbowroom.runs.engines.worker import Part

TRIES = 3  # of a part whose worker dies, and of workers that die before they are ready
_KEPT = "Finished parts are kept: mend this, and go on with `resume=True`"


@dataclass(frozen=True)
class Event:
    """Of a worker: `kind` "ready" (it waits for a part), "done" (`content`: the certificates, packed; it waits for
    the next part), "failed" (the message of an error made on purpose), "broken" (the traceback of another one) or
    "died" (in which way, in words)."""

    worker: Hashable
    kind: str
    content: Any = None


class Pool(Protocol):
    """Workers, wherever they run."""

    def start(self) -> Hashable:
        """Begins to start a worker, and names it."""

    def submit(self, worker: Hashable, part: Part) -> None:
        """Hands a part to a worker that waits for one."""

    def events(self) -> list[Event]:
        """Waits until there are any."""

    def stop(self) -> None:
        """Ends all workers at once."""


def distribute(
    pool: Pool, count: int, net: Network, work: Iterable[Part]
) -> Generator[tuple[int, Certificates], None, None]:
    """Has `count` workers compute the parts, one each at a time; a worker that dies is replaced.

    A part is taken when a worker waits for it. What makes the run fail lets the others finish what they have begun.
    """
    try:
        yield from _Scheduler(pool, count, net, work).run()
    finally:
        pool.stop()


class _Scheduler:
    def __init__(self, pool: Pool, count: int, net: Network, work: Iterable[Part]) -> None:
        self._pool, self._count, self._net, self._work = pool, count, net, iter(work)
        self._retries: deque[Part] = deque()
        self._tries: Counter[int] = Counter()
        self._busy: dict[Hashable, Part] = {}
        self._idle: list[Hashable] = []
        self._starting: set[Hashable] = set()
        self._failed_starts = 0
        self._over = False  # there are no more parts
        self._failure: Exception | None = None

    def run(self) -> Generator[tuple[int, Certificates], None, None]:
        while True:
            self._dispatch()
            if not self._busy and (self._failure or (self._over and not self._retries)):
                break
            found = [done for event in self._pool.events() if (done := self._handle(event))]
            self._dispatch()  # before the results are written, so that nobody waits for that
            for part, content in found:
                yield part.number, unpacked(content, self._net)
        if self._failure:
            raise self._failure

    def _dispatch(self) -> None:
        while self._idle and (part := self._next()):
            worker = self._idle.pop()
            self._busy[worker] = part
            self._pool.submit(worker, part)
        wanted = 0 if self._failure else self._count if not self._over else len(self._retries)
        for _ in range(wanted - len(self._busy) - len(self._idle) - len(self._starting)):
            self._starting.add(self._pool.start())

    def _next(self) -> Part | None:
        if self._failure:
            return None
        if self._retries:
            return self._retries.popleft()
        part = None if self._over else next(self._work, None)
        self._over = part is None
        return part

    def _handle(self, event: Event) -> tuple[Part, Any] | None:
        """Takes note; the part and what was found, where one is done."""
        worker, part = event.worker, self._busy.pop(event.worker, None)
        if event.kind in ("ready", "done"):
            self._failed_starts = 0  # something works
        if event.kind == "ready":
            self._starting.remove(worker)
            self._idle.append(worker)
        elif event.kind == "done":
            assert part is not None
            self._idle.append(worker)
            return part, event.content
        elif event.kind == "died":
            self._retry(worker, part, event.content)
        else:
            self._starting.discard(worker)
            kind = ElbowroomError if event.kind == "failed" else RuntimeError
            self._failure = self._failure or kind(event.content)
        return None

    def _retry(self, worker: Hashable, part: Part | None, how: str) -> None:
        if worker in self._starting:
            self._starting.remove(worker)
            self._failed_starts += 1
            if self._failed_starts == TRIES:
                self._failure = self._failure or ElbowroomError(
                    f"{TRIES} workers ended before they were ready, the last one {how}. {_KEPT}"
                )
        elif part is None:
            self._idle = [other for other in self._idle if other != worker]
        else:
            self._tries[part.number] += 1
            if self._tries[part.number] < TRIES:
                self._retries.append(part)
                return
            self._failure = self._failure or ElbowroomError(
                f"part {part.number} ({counted(len(part), 'input')}, the first of them number {part.index[0]}) ended "
                f"{TRIES} workers, the last one {how}. {_KEPT}"
            )
