"""A part's certificates: what is wrong with an input is its row, what is wrong with all of them ends the run."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.certificates.schema import declared
from elbowroom.errors import ElbowroomError, InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.runs.engines import worker as module
from elbowroom.runs.engines.worker import Part, Worker
from elbowroom.runs.problem import resolve
from elbowroom.runs.settings import Settings
from elbowroom.search.regions.registry import REGIONS
from runs.small import labels_for, network, points
from support import mlp

NET = network()
# Where it is not the search that counts.
QUICK: dict[str, Any] = {"bounds": "simple", "solver_options": {"gradients": 1}}


def worker(net: Network = NET, **settings: float | list[float] | str) -> Worker:
    basis = torch.tensor([[0.6, -0.8], [0.8, 0.6]]).double() if settings.get("region") == "oblique" else None
    return Worker(net, resolve(Settings.of({"device": "cpu", **settings}), net, None), basis)


def part(x: np.ndarray, labels: np.ndarray | None = None, faults: Any = None, troubles: Any = None) -> Part:
    return Part(3, np.arange(len(x)) + 10, x, labels, faults or {}, troubles or {})


def test_the_same_as_certify() -> None:
    x = points(9)
    labels = labels_for(NET, x, wrong=(4,))
    found = worker(region="ellipsoid", bounds="combined", max_eps=0.5).compute(part(x, labels))
    wanted = er.certify(NET, x, labels, region=er.Ellipsoid(), bounds="combined", max_eps=0.5)
    assert found.status == wanted.status and torch.equal(found.eps, wanted.eps) and torch.equal(found.x, wanted.x)
    assert found.settings == wanted.settings and found.index.tolist() == list(range(10, 19))
    assert found.status[4] == "misclassified"
    assert bool(er.check(found))


def test_predictions_and_tolerances() -> None:
    x = points(3)
    assert worker().compute(part(x)).status == ("certified",) * 3
    found = worker(within=[0.1, 0.2, 0.3]).compute(part(x, np.zeros(3, int)))
    wanted = er.certify(
        NET, x, spec=er.outputs_within(NET(torch.from_numpy(x)), torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64))
    )
    assert found.labels.tolist() == [-1] * 3 and torch.equal(found.spec_offset, wanted.spec_offset)
    assert bool(er.check(found))


def test_bad_inputs_are_rows() -> None:
    x = points(7)
    labels = labels_for(NET, x, wrong=(6,))
    x[1, 0], x[2, 1], x[3, 0] = np.nan, np.inf, 5.0
    labels[4] = 12
    found = worker(domain=[-2, 2], **QUICK).compute(
        part(x, labels, {1: "cat.png is no image"}, {2: "no number in 'age'"})
    )
    assert found.status == ("certified", "error", "nonfinite", "error", "error", "certified", "misclassified")
    assert found.message[1] == "cat.png is no image" and found.message[2] == "no number in 'age'"
    assert "outside the domain" in found.message[3]
    assert "labels must lie in 0..2" in found.message[4] and found.labels[4] == 12
    assert torch.equal(found.x[4], torch.from_numpy(x[4])) and torch.equal(found.upper[4], found.x[4])
    assert torch.equal(torch.isnan(found.x), torch.isnan(torch.from_numpy(x)))
    found.must_fit(NET)
    assert er.check(found).counts == {"proved": 2, "failed": 0, "no certificate": 5}


@pytest.mark.parametrize("settings", [{}, {"region": "l1"}, {"within": 0.5}])
def test_an_input_that_breaks_something(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault nobody foresaw, in one input of eight: its row has the message, the others are as without it."""
    x = points(8)
    clean = worker(**QUICK, **settings).compute(part(x))

    def fragile(net: Network, x: Tensor, *rest: Any, **more: Any) -> Any:
        if bool((x[:, 0] == float(bad)).any()):
            raise ArithmeticError("not with this one\nsecond line")
        return er.certify(net, x, *rest, **more)

    bad = x[5, 0]
    monkeypatch.setattr(module, "certify", fragile)
    found = worker(**QUICK, **settings).compute(part(x))
    assert found.status == (*clean.status[:5], "error", *clean.status[6:])
    assert found.message[5] == "ArithmeticError: not with this one" and torch.equal(found.x, clean.x)
    others = torch.arange(8) != 5
    assert torch.allclose(found.geomean[others], clean.geomean[others], rtol=1e-4)
    found.must_fit(NET)


def failing(error: Any, most: int = 0) -> Any:
    """A `certify` that fails for batches of numbers larger than `most`."""

    def certify(net: Network, x: Tensor, *rest: Any, **more: Any) -> Any:
        if len(x) > most and bool(torch.isfinite(x).any()):
            raise error
        return er.certify(net, x, *rest, **more)

    return certify


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_out_of_memory(monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    x = points(5)
    wanted = worker(**QUICK).compute(part(x))
    monkeypatch.setattr(module, "certify", failing(error, most=2))
    found = worker(**QUICK).compute(part(x))
    assert found.status == wanted.status and torch.allclose(found.geomean, wanted.geomean, rtol=1e-4)
    monkeypatch.setattr(module, "certify", failing(error))
    with pytest.raises(ElbowroomError, match="not one input of part 3 could be certified: "):
        worker().compute(part(x))


def test_what_is_wrong_with_everything_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "certify", failing(RuntimeError("CUDA error: device-side assert triggered"), most=1))
    with pytest.raises(ElbowroomError, match="the device failed"):
        worker(**QUICK).compute(part(points(4)))
    monkeypatch.setattr(module, "certify", failing(UnsupportedError("no bound for Foo")))
    with pytest.raises(UnsupportedError, match="Foo"):
        worker().compute(part(points(4)))
    monkeypatch.setattr(module, "certify", failing(KeyError("oh")))
    with pytest.raises(ElbowroomError, match="not one input of part 3 could be certified: KeyError: 'oh'"):
        worker().compute(part(points(4)))


def test_certify_says_when_one_input_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """certify halves its own batches, and gives up in words; that is the machine's fault, not the input's."""

    task = sys.modules["elbowroom.certify.task"].Task
    run = task.run

    def full(self: Any, inputs: Any, *rest: Any) -> Any:
        if bool(torch.isfinite(inputs.points).any()):
            raise MemoryError
        return run(self, inputs, *rest)

    monkeypatch.setattr(task, "run", full)
    with pytest.raises(
        ElbowroomError, match="not one input of part 3 could be certified: the memory of cpu is not enough"
    ):
        worker().compute(part(points(3)))


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("within", [None, 0.5])
@pytest.mark.parametrize("domain", [None, [-1, 1]])
def test_the_sample_claims_what_parts_claim(region: Any, within: float | None, domain: list[int] | None) -> None:
    own = worker(region=region, within=within, domain=domain, **QUICK)
    sample, found = own.sample(), own.compute(part(points(2)))
    assert sample.settings == found.settings and set(sample.status) == {"error"}
    for name in declared(er.Certificates):
        a, b = getattr(sample, name), getattr(found, name)
        assert type(a) is type(b) and (not isinstance(a, torch.Tensor) or (a.dtype, a.shape) == (b.dtype, b.shape)), (
            name
        )
    for name in ("spec_group", "basis", "lowest", "highest"):  # what all certificates of the run share
        a, b = getattr(sample, name), getattr(found, name)
        assert a is None or torch.equal(a, b), name
    sample.must_fit(NET)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"domain": {"0": [0, 0], "1": [1, 1]}}, "every feature is frozen"),
        ({"frozen": ["0-1"]}, "every feature is frozen"),
        ({"memory": "lots"}, "memory must be"),
    ],
)
def test_the_sample_looks_at_every_setting(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        worker(**settings).sample()


def test_networks_that_cannot_be_certified() -> None:
    one = mlp(np.random.default_rng(0), [2, 4, 1], ops.ReLU())
    with pytest.raises(InputError, match=r"one output, so there is no label to stay; give a tolerance"):
        worker(one).sample()
    assert worker(one, within=0.1).sample().status == ("error",) * 2
    assert worker(one, within=0.1).compute(part(points(2))).status == ("certified",) * 2
    worker(deployed="float32").sample()
    big = mlp(np.random.default_rng(0), [2, 4, 2], ops.ReLU(), gain=1e300)
    with pytest.raises(ElbowroomError):  # float32 has no such numbers
        worker(big, deployed="float32").sample()
