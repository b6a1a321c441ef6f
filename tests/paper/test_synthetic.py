"""The synthetic experiment, with less training: boxes hold one label, and non-uniform ones are larger."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from elbowroom.errors import InputError
from elbowroom.paper.synthetic import METHODS, grid_violations, main, synthetic, table

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return synthetic(tmp_path_factory.mktemp("synthetic"), epochs=120, side=80)


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
        synthetic(tmp_path, epochs=1, n_points=400)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--out", str(tmp_path), "--epochs", "60"])
    printed = capsys.readouterr().out
    assert "fresh points" in printed and "synthetic.svg" in printed
