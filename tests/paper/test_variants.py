"""Training in other ways, on small networks: measured, kept, put into a table."""

import dataclasses
from pathlib import Path

import pytest
import torch

from elbowroom.data.embedded import Dataset
from elbowroom.paper.bench import Bench
from elbowroom.paper.models import QUICK, TINY, Model
from elbowroom.paper.variants import VARIANTS, Variant, measure, table
from elbowroom.training.adversary import PGD
from elbowroom.training.sets import training_data

pytest.importorskip("sklearn")
SMALL = (
    Variant("a", "normal", "digits", (12,), 60, 50, 1e-2, images=300),
    Variant("b", "robust", "digits", (12,), 60, 50, 1e-2, adversary=PGD(0.1, steps=2)),
)


def bench(out: Path, wrong: bool = False) -> Bench:
    def source(model: Model) -> tuple[Dataset, tuple[str, ...]]:
        data, classes = training_data("digits")
        return (dataclasses.replace(data, y_test=(data.y_test + 1) % 10) if wrong else data), classes

    return Bench(out, TINY, source, torch.device("cpu"), say=lambda _: None)


def test_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(bench(tmp_path), SMALL[0])
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["a"] and len(table(tmp_path, SMALL).rows) == 1
    measure(bench(tmp_path), SMALL[1])
    made = table(tmp_path, SMALL)
    assert [row[3] for row in made.rows] == ["normal", "robust"] and made.rows[0][4:6] == [300, 60]
    assert made.rows[0][15] == TINY.few and made.rows[0][12] >= made.rows[0][11] > 0
    assert "1000 uniform radii" in made.markdown()
    monkeypatch.setattr("elbowroom.paper.bench.train", lambda *_, **__: pytest.fail("done already"))
    monkeypatch.setattr("elbowroom.paper.certified.run_dataset", lambda *_, **__: pytest.fail("done already"))
    measure(bench(tmp_path), SMALL[1])


@pytest.mark.filterwarnings("ignore::elbowroom.errors.DataWarning")
def test_nothing_certified(tmp_path: Path) -> None:
    measure(bench(tmp_path, wrong=True), SMALL[0])
    assert table(tmp_path, SMALL).rows[0][11:] == [None, None, None, None, TINY.few, 0]


def test_small_ones() -> None:
    for v in VARIANTS:
        small = v.of(QUICK)
        assert small.name == v.name and small.images <= QUICK.n_train and max(small.widths) <= 64


def test_steps_are_whole_epochs() -> None:
    images = {"mnist": 60000, "svhn": 16000}
    for v in VARIANTS:
        per_epoch = (v.images or images[v.data]) // v.batch
        assert abs(round(v.steps / per_epoch) * per_epoch / v.steps - 1) < 1e-3
