"""How much is computed, counted in operations and not in seconds: what made things fast must not be lost unseen."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.certify import task
from elbowroom.network import operations as ops
from elbowroom.search.bounds import linear
from elbowroom.search.bounds.propagate import margins_of
from support import mlp, normal


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[int]]:
    """Counts calls of a function: the list that grows by one at each."""

    def count(owner: Any, name: str) -> list[int]:
        calls: list[int] = []
        plain = getattr(owner, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, called)
        return calls

    return count


def inputs(n: int, seed: int = 0) -> torch.Tensor:
    return normal(np.random.default_rng(seed), n, 12)


def test_evaluations_and_proofs_per_input(counted: Callable[[Any, str], list[int]]) -> None:
    net = mlp(np.random.default_rng(1), [12, 40, 40, 40, 6])
    proofs = counted(task, "prove")
    certs = er.certify(net, inputs(24))
    assert bool(certs.certified.all())
    assert float(certs.evaluations.double().mean()) <= 11  # 10.0 when this was written
    assert float(certs.gradients.double().mean()) <= 4
    assert len(proofs) <= 4  # of the batch: the first, and the few that float32 left a trifle too large


def test_all_margins_share_one_backward(counted: Callable[[Any, str], list[int]]) -> None:
    """One call per bounded layer and linearisation, however many margins there are."""
    per_step = []
    for classes in (3, 12):
        net = mlp(np.random.default_rng(2), [12, 30, 30, classes])
        pulls = counted(linear._Job, "pull_back")
        er.certify(net, inputs(4), solver=er.Sequential(gradients=1))
        per_step.append(len(pulls))
    assert per_step[0] == per_step[1] <= 3


def test_of_many_margins_only_those_near_are_differentiated() -> None:
    net = mlp(np.random.default_rng(3), [12, 30, 200])
    certs = er.certify(net, inputs(3))
    assert bool(certs.certified.all())
    assert bool((certs.gradient_rows <= 16 * certs.gradients).all())


def test_a_bound_of_ones_own_that_cannot_be_batched() -> None:
    net = mlp(np.random.default_rng(4), [12, 20, 4])
    ours = margins_of("adaptive")

    class Awkward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
            return t.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            assert float(grad.sum()) >= 0  # asks for a number
            return grad

    plain = er.certify(net, inputs(4))
    own = er.certify(net, inputs(4), bounds=lambda *given: Awkward.apply(ours(*given)))
    assert own.status == plain.status
    torch.testing.assert_close(own.geomean, plain.geomean, rtol=1e-4, atol=0)


def test_rows_of_a_convolution_are_as_long_as_what_they_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    layers = [
        ops.Conv(normal(rng, 4, 1, 3, 3) / 3, None, (1,), (1,)), ops.ReLU(),
        ops.Conv(normal(rng, 4, 4, 3, 3) / 6, None, (2,), (1,)), ops.ReLU(),
        ops.Reshape((-1,)), ops.Linear(normal(rng, 3, 4 * 14 * 14) / 28),
    ]  # fmt: skip
    net = er.Network.chain((1, 28, 28), layers)
    widths: list[int] = []
    plain = linear._Job.value

    def value(job: Any, tensors: Any) -> Any:
        widths.append(job.widest)
        return plain(job, tensors)

    monkeypatch.setattr(linear._Job, "value", value)
    er.certify(net, normal(rng, 1, 1, 28, 28), solver=er.Sequential(gradients=1))
    assert min(widths) == 36 < max(widths) == 4 * 28 * 28  # 4 channels of a 3 x 3 window, and the margins' whole rows
