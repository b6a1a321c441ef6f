"""elbowroom check: exit status 0 if all is proved, 1 if something is not, 2 if it cannot be read, 3 if there is nothing
to prove or something is missing."""

import dataclasses
import json
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import commands
import elbowroom as er
from elbowroom.certificates.header import Plan
from elbowroom.certificates.result import Certificates
from elbowroom.certificates.store import Run
from elbowroom.commands import app as cli
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.report import checks as show
from elbowroom.report.digits import at_most
from forgery import edit_archive, edit_rows
from support import mlp


def network(seed: int = 0, sizes: tuple[int, int, int] = (4, 8, 3)) -> Network:
    return mlp(np.random.default_rng(seed), list(sizes), ops.ReLU())


run, good, refused = (partial(call, "check") for call in (commands.run, commands.good, commands.refused))


@pytest.fixture(scope="module")
def certs() -> Certificates:
    """Five inputs: one misclassified, four certified."""
    net = network().cast(torch.float32)
    x = torch.tensor(np.random.default_rng(0).uniform(-1, 1, size=(5, 4)))
    labels = net(x).argmax(1)
    labels[2] = (labels[2] + 1) % 3
    found = er.certify(net, x, labels, delta=1e-4)  # room for float32, of which nothing is claimed
    assert found.certified.tolist() == [True, True, False, True, True]
    return found


@pytest.fixture(scope="module")
def saved(certs: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certs.save(tmp_path_factory.mktemp("run"))


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


@pytest.fixture
def forged(certs: Certificates, tmp_path: Path) -> Path:
    """Input 1 with a wrong label, input 3 with extents that its corners do not have; checksums are right."""
    labels, eps = certs.labels.clone(), certs.eps.clone()
    labels[1] = (labels[1] + 1) % 3
    eps[3] *= 2
    return dataclasses.replace(certs, labels=labels, eps=eps).save(tmp_path / "forged")


def test_a_good_run(saved: Path) -> None:
    result = run(saved)
    assert result.exit_code == 0 and not result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["status", "inputs", "proved", "again", "failed"]
    assert lines[1].split() == ["certified", "4", "4", "0"]
    assert lines[2].split() == ["misclassified", "1", "-", "-"]
    assert lines[3] == "network: the run's own; it does not say from where. To compare it with yours: --model FILE"
    margins = er.check(er.Certificates.load(saved)).margins.amin(1)
    assert (
        lines[4] == f"smallest margin proved: {at_most(float(margins[margins > 0].min()), 3)}, of input {lines[4][-1]}"
    )
    assert float(margins[int(lines[4][-1])]) == float(margins[margins > 0].min())
    assert lines[5:] == ["all proved: 4 of 4 certificates, in float64 that counts its own rounding"]


def test_a_forged_run(forged: Path) -> None:
    result = run(forged)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[1].split() == ["certified", "4", "2", "2"]
    assert lines[3].startswith("input 1: not proved: the network decides")
    assert lines[4] == "input 3: an extent (eps) is more than half the box's width"
    assert lines[-1] == "2 not proved: 2 of 4 certificates, in float64 that counts its own rounding"


def test_long_lists_of_failures_are_cut(forged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "_SHOWN", 1)
    result = run(forged)
    assert "input 1:" in result.stdout and "input 3:" not in result.stdout
    assert "... and 1 more (all of them with --json)" in result.stdout


def test_json(saved: Path, forged: Path) -> None:
    result = run(saved, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found["passed"] is True and found["failures"] == []
    assert found["counts"] == {"proved": 4, "failed": 0, "no certificate": 1} and found["exit_status"] == 0
    margins = er.check(er.Certificates.load(saved)).margins.amin(1).tolist()
    assert found["margins"] == [{"input": k, "smallest": margins[k]} for k in (0, 1, 3, 4)]
    assert found["status"]["misclassified"] == 1 and found["inputs"] == 5
    assert found["network_hash"] == er.Certificates.load(saved).settings["network_hash"]
    result = run(forged, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1 and found["passed"] is False
    assert [f["input"] for f in found["failures"]] == [1, 3] and [m["input"] for m in found["margins"]] == [0, 4]


def test_unreadable_runs(copy: Path, tmp_path: Path) -> None:
    assert "holds no run" in refused(tmp_path / "nowhere")
    part = copy / "parts" / "part-00000.parquet"
    good = part.read_bytes()
    part.write_bytes(good[: len(good) // 2])
    assert "part-00000.parquet is damaged" in refused(copy)
    part.write_bytes(b"garbage" * 100)
    assert "part-00000.parquet is damaged" in refused(copy)


def test_an_incomplete_run(copy: Path) -> None:
    (copy / "parts" / "part-00000.parquet").unlink()
    result = run(copy)
    assert result.exit_code == 3
    assert result.stdout.splitlines()[-1] == "the run is incomplete: 5 more inputs still to be certified"
    found = json.loads(run(copy, "--json").stdout)
    assert found["missing"] == 5 and found["passed"] is False and found["exit_status"] == 3


def test_a_changed_row_is_named(copy: Path) -> None:
    edit_rows(copy, "labels", lambda rows: rows.__setitem__(1, 2 - rows[1]))
    assert "the certificate of input 1 (row 1) was changed" in refused(copy)


def test_a_changed_weight_is_named(copy: Path) -> None:
    def change(entries: dict[str, bytes]) -> None:
        entries["parameters/1.bias.npy"] = entries["parameters/1.bias.npy"][:-4] + b"\0\0\0\0"

    edit_archive(copy / "network.elbowroom", change)
    assert "network.elbowroom was changed" in refused(copy)


def test_a_network_of_ones_own(saved: Path, certs: Certificates, tmp_path: Path) -> None:
    same = er.save_network(certs.network, tmp_path / "same.elbowroom")
    assert run(saved, "--network", same).exit_code == 0
    other = er.save_network(network(1), tmp_path / "other.elbowroom")
    assert "the certificates are about the network with hash" in refused(saved, "--network", other)
    assert "missing" in refused(saved, "--network", tmp_path / "none.elbowroom")


def test_float32(certs: Certificates, saved: Path, tmp_path: Path) -> None:
    result = run(saved, "--deployed", "float32")
    assert result.exit_code == 0
    assert result.stdout.rstrip().endswith("for the network as executed in float32")
    # Margins proved to be positive, no more, leave no room for the errors of float32.
    tight = er.certify(certs.network, certs.x)
    assert run(tight.save(tmp_path / "run"), "--deployed", "float32").exit_code == 1
    assert "float16" in refused(saved, "--deployed", "float16")


def test_arithmetic(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flint")
    result = run(saved, "--arithmetic", "arb")
    assert result.exit_code == 0 and "all proved: 4 of 4 certificates, in ball arithmetic" in result.stdout
    assert "unknown arithmetic 'float16'" in refused(saved, "--arithmetic", "float16")
    monkeypatch.setitem(sys.modules, "flint", None)
    assert "python-flint" in refused(saved, "--arithmetic", "arb")


def test_a_device(saved: Path) -> None:
    assert "all proved" in good(saved, "--device", "cpu").stdout
    assert "device 'nosuch' cannot be used here" in refused(saved, "--device", "nosuch")


def test_nothing_to_prove(tmp_path: Path) -> None:
    net, x = network(), torch.zeros(2, 4)
    er.certify(net, x, (net(x).argmax(1) + 1) % 3).save(tmp_path)
    result = run(tmp_path)
    assert result.exit_code == 3 and "nothing to prove: 0 of 0 certificates" in result.stdout
    assert json.loads(run(tmp_path, "--json").stdout)["passed"] is False


def test_the_shell_sees_it() -> None:
    result = CliRunner().invoke(cli.app, ["--help"])
    assert "check" in result.stdout
    said = " ".join(CliRunner().invoke(cli.app, ["check", "--help"], env={"COLUMNS": "200"}).stdout.split())
    assert "Exit status 0: all are proved" in said and "3: there is nothing to prove, or the run is incomplete" in said


def test_a_run_is_read_part_by_part(certs: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the run; numbers and counts are those of the whole."""
    labels = certs.labels.clone()
    labels[[1, 4]] = (labels[[1, 4]] + 1) % 3
    wrong = dataclasses.replace(certs, labels=labels)
    made = Run.create(tmp_path / "run", wrong, Plan(7, 2))
    for k in range(2):
        made.write(k, wrong.rows(2 * k, 2 * k + 2))
    seen, real = [], Run.read
    monkeypatch.setattr(Run, "read", lambda self, *numbers: seen.append(numbers) or real(self, *numbers))
    result = run(tmp_path / "run", "--json")
    found = json.loads(result.stdout)
    assert seen == [(0,), (1,)] and result.exit_code == 1  # a failure counts for more than what is missing
    assert [f["input"] for f in found["failures"]] == [1] and found["missing"] == 3 and found["inputs"] == 4
    assert found["counts"] == {"proved": 2, "failed": 1, "no certificate": 1}
    assert found["status"]["certified"] == 3 and found["status"]["misclassified"] == 1


def test_progress(certs: Certificates) -> None:
    done = []
    report = er.check(certs, progress=done.append)
    assert sum(done) == len(certs) and done[0] == 1 and bool(report)
