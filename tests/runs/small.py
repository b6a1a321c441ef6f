"""Shared by the tests of runs: a network in the plane, and points for it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch

import elbowroom as er
from elbowroom.data.dataset import Dataset, Rows
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from support import mlp


def network(seed: int = 0, sizes: tuple[int, ...] = (2, 12, 12, 3)) -> Network:
    return mlp(np.random.default_rng(seed), list(sizes), ops.ReLU()).cast(torch.float32)


def points(count: int, seed: int = 0, n: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, size=(count, n))


def labels_for(net: Network, x: np.ndarray, wrong: tuple[int, ...] = ()) -> np.ndarray:
    """What the network decides, except for some."""
    found = net.decide(net(torch.from_numpy(x))).numpy().copy()
    found[list(wrong)] = (found[list(wrong)] + 1) % net.n_outputs
    return found


def dataset(x: np.ndarray, labels: np.ndarray | None = None, name: str = "points", **more: object) -> Dataset:
    content = hashlib.sha256(x.tobytes()).hexdigest()
    return Dataset(name, x.shape[1:], len(x), content, Rows(x), labels, **more)


def files(folder: Path, count: int, wrong: tuple[int, ...] = ()) -> tuple[str, str]:
    """A model and data as the command line takes them."""
    net, x = network(), points(count)
    er.save_network(net, folder / "net.elbowroom")
    np.savez(folder / "data.npz", x=x, y=labels_for(net, x, wrong))
    return str(folder / "net.elbowroom"), str(folder / "data.npz")


def assert_same_rows(a: er.Certificates, b: er.Certificates) -> None:
    """All columns but the time are the same, to the last bit."""
    assert a.status == b.status and a.message == b.message and a.settings == b.settings
    assert a.missing == b.missing
    for name, value in vars(a).items():
        if isinstance(value, torch.Tensor) and name != "seconds":
            assert value.numpy().tobytes() == getattr(b, name).numpy().tobytes(), name


def assert_same_within(a: er.Certificates, b: er.Certificates) -> None:
    """Same inputs and statuses; sizes as close as other batches and other threads leave them."""
    assert a.status == b.status and a.missing == b.missing == 0
    assert torch.equal(a.index, b.index) and torch.equal(a.x, b.x) and torch.equal(a.labels, b.labels)
    good = a.certified
    assert bool(good.any())
    off = (b.geomean[good] / a.geomean[good] - 1).abs()
    assert float(off.quantile(0.99)) < 1e-4 and float(off.max()) < 1e-3, off.max()
