"""What a run found, in numbers and in words."""

import dataclasses
import io
import json
import math
import os
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.arguments.features import feature_titles
from elbowroom.certificates.header import Plan
from elbowroom.certificates.lock import locked
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.machine import meter as meters
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network, Origin
from elbowroom.network.table import Column, Table
from elbowroom.report import progress
from elbowroom.report import runs as show
from elbowroom.report.digits import at_least, at_most, between, near, where_open
from elbowroom.runs.one_input import input_of, one_input
from elbowroom.runs.runner import Start, run_dataset
from elbowroom.runs.settings import Settings
from elbowroom.runs.status import status_of
from elbowroom.runs.summary import Found, Tally, cap_in_words, found_by, summarise, summary_of
from elbowroom.search.regions.base import Region
from runs.small import dataset, labels_for, network, points

NET = network()
NAMED = Network(NET.nodes, NET.decision, About(("age [a]", "income\x1b[31m"), ("low", "middle", "high")))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """16 inputs: one wrong, one no number, one outside the domain, one unreadable."""
    x = points(16)
    labels = labels_for(NET, x, wrong=(2,))
    x[4, 0], x[6, 0], x[7] = np.nan, 5.0, np.nan
    data = dataset(
        x, labels, features=NAMED.about.features, classes=NAMED.about.classes, ids=lambda k: f"row {k}",
        fault=lambda k: "not \x07 readable" if k == 7 else None,
    )  # fmt: skip
    given = Settings.of({"part_rows": 6, "domain": [-2, 2], "max_eps": 0.5, "device": "cpu"})
    folder = tmp_path_factory.mktemp("show") / "run"
    return run_dataset(NAMED, data, folder, given).run


def test_numbers(finished: Run) -> None:
    certs = er.Certificates.load(finished.folder)
    found = summary_of(finished)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    good = certs.certified
    assert found["status"] == {"certified": 12, "misclassified": 1, "not_certified": 0, "nonfinite": 1, "error": 2}
    assert found["accuracy"] == pytest.approx(12 / 13)
    assert found["size"] == pytest.approx(float(certs.geomean[good].mean()))
    uniform = er.certify(NET, certs.x[good], certs.labels[good], er.Uniform(), domain=(-2, 2), max_eps=0.5)
    assert found["uniform_size"] == pytest.approx(float(uniform.geomean.mean()), rel=1e-3)
    assert found["ratio_of_sizes"] == pytest.approx(found["size"] / found["uniform_size"])
    ratios = certs.ratio[good].numpy()
    assert found["ratios"]["50%"] == pytest.approx(np.median(ratios)) and found["ratios"]["100%"] == ratios.max()
    assert sum(found["histogram"]["counts"]) == 12
    assert found["cap"] == "max_eps 0.5 and the domain [-2, 2]"
    assert found["capped_share"] == pytest.approx(float(certs.capped[good].double().mean()))
    assert found["complete"] and found["inputs"] == found["done"] == 16
    assert [e["input"] for e in found["examples"]["error"]] == [6, 7]


def test_words(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    show.show_summary(summary_of(finished))
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[0].split() == ["accuracy", "uniform", "size", "size", "ratio", "of", "sizes", "certified"]
    assert lines[1].split()[0] == "92.31%" and lines[1].endswith("12 of 16")
    assert "cap on eps: max_eps 0.5 and the domain [-2, 2]; " in said
    assert "misclassified: 1" in said and "    input 2: the network decides" in said
    assert "    input 7: not \\x07 readable" in said
    assert said.count("#") > 12 and all(c.isprintable() or c == "\n" for c in said)


def test_examples_are_few() -> None:
    tally = Tally()
    certs = er.certify(NET, points(9), (labels_for(NET, points(9)) + 1) % 3)
    tally.add(certs)
    assert [k for k, _ in tally.examples["misclassified"]] == [0, 1, 2]
    found = summarise(tally, Plan(9, 9), Found("Box", "half-width", "Box", None, False, []))
    assert found["ratio_of_sizes"] is None and found["ratios"] is None and found["uniform_size"] is None
    assert found["accuracy"] == 0 and found["cap"] == "not stated"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "1000 uniform radii"),
        ({"max_eps": {"*": 0.25, "3": 1}}, "max_eps 0.25 (feature 3: 1)"),
        ({"domain": {"*": [0, None]}}, "the domain [0, inf]"),
        ({"domain": {"1": [0, 1], "2": [None, 3]}}, "the domain (feature 1: [0, 1], feature 2: [-inf, 3])"),
    ],
)
def test_caps(settings: dict[str, dict[str, Any]], words: str) -> None:
    assert cap_in_words(Settings.of(settings).plain()) == words


def test_extents_are_called_what_they_are(tmp_path: Path) -> None:
    """Semi-axes are no half-widths of a box: one word says what all the numbers are."""
    x, alone = torch.zeros(1, 2, dtype=torch.float64), "reach along the axis alone"
    for region, word in ((er.Box(), "half-width"), (er.Ellipsoid(), "semi-axis"), (er.L1(), alone)):
        certs = er.certify(network(sizes=(2, 4, 2)), x, region=region, solver=er.Sequential(gradients=1))
        found = one_input(Run.open(certs.save(tmp_path / word)), 0)
        assert found["extent"] == word
        assert sorted(f["extent"] for f in found["features"]) == sorted(certs.eps[0].tolist())
        assert not any("half" in name for f in found["features"] for name in f)


def test_one_input(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    certs = er.Certificates.load(finished.folder)
    found = one_input(finished, 8)
    assert found["name"] == "row 8" and found["status"] == "certified" and found["class"] in ("low", "middle", "high")
    extents = [f["extent"] for f in found["features"]]
    assert extents == sorted(extents) == sorted(certs.eps[8].tolist())
    first = found["features"][0]
    k = first["number"]
    assert (first["lower"], first["value"], first["upper"]) == tuple(
        float(t[8, k]) for t in (certs.lower, certs.x, certs.upper)
    )
    show.show_input(found, 20)
    said = capsys.readouterr().out
    assert said.startswith("input 8 (row 8): certified\nlabel that stays: ")
    assert "age [a]" in said and "income\\x1b[31m" in said and "\x1b" not in said
    assert all(end in said for end in between(first["lower"], first["upper"]))
    assert at_most(first["extent"]) in said
    assert said.splitlines()[-1].startswith("elbowroom check proves this again; stated by the run, and not proved: ")
    show.show_input(found, 1)
    assert "... and 1 more feature with more room" in capsys.readouterr().out


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """6 inputs, one of them wrong, with counterexamples."""
    labels = labels_for(NET, points(6), wrong=(2,))
    given = Settings.of({"part_rows": 4, "reach": True, "max_eps": 0.5, "device": "cpu"})
    folder = tmp_path_factory.mktemp("reached") / "run"
    return run_dataset(NET, dataset(points(6), labels), folder, given).run


def test_the_median_of_counterexamples(reached: Run, capsys: pytest.CaptureFixture[str]) -> None:
    certs, found = er.Certificates.load(reached.folder), summary_of(reached)
    assert certs.reach is not None and bool(er.check(certs))
    scales = sorted(certs.reach[certs.certified].tolist())
    assert len(scales) == 5 and found["reach"] == {"found": 5, "median": scales[2]}
    show.show_summary(found)
    said = capsys.readouterr().out
    median = at_least(scales[2], 4)
    assert (
        f"counterexamples: found beyond 5 of 5 regions, as they are scaled up; in the median at {median} times" in said
    )
    assert float(median) >= scales[2] and json.loads(json.dumps(found, allow_nan=False)) == found
    tally = Tally()
    tally.add(dataclasses.replace(certs, reach=torch.full_like(certs.reach, math.inf)))
    none = summarise(tally, reached.plan, found_by(reached))
    assert none["reach"] == {"found": 0, "median": None}
    show.show_summary(none)
    assert "counterexamples: found beyond 0 of 5 regions, as they are scaled up\n" in capsys.readouterr().out


def test_what_is_open_is_said_face_by_face(reached: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a counterexample is near, or the domain ends, nothing is open; else what lies between, or all beyond."""
    certs = er.Certificates.load(reached.folder).rows(1, 2)
    assert certs.lower is not None and certs.upper is not None
    wide = certs.upper - certs.lower
    near = {"seen_lower": certs.lower - 0.04 * wide, "seen_upper": certs.upper + 0.04 * wide}
    features = input_of(dataclasses.replace(certs, **near), 0, 1, None)["features"]
    assert features and all(f["open_below"] is None and f["open_above"] is None for f in features)
    # Of the first feature there is one too far below, of the second none above; then the domain ends before and there.
    lower, upper = certs.lower.flatten().tolist(), certs.upper.flatten().tolist()
    far = {name: t.clone() for name, t in near.items()}
    far["seen_lower"][0, 0], far["seen_upper"][0, 1] = lower[0] - 0.3 * wide[0, 0], math.inf
    domain = {"lowest": certs.lower - 0.1 * wide, "highest": certs.upper.clone()}
    beyond = dataclasses.replace(certs, lowest=None, highest=None, **far)
    for told, least, above in (
        (beyond, float(far["seen_lower"][0, 0]), [upper[1], None]),
        (dataclasses.replace(beyond, **domain), float(domain["lowest"][0, 0]), None),
    ):
        found = input_of(told, 0, 1, None)
        said = {f["number"]: (f["feature"], f["open_below"], f["open_above"]) for f in found["features"]}
        assert said[0][1:] == ([least, lower[0]], None) and said[1][1:] == (None, above)
        show.show_input(found, 20)
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert "open, wider than 5 % of the range: nothing proved nor found, all others staying in theirs," in lines
        between_ = "between {} and {}".format(*between(least, lower[0]))
        assert f"{said[0][0]}: {between_}" in lines and f"nothing proved nor found {between_}" in told.explain(0)
        assert (f"{said[1][0]}: {where_open(upper[1], None, upper[1] - lower[1])}" in lines) == (above is not None)
        assert "features: open_below" in found["stated"] and json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("at", [0.0, 1013.249549, -1000001.2389, 3e-7])
@pytest.mark.parametrize("width", [1e-4, 0.31, 25.0])
def test_what_is_said_to_be_open_is_open(at: float, width: float) -> None:
    """Rounded inwards, in as many digits as tell it from the range beside it."""
    for low, high in ((at, at + width), (at - width, at), (at, None), (None, at)):
        said = [float(word) for word in where_open(low, high, width).split() if word[-1].isdigit()]
        assert len(said) == 2 - (low is None) - (high is None)
        for end, text in zip((end for end in (low, high) if end is not None), said):
            assert abs(text - end) <= 0.011 * width
            assert text >= end if end == low else text <= end


def test_the_counterexample_of_one_input(
    reached: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    certs, found = er.Certificates.load(reached.folder), one_input(reached, 1)
    assert certs.reach is not None and certs.seen is not None and certs.seen_upper is not None
    assert found["counterexample"] == {"reach": float(certs.reach[1]), "point": certs.seen[1].tolist()}
    first = found["features"][0]
    assert first["seen_upper"] in (None, float(certs.seen_upper[1, first["number"]]))
    show.show_input(found, 20)
    said = capsys.readouterr().out
    assert f"the decision changes at {at_least(float(certs.reach[1]), 4)} times this region" in said
    seen = [f[end] for f in found["features"] for end in ("seen_lower", "seen_upper") if f[end] is not None]
    assert seen and "seen below" in said and "seen above" in said
    assert said.splitlines()[-1].endswith("ratio, margin, what was seen beyond single features and marks of caps")
    show.show_input({**found, "counterexample": {"reach": None, "point": None}, "conditions": 2}, 20)
    said = capsys.readouterr().out
    assert "no counterexample found, " in said and "that no counterexample was found" in said.splitlines()[-1]
    show.show_input({**found, "conditions": 2}, 20)
    assert "the specification fails at " in capsys.readouterr().out
    wrong = one_input(reached, 2)
    assert wrong["status"] == "misclassified" and wrong["counterexample"] is None
    show.show_input(wrong, 20)
    assert "counterexample" not in capsys.readouterr().out


def test_inputs_without_a_certificate(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    show.show_input(one_input(finished, 7), 20)
    assert capsys.readouterr().out.startswith("input 7 (row 7): error\nnot \\x07 readable\nlabel: ")
    with pytest.raises(InputError, match=r"has no certificate of input 16$"):
        one_input(finished, 16)


def test_frozen_features_come_last(tmp_path: Path) -> None:
    run_dataset(NET, dataset(points(2)), tmp_path, Settings.of({"frozen": ["0"], "device": "cpu"}))
    found = one_input(Run.open(tmp_path), 1)
    assert [f["number"] for f in found["features"]] == [1, 0]
    assert found["features"][1]["extent"] == 0


@pytest.mark.parametrize("region", [er.Ellipsoid(), er.Oblique(torch.eye(2))])
def test_saved_certificates_of_other_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str], region: Region) -> None:
    er.certify(NET, points(3), region=region).save(tmp_path)
    run = Run.open(tmp_path)
    show.show_summary(summary_of(run))
    show.show_input(one_input(run, 2), 5)
    said = capsys.readouterr().out
    assert "cap on eps: not stated" in said and "input 2: certified" in said
    assert ("feature 0" if region.basis is None else "direction 0") in said
    assert (" from " in said) == (
        region.basis is not None
    )  # a rotated box has ends in its directions, an ellipsoid has none


def test_coordinates_along_directions(tmp_path: Path) -> None:
    """A row belongs to a direction of the basis, a column, and so does its value."""
    basis = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    x = points(2)
    er.certify(NET, x, region=er.Oblique(basis)).save(tmp_path)
    found = one_input(Run.open(tmp_path), 1)
    values = {f["feature"]: f["value"] for f in found["features"]}
    assert values == pytest.approx({f"direction {k}": float(x[1] @ basis[:, k].numpy()) for k in range(2)})


def test_directions_of_a_table_are_not_called_by_its_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor are their extents in the units of columns."""
    table = Table((Column("age", unit="years"), Column("income", unit="EUR")))
    net = Network(NET.nodes, NET.decision, About(features=table.entries, table=table))
    er.certify(net, torch.from_numpy(points(2)), region=er.Oblique("auto"), max_eps=1.0).save(tmp_path)
    found = one_input(Run.open(tmp_path), 1)
    assert {f["feature"] for f in found["features"]} == {"direction 0", "direction 1"}
    show.show_input(found, 10)
    said = capsys.readouterr().out
    assert "direction k: column k of the run's basis" in said and "age" not in said and "EUR" not in said


def test_ends_along_directions(tmp_path: Path) -> None:
    """Between them each direction may move whatever the others do; the input need not be in the middle."""
    basis = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    certs = er.certify(NET, points(4), region=er.Oblique(basis, er.Box(asymmetric=True)))
    certs.save(tmp_path)
    assert certs.certified.all() and bool((certs.center != certs.x).any())
    for k in range(4):
        features = sorted(one_input(Run.open(tmp_path), k)["features"], key=lambda f: f["number"])
        lower, upper = (torch.tensor([f[end] for f in features], dtype=torch.float64) for end in ("lower", "upper"))
        torch.testing.assert_close((lower + upper) / 2, certs.center[k] @ basis)
        torch.testing.assert_close((upper - lower) / 2, certs.eps[k])
        share = torch.rand(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(k)).round()
        decided = NET.decide(NET((lower + share * (upper - lower)) @ basis.T))
        assert (decided == certs.labels[k]).all()


def test_the_origin_is_told_as_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    origin = Origin(
        "model.onnx", "ab" * 32, {"input_shape": [2], "mean": [0.5, 0.25], "decision": "max"}, ("compared",)
    )
    net = Network(NET.nodes, NET.decision, About(notes=("a softmax was left off",), origin=origin))
    er.certify(net, points(3)).save(tmp_path)
    run = Run.open(tmp_path)
    told = "model.onnx (sha256 abababababab), with mean 0.5,0.25, decision max\n  a softmax was left off\n  compared\n"
    show.show_status(status_of(run))
    assert f"origin (as the run states it): {told}" in capsys.readouterr().out
    show.show_summary(summary_of(run))
    assert capsys.readouterr().out.endswith(f"and its origin:\n  {told}")
    assert summary_of(run)["origin"][1:] == ["a softmax was left off", "compared"]


def test_what_a_run_states_of_itself_can_be_printed(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of data are text from a file like any other."""
    data = {**finished.plan.data, "name": "data\x1b[2J"}
    show.show_status(status_of(dataclasses.replace(finished, plan=dataclasses.replace(finished.plan, data=data))))
    assert "data: data\\x1b[2J\n" in capsys.readouterr().out


def test_specifications_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, x = NET, torch.from_numpy(points(2))
    for spec, words in (
        (er.outputs_within(net(x), 5.0), "what holds: 6 conditions on the outputs"),
        (er.label_in([0, 1], 3), "what holds: 1 condition on the outputs"),
    ):
        certs = er.certify(net, x, spec=spec)
        certs.save(tmp_path)
        k = int(certs.certified.nonzero()[0])
        show.show_input(one_input(Run.open(tmp_path), k), 5)
        said = capsys.readouterr().out
        assert words in said and "label" not in said


def test_execution_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    er.certify(NET, points(2), deployed="float32").save(tmp_path)
    run = Run.open(tmp_path)
    show.show_summary(summary_of(run))
    assert "region Box, for the network as executed in float32; sizes" in capsys.readouterr().out
    show.show_input(one_input(run, 0), 5)
    assert ", for the network as executed in float32\n" in capsys.readouterr().out


def test_printed_numbers_are_rounded_inwards() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        low = float(rng.normal() * 10.0 ** rng.integers(-8, 8))
        high = low + abs(low) * float(10.0 ** rng.uniform(-12, 2))
        ends = between(low, high)
        assert Decimal(low) <= Decimal(ends[0]) <= Decimal(ends[1]) <= Decimal(high)
        assert Decimal(ends[1]) - Decimal(ends[0]) >= Decimal("0.989") * (Decimal(high) - Decimal(low))
        assert Decimal(at_most(low)) <= Decimal(low) < Decimal(at_most(low)) + abs(Decimal(low)) * Decimal("2e-5")
        assert abs(float(near(low, high - low)) - low) <= 0.01 * (high - low)
    assert between(0.5, 0.5) == ("0.5", "0.5") and near(1 / 3, 0.0) == "0.333333" and at_most(0.3) == "0.299999"
    assert (
        between(1 / 3, 1 / 3) == ("0.333333", "0.333333") and at_most(math.nan) == "nan" and at_most(math.inf) == "inf"
    )


@pytest.mark.parametrize(
    ("region", "head", "sizes"),
    [
        ("box", "half-width", "half-widths"),
        ("uniform", "half-width", "half-widths"),
        ("ellipsoid", "semi-axis", "semi-axes"),
        ("l1", "reach alone", "reaches along the axes"),
    ],
)
def test_extents_have_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], region: str, head: str, sizes: str
) -> None:
    given = Settings.of({"region": region, "domain": [-2, 2], "device": "cpu"})
    run = run_dataset(NET, dataset(points(2)), tmp_path, given).run
    show.show_summary(summary_of(run))
    said = capsys.readouterr().out
    assert f"geometric mean of an input's {sizes}, then" in said
    cut = head == "half-width"
    assert ("may stick out of the domain; they are certified whole" in said) == (not cut)
    show.show_input(one_input(run, 1), 5)
    said = capsys.readouterr().out
    assert head in said and f"geometric mean of the {sizes} " in said
    assert ("how far it may move while all others stay" in said) == (not cut) == ("half" not in said)


def test_what_accuracy_leaves_out_is_said(tmp_path: Path, finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    show.show_summary(summary_of(finished))
    assert "accuracy: of the 13 inputs that could be tried; 3 could not (see below)" in capsys.readouterr().out
    whole = run_dataset(NET, dataset(points(3), labels_for(NET, points(3))), tmp_path, Settings(device="cpu")).run
    show.show_summary(summary_of(whole))
    said = capsys.readouterr().out
    assert "100.00%" in said and "accuracy: " not in said


def test_names_of_places() -> None:
    def names(shape: tuple[int, ...]) -> list[str]:
        return feature_titles(Network.chain(shape, [ops.Reshape((math.prod(shape),))]))

    assert names((3,)) == ["feature 0", "feature 1", "feature 2"]
    assert names((2, 2)) == ["row 0, column 0", "row 0, column 1", "row 1, column 0", "row 1, column 1"]
    assert names((1, 1, 2)) == ["row 0, column 0", "row 0, column 1"]
    assert names((2, 1, 1)) == ["channel 0, row 0, column 0", "channel 1, row 0, column 0"]
    assert len(names((2, 2, 2, 2))) == 16
    assert names((5, 6, 3))[19:21] == ["channel 1, row 1, column 0", "channel 2, row 1, column 0"]  # channels last
    assert names((28, 28, 1))[29] == "row 1, column 1"


def test_status(finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = status_of(finished)
    assert (found["done"], found["inputs"], found["parts_done"], found["complete"]) == (16, 16, 3, True)
    show.show_status(found)
    assert capsys.readouterr().out.endswith("done: 16 of 16 inputs (100%), 3 of 3 parts\ncomplete\n")
    folder = tmp_path / "a b"
    run = run_dataset(
        NET,
        dataset(points(4)),
        folder,
        Settings.of({"part_rows": 2, "device": "cpu", "data": "points.npy"}),
        stop=iter([False, True]).__next__,
    ).run
    show.show_status(status_of(run))
    said = capsys.readouterr().out
    assert "done: 2 of 4 inputs (50%), 1 of 2 parts" in said
    assert said.endswith(f"not running; resume with: elbowroom certify --resume --out '{folder}'\n")
    own = dataclasses.replace(run, plan=dataclasses.replace(run.plan, settings=Settings().stored()))
    assert status_of(own)["resume"] is None
    with locked(folder):
        old = time.time() - 200
        os.utime(folder / "lock", (old, old))
        os.utime(folder / "parts" / "part-00000.parquet", (old - 9, old - 9))
        found = status_of(run)
        assert found["running_seconds"] == pytest.approx(200, abs=5)
        show.show_status(found)
        said = capsys.readouterr().out
        assert "running: process " in said and ": at work on its first part, 3 min so far\n" in said
        os.utime(folder / "parts" / "part-00000.parquet", (old + 110, old + 110))
        show.show_status(status_of(run))
    assert "(3 min): at work, its last part was done 2 min ago\n" in capsys.readouterr().out
    show.show_summary(summary_of(run))
    assert capsys.readouterr().out.startswith("incomplete: 2 of 4 inputs so far\n")
    with pytest.raises(InputError, match="no certificate of input 3, with 2 inputs still to be certified"):
        one_input(run, 3)


# --- the way


def begun(run: Run, right: int | None = None, done: int = 0, domain: tuple[float, float] | None = None) -> Start:
    data = dataset(points(run.plan.inputs), name="points", domain=domain)
    return Start(run, data, "cpu", 1, 1, done, right)


def test_the_introduction(finished: Run) -> None:
    said = "\n".join(progress.introduction(begun(finished, right=8)))
    assert "network: Network(2 -> 3" in said and "the network gets 8 of these 16 right" in said
    assert "the data's labels stay; region box, bounds adaptive, solver sequential" in said
    assert "extents end at max_eps 0.5 and the domain [-2, 2]; on cpu" in said
    assert said.endswith(f"into {finished.folder}: 3 parts of up to 6 inputs")
    assert "5 inputs done already" in progress.introduction(begun(finished, done=5))[-1]


def test_notes_and_domains_are_told(tmp_path: Path) -> None:
    net = Network(NET.nodes, NET.decision, About(notes=("a softmax was left off",)))
    run = run_dataset(net, dataset(points(3)), tmp_path, Settings(device="cpu"), stop=lambda: True).run
    said = "\n".join(progress.introduction(begun(run, domain=(0.0, 1.0))))
    assert "note: a softmax was left off" in said and "what the network decides stays" in said
    assert "regions may leave the data's range [0, 1]; --domain data ends them there" in said


def test_notes_and_warnings_of_a_run_are_told(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    notes = ["note: the columns stand in another order", "warning: hardly \x07 ever right"]
    noted = dataclasses.replace(finished, plan=dataclasses.replace(finished.plan, notes=notes))
    assert progress.warnings(begun(noted)) == notes[1:] and not progress.warnings(begun(finished))
    assert notes[0] in progress.introduction(begun(noted)) and notes[1] not in progress.introduction(begun(noted))
    found = summarise(Tally(), noted.plan, found_by(noted))
    show.show_summary(found)
    assert capsys.readouterr().out.splitlines()[:2] == [notes[0], "warning: hardly \\x07 ever right"]
    assert found["notes"] == notes and summary_of(finished)["notes"] == []


def test_lines(finished: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_EVERY", 0.0)
    watch = progress.display(quiet=False)
    watch.begin(begun(finished, right=8, done=5))
    tally = Tally()
    for k in range(2):
        tally.add(finished.read(k))
        watch.advance(tally)
    watch.end()
    captured = capsys.readouterr()
    assert not captured.out
    last = captured.err.splitlines()[-1]
    assert last.startswith("12 of 16 inputs, ") and " inputs/s, mean ratio " in last and last.endswith(" left")
    assert all(c.isprintable() or c == "\n" for c in captured.err)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(words: str, said: Callable[..., Any]) -> None:
    for _ in range(500):
        if words in said():
            return
        time.sleep(0.01)
    raise AssertionError(said())


def test_lines_while_nothing_is_done(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may take hours: that it is in work is said every minute."""
    monkeypatch.setattr(meters, "_TICK", 0.01)
    monkeypatch.setattr(meters, "_SILENCE", 0.1)
    monkeypatch.setattr(sys, "stderr", screen := io.StringIO())
    watch = progress.display(quiet=False)
    watch.begin(begun(finished))
    wait_for("0 of 16 inputs, first part in work, 0 s so far\n", screen.getvalue)
    tally = Tally()
    tally.add(finished.read(0))
    watch.advance(tally)
    wait_for("6 of 16 inputs, next part in work, 0 s so far\n", screen.getvalue)
    watch.end()
    said = screen.getvalue()
    time.sleep(0.2)
    assert screen.getvalue() == said


def test_lines_are_a_minute_apart(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(meters, "_TICK", 1e9)
    monkeypatch.setattr(meters.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", screen := io.StringIO())
    one = dataclasses.replace(finished, plan=dataclasses.replace(finished.plan, part_rows=1))
    watch = progress.display(quiet=False)
    watch.begin(begun(one))
    for _ in range(185):
        now[0] += 1
        watch._meter.tick()
    watch.end()
    said = [line for line in screen.getvalue().splitlines() if "in work" in line]
    assert said == [f"0 of 16 inputs, first input in work, {k} min so far" for k in (1, 2, 3)]


def test_a_bar_while_nothing_is_done(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_TICK", 0.01)
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    watch = progress.display(quiet=False)
    watch.begin(begun(finished))
    wait_for("first part in work, 0 s so far", screen.getvalue)
    watch.end()


def test_a_bar_where_there_is_a_terminal(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    watch = progress.display(quiet=False)
    watch.begin(begun(finished, right=8))
    tally = Tally()
    tally.add(finished.read(0))
    watch.advance(tally)
    watch.end()
    said = screen.getvalue()
    assert "6/16" in said and "mean ratio" in said and "\x1b" in said


def test_a_meter_of_anything(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_EVERY", 0.0)
    with meters.Meter(4, "epoch", title="training") as meter:
        meter.advance(1)
        meter.add(2)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("training: 1 of 4 epochs, ") and " epochs/s, " in first
    assert second.startswith("training: 3 of 4 epochs, ") and second.endswith(" left")
    with meters.Meter(4, "epoch", quiet=True) as meter:
        meter.advance(4)
    assert not capsys.readouterr().err


def test_a_meter_that_counts_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_TICK", 1e9)
    monkeypatch.setattr(meters, "_SILENCE", 0.0)
    with meters.Meter(None, title="drawing pictures") as meter:
        meter.tick()
    assert capsys.readouterr().err == "drawing pictures: in work, 0 s so far\n"


def test_quiet(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    watch = progress.display(quiet=True)
    watch.begin(begun(finished, right=8))
    watch.advance(Tally())
    watch.end()
    captured = capsys.readouterr()
    assert not captured.out and not captured.err
    plan = dataclasses.replace(finished.plan, notes=["note: a", "warning: b"])
    watch.begin(begun(dataclasses.replace(finished, plan=plan)))
    assert capsys.readouterr().err == "warning: b\n"


def test_durations() -> None:
    assert [meters.in_words(s) for s in (4.2, 59, 75, 3600, 7300)] == ["4 s", "59 s", "1 min", "60 min", "2 h 02 min"]
