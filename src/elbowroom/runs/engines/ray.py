"""Workers on a Ray cluster: actors that hold the network on their device, and are given one part at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import os
import signal
import socket
import threading
from collections.abc import Generator, Hashable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.errors import ElbowroomError, InputError
from elbowroom.network.graph import Network
from elbowroom.runs.engines.pool import Event, distribute
from elbowroom.runs.engines.transport import answer, basis_of, network_bytes, network_of
from elbowroom.runs.engines.worker import Part, Worker
from elbowroom.runs.settings import Settings
from elbowroom.search.memory import Budget
from elbowroom.version import __version__

_LOG = logging.getLogger(__name__)
_ANSWER = 10.0  # seconds in which a cluster must answer
_PATIENCE = 60.0  # seconds without any worker before that is said


@contextlib.contextmanager
def connected(settings: Settings) -> Iterator[Settings]:
    """While this lasts, there is a cluster: the one at `settings.address` or RAY_ADDRESS, else one of this machine's
    own, which ends with it. Gives the settings with the device and the number of workers there."""
    ray = _ray()
    if settings.device not in (None, "cpu", "cuda"):
        raise InputError(
            f"with Ray the device is cpu or cuda, not {settings.device!r}: each worker has a GPU of its own"
        )
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, settings)
    try:
        room = ray.cluster_resources()
        device = settings.device or ("cuda" if room.get("GPU", 0) >= 1 else "cpu")
        unit = "GPU" if device == "cuda" else "CPU"
        count = settings.workers or int(room.get(unit, 0))
        if not count:
            raise InputError(
                f"the Ray cluster has no {unit} now; `workers=N` waits until it has"
                + ("" if device == "cpu" else ", `device='cpu'` goes without")
            )
        yield dataclasses.replace(settings, device=device, workers=count)
    finally:
        if ours:
            ray.shutdown()


def actors(
    net: Network, settings: Settings, work: Iterable[Part], basis: Tensor | None = None
) -> Generator[tuple[int, Certificates], None, None]:
    """An engine: `settings.workers` actors, as far as the cluster has room for them."""
    count = settings.workers or 1
    yield from distribute(_Actors(net, settings, count, basis), count, net, work)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError("the engine ray needs Ray: pip install 'elbowroom[ray]'") from None
    return ray


def _connect(ray: Any, settings: Settings) -> None:
    address = settings.address or os.environ.get("RAY_ADDRESS") or "local"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    more: dict[str, Any] = {}
    if address == "local":
        more.update(include_dashboard=False)
        if settings.device == "cpu" and settings.workers:
            more.update(num_cpus=settings.workers)
    _must_answer(address)
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **more)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"no Ray cluster can be used at {address}: {first}") from None
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)  # Ray's own would leave at once


def _must_answer(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or "/" in host:
        return  # a word, or one of Ray's other ways to reach a cluster
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {address}: {error}") from None


class _Actor:
    """A worker, in its own process somewhere in the cluster."""

    def __init__(self, version: str, network: bytes, settings: dict[str, Any], count: int, basis: Any) -> None:
        self._state: tuple[str, Any] = ("ready", None)
        try:
            if version != __version__:
                raise InputError(f"a worker has elbowroom {__version__}, not {version}: install the same everywhere")
            own = Settings(**settings)
            if own.memory is None and own.device == "cpu":
                total = Budget.of(None, torch.device("cpu")).total
                own = dataclasses.replace(own, memory=max(1 << 20, total // min(count, _neighbours())))
            self._worker = Worker(network_of(network), own, basis_of(basis))
        except ElbowroomError as error:
            self._state = ("failed", str(error))

    def state(self) -> tuple[str, Any]:
        return self._state

    def compute(self, part: dict[str, Any]) -> tuple[str, Any]:
        return answer(self._worker, part)


def _neighbours() -> int:
    """How many workers this node has room for."""
    ray = _ray()
    here = ray.get_runtime_context().get_node_id()
    return max(1, *(int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["NodeID"] == here))


class _Actors:
    """A worker is known by a number. It is never restarted: another one takes its place, and its part goes to
    whoever is free first, since there may be no room for the other one."""

    def __init__(self, net: Network, settings: Settings, count: int, basis: Tensor | None) -> None:
        self._ray = _ray()
        needs = {"num_gpus": 1, "num_cpus": 0} if settings.device == "cuda" else {"num_cpus": 1}
        self._kind = self._ray.remote(_Actor).options(max_restarts=0, scheduling_strategy="SPREAD", **needs)
        turned = None if basis is None else self._ray.put(basis.numpy())
        self._given = (__version__, self._ray.put(network_bytes(net)), settings.plain(), count, turned)
        self._numbers = itertools.count()
        self._alive: dict[Hashable, Any] = {}
        self._ready: set[Hashable] = set()
        self._asked: dict[Any, Hashable] = {}  # by reference: of what a worker will say

    def start(self) -> Hashable:
        number = next(self._numbers)
        self._alive[number] = actor = self._kind.remote(*self._given)
        self._asked[actor.state.remote()] = number
        return number

    def submit(self, worker: Hashable, part: Part) -> None:
        self._asked[self._alive[worker].compute.remote(vars(part))] = worker

    def events(self) -> list[Event]:
        while True:
            done, _ = self._ray.wait(list(self._asked), timeout=_PATIENCE)
            if done:
                return [self._event(reference) for reference in done]
            if not self._ready:
                _LOG.warning("still no worker is ready: the Ray cluster has no room, or is slow to start one")

    def _event(self, reference: Any) -> Event:
        worker = self._asked.pop(reference)
        errors = self._ray.exceptions
        try:
            event = Event(worker, *self._ray.get(reference))
            self._ready.add(worker)
            return event
        except errors.RayTaskError as error:
            return Event(worker, "broken", str(error))
        except errors.RayError as error:  # a worker or its node is gone, or what it found with it
            self._ray.kill(self._alive.pop(worker))
            self._ready.discard(worker)
            first = (str(error).strip().splitlines() or [""])[0]
            return Event(worker, "died", f"by {type(error).__name__}: {first}")

    def stop(self) -> None:
        for actor in self._alive.values():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        self._alive.clear()
        self._asked.clear()
