"""How commands start: what they load, and how their threads wait. For times, see benchmarks/threads.py."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runs.small import files

# Heavy packages that no command needs for a network and data of our own formats.
HEAVY = ("matplotlib", "onnx", "onnxruntime", "pandas", "PIL", "ray", "scipy", "sklearn")
_COMMAND = """
import atexit, gc, json, os, sys
def tell():
    loaded = [name for name in {heavy!r} if name in sys.modules]
    threads = {{name: value for name, value in os.environ.items() if name.startswith(("OMP", "GOMP", "KMP", "MKL"))}}
    print(json.dumps([loaded, "torch" in sys.modules, threads, gc.isenabled(), gc.get_freeze_count()]), file=sys.stderr)
atexit.register(tell)
from elbowroom.commands.app import main
main()
"""
_LIBRARY = """
import os, torch
before = dict(os.environ), torch.get_num_threads()
import elbowroom as er
from elbowroom.network.operations import Linear, ReLU
net = er.Network.chain((2,), [Linear(torch.eye(2), torch.zeros(2)), ReLU(), Linear(torch.eye(2), torch.zeros(2))])
certs = er.certify(net, torch.rand(2, 2))
er.check(certs)
assert before == (dict(os.environ), torch.get_num_threads())
"""


def started(*arguments: object, **environment: str) -> list[Any]:
    """Of a process that runs the command: heavy packages loaded; whether torch was; variables about threads; whether
    garbage is collected; and how many objects are left out of that."""
    given = {k: v for k, v in os.environ.items() if not k.startswith(("OMP", "GOMP", "KMP", "MKL"))}
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND.format(heavy=HEAVY), *map(str, arguments)],
        env={**given, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stderr.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    files(folder, 3)
    return folder


def test_commands_load_what_they_need_and_wait_passively(place: Path) -> None:
    one = {"OMP_NUM_THREADS": "1"}
    certify = ("certify", place / "net.elbowroom", place / "data.npz", "--out", place / "run")
    for arguments in (certify, ("check", place / "run"), ("show", place / "run")):
        loaded, torch, threads, collects, kept = started(*arguments, **one)
        assert not loaded and torch and collects and kept > 10_000
        assert threads == {**one, "OMP_WAIT_POLICY": "PASSIVE"}


def test_what_the_user_has_set_stays(place: Path) -> None:
    mine = {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}
    verify = ("verify", place / "net.elbowroom", "--lower", "0.5", "--upper", "0.5")
    loaded, _, threads, _, _ = started(*verify, **mine)
    assert threads == mine and not loaded


def test_help_loads_no_torch() -> None:
    loaded, torch, threads, _, _ = started("certify", "--help")
    assert not loaded and not torch and not threads


def test_the_library_changes_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", _LIBRARY], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
