"""How many threads work: fewer where they would wait for each other, and nobody else sees a difference."""

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import elbowroom as er
from elbowroom.machine import threads
from elbowroom.machine.threads import at_most, cores_here, own_threads, threads_pay, using_threads
from elbowroom.network import operations as ops
from elbowroom.network import work as network_work
from elbowroom.network.graph import Network
from elbowroom.network.work import Work, busy_threads, settle_threads_for


@pytest.fixture(autouse=True)
def three() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


def elsewhere() -> int:
    """What a thread begins with that is started now."""
    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    other.start()
    other.join()
    return found[0]


def net(*sizes: int) -> Network:
    layers: list[ops.Operation] = []
    for into, out in itertools.pairwise(sizes):
        layers += [ops.Linear(torch.randn(out, into), torch.zeros(out)), ops.ReLU()]
    return Network.chain((sizes[0],), layers[:-1])


def test_fewer_threads_here_and_nowhere_else() -> None:
    with own_threads():
        at_most(2)
        assert torch.get_num_threads() == 2 and elsewhere() == 3
        with own_threads():
            at_most(1)
            at_most(2)  # not more again
        assert torch.get_num_threads() == 1 and elsewhere() == 3
    assert torch.get_num_threads() == 3 and elsewhere() == 3
    with own_threads():
        at_most(2)
        threads_pay()  # tries one and two
        assert torch.get_num_threads() == 2 and elsewhere() == 3
    with pytest.raises(ZeroDivisionError), own_threads():
        at_most(1)
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == 3
    at_most(1)  # outside of any scope: it would never end
    assert torch.get_num_threads() == 3


def test_threads_of_the_program_do_not_meet_each_other() -> None:
    """A thread that begins while another works on fewer, and ends later, has its own number all along."""
    inside, done, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        with own_threads():
            at_most(2)
            seen.append(torch.get_num_threads())
            inside.set()
            done.wait(20)
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    with own_threads():
        at_most(1)
        running = threading.Thread(target=other)
        running.start()
        inside.wait(20)
    assert torch.get_num_threads() == 3
    done.set()
    running.join()
    assert seen == [2, 2, 3] and elsewhere() == 3


def test_what_a_user_says_stays() -> None:
    with using_threads(2), own_threads():
        settle_threads_for(net(3, 4, 2))
        assert torch.get_num_threads() == 2
    with using_threads(None), own_threads():
        settle_threads_for(net(3, 4, 2))
        assert torch.get_num_threads() == 1


def test_cores_are_what_torch_uses_as_far_as_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    for usable, found in ((2, 2), (16, 6)):
        monkeypatch.setattr(threads, "usable_cores", lambda usable=usable: usable)
        assert cores_here() == found
    monkeypatch.undo()  # the fixture asks torch


def test_large_networks_have_threads_where_these_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_work, "cores_here", lambda: 3)
    large, wide = net(784, 500, 500, 10), net(1 << 13, 64, 64, 10)
    assert busy_threads(Work.of(large), 16) > 3
    assert Work.of(wide).operations > 1e8 and busy_threads(Work.of(wide), 16) == 1  # in blocks that one thread holds
    for pays, found in ((True, 3), (False, 1)):
        monkeypatch.setattr(network_work, "threads_pay", lambda pays=pays: pays)
        with own_threads():
            settle_threads_for(large)
            assert torch.get_num_threads() == found and elsewhere() == 3
    assert threads_pay() in (True, False) and torch.get_num_threads() == 3 and elsewhere() == 3


def test_small_networks_are_certified_and_checked_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = Network.values

    def values(self: Network, *given: Any) -> Any:
        seen.append(torch.get_num_threads())
        return plain(self, *given)

    small, x = net(5, 8, 3), torch.rand(2, 5)
    monkeypatch.setattr(Network, "values", values)
    certs = er.certify(small, x)
    after = len(seen)
    assert er.check(certs, small) and er.verify(small, x, x)
    assert len(seen) > after > 0 and set(seen) == {1}


def test_only_wide_inputs_are_worked_on_in_blocks() -> None:
    """Not wide layers farther in."""
    layers = [ops.Conv(torch.randn(64, 3, 3, 3), None, (1, 1), (1, 1)), ops.ReLU(), ops.Reshape((-1,))]
    layers += [ops.Linear(torch.randn(400, 64 * 144), torch.zeros(400)), ops.ReLU(), ops.Linear(torch.randn(2, 400))]
    deep = Network.chain((3, 12, 12), layers)
    work = Work.of(deep)
    assert work.at_once == work.operations and busy_threads(work, 16) > 3
