"""What the work may take: texts, what is free, batches, and running out of it."""

import resource
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
import torch

import elbowroom as er
from elbowroom.certify.api import certify
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.memory import Budget, Pool, bytes_of, free_bytes

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (5 << 20, 5 << 20), ("4GiB", 4 << 30), ("4 gib", 4 << 30), ("4G", 4 << 30), ("500MB", 500_000_000),
        ("1.5GiB", 3 << 29), ("2tb", 2 * 10**12), ("1048576", 1 << 20), ("2097152 B", 2 << 20),
    ],
)  # fmt: skip
def test_texts(text: str, size: Any) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "4 potatoes", "-4GiB", "nan", "1e9", 0, -1, 1.5, True, "12 kb", None])
def test_texts_that_mean_nothing(text: bool | float | str | None) -> None:
    with pytest.raises(er.InputError, match="memory must be"):
        bytes_of(text)


def test_what_is_free() -> None:
    free = free_bytes(CPU)
    assert 1 << 28 < free < 1 << 50
    assert Budget.of(None, CPU).total <= free


def test_a_pool_gives_what_it_has() -> None:
    pool = Pool(10)
    assert pool.take(6) and not pool.take(5) and pool.take(4) and not pool.take(1)


def wide(width: int, depth: int = 3) -> Network:
    generator = torch.Generator().manual_seed(0)
    layers: list[ops.Operation] = []
    sizes = [8, *[width] * depth, 3]
    for into, out in pairwise(sizes):
        layers += [ops.Linear(torch.randn(out, into, generator=generator) / into**0.5), ops.ReLU()]
    return Network.chain((8,), layers[:-1])


def test_batches_follow_memory_and_size() -> None:
    sizes = [Budget.of(memory, CPU).batch(wide(400), CPU) for memory in ("64MiB", "1GiB", "8GiB")]
    assert 1 <= sizes[0] < sizes[1] <= sizes[2] <= 64
    assert Budget.of("64MiB", CPU).batch(wide(2000), CPU) < sizes[0]
    assert Budget.of("1MiB", CPU).batch(wide(2000), CPU) == 1
    assert Budget.of("64MiB", CPU).batch(wide(400), CPU, rows=999) < sizes[0]


def test_the_same_certificates_within_little_memory() -> None:
    net, x = wide(30), torch.randn(9, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plenty = certify(net, x)
    assert plenty.certified.all()
    for options in ({"memory": "2MiB"}, {"batch": 1}, {"batch": 4}):
        little = certify(net, x, **options)
        assert little.status == plenty.status
        torch.testing.assert_close(little.geomean, plenty.geomean, rtol=1e-4, atol=0)


def test_out_of_memory_halves_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from elbowroom.certify.task import Task

    sizes, plain = [], Task.run

    def run(self: Any, points: Any, *rest: Any) -> Any:
        sizes.append(len(points))
        if len(points) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(self, points, *rest)

    monkeypatch.setattr(Task, "run", run)
    net, x = wide(10), torch.randn(7, 8, dtype=torch.float64)
    certs = certify(net, x)
    assert len(certs) == 7 and torch.equal(certs.x, x)
    assert sizes == [7, 3, 1, 1, 1, 1, 1, 1, 1]


def test_too_little_for_one_input(monkeypatch: pytest.MonkeyPatch) -> None:
    from elbowroom.certify.task import Task

    def run(self: Any, *rest: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Task, "run", run)
    with pytest.raises(er.InputError, match="is not enough for one input"):
        certify(wide(10), torch.randn(5, 8, dtype=torch.float64))


def test_other_errors_are_not_taken_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    from elbowroom.certify.task import Task

    def run(self: Any, *rest: Any) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(Task, "run", run)
    with pytest.raises(RuntimeError, match="something else"):
        certify(wide(10), torch.randn(5, 8, dtype=torch.float64))


SCRIPT = """
import resource, torch, elbowroom as er
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
torch.manual_seed(0)
torch.set_num_threads(1)
conv = lambda i, o, k, s: ops.Conv(torch.randn(o, i, k, k) / (i * k * k) ** 0.5, None, (s,), (1,))
net = Network.chain((3, 16, 16), [
    conv(3, 16, 3, 1), ops.ReLU(), conv(16, 16, 4, 2), ops.ReLU(), conv(16, 16, 4, 2), ops.ReLU(),
    ops.Reshape((-1,)), ops.Linear(torch.randn(5, 256) / 16)])
x = torch.rand(16, 3, 16, 16).double()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
certs = er.certify(net, x[:LIMIT], solver=er.Sequential(gradients=1), memory="MEMORY")
print(certs.certified.sum().item(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_peak_memory_of_a_convolutional_network() -> None:
    """4,096 + 1,024 + 256 neurons."""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
    script = SCRIPT.replace("LIMIT", "3").replace("MEMORY", "256MiB")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    certified, kilobytes = map(int, done.stdout.split())
    assert certified == 3
    assert kilobytes < 256 * 1024


CLASSES = """
import resource, torch, elbowroom as er
from elbowroom.network import operations as ops
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
net = er.Network.chain((4,), [ops.Linear(torch.randn(500, 4, generator=generator))])
x = torch.randn(250, 4, generator=generator)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
certs = er.certify(net, x, region=er.Uniform(), bounds="simple", memory="256MiB")
print(certs.certified.sum().item(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_peak_memory_of_many_classes() -> None:
    """The rows of all inputs together would take 500 MB."""
    done = subprocess.run([sys.executable, "-c", CLASSES], capture_output=True, text=True, check=True)
    certified, kilobytes = map(int, done.stdout.split())
    assert certified == 250
    assert kilobytes < 256 * 1024
