"""What a GPU is to do, recorded and replayed (CUDA graphs): many small kernels take longer to launch than to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Recorder:
    """How a pass is recorded: on a stream and in memory of their own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._keeper: object = None

    def warm(self, work: Callable[[], list[Tensor]]) -> list[Tensor]:
        """What `work` gives, done where passes are recorded: libraries set themselves up there."""
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            found = work()
        here.wait_stream(self._stream)
        return found

    def record(self, work: Callable[[], list[Tensor]]) -> tuple[list[Tensor], Callable[[], None]]:
        """The tensors that `work` writes, and what writes them again."""
        if self._keeper is None:  # a pool is lost with the last recording in it: this one, of nothing, keeps it
            self._keeper = self._record(lambda: [torch.zeros(1, device=self._device)])
        return self._record(work)

    def release(self) -> None:
        """Gives the memory of recordings back, once they are gone; no more are to be made."""
        self._keeper = None

    def _record(self, work: Callable[[], list[Tensor]]) -> tuple[list[Tensor], Callable[[], None]]:
        graph = torch.cuda.CUDAGraph()
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            # Other threads may do as they like meanwhile.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                found = work()
            finally:
                graph.capture_end()
        here.wait_stream(self._stream)
        return found, graph.replay


def fill(held: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """Copies what is given, filled up with the first of it. (Whatever writes to the places of one input writes the same
    for all of its copies.)"""
    for place, t in zip(held, given):
        missing = len(place) - len(t)
        torch.cat([t, t[:1].expand(missing, *t.shape[1:])], out=place) if missing else place.copy_(t)


__all__ = ["Recorder", "fill"]
