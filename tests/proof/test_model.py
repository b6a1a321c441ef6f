"""A run tied to a model: read again as the run states, and compared; what the run states of it is shown as that."""

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

import elbowroom as er
from elbowroom.certificates.store import Run
from elbowroom.commands import app as cli
from elbowroom.network import operations as ops
from elbowroom.network.file import about_hash, network_hash
from elbowroom.network.graph import Network, Node
from forgery import edit_archive, edit_graph, edit_run, reseal
from support import mlp

FEATURES, CLASSES = ("age", "income", "height"), ("low", "high")
X = torch.tensor(np.random.default_rng(0).uniform(0, 255, size=(4, 3)))
READ = {"scale": 1 / 255, "mean": [0.5, 0.25, 0.5], "std": 2.0}


def check(*arguments: Path | str) -> Result:
    return CliRunner().invoke(cli.app, ["check", *map(str, arguments)], env={"COLUMNS": "100", "NO_COLOR": "1"})


def refused(*arguments: Path | str) -> str:
    result = check(*arguments)
    assert result.exit_code == 2 and not result.stdout and result.stderr.count("\n") == 1, result.output
    return result.stderr


def model(
    path: Path,
    seed: int = 0,
    features: tuple[str, str, str] | None = FEATURES,
    classes: tuple[str, str] | None = CLASSES,
) -> Path:
    net = mlp(np.random.default_rng(seed), [3, 6, 2], ops.ReLU())
    return er.save_network(er.load(net, features=features, classes=classes), path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a run that was certified of it."""
    folder = tmp_path_factory.mktemp("model")
    path = model(folder / "net.elbowroom")
    certs = er.certify(er.load(path, **READ), X)
    assert certs.certified.any()
    certs.save(folder / "run")
    return folder


@pytest.fixture
def copy(place: Path, tmp_path: Path) -> Path:
    return shutil.copytree(place / "run", tmp_path / "run")


def test_without_a_model_the_origin_is_a_statement(place: Path) -> None:
    result = check(place / "run")
    assert result.exit_code == 0
    lines = [line for line in result.stdout.splitlines() if line.startswith(("network", "names"))]
    stated = Run.open(place / "run").network.about.origin
    assert lines == [
        f"network: the run's own; it says that it was read from net.elbowroom (sha256 {stated.sha256[:12]}), with "
        "scale 0.00392157, mean 0.5,0.25,0.5, std 2, decision max. To compare it with yours: --model FILE",
        "names: of features and classes, as the run states them",
    ]
    found = json.loads(check(place / "run", "--json").stdout)
    assert found["origin"]["sha256"] == stated.sha256 and found["origin"]["options"]["mean"] == [0.5, 0.25, 0.5]


def test_the_model_itself(place: Path, tmp_path: Path) -> None:
    for path in (place / "net.elbowroom", shutil.copy(place / "net.elbowroom", tmp_path / "other.elbowroom")):
        result = check(place / "run", "--model", path)
        assert result.exit_code == 0, result.output
        how = "read with scale 0.00392157, mean 0.5,0.25,0.5, std 2, decision max"
        assert f"network: that of {path}, {how}; it is the file that" in result.stdout
        assert "names: of features, the model's own; of classes, the model's own" in result.stdout
        assert "all proved: " in result.stdout


def test_another_file_of_the_same_network(place: Path, tmp_path: Path) -> None:
    """A file may be written anew; what counts is the network."""
    net = er.load(place / "net.elbowroom")
    nodes = tuple(Node(n.op, n.inputs, n.shape, f"n{k}") for k, n in enumerate(net.nodes))
    path = er.save_network(Network(nodes, net.decision, net.about), tmp_path / "again.elbowroom")
    result = check(place / "run", "--model", path)
    assert result.exit_code == 0
    assert (
        "another file than the run states (net.elbowroom, " in result.stdout and "but the same network" in result.stdout
    )


def test_another_model_is_refused(place: Path, tmp_path: Path) -> None:
    said = refused(place / "run", "--model", model(tmp_path / "other.elbowroom", seed=1))
    assert "is not the model that" in said and "mean 0.5,0.25,0.5, std 2, decision max, as the run states" in said
    assert Run.open(place / "run").claim["network_hash"] in said
    assert "there is no such file" in refused(place / "run", "--model", tmp_path / "none.elbowroom")
    same = er.save_network(Run.open(place / "run").network, tmp_path / "same.elbowroom")
    assert "not both" in refused(place / "run", "--model", place / "net.elbowroom", "--network", same)
    assert f"network: that of {same}" in check(place / "run", "--network", same).stdout


def test_a_network_of_another_weight(place: Path, copy: Path) -> None:
    """A forger's network, true to its own hash and certificates, that says it was read from the model."""
    opened = Run.open(copy)
    net = opened.network
    nodes = list(net.nodes)
    at = max(k for k, n in enumerate(nodes) if isinstance(n.op, ops.Linear))
    op: Any = nodes[at].op
    nodes[at] = dataclasses.replace(nodes[at], op=dataclasses.replace(op, bias=op.bias + torch.tensor([1e-9, 0])))
    other = Network(tuple(nodes), net.decision, net.about)
    certs = dataclasses.replace(
        er.Certificates.load(copy), network=other,
        settings={**er.Certificates.load(copy).settings, "network_hash": network_hash(other)},
    )  # fmt: skip
    certs.save(copy)
    assert check(copy).exit_code == 0 and "sha256" in check(copy).stdout  # all is sound except for where it comes from
    assert "is not the model that" in refused(copy, "--model", place / "net.elbowroom")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mean": [0.5, 0.25, 0.75]}, "is not the model that"),
        ({"scale": 1.0}, "is not the model that"),
        ({"decision": "min"}, "is not the model that"),
        ({"trust_pickle": True}, "'trust_pickle' is not an option of a reader"),
        ({"address": "ray://1.2.3.4"}, "'address' is not an option of a reader"),
        ({"mean": {"a": 1}}, "origin: mean must be a number"),
        ({"mean": [10**400]}, "origin: mean must be a number"),
        ({"mean": [[0.5]] * 7}, "mean"),
        ({"input_shape": [1 << 40]}, "do not fit"),
        ({"input_shape": "3;rm"}, "origin: input_shape must be"),
        ({"layout": "NHWC"}, "layout NHWC needs"),
        ({"task": 3}, "origin: task must be one of"),
        ({"std": 0}, "std must be positive"),
    ],
)
def test_options_come_from_the_run_and_are_looked_at(
    place: Path, copy: Path, options: dict[str, Any], words: str
) -> None:
    edit_graph(copy / "network.elbowroom", lambda g: g["origin"]["options"].update(options))
    with pytest.raises(er.InputError, match="the names or the origin of the network are not those of the run"):
        Run.open(copy)
    reseal(copy)
    assert check(copy).exit_code == 0  # without a model, options are words
    assert words in refused(copy, "--model", place / "net.elbowroom")


def test_options_that_nest_for_ever(place: Path, copy: Path) -> None:
    """As deep as JSON can be read, and deeper than all else can go down."""
    for depth in (40, 300, 480, 900, 960, 985):
        deep = b"[" * depth + b"0.5" + b"]" * depth
        edit_graph(copy / "network.elbowroom", lambda g: g["origin"]["options"].update(mean="HERE"))
        edit_archive(
            copy / "network.elbowroom",
            lambda e, deep=deep: e.update({"graph.json": e["graph.json"].replace(b'"HERE"', deep)}),
        )
        with contextlib.suppress(RecursionError):
            reseal(copy)
        for arguments in ((copy,), (copy, "--model", place / "net.elbowroom")):
            result = check(*arguments)
            assert result.exception is None or isinstance(result.exception, SystemExit), (depth, result.exc_info)
        shutil.copy(place / "run" / "network.elbowroom", copy / "network.elbowroom")


def test_names_are_compared(place: Path, copy: Path, tmp_path: Path) -> None:
    edit_graph(copy / "network.elbowroom", lambda g: g.update(features=["income", "age", "height"]))
    assert "names or the origin" in refused(copy)
    reseal(copy)
    assert check(copy).exit_code == 0 and "names: of features and classes, as the run states" in check(copy).stdout
    said = refused(copy, "--model", place / "net.elbowroom")
    assert "names of features: number 0 is 'income' to the run, but 'age' to the model" in said
    # Names of another kind are not the model's, and said to be so; a model without names has none to compare with.
    edit_graph(copy / "network.elbowroom", lambda g: g.update(features=["x", "y", "z"]))
    reseal(copy)
    result = check(copy, "--model", place / "net.elbowroom")
    assert (
        result.exit_code == 0 and "names: of features, as the run states them (the model has others)" in result.stdout
    )
    bare = model(tmp_path / "bare.elbowroom", features=None, classes=None)
    result = check(copy, "--model", bare)
    assert result.exit_code == 0 and "of classes, as the run states them (the model has none)" in result.stdout


def test_runs_that_do_not_say_where_they_come_from(tmp_path: Path) -> None:
    path = model(tmp_path / "net.elbowroom", features=None, classes=None)
    net = er.load(er.load(path), mean=1.0)  # of which no origin is known any more
    assert net.about.origin is None
    er.certify(net, X / 255).save(tmp_path / "run")
    assert "it does not say from where" in check(tmp_path / "run").stdout
    assert "read as it is, as the run states" in refused(tmp_path / "run", "--model", path)
    er.certify(er.load(er.load(path)), X / 255).save(tmp_path / "plain")
    assert check(tmp_path / "plain", "--model", path).exit_code == 0


def test_pickles_are_trusted_by_the_reader_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    torch.save(module, tmp_path / "model.pt")
    certs = er.certify(er.load(tmp_path / "model.pt", (3,), trust_pickle=True), X / 255)
    certs.save(tmp_path / "run")
    assert "is a pickle" in refused(tmp_path / "run", "--model", tmp_path / "model.pt")
    result = check(tmp_path / "run", "--model", tmp_path / "model.pt", "--trust-pickle")
    assert result.exit_code == 0 and "it is the file that the run states" in result.stdout


def test_from_python(place: Path) -> None:
    certs = er.Certificates.load(place / "run")
    assert er.check(certs, net=er.load(place / "net.elbowroom", **READ))
    with pytest.raises(er.InputError, match="hash"):
        er.check(certs, net=er.load(place / "net.elbowroom"))


def test_names_are_part_of_the_claim(place: Path, copy: Path) -> None:
    """Outside the network's hash, but a careless change is noticed."""
    net = Run.open(copy).network
    assert json.loads((copy / "run.json").read_text())["claim"]["about"] == about_hash(net)
    for change in ({"classes": ["high", "low"]}, {"notes": ["all is well"]}, {"origin": None}):
        edit_graph(copy / "network.elbowroom", lambda g, change=change: g.update(change))
        assert "the names or the origin of the network are not those of the run" in refused(copy)
        shutil.copy(place / "run" / "network.elbowroom", copy / "network.elbowroom")
    edit_run(copy, lambda r: r["claim"].update(about="0" * 64))
    assert "the names or the origin" in refused(copy)
