"""elbowroom alone, safe and accuracy, as they are called."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import elbowroom as er
from commands import good, refused, run
from elbowroom.network.graph import About
from support import mlp

NAMES = ("temp", "pressure", "flow")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and a table whose columns stand in another order, with a label, and one row without a number."""
    folder = tmp_path_factory.mktemp("work")
    net = mlp(np.random.default_rng(0), [3, 8, 2])
    er.save_network(
        er.Network(net.nodes, net.decision, About(features=NAMES, classes=("no", "yes"))), folder / "net.elbowroom"
    )
    x = np.random.default_rng(1).normal(size=(8, 3)).round(3)
    labels = ["yes" if k else "no" for k in net.decide(net(torch.from_numpy(x))).tolist()]
    lines = ["flow,label,temp,pressure", *(f"{r[2]},{l},{r[0]},{r[1]}" for r, l in zip(x.tolist(), labels))]
    lines[8] = lines[8].replace(str(x[7, 0]), "")
    (folder / "x.csv").write_text("\n".join(lines) + "\n")
    return folder / "net.elbowroom", folder / "x.csv"


def inputs(files: tuple[Path, Path]) -> tuple[er.Network, torch.Tensor]:
    rows = [line.split(",") for line in files[1].read_text().split()[1:]]
    return er.load(files[0]), torch.tensor(
        [[float(r[2] or "nan"), float(r[3]), float(r[0])] for r in rows], dtype=torch.float64
    )


def test_alone(files: tuple[Path, Path]) -> None:
    given = (*files, "--label-column", "label", "--index", 3, "--domain", "-3,3")
    found = json.loads(good("alone", *given, "--json").stdout)
    net, x = inputs(files)
    own = er.alone(net, x[3:4], domain=(-3, 3))
    assert found["input"] == 3 and found["status"] == "answered" and len(found["features"]) == 3
    shares = [f["share"] for f in found["features"]]
    assert shares == sorted(shares)
    for f in found["features"]:
        k = NAMES.index(f["name"])
        assert f["value"] == float(x[3, k]) and (f["lower"], f["upper"]) == (own.lower[0, k], own.upper[0, k])
        assert f["seen_upper"] == (None if math.isinf(own.seen_upper[0, k]) else float(own.seen_upper[0, k]))
    one = json.loads(good("alone", *given, "--feature", "flow", "--feature", "0", "--json").stdout)
    assert sorted(f["name"] for f in one["features"]) == ["flow", "temp"]
    text = good("alone", *given, "--features", 1).stdout
    assert "label that stays" in text and "2 more features" in text
    # Printed ends are rounded inwards.
    shown = next(line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0] in NAMES)
    k = NAMES.index(shown[0])
    assert own.lower[0, k] <= float(shown[2]) <= x[3, k] <= float(shown[3]) <= own.upper[0, k]
    nothing = run("alone", *files, "--label-column", "label", "--index", 7)
    assert nothing.exit_code == 1 and "nonfinite" in nothing.stdout and "'temp'" in nothing.stdout
    assert "no feature 'floww'; did you mean flow?" in refused("alone", *given, "--feature", "floww")
    assert "give a model and data" in refused("alone", files[0])
    assert "has the inputs 0 to 7" in refused("alone", *files, "--label-column", "label", "--index", 99)


def test_safe(files: tuple[Path, Path], tmp_path: Path) -> None:
    said = ("--accuracy", "temp=0.1", "--accuracy", "pressure=20%", "--accuracy", "flow=5% of range")
    given = ("safe", *files, "--label-column", "label", "--domain", "-4,4", *said)
    result = run(*given, "--json", "--out", tmp_path / "run")
    found = json.loads(result.stdout)
    net, x = inputs(files)
    own = er.safe_share(net, x, {"temp": 0.1, "pressure": "20%", "flow": "5% of range"}, domain=(-4, 4))
    assert found["counts"] == own.counts and [a["status"] for a in found["answers"]] == list(own.status)
    assert result.exit_code == (1 if own.counts["unsafe"] else 3)
    assert "'temp'" in found["answers"][7]["message"] and {s["name"] for s in found["sensors"]} == set(NAMES)
    assert (
        f"all proved: {own.counts['safe']} of {own.counts['safe']} certificates"
        in good("check", tmp_path / "run").stdout
    )
    certs = er.Certificates.load(tmp_path / "run")
    assert certs.index.tolist() == list(range(8)) and "'temp'" in certs.message[7]
    assert "already holds a run" in refused(*given, "--out", tmp_path / "run")
    assert "8 inputs, all features off by" in run(*given, "--no-ranking").stdout
    assert good("safe", *files, "--label-column", "label", "--accuracy", "0", "--limit", 3).exit_code == 0
    by_label = run("safe", *files, "--label-column", "label", "--accuracy", "0.01", "--labels", "--limit", 2, "--json")
    assert json.loads(by_label.stdout)["inputs"] == 2
    for wrong, message in (
        ("temp=lots", "an accuracy is"), ("tmp=1", "did you mean temp?"), ("flow=1% of range", "one: give --domain"),
        ("-1", "an accuracy is"),
    ):  # fmt: skip
        assert message in refused("safe", *files, "--label-column", "label", "--accuracy", wrong)
    twice = refused("safe", *files, "--label-column", "label", "--accuracy", "temp=1", "--accuracy", "0=1")
    assert "feature 0 has two values" in twice


def test_accuracy(files: tuple[Path, Path], tmp_path: Path) -> None:
    given = ("accuracy", *files, "--label-column", "label", "--share", 0.5, "--effort", "fast", "--frozen", "flow")
    found = json.loads(good(*given, "--json", "--out", tmp_path / "run").stdout)
    net, x = inputs(files)
    own = er.accuracy_needed(net, x, 0.5, frozen="flow", effort="fast")
    assert found["proved"] == own.proved >= found["needed"] == 4 and found["reached"]
    told = {f["name"]: f["tolerance"] for f in found["features"]}
    assert [told[name] for name in NAMES] == own.tolerance.tolist() and told["flow"] == 0
    assert f"all proved: {own.proved} of {own.proved} certificates" in good("check", tmp_path / "run").stdout
    text = good(*given).stdout
    assert "are proved for" in text and "exact" in text and "nonfinite: 1, input 7" in text
    lost = run("accuracy", *files, "--label-column", "label", "--share", 1.0, "--effort", "fast")
    assert lost.exit_code == 1 and "no tolerances were found" in lost.stdout
    assert "share must be above 0" in refused(*given, "--share", 2)


def test_regressions(files: tuple[Path, Path]) -> None:
    found = run(
        "safe", *files, "--label-column", "label", "--accuracy", "0.01", "--within", 0.5, "--json", "--limit", 4
    )
    assert json.loads(found.stdout)["counts"]["safe"] == 4
    alone = json.loads(good("alone", *files, "--label-column", "label", "--within", "0.5", "--json").stdout)
    assert alone["label"] is None and alone["status"] == "answered"
    no_labels = refused(
        "safe", *files, "--label-column", "", "--accuracy", "0.01", "--labels", "--feature-columns", ",".join(NAMES)
    )
    assert "has no labels that could stay" in no_labels
