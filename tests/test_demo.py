"""The demo, small: it tells the truth about what it found, and writes what it lists."""

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

import elbowroom as er
from elbowroom.demo.examine import Settings
from elbowroom.demo.run import Demo, run_demo
from elbowroom.errors import InputError
from elbowroom.training.adversary import PGD

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
SMALL = Settings(
    widths=(24,), epochs=12, rate=1e-2, adversary=PGD(0.3, steps=4, step=0.5), n_digits=40, starts=2, enlarged=(4.0,)
)  # fmt: skip


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Demo, str]:
    text = io.StringIO()
    found = run_demo(tmp_path_factory.mktemp("demo"), settings=SMALL, console=Console(file=text, width=80))
    return found, text.getvalue()


def test_files(demo: tuple[Demo, str]) -> None:
    found, text = demo
    assert len(found.files) == 8 and all(f.exists() for f in found.files)
    for file in found.files:
        assert file.name in text
        if file.suffix == ".png":
            assert file.read_bytes()[:4] == b"\x89PNG"
    folder = found.files[0].parent
    certs = er.Certificates.load(folder / "robust" / "non-uniform")
    assert torch.equal(certs.eps, found.robust.regions.eps)
    state = torch.load(folder / "normal" / "weights.pt", weights_only=True)
    assert all(torch.equal(state[k], v) for k, v in found.normal.model.state_dict().items())


def test_table(demo: tuple[Demo, str]) -> None:
    found, text = demo
    for m in (found.normal, found.robust):
        assert m.report.test_accuracy > 0.9 and 0 <= m.under_attack <= m.report.test_accuracy + 0.05
        assert 0.02 < m.mean_uniform < m.mean_regions < 2 and m.ratio > 1
        assert int(m.regions.certified.sum()) > 30
        assert 0 < m.cosines[1] <= m.cosines[0] <= 1
        row = next(line for line in text.split("\n") if line.strip().startswith(f"{m.name} ") and "%" in line)
        assert f"{m.mean_uniform:.4f}" in row and f"{m.mean_regions:.4f}" in row
        assert f"{int(m.regions.certified.sum())}/40" in row
    assert found.robust.under_attack > found.normal.under_attack
    assert all(len(line) <= 80 for line in text.split("\n"))
    assert "not claimed" in text and "not proved" in text and "float64" in text


def test_non_uniform_regions_are_never_smaller(demo: tuple[Demo, str]) -> None:
    for m in (demo[0].normal, demo[0].robust):
        good = m.regions.certified
        assert bool((m.regions.geomean[good] >= m.uniform.geomean[good] * (1 - 1e-5)).all())


def test_attack(demo: tuple[Demo, str]) -> None:
    found, text = demo
    for m in (found.normal, found.robust):
        inside, outside = m.attacks[1.0], m.attacks[4.0]
        assert not bool(inside.found.any())
        assert inside.tried == int(m.regions.certified.sum()) * 21 * 2
        assert float(outside.found.double().mean()) > 0.5  # the control: the attack can find something
    assert "none changes the label" in text


def test_survivors_of_the_bounds_survive_the_attack(demo: tuple[Demo, str]) -> None:
    # A digit whose uniform region holds the adversary's whole ball is right under attack: proof and measurement agree.
    for m in (demo[0].normal, demo[0].robust):
        assert m.under_attack >= float((m.uniform.geomean >= 0.3).double().mean())


def test_the_seed_decides(demo: tuple[Demo, str], tmp_path: Path) -> None:
    again = run_demo(tmp_path, settings=SMALL, console=Console(file=io.StringIO()))
    assert torch.equal(again.robust.regions.eps, demo[0].robust.regions.eps)
    assert (tmp_path / "bounding-maps.png").read_bytes() == demo[0].files[0].read_bytes()


def test_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        run_demo(tmp_path / "file", settings=SMALL, console=Console(file=io.StringIO()))
