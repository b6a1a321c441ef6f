"""Rows for one end of each neuron, and for the other where that does not say whether it is on or off: in images, and in
the last layer of neurons."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elbowroom.claim.specification import label_stays
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.bounds import propagate
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.regions.input_set import InputSet


def images(seed: int) -> tuple[Network, Tensor]:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape)) / np.prod(shape[1:]) ** 0.5

    net = Network.chain((2, 7, 7), [
        ops.Conv(normal(3, 2, 3, 3), normal(3), (1,), (1,)), ops.ReLU(),
        ops.Conv(normal(4, 3, 3, 3), normal(4), (2,), (1,)), ops.ReLU(),
        ops.Conv(normal(4, 4, 2, 2), normal(4), (1,), (0,)), ops.ReLU(),
        ops.Reshape((-1,)), ops.Linear(normal(20, 36), normal(20)), ops.ReLU(), ops.Linear(normal(3, 20), normal(3)),
    ])  # fmt: skip
    return net, torch.from_numpy(rng.normal(size=(3, 2, 7, 7)))


@pytest.mark.parametrize("seed", range(4))
def test_neurons_that_are_not_decided_have_both_ends(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is decided is the same; so are margins and their derivatives, and fewer rows are carried back."""
    net, x = images(seed)
    spec = label_stays(net.decide(net(x)), 3)
    count = [0]
    plain = propagate.lower_deviation

    def counted(*given: Any, **also: Any) -> Tensor:
        found = plain(*given, **also)
        count[0] += found.shape[1]
        return found

    monkeypatch.setattr(propagate, "lower_deviation", counted)

    def bounds(many: int) -> tuple[Propagation, Tensor, Tensor, int]:
        monkeypatch.setattr(propagate, "_MANY", many)
        monkeypatch.setattr(propagate, "_LONG", many)
        radius = torch.full_like(x, 0.05).requires_grad_()
        count[0] = 0
        found = Propagation(net, InputSet(x, radius), method_named("adaptive"), skip_inactive=True)
        margins = found.margins(spec, "direct")
        return found, margins.detach(), torch.autograd.grad(margins.sum(), radius)[0], count[0]

    (one, margins, slope, few), (both, same_margins, same_slope, many) = bounds(1), bounds(1 << 30)
    assert few < many
    for i in net.preactivations:
        low, high, whole_low, whole_high = (t[i].detach() for b in (one, both) for t in (b.lower, b.upper))
        open_ = (whole_low < 0) & (whole_high > 0)
        torch.testing.assert_close((low >= 0, high <= 0), (whole_low >= 0, whole_high <= 0))
        torch.testing.assert_close((low[open_], high[open_]), (whole_low[open_], whole_high[open_]))
    torch.testing.assert_close((margins, slope), (same_margins, same_slope))
