"""Steps of training. On a GPU each is recorded once and replayed: its many small kernels take longer to launch than to
run, against an adversary of 20 steps above all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], Tensor]  # a batch and its labels -> the loss; moves the weights
_WARM = 3  # steps before the first is recorded: libraries and the optimiser set themselves up in them


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """A stream other than the default one, which cannot be recorded; nothing on the CPU."""
    if device.type != "cuda":
        yield
        return
    here, stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        yield
    here.wait_stream(stream)


class Replayed:
    """Takes steps on batches; those that do the same to batches of one shape are replayed (CUDA graphs).

    `generator`: where steps draw their random numbers from; every replay draws new ones.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._taken = 0
        self._kind: Hashable = None
        self._recorded: dict[torch.Size, Step] = {}  # by the shape of the batch: the last one of an epoch is smaller

    def take(self, step: Step, x: Tensor, y: Tensor, kind: Hashable) -> Tensor:
        """One step; its loss. Steps of one `kind` do the same."""
        self._taken += 1
        if self._taken <= _WARM:
            return step(x, y)
        if kind != self._kind:
            self._recorded.clear()
            self._kind = kind
        if x.shape not in self._recorded:
            self._recorded[x.shape] = self._record(step, x, y)
        return self._recorded[x.shape](x, y)

    def _record(self, step: Step, x: Tensor, y: Tensor) -> Step:
        """Recording runs nothing: it takes the shape of the batch, and memory that is its own."""
        held_x, held_y = x.clone(), y.clone()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(x.device)):
            loss = step(held_x, held_y)

        def replay(x: Tensor, y: Tensor) -> Tensor:
            held_x.copy_(x)
            held_y.copy_(y)
            graph.replay()
            return loss

        return replay
