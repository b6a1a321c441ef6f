"""Runs that are killed or asked to stop, at any moment: what is there is whole, and the end is the same."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import Signals
from subprocess import Popen
from typing import Any

import pytest

import elbowroom as er
from commands import good, run
from elbowroom.certificates.lock import locked
from elbowroom.certificates.result import Certificates
from elbowroom.runs.engines.worker import Worker
from runs.small import assert_same_rows, files

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such signals there")

COUNT, ROWS = 80, 2


def start(*arguments: int | Path | str) -> Popen:
    command = [sys.executable, "-m", "elbowroom", "certify", *map(str, arguments), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def copied(*arguments: int | Path | str) -> BaseProcess:
    """The command in a copy of a process that has loaded torch, which takes longer than all the rest."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([Worker.__module__])
    process = context.Process(target=run, args=("certify", *arguments, "--device", "cpu"))
    process.start()
    return process


def finish(*arguments: int | Path | str) -> None:
    """Without a disturbance, for which no other process is needed."""
    good("certify", *arguments, "--device", "cpu", "--quiet")


def done(folder: Path) -> int:
    return len(list((folder / "parts").glob("part-*.parquet"))) if folder.exists() else 0


def wait_for(folder: Path, parts: int, alive: Callable[[], bool]) -> None:
    """Until so many parts are there."""
    deadline = time.monotonic() + 120
    while done(folder) < parts and alive() and time.monotonic() < deadline:
        time.sleep(0.005)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Any, ...], Certificates]:
    """Model and data, and what they give without any disturbance."""
    place = tmp_path_factory.mktemp("work")
    given = (
        *files(place, COUNT, wrong=(5,)),
        "--part-rows",
        ROWS,
        "--bounds",
        "simple",
        "--solver-option",
        "gradients=1",
    )
    finish(*given, "--out", place / "whole")
    certs = er.Certificates.load(place / "whole")
    assert len(certs) == COUNT and certs.status[5] == "misclassified"
    return given, certs


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_any_moment(work: tuple[tuple[Any, ...], Certificates], tmp_path: Path, kills: int) -> None:
    """Each time somewhere between the start of the process and some parts later; a few kills come before any part."""
    given, whole = work
    folder, chance = tmp_path / "run", random.Random(kills)
    at = []
    for k in range(kills):
        process = copied(*given, "--out", folder, "--resume", "--quiet")
        if k % 4 == 3:
            time.sleep(chance.uniform(0, 0.5))
        else:
            wait_for(folder, done(folder) + chance.randint(1, max(1, COUNT // ROWS // (kills + 1))), process.is_alive)
            time.sleep(chance.uniform(0, 0.05))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        at.append(done(folder))
        if (folder / "run.json").exists():
            certs = er.Certificates.load(folder)
            assert len(certs) == ROWS * at[-1] and certs.missing == COUNT - len(certs)
    assert at == sorted(at) and 0 < at[-1] < COUNT // ROWS, f"the kills came at {at} parts"
    finish(*given, "--out", folder, "--resume")
    assert_same_rows(whole, er.Certificates.load(folder))
    assert sorted(p.name for p in folder.iterdir()) == ["network.elbowroom", "parts", "run.json"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop(work: tuple[tuple[Any, ...], Certificates], tmp_path: Path, number: Signals) -> None:
    given, whole = work
    folder = tmp_path / "run"
    with start(*given, "--out", folder) as process:
        wait_for(folder, 3, lambda: process.poll() is None)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in errors
    assert "stopping when what is in progress is done" in errors
    certs = er.Certificates.load(folder)
    assert 3 * ROWS <= len(certs) < COUNT
    last = errors.splitlines()[-1]
    assert last.startswith(f"elbowroom: stopped at {len(certs)} of {COUNT} inputs, all saved; resume with: ")
    assert out.startswith(f"incomplete: {len(certs)} of {COUNT} inputs so far")
    assert not list(folder.rglob("*.part")) and not (folder / "lock").exists()
    assert last.endswith(f"elbowroom certify --resume --out {folder}")
    if number == signal.SIGINT:  # as it says: the folder is all that is needed
        finish("--resume", "--out", folder)
        assert_same_rows(whole, er.Certificates.load(folder))


def test_a_second_process_is_turned_away(work: tuple[tuple[Any, ...], Certificates], tmp_path: Path) -> None:
    given, _ = work
    with locked(tmp_path), start(*given, "--out", tmp_path) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.startswith(f"elbowroom: {tmp_path} is being written by process {os.getpid()} on ")
    assert not list(tmp_path.iterdir())
