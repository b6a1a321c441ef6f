"""The measurement of the prior, on small networks."""

import dataclasses
from pathlib import Path

import pytest
import torch

from elbowroom.certificates.store import Run
from elbowroom.data.embedded import Dataset
from elbowroom.paper import prior as module
from elbowroom.paper.bench import Bench
from elbowroom.paper.models import MAIN, TINY, Model
from elbowroom.paper.prior import CASES, prior_table
from elbowroom.runs.check import check_run
from elbowroom.training.sets import training_data

pytest.importorskip("sklearn")
GRADIENTS = (0, 1, 4)


def source(model: Model) -> tuple[Dataset, tuple[str, ...]]:
    return training_data("digits", None, model.classes)


def test_rows_with_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEARNED_FROM", 12)
    monkeypatch.setattr(module, "GRADIENTS", GRADIENTS)
    monkeypatch.setattr(
        module, "CASES", {name: CASES[name] for name in ("paper's bounds", "asymmetric, in the domain")}
    )
    bench = Bench(tmp_path, dataclasses.replace(TINY, few=8), source, torch.device("cpu"), say=lambda _: None)
    table = prior_table(bench, MAIN[:1])
    assert len(table.rows) == 2 * (2 * len(GRADIENTS) - 1)
    for row in table.rows:
        share, gradients = row[5], row[7]
        assert 0.5 < share < 1.2 and gradients <= row[3]
        assert share == 1 or row[2:4] != ["uniform", 4]
    assert "| prior | 0 |" in table.markdown()
    runs = [Run.open(folder) for folder in (tmp_path / "runs" / TINY.of(MAIN[0]).name).iterdir()]
    assert len(runs) == 2 * 2 * len(GRADIENTS)
    assert check_run(runs[0]).verdict == "passed"
    monkeypatch.setattr(module, "certify", lambda *_, **__: pytest.fail("done already"))
    assert prior_table(bench, MAIN[:1]).rows == table.rows
