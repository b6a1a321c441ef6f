"""Workers on this machine: processes, each with its share of the cores, that end with the one that writes the run."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Hashable, Iterable, Iterator
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.errors import ElbowroomError
from elbowroom.machine.threads import using_threads
from elbowroom.network.graph import Network
from elbowroom.runs.engines.pool import Event, distribute
from elbowroom.runs.engines.transport import answer, basis_of, network_bytes, network_of
from elbowroom.runs.engines.worker import Part, Worker
from elbowroom.runs.problem import device_of
from elbowroom.runs.settings import Settings
from elbowroom.runs.sharing import threads_each
from elbowroom.search.memory import Budget

_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def processes(
    net: Network, settings: Settings, work: Iterable[Part], basis: Tensor | None = None
) -> Generator[tuple[int, Certificates], None, None]:
    """An engine: `settings.workers` processes, among which cores and memory are divided."""
    count = settings.workers or 1
    if settings.memory is None:
        total = Budget.of(None, device_of(settings)).total
        settings = dataclasses.replace(settings, memory=max(1 << 20, total // count))
    threads = threads_each(settings)
    turned = None if basis is None else basis.numpy()
    yield from distribute(_Processes((network_bytes(net), settings.plain(), threads, turned)), count, net, work)


class _Processes:
    """A worker is known by this end of its pipe."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        self._given = given
        self._alive: dict[Connection, BaseProcess] = {}
        resource_tracker.ensure_running()  # it changes the mask of signals, so not while that is ours

    def start(self) -> Hashable:
        context = _context()
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there,), daemon=True)
        self._alive[here] = process
        with _no_signals():
            process.start()
        there.close()  # now the pipe ends when the worker does
        self._send(here, (dict(os.environ), *self._given))
        return here

    @staticmethod
    def _send(worker: Connection, what: Any) -> None:
        with contextlib.suppress(OSError):  # it is dead, as the next event will say
            worker.send(what)

    def submit(self, worker: Any, part: Part) -> None:
        self._send(worker, vars(part))

    def events(self) -> list[Event]:
        return [self._event(pipe) for pipe in connection.wait(list(self._alive)) if isinstance(pipe, Connection)]

    def _event(self, pipe: Connection) -> Event:
        try:
            return Event(pipe, *pipe.recv())
        except (EOFError, OSError):
            process = self._alive.pop(pipe)
            pipe.close()
            process.join()
            return Event(pipe, "died", _how(process.exitcode))

    def stop(self) -> None:
        for process in self._alive.values():
            if process.pid is not None:
                process.kill()
                process.join()
        for pipe in self._alive:
            pipe.close()
        self._alive.clear()


def _context() -> SpawnContext | ForkServerContext:
    """Workers are copies of a process that has loaded torch, which is most of what starting one takes, and has begun
    nothing with it; where systems do not copy processes, each loads it for itself."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([Worker.__module__])
    return context


def _how(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return (
            "by the signal SIGKILL, which the system sends when memory runs out: try fewer workers, or less memory "
            "or a smaller batch for each"
        )
    if code is not None and code < 0:
        return f"by the signal {signal.Signals(-code).name}"
    return f"with exit code {code}"


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    """A process that is started meanwhile never sees Ctrl-C, not even before its first line of Python; this one sees
    it later."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection) -> None:
    """The life of a worker. What it needs comes through the pipe: a process that could not even begin is told by the
    pipe's end. So does the environment, since the one that was copied may be of before."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # whoever asks for an end asks the process that writes
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # nobody is there any more
        environment, network, settings, threads, basis = pipe.recv()
        os.environ.clear()
        os.environ.update(environment)
        with using_threads(threads):
            _work(pipe, network, settings, basis)


def _work(pipe: Connection, network: bytes, settings: dict[str, Any], basis: Any) -> None:
    try:
        worker = Worker(network_of(network), Settings(**settings), basis_of(basis))
    except ElbowroomError as error:
        pipe.send(("failed", str(error)))
        return
    pipe.send(("ready", None))
    while True:
        pipe.send(answer(worker, pipe.recv()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
