"""Rows in half precision: nearly the same margins and derivatives, and regions that are scaled precisely in the end.

What a GPU does is done here by plain torch on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.claim.specification import label_stays
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.bounds import linear, rough
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import OwnBounds
from elbowroom.search.evaluated import OwnEvaluated
from elbowroom.search.regions.input_set import InputSet


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half precision on a CPU, and of few rows."""
    monkeypatch.setattr(rough, "_pays", lambda net: net.dtype == torch.float32)
    monkeypatch.setattr(linear, "_MANY", 1)


def network(scale: float = 1.0, seed: int = 0) -> Network:
    """Normalised inputs, a batch norm whose parameters have odd sizes, and weights times `scale`."""
    draw = torch.Generator().manual_seed(seed)

    def matrix(out: int, into: int) -> ops.Linear:
        weight = scale * torch.randn(out, into, generator=draw) * (2 / into) ** 0.5
        return ops.Linear(weight, 0.1 * torch.randn(out, generator=draw))

    size = 10 ** (3 * torch.rand(40, generator=draw) - 5)
    norm = ops.BatchNorm(size, size.square(), size * (0.5 + torch.rand(40, generator=draw)), torch.zeros(40), 0.0)
    return Network.chain(
        (150,),
        [
            ops.Shift(torch.full((150,), -0.5)), ops.Divide(torch.full((150,), 0.3)),
            matrix(140, 150), ops.ReLU(), matrix(40, 140), norm, ops.ReLU(), ops.Scale(torch.full((40,), 2.0)),
            matrix(6, 40),
        ],
    )  # fmt: skip


def inputs(count: int = 4) -> Tensor:
    return torch.rand(count, 150, generator=torch.Generator().manual_seed(1))


def both(net: Network, x: Tensor, radius: Tensor, bounds: str, margin: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """In full and in half precision: margins, how far they fall, and derivatives of the smallest by the radius."""
    net, own = net.cast(torch.float32), OwnBounds(method_named(bounds), margin, None)
    spec = label_stays(net.decide(net(x)), net.n_outputs).cast(torch.float32, "cpu")
    for carrier in (None, rough.roughly(net)):
        at = radius.clone().requires_grad_()
        found = own(net, InputSet(x, at), spec, rough=carrier)
        yield found.detach(), spec.margins(net(x)) - found.detach(), torch.autograd.grad(found.amin(1).sum(), at)[0]


@pytest.mark.parametrize(("bounds", "margin"), [("adaptive", "direct"), ("combined", "logits")])
@pytest.mark.parametrize("radius", [1e-2, 1e-5])
def test_margins_and_derivatives(everywhere: None, bounds: str, margin: str, radius: float) -> None:
    x = inputs()
    widths = radius * (0.5 + torch.rand(x.shape, generator=torch.Generator().manual_seed(2)))
    (_, fall, full), (_, near, half) = both(network(), x, widths, bounds, margin)
    assert (near - fall).abs().max() <= 2e-3 * fall.abs().max() and not torch.equal(near, fall)
    assert (half - full).norm() <= 2e-3 * full.norm() and not torch.equal(half, full)


def test_nothing_moves(everywhere: None) -> None:
    x = inputs(2)
    (full, *_), (half, _, slope) = both(network(), x, torch.zeros_like(x), "adaptive", "direct")
    torch.testing.assert_close(half, full)
    assert slope.isfinite().all()


def test_only_what_fits(everywhere: None) -> None:
    def fits(net: Network) -> bool:
        return rough.roughly(net.cast(torch.float32)) is not None

    assert fits(network()) and fits(network(4.0)) and fits(network(0.1))
    assert not fits(network(1e3)) and not fits(network(1e-2)) and not fits(network(0.0))
    small = network().nodes[1:]
    for extra in (ops.Sigmoid(), ops.Scale(torch.full((6,), 1e6)), ops.Scale(torch.full((6,), 1e-7))):
        assert not fits(Network.chain((150,), [*(node.op for node in small), extra]))
    image = Network.chain((1, 4, 4), [ops.Conv(torch.ones(2, 1, 2, 2), None), ops.ReLU(), ops.Reshape((-1,))])
    assert not fits(image)


def test_not_on_a_cpu() -> None:
    assert rough.roughly(network().cast(torch.float32)) is None


def test_parameters_that_change_are_others(everywhere: None) -> None:
    net = network()
    before = rough.roughly(net.cast(torch.float32))
    assert before is not None and rough.roughly(net.cast(torch.float32)) is before
    net.nodes[3].op.weight.mul_(2)
    after = rough.roughly(net.cast(torch.float32))
    assert after is not None
    torch.testing.assert_close(after.nodes[3].op.weight, 2 * before.nodes[3].op.weight)


@pytest.mark.parametrize(("bounds", "margin"), [("adaptive", "direct"), ("combined", "logits")])
def test_regions_are_scaled_precisely(
    everywhere: None, monkeypatch: pytest.MonkeyPatch, bounds: str, margin: str
) -> None:
    net, x = network(), inputs(12)
    precise: list[int] = []
    kept = OwnEvaluated.precise.fget
    assert kept is not None

    def noted(self: OwnEvaluated) -> object:
        precise.append(len(self.rows))
        return kept(self)

    monkeypatch.setattr(OwnEvaluated, "precise", property(noted))
    near = er.certify(net, x, bounds=bounds, margin=margin)
    assert precise
    monkeypatch.setattr(rough, "_pays", lambda net: False)
    full = er.certify(net, x, bounds=bounds, margin=margin)
    assert near.status == full.status and near.certified.all()
    assert (near.geomean.log() - full.geomean.log()).abs().max() < 2e-3
    assert abs(float((near.geomean.log() - full.geomean.log()).mean())) < 5e-4
    assert er.check(near, net)


def test_rows_that_overflow_after_all(everywhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single numbers may be too large where the mean is not."""
    monkeypatch.setattr(rough, "_MOST", 12)  # no small network is so uneven
    layers = [node.op for node in network().nodes[3:] if isinstance(node.op, ops.Linear | ops.ReLU)]
    for op in layers[:3:2]:
        op.weight[0, 0] = 270.0  # times each other, more than 65,504
    net, x = Network.chain((150,), layers), inputs(2)
    assert rough.roughly(net.cast(torch.float32)) is not None
    near = er.certify(net, x)
    monkeypatch.setattr(rough, "_pays", lambda net: False)
    full = er.certify(net, x)
    assert near.certified.all() and er.check(near, net)
    assert (near.geomean / full.geomean).min() > 0.9


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_many_inputs_on_a_gpu() -> None:
    """More than the host keeps books of, then fewer, as some are done."""
    x = torch.rand(1100, 150, generator=torch.Generator().manual_seed(1))
    near = er.certify(network(), x, device="cuda")
    some = torch.arange(0, 1100, 100)
    alone = er.certify(network(), x[some], device="cpu")
    assert near.certified.all() and er.check(near, network(), device="cuda")
    off = near.geomean[some].log() - alone.geomean.log()  # where margins jump, other roundings may lead elsewhere
    assert off.abs().max() < 0.03 and abs(float(off.median())) < 1e-3
