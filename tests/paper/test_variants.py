"""Training in other ways, on small networks: measured, kept, put into a table."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from elbowroom.paper import variants as module
from elbowroom.paper.variants import VARIANTS, Variant, main, measure, table
from elbowroom.training.sets import training_data
from elbowroom.training.train import PGD

pytest.importorskip("sklearn")
SMALL = (
    Variant("a", "normal", "digits", (12,), 60, 50, 1e-2, images=300),
    Variant("b", "robust", "digits", (12,), 60, 50, 1e-2, adversary=PGD(0.1, steps=2)),
)


def test_measured_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "VARIANTS", SMALL)
    given = [str(tmp_path), "--data-dir", str(tmp_path), "--inputs", "5", "--device", "cpu"]
    assert main([*given, "--only", "a"]) == 0
    assert [p.stem for p in (tmp_path / "variants").iterdir()] == ["a"]
    assert main(given) == 0
    found = json.loads((tmp_path / "variants" / "a.json").read_text())
    assert found["images"] == 300 and found["inputs"] == 5 and found["geomean"] >= found["uniform"] > 0
    monkeypatch.setattr(module, "train", lambda *_, **__: pytest.fail("done already"))
    assert main(given) == 0
    made = table(tmp_path, SMALL)
    assert [row[3] for row in made.rows] == ["normal", "robust"] and made.rows[0][5] == 60
    assert (tmp_path / "tables" / "variants.md").read_text() == made.markdown() + "\n"
    assert "1000 uniform radii" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*given, "--only", "c"])
    assert "there are a, b" in capsys.readouterr().err


def test_nothing_certified(tmp_path: Path) -> None:
    data, classes = training_data("digits")
    wrong = dataclasses.replace(data, y_test=(data.y_test + 1) % 10)
    found = measure(SMALL[0], wrong, classes, 3, torch.device("cpu"))
    assert found["certified"] == 0 and "geomean" not in found
    (tmp_path / "variants").mkdir()
    (tmp_path / "variants" / "a.json").write_text(json.dumps(found))
    assert table(tmp_path, SMALL).rows[0][11:14] == [None, None, None]


def test_without_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--data-dir", str(tmp_path), "--only", "svhn-quarter"]) == 2
    assert "was not found" in capsys.readouterr().err


def test_steps_are_whole_epochs() -> None:
    images = {"mnist": 60000, "svhn": 16000}
    for v in VARIANTS:
        per_epoch = (v.images or images[v.data]) // v.batch
        assert abs(round(v.steps / per_epoch) * per_epoch / v.steps - 1) < 1e-3
