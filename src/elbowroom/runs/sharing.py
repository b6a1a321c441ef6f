"""How the work of a run is shared out on this machine's cores, where nobody says: by workers, and threads of each.

A rule over what is known before the first input: the network, the number of inputs, the cores and the memory. Measured
(docs/running.md): processes of one thread each lose nothing but their start. Threads of one process wait for each other
at every operation: two of them do a small network's work no faster than one, and that of a large one 1.5 times as fast
at most. So there are as many workers as the work pays for, and threads where it pays for fewer than there are cores.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch

from elbowroom.machine.cores import usable_cores
from elbowroom.network.graph import Network
from elbowroom.network.operations import Conv, Linear
from elbowroom.runs.problem import device_of
from elbowroom.runs.settings import Settings
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.memory import Budget, bytes_of

# CPU seconds. Of an input, by the model of docs/scaling.md: 25 evaluations and what goes with them, on one thread. Of a
# worker: to load torch and this package. Both as on the machine of docs/scaling.md; a faster one is so at either.
_INPUT, _EVALUATIONS, _RATE = 0.03, 25, 60e9
_START = 1.7
_MORE = 0.25  # how much more CPU time than one thread all starts together may take
_INPUTS_EACH = 4  # at least: so many parts of one input, and nobody waits long for the last one
_ROOM_EACH = 1 << 30  # bytes
_GRAIN = 50e6  # operations of an evaluation that keep one thread busy; four times as many keep two, nine times three


@dataclass(frozen=True)
class Share:
    """`workers`: processes, 1 being this one; `threads`: of each."""

    workers: int
    threads: int


def operations(net: Network, hidden: bool = True) -> float:
    """Floating-point operations of one evaluation of the bounds for one input, see docs/scaling.md: two rows for each
    of three in four neurons, carried back through all layers before. `hidden`: whether these have rows at all."""
    before, rows, first = 0, 0.0, True
    for number, node in enumerate(net.nodes):
        if isinstance(node.op, Linear | Conv):
            before += node.size * node.op.weight[0].numel()
        if number in net.preactivations:
            rows += 0.0 if first or not hidden else 1.5 * node.size * before
            first = False
    return 2 * (rows + (net.n_outputs - 1) * before)


def share(work: float, inputs: int, cores: int, fit: int, threads: int | None = None) -> Share:
    """How to do it: `work`, operations per evaluation and input; `fit`: workers that there is memory for; `threads`: of
    each worker, where they are given.

    >>> share(200e6, 1000, 8, 99), share(200e6, 200, 8, 99), share(200e6, 8, 8, 99), share(20e9, 8, 8, 99)
    (Share(workers=8, threads=1), Share(workers=3, threads=2), Share(workers=1, threads=2), Share(workers=2, threads=4))
    """
    seconds = inputs * (_INPUT + _EVALUATIONS * work / _RATE)
    paid = int(_MORE * (seconds / _START + 1))  # workers, if they may add that to the run and its own start
    workers = max(1, min(cores // (threads or 1), paid, inputs // _INPUTS_EACH, fit))
    return Share(workers, threads or busy_threads(work, cores // workers))


def busy_threads(work: float, cores: int) -> int:
    """How many threads the work keeps busy, out of as many as there are cores."""
    return max(1, min(cores, math.isqrt(int(work / _GRAIN))))


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """With so many threads in torch, and then as many as before; None: with as many as before all along."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def using_threads_for(net: Network) -> AbstractContextManager[None]:
    """With as many threads as proofs about this network keep busy: for commands that prove in this process."""
    return using_threads(busy_threads(operations(net), cores_here()))


def cores_here() -> int:
    """What torch uses by itself (what the user has set, if anything), as far as this process may use it."""
    return min(torch.get_num_threads(), usable_cores())


def threads_each(settings: Settings) -> int:
    """The threads of one worker: those given, or its share of the cores."""
    return settings.threads or max(1, cores_here() // (settings.workers or 1))


def shared(settings: Settings, net: Network, inputs: int) -> Settings:
    """The settings with workers and threads, for this number of inputs. What is given stays; a GPU is used by one
    process, and a cluster is shared out by itself."""
    device = device_of(settings) if settings.engine == "local" else None
    if device is None or device.type != "cpu" or settings.workers is not None:
        return settings
    work = operations(net, method_named(settings.bounds).hidden)
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
