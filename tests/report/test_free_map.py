"""Pictures of explanations: what they mark is what the certificates say, and nothing is drawn of what has none."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.certificates.result import NEEDED, UNDECIDED, Certificates
from elbowroom.report.plot import free_map
from elbowroom.runs.one_input import FREE, NEEDS, OPEN, states_of
from support import mlp

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def certs() -> Certificates:
    net = mlp(np.random.default_rng(0), [6, 10, 3])
    x = torch.from_numpy(np.random.default_rng(1).uniform(0.1, 0.9, size=(3, 6)))
    found = er.certify(net, x, objective="free", domain=(0, 1), effort=50)
    assert found.certified.any()
    return found


def test_marks_are_what_the_certificates_say(certs: Certificates, tmp_path: Path, monkeypatch: Any) -> None:
    drawn: list[Any] = []

    def kept(path: Path, size: Any, draw: Any) -> tuple[Path, ...]:
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        drawn.append(figure)
        return (path,)

    monkeypatch.setattr(free_map, "save", kept)
    row = int(certs.certified.nonzero()[0])
    assert certs.kept is not None
    forms = certs.kept.clone()
    held = (certs.eps[row] == 0).nonzero().flatten()
    forms[row, held[0]], forms[row, held[1:]] = NEEDED, UNDECIDED
    certs = dataclasses.replace(certs, kept=forms)
    free_map.free_maps(tmp_path / "a.png", certs, [row], (2, 3))
    marked = drawn[0].axes[1]
    places = [tuple(map(int, xy)) for marks in marked.collections for xy in marks.get_offsets()]
    wanted = [divmod(int(k), 3)[::-1] for k in held]
    assert sorted(places) == sorted(wanted)  # one mark for each that stays, none for those that are free
    count = [states_of(certs, row).count(s) for s in (FREE, NEEDS, OPEN)]
    assert marked.get_xlabel() == f"{count[0]} free, {count[1]} needed, {count[2]} not decided"


def test_a_file_is_written(certs: Certificates, tmp_path: Path) -> None:
    row = int(certs.certified.nonzero()[0])
    assert free_map.free_maps(tmp_path / "a.png", certs, [row], (2, 3), ["one"])[0].stat().st_size > 1000


def test_what_cannot_be_drawn(certs: Certificates, tmp_path: Path) -> None:
    row = int(certs.certified.nonzero()[0])
    with pytest.raises(er.InputError, match="6 features are no image of 2 x 2"):
        free_map.free_maps(tmp_path / "a.png", certs, [row], (2, 2))
    none = dataclasses.replace(certs, status=("error",) * 3)
    with pytest.raises(er.InputError, match=f"row {row} has no certificate"):
        free_map.free_maps(tmp_path / "a.png", none, [row], (2, 3))
    boxes = dataclasses.replace(certs, kept=None)
    with pytest.raises(er.InputError, match='not of objective="free"'):
        free_map.free_maps(tmp_path / "a.png", boxes, [row], (2, 3))
