"""What a GPU is to do, recorded and replayed (CUDA graphs): many small kernels take longer to launch than to run."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_LARGE = 1 << 28  # bytes that steps read: more keep a GPU busy without this
_OWN = threading.local()  # of each thread: what one records, another must not write into


class Recorder:
    """How a pass is recorded: on a stream beside the usual one, and in memory of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = _stream(device)
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
            except BaseException:
                self._abandon(graph)
                raise
            graph.capture_end()
        here.wait_stream(self._stream)
        return found, graph.replay

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """Ends a recording of work that failed, and says nothing of it: what failed is said."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                graph.capture_end()
            except RuntimeError:
                # The recording was lost, and torch leaves its pool as one that is recorded to: nothing else can be
                # recorded into that, and as long as it is so memory that was let go stays taken.
                for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
                    with contextlib.suppress(RuntimeError, TypeError):  # names of torch's own, which may change
                        getattr(torch._C, name, _nothing)(self._stream.device_index, self._pool)
                self._pool, self._keeper = torch.cuda.graph_pool_handle(), None


def _stream(device: torch.device) -> torch.cuda.Stream:
    """The one that this thread records on. Libraries keep tens of megabytes for every stream that they ever worked on,
    and memory that was let go on one serves none of the others."""
    streams: dict[torch.device, torch.cuda.Stream] = _OWN.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)
    return streams[device]


def _nothing(*_: object) -> None:
    """In the place of what this torch does not have."""


Step = Callable[[Sequence[Tensor]], Sequence[Tensor]]  # from a state to the next
Steps = Callable[[Sequence[Tensor]], Step]  # from what stays to a step


@dataclass
class _Taken:
    """Recorded steps: what they read and stays, the state that they read and write, and what takes them."""

    fixed: list[Tensor]
    state: list[Tensor]
    replay: Callable[[], None]


class Rounds:
    """Steps that are taken again and again, some at a time, recorded for as many inputs as were asked for first; fewer
    are filled up."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._recorder: Recorder | None = None
        self._made: dict[str, _Taken | None] = {}  # None: it cannot be done

    def after(
        self, name: str, steps: Steps, fixed: Sequence[Tensor], state: Sequence[Tensor], most: int, at_once: int,
        stops: bool = False,
    ) -> list[Tensor] | None:  # fmt: skip
        """The state, `b x ...` each, after at most so many steps, `at_once` at a time; None where they are better taken
        as usual. `steps`: from what is fixed, `b x ...` each, to the step; `name`: of it, which is the same for all
        calls. `stops`: the last of the state is a boolean, and where all are set the steps end."""
        if sum(t.numel() * t.element_size() for t in fixed) > _LARGE or (name in self._made and not self._made[name]):
            return None
        taken, batch, given = self._made.get(name), len(state[0]), [*fixed, *state]
        if taken is None or not _has_room([*taken.fixed, *taken.state], given):
            try:
                taken = self._made[name] = self._record(steps, fixed, state, at_once)
            except RuntimeError:  # also where memory ran out, of which less is taken as usual
                self._made[name] = None
                return None
        fill([*taken.fixed, *taken.state], given)
        for _ in range(-(-most // at_once)):
            taken.replay()
            if stops and bool(taken.state[-1].all()):
                break
        return [t[:batch].clone() for t in taken.state]

    def has(self, name: str) -> bool:
        """Whether these steps are recorded."""
        return self._made.get(name) is not None

    def _record(self, steps: Steps, fixed: Sequence[Tensor], state: Sequence[Tensor], at_once: int) -> _Taken:
        if self._recorder is None:
            self._recorder = Recorder(self._device)
        held, places = [t.clone() for t in fixed], [t.clone() for t in state]

        def work() -> list[Tensor]:
            step, now = steps(held), places
            for _ in range(at_once):
                now = list(step(now))
            for place, t in zip(places, now):
                place.copy_(t)
            return []

        self._recorder.warm(work)
        return _Taken(held, places, self._recorder.record(work)[1])


def _has_room(held: Sequence[Tensor], given: Sequence[Tensor]) -> bool:
    return all(h.shape[1:] == t.shape[1:] and len(h) >= len(t) and h.dtype == t.dtype for h, t in zip(held, given))


def is_recording() -> bool:
    """Whether what is done now is only written down: tensors have no numbers yet, and none may be asked for."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def fill(held: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """Copies what is given, filled up with the first of it. (Whatever writes to the places of one input writes the same
    for all of its copies.)"""
    for place, t in zip(held, given):
        missing = len(place) - len(t)
        torch.cat([t, t[:1].expand(missing, *t.shape[1:])], out=place) if missing else place.copy_(t)


__all__ = ["Recorder", "Rounds", "fill", "is_recording"]
