"""The figure of appendix B: written, and right."""

from pathlib import Path

import pytest

from elbowroom.errors import InputError
from elbowroom.paper.toy_bounds import SETTINGS, toy_bounds

pytest.importorskip("matplotlib")


def test_boxes_hold_every_sampled_output(tmp_path: Path) -> None:
    result = toy_bounds(tmp_path / "figure", seeds=6, side=41)
    assert [f.suffix for f in result.files] == [".png", ".svg"]
    assert all(f.stat().st_size > 10_000 for f in result.files)
    assert [(p.width, p.eps) for p in result.panels] == list(SETTINGS)
    for panel in result.panels:
        outputs = panel.outputs.reshape(-1, 2)
        for box in panel.boxes.values():
            assert bool((outputs >= box[0] - 1e-12).all()) and bool((outputs <= box[1] + 1e-12).all())
        # The combined box is never outside the simple one, at any of its ends.
        simple, combined = panel.boxes["simple"], panel.boxes["combined"]
        assert bool((combined[0] >= simple[0] - 1e-12).all()) and bool((combined[1] <= simple[1] + 1e-12).all())
    a, b, c = (panel.areas for panel in result.panels)
    assert b["simple"] / b["combined"] > 2 * a["simple"] / a["combined"]  # wider layers hurt the simple bounds
    assert c["quadratic"] / c["combined"] > b["quadratic"] / b["combined"] > 1  # larger budgets the quadratic ones


def test_the_table(tmp_path: Path) -> None:
    found = toy_bounds(tmp_path, seed=1, seeds=3, side=9)
    assert "2-10-10-2, ε = 0.2" in found.table() and "quad.>simple" in found.table()
    assert found.files[1].name == "toy-bounds.svg"


def test_same_seed_same_picture(tmp_path: Path) -> None:
    first, second = (toy_bounds(tmp_path / name, seeds=0, side=9) for name in ("a", "b"))
    assert first.files[1].read_bytes() == second.files[1].read_bytes()


def test_a_dead_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="choose another"):
        toy_bounds(tmp_path, seed=52, seeds=0, side=3)
