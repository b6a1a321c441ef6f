"""elbowroom verify, as it is called."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

import elbowroom as er
from elbowroom.commands import app as cli
from elbowroom.network import operations as ops
from support import mlp

QUERY = """
(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 {low})) (assert (<= X_0 {high})) (assert (>= X_1 {low})) (assert (<= X_1 {high}))
(assert (<= Y_0 {bound}))
"""


def run(*arguments: int | Path | str) -> Result:
    result = CliRunner().invoke(cli.app, ["verify", *map(str, arguments)], env={"NO_COLOR": "1"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("work") / "net.elbowroom"
    er.save_network(mlp(np.random.default_rng(0), [2, 8, 2], ops.ReLU()).cast(torch.float32), path)
    return path


def test_boxes(model: Path) -> None:
    small = run(model, "--lower", "0.1,0.2", "--upper", "0.1001,0.2001")
    assert small.exit_code == 0 and small.stdout.startswith("holds")
    net = er.load(model)
    label = int(net.decide(net(torch.tensor([[0.1, 0.2]], dtype=torch.float64))))
    other = run(model, "--lower", "0.1,0.2", "--upper", "0.1001,0.2001", "--label", 1 - label, "--json")
    found = json.loads(other.stdout)
    assert other.exit_code == 1 and found["verdict"] == "violated" and len(found["counterexample"]["x"]) == 2
    far = run(model, "--lower", -3, "--upper", 3, "--boxes", 1, "--decision", "min", "--scale", "1/100", "--mean", 0)
    assert far.exit_code in (0, 1, 3)


def test_corners_in_another_layout_are_never_reshaped(tmp_path: Path) -> None:
    """The box of an image with channels last is another box when its values are read with channels first."""
    weight = torch.randn(2, 60, generator=torch.Generator().manual_seed(0))
    net = er.Network.chain((3, 4, 5), [ops.Reshape((60,)), ops.Linear(weight)])
    er.save_network(net, tmp_path / "net.elbowroom")
    x = np.random.default_rng(0).random((4, 5, 3))
    np.save(tmp_path / "x.npy", x)
    label = int(net.decide(net(np.moveaxis(x, -1, 0)[None])))
    given = (tmp_path / "net.elbowroom", "--lower", tmp_path / "x.npy", "--upper", tmp_path / "x.npy", "--label", label)
    result = run(*given)
    assert result.exit_code == 2 and "would be mixed up: --input-shape 4,5,3 reads the model" in result.stderr
    assert run(*given, "--input-shape", "4,5,3").exit_code == 0
    np.save(tmp_path / "x.npy", np.moveaxis(x, -1, 0).reshape(-1))  # a row is read in row-major order
    assert run(*given).exit_code == 0


def test_queries(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "query.vnnlib"
    net = er.load(model)
    least = float(er.bounds(net, torch.full((1, 2), -1.0), torch.full((1, 2), 1.0)).lower[0, 0])
    for bound, code, word in ((least - 1, 0, "unsat"), (1e3, 1, "sat")):
        path.write_text(QUERY.format(low=-1, high=1, bound=bound))
        result = run(model, "--vnnlib", path, "--seconds", 30)
        assert result.exit_code == code and f"({word})" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say what to verify"),
        (("--lower", "0"), "say what to verify"),
        (("--lower", "1", "--upper", "0"), "lower <= upper"),
        (("--lower", "x", "--upper", "0"), "lower must be a number"),
        (("--lower", "0", "--upper", "1", "--mean", "x"), "--mean must be a number"),
        (("--vnnlib", "nosuch.vnnlib"), "cannot read nosuch.vnnlib"),
        (("--vnnlib", "nosuch.vnnlib", "--upper", "1"), "leave off --upper"),
    ],
)
def test_what_is_refused(model: Path, arguments: tuple[str, ...], words: str) -> None:
    result = run(model, *arguments)
    assert result.exit_code == 2 and not result.stdout
    assert result.stderr.startswith("elbowroom: ") and words in result.stderr and result.stderr.count("\n") == 1
