"""Two runs compared: what changed, what cannot be compared, and when a gate closes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from certify.test_sets_of_levels import inputs as rows_of_a_table
from certify.test_sets_of_levels import network as network_of_a_table
from commands import good, refused, run
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network
from elbowroom.report.diffs import decided
from elbowroom.runs.diff import diff_of
from elbowroom.runs.limits import judged
from elbowroom.runs.runner import run_dataset
from elbowroom.runs.settings import Settings
from runs.small import dataset, labels_for, network, points

OLD, NEW = network(0, (2, 6, 3)), network(1, (2, 6, 3))
X = points(12)


def made(folder: Path, net: Network, x: np.ndarray = X, labels: np.ndarray | None = None, **settings: Any) -> Run:
    quick = {"solver_options": {"gradients": 1}}
    given = Settings.of({"part_rows": 8, "device": "cpu", "domain": [-2, 2], **quick, **settings})
    return run_dataset(net, dataset(x, labels), folder, given).run


def about(net: Network, **names: Any) -> Network:
    return Network(net.nodes, net.decision, About(**names))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    place = tmp_path_factory.mktemp("diff")
    return made(place / "old", OLD), made(place / "new", NEW)


def test_the_numbers_are_those_of_the_certificates(pair: tuple[Run, Run]) -> None:
    found = diff_of(*pair)
    old, new = (er.Certificates.load(each.folder) for each in pair)
    both = old.certified & new.certified
    assert found["both"] == int(both.sum()) and found["inputs"] == 12 and found["complete"]
    assert [row["input"] for row in found["rows"]] == list(range(12))
    for k, row in enumerate(found["rows"]):
        assert row["old"] == (float(old.geomean[k]) if old.certified[k] else None)
        assert row["changed"] == (row["old_decision"] != row["new_decision"])
        if both[k]:
            assert row["shrink"] == pytest.approx(1 - float(new.geomean[k] / old.geomean[k]))
            assert row["old_decision"] == str(int(old.labels[k]))
    ratios = (new.eps[both] / old.eps[both]).log().mean(0).exp()
    for each in found["features"]:
        assert each["shrink"] == pytest.approx(1 - float(ratios[each["number"]]))
    assert [f["shrink"] for f in found["features"]] == sorted((f["shrink"] for f in found["features"]), reverse=True)
    had = old.certified
    assert found["mean_shrink"] == pytest.approx(1 - float(new.geomean[had].sum() / old.geomean[had].sum()))


def test_a_run_against_itself_is_the_same(pair: tuple[Run, Run]) -> None:
    found = diff_of(pair[0], pair[0])
    assert found["shrunk"] == found["grown"] == found["lost"] == found["gained"] == found["changed"] == 0
    assert found["most_shrink"] == 0 and found["notes"] == []


def test_a_lost_certificate_is_all_of_the_room(tmp_path: Path) -> None:
    labels = labels_for(OLD, X)
    old, new = made(tmp_path / "old", OLD, labels=labels), made(tmp_path / "new", NEW, labels=labels)
    found = diff_of(old, new)
    lost = [row for row in found["rows"] if row["old_status"] == "certified" and row["new_status"] == "misclassified"]
    assert lost and found["lost"] >= len(lost) and all(row["shrink"] == 1 and row["changed"] for row in lost)


def test_inputs_are_matched_by_number_whatever_their_order(pair: tuple[Run, Run], tmp_path: Path) -> None:
    shuffled = made(tmp_path / "new", NEW, shuffle=True, part_rows=3)
    fields = ("old_status", "new_status", "old_decision", "new_decision")
    a, b = diff_of(*pair)["rows"], diff_of(pair[0], shuffled)["rows"]
    assert [[row[f] for f in fields] for row in a] == [[row[f] for f in fields] for row in b]
    some = made(tmp_path / "some", NEW, indices="3-8")
    found = diff_of(pair[0], some)
    assert found["inputs"] == 6 and found["only_old"] == 6 and not found["complete"]
    other = diff_of(some, pair[0])
    assert other["only_new"] == 6 and other["complete"]  # of the old run, nothing is missing


def test_other_inputs_are_refused_by_name(pair: tuple[Run, Run], tmp_path: Path) -> None:
    moved = X.copy()
    moved[7, 1] = np.nextafter(moved[7, 1], 9)
    with pytest.raises(InputError, match=r"input 7 is another one: its 'feature 1' is .* in .*old and .* in .*moved"):
        diff_of(pair[0], made(tmp_path / "moved", NEW, moved))
    nan, other = X.copy(), X.copy()
    nan[0, 0] = np.nan
    same = made(tmp_path / "nan", NEW, nan)
    assert diff_of(same, same)["rows"][0]["old_decision"] is None
    with pytest.raises(InputError, match="no input in common"):
        diff_of(made(tmp_path / "a", OLD, indices="0-2"), made(tmp_path / "b", OLD, other, indices="5-6"))


def test_other_questions_are_refused_by_name(pair: tuple[Run, Run], tmp_path: Path) -> None:
    old = pair[0]
    with pytest.raises(InputError, match=r"are Box, those of .* Ellipsoid"):
        diff_of(old, made(tmp_path / "shape", NEW, region="ellipsoid"))
    with pytest.raises(InputError, match="'feature 0' may move in one of the runs only"):
        diff_of(old, made(tmp_path / "frozen", NEW, frozen=["0"]))
    with pytest.raises(InputError, match="the labels of the data must stay"):
        diff_of(old, made(tmp_path / "labels", NEW, labels=labels_for(NEW, X)))
    with pytest.raises(InputError, match=r"only one of .* is about decisions"):
        diff_of(old, made(tmp_path / "within", NEW, within=0.5))
    with pytest.raises(InputError, match="other inputs"):
        wide = network(sizes=(3, 6, 3))
        diff_of(old, made(tmp_path / "wide", wide, points(12, n=3)))
    named = [
        made(tmp_path / "ab", about(OLD, features=("a", "b"))),
        made(tmp_path / "ba", about(NEW, features=("b", "a"))),
    ]
    with pytest.raises(InputError, match=r"feature 0 is 'a' in .* and 'b' in"):
        diff_of(*named)


def test_what_differs_without_harm_is_noted(pair: tuple[Run, Run], tmp_path: Path) -> None:
    other = made(tmp_path / "other", NEW, domain=[-3, 3], delta=1e-3)
    notes = diff_of(pair[0], other)["notes"]
    assert any("--domain" in note for note in notes) and any("--delta: 0.0, then 0.001" in note for note in notes)
    assert any("other domains" in note for note in notes)
    rounded = X.astype(np.float32).astype(np.float64)  # as the claim about float32 has them
    tied = made(tmp_path / "tied", NEW, rounded, region="uniform", deployed="float32")
    tied = diff_of(made(tmp_path / "plain", OLD, rounded), tied)["notes"]
    assert "regions were searched for as Box, then as Box(uniform)" in tied
    assert "the claims are about the arithmetic of the real numbers, then of float32" in tied


def test_decisions_are_compared_by_the_classes_names(tmp_path: Path) -> None:
    """The same network with its outputs in another order decides as before; without names that cannot be known."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)]
    turned = torch.nn.Linear(8, 3)
    order = [2, 0, 1]
    turned.weight.data, turned.bias.data = layers[2].weight.data[order], layers[2].bias.data[order]
    classes = ("low", "middle", "high")
    nets = [er.load(torch.nn.Sequential(*layers[:2], last), input_shape=(2,)) for last in (layers[2], turned)]
    one = made(tmp_path / "one", about(nets[0], classes=classes))
    two = made(tmp_path / "two", about(nets[1], classes=tuple(classes[k] for k in order)))
    found = diff_of(one, two)
    assert found["changed"] == 0 and found["decided"] == 12 and found["notes"] == []
    bare = diff_of(one, made(tmp_path / "bare", nets[1]))
    assert bare["changed"] == 12 and "by number" in bare["notes"][0]


def test_a_network_that_decides_nothing_any_more_has_changed(pair: tuple[Run, Run], tmp_path: Path) -> None:
    huge = torch.full((6, 2), 1e200, dtype=torch.float64)
    layers = [
        ops.Linear(huge, torch.zeros(6).double()),
        ops.ReLU(),
        ops.Linear(huge.T @ torch.eye(6).double(), torch.zeros(2).double()),
    ]
    found = diff_of(pair[0], made(tmp_path / "overflows", Network.chain((2,), layers)))
    without = [row for row in found["rows"] if row["new_decision"] is None]
    assert without and all(row["changed"] for row in without) and found["changed"] >= len(without)
    assert judged(found, {"max_changed": "0"})[0]["exceeded"]
    assert decided(without[0], " → ").endswith(" → nothing")


def test_certificates_saved_without_data_are_compared(tmp_path: Path) -> None:
    for name, net in (("old", OLD), ("new", NEW)):
        er.certify(net, X, domain=(-2, 2)).save(tmp_path / name)
    found = diff_of(Run.open(tmp_path / "old"), Run.open(tmp_path / "new"))
    assert found["inputs"] == 12 and found["complete"]


def test_numbers_that_stand_twice_are_refused(tmp_path: Path) -> None:
    certs = er.certify(OLD, X[:3])
    dataclasses.replace(certs, index=torch.tensor([4, 5, 4])).save(tmp_path / "run")
    with pytest.raises(InputError, match="input 4 twice"):
        diff_of(Run.open(tmp_path / "run"), Run.open(tmp_path / "run"))


def test_outputs_within_a_tolerance(tmp_path: Path) -> None:
    old, new = (made(tmp_path / name, net, within=0.5) for name, net in (("old", OLD), ("new", NEW)))
    found = diff_of(old, new)
    assert found["changed"] is None and found["both"] == 12
    with pytest.raises(InputError, match="not about decisions"):
        judged(found, {"max_changed": "3"})
    with pytest.raises(InputError, match=r"outputs must stay within 0.5, in .* within 0.25"):
        diff_of(old, made(tmp_path / "other", NEW, within=0.25))


FOUND = {"most_shrink": 0.1, "mean_shrink": -0.5, "lost": 2, "both": 98, "changed": 3, "decided": 100}


@pytest.mark.parametrize(
    ("limit", "text", "exceeded"),
    [
        ("max_shrink", "10%", False), ("max_shrink", "0.1", False), ("max_shrink", "9.99 %", True),
        ("max_mean_shrink", "0%", False), ("max_lost", "2", False), ("max_lost", "1", True), ("max_lost", "2%", False),
        ("max_lost", "1.9%", True), ("max_changed", "0", True), ("max_changed", "3%", False),
    ],
)  # fmt: skip
def test_limits(limit: str, text: str, exceeded: bool) -> None:
    assert [answer["exceeded"] for answer in judged(FOUND, {limit: text})] == [exceeded]


@pytest.mark.parametrize(
    ("limit", "text"),
    [("max_shrink", "10"), ("max_shrink", "-1%"), ("max_shrink", "nan"), ("max_shrink", ""), ("max_lost", "0.5"),
     ("max_lost", "1e3"), ("max_lost", "101%"), ("max_shrink", "1%%")],
)  # fmt: skip
def test_limits_that_mean_nothing_are_refused(limit: str, text: str) -> None:
    with pytest.raises(InputError, match=f"{limit} must be"):
        judged(FOUND, {limit: text})


def test_nothing_to_compare_is_not_fine() -> None:
    assert judged({**FOUND, "most_shrink": None}, {"max_shrink": "1%"})[0]["exceeded"] is None


def test_the_gate(pair: tuple[Run, Run], tmp_path: Path) -> None:
    old, new = (str(each.folder) for each in pair)
    said = good("diff", old, old, "--max-shrink", "0%", "--max-changed", "0").output
    assert "within --max-shrink 0%: the region of an input shrank by 0 %" in said
    closed = run("diff", old, new, "--max-shrink", "1%")
    assert closed.exit_code == 1 and "EXCEEDED --max-shrink 1%" in closed.output
    assert good("diff", old, new).exit_code == 0
    stated = json.loads(run("diff", old, new, "--max-shrink", "1%", "--json").stdout)
    assert stated["exit_status"] == 1 and stated["limits"][0]["exceeded"] and len(stated["rows"]) == 12
    some = made(tmp_path / "some", OLD, indices="3-8")
    short = run("diff", old, str(some.folder), "--max-shrink", "1%")
    assert short.exit_code == 3 and "not compared: 6 inputs of the old run only" in short.output
    assert "--max-shrink must be a share" in refused("diff", old, new, "--max-shrink", "ten")
    (pair[1].folder / "parts" / "part-00001.parquet").rename(tmp_path / "kept")
    assert run("diff", old, new).exit_code == 3 and "incomplete: " in run("diff", old, new).output
    (tmp_path / "kept").rename(pair[1].folder / "parts" / "part-00001.parquet")


def test_levels_of_categories_that_regions_lost_and_gained(tmp_path: Path) -> None:
    net, x = network_of_a_table(1), rows_of_a_table(0, 8)
    certs = er.certify(net, x)
    some = certs.allowed.clone()
    own = er.certify(net, x, frozen=["job", "kind", "size"]).allowed
    smaller = dataclasses.replace(certs, allowed=own, maximal=certs.maximal & False)
    row = next(k for k in range(8) if bool(certs.certified[k]) and bool((some[k] & ~own[k]).any()))
    folders = [each.save(tmp_path / name) for each, name in ((certs, "old"), (smaller, "new"))]
    found = diff_of(*map(Run.open, folders))
    wider = {f["feature"]: f["levels"].split(" | ") for f in certs[row].certificates.to_arrow().to_pylist()}
    alone = {f["feature"]: f["levels"].split(" | ") for f in smaller[row].certificates.to_arrow().to_pylist()}
    expected = {name: [level for level in wider[name] if level not in alone[name]] for name in ("job", "kind", "size")}
    lost = {each["feature"]: each["levels"] for each in found["rows"][row]["levels_lost"]}
    assert lost == {name: levels for name, levels in expected.items() if levels} != {}
    assert found["levels_lost"] == int((some & ~own).any(1).sum()) and found["levels_gained"] == 0
    back = diff_of(*map(Run.open, reversed(folders)))
    assert back["levels_gained"] == found["levels_lost"] and back["levels_lost"] == 0
    said = run("diff", *folders, "--max-levels-lost", "0")
    assert said.exit_code == 1 and "regions lost levels for" in said.stdout and " without " in said.stdout
    assert "EXCEEDED --max-levels-lost 0" in said.stdout
    assert run("diff", *reversed(folders), "--max-levels-lost", "0").exit_code == 0
