"""The examples, small: they tell the truth about what they found, and write what they list."""

import importlib
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import elbowroom as er

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def example() -> Any:
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    try:
        return importlib.import_module("breast_cancer")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def told(example: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out, text = tmp_path_factory.mktemp("breast_cancer"), io.StringIO()
    found = example.main(["--patients", "16", "--out", str(out)], Console(file=text, width=80, highlight=False))
    return found, text.getvalue(), out


def test_breast_cancer(example: Any, told: Any) -> None:
    found, text, out = told
    certs = found.certificates
    assert found.accuracy > 0.94 and f"{found.accuracy:.1%}" in text
    assert bool(found.proof) and int(certs.certified.sum()) >= 14
    assert f"Of 16 test patients {int(certs.certified.sum())} are certified" in text
    assert (out / "patient.png").read_bytes()[:4] == b"\x89PNG"
    again = er.Certificates.load(out / "certificates")
    assert torch.equal(again.lower, certs.lower)
    assert again.network.about.features == tuple(found.names) and again.network.about.classes == ("malignant", "benign")
    row = example.middle_patient(found)
    value, lower, upper = found.box(row)
    shares = found.shares(row)
    for k, name in enumerate(found.names[found.free]):
        line = next(line for line in text.split("\n") if line.strip().startswith(f"{name} "))
        _, fall, rise, share = line.replace("*", " ").split()[-4:]
        assert lower[k] <= float(fall) <= value[k] <= float(rise) <= upper[k], "a printed range must not be larger"
        assert float(rise) - float(fall) > 0.9 * (upper[k] - lower[k])
        assert share == f"{shares[k]:.0%}"
    least = found.names[found.free][np.argmin(shares)]
    assert f"The least room is left to the {least}" in text
    assert all(len(line.rstrip()) <= 80 for line in text.split("\n"))


def test_breast_cancer_claims_nothing_beyond_the_data(told: Any) -> None:
    found, _, _ = told
    certs = found.certificates
    good = certs.certified
    frozen = torch.from_numpy(~found.free)
    assert int(frozen.sum()) == 10 and all(n.endswith("error") for n in found.names[~found.free])
    for corner in (certs.lower, certs.upper):
        assert torch.equal(corner[:, frozen], certs.x[:, frozen])
    assert bool((certs.lower >= torch.from_numpy(found.lowest)).all())
    assert bool((certs.upper <= torch.from_numpy(found.highest)).all())
    # No certificate is contradicted at random points and corners of its box.
    rng = torch.Generator().manual_seed(0)
    width = (certs.upper - certs.lower)[good]
    for share in (torch.rand(200, *width.shape, generator=rng), torch.rand(200, *width.shape, generator=rng).round()):
        points = certs.lower[good] + share.double() * width
        decided = certs.network.decide(certs.network(points.flatten(0, 1))).reshape(200, -1)
        assert bool((decided == certs.labels[good]).all())


@pytest.mark.parametrize(
    ("end", "value", "printed"),
    [
        (0.07117, 0.07117, "0.07117"), (0.071161, 0.0712, "0.07117"), (24.7961, 22.9, "24.79"), (0.0, 0.1, "0"),
        (2e-7, 0.25, "0.0001"), (654.941, 654.96, "654.95"), (109.0, 89.0, "109"), (654.97, 654.96, "654.97"),
    ],
)  # fmt: skip
def test_ends_are_rounded_inwards(example: Any, end: float, value: float, printed: str) -> None:
    assert example.inward(end, value) == printed


def test_a_patient_without_a_certificate_is_not_shown(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        example.main(["--patients", "3", "--patient", "99", "--out", str(tmp_path)])
    assert "patient 99 is not among the certified" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
