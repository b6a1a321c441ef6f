"""Workers on this machine: the same results, deaths survived, nobody left behind."""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import torch

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.errors import ElbowroomError, InputError
from elbowroom.runs import sharing
from elbowroom.runs.engines import processes as module
from elbowroom.runs.engines.choice import engine_of
from elbowroom.runs.engines.worker import Part
from elbowroom.runs.runner import Start, run_dataset
from elbowroom.runs.settings import Settings
from elbowroom.runs.summary import Tally
from runs.small import assert_same_rows, assert_same_within, dataset, files, labels_for, network, points

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

NET, COUNT = network(), 60
X = points(COUNT)
DATA = dataset(X, labels_for(NET, X, wrong=(7,)))


def run(out: Path, watch: Any | None = None, **given: int) -> Certificates | None:
    quick = {"bounds": "simple", "solver_options": {"gradients": 1}}  # it is not the search that is looked at
    done = run_dataset(NET, DATA, out, Settings.of({"part_rows": 4, "device": "cpu", **quick, **given}), watch=watch)
    assert done.complete and not multiprocessing.active_children()
    return er.Certificates.load(out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Certificates | None:
    return run(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(("workers", "batch"), [(2, 64), pytest.param(4, 1, marks=pytest.mark.slow)])
def test_the_same_as_in_one_process(whole: Certificates, tmp_path: Path, workers: int, batch: int) -> None:
    assert_same_within(whole, run(tmp_path, workers=workers, batch=batch))


class Killer:
    """After some parts, kills workers, whatever they do; the counts leave no part to be hit three times."""

    def __init__(self, *after: int) -> None:
        self.after, self.killed = list(after), []

    def begin(self, start: Start) -> None:
        self.workers = start.workers

    def advance(self, tally: Tally) -> None:
        # One that was killed a moment ago may still be listed.
        alive = [child.pid for child in multiprocessing.active_children() if child.pid not in self.killed]
        if alive and self.after and tally.count >= self.after[0]:
            self.after.pop(0)
            os.kill(alive[0], signal.SIGKILL)
            self.killed.append(alive[0])


@pytest.mark.parametrize("kills", [(8,), pytest.param((4, 8, 40, 52), marks=pytest.mark.slow)])
def test_killed_workers(whole: Certificates, tmp_path: Path, kills: tuple[int]) -> None:
    killer = Killer(*kills)
    found = run(tmp_path, killer, workers=2)
    assert len(set(killer.killed)) == len(kills) and killer.workers == 2
    assert_same_rows(whole, found)
    assert found.index.tolist() == list(range(COUNT))


def test_workers_that_always_die(tmp_path: Path) -> None:
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.001):
            for child in multiprocessing.active_children():
                child.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        # Mostly before they are ready; on a busy machine some worker may get to its part before it is met.
        met = r"3 workers( ended before they were ready)?, the last one by the signal SIGKILL, which the system sends"
        with pytest.raises(ElbowroomError, match=f"{met} when memory runs out"):
            run(tmp_path, workers=2)
    finally:
        over.set()
        thread.join()
    assert not multiprocessing.active_children() and not (tmp_path / "lock").exists()


def gone(_: Any) -> None:
    os._exit(3)


def test_workers_that_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a script that starts itself again; what they are sent is more than a pipe holds."""
    monkeypatch.setattr(module, "_serve", gone)
    work = [Part(0, *((X[:1, 0].astype(int), X[:1])), None, {}, {})]
    with pytest.raises(ElbowroomError, match="3 workers ended before they were ready, the last one with exit code 3"):
        list(module.processes(network(sizes=(2, 300, 300, 3)), Settings(device="cpu", workers=2), work))
    assert not multiprocessing.active_children()


def test_the_environment_of_workers_is_that_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it was when the process that they are copies of was started. A worker's life, in this process."""
    monkeypatch.setattr(module, "_SIGNALS", ())
    monkeypatch.setattr(module, "_end_with_parent", lambda: None)
    monkeypatch.setattr(os, "environ", {"BEFORE": "1"})
    here, there = multiprocessing.Pipe()
    here.send(({"NOW": "1"}, module.network_bytes(NET), Settings(device="nosuch").plain(), 1, None))
    module._serve(there)
    assert here.recv()[0] == "failed" and os.environ == {"NOW": "1"}


def test_a_device_that_only_workers_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong in a worker is told as it would be here."""
    monkeypatch.setattr(module, "device_of", lambda settings: torch.device("cpu"))
    work = [Part(0, *((X[:1, 0].astype(int), X[:1])), None, {}, {})]
    with pytest.raises(ElbowroomError, match="device 'nosuch' cannot be used here"):
        list(module.processes(NET, Settings(device="nosuch", workers=1), work))
    assert not multiprocessing.active_children()


def test_cores_and_memory_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(module, "distribute", lambda pool, *rest: given.append(pool._given) or iter(()))
    monkeypatch.setattr(sharing, "cores_here", lambda: 8)
    for workers, memory, each in ((3, None, None), (16, None, None), (2, "1GiB", 3)):
        list(module.processes(NET, Settings(device="cpu", workers=workers, memory=memory, threads=each), []))
    (_, three, threads, _), (_, sixteen, one, _), (_, two, asked, _) = given
    assert (threads, one, asked) == (2, 1, 3) and two["memory"] == "1GiB"
    assert 4 < three["memory"] / sixteen["memory"] < 7


def test_which_engine() -> None:
    with engine_of(Settings(device="cpu")) as (engine, there):
        assert engine.__name__ == "local" and there.workers == 1
    with engine_of(Settings(device="cpu", workers=3)) as (engine, there):
        assert engine is module.processes and there.workers == 3
    with pytest.raises(InputError, match="only the engine ray uses"), engine_of(Settings(address="auto")):
        pass
    with pytest.raises(InputError, match="leave out `threads`"), engine_of(Settings(engine="ray", threads=2)):
        pass
    assert dataclasses.replace(Settings(), workers=4, engine="ray", address="a").claim() == Settings().claim()


# --- as a command: signals, and the death of the process that writes


def children(pid: int) -> list[int]:
    """The processes that it started."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            if int(state(place.name)[1]) == pid:
                found.append(int(place.name))
    return found


def workers_of(pid: int) -> list[int]:
    """Its workers: copies of the one process that loads torch for them; the tracker of resources has none."""
    return [worker for child in children(pid) for worker in children(child)]


def everybody(pid: int) -> list[int]:
    """All that it started, and what these did."""
    return [*children(pid), *workers_of(pid)]


def state(pid: int | str) -> Any:
    """What follows the name in /proc/PID/stat: its state, its parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_there(pid: int) -> bool:
    try:
        return state(pid)[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[..., Any], seconds: int = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[tuple[Popen, Path]]:
    """The command at work with two processes, in a process group of its own, and its folder."""
    given = files(tmp_path, 4000)
    out = tmp_path / "run"
    arguments = (*given, "--out", out, "--device", "cpu", "--workers", 2, "--part-rows", 10)
    with subprocess.Popen(
        [sys.executable, "-m", "elbowroom", "certify", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        yield process, out
        process.kill()


def test_control_c_reaches_all_and_stops_one(begun: tuple[Popen, Path]) -> None:
    """As the terminal does it: the signal goes to the whole group."""
    process, out = begun
    until(lambda: len(workers_of(process.pid)) == 2 and list((out / "parts").glob("*")))
    started = everybody(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    stdout, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in errors and "KeyboardInterrupt" not in errors
    certs = er.Certificates.load(out)
    assert 10 <= len(certs) < 4000 and f"stopped at {len(certs)} of 4,000 inputs, all saved" in errors
    assert stdout.startswith("incomplete: ") and "by 2 workers" in errors
    until(lambda: not any(map(is_there, started)), 5)


def test_control_c_before_workers_are_ready(begun: tuple[Popen, Path]) -> None:
    process, out = begun
    until(lambda: children(process.pid))  # the first has still to load torch
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in errors and "KeyboardInterrupt" not in errors
    assert len(er.Certificates.load(out)) == 0


def test_twice_control_c(begun: tuple[Popen, Path]) -> None:
    process, out = begun
    until(lambda: list((out / "parts").glob("*.parquet")))
    started = everybody(process.pid)
    os.killpg(process.pid, signal.SIGSTOP)  # so that both come before anything is finished
    os.killpg(process.pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGTERM)
    os.killpg(process.pid, signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in errors
    assert "stopped at once; finished parts are kept" in errors or "all saved" in errors
    until(lambda: not any(map(is_there, started)), 5)


def test_nobody_is_left_when_the_writer_is_killed(begun: tuple[Popen, Path]) -> None:
    process, out = begun
    until(lambda: list((out / "parts").glob("*.parquet")))
    started = everybody(process.pid)
    assert len(workers_of(process.pid)) == 2
    process.kill()
    until(lambda: not any(map(is_there, started)), 5)
    assert len(er.Certificates.load(out)) >= 10
