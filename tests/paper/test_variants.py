"""Training in other ways, on small networks: measured, kept, put into a table."""

import dataclasses
from pathlib import Path

import pytest
import torch

from elbowroom.certificates.store import Run
from elbowroom.data.embedded import Dataset
from elbowroom.paper.bench import Bench
from elbowroom.paper.certified import parts_of
from elbowroom.paper.models import QUICK, TINY, Model
from elbowroom.paper.variants import VARIANTS, Variant, measure, table, within
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


def test_pixels_in_another_range(tmp_path: Path) -> None:
    data, _ = training_data("digits")
    there = within(data, 0.0, 1.0)
    assert (there.low, there.high) == (0.0, 1.0)
    for a, b in ((data.x_train, there.x_train), (data.x_test, there.x_test)):
        assert torch.allclose((a - data.low) / (data.high - data.low), b, atol=1e-6) and b.min() >= 0 and b.max() <= 1
    variant = dataclasses.replace(SMALL[0], pixels=(-3.0, 5.0))
    measure(bench(tmp_path), variant)
    held = Run.open(tmp_path / "runs" / "a" / "sequential")
    x = torch.cat([certs.x.flatten() for certs in parts_of(held)])
    assert x.min() == -3 and 1 < x.max() <= 5  # the network was trained and certified there


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
