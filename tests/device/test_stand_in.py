"""What the stand-in for a GPU tells, and that it computes what the CPU does. Run by `test_on_stand_in`."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.certify import api
from elbowroom.errors import InputError
from elbowroom.machine.recorder import Recorder, is_recording
from support import mlp

if "device.stand_in" not in sys.modules:
    pytest.skip("run on the stand-in for a GPU, by test_on_stand_in", allow_module_level=True)

from device import stand_in
from device.test_gpu import NETWORKS

CUDA = torch.device("cuda")


def recorded(work: Callable[[], list[Tensor]]) -> tuple[list[Tensor], Callable[[], None]]:
    return Recorder(CUDA).record(work)


def test_it_says_that_it_is_a_gpu_and_computes() -> None:
    assert torch.cuda.is_available() and torch.zeros(2, device="cuda").is_cuda and torch.tensor([1.0]).cuda().is_cuda
    at = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda", requires_grad=True)
    (rows,) = torch.autograd.grad((at @ at).square().sum(), at)
    here = at.detach().cpu().requires_grad_()
    assert rows.device.type == "cuda" and at.device.index == 0
    assert torch.equal(rows.cpu(), torch.autograd.grad((here @ here).square().sum(), here)[0])
    part = torch.zeros(4, device="cuda")
    part[1:3] = 2  # by a view
    part.add_(1)
    assert part.tolist() == [1, 3, 3, 1] and torch.cat([part[:1], part[1:2]]).cpu().tolist() == [1, 3]
    to_host = torch.zeros(4)
    assert to_host.copy_(part) is to_host and not to_host.is_cuda and to_host.tolist() == part.tolist()
    with pytest.raises(RuntimeError, match="ordinal"):
        torch.zeros(1, device="cuda:1")
    with pytest.raises(TypeError, match="numpy"):
        np.asarray(part)


def test_operands_on_two_devices() -> None:
    there = torch.ones(3, device="cuda")
    for work in (
        lambda: there + torch.ones(3), lambda: there @ torch.ones(3), lambda: torch.cat([there, torch.ones(3)]),
        lambda: torch.where(there > 0, torch.ones(3), there), lambda: there.gather(0, torch.zeros(1, dtype=torch.long)),
        lambda: torch.ones(3)[torch.zeros(1, dtype=torch.long, device="cuda")],
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="same device"):
            work()
    single = torch.tensor(2.0)  # which may be on the host, as indices may
    assert (there * single).is_cuda and there[torch.tensor([0, 1])].tolist() == [1, 1]


@pytest.mark.parametrize(
    "waits",
    [
        lambda t: t.sum().item(), lambda t: bool((t > 0).all()), lambda t: t[t > 0], lambda t: t.nonzero(),
        lambda t: t.cpu(), lambda t: t.tolist(), lambda t: t + torch.ones(3).cuda(), lambda t: torch.equal(t, t),
        lambda t: torch.tensor(1.0, device="cuda"), lambda t: t.unique(), lambda t: t[torch.tensor([0])],
        lambda t: t.index_put_((t > 0,), t[:1]), lambda t: t.copy_(torch.ones(3)), lambda t: float(t[0]),
        lambda t: torch.ones(3).copy_(t),
    ],
)  # fmt: skip
def test_waiting_while_work_is_recorded(waits: Callable[[Tensor], Any]) -> None:
    at = torch.ones(3, device="cuda")
    waits(at)
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        recorded(lambda: [at * 2, waits(at)][:1])
    assert not is_recording()


def test_what_is_recorded_happens_when_it_is_replayed() -> None:
    given, kept = torch.ones(3, device="cuda"), torch.zeros(3, device="cuda")

    def work() -> list[Tensor]:
        assert is_recording()
        kept.add_(given)
        found = given * 2
        found[1:].add_(1)
        return [found, kept + 0, found.sum(0) > 6]

    (found, sum_, many), replay = recorded(work)
    assert kept.tolist() == [0, 0, 0] and bool(found.isnan().all()) and bool(sum_.isnan().all())
    replay()
    assert found.tolist() == [2, 3, 3] and kept.tolist() == [1, 1, 1] and sum_.tolist() == [1, 1, 1] and bool(many)
    given.fill_(0.5)
    replay()
    assert found.tolist() == [1, 2, 2] and kept.tolist() == [1.5, 1.5, 1.5] and not bool(many)


@pytest.mark.parametrize("name", ["flat", "smooth", "images", "tanh"])
def test_searches_record_and_replay(name: str) -> None:
    before, net = (stand_in.Graph.recorded, stand_in.Graph.replayed), NETWORKS[name]()
    x = torch.rand(6, *net.input_shape, generator=torch.Generator().manual_seed(0))
    assert er.certify(net, x, device="cuda").certified.all()
    assert stand_in.Graph.recorded >= before[0] + 3 and stand_in.Graph.replayed >= before[1] + 10


def test_a_batch_that_is_too_large_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of what was tried is left in memory by then."""
    net = mlp(np.random.default_rng(0), [20, 140, 140, 5])
    x = torch.rand(64, 20, generator=torch.Generator().manual_seed(0))
    expected, halved = er.certify(net, x, device="cuda"), []
    with stand_in.room(1 << 24) as memory:
        smaller = api._smaller
        monkeypatch.setattr(
            api, "_smaller", lambda size, device: halved.append((size, memory.held)) or smaller(size, device)
        )
        found = er.certify(net, x, device="cuda", memory="16GiB", batch=64)
    assert [size for size, _ in halved[:2]] == [64, 32] and all(held < 1 << 20 for _, held in halved)
    assert found.status == expected.status and bool(found.certified.any())
    torch.testing.assert_close(found.geomean, expected.geomean, rtol=1e-2, atol=0)


@pytest.mark.parametrize("room", [1 << 12, 1 << 16, 1 << 18, 1 << 19, 1 << 20])
def test_memory_that_is_not_enough_is_said(room: int) -> None:
    """For the inputs, for the network, for one input."""
    net = mlp(np.random.default_rng(0), [20, 140, 140, 5])
    x = torch.rand(64, 20, generator=torch.Generator().manual_seed(0))
    with stand_in.room(room), pytest.raises(InputError, match=r"the memory of (the GPU|cuda:0) is not enough"):
        er.certify(net, x, device="cuda", memory="16GiB")
