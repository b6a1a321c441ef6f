"""Neurons that were stable on a larger region: nothing is lost but rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elbowroom.claim.specification import label_stays
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.bounds import linear
from elbowroom.search.bounds.propagate import OwnBounds, margins_of
from elbowroom.search.bounds.stable import Stable
from elbowroom.search.regions.input_set import InputSet
from support import mlp


def images(seed: int) -> Network:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(size=shape)).float() / np.prod(shape[1:]) ** 0.5

    return Network.chain((1, 8, 8), [
        ops.Conv(normal(4, 1, 3, 3), None, (1,), (1,)), ops.ReLU(), ops.Conv(normal(4, 4, 3, 3), None, (1,), (1,)),
        ops.ReLU(), ops.Reshape((-1,)), ops.Linear(normal(3, 256)),
    ])  # fmt: skip


def nets() -> list[Network]:
    return [mlp(np.random.default_rng(0), [20, 140, 140, 140, 4]), images(1)]


@pytest.mark.parametrize("which", [0, 1])
def test_smaller_regions_inside_need_fewer_rows_and_have_the_same_margins(
    which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = nets()[which].cast(torch.float64)
    x = torch.rand(5, *net.input_shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    spec = label_stays(net.decide(net(x)), net.n_outputs).cast(torch.float64, x.device)
    evaluate, stable, index = margins_of("adaptive"), Stable(net, len(x)), torch.arange(len(x))
    assert isinstance(evaluate, OwnBounds)
    counted: list[int] = []
    plain = linear._Job.value

    def value(job: Any, tensors: Any) -> Any:
        counted.append(0 if job.chosen is None else int((job.chosen >= 0).sum()))
        return plain(job, tensors)

    monkeypatch.setattr(linear._Job, "value", value)

    def rows_and_margins(radius: float, remembering: bool) -> tuple[int, torch.Tensor]:
        counted.clear()
        sets = InputSet(x, torch.full_like(x, radius))
        found = evaluate(net, sets, spec, stable.at(index, sets) if remembering else None)
        return sum(counted), found

    first, margins = rows_and_margins(0.02, True)
    whole, expected = rows_and_margins(0.02, False)
    assert first == whole
    torch.testing.assert_close(margins, expected, rtol=1e-12, atol=1e-12)
    again, margins = rows_and_margins(0.019, True)
    whole, expected = rows_and_margins(0.019, False)
    assert again < 0.8 * whole
    assert bool((margins <= expected + 1e-9).all())  # wider intervals, if anything
    torch.testing.assert_close(margins, expected, rtol=2e-2, atol=2e-2)
    for radius in (0.021, 0.005):  # not inside; so small that others are stable
        found, margins = rows_and_margins(radius, True)
        whole, expected = rows_and_margins(radius, False)
        assert found == whole
        torch.testing.assert_close(margins, expected, rtol=1e-12, atol=1e-12)


def test_every_input_has_its_own_past() -> None:
    net = nets()[0].cast(torch.float64)
    x = torch.rand(4, 20, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    spec = label_stays(net.decide(net(x)), net.n_outputs).cast(torch.float64, x.device)
    evaluate, stable = margins_of("adaptive"), Stable(net, 4)
    assert isinstance(evaluate, OwnBounds)
    some, everyone = torch.tensor([1, 3]), torch.arange(4)
    large = InputSet(x[some], torch.full_like(x[some], 0.03))
    evaluate(net, large, spec.part(some), stable.at(some, large))
    sets = InputSet(x, torch.full_like(x, 0.028))
    found = evaluate(net, sets, spec, stable.at(everyone, sets))
    new = evaluate(net, sets, spec)
    others = torch.tensor([0, 2])
    torch.testing.assert_close(found[others], new[others], rtol=1e-12, atol=1e-12)
    assert bool((found <= new + 1e-9).all())
