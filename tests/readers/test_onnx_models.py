"""Whole ONNX models: those of others, those torch exports, and those this package writes, read back."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor, nn

import elbowroom as er
from elbowroom.network import operations as ops
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from elbowroom.readers.onnx.model import read_onnx
from elbowroom.readers.onnx.write import write_onnx
from elbowroom.readers.reading import left_off
from onnx_support import kinds, numbers, runtime, session
from support import cases, mlp, networks, normal, rounding

# --- models of others


def digits(shared: Path, count: int) -> np.ndarray:
    data = gzip.decompress((shared / "data/MNIST/raw/t10k-images-idx3-ubyte.gz").read_bytes())
    return np.frombuffer(data, np.uint8, offset=16).reshape(-1, 784)[:count] / np.float32(255)


def pictures(shared: Path, count: int) -> np.ndarray:
    x = np.load(shared / "data/CIFAR10/test_first1000.npz")["x"][:count] / np.float32(255)
    mean, std = (np.array(v, np.float32)[:, None, None] for v in ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)))
    return (x - mean) / std


def positions(shared: Path, count: int) -> np.ndarray:
    return np.random.default_rng(2).uniform(-0.5, 0.5, (count, 5)).astype(np.float32)


MODELS: dict[str, tuple[Callable[[Path, int], np.ndarray], float, list[str]]] = {
    "mnist-net_256x2.onnx": (digits, 1.0, ["Reshape", *["Linear", "ReLU"] * 2, "Linear"]),
    "ffnnSIGMOID__Point_6x200.onnx": (
        digits,
        1.0,
        ["Shift", "Divide", "Reshape", *["Linear", "Sigmoid"] * 6, "Linear"],
    ),
    "tansig_200_50_onnx.onnx": (digits, 255.0, ["Reshape", *["Linear", "Tanh"] * 2, "Linear"]),
    "Convnet_maxpool.onnx": (digits, 1.0, ["Conv", "ReLU", "MaxPool", "Reshape", "Linear"]),
    "resnet_2b.onnx": (pictures, 1.0, []),
    "acasxu/ACASXU_run2a_1_1_batch_2000.onnx": (positions, 1.0, ["Reshape", *["Linear", "ReLU"] * 6, "Linear"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_others(name: str, shared: Path) -> None:
    """On 1,000 inputs, real ones and noise of the same range, within 4e-6 of the largest output."""
    data, scale, expected = MODELS[name]
    net = read_onnx(shared / "models" / name)
    assert kinds(net) == expected or name == "resnet_2b.onnx"
    assert net.about.origin is not None
    node_by_node, whole = net.about.origin.compared
    assert node_by_node.startswith("compared node by node in float64") and whole.startswith("compared as a whole")
    real = scale * data(shared, 500).reshape(500, -1)
    low, high = real.min(), real.max()
    noise = np.random.default_rng(1).uniform(low, high, real.shape)
    x = np.concatenate([real, noise]).astype(np.float32).reshape(-1, *net.input_shape)
    want = runtime(session(shared / "models" / name), x)
    found = net(x).double()
    if name.startswith("tansig"):
        found = found.softmax(1)
        assert net.about.notes == (left_off("Softmax"),)
    np.testing.assert_allclose(found.numpy(), want, rtol=0, atol=4e-6 * np.abs(want).max())
    net.must_agree(torch.from_numpy(x[:3]))


@pytest.mark.parametrize("name", ["mnist-net_256x2.onnx", "acasxu/ACASXU_run2a_1_1_batch_2000.onnx"])
def test_models_of_others_can_be_certified(name: str, shared: Path) -> None:
    data, _, _ = MODELS[name]
    x = data(shared, 1)
    net = er.load(shared / "models" / name, input_shape=x.shape[1:], decision="min" if "ACAS" in name else "max")
    certs = er.certify(net, torch.from_numpy(x))
    assert list(certs.status) == ["certified"] and float(certs.eps.min()) > 0


# --- models that torch exports


class Block(nn.Module):
    """A residual block, with a projection where it changes the shape."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        self.side = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.side(x))


class Function(nn.Module):
    """A function and a layer it uses."""

    def __init__(self, function: Callable[[Tensor, Any], Tensor], layer: nn.Module) -> None:
        super().__init__()
        self.function, self.layer = function, layer

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.layer)


def exported() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    torch.manual_seed(0)
    return {
        "mlp": (nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 3)), (6,)),
        "gelu by tanh": (nn.Sequential(nn.Linear(6, 8), nn.GELU("tanh"), nn.Linear(8, 3)), (6,)),
        "activations": (
            nn.Sequential(nn.PReLU(6), nn.Softplus(2), nn.Hardtanh(), nn.SELU(), nn.ReLU6(), nn.BatchNorm1d(6)),
            (6,),
        ),
        "residual": (
            nn.Sequential(Block(3, 3, 1), Block(3, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)),
            (3, 8, 8),
        ),
        "pooling": (
            nn.Sequential(nn.Conv2d(3, 4, 2, padding="same"), nn.MaxPool2d(3, 2, 1, ceil_mode=True),
                          nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.Linear(36, 5)),
            (3, 9, 10),
        ),
        "views": (Function(lambda x, f: f(x.permute(0, 2, 1).reshape(x.size(0), -1)), nn.Linear(12, 3)), (3, 4)),
        "padded": (Function(lambda x, f: f(F.pad(x, (1, 2, 0, 1), value=0.5).flatten(1)), nn.Linear(28, 3)), (3, 4)),
        "pieces": (
            Function(lambda x, f: f(torch.cat([x[:, :2], x[:, 1::2], x.chunk(3, 1)[2]], 1)), nn.Linear(7, 3)),
            (6,),
        ),
        "normalised": (Function(lambda x, f: f(1 - (x - 0.13) / 0.31), nn.Linear(6, 3)), (6,)),
    }  # fmt: skip


@pytest.mark.parametrize("name", exported())
@pytest.mark.parametrize("opset", [11, 13, 20])
def test_models_that_torch_exports(name: str, opset: int, tmp_path: Path) -> None:
    module, shape = exported()[name]
    for m in module.modules():
        if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(m.bias)
            nn.init.uniform_(m.running_var, 0.5, 2.0)
    module.eval()
    path = tmp_path / "model.onnx"
    for options in ({}, {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}, "do_constant_folding": False}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, (torch.randn(1, *shape),), str(path), opset_version=opset, dynamo=False, **options
            )
        net = read_onnx(path)
        x = numbers(6, *shape)
        with torch.no_grad():
            expected = module(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(net(x).numpy(), expected, rtol=0, atol=1e-5 * (1 + np.abs(expected).max()))
        np.testing.assert_allclose(
            runtime(session(path), x), expected, rtol=0, atol=1e-5 * (1 + np.abs(expected).max())
        )


# --- models that this package writes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@cases(8)
@given(net=networks())
def test_random_networks_read_back(net: Network, folder: Path) -> None:
    """Written in float64, a network comes back as the same function, except for the rounding of the last place."""
    back = read_onnx(write_onnx(net, folder / "net.onnx", torch.float64))
    assert back.input_shape == net.input_shape and back.decision == net.decision
    x = normal(np.random.default_rng(0), 4, *net.input_shape)
    values = net.cast(torch.float64).values(x)
    allowed = rounding(net, values, values, torch.float64)[-1]
    excess = ((back(x) - values[-1]).abs() - 4 * allowed).max()
    assert excess <= 0, (net, back, float(excess))


@cases(2)
@given(net=networks())
def test_float32_networks_read_back(net: Network, folder: Path) -> None:
    """Parameters come back as they were; numbers that ONNX keeps in attributes may be rounded to float32."""
    net = net.cast(torch.float32)
    back = read_onnx(write_onnx(net, folder / "net.onnx"))
    x = normal(np.random.default_rng(0), 4, *net.input_shape)
    values = net.cast(torch.float64).values(x)
    allowed = rounding(net, values, values, torch.float32)[-1]
    assert ((back(x) - values[-1]).abs() <= allowed).all()
    found = {t.numpy().tobytes() for n in back.nodes for t in n.op.tensors().values()}
    for node in net.nodes:
        for t in node.op.tensors().values():
            assert t.numpy().tobytes() in found or _may_vanish(node.op), node


def _may_vanish(op: ops.Operation) -> bool:
    """Constants that change nothing leave no node."""
    return isinstance(op, ops.Shift | ops.Scale | ops.Linear) and not all(bool(t.any()) for t in op.tensors().values())


@pytest.mark.parametrize("activation", [ops.ReLU(), ops.Sigmoid(), ops.Tanh(), ops.GELU(), ops.SiLU(), ops.Softplus()])
def test_common_networks_come_back_with_the_same_hash(activation: ops.Activation, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    plain = mlp(rng, [5, 7, 6, 3], activation, decision="min").cast(torch.float32)
    image = Network.chain(
        (2, 6, 6),
        [
            ops.Conv(normal(rng, 4, 2, 3, 3), normal(rng, 4), (1, 1), (1, 1)),
            ops.BatchNorm(normal(rng, 4), normal(rng, 4) ** 2, normal(rng, 4), normal(rng, 4), 2.0**-10),
            activation,
            ops.MaxPool((2, 2), (2, 2)),
            ops.Reshape((36,)),
            ops.Linear(normal(rng, 3, 36), normal(rng, 3)),
        ],
    ).cast(torch.float32)
    for net in (plain, image):
        assert network_hash(read_onnx(write_onnx(net, tmp_path / "net.onnx"))) == network_hash(net)
