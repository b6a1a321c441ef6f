"""Parts shared out to workers that die, fail or come late, played by a crew that does as it is told."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from elbowroom.errors import ElbowroomError
from elbowroom.runs.engines.crew import TRIES, News, share_out
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
        self.hired, self.given, self.most, self.dismissed, self._next = 0, [], 0, False, []

    def hire(self) -> int:
        self.hired += 1
        self._next.append(News(self.hired, self.starts.pop(0) if self.starts else "ready", "at its start"))
        return self.hired

    def give(self, worker: int, part: Part) -> None:
        kind = self.plot.pop(0) if self.plot else "done"
        self.given.append(part.number)
        self._next.append(News(worker, kind, FOUND if kind == "done" else f"as planned: {kind}"))
        self.most = max(self.most, sum(news.kind != "ready" for news in self._next))

    def news(self) -> list[News]:
        return [self._next.pop(0)]  # never called where nobody has anything to say

    def dismiss(self) -> None:
        self.dismissed = True


def done(crew: Actors, count: int, work: list[Part]) -> Any:
    numbers = [number for number, _ in share_out(crew, count, NET, work)]
    assert crew.dismissed
    return numbers


@pytest.mark.parametrize("count", [1, 3, 20])
def test_each_part_once(count: int) -> None:
    crew = Actors()
    assert sorted(done(crew, count, parts(9))) == list(range(9))
    assert crew.hired == count and crew.most <= count


def test_no_part_is_taken_before_there_is_use_for_it() -> None:
    taken = []

    def work() -> Iterator[Part]:
        for part in parts(9):
            taken.append(part.number)
            yield part

    crew = Actors()
    for k, _ in enumerate(share_out(crew, 2, NET, work()), 1):
        assert len(taken) <= k + 2
    assert done(Actors(), 2, []) == []


@pytest.mark.parametrize("deaths", [1, 2, 5])
def test_a_part_whose_worker_died_is_done_again(deaths: int) -> None:
    """Each death is that of another part, but for the last two of five, which are of the same."""
    crew = Actors(*["died"] * deaths)
    assert sorted(done(crew, 4, parts(9))) == list(range(9))
    assert crew.hired == 4 + deaths and len(crew.given) == 9 + deaths


def test_deaths_after_the_last_part_was_taken() -> None:
    crew = Actors("done", "done", "died")
    assert sorted(done(crew, 1, parts(3))) == [0, 1, 2] and crew.hired == 2


def test_a_part_that_ends_its_workers() -> None:
    """The others finish what they have begun, and are written, before the end is told."""
    crew = Actors(*["died"] * TRIES, "done")
    found = []
    with pytest.raises(ElbowroomError, match=r"part 0 \(2 inputs, the first of them number 0\) ended 3 workers, the "
                       r"last one as planned: died. Finished parts are kept"):  # fmt: skip
        found.extend(n for n, _ in share_out(crew, 1, NET, parts(9)))
    assert not found and crew.given == [0] * TRIES and crew.dismissed
    crew = Actors("failed", "done", "done")
    with pytest.raises(ElbowroomError, match="as planned: failed"):
        found.extend(n for n, _ in share_out(crew, 3, NET, parts(9)))
    assert sorted(found) == [1, 2] and crew.dismissed


@pytest.mark.parametrize("plot", [{"starts": ["ready", "failed"]}, {"plot": ["done", "failed"]}])
def test_a_worker_that_leaves_after_its_failure(plot: dict[str, list[str]]) -> None:
    """Its death is no news, while another one is still at work."""
    crew = Actors(*plot.get("plot", ()), starts=plot.get("starts", ()))
    heard = crew.news

    def news() -> list[News]:
        found = heard()
        return found + [News(n.worker, "died", "at its end") for n in found if n.kind == "failed"]

    crew.news = news
    with pytest.raises(ElbowroomError, match=r"at its start|as planned: failed"):
        done(crew, 2, parts(4))


def test_a_worker_that_dies_while_it_waits() -> None:
    crew = Actors()
    heard = crew.news

    def news() -> list[News]:
        found = heard()
        if found == [News(2, "ready", "at its start")]:
            crew._next.insert(0, News(2, "died", "while it waited"))
        return found

    crew.news = news
    assert done(crew, 2, parts(1)) == [0] and crew.given == [0] and crew.hired == 2


def test_faults_of_the_program_keep_their_traceback() -> None:
    with pytest.raises(RuntimeError, match="as planned: broken"):
        done(Actors("broken"), 2, parts(4))


def test_workers_that_never_begin() -> None:
    with pytest.raises(ElbowroomError, match="3 workers ended before they were ready, the last one at its start"):
        done(Actors(starts=["died"] * TRIES), 2, parts(4))
    crew = Actors(starts=["died", "ready", "died", "died"])
    assert sorted(done(crew, 2, parts(4))) == [0, 1, 2, 3]
    crew = Actors(starts=["ready", *["died"] * 9])  # one works, and the others' starts fail now and then
    assert sorted(done(crew, 2, parts(20))) == list(range(20)) and crew.hired > 2 + TRIES
    with pytest.raises(ElbowroomError, match="at its start"):
        done(Actors(starts=["failed"]), 1, parts(4))


def test_all_are_dismissed_when_the_run_ends_early() -> None:
    crew = Actors()
    work = share_out(crew, 2, NET, parts(9))
    next(work)
    work.close()
    assert crew.dismissed


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
