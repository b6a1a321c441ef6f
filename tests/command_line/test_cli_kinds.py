"""Kinds of features in a settings file: a run has them, keeps them, shows them, and is proved again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import elbowroom as er
from commands import good, refused
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Graph

NAMES = ("age", "job_a", "job_b", "bonus", "loan")
CONFIG = """
max-eps = 10
[features]
age = "whole number"
loan = "yes/no"
bonus = {decimals = 1, unit = "EUR", domain = [0, inf]}
job = {columns = ["job_a", "job_b"], levels = ["artist", "baker"], dropped = "cook"}
"""
ROWS = """age,job_a,job_b,bonus,loan
30,1,0,2.5,1
40,0,0,0.3,0
41.5,0,1,1,1
42,1,1,1,1
12,0,1,1.5,0
"""


def network(names: tuple[str, ...] | None = NAMES) -> er.Network:
    graph, draw = Graph((5,)), torch.Generator().manual_seed(1)
    weight = torch.randn(2, 5, generator=draw).double() * torch.tensor([0.1, 1, 1, 1, 1])
    graph.add(ops.Linear(weight, torch.tensor([0.0, 1.0]).double()), graph.input)
    return graph.network(about=About(features=names))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    model, data, config = tmp_path / "net.elbowroom", tmp_path / "rows.csv", tmp_path / "run.toml"
    er.save_network(network(), model)
    data.write_text(ROWS)
    config.write_text(CONFIG)
    return model, data, config


def test_a_run_from_a_settings_file(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    model, data, config = files
    out = tmp_path / "run"
    good("certify", model, data, "--config", config, "--out", out)
    certs = er.Certificates.load(out)
    assert certs.status == ("certified", "certified", "error", "error", "certified")
    assert "'age' is 41.5, which is no whole number" in certs.message[2]
    assert "the columns of 'job' (job_a, job_b) are 1, 1" in certs.message[3]
    assert certs.network is not None and certs.network.about.table is not None
    assert certs.network.about.table.names == ("age", "job", "bonus", "loan") and certs.lowest is not None
    assert certs.lowest[0].tolist()[3] == 0.0
    # The same as in Python.
    kinds = {
        "age": "whole number", "loan": "yes/no", "bonus": {"decimals": 1, "unit": "EUR", "domain": [0, None]},
        "job": {"columns": ["job_a", "job_b"], "levels": ["artist", "baker"], "dropped": "cook"},
    }  # fmt: skip
    ours = er.certify(network(), certs.x[[0, 1, 4]], features=kinds, max_eps=10.0)
    assert certs.lower is not None and ours.lower is not None and certs.allowed is not None
    assert torch.equal(certs.lower[[0, 1, 4]], ours.lower) and torch.equal(certs.allowed[[0, 1, 4]], ours.allowed)
    # Proved again, by itself and with the model.
    good("check", out)
    said = " ".join(good("check", out, "--model", model).output.split())
    assert "levels of those that the model takes as numbers, as the run declares them" in said
    shown = json.loads(good("show", out, "--index", 0, "--json").stdout)["features"]
    assert {f["feature"]: f["kind"] for f in shown} == {
        "age": "whole number", "job": "category", "bonus": "number", "loan": "yes/no"
    }  # fmt: skip
    table = good("show", out, "--index", 0).output
    age = next(f for f in shown if f["feature"] == "age")
    assert f"{age['lower']:.0f}" in table and "." not in next(line for line in table.splitlines() if "age" in line)[:24]
    good("export-vnnlib", out, "--out", tmp_path / "queries")
    # Nothing is left to do; other kinds are another run.
    good("certify", model, data, "--config", config, "--out", out, "--resume")
    config.write_text(CONFIG.replace('age = "whole number"', 'age = "number"'))
    assert "other kinds of features" in refused("certify", model, data, "--config", config, "--out", out, "--resume")
    good("certify", "--out", out, "--resume")


def test_flags_and_models_without_names(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    model, data, _ = files
    er.save_network(network(None), model)
    given = ["certify", model, data, "--max-eps", 10, "--kind", "age=whole number", "--out", tmp_path / "run"]
    told = good(*given, "--kind", "loan=fixed")
    assert "the columns of rows.csv are taken in the order they stand in" in " ".join(told.output.split())
    certs = er.Certificates.load(tmp_path / "run")
    assert certs.status[2] == "error" and certs.status.count("certified") == 4
    assert certs.network is not None and certs.network.about.features == NAMES
    assert bool((certs.eps[:, 4] == 0).all())
    assert "--kind: 'aeg': there is no such feature (nearest: 'age')" in refused(
        "certify", model, data, "--kind", "aeg=whole number", "--out", tmp_path / "other"
    )
    assert "did you mean whole number?" in refused(
        "certify", model, data, "--kind", "age=whole numbers", "--out", tmp_path / "other"
    )
