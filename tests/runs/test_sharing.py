"""How work is shared out on the cores: decisions, by the work there is."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import elbowroom as er
from elbowroom.network.graph import Network
from elbowroom.network.work import Work
from elbowroom.runs import runner, sharing
from elbowroom.runs.runner import run_dataset
from elbowroom.runs.settings import Settings
from elbowroom.runs.sharing import Share, share, shared
from elbowroom.search.memory import Budget
from runs.small import dataset, network, points

MUCH = 1000  # workers that there is memory for
NARROW, DEEP, WIDE = (784, 256, 256, 10), (784, 256, 256, 256, 256, 10), (784, 1024, 1024, 1024, 10)
HUGE = (784, 1500, 1500, 1500, 10)


@functools.cache
def work(*sizes: int) -> Work:
    return Work.of(network(sizes=sizes))


def test_the_model_of_the_work() -> None:
    """That of docs/scaling.md: what its tables say in Mflop per evaluation and in milliseconds per input."""
    for sizes, operations, seconds in (
        ((784, 50, 50, 50, 10), 13.7e6, 0.026),
        ((784, 200, 200, 200, 10), 264e6, 0.06),
        ((784, 400, 400, 400, 10), 1340e6, 0.127),
        ((3072, 100, 100, 100, 10), 199e6, 0.11),
    ):
        assert 0.99 < work(*sizes).operations / operations < 1.01 and 0.5 < work(*sizes).seconds / seconds < 1.6
    assert work(2, 12, 12, 3).seconds < 0.002
    net = network(sizes=DEEP)
    assert Work.of(net, hidden=False).operations == 2 * 9 * (784 * 256 + 3 * 256**2 + 2560)
    assert Work.of(net, hidden=False).seconds < 0.3 * Work.of(net).seconds
    conv = er.load(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)), input_shape=(1, 8, 8))
    operations = 2 * 2 * (144 * 9 + 144 * 3)
    assert Work.of(conv) == Work(operations, 2 * (64 + 144), 144, operations)


@pytest.mark.parametrize(
    ("sizes", "inputs", "cores", "found"),
    [
        (NARROW, 200, 2, Share(2, 1)),  # small, and enough of them: processes of one thread
        (NARROW, 10_000, 64, Share(64, 1)),
        (NARROW, 20, 2, Share(1, 1)),  # what they take is over before others are ready
        (DEEP, 8, 2, Share(1, 1)),
        (WIDE, 4, 16, Share(1, 1)),
        (WIDE, 32, 16, Share(5, 1)),
        (HUGE, 4, 16, Share(1, 16)),  # very large: threads
        (HUGE, 40, 20, Share(10, 2)),
        ((2, 12, 12, 3), 4000, 16, Share(1, 1)),
        (DEEP, 10_000, 1, Share(1, 1)),
        (DEEP, 0, 16, Share(1, 1)),
    ],
)  # fmt: skip
def test_which_share(sizes: tuple[int, ...], inputs: int, cores: int, found: Share) -> None:
    assert share(work(*sizes), inputs, cores, MUCH) == found


def test_starting_workers_never_costs_a_quarter_more() -> None:
    for sizes in (NARROW, DEEP, WIDE, HUGE, (2, 12, 3)):
        for inputs in (1, 10, 100, 1000, 10_000):
            for cores in (1, 2, 16, 256):
                found = share(work(*sizes), inputs, cores, MUCH)
                alone = sharing._START + inputs * work(*sizes).seconds
                assert 1 <= found.workers * found.threads <= cores
                assert found.workers == 1 or found.workers * sharing._START <= 0.25 * alone
                assert found.workers == 1 or inputs >= 4 * found.workers


def test_no_more_workers_than_memory_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share(work(*NARROW), 10_000, 64, 5) == Share(5, 1) and share(work(*NARROW), 10_000, 64, 0) == Share(1, 1)
    monkeypatch.setattr(sharing, "cores_here", lambda: 64)
    monkeypatch.setattr("elbowroom.search.memory.free_bytes", lambda device: 12 << 30)
    net, asked = network(sizes=NARROW), Settings(device="cpu")
    assert shared(asked, net, 10_000).workers == 6
    assert shared(dataclasses.replace(asked, memory="2GiB"), net, 10_000).workers == 3
    monkeypatch.setattr(Budget, "batch", lambda self, net, device: min(100, self.total >> 31))
    assert shared(asked, net, 10_000).workers == 3  # large inputs: three fit at a time


def test_what_is_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "cores_here", lambda: 8)
    monkeypatch.setattr(sharing, "_fit", lambda *given: MUCH)
    net = network(sizes=NARROW)

    def found(**given: Any) -> tuple[int | None, int | None]:
        settings = shared(Settings(**{"device": "cpu", **given}), net, 10_000)
        return settings.workers, settings.threads

    assert found() == (8, 1) and found(threads=2) == (4, 2)
    assert found(workers=3) == (3, 1) and found(workers=1, threads=5) == (1, 5)
    assert found(engine="ray") == (None, None)
    monkeypatch.setattr(sharing, "device_of", lambda settings: torch.device("cuda"))
    assert found() == (None, None)


class Watched:
    def begin(self, start: runner.Start) -> None:
        self.start = start

    def advance(self, tally: object) -> None:
        self.threads = torch.get_num_threads()


def run(
    out: Path, net: Network, monkeypatch: pytest.MonkeyPatch, workers: int | None = None, **more: Any
) -> tuple[Watched, str]:
    """What the run is told at its start, and which engine has computed it."""
    used = []

    def engine(given: Settings) -> Any:
        used.append("local" if given.workers == 1 else "processes")
        return choice.local  # in this process all the same

    from elbowroom.runs.engines import choice

    monkeypatch.setattr(runner, "engine_for", engine)
    watch = Watched()
    quick = {"device": "cpu", "bounds": "simple", "solver_options": {"gradients": 1}, "workers": workers}
    run_dataset(net, dataset(points(8)), out, Settings.of(quick), watch=watch, **more)
    return watch, used[-1] if used else "as asked"


def test_a_run_is_shared_out_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    monkeypatch.setattr(sharing, "share", lambda work, inputs, *rest: Share(2, 3) if inputs > 4 else Share(1, 2))
    watch, used = run(tmp_path / "a", net, monkeypatch, sharing=True)
    assert (watch.start.workers, watch.start.threads, used) == (2, 3, "processes") and watch.threads == 3
    assert watch.start.run.plan.part_rows == 1 and torch.get_num_threads() == 1
    watch, used = run(tmp_path / "b", net, monkeypatch)
    assert (watch.start.workers, used) == (1, "as asked")
    watch, used = run(tmp_path / "c", net, monkeypatch, workers=1, sharing=True)
    assert (watch.start.workers, watch.start.threads, used) == (1, 1, "local")


def test_a_run_that_goes_on_is_shared_out_for_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    monkeypatch.setattr(sharing, "share", lambda work, inputs, *rest: Share(2, 3) if inputs > 4 else Share(1, 2))
    asked = iter([False] * 5 + [True])
    run(tmp_path, net, monkeypatch, sharing=True, stop=lambda: next(asked))
    watch, used = run(tmp_path, net, monkeypatch, sharing=True, resume=True)
    assert (watch.start.done, watch.start.workers, watch.start.threads, used) == (5, 1, 2, "local")
