"""How much work the bounds of a network are, by its sizes alone, and how many threads that keeps busy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elbowroom.machine.threads import at_most, cores_here, may_be_lowered, threads_pay
from elbowroom.network.graph import Network
from elbowroom.network.operations import Conv, Linear

# CPU seconds, as on the machine of docs/scaling.md (a faster one is so at all of it): of an input per operation, per
# coefficient and per neuron, for some 10 evaluations and what goes with them (rows cut short, so fewer operations) on
# one thread, by the tables there.
_OPERATION, _COEFFICIENT, _NEURON = 1.2e-11, 8e-8, 3.5e-5
_GRAIN = 50e6  # operations of an evaluation that keep one thread busy; four times as many keep two, nine times three
# Inputs of so many features are worked on in blocks that the cache holds (`search/bounds/wide.py`): so many numbers.
_WIDE, _BLOCK = 1 << 13, 200_000


@dataclass(frozen=True)
class Work:
    """Of one evaluation of the bounds for one input: floating-point operations, coefficients of rows that are computed,
    and neurons; and of the operations, how many there are before threads have to wait for each other."""

    operations: float
    coefficients: float
    neurons: int
    at_once: float

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
        at_once = math.inf
        for number, node in enumerate(net.nodes):
            if isinstance(node.op, Linear | Conv):
                products += node.size * node.op.weight[0].numel()
            if not neurons and isinstance(node.op, Linear) and node.op.weight.shape[1] >= _WIDE:
                at_once = min(at_once, 2.0 * _BLOCK * node.op.weight.shape[0])
            if number in net.preactivations:
                if neurons and hidden:  # those of the first layer are what they are
                    operations += 2 * 1.5 * node.size * products
                    coefficients += 1.5 * node.size * sizes
                sizes += node.size
                neurons += node.size
        rows = net.n_outputs - 1
        operations += 2 * rows * products
        return Work(operations, coefficients + rows * sizes, neurons, min(operations, at_once))


def busy_threads(work: Work, cores: int) -> int:
    """How many threads the work keeps busy, out of as many as there are cores."""
    return max(1, min(cores, math.isqrt(int(work.at_once / _GRAIN))))


def settle_threads_for(net: Network) -> None:
    """From here to the end of what the user called, as many threads as bounds of this network keep busy; and only one
    where several are no faster, since others are at work on this machine."""
    if not may_be_lowered():
        return
    count = busy_threads(Work.of(net), cores_here())
    at_most(count)
    if count > 1 and not threads_pay():
        at_most(1)


__all__ = ["Work", "busy_threads", "settle_threads_for"]
