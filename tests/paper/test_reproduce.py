"""`elbowroom reproduce`: which experiment needs what, in the smallest size, on embedded digits; killed and resumed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import good, refused, run
from elbowroom.errors import InputError
from elbowroom.paper import reproduce as module
from elbowroom.paper.models import BINARY, MAIN
from elbowroom.paper.reproduce import EXPERIMENTS, reproduce_command
from elbowroom.training.sets import training_data

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAIN", MAIN[:2])
    monkeypatch.setattr(module, "BINARY", BINARY[:2])
    monkeypatch.setattr(module, "source_of", lambda _: lambda m: training_data("digits", None, m.classes))


def test_tables_then_maps(tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = reproduce_command("table2", tmp_path, data_dir=tmp_path, size="tiny", device="cpu")
    assert {f.name for f in files} == {"cosines.md", "cosines.csv", "dimension.md", "dimension.csv", "claims.md"}
    assert [p.name for p in (tmp_path / "runs" / "mnist-16-normal").iterdir()] == ["sequential"]
    assert not list((tmp_path / "models").glob("*1v7*"))
    files = reproduce_command("bounding-maps", tmp_path, data_dir=tmp_path, size="tiny", device="cpu")
    assert {f.stem for f in files} == {"maps", "bounding-maps-1v7", "bounding-maps-1v7-log", "claims"}
    printed = capsys.readouterr().out
    assert printed.count("mnist-16-normal: trained") == 1 and "The ratio is larger for robust models" in printed


def test_toy_bounds_need_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = reproduce_command("toy-bounds", tmp_path, size="tiny")
    assert [f.name for f in files] == ["toy-bounds.md", "toy-bounds.png", "toy-bounds.svg"]
    assert "quad.>simple" in capsys.readouterr().out and (tmp_path / "tables" / "toy-bounds.md").exists()


def test_all_is_every_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    for name in ("_synthetic", "_toy_bounds"):
        monkeypatch.setattr(module, name, lambda *a, name=name: asked.append(name) or [])
    monkeypatch.setattr(module, "_images", lambda bench, parts, *_: asked.append(tuple(parts)) or [])
    assert reproduce_command("all", tmp_path, data_dir=tmp_path, size="tiny") == []
    assert asked == ["_synthetic", "_toy_bounds", ("table1", "table2", "histograms", "bounding-maps")]
    assert set(EXPERIMENTS) == {"synthetic", "toy-bounds", "table1", "table2", "histograms", "bounding-maps"}


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown experiment"):
        reproduce_command("table9", tmp_path)
    with pytest.raises(InputError, match="data_dir"):
        reproduce_command("all", tmp_path)
    with pytest.raises(InputError, match="unknown size"):
        reproduce_command("all", tmp_path, size="small", data_dir=tmp_path)
    with pytest.raises(InputError, match=r"matches none; there are mnist-16-normal"):
        reproduce_command("table1", tmp_path, size="tiny", data_dir=tmp_path, models="svhn", device="cpu")
    assert "was not found" in refused(
        "reproduce", "table2", "--size", "tiny", "--data-dir", tmp_path, "--out", tmp_path
    )
    assert "not both" in refused("reproduce", "table2", "--quick", "--size", "full")


def test_time_is_over(tiny: None, tmp_path: Path) -> None:
    given = ("reproduce", "variants", "--size", "tiny", "--data-dir", tmp_path, "--out", tmp_path, "--device", "cpu")
    found = run(*given, "--minutes", "0")
    assert found.exit_code == 130 and "the same command resumes" in found.stderr
    assert not (tmp_path / "runs").exists()


def test_without_figures(tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a GPU and no matplotlib."""
    monkeypatch.setattr(module, "need_matplotlib", lambda: pytest.fail("not needed"))
    given = {"data_dir": tmp_path, "size": "tiny", "device": "cpu", "models": "mnist-16-normal", "figures": False}
    for experiment in ("table2", "synthetic"):
        files = reproduce_command(experiment, tmp_path, **given)
        assert files and all(file.parent.name == "tables" for file in files)
    assert (tmp_path / "analysis" / "mnist-16-normal.json").exists() and not (tmp_path / "figures").exists()


# The command as it is, but on the digits that come with scikit-learn.
_ON_DIGITS = """
from elbowroom.commands.app import main
from elbowroom.paper import reproduce
from elbowroom.training.sets import training_data
reproduce.source_of = lambda _: lambda m: training_data("digits", None, m.classes)
main()
"""


def test_killed_and_resumed_and_proved(tiny: None, tmp_path: Path) -> None:
    """SIGKILL in the midst of it: what was done is used again, and the check proves every run there is in the end."""
    given = ["reproduce", "table1", "--size", "tiny", "--models", "mnist-16-normal", "--device", "cpu"]
    given += ["--data-dir", str(tmp_path), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", _ON_DIGITS, *given], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    runs, model = tmp_path / "out" / "runs", tmp_path / "out" / "models" / "mnist-16-normal.elbowroom"
    while len(parts := list(runs.rglob("*.parquet"))) < 2 and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    said = process.communicate()[0]
    assert process.returncode == -signal.SIGKILL, said
    kept = {path: path.stat().st_mtime_ns for path in (*parts, model)}
    good(*given)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    folders = sorted(path.parent for path in runs.rglob("run.json"))
    assert [folder.name for folder in folders] == ["adaptive", "asymmetric", "lagrangian", "limited", "sequential"]
    for folder in folders:
        good("check", folder)
    assert "complete" in good("status", folders[0]).stdout
    assert "certified" in good("show", folders[0]).stdout
