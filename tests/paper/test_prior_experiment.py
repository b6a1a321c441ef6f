"""The measurement of the prior, on small networks."""

from pathlib import Path

import pytest
import torch

from elbowroom.data.embedded import Dataset
from elbowroom.errors import InputError
from elbowroom.paper import prior as module
from elbowroom.paper.compute import Bench, network
from elbowroom.paper.models import MAIN, TINY, Model
from elbowroom.paper.prior import CASES, GRADIENTS, main, prior_table
from elbowroom.training.sets import training_data

pytest.importorskip("sklearn")


def source(model: Model) -> tuple[Dataset, tuple[str, ...]]:
    return training_data("digits", None, model.classes)


def test_rows_with_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEARNED_FROM", 12)
    monkeypatch.setattr(
        module, "CASES", {name: CASES[name] for name in ("paper's bounds", "asymmetric, in the domain")}
    )
    network(Bench(tmp_path, TINY, source, torch.device("cpu"), say=lambda _: None), MAIN[1])
    table = prior_table(tmp_path, TINY, source, MAIN[1:2], inputs=8)
    assert len(table.rows) == 2 * (2 * len(GRADIENTS) - 1)
    for row in table.rows:
        share, gradients = row[5], row[7]
        assert 0.5 < share < 1.2 and gradients <= row[3]
        assert share == 1 or row[2:4] != ["uniform", 4]
    assert "| prior | 0 |" in table.markdown()


def test_without_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="first"):
        prior_table(tmp_path, TINY, source)
    assert main([str(tmp_path), "--data-dir", str(tmp_path)]) == 2
    assert "compute the models first" in capsys.readouterr().err
