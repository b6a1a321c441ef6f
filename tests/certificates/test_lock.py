"""One writer per run folder, also where many try at once, look on, or are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

from elbowroom.certificates.lock import held_since, holder, locked
from elbowroom.errors import InputError

_HOLDS = """
import sys, time, pathlib
from elbowroom.certificates.lock import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

# Each takes the lock many times, in turns with the others and with those who look, and counts in a file meanwhile.
_COUNTS = """
import sys, pathlib
from elbowroom.certificates.lock import holder, locked
from elbowroom.errors import InputError
folder, done = pathlib.Path(sys.argv[1]), 0
while done < 40:
    holder(folder)
    try:
        with locked(folder):
            before = int((folder / "count").read_text())
            (folder / "count").write_text(str(before + 1))
            done += 1
    except InputError as error:
        assert "is being written by" in str(error), error
"""


def start(code: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)


def test_it_says_who_holds_it_and_leaves_nothing(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
        assert (holder(tmp_path) or "").startswith(f"process {os.getpid()} on ") and held_since(tmp_path)
        with pytest.raises(InputError, match=f"is being written by process {os.getpid()} on "), locked(tmp_path):
            pass
        assert (holder(tmp_path) or "").startswith("process ")  # who was turned away took nothing along
    assert holder(tmp_path) is None and held_since(tmp_path) is None and not list(tmp_path.iterdir())


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    with start(_HOLDS, tmp_path) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert (holder(tmp_path) or "").startswith(f"process {process.pid} on ")
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / "lock").exists() and holder(tmp_path) is None
    with locked(tmp_path):
        assert (holder(tmp_path) or "").startswith(f"process {os.getpid()} on ")
    assert not list(tmp_path.iterdir())


def test_never_two_at_once(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    for process in [start(_COUNTS, tmp_path) for _ in range(3)]:
        with process:
            assert process.wait(timeout=60) == 0
    assert (tmp_path / "count").read_text() == "120"
    assert [path.name for path in tmp_path.iterdir()] == ["count"]


def test_where_the_lock_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of somebody else: nothing is written, and who looks is told what is known."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / ".lock").touch()
    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with pytest.raises(InputError, match=r"cannot write .*\.lock: Permission denied"), locked(tmp_path):
        pass
    assert holder(tmp_path) is None
    (tmp_path / "lock").write_text('{"pid": 7, "host": "there"}')
    assert holder(tmp_path) == "process 7 on 'there', unless that was killed (its lock: Permission denied)"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"pid": "x", "host": 1}', "\xff"])
def test_a_damaged_note_of_who_writes(tmp_path: Path, content: str) -> None:
    with locked(tmp_path):
        (tmp_path / "lock").write_text(content, encoding="latin-1")
        assert holder(tmp_path) == "another process"
