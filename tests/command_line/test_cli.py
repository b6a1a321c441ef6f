"""The command line: quick to help, plain in its errors."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import elbowroom
from elbowroom.commands import app as cli
from elbowroom.errors import InputError


def run(*arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "elbowroom", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_help_is_quick() -> None:
    """What it imports, not its time: that depends on what else the machine does."""
    command = [sys.executable, "-X", "importtime", "-m", "elbowroom", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and "demo" in shown.stdout
    imported = {line.rpartition("|")[2].strip() for line in shown.stderr.splitlines() if "import time:" in line}
    assert "elbowroom.commands.app" in imported and len(imported) < 500
    assert not imported & {"torch", "numpy", "scipy", "matplotlib", "sklearn", "pandas", "onnx", "ray"}


def test_version() -> None:
    shown = run("--version")
    assert (shown.returncode, shown.stdout) == (0, f"elbowroom {elbowroom.__version__}\n")


@pytest.mark.parametrize(
    "arguments", [("nosuch",), ("demo", "--nosuch"), ("demo", "--seed", "x"), ("demo", "--seed", "-1")]
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    shown = run(*arguments)
    assert shown.returncode == 2 and shown.stderr and "Traceback" not in shown.stderr


def test_errors_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shown = run("demo", "--out", str(tmp_path / "file" / "below"))
    assert shown.returncode == 2
    assert shown.stderr.startswith("elbowroom: cannot write into") and shown.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [(InputError("no such thing"), 2, "no such thing"), (KeyboardInterrupt(), 130, "interrupted")],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch, error: KeyboardInterrupt | InputError, code: int, line: str
) -> None:
    def fail(*_: Path, **__: int) -> None:
        raise error

    monkeypatch.setattr("elbowroom.demo.run.run_demo", fail)
    result = CliRunner().invoke(cli.app, ["demo"])
    assert result.exit_code == code
    assert result.stderr == f"elbowroom: {line}\n"


def test_options_reach_the_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = []
    monkeypatch.setattr("elbowroom.demo.run.run_demo", lambda out, *, seed: seen.append((out, seed)))
    assert CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path), "--seed", "3"]).exit_code == 0
    assert seen == [(tmp_path, 3)]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to another process there")
def test_interrupting_a_running_demo(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "elbowroom", "demo", "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors.endswith("elbowroom: interrupted\n") and "Traceback" not in errors


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("max_eps must be a number", "--max-eps must be a number"),
        ("frozen: there is no feature 'age'", "--frozen: there is no feature 'age'"),
        ("run: max_eps must be a number", "run: max_eps must be a number"),  # somebody else's: a file's
        ("give `within=TOL`, not `nosuch=1`", "give --within TOL, not `nosuch=1`"),
        ('a.npy: `layout="NHWC"` turns, `input_shape=(3, 4)`', "a.npy: --layout NHWC turns, --input-shape 3,4"),
        ("`class_names=['a', 'b']`; `predicted=True`; `resume=True`", "--class-names a,b; --predicted; --resume"),
        ("solver_options: sequential has no 'x'", "--solver-option: sequential has no 'x'"),
    ],
)
def test_errors_name_flags(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, shown: str) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise InputError(said)

    monkeypatch.setattr("elbowroom.runs.opening.settings_for", fail)
    result = CliRunner().invoke(cli.app, ["certify", "--out", str(tmp_path)])
    assert result.stderr == f"elbowroom: {shown}\n"


def test_only_commands_and_what_people_look_at_name_flags() -> None:
    """The library names parameters: who calls it has no flags."""
    root = Path(elbowroom.__file__).parent
    allowed = {
        "commands",
        "report",
        "paper",
        "settings.py",
        "status.py",
        "__main__.py",
    }  # these last say flags, and a whole command
    named = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in root.rglob("*.py")
        if not allowed & set(path.relative_to(root).parts)
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"(?<![-\w])--[a-z]", line)
    ]
    assert not named
