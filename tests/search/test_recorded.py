"""Passes that are recorded and replayed find what plain ones do. CUDA is stood in for; benchmarks have the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import elbowroom as er
from elbowroom.claim.specification import label_stays
from elbowroom.machine.recorder import Recorder
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search import evaluated
from elbowroom.search.bounds import recorded
from elbowroom.search.bounds.propagate import OwnBounds, margins_of
from elbowroom.search.bounds.recorded import Passes, can_record
from elbowroom.search.bounds.sizes import Fixed, Noted, Sizes, numbers_of
from elbowroom.search.derivatives import Derivatives
from elbowroom.search.regions.input_set import InputSet
from support import cases, mlp, networks


class NoWaiting(TorchDispatchMode):
    """Refuses what a recording cannot hold: whatever asks the device for a number."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        assert not any(word in name for word in ("_local_scalar", "nonzero", "masked_select", "unique")), name
        if "aten.index" in name and not name.startswith("aten.index_"):
            assert all(t is None or t.dtype != torch.bool for t in args[1]), name
        return func(*args, **(kwargs or {}))


class Stand:
    """In place of a GPU's: what was recorded is done again, into the same tensors."""

    def __init__(self, device: torch.device) -> None:
        self.warmed, self.replays, self.released = 0, [], False

    def warm(self, work: Callable[[], list[Tensor]]) -> list[Tensor]:
        self.warmed += 1
        return work()

    def record(self, work: Callable[[], list[Tensor]]) -> tuple[list[Tensor], Callable[[], None]]:
        with NoWaiting():
            found = work()
        number = len(self.replays)
        self.replays.append(0)
        for t in found:  # recording runs nothing
            t.fill_(1) if t.dtype == torch.bool else t.fill_(7)

        def replay() -> None:
            self.replays[number] += 1
            for place, t in zip(found, work()):
                place.copy_(t)

        return found, replay

    def release(self) -> None:
        self.released = True


def images(seed: int) -> Network:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape)).float() / np.prod(shape[1:]) ** 0.5

    return Network.chain((1, 8, 8), [
        ops.Conv(normal(4, 1, 3, 3), None, (1,), (1,)), ops.ReLU(), ops.Conv(normal(4, 4, 3, 3), None, (2,), (1,)),
        ops.ReLU(), ops.Reshape((-1,)), ops.Linear(normal(140, 64)), ops.ReLU(), ops.Linear(normal(4, 140)),
    ])  # fmt: skip


def pooled() -> Network:
    rng = np.random.default_rng(5)
    kernel, weight = (torch.from_numpy(rng.normal(size=s)).float() / 4 for s in ((6, 1, 3, 3), (4, 54)))
    return Network.chain((1, 8, 8), [
        ops.Conv(kernel, None), ops.Sigmoid(), ops.MaxPool((2, 2), (2, 2)), ops.Reshape((-1,)), ops.Linear(weight),
    ])  # fmt: skip


NETWORKS: dict[str, Callable[[], Network]] = {
    "images": lambda: images(1),
    "flat": lambda: mlp(np.random.default_rng(0), [20, 140, 140, 5]),
    "smooth": lambda: mlp(np.random.default_rng(0), [20, 140, 140, 5], ops.GELU()),
    "pooled": pooled,
}


def problem(which: str, batch: int = 9) -> tuple[Network, Tensor, Any]:
    net = NETWORKS[which]().cast(torch.float64)
    x = torch.rand(batch, *net.input_shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return net, x, label_stays(net.decide(net(x)), net.n_outputs).cast(torch.float64, x.device)


def plain(net: Network, x: Tensor, radius: float, spec: Any) -> tuple[Tensor, Tensor]:
    at = torch.full_like(x, radius).requires_grad_()
    margins = margins_of("adaptive")(net, InputSet(x, at), spec)
    rows = [torch.autograd.grad(margins[:, k].sum(), at, retain_graph=True)[0] for k in range(margins.shape[1])]
    return margins.detach(), torch.stack(rows, 1)


def own(method: str = "adaptive") -> OwnBounds:
    found = margins_of(method)
    assert isinstance(found, OwnBounds)
    return found


def test_positions_and_how_many_there_is_room_for() -> None:
    mask = torch.tensor([[False, True, False, True, True], [False] * 5, [True] + 4 * [False]])
    full = torch.tensor([[1, 3, 4], [-1, -1, -1], [0, -1, -1]])
    seen: dict[Any, int] = {}
    for sizes in (Sizes(), Noted(seen)):
        assert torch.equal(numbers_of(mask, sizes, ("rows", 1)), full)
    assert seen == {("rows", 1): 3}
    assert numbers_of(mask[:, :0], Sizes(), ("rows", 1)).shape == (3, 0)
    wide = torch.nn.functional.pad(mask, (0, 60))
    room = Fixed(seen, mask.device)
    found = numbers_of(wide, room, ("rows", 1))
    assert found.shape == (3, 16) and torch.equal(found[:, :3], full) and not bool(room.exceeded)
    assert bool((found[:, 3:] == -1).all())
    short = Fixed({}, mask.device)
    assert numbers_of(wide, short, ("rows", 1)).shape == (3, 0) and bool(short.exceeded)
    few = Fixed({("rows", 1): 12}, mask.device)  # room for 16 of 17
    assert torch.equal(numbers_of(torch.ones(1, 17) > 0, few, ("rows", 1)), torch.arange(16)[None])
    assert bool(few.exceeded)


@pytest.mark.parametrize("which", ["images", "flat"])
def test_replays_find_what_plain_passes_find(which: str) -> None:
    net, x, spec = problem(which)
    recorder = Stand(x.device)
    passes = Passes(net, own(), spec, len(x), recorder)
    everyone = torch.arange(len(x))
    for radius in (0.02, 0.02, 0.0195, 0.019, 0.018, 0.017, 0.015):
        margins, rows = plain(net, x, radius, spec)
        for index in (everyone, everyone[3:], torch.tensor([4]), torch.tensor([7, 1])):
            sets = InputSet(x[index], torch.full_like(x[index], radius))
            # Neurons that were stable on a region around may have wider intervals, no others.
            torch.testing.assert_close(passes.margins(sets, index), margins[index], rtol=1e-3, atol=1e-3)
            at_input = net_margins(net, x, spec)[index]
            found = passes.derivatives(sets, index, at_input, 0.0, 3)
            torch.testing.assert_close(found.margins, margins[index], rtol=1e-3, atol=1e-3)
            expected = rows[index].gather(1, found.chosen.reshape(*found.chosen.shape, *[1] * (x.dim() - 1)).expand(
                -1, -1, *x.shape[1:]))  # fmt: skip
            torch.testing.assert_close(found.by_radius.transpose(0, 1), expected, rtol=0.05, atol=0.05)
    assert recorder.warmed <= 6 and sum(recorder.replays) >= 40 and len(recorder.replays) >= 6


@given(networks(), st.integers(0, 2**16))
@cases()
def test_any_network_can_be_recorded(net: Network, seed: int) -> None:
    """Nothing in a pass waits for numbers, whatever the operations."""
    assume(net.n_outputs > 1)
    x = torch.randn(4, *net.input_shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    spec = label_stays(net.decide(net(x)), net.n_outputs).cast(torch.float64, x.device)
    recorder, index = Stand(x.device), torch.arange(len(x))
    passes, at_input = Passes(net, own(), spec, len(x), recorder), net_margins(net, x, spec)
    for radius in (0.01, 0.0101, 0.0102, 0.0103):
        sets, (margins, rows) = InputSet(x, torch.full_like(x, radius)), plain(net, x, radius, spec)
        torch.testing.assert_close(passes.margins(sets, index), margins, rtol=1e-8, atol=1e-8)
        found = passes.derivatives(sets, index, at_input, 0.0, margins.shape[1])
        torch.testing.assert_close(in_order(found), rows, rtol=1e-5, atol=1e-5)
    assert sum(recorder.replays) >= 2


def in_order(found: Derivatives) -> Tensor:
    """Derivatives by the radius, `b x g x *input_shape`, those of each margin at its number."""
    by = found.by_radius.transpose(0, 1)
    order = found.chosen.argsort(1).reshape(*found.chosen.shape, *[1] * (by.dim() - 2))
    return by.gather(1, order.expand_as(by))


def net_margins(net: Network, x: Tensor, spec: Any) -> Tensor:
    found: Tensor = spec.margins(net(x))
    return found


def test_exactly_the_same_where_nothing_is_remembered() -> None:
    net, x, spec = problem("images")
    passes = Passes(net, own(), spec, len(x), Stand(x.device))
    index = torch.arange(len(x))
    for radius in (0.01, 0.0105, 0.011, 0.0115):  # each larger than the last: nothing is inside of what was seen
        found = passes.margins(InputSet(x, torch.full_like(x, radius)), index)
        torch.testing.assert_close(found, plain(net, x, radius, spec)[0], rtol=1e-12, atol=1e-12)


def test_inputs_that_fill_up_change_nothing() -> None:
    """One input alone, in a recording for many: the same as by itself."""
    net, x, spec = problem("images")
    passes, index = Passes(net, own(), spec, len(x), Stand(x.device)), torch.arange(len(x))
    for radius in (0.010, 0.0105, 0.011):
        passes.margins(InputSet(x, torch.full_like(x, radius)), index)
    others = torch.arange(len(x)) != 5
    before = [passes._stable.of(i)[others].clone() for i in net.preactivations]
    sets = InputSet(x[5:6], torch.full_like(x[5:6], 0.0115))
    found = passes.margins(sets, torch.tensor([5]))
    torch.testing.assert_close(found, plain(net, x[5:6], 0.0115, spec.part(torch.tensor([5])))[0], rtol=1e-12, atol=0)
    # And what is remembered of the others is as it was.
    after = [passes._stable.of(i)[others] for i in net.preactivations]
    assert all(torch.equal(a, b) for a, b in zip(before, after)) and any(bool((a != 0).any()) for a in after)


def test_rows_that_there_is_no_room_for() -> None:
    net, x, spec = problem("images")
    recorder = Stand(x.device)
    passes, index = Passes(net, own(), spec, len(x), recorder), torch.arange(len(x))
    for radius in (0.01, 0.0101, 0.0102, 0.2, 0.201, 0.202, 0.203):
        found = passes.margins(InputSet(x, torch.full_like(x, radius)), index)
        torch.testing.assert_close(found, plain(net, x, radius, spec)[0], rtol=1e-12, atol=1e-12)
    # Two alike before the first recording, which was asked once more, for more than it has room for; then it is known.
    assert recorder.warmed == 3 and recorder.replays == [2, 3]


def test_what_cannot_be_recorded_is_done_as_usual() -> None:
    net, x, spec = problem("images")

    class Broken(Stand):
        def record(self, work: Any) -> Any:
            raise RuntimeError("operation not permitted when stream is capturing")

    passes, index = Passes(net, own(), spec, len(x), Broken(x.device)), torch.arange(len(x))
    for radius in (0.01, 0.0105, 0.011, 0.0115):
        found = passes.margins(InputSet(x, torch.full_like(x, radius)), index)
        torch.testing.assert_close(found, plain(net, x, radius, spec)[0], rtol=1e-12, atol=1e-12)
    assert passes.given_up


def test_large_passes_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, spec = problem("images")
    recorder = Stand(x.device)
    monkeypatch.setattr(recorded, "_LARGE", 1000)
    assert Passes(net, own(), spec, len(x), recorder).given_up  # at once, where there may be so many rows
    monkeypatch.setattr(recorded, "_USUAL", 1e9)
    passes = Passes(net, own(), spec, len(x), recorder)
    for radius in (0.01, 0.0101, 0.0102):
        passes.margins(InputSet(x, torch.full_like(x, radius)), torch.arange(len(x)))
    assert passes.given_up and not recorder.replays and recorder.released


def test_nothing_is_recorded_on_a_cpu() -> None:
    _, x, _ = problem("flat")
    assert not can_record(own(), InputSet(x, x.abs()))


@pytest.mark.parametrize("options", [{}, {"domain": (0, 1)}, {"region": er.Box(asymmetric=True), "domain": (0, 1)}])
def test_certificates_are_the_same(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, _ = problem("images", 6)
    options = {"batch": 3, "solver": er.Sequential(gradients=3), **options}
    expected = er.certify(net, x, **options)
    made: list[Stand] = []

    def stand(device: torch.device) -> Stand:
        made.append(Stand(device))
        return made[-1]

    monkeypatch.setattr(evaluated, "can_record", lambda own, sets: sets.is_box)
    monkeypatch.setattr(evaluated, "Recorder", stand)
    found = er.certify(net, x, **options)
    assert found.status == expected.status and bool(found.certified.all())
    torch.testing.assert_close(found.geomean, expected.geomean, rtol=1e-3, atol=0)
    assert sum(sum(one.replays) for one in made) > 10
    assert len(made) == 1  # one batch's recordings serve the next


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("which", ["images", "flat", "smooth", "pooled"])
def test_on_a_gpu(which: str) -> None:
    net, x, spec = problem(which)
    net, x, spec = net.cast(torch.float64, "cuda"), x.cuda(), spec.cast(torch.float64, "cuda")
    passes = Passes(net, own(), spec, len(x), Recorder(x.device))
    index, at_input = torch.arange(len(x), device="cuda"), net_margins(net, x, spec)
    for radius in (0.01, 0.0101, 0.0102, 0.0103, 0.2, 0.201, 0.202, 0.203):
        sets = InputSet(x, torch.full_like(x, radius))
        margins, rows = plain(net, x, radius, spec)
        for _ in range(2):
            passes.begin(spec)
            torch.testing.assert_close(passes.margins(sets, index), margins, rtol=1e-9, atol=1e-9)
            passes.begin(spec)
            found = passes.derivatives(sets, index, at_input, 0.0, 9)
            torch.testing.assert_close(in_order(found), rows, rtol=1e-6, atol=1e-6)
    assert not passes.given_up
    few = torch.tensor([3], device="cuda")
    passes.begin(spec)
    found_there = passes.margins(InputSet(x[few], torch.full_like(x[few], 0.2)), few)
    torch.testing.assert_close(found_there, plain(net, x[few], 0.2, spec.part(few))[0], rtol=1e-9, atol=1e-9)
