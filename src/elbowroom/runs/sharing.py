"""How the work of a run is shared out on this machine's cores, where nobody says: by workers, and threads of each.

A rule over what is known before the first input: the network, the number of inputs, the cores and the memory. Measured
(docs/running.md): processes of one thread each lose nothing but their start. Threads of one process wait for each other
at every operation, and the commands let them wait passively: two of them take longer than one for all but very large
networks, and more CPU time always. So there are as many workers as the work pays for, and threads of very large ones.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from elbowroom.machine.threads import cores_here
from elbowroom.network.graph import Network
from elbowroom.network.work import Work, busy_threads
from elbowroom.runs.problem import device_of
from elbowroom.runs.settings import Settings
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.memory import Budget, bytes_of

# CPU seconds of a worker, to load torch and this package or its share of the process that loads them for all.
_START = 1.3
_MORE = 0.25  # how much more CPU time than one thread all starts together may take
_THREADS_PAY = 4e10  # operations at once, from where on threads that wait passively take no quarter more CPU time
_INPUTS_EACH = 4  # at least: so many parts of one input, and nobody waits long for the last one
_ROOM_EACH = 1 << 30  # bytes


@dataclass(frozen=True)
class Share:
    """`workers`: processes, 1 being this one; `threads`: of each."""

    workers: int
    threads: int


def share(work: Work, inputs: int, cores: int, fit: int, threads: int | None = None) -> Share:
    """How to do it. `fit`: workers that there is memory for; `threads`: of each worker, where they are given."""
    paid = int(_MORE * (inputs * work.seconds / _START + 1))  # workers, if they may add that to all, a start included
    workers = max(1, min(cores // (threads or 1), paid, inputs // _INPUTS_EACH, fit))
    return Share(workers, threads or _threads(work, cores // workers))


def _threads(work: Work, cores: int) -> int:
    """Of a worker that has so many cores."""
    return busy_threads(work, cores) if work.at_once >= _THREADS_PAY else 1


def threads_each(settings: Settings) -> int:
    """The threads of one worker: those given, or its share of the cores."""
    return settings.threads or max(1, cores_here() // (settings.workers or 1))


def shared(settings: Settings, net: Network, inputs: int) -> Settings:
    """The settings with workers and threads, for this number of inputs. What is given stays; a GPU is used by one
    process, and a cluster is shared out by itself."""
    device = device_of(settings) if settings.engine == "local" else None
    if device is None or device.type != "cpu":
        return settings
    work = Work.of(net, method_named(settings.bounds).hidden)
    if settings.workers is not None:
        return dataclasses.replace(settings, threads=settings.threads or _threads(work, threads_each(settings)))
    found = share(work, inputs, cores_here(), _fit(settings, net, device), settings.threads)
    return dataclasses.replace(settings, workers=found.workers, threads=found.threads)


def _fit(settings: Settings, net: Network, device: torch.device) -> int:
    """How many workers there is memory for: at what each may take, where that is said; else at a good share, and at an
    input each, where a whole batch does not fit."""
    room = Budget.of(None, device)
    if settings.memory is not None:
        return room.total // bytes_of(settings.memory)
    inputs = room.batch(net, device)
    few = inputs < Budget.of(1 << 60, device).batch(net, device)
    return min(room.total // _ROOM_EACH, inputs) if few else room.total // _ROOM_EACH
