"""What a run prints of its regions comes from the fields that the proof used, never from what the run calls them."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.commands import app as cli
from elbowroom.network import operations as ops
from elbowroom.report.digits import at_most


def run(*arguments: int | Path | str) -> Result:
    return CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "120", "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def cross() -> Certificates:
    """An l1 region of a linear network: the box of the same extents holds corners that decide otherwise."""
    weight = torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 0]])
    net = er.load(er.Network.chain((4,), [ops.Linear(weight, torch.tensor([-1.0, 0]))]), features=list("abcd"))
    certs = er.certify(net, torch.ones(1, 4), region=er.L1())
    assert certs.certified.all() and int(net.decide(net(certs.x - certs.eps))[0]) != int(certs.labels[0])
    return certs


@pytest.mark.parametrize(
    "name", ["Box", "Uniform", "Box(asymmetric)", "Ellipsoid", "Ball(1)", "Oblique(L1)", "L1, of half-widths"]
)
def test_an_l1_region_is_called_by_no_other_name(cross: Certificates, name: str, tmp_path: Path) -> None:
    with pytest.raises(er.InputError, match="settings: region"):
        dataclasses.replace(cross, settings={**cross.settings, "region": name}).save(tmp_path)


def test_margins_and_ratios_of_a_file_are_statements(cross: Certificates, tmp_path: Path) -> None:
    """The regions are as certified; what the run says of the search besides is invented."""
    said = {"margins": cross.margins * 0 + 1000, "ratio": cross.ratio * 0 + 50.0, "uniform": cross.uniform * 0 + 7}
    dataclasses.replace(cross, **said).save(tmp_path)
    shown = run("show", tmp_path, "--index", 0).stdout
    assert "proved margin" not in shown and "margin 1e+03" in shown
    assert "stated by the run" in shown.splitlines()[-1] and "margin" in shown.splitlines()[-1]
    one = json.loads(run("show", tmp_path, "--index", 0, "--json").stdout)
    assert {"margin", "ratio", "uniform_radius"} <= set(one["stated"])
    summary = run("show", tmp_path).stdout
    assert "stated by the run" in summary and "region L1" in summary and "half-width" not in summary
    checked = run("check", tmp_path)
    assert checked.exit_code == 0 and "1e+03" not in checked.stdout
    proved = float(er.check(cross).margins.min())
    assert f"smallest margin proved: {at_most(proved, 3)}" in checked.stdout
    assert json.loads(run("check", tmp_path, "--json").stdout)["margins"] == [{"input": 0, "smallest": proved}]
