"""The synthetic experiment, with less training: boxes hold one label, and non-uniform ones are larger."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.paper.bench import Bench, source_of
from elbowroom.paper.models import TINY
from elbowroom.paper.synthetic import METHODS, grid_violations, synthetic, table
from elbowroom.runs.check import check_run

pytest.importorskip("matplotlib")


def bench(out: Path, epochs: int) -> Bench:
    size = dataclasses.replace(TINY, plane=epochs)
    return Bench(out, size, source_of(None), torch.device("cpu"), say=lambda _: None)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("synthetic")


@pytest.fixture(scope="module")
def result(out: Path) -> dict[str, Any]:
    return synthetic(bench(out, 120), side=80)


def test_every_box_holds_one_label(result: dict[str, Any]) -> None:
    assert list(result["methods"]) == list(METHODS)
    for m in result["methods"].values():
        assert m["violations"] == 0 and m["checked"] == 40 * 80**2
        assert bool(m["regions"].certified.all()) and bool(m["uniform"].certified.all())
        assert torch.equal(m["regions"].labels, torch.arange(10).repeat_interleave(2))
        assert bool((m["area"] >= m["uniform_area"] * (1 - 1e-5)).all())


def test_default_bounds_certify_more(result: dict[str, Any]) -> None:
    paper, ours = result["methods"].values()
    assert float((ours["area"] / paper["area"]).log().mean()) > 0.1


def test_accuracy_and_files(result: dict[str, Any]) -> None:
    assert result["test_accuracy"] > 0.97 and abs(result["fresh_accuracy"] - result["test_accuracy"]) < 0.02
    assert [f.suffix for f in result["files"]] == [".png", ".svg"]
    assert all(f.stat().st_size > 20_000 for f in result["files"])
    text = table(result)
    assert "256,000 grid points" in text and "0 with another label" in text


def test_the_grid_finds_a_box_that_is_too_large(result: dict[str, Any]) -> None:
    for m in result["methods"].values():
        certs = m["regions"]
        assert grid_violations(result["network"], certs, 40) == (20 * 40**2, 0)
        larger = dataclasses.replace(certs, upper=certs.upper + 1.5)
        assert grid_violations(result["network"], larger, 40)[1] > 1000


def test_an_untrained_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train it for longer"):
        synthetic(bench(tmp_path, 1), n_points=400)


def test_certificates_are_runs_and_nothing_is_done_twice(
    result: dict[str, Any], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = sorted((out / "runs" / "synthetic").iterdir())
    assert [way.name for way in ways] == ["default-box", "default-uniform", "paper-box", "paper-uniform"]
    assert all(check_run(Run.open(way)).verdict == "passed" for way in ways)
    for name in ("synthetic.train", "certified.run_dataset", "certified.check_run"):
        monkeypatch.setattr(f"elbowroom.paper.{name}", lambda *_, **__: pytest.fail("done already"))
    assert table(synthetic(bench(out, 120), side=80, draw=False)) == table(result)
