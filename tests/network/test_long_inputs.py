"""Matrices over very long inputs: computed in parts, and in float64 without a second matrix of that type."""

from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.claim.specification import label_stays
from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.network.operations import affine
from elbowroom.proof.kernel import rows, walk
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.bounds.propagate import margins_of
from support import mlp, normal


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every input is long, and its parts are small, the proof's too."""
    monkeypatch.setattr(affine, "_LONG", 1)
    monkeypatch.setattr(affine, "_PART", 7)
    monkeypatch.setattr(rows, "_PART", 50)
    return monkeypatch


def net(dtype: torch.dtype = torch.float32) -> Network:
    made = mlp(np.random.default_rng(0), [24, 9, 8, 4])
    return Network.chain((24,), [node.op.map_tensors(lambda t: t.to(dtype)) for node in made.nodes[1:]])


def weights(network: Network) -> list[torch.Tensor]:
    return [node.op.weight for node in network.nodes if isinstance(node.op, ops.Linear)]


def test_one_long_sum_in_float32_is_off_by_more() -> None:
    n = 4 * affine._LONG
    rng = np.random.default_rng(1)
    x, weight = normal(rng, 1, n).float() + 1, normal(rng, 6, n).float()
    right = x.double() @ weight.double().T
    plain, parts = (x @ weight.T - right).abs().max(), (ops.Linear(weight)(x) - right).abs().max()
    assert parts < plain / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_values_and_derivatives_are_those_of_the_plain_network(dtype: torch.dtype, long: pytest.MonkeyPatch) -> None:
    network = net(dtype)
    x = normal(np.random.default_rng(2), 3, 24).requires_grad_()

    def found() -> list[torch.Tensor]:
        out = network.exact().values(x)[-1]
        units = torch.eye(4, dtype=torch.float64)[:, None].expand(-1, 3, -1)
        rows = torch.func.vmap(lambda u: torch.autograd.grad(out, x, u, retain_graph=True)[0])(units)
        return [out, torch.autograd.grad(out[:, 0].sum(), x)[0], rows]

    in_parts = found()
    assert torch.equal(in_parts[1], in_parts[2][0])
    long.setattr(affine, "_LONG", 1 << 40)
    for a, b in zip(in_parts, found()):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("features", [7, 21, 28])
def test_inputs_of_another_length_are_no_shorter_sums(features: int, long: pytest.MonkeyPatch) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        ops.Linear(torch.ones(3, 24))(torch.ones(2, features))


def test_weights_of_a_type_that_cannot_be_drawn_in(long: pytest.MonkeyPatch) -> None:
    assert er.certify(net(torch.float8_e5m2), torch.ones(1, 24)).certified.all()


def test_no_second_matrix_is_kept(long: pytest.MonkeyPatch) -> None:
    network = net()
    assert all(a is b for a, b in zip(weights(network.exact()), weights(network)))
    assert network.exact() is network.exact()
    assert all(w.dtype == torch.float64 for w in weights(network.cast(torch.float64)))  # for searches in float64
    long.setattr(affine, "_LONG", 1 << 40)
    assert network.exact() is network.cast(torch.float64)


def test_a_change_of_the_network_is_seen(long: pytest.MonkeyPatch) -> None:
    network, x = net(), torch.ones(1, 24, dtype=torch.float64)
    before = network.exact().values(x)[-1]
    for layer in network.nodes[1::2]:
        layer.op.tensors()["bias"].data += 1
        weights(network)[0].data *= 2
        after = network.exact().values(x)[-1]
        assert not torch.equal(after, before)
        before = after
    torch.testing.assert_close(before, network.cast(torch.float64).values(x)[-1])


@pytest.mark.parametrize("entry", [1, 1 << 40])
@pytest.mark.parametrize("deployed", [None, "float32"])
def test_proofs_are_those_of_the_plain_network(entry: int, deployed: str | None, long: pytest.MonkeyPatch) -> None:
    long.setattr(walk, "_WIDE", entry)
    network = net()
    x = normal(np.random.default_rng(3), 5, 24).float().double()
    spec = label_stays(network.decide(network(x)), 4)
    region = Stated(*(x + side * torch.tensor(2.0**-6) for side in (-1, 1)))
    kept = [w.clone() for w in weights(network)]

    def proved() -> torch.Tensor:
        return prove(network, region, spec.rows.double(), spec.offset.double(), spec.group, deployed=deployed)

    in_parts = proved()
    assert all(torch.equal(a, b) for a, b in zip(weights(network), kept))  # they are the network's own
    long.setattr(affine, "_LONG", 1 << 40)
    torch.testing.assert_close(in_parts, proved(), rtol=1e-11, atol=1e-12)


def test_parameters_that_change_meanwhile_are_refused(long: pytest.MonkeyPatch) -> None:
    network, own = net(), margins_of("adaptive")

    def bounds(*asked: Any) -> torch.Tensor:
        weights(network)[0].data[0, 0] += 0.25
        return own(*asked)

    with pytest.raises(InputError, match="were changed while"):
        er.certify(network, torch.ones(1, 24), bounds=bounds)
