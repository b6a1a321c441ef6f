"""On a GPU, passes that are recorded once and replayed (CUDA graphs).

A pass over images, or over a small network, is hundreds of small kernels, which take longer to launch than to run. A
search makes a hundred of them that differ in nothing but numbers: what depends on these, how many rows there are, has
room for more than were seen (see `sizes`), and where that is not enough the pass is made as usual, and recorded anew.
Fewer inputs than a recording is for are filled up with the first of them. What is found proposes; the proof decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.machine.failures import is_out_of_memory
from elbowroom.machine.recorder import Recorder, fill
from elbowroom.network.graph import Network
from elbowroom.search.bounds.propagate import OwnBounds
from elbowroom.search.bounds.rough import roughly
from elbowroom.search.bounds.route import net_ancestors, plan, widest
from elbowroom.search.bounds.sizes import Fixed, Key, Noted, Sizes, room_for
from elbowroom.search.bounds.stable import Stable
from elbowroom.search.derivatives import Derivatives, derivatives, least_left
from elbowroom.search.regions.input_set import InputSet

_LARGE = 4 << 30  # bytes of rows: more keep a GPU busy without this, and recordings would take much memory
_USUAL = 4  # of all rows that there may be, one in so many is bounded
_SHARE = 16  # of a budget: rows that are recorded take no more than this part of it
_FEWER = 4  # recordings are for all inputs of a batch, a fourth of them, a fourth of these, ...
_ASKED = 4  # times that so few inputs have been asked for, before there is a recording for them
_FAILURES = 4  # recordings that were too small, after which there are no more

Pass = Callable[..., list[Tensor]]  # from sizes and the tensors of some inputs to what is found for each


@dataclass
class _Recording:
    """A recorded pass: the tensors that it reads, those that it writes, and what runs it."""

    given: list[Tensor]
    found: list[Tensor]
    exceeded: Tensor
    replay: Callable[[], None]


@dataclass
class _Kind:
    """What is known of one kind of pass: recordings, and how often they were asked for, by how many inputs they are
    for; whether the last pass would have fitted into a recording made before it."""

    made: dict[int, _Recording] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    steady: bool = False
    failures: int = 0


def can_record(own: OwnBounds, sets: InputSet) -> bool:
    """Whether passes on such sets can be recorded."""
    return sets.center.device.type == "cuda" and sets.is_box and own.method.linear


class Passes:
    """Passes over a batch of inputs, recorded where that pays. One of these may serve one batch after another."""

    def __init__(self, net: Network, own: OwnBounds, spec: Specification, batch: int, recorder: Recorder) -> None:
        """`spec`: of one batch, like that of all."""
        self.net, self._own, self._batch, self._recorder = net, own, batch, recorder
        self._spec = spec
        self._stable = Stable(net, batch)
        self._seen: dict[Key, int] = {}  # the most rows, where how many there are depends on numbers
        self._looked = False  # whether a pass has been made
        self._kinds: dict[tuple[str, bool], _Kind] = {}
        budget = own.budget
        self._limit = min(_LARGE, budget.total // _SHARE if budget is not None else _LARGE)
        self.given_up = self._bytes({("rows", i): net.nodes[i].size for i in net.preactivations}) > _USUAL * self._limit

    def begin(self, spec: Specification) -> None:
        """With another batch: nothing is known of its inputs."""
        self._spec.rows.copy_(spec.rows)
        self._spec.offset.copy_(spec.offset)
        self._stable.forget(torch.arange(self._batch, device=spec.rows.device))

    def margins(self, sets: InputSet, at: Tensor) -> Tensor:
        """Margins, `m x g`, of the inputs `at` of the batch, on regions `sets`; constants to autograd."""

        def work(sizes: Sizes, center: Tensor, radius: Tensor, at: Tensor) -> list[Tensor]:
            with torch.no_grad():
                return [self._margins(InputSet(center, radius), at, sizes)]

        return self._run(("margins", False), work, [sets.center, sets.radius, at])[0]

    def derivatives(self, sets: InputSet, at: Tensor, at_input: Tensor, delta: float, most: int) -> Derivatives:
        """Margins and derivatives of the `most` that have least left, beside what they are `at_input`, `m x g`."""
        by_center = sets.center.requires_grad

        def work(sizes: Sizes, center: Tensor, radius: Tensor, at: Tensor, at_input: Tensor) -> list[Tensor]:
            by = [t.detach().requires_grad_() for t in ((radius, center) if by_center else (radius,))]
            with torch.enable_grad():
                margins = self._margins(InputSet(by[1] if by_center else center, by[0]), at, sizes)
            index = least_left(margins.detach() - delta, at_input, most)
            rows = derivatives(margins.gather(1, index), by)
            return [margins.detach(), index, *(t.transpose(0, 1) for t in rows)]

        given = [sets.center.detach(), sets.radius.detach(), at, at_input]
        margins, index, *rows = self._run(("derivatives", by_center), work, given)
        by_radius, *rest = (t.transpose(0, 1) for t in rows)
        return Derivatives(margins, index, rest[0] if rest else None, by_radius)

    def _margins(self, sets: InputSet, at: Tensor, sizes: Sizes) -> Tensor:
        return self._own(self.net, sets, self._spec.part(at), self._stable.at(at, sets), sizes, roughly(self.net))

    # --- recording

    def _run(self, key: tuple[str, bool], work: Pass, given: list[Tensor]) -> list[Tensor]:
        kind, count, failed = self._kinds.setdefault(key, _Kind()), len(given[0]), False
        if kind.steady and kind.failures < _FAILURES and not self.given_up:
            found = self._replayed(kind, self._size(kind, count), work, given)
            if found is not None:
                return [t[:count].clone() for t in found]
            failed = True
            self._stable.forget(given[2])  # what was seen there was seen with rows left out
        before = dict(self._seen)
        found = self._recorder.warm(lambda: work(Noted(self._seen), *given))
        # After one that was too small it is known how large the next must be.
        kind.steady = failed or (self._looked and all(self._seen[key] <= room_for(n) for key, n in before.items()))
        self._looked = True
        if self._bytes(self._seen) > self._limit:
            self._give_up()
        return found

    def _give_up(self) -> None:
        """No more recordings, and what they took is free again."""
        self.given_up = True
        self._kinds.clear()
        self._recorder.release()

    def _size(self, kind: _Kind, count: int) -> int:
        """How many inputs the recording is for that serves so many: of those that would, the smallest that there is,
        or, if that has been asked for often enough, the smallest that there could be."""
        size = self._batch
        while -(-size // _FEWER) >= count and size > 1:
            size = -(-size // _FEWER)
        kind.asked[size] = kind.asked.get(size, 0) + 1
        larger = [n for n in kind.made if n >= count]
        return min(larger) if larger and kind.asked[size] <= _ASKED else size

    def _replayed(self, kind: _Kind, size: int, work: Pass, given: list[Tensor]) -> list[Tensor] | None:
        """What a recording for `size` inputs finds; None where there was no room, or it cannot be recorded."""
        recording = kind.made.get(size)
        if recording is None:
            held = [t.new_empty(size, *t.shape[1:]) for t in given]
            fill(held, given)
            try:
                recording = kind.made[size] = self._record(work, held)
            except RuntimeError as error:
                if is_out_of_memory(error):
                    self._give_up()
                self.given_up = True
                return None
        else:
            fill(recording.given, given)
        recording.replay()
        if not bool(recording.exceeded):
            return recording.found
        kind.made.clear()
        kind.steady = False
        kind.failures += 1
        return None

    def _record(self, work: Pass, held: list[Tensor]) -> _Recording:
        def run() -> list[Tensor]:
            sizes = Fixed(self._seen, held[0].device)
            found = work(sizes, *held)
            return [*found, sizes.exceeded]

        (*found, exceeded), replay = self._recorder.record(run)
        return _Recording(held, found, exceeded, replay)

    def _bytes(self, seen: dict[Key, int]) -> int:
        """Of the rows of a pass over the whole batch."""
        found = 0
        for (what, node), rows in seen.items():
            if what != "active":
                sides = 1 if self._own.method.parallel or what == "needed" else 2
                own = plan(self.net, node, net_ancestors(self.net, node), True)
                found += 4 * self._batch * rows * sides * widest(self.net, own)
        return found


__all__ = ["Passes", "can_record"]
