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

# CPU seconds, as on the machine of docs/scaling.md (a faster one is so at all of it): of an input per operation, per
# coefficient and per neuron, for some 12 evaluations and what goes with them (rows cut short, so fewer operations) on
# one thread, by the tables there; of a worker, to load torch and this package.
_OPERATION, _COEFFICIENT, _NEURON = 10 / 80e9, 6e-8, 6e-5
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


@dataclass(frozen=True)
class Work:
    """Of one evaluation of the bounds for one input: floating-point operations, coefficients of rows that are computed,
    and neurons."""

    operations: float
    coefficients: float
    neurons: int

    @property
    def seconds(self) -> float:
        """CPU seconds that certifying an input takes, roughly."""
        return _OPERATION * self.operations + _COEFFICIENT * self.coefficients + _NEURON * self.neurons

    @staticmethod
    def of(net: Network, hidden: bool = True) -> Work:
        """By the model of docs/scaling.md: two rows for each of three in four neurons, carried back through all layers
        before. `hidden`: whether these have rows at all, or the outputs alone."""
        products, sizes, neurons = 0, net.n_inputs, 0
        operations, coefficients = 0.0, 0.0
        for number, node in enumerate(net.nodes):
            if isinstance(node.op, Linear | Conv):
                products += node.size * node.op.weight[0].numel()
            if number in net.preactivations:
                if neurons and hidden:  # those of the first layer are what they are
                    operations += 2 * 1.5 * node.size * products
                    coefficients += 1.5 * node.size * sizes
                sizes += node.size
                neurons += node.size
        rows = net.n_outputs - 1
        return Work(operations + 2 * rows * products, coefficients + rows * sizes, neurons)


def share(work: Work, inputs: int, cores: int, fit: int, threads: int | None = None) -> Share:
    """How to do it. `fit`: workers that there is memory for; `threads`: of each worker, where they are given."""
    paid = int(_MORE * (inputs * work.seconds / _START + 1))  # workers, if they may add that to all, a start included
    workers = max(1, min(cores // (threads or 1), paid, inputs // _INPUTS_EACH, fit))
    return Share(workers, threads or busy_threads(work, cores // workers))


def busy_threads(work: Work, cores: int) -> int:
    """How many threads the work keeps busy, out of as many as there are cores."""
    return max(1, min(cores, math.isqrt(int(work.operations / _GRAIN))))


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
    return using_threads(busy_threads(Work.of(net), cores_here()))


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
    work = Work.of(net, method_named(settings.bounds).hidden)
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
