"""Runs along directions that are found: one basis for all parts and workers, kept when a run is resumed."""

import dataclasses
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.network.operations import Linear
from elbowroom.runs import directions
from elbowroom.runs.runner import Outcome, run_dataset
from elbowroom.runs.settings import Settings
from forgery import edit_archive, reseal
from runs.small import assert_same_rows, dataset, labels_for, network, points

NET = network(sizes=(4, 8, 3))
X = points(9, n=4)
LABELS = labels_for(NET, X, wrong=(3,))
DATA = dataset(X, LABELS)


def run(out: Path, data: Any = DATA, more: Any = None, **given: Any) -> Outcome:
    told = {"part_rows": 3, "device": "cpu", "region": "oblique", "max_eps": 2.0, **given}
    return run_dataset(NET, data, out, Settings.of(told), **(more or {}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("turned") / "whole").run.folder


def test_all_parts_have_the_directions_of_the_whole_data_set(whole: Path) -> None:
    certs = er.Certificates.load(whole)
    assert certs.certified.sum() == 8 and bool(er.check(certs)) and certs.shape == "Oblique(Box)"
    alone = er.certify(NET, X, LABELS, region=er.Oblique("auto"), max_eps=2.0)
    assert torch.equal(certs.basis, alone.basis)
    torch.testing.assert_close(certs.eps, alone.eps, rtol=1e-4, atol=0)
    assert any("found from 9 of the 9 inputs of points" in note for note in Run.open(whole).plan.notes)
    few = run(whole.parent / "few", indices=[4, 5]).run.folder  # directions are those of all inputs
    assert torch.equal(er.Certificates.load(few).basis, certs.basis)


def test_an_interrupted_run_goes_on_along_its_own_directions(whole: Path, tmp_path: Path, monkeypatch: Any) -> None:
    asked = iter([False, True])
    assert not run(tmp_path, more={"stop": lambda: next(asked)}).complete
    first = Run.open(tmp_path).shared["basis"].clone()

    def not_again(*_: Any) -> None:
        raise AssertionError("directions were looked for again")

    monkeypatch.setattr(sys.modules["elbowroom.certify.oblique"], "found_directions", not_again)
    assert run(tmp_path, more={"resume": True}).complete
    assert torch.equal(first, Run.open(tmp_path).shared["basis"])
    assert_same_rows(er.Certificates.load(tmp_path), er.Certificates.load(whole))
    assert bool(er.check(er.Certificates.load(tmp_path)))


def test_workers_share_them(whole: Path, tmp_path: Path) -> None:
    assert run(tmp_path, workers=2, threads=1).complete
    found = er.Certificates.load(tmp_path)
    assert torch.equal(found.basis, er.Certificates.load(whole).basis) and bool(er.check(found))
    assert_same_rows(found, er.Certificates.load(whole))


def test_a_run_of_something_else_is_not_resumed(whole: Path, tmp_path: Path) -> None:
    asked = iter([False, True])
    run(tmp_path, more={"stop": lambda: next(asked)})
    for changed in ({"region": "box"}, {"max_eps": 1.0}, {"frozen": ["1"]}):
        with pytest.raises(InputError, match=f"was begun with something else: {next(iter(changed))}"):
            run(tmp_path, more={"resume": True}, **changed)
    with pytest.raises(InputError, match="was begun with something else: other data"):
        run(tmp_path, dataset(X + 1, LABELS, name="others"), more={"resume": True})
    with pytest.raises(InputError, match="already holds a run"):
        run(tmp_path)


def test_a_run_with_a_forged_basis_proves_nothing_else(whole: Path, tmp_path: Path) -> None:
    """Whatever the file holds is refused as no basis, or is what regions lie along, and are proved along."""
    asked = iter([False, True])
    run(tmp_path, more={"stop": lambda: next(asked)})

    def replaced(basis: Any) -> None:
        def change(entries: dict[str, bytes]) -> None:
            file = io.BytesIO()
            np.save(file, np.ascontiguousarray(basis, "<f8"))
            entries["basis.npy"] = file.getvalue()

        edit_archive(tmp_path / "shared.npz", change)
        reseal(tmp_path)

    own = Run.open(tmp_path).shared["basis"].numpy().copy()
    replaced(0.5 * own)
    assert not er.check(er.Certificates.load(tmp_path)).passed.any()
    with pytest.raises(InputError, match="basis must be orthogonal"):
        run(tmp_path, more={"resume": True})
    replaced(np.eye(4))
    assert run(tmp_path, more={"resume": True}).complete
    certs = er.Certificates.load(tmp_path)
    assert torch.equal(certs.basis, torch.eye(4).double())
    report = er.check(certs)
    assert not report.passed[:3].all() and report.passed[4:].all()  # those that were found along other directions


def test_features_of_a_table_keep_their_units(tmp_path: Path) -> None:
    """A column in thousandths of what it was: the same regions, in shares."""
    unit = np.array([1.0, 1000.0, 0.01, 1.0])
    x = np.concatenate([X, points(8, seed=5, n=4)])
    names: dict[str, Any] = {"features": ("a", "b", "c", "d")}
    net = dataclasses.replace(NET.about, features=names["features"])
    plain = er.Network(NET.nodes, NET.decision, net)
    first, *rest = NET.nodes[1:]
    assert isinstance(first.op, Linear)
    scaled_op = Linear(first.op.weight / torch.from_numpy(unit), first.op.bias)
    scaled = er.Network(
        (NET.nodes[0], dataclasses.replace(first, op=scaled_op), *rest), NET.decision, net
    )  # fmt: skip
    found = {}
    for key, own, data in (("plain", plain, x), ("scaled", scaled, x * unit)):
        told = Settings.of({"device": "cpu", "region": "oblique:auto", "predicted": True, "precision": "float64"})
        run_dataset(own, dataset(data, **names), tmp_path / key, told)
        found[key] = er.Certificates.load(tmp_path / key)
        assert bool(er.check(found[key])) and found[key].certified.all()
    settings = Run.open(tmp_path / "scaled").plan.settings
    widths = (x * unit).max(0) - (x * unit).min(0)
    assert settings["region"] == "oblique" and set(settings["max_eps"]) == {"*"}
    assert settings["max_eps"]["*"] == pytest.approx(np.exp(np.log(widths).mean()))
    difference = found["scaled"].log_volume - found["plain"].log_volume
    torch.testing.assert_close(difference, torch.full_like(difference, np.log(unit).sum()), rtol=0, atol=1e-2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"importance": ["0=2"]}, "importance is about features"),
        ({"max_eps": ["0=2"]}, "max_eps must be one number for all directions"),
        ({"objective": "smallest"}, "is about boxes along the axes"),
    ],
)
def test_what_is_refused(given: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        run(tmp_path / "none", **given)
    assert not (tmp_path / "none").exists()


def test_names_of_the_shape() -> None:
    assert Settings.of({"region": "oblique:auto"}).region == "oblique"
    with pytest.raises(InputError, match=r"region must be one of .*oblique"):
        Settings.of({"region": "oblique:other"})
    assert directions.SAMPLE == 1000
