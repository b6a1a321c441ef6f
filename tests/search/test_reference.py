"""Against the paper authors' own program, on their networks and images (paper's bounds, logits margin)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elbowroom.certify.api import certify
from elbowroom.network.graph import Network
from elbowroom.network.operations import Linear, ReLU
from elbowroom.search.regions.box import Box
from elbowroom.search.solvers.augmented_lagrangian import AugmentedLagrangian

PAPER = {"bounds": "combined", "margin": "logits", "delta": 1e-4}


def reference(shared: Path, name: str) -> Any:
    """The network, the images it gets right, their labels, and the authors' results."""
    data = np.load(shared / "reference" / f"mnist_{name}.npz")
    layers = [Linear(torch.tensor(data[f"W{i}"]).float(), torch.tensor(data[f"b{i}"]).float()) for i in range(4)]
    net = Network.chain((784,), [layers[0], ReLU(), layers[1], ReLU(), layers[2], ReLU(), layers[3]])
    right = data["correct"].astype(bool)
    x = torch.tensor(data["x"][right]).reshape(-1, 784)
    return net, x, torch.tensor(data["y"][right]).long(), {k: data[k][right] for k in ("gm_authors", "uniform_bisect")}


@pytest.mark.parametrize(("name", "average"), [("m100", 1.01), ("m100pgd", 1.7), ("m100pgd_best10", 1.04)])
def test_sequential_reaches_the_authors_on_every_image(shared: Path, name: str, average: float) -> None:
    net, x, y, authors = reference(shared, name)
    certs = certify(net, x, y, **PAPER)
    assert set(certs.status) == {"certified"}
    assert int(certs.gradients.max()) <= 6
    ratio = certs.geomean.numpy() / authors["gm_authors"]
    assert ratio.min() >= 1
    assert certs.geomean.mean() / authors["gm_authors"].mean() >= average
    np.testing.assert_allclose(certs.uniform.numpy(), authors["uniform_bisect"], rtol=1e-3)
    assert (certs.ratio >= 1).all()
    assert (certs.margins >= 1e-4).all()


def test_augmented_lagrangian_is_as_good_as_the_authors_own(shared: Path) -> None:
    """On four images here; `benchmarks/solvers.py` has all of them."""
    net, x, y, authors = reference(shared, "m100pgd_best10")
    solver = AugmentedLagrangian()
    certs = certify(net, x[:4], y[:4], solver=solver, **PAPER)
    assert set(certs.status) == {"certified"}
    assert certs.geomean.mean() / authors["gm_authors"][:4].mean() >= 0.97
    assert int(certs.gradients.max()) == 400
    assert (certs.ratio >= 1).all()


@pytest.mark.parametrize(("name", "tighter", "wider"), [("m100", 1.24, 1.9), ("m100pgd", 1.3, 1.4)])
def test_our_bounds_and_the_asymmetric_box_give_larger_regions(
    shared: Path, name: str, tighter: float, wider: float
) -> None:
    net, x, y, _ = reference(shared, name)
    paper = certify(net, x, y, **PAPER)
    ours = certify(net, x, y, delta=1e-4)
    assert ours.geomean.mean() / paper.geomean.mean() >= tighter
    cut = ((ours.upper.clamp_max(1) - ours.lower.clamp_min(-1)) / 2).log().mean(1).exp()
    asymmetric = certify(net, x, y, domain=(-1, 1), region=Box(asymmetric=True), delta=1e-4)
    symmetric = certify(net, x, y, domain=(-1, 1), delta=1e-4)
    assert asymmetric.geomean.mean() / cut.mean() >= wider
    assert asymmetric.geomean.mean() >= symmetric.geomean.mean()
    for certs in (asymmetric, symmetric):
        assert (certs.lower >= -1).all()
        assert (certs.upper <= 1).all()
