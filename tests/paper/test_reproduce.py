"""`elbowroom reproduce`: which experiment needs what, in the smallest size, on embedded digits."""

from pathlib import Path
from typing import Any

import pytest

from elbowroom.errors import InputError
from elbowroom.paper import reproduce as module
from elbowroom.paper.models import BINARY, MAIN, TINY
from elbowroom.paper.reproduce import EXPERIMENTS, reproduce_command
from elbowroom.training.sets import training_data

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", TINY)
    monkeypatch.setattr(module, "MAIN", MAIN[:2])
    monkeypatch.setattr(module, "BINARY", BINARY[:2])
    monkeypatch.setattr(module, "source_of", lambda _: lambda m: training_data("digits", None, m.classes))


def test_tables_then_maps(tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = reproduce_command("table2", tmp_path, data_dir=tmp_path, quick=True, device="cpu")
    assert {f.name for f in files} == {"cosines.md", "cosines.csv", "dimension.md", "dimension.csv", "claims.md"}
    assert [p.name for p in (tmp_path / "certified" / "mnist-16-normal").iterdir()] == ["sequential.npz"]
    assert not list((tmp_path / "models").glob("*1v7*"))
    files = reproduce_command("bounding-maps", tmp_path, data_dir=tmp_path, quick=True, device="cpu")
    assert {f.stem for f in files} == {"maps", "bounding-maps-1v7", "bounding-maps-1v7-log", "claims"}
    printed = capsys.readouterr().out
    assert printed.count("mnist-16-normal: trained") == 1 and "The ratio is larger for robust models" in printed


def test_toy_bounds_need_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = reproduce_command("toy-bounds", tmp_path, quick=True)
    assert [f.name for f in files] == ["toy-bounds.md", "toy-bounds.png", "toy-bounds.svg"]
    assert "quad.>simple" in capsys.readouterr().out and (tmp_path / "tables" / "toy-bounds.md").exists()


def test_all_is_every_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    for name in ("_synthetic", "_toy_bounds"):
        monkeypatch.setattr(module, name, lambda *a, name=name: asked.append(name) or [])
    monkeypatch.setattr(module, "_images", lambda out, size, parts, *_: asked.append(tuple(parts)) or [])
    assert reproduce_command("all", tmp_path, data_dir=tmp_path, quick=True) == []
    assert asked == ["_synthetic", "_toy_bounds", ("table1", "table2", "histograms", "bounding-maps")]
    assert set(EXPERIMENTS) == {"synthetic", "toy-bounds", "table1", "table2", "histograms", "bounding-maps"}


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown experiment"):
        reproduce_command("table9", tmp_path)
    with pytest.raises(InputError, match="data_dir"):
        reproduce_command("all", tmp_path)
