"""Parts shared out to workers that die, fail or come late, played by a pool that does as it is told."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from elbowroom.errors import ElbowroomError
from elbowroom.runs.engines.pool import TRIES, Event, distribute
from elbowroom.runs.engines.transport import answer, network_bytes, network_of, packed, unpacked
from elbowroom.runs.engines.worker import Part, Worker
from elbowroom.runs.settings import Settings
from runs.small import assert_same_rows, network, points

NET = network()
WORKER = Worker(NET, Settings(device="cpu", bounds="simple", solver_options={"gradients": 1}))
FOUND = packed(WORKER.compute(Part(0, np.arange(2), points(2), None, {}, {})))


def parts(count: int) -> list[Part]:
    return [Part(k, np.arange(2) + 2 * k, points(2), None, {}, {}) for k in range(count)]


class Actors:
    """Workers by number. `plot`: what becomes of the next things asked of them, in order: a part ("done" where nothing
    else is said), or a start ("ready")."""

    def __init__(self, *plot: str, starts: list[str] | tuple[()] = ()) -> None:
        self.plot, self.starts = list(plot), list(starts)
        self.started, self.given, self.most, self.stopped, self._next = 0, [], 0, False, []

    def start(self) -> int:
        self.started += 1
        self._next.append(Event(self.started, self.starts.pop(0) if self.starts else "ready", "at its start"))
        return self.started

    def submit(self, worker: int, part: Part) -> None:
        kind = self.plot.pop(0) if self.plot else "done"
        self.given.append(part.number)
        self._next.append(Event(worker, kind, FOUND if kind == "done" else f"as planned: {kind}"))
        self.most = max(self.most, sum(event.kind != "ready" for event in self._next))

    def events(self) -> list[Event]:
        return [self._next.pop(0)]  # never called where nobody has anything to say

    def stop(self) -> None:
        self.stopped = True


def done(pool: Actors, count: int, work: list[Part]) -> Any:
    numbers = [number for number, _ in distribute(pool, count, NET, work)]
    assert pool.stopped
    return numbers


@pytest.mark.parametrize("count", [1, 3, 20])
def test_each_part_once(count: int) -> None:
    pool = Actors()
    assert sorted(done(pool, count, parts(9))) == list(range(9))
    assert pool.started == count and pool.most <= count


def test_no_part_is_taken_before_there_is_use_for_it() -> None:
    taken = []

    def work() -> Iterator[Part]:
        for part in parts(9):
            taken.append(part.number)
            yield part

    pool = Actors()
    for k, _ in enumerate(distribute(pool, 2, NET, work()), 1):
        assert len(taken) <= k + 2
    assert done(Actors(), 2, []) == []


@pytest.mark.parametrize("deaths", [1, 2, 5])
def test_a_part_whose_worker_died_is_done_again(deaths: int) -> None:
    """Each death is that of another part, but for the last two of five, which are of the same."""
    pool = Actors(*["died"] * deaths)
    assert sorted(done(pool, 4, parts(9))) == list(range(9))
    assert pool.started == 4 + deaths and len(pool.given) == 9 + deaths


def test_deaths_after_the_last_part_was_taken() -> None:
    pool = Actors("done", "done", "died")
    assert sorted(done(pool, 1, parts(3))) == [0, 1, 2] and pool.started == 2


def test_a_part_that_ends_its_workers() -> None:
    """The others finish what they have begun, and are written, before the end is told."""
    pool = Actors(*["died"] * TRIES, "done")
    found = []
    with pytest.raises(ElbowroomError, match=r"part 0 \(2 inputs, the first of them number 0\) ended 3 workers, the "
                       r"last one as planned: died. Finished parts are kept"):  # fmt: skip
        found.extend(n for n, _ in distribute(pool, 1, NET, parts(9)))
    assert not found and pool.given == [0] * TRIES and pool.stopped
    pool = Actors("failed", "done", "done")
    with pytest.raises(ElbowroomError, match="as planned: failed"):
        found.extend(n for n, _ in distribute(pool, 3, NET, parts(9)))
    assert sorted(found) == [1, 2] and pool.stopped


@pytest.mark.parametrize("plot", [{"starts": ["ready", "failed"]}, {"plot": ["done", "failed"]}])
def test_a_worker_that_leaves_after_its_failure(plot: dict[str, list[str]]) -> None:
    """Its death is no event of note, while another one is still at work."""
    pool = Actors(*plot.get("plot", ()), starts=plot.get("starts", ()))
    plain = pool.events

    def events() -> list[Event]:
        found = plain()
        return found + [Event(n.worker, "died", "at its end") for n in found if n.kind == "failed"]

    pool.events = events
    with pytest.raises(ElbowroomError, match=r"at its start|as planned: failed"):
        done(pool, 2, parts(4))


def test_a_worker_that_dies_while_it_waits() -> None:
    pool = Actors()
    plain = pool.events

    def events() -> list[Event]:
        found = plain()
        if found == [Event(2, "ready", "at its start")]:
            pool._next.insert(0, Event(2, "died", "while it waited"))
        return found

    pool.events = events
    assert done(pool, 2, parts(1)) == [0] and pool.given == [0] and pool.started == 2


def test_faults_of_the_program_keep_their_traceback() -> None:
    with pytest.raises(RuntimeError, match="as planned: broken"):
        done(Actors("broken"), 2, parts(4))


def test_workers_that_never_begin() -> None:
    with pytest.raises(ElbowroomError, match="3 workers ended before they were ready, the last one at its start"):
        done(Actors(starts=["died"] * TRIES), 2, parts(4))
    pool = Actors(starts=["died", "ready", "died", "died"])
    assert sorted(done(pool, 2, parts(4))) == [0, 1, 2, 3]
    pool = Actors(starts=["ready", *["died"] * 9])  # one works, and the others' starts fail now and then
    assert sorted(done(pool, 2, parts(20))) == list(range(20)) and pool.started > 2 + TRIES
    with pytest.raises(ElbowroomError, match="at its start"):
        done(Actors(starts=["failed"]), 1, parts(4))


def test_all_are_dismissed_when_the_run_ends_early() -> None:
    pool = Actors()
    work = distribute(pool, 2, NET, parts(9))
    next(work)
    work.close()
    assert pool.stopped


def test_what_travels() -> None:
    net = network_of(network_bytes(NET))
    work, own = (Part(4, np.arange(2), points(2), None, {}, {}) for _ in range(2))
    for array in (work.x, work.index):
        array.flags.writeable = False  # as Ray gives them
    kind, content = answer(Worker(net, WORKER.settings), vars(work))
    assert kind == "done" and not any(hasattr(value, "requires_grad") for value in content.values())
    assert_same_rows(unpacked(content, NET), WORKER.compute(own))
    assert unpacked(content, NET).network is NET
    assert answer(WORKER, {**vars(work), "x": np.zeros((2, 5))})[0] == "failed"
    kind, text = answer(WORKER, {**vars(work), "x": None})
    assert kind == "broken" and "Traceback" in text
