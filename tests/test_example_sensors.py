"""The sensor examples, small: they write what they say, and the tolerances they state are attacked on every input."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import elbowroom as er
from elbowroom.verify.counterexample import descend, starting_points

pytest.importorskip("matplotlib")
F64 = torch.float64


def example(name: str) -> ModuleType:
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def attack(certs: er.Certificates) -> None:
    """Corners, random points and descents in every certified box: no other decision."""
    net, rng = certs.network, torch.Generator().manual_seed(0)
    for i in certs.certified.nonzero().flatten().tolist():
        low, high, label = certs.lower[i], certs.upper[i], certs.labels[i : i + 1]
        share = torch.rand(300, len(low), generator=rng, dtype=F64)
        share[::2] = share[::2].round()
        assert bool((net.decide(net(low + share * (high - low))) == label).all())
        spec = er.label_stays(label, net.n_outputs, net.decision)
        start = starting_points(low, high, 8).repeat(spec.n_groups, 1)
        group = torch.arange(spec.n_groups).repeat_interleave(8)
        _, margins = descend(net.cast(F64), spec, low.expand_as(start), high.expand_as(start), start, group, 40)
        assert bool((margins > 0).all())


def test_acas_xu(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = shared / "models" / "acasxu"
    sensors = example("sensors_acas_xu")
    model = ["--model", str(files / "ACASXU_run2a_1_1_batch_2000.onnx"), "--property", str(files / "prop_3.vnnlib")]
    sensors.main([*model, "--out", str(tmp_path), "--points", "4", "--share", "0.5", "--effort", "fast"])
    text = capsys.readouterr().out
    assert "The advice is 'strong left'" in text and "ft nearer" in text and "proved for 2 of 4 encounters" in text
    assert text.count("would be safe if it were exact") == 5 and text.count(": to ") == 5
    assert (tmp_path / "sensors.png").read_bytes().startswith(b"\x89PNG")
    certs = er.Certificates.load(tmp_path / "run")
    assert int(certs.certified.sum()) == 2 and bool(er.check(certs))
    # One vector for all of them: the boxes have the same sides, up to the domain's ends.
    sides = torch.cat([certs.x - certs.lower, certs.upper - certs.x])[certs.certified.repeat(2)]
    inside = torch.cat([certs.lower > certs.lowest, certs.upper < certs.highest])[certs.certified.repeat(2)]
    for k in range(5):
        own = sides[inside[:, k], k]
        assert float(own.max() / own.min()) < 1 + 1e-9
        assert f"{sensors.inwards(float(own.min()) * (1 + 1e-9) * sensors.QUANTITIES[k].show)}" in text
    attack(certs)
    with pytest.raises(SystemExit, match="sensors_acas_xu: points must be"):
        sensors.main([*model, "--points", "0"])


def test_breast_cancer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    sensors = example("sensors_breast_cancer")
    found = sensors.main(["--patients", "20", "--out", str(tmp_path)])
    text = capsys.readouterr().out
    assert f"proved for {found.needed.proved} of 20 patients (18 asked for)" in text and found.needed.proved >= 18
    assert (tmp_path / "sensors.png").read_bytes().startswith(b"\x89PNG")
    certs = er.Certificates.load(tmp_path / "run")
    assert bool(er.check(certs)) and int(certs.certified.sum()) == found.needed.proved
    attack(certs)
    computed = torch.from_numpy(~found.free)
    assert not bool(found.needed.tolerance[computed].any()) and bool((found.needed.tolerance[~computed] > 0).all())
    for k, name in enumerate(found.names):  # what is printed is no more than what is proved
        if found.free[k]:
            words = next(line for line in text.splitlines() if line.strip().startswith(f"{name} ")).split()
            assert (
                0.9 * float(found.needed.tolerance[k])
                < float(words[words.index("to") + 1].rstrip(","))
                <= float(found.needed.tolerance[k])
            )
            low, high = float(words[-3]), float(words[-1])
            assert found.alone.lower[0, k] <= low <= high <= found.alone.upper[0, k]
    with pytest.raises(SystemExit, match="sensors_breast_cancer: "):
        sensors.main(["--patients", "3", "--share", "7"])
