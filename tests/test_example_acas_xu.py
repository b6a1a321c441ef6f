"""The worked example in feet, degrees and feet per second: its scaling, its words, and what it claims."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.errors import InputError
from elbowroom.vnnlib import read_query
from support import cases


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("acas_xu", Path(__file__).parents[1] / "examples" / "acas_xu.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["acas_xu"] = module
    spec.loader.exec_module(module)
    return module


acas_xu = load_example()


@pytest.fixture(scope="module")
def files(shared: Path) -> Path:
    return shared / "models" / "acasxu"


@pytest.fixture(scope="module")
def model(files: Path) -> Path:
    return files / "ACASXU_run2a_1_1_batch_2000.onnx"


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_scaling_is_that_of_the_files(files: Path, model: Path, number: int) -> None:
    path = files / f"prop_{number}.vnnlib"
    case = read_query(path).cases[0]
    low, high = acas_xu.physical_box(case, path.read_text())
    assert bool((low <= high).all() and (low >= acas_xu.column("low")).all() and (high <= acas_xu.column("high")).all())
    # The network in feet at the physical corner is the network as it is at the corner asserted.
    mine = acas_xu.load(model)(torch.stack([low, high]).float())
    theirs = er.load(model, task="regression")(torch.stack([case.lower, case.upper]).float().reshape(2, 1, 1, 5))
    torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=2e-4)
    with pytest.raises(InputError, match=r"rho = 3\S+ is not"):
        acas_xu.physical_box(case, path.read_text().replace("Input 0: (", "Input 0: (3"))
    with pytest.raises(InputError, match="physical units"):
        acas_xu.physical_box(case, "")


def test_one_radius_for_feet_and_radians(model: Path) -> None:
    """The search starts at hundreds of feet, where the angles are at their caps; the radius found is still one."""
    net, low, high = acas_xu.load(model), acas_xu.column("low"), acas_xu.column("high")
    x = torch.tensor([[58353.8455, 0.0, 0.0, 1172.5, 30.0]], dtype=torch.float64)
    certs = er.certify(net, x, domain=(low, high))
    assert certs.status == ("certified",) and 0.01 < float(certs.uniform) < 1
    radius = 0.99 * certs.uniform[:, None]
    assert er.verify(net, torch.maximum(x - radius, low), torch.minimum(x + radius, high))


@cases(10)
@given(value=st.floats(1e-6, 1e6))
def test_words_never_overstate(value: float) -> None:
    shown = float(acas_xu.inwards(value).replace(",", ""))
    assert 0.89 * value < shown <= value * (1 + 1e-9)


def test_words() -> None:
    rho, theta = acas_xu.QUANTITIES[:2]
    assert acas_xu.room_in_words(rho, 1234.0, 17.9) == "1,200 ft nearer or 17 ft farther"
    assert acas_xu.room_in_words(rho, 0.0, 0.5) == "hardly any other"
    assert (
        acas_xu.room_in_words(theta, math.radians(3.19), 1e-9) == "3.1 degrees to the right, but hardly the other way"
    )
    text = acas_xu.encounter_in_words(torch.tensor([1650.0, -0.1, 3.0, 1090.0, 90.0]))
    assert "1,650 ft away, 5.7 degrees to the right, its heading 171.9 degrees to the left" in text


def test_left_is_left() -> None:
    right, ahead = acas_xu.place(1000.0, torch.tensor(0.1, dtype=torch.float64))
    assert right < 0 < ahead


def test_the_whole_example(
    files: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--model", str(model), "--property", str(files / "prop_4.vnnlib"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["acas_xu.py", *arguments, "--points", "2"])
    acas_xu.main()
    shown = capsys.readouterr().out
    assert "prop_4.vnnlib holds" in shown and shown.count("the intruder may be") == 12
    assert "ft nearer or" in shown and "degrees to the right" in shown and "ft/s" in shown
    pictures = sorted((tmp_path / "out").glob("*.png"))
    assert [p.name for p in pictures] == ["encounter_0.png", "encounter_1.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in pictures)
    certs = er.Certificates.load(tmp_path / "out" / "run")
    assert certs.status == ("certified",) * 2 and bool(er.check(certs))
    # No advice in these regions but the one stated, at points in raw units.
    net = acas_xu.load(model)
    share = torch.from_numpy(np.random.default_rng(0).random((500, 2, 5)))
    points = certs.lower + share * (certs.upper - certs.lower)
    assert bool((net.decide(net(points.flatten(0, 1))).reshape(500, 2) == certs.labels).all())
    # The proved room beats that of the same share of every range.
    frame = {"domain": (acas_xu.column("low"), acas_xu.column("high"))}
    uniform = er.certify(net, certs.x, region=er.Uniform(acas_xu.column("scale")), **frame)
    assert bool((certs.geomean > 1.5 * uniform.geomean).all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--property", "nothing.vnnlib"], "acas_xu: cannot read"),
        (["--property", "prop_4.vnnlib", "--points", "0"], "acas_xu: points must be"),
        (["--property", "prop_4.vnnlib", "--out", "prop_4.vnnlib/below"], "acas_xu: .*prop_4.vnnlib"),
    ],
)
def test_errors_are_one_line(
    files: Path, model: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr(sys, "argv", ["acas_xu.py", "--model", str(model), *options])
    with pytest.raises(SystemExit, match=message):
        acas_xu.main()
