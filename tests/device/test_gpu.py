"""What users call, on a GPU: the same answers as on a CPU, and proofs that the CPU repeats.

Where there is no GPU, `test_on_stand_in` runs this on a stand-in for one.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import elbowroom as er
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from support import cases, mlp, networks, normal

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def images() -> Network:
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Tensor:
        return (normal(rng, *shape) / math.sqrt(math.prod(shape[1:]))).float()

    return Network.chain((1, 8, 8), [
        ops.Conv(weight(6, 1, 4, 4), None, (2,), (1,)), ops.ReLU(), ops.Conv(weight(8, 6, 3, 3), None, (2,), (1,)),
        ops.ReLU(), ops.Reshape((-1,)), ops.Linear(weight(40, 32)), ops.ReLU(), ops.Linear(weight(4, 40)),
    ])  # fmt: skip


NETWORKS = {
    "images": images,
    "flat": lambda: mlp(np.random.default_rng(0), [20, 140, 140, 5]),
    "wide": lambda: mlp(np.random.default_rng(1), [300, 40, 40, 3]),
    "smooth": lambda: mlp(np.random.default_rng(4), [20, 140, 140, 5], ops.GELU()),
    "tanh": lambda: mlp(np.random.default_rng(2), [6, 12, 12, 3], ops.Tanh()),
}
BASIS = torch.linalg.qr(normal(np.random.default_rng(3), 6, 6)).Q
WAYS = {
    "default": {},
    "paper's bounds": {"bounds": "combined", "margin": "logits"},
    "asymmetric": {"region": er.Box(asymmetric=True), "domain": (0, 1)},
    "augmented Lagrangian": {"solver": er.AugmentedLagrangian(steps=10)},
    "deployed": {"deployed": "float32"},
    "ellipsoid": {"region": er.Ellipsoid()},
    "oblique": {"region": er.Oblique(BASIS)},
    "trees": {"effort": 2},
}
TRIED = {
    "images": ("default", "paper's bounds", "asymmetric", "augmented Lagrangian", "deployed"),
    "flat": ("default", "paper's bounds", "asymmetric", "ellipsoid"),
    "wide": ("default", "asymmetric"),
    "smooth": ("default", "paper's bounds"),
    "tanh": ("default", "oblique", "trees"),
}


def agrees(net: Network, x: Tensor, near: float, **way: Any) -> er.Certificates:
    """Those of the GPU."""
    here, there = (er.certify(net, x, device=device, **way) for device in ("cpu", "cuda"))
    assert there.status == here.status
    off = (there.geomean / here.geomean)[here.certified].log()
    assert not len(off) or float(off.abs().max()) < near
    assert er.check(there, net) and er.check(there, net, device="cuda") and er.check(here, net, device="cuda")
    return there


@pytest.mark.parametrize(("name", "way"), [(name, way) for name, ways in TRIED.items() for way in ways])
def test_certificates_on_a_gpu(name: str, way: str) -> None:
    net = NETWORKS[name]()
    x = torch.rand(6, *net.input_shape, generator=torch.Generator().manual_seed(0))
    assert agrees(net, x, 5e-3, batch=4, **WAYS[way]).certified.any()


@given(networks(), st.integers(0, 2**16))
@cases(0.5)
def test_any_network_on_a_gpu(net: Network, seed: int) -> None:
    x = torch.randn(3, *net.input_shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if net.n_outputs > 1:
        agrees(net, x, 0.05)


def test_questions_on_a_gpu() -> None:
    net, x = NETWORKS["tanh"](), torch.rand(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    safe = [er.safe_share(net, x, 0.01, device=device) for device in ("cpu", "cuda")]
    alone = [er.alone(net, x, 0, max_eps=2.0, device=device) for device in ("cpu", "cuda")]
    needed = [er.accuracy_needed(net, x, 0.5, effort=4, device=device) for device in ("cpu", "cuda")]
    for here, there in (safe, alone, needed):
        assert here.status == there.status
    for end in ("lower", "upper"):
        torch.testing.assert_close(getattr(alone[1], end), getattr(alone[0], end), rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(needed[1].tolerance, needed[0].tolerance, rtol=1e-2, atol=1e-3)
