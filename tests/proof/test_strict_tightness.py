"""The strict check loses nothing but rounding: its margins are those of the search, evaluated in float64 on the same
set, up to a millionth of the magnitudes that were added up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import elbowroom as er
from elbowroom.claim.hints import Hints
from elbowroom.claim.specification import Specification, label_stays, linear_specification
from elbowroom.claim.stated import Stated
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.regions.input_set import InputSet
from search.test_reference import reference
from support import METHODS, cases, magnitudes, networks, normal, regions

LOSS = 1e-6


def area_of(inputs: InputSet) -> Stated:
    if inputs.is_box:
        low, high = inputs.hull()
        return Stated(low.flatten(1), high.flatten(1))
    center, radius = inputs.center.flatten(1), inputs.radius.flatten(1)
    return Stated(center=center, radius=radius, p=inputs.p, basis=inputs.basis)


def loss(net: Network, inputs: InputSet, spec: Specification, method: str, margin: str) -> float:
    """By how much the strict margins are below the search's, as a share of the magnitudes; the largest."""
    found = Propagation(net.cast(torch.float64), inputs, method_named(method))
    searched = found.margins(spec, margin)
    strict = prove(net, area_of(inputs), spec.rows, spec.offset, spec.group, Hints.of(method, margin))
    size = magnitudes(net, found.lower, found.upper)[-1]
    scale = ((spec.rows.abs() @ size[..., None]).squeeze(-1) + spec.offset.abs()).amax(1, keepdim=True)
    lost = (searched - strict) / scale.clamp_min(1e-300)
    return float(torch.where(torch.isfinite(searched) & torch.isfinite(scale), lost, 0.0).amax())


@cases(4)
@given(st.data())
def test_random_graphs(data: st.DataObject) -> None:
    net = data.draw(networks())
    inputs = data.draw(regions(net.input_shape, torch.float64)).inputs
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    batch, method = len(inputs.center), data.draw(st.sampled_from(METHODS))
    spec = linear_specification(normal(rng, batch, 3, net.n_outputs), normal(rng, batch, 3))
    assert loss(net, inputs, spec, method, data.draw(st.sampled_from(["direct", "logits"]))) < LOSS


def chain(rng: np.random.Generator, depth: int) -> Network:
    """Affine layers in a row, whose product is nothing special, before the first activation."""
    layers: list[ops.Operation] = []
    for _ in range(depth):
        up = 30 * normal(rng, 6, 2)
        layers += [ops.Linear(up), ops.Linear(torch.linalg.pinv(up) / 1.0, normal(rng, 2))]
    return Network.chain((2,), [*layers, ops.Linear(normal(rng, 8, 2)), ops.ReLU(), ops.Linear(normal(rng, 3, 8))])


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_affine_layers_in_a_row(depth: int) -> None:
    """Intervals through them would be hundreds of times too wide."""
    net = chain(np.random.default_rng(depth), depth)
    x = torch.tensor([[0.3, -0.2]], dtype=torch.float64)
    spec = label_stays(net.decide(net(x)), 3)
    for method in ("adaptive", "combined", "quadratic"):
        assert loss(net, InputSet.box(x - 0.05, x + 0.05), spec, method, "direct") < 1e-12
    merged = _merged(net)
    split, whole = er.certify(net, x), er.certify(merged, x)
    assert bool(er.check(split)) and bool(er.check(split, arithmetic="arb"))
    assert split.status == whole.status == ("certified",)
    assert float(split.geomean) == pytest.approx(float(whole.geomean), rel=1e-3)


def _merged(net: Network) -> Network:
    """The same function with one affine layer before the first activation."""
    first = next(i for i, node in enumerate(net.nodes) if isinstance(node.op, ops.ReLU)) - 1
    wide = net.cast(torch.float64)

    def before(x: Tensor) -> Tensor:
        return wide.values(x)[first]

    zero, eye = torch.zeros(1, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    bias = before(zero)[0]
    layers = [ops.Linear((before(eye) - bias).T.contiguous(), bias), *(node.op for node in wide.nodes[first + 1 :])]
    return Network.chain((2,), layers)


MODELS = {
    "mnist-net_256x2.onnx": 0.02, "ffnnSIGMOID__Point_6x200.onnx": 0.01, "tansig_200_50_onnx.onnx": 1.0,
    "Convnet_maxpool.onnx": 0.01, "cifar_base_kw.onnx": 0.01,
}  # fmt: skip


@pytest.mark.parametrize("name", list(MODELS))
def test_public_models(shared: Path, name: str) -> None:
    pytest.importorskip("onnx")
    net = er.load(shared / "models" / name)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((1, *net.input_shape))) * (255 if name.startswith("tansig") else 1)
    spec = label_stays(net.decide(net(x)), net.n_outputs)
    assert loss(net, InputSet.box(x - MODELS[name], x + MODELS[name]), spec, "adaptive", "direct") < LOSS


@pytest.mark.parametrize("name", ["m100", "m100pgd"])
def test_reference_networks(shared: Path, name: str) -> None:
    net, x, labels, _ = reference(shared, name)
    x, spec = x[:4].double(), label_stays(labels[:4], 10)
    for method, margin in (("adaptive", "direct"), ("combined", "logits")):
        assert loss(net, InputSet.box(x - 0.03, x + 0.03), spec, method, margin) < LOSS


def test_a_single_number_on_the_way() -> None:
    """An average of everything keeps an axis: bounds are taken over the entries of axes."""
    last = ops.Linear(torch.tensor([[1.0], [0.0]]), torch.tensor([0.0, 0.5]))
    net = Network.chain((3,), [ops.Mean((0,)), ops.ReLU(), ops.Reshape(()), last])
    x = torch.ones(1, 3)
    certs = er.certify(net, x, deployed="float32")
    assert certs.status == ("certified",) and bool(er.check(certs))
    assert float(certs.eps.min()) == pytest.approx(0.5, rel=1e-3)
