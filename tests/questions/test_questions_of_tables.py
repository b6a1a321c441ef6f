"""Questions about rows of tables: values looked up by the model's rules, and nothing that was filled in is hidden."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from commands import run
from elbowroom.network.graph import About, Network
from elbowroom.network.table import Column, Table
from support import mlp

pandas = pytest.importorskip("pandas")
JOB = Column("job", ("clerk", "cook"), ((1.0, 0.0), (0.0, 1.0)))
TABLE = Table((Column("age", missing=0.5, unit="years"), JOB, Column("pay")))


@pytest.fixture
def net() -> Network:
    plain = mlp(np.random.default_rng(0), [4, 8, 2])
    return er.Network(plain.nodes, plain.decision, About(features=TABLE.entries, table=TABLE))


@pytest.fixture
def frame() -> Any:
    """In another order; a missing age, a job that nobody knows, a missing pay."""
    return pandas.DataFrame(
        {
            "pay": [0.2, 0.4, -0.3, None, 1.0],
            "job": ["cook", "clerk", "pilot", "cook", "cook"],
            "age": [0.1, None, 0.3, 0.2, 1.0],
        }
    )


def quietly(ask: Any, *arguments: Any, **told: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", er.DataWarning)
        return ask(*arguments, **told)


def entries() -> torch.Tensor:
    return torch.tensor([[0.1, 0, 1, 0.2], [0.5, 1, 0, 0.4], [1.0, 0, 1, 1.0]], dtype=torch.float64)


def test_frames(net: Network, frame: Any) -> None:
    told = {"domain": {"age": (-2.0, 2.0), "pay": (-2.0, 2.0)}}
    alone = quietly(er.alone, net, frame, **told)
    assert alone.status == ("answered", "answered", "error", "error", "answered")
    assert "'pilot'" in alone.message[2] and "pay" in alone.message[3]
    assert alone.imputed.tolist() == [[k == 1, False, False, False] for k in range(5)]
    own = er.alone(net, entries(), **told)
    good = [0, 1, 4]
    assert torch.equal(alone.lower[good], own.lower) and torch.equal(alone.seen_upper[good], own.seen_upper)
    assert alone.asked[0].tolist() == [True, False, False, True]
    safe = quietly(er.safe_share, net, frame, {"age": 0.1, "pay": "10%"}, **told)
    assert [safe.status[k] for k in good] == list(
        er.safe_share(net, entries(), {"age": 0.1, "pay": "10%"}, **told).status
    )
    assert safe.status[2:4] == ("error", "error") and torch.equal(safe.certificates.imputed, alone.imputed)
    needed = quietly(er.accuracy_needed, net, frame, 0.6, effort="fast", **told)
    assert needed.proved == 3 == needed.needed and (needed.tolerance > 0).tolist() == [True, False, False, True]
    assert torch.equal(needed.certificates.imputed, alone.imputed)
    report = er.check(needed.certificates)
    assert report.passed.tolist() == [True, True, False, False, True]
    # Beside the regions, in one table.
    tidy = quietly(er.certify, net, frame, **told).to_frame(alone=alone)
    ages = tidy[tidy.feature == "age"]
    assert ages.alone_low.tolist()[:2] == alone.lower[:2, 0].tolist() and "imputed" in ages.note.tolist()[1]
    observed = quietly(er.alone, net, frame, domain="observed")
    assert float(observed.highest[0, 0]) == 1.0


def test_commands(net: Network, frame: Any, tmp_path: Path) -> None:
    er.save_network(net, tmp_path / "net.elbowroom")
    frame.to_csv(tmp_path / "x.csv", index=False)
    given = (tmp_path / "net.elbowroom", tmp_path / "x.csv")
    found = json.loads(run("alone", *given, "--index", 1, "--domain", "-2,2", "--json").stdout)
    told = {f["name"]: f for f in found["features"]}
    assert set(told) == {"age", "pay"} and told["age"]["imputed"] and not told["pay"]["imputed"]
    assert told["age"]["value"] == 0.5 and told["age"]["unit"] == "years"
    assert "imputed" in run("alone", *given, "--index", 1, "--domain", "-2,2").stdout
    lost = run("alone", *given, "--index", 2)
    assert lost.exit_code == 1 and "'pilot'" in lost.stdout
    result = run("safe", *given, "--accuracy", "age=0.05", "--json", "--out", tmp_path / "run")
    answers = json.loads(result.stdout)["answers"]
    assert [a["imputed"] for a in answers] == [[], ["age"], [], [], []] and "'pilot'" in answers[2]["message"]
    certs = er.Certificates.load(tmp_path / "run")
    assert certs.imputed[1].tolist() == [True, False, False, False] and int(certs.imputed.sum()) == 1
    needed = json.loads(run("accuracy", *given, "--share", 0.6, "--effort", "fast", "--json").stdout)
    assert needed["reached"] and {f["name"]: f["tolerance"] > 0 for f in needed["features"]}["age"]


def test_codes_of_a_file_are_not_looked_up_as_values(tmp_path: Path) -> None:
    """Of as many entries as columns: the code 1 stands for the level 2, and would be taken for the level 1."""
    plain = mlp(np.random.default_rng(1), [2, 8, 2])
    table = Table((Column("age"), Column("size", (1.0, 2.0, 3.0), ((0.0,), (1.0,), (2.0,)))))
    net = er.Network(plain.nodes, plain.decision, About(features=table.entries, table=table))
    er.save_network(net, tmp_path / "net.elbowroom")
    (tmp_path / "x.csv").write_text("size,age\n2,0.25\n3,-0.5\n1,0.75\n")
    given = (tmp_path / "net.elbowroom", tmp_path / "x.csv", "--json")
    codes = torch.tensor([[0.25, 1.0], [-0.5, 2.0], [0.75, 0.0]], dtype=torch.float64)
    for k in range(3):
        found = json.loads(run("alone", *given, "--index", k, "--domain", "age=-2,2").stdout)
        own = er.alone(net, codes[k], domain={"age": (-2.0, 2.0)})
        (feature,) = found["features"]
        assert found["label"] == int(own.labels) and feature["upper"] == float(own.upper[0, 0])
    result = run("safe", *given, "--accuracy", "age=0.1", "--out", tmp_path / "run")
    certs = er.Certificates.load(tmp_path / "run")
    assert json.loads(result.stdout)["inputs"] == 3 and torch.equal(certs.x, codes)
    observed = json.loads(run("alone", *given, "--domain", "observed").stdout)["features"][0]
    assert (observed["lowest"], observed["highest"]) == (-0.5, 0.75)
