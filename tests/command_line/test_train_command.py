"""`elbowroom train`: data with the classes asked for, one file that can be loaded, words about how it went."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.commands.train import train
from elbowroom.data.standard import digits_pixels
from elbowroom.errors import InputError
from elbowroom.training.adversary import accuracy
from elbowroom.training.sets import as_network, training_data

pytest.importorskip("sklearn")
QUICK = {"widths": "16", "epochs": 4, "rate": 1e-2, "device": "cpu"}


def test_classes_are_chosen_and_numbered() -> None:
    every, names = training_data("digits")
    some, chosen = training_data("digits", classes=["7", 1])
    assert names == tuple("0123456789") and chosen == ("7", "1")
    for x, y, whole_x, whole_y in (
        (some.x_train, some.y_train, every.x_train, every.y_train),
        (some.x_test, some.y_test, every.x_test, every.y_test),
    ):
        for new, old in ((0, 7), (1, 1)):
            assert torch.equal(x[y == new], whole_x[whole_y == old])
        assert int((y >= 0).sum()) == int(((whole_y == 7) | (whole_y == 1)).sum()) == len(x)
    assert some.n_classes == 2 and some.shape == every.shape


def test_standard_sets(shared: Path) -> None:
    data, names = training_data("fashion-mnist", shared / "data", classes=["trouser", "9"])
    assert names == ("Trouser", "Ankle boot") and data.shape == (1, 28, 28) and data.x_train.shape == (12000, 784)
    assert float(data.x_train.min()) == -1 and float(data.x_train.max()) == 1
    assert torch.bincount(data.y_test).tolist() == [1000, 1000]


@pytest.mark.parametrize(
    ("name", "classes", "message"),
    [
        ("cifar10", None, "none of these"),
        ("digits", ["3"], "two classes"),
        ("digits", ["3", 3], "two classes"),
        ("digits", ["3", "trouser"], "no class 'trouser'"),
        ("mnist", None, "data_dir"),
    ],
)
def test_data_that_make_no_sense(name: str, classes: list[Any] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        training_data(name, None, classes)


def train_command(data: str, out: Path, **given: bool | float | str) -> Path | None:
    assert train(data, out, **given) is None
    return out


def test_a_network_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = train_command("digits", tmp_path / "new" / "net.elbowroom", tau=0.05, steps=2, **QUICK)
    printed = capsys.readouterr().out
    net = er.load(out)
    assert net.input_shape == (8, 8) and net.about.classes == tuple("0123456789")
    assert "takes pixels in [0, 1]" in net.about.notes and "pixels moved by up to 0.05" in printed
    # What the command said of the test digits is so for the network in the file, pixels in [0, 1].
    data, _ = training_data("digits")
    right = accuracy(net, (data.x_test.reshape(-1, 8, 8) + 1) / 2, data.y_test)
    assert f"{right:.2%} on test images" in printed and right > 0.6
    pixels, labels = digits_pixels()
    assert accuracy(net, torch.from_numpy(pixels.astype(np.float32) / 16)[:, 0], torch.from_numpy(labels)) > 0.6
    with pytest.raises(InputError, match="already"):
        train_command("digits", out, **QUICK)


def test_tau_is_in_the_units_of_the_pixels(tmp_path: Path) -> None:
    first = train_command("digits", tmp_path / "a.elbowroom", tau=0.1, steps=2, pixels="-1,1", quiet=True, **QUICK)
    second = train_command("digits", tmp_path / "b.elbowroom", tau=12.75, steps=2, pixels="0,255", quiet=True, **QUICK)
    x = training_data("digits")[0].x_test.reshape(-1, 8, 8)
    assert torch.allclose(er.load(first)(x), er.load(second)((x + 1) * 127.5), atol=1e-4)


def test_convolutions_and_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = train_command(
        "digits", tmp_path / "c.elbowroom", channels="4", activation="tanh", classes="3,8", **{**QUICK, "epochs": 15}
    )
    net = er.load(out)
    assert net.about.classes == ("3", "8") and net.n_outputs == 2
    printed = capsys.readouterr().out
    assert "conv 4-16-2, tanh" in printed and "pixels moved by up to 0.05" in printed


@pytest.mark.parametrize(
    "wrong",
    [
        {"out": "net.onnx"}, {"widths": "a"}, {"widths": "10,0"}, {"activation": "swish"}, {"pixels": "1,0"},
        {"pixels": "0"}, {"tau": -0.1}, {"steps": 0, "tau": 0.1}, {"device": "nowhere"}, {"channels": "1,1,1,1"},
        {"epochs": 0},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    given = {**QUICK, "quiet": True, **wrong}
    out = tmp_path / given.pop("out", "net.elbowroom")
    with pytest.raises(InputError):
        train_command("digits", out, **given)
    assert not list(tmp_path.iterdir())


def test_networks_take_the_pixels_they_say() -> None:
    data, names = training_data("digits", classes=["0", "1"])
    module = torch.nn.Linear(64, 2)
    net, other = as_network(module, data, names), as_network(module, data, names, 0.0, 1.0)
    x = data.x_test[:5].reshape(-1, 8, 8)
    assert torch.allclose(net(x), other((x + 1) / 2), atol=1e-5)
