"""An ONNX model is compared with the network that was read from it, and what was not compared is said.

Node by node in float64 with onnx's reference implementation, and as a whole with onnxruntime, where it is installed:
at random inputs of several scales, at the batch sizes 1, 2 and 3 where the batch axis is free and at its own size
otherwise. Every input of a batch must get what the network gives for it alone. The same again, later, at a user's
inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import UnsupportedError
from elbowroom.network.graph import Network, Source
from elbowroom.readers.onnx.file import INTEGERS, type_name
from elbowroom.readers.onnx.guard import CannotRunError, Guard, NotComparableError, Pair, TooLargeError
from elbowroom.readers.onnx.runtime import Extract, Runtime
from elbowroom.readers.rounding import Rounding, rounding

SCALES = (1.0, 100.0, 0.01)
SIZES = (1, 2, 3)  # of batches
MOST = 1 << 31  # multiplications that the reference implementation may take: a few seconds
MOST_NUMBERS = 1 << 27  # that it may hold at once: a gigabyte
MOST_IN_RUNTIME = 1 << 36  # multiplications that onnxruntime may take
_RUNS = ((0,), (1,), (2,), (0, 1), (2, 0, 1))  # inputs by their numbers, for a free batch: each alone before

Batch = tuple[int, ...]


@dataclass
class _Side:
    """How far the comparison with one implementation came.

    `name`: what it is called; `done`: the batches compared, inputs by their numbers; `cannot`: batch sizes that it
    cannot run, and why; `too_large`: those among them that would take too much memory; `unseen`: batch sizes that
    could not be compared, and why; `missing`: why nothing was compared, or nothing more.
    """

    name: str
    done: list[Batch] = field(default_factory=list)
    cannot: dict[int, str] = field(default_factory=dict)
    too_large: dict[int, str] = field(default_factory=dict)
    unseen: dict[int, str] = field(default_factory=dict)
    missing: str = ""

    def run(
        self, batches: Sequence[Batch], compare: Callable[[Batch], None], work: int, most: int, room: int = 0
    ) -> None:
        """Compares batch by batch, as far as that is allowed; `work` and `room`: time and numbers for one input."""
        spent = 0
        for batch in batches:
            if room * len(batch) > MOST_NUMBERS:
                self.unseen[len(batch)] = f"that would take more than {MOST_NUMBERS:,} numbers at once"
            if len(batch) in self.cannot or len(batch) in self.unseen:
                continue
            spent += work * len(batch)
            if spent > most:
                self.missing = f"that would take more than {most:,} multiplications"
                return
            try:
                compare(batch)
                self.done.append(batch)
            except CannotRunError as error:
                self.cannot[len(batch)] = _shown(error)
                if isinstance(error, TooLargeError):
                    self.too_large[len(batch)] = _shown(error)
            except NotComparableError as error:
                if not self.done:
                    self.missing = _shown(error)
                    return
                self.unseen[len(batch)] = _shown(error)

    @property
    def why(self) -> str:
        """Why nothing was compared."""
        return self.missing or next(iter([*self.unseen.values(), *self.cannot.values()]), "")

    @property
    def sizes(self) -> list[int]:
        return sorted({len(batch) for batch in self.done})

    def at(self) -> str:
        scales = sorted({SCALES[i % 3] for batch in self.done for i in batch})
        return (
            f"at batch size{'s' * (len(self.sizes) > 1)} {_listed(self.sizes)}, with inputs of scale {_listed(scales)}"
        )


class Comparison:
    """Compares a pair when it is made; `compared` and `notes` say what was found, `source` compares again.

    `net`: the network that was read; `extract`: makes a model for onnxruntime; `declared`: the type of the model's
    input, by ONNX's number; `kind`: the coarsest type it computes in.
    """

    def __init__(self, pair: Pair, net: Network, extract: Extract, declared: int, kind: torch.dtype) -> None:
        import onnx

        self._pair, self._net, self._declared, self._kind = pair, net, declared, kind
        self._reference = _Side(f"onnx {onnx.__version__}'s reference implementation")
        self._runtime = _Side("onnxruntime")
        self._guard = Guard(pair)
        self._deployed: Runtime | None = None
        batches = self._batches()
        x = self._samples(1 + max(i for batch in batches for i in batch))
        self._reference.run(batches, lambda batch: self._guard.compare(x[list(batch)]), pair.work, MOST, pair.room)
        try:
            self._deployed = Runtime(pair, extract, declared, kind)
        except NotComparableError as error:
            self._runtime.missing = _shown(error)
        else:
            self._runtime.name = f"onnxruntime {self._deployed.version}"
            self._runtime.cannot.update(self._reference.too_large)
            deployed, expected = self._deployed, self._expected(x)
            self._runtime.run(
                batches, lambda batch: deployed.compare(x[list(batch)], expected[batch]), pair.work, MOST_IN_RUNTIME
            )
        if pair.batch > 1 and not (self._reference.done or self._runtime.done):
            reason = " or ".join(f"{s.name}: {s.why}" for s in self._sides)
            raise UnsupportedError(
                f"the model is made for batches of {pair.batch} inputs, and whether these are independent cannot be "
                f"seen, since it cannot be compared with {reason}. Export it with a free batch axis, or with batch "
                "size 1"
            )

    @property
    def _sides(self) -> tuple[_Side, _Side]:
        return self._reference, self._runtime

    # --- inputs

    def _batches(self) -> tuple[Batch, ...]:
        if self._pair.free:
            return _RUNS
        if self._pair.batch == 2:
            return ((0, 1), (2, 0))
        return (tuple(range(self._pair.batch)),) if self._pair.batch > 1 else ((0,), (1,), (2,))

    def _samples(self, count: int) -> Tensor:
        """Random inputs of the network, all different, each of its own scale: `count x *shape`."""
        x = np.random.default_rng(0).standard_normal((count, *self._net.input_shape))
        scales = np.resize(SCALES, count).reshape(-1, *[1] * (x.ndim - 1))
        unsigned = self._declared in INTEGERS and np.iinfo(type_name(self._declared)).min == 0
        return self._rounded(torch.from_numpy(np.abs(x * scales) if unsigned else x * scales))

    def _rounded(self, x: Tensor) -> Tensor:
        """Inputs as the model takes them, in its own type."""
        name = type_name(self._declared)
        if self._declared not in INTEGERS:
            return x.to(getattr(torch, name)).double()
        ends, most = np.iinfo(name), 1 << 53
        return x.round().clamp(max(int(ends.min), -most), min(int(ends.max), most))

    def _expected(self, x: Tensor) -> Rounding:
        """What the network gives at `x`, and what rounding may do to it; in parts that fit into memory."""
        copies = 3 if len(x) * self._pair.work <= MOST else 1
        part = max(1, MOST_NUMBERS // ((1 + copies) * self._pair.room))
        return Rounding.joined([rounding(self._net, rows, self._kind, copies) for rows in x.split(part)])

    # --- what is said

    @property
    def compared(self) -> tuple[str, ...]:
        said = []
        guard, reference, runtime = self._guard, *self._sides
        if reference.done:
            plain = f" (for {_listed(list(guard.plain))} with the specification, written out)" if guard.plain else ""
            said.append(
                f"compared node by node in float64 with {reference.name}{plain}, {reference.at()}: the largest "
                f"difference is {guard.seen:.1g} of a node's largest number"
            )
        if guard.lacking:
            said.append(f"not compared by itself, since {reference.name} lacks it: {_listed(list(guard.lacking))}")
        if guard.infinite:
            said.append("some values were infinite in float64; they were compared as such")
        if runtime.done and self._deployed is not None:
            said.append(
                f"compared as a whole in its own types with {runtime.name} on the CPU, {runtime.at()}: the largest "
                f"difference is {self._deployed.seen:.1g} of the largest output"
            )
        for side in self._sides:
            if side.missing:
                said.append(f"not compared with {side.name}{' any further' * bool(side.done)}: {side.missing}")
            said.extend(f"{side.name} cannot run {size} inputs at once: {why}" for size, why in side.cannot.items())
            said.extend(f"not compared with {side.name} at batch size {n}: {why}" for n, why in side.unseen.items())
        return tuple(said)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user must know: the rest is in `compared`."""
        reference, runtime = self._sides
        if not reference.done and not runtime.done:
            reasons = "; ".join(f"with {s.name}: {s.why}" for s in self._sides)
            return (f"the network was not compared with the model it was read from ({reasons})",)
        notes = []
        if self._guard.lacking and not runtime.done:
            notes.append(
                f"{_listed(list(self._guard.lacking))} was not compared with the model, for lack of onnxruntime"
            )
        if self._deployed is not None and self._deployed.infinite:
            notes.append(
                f"{runtime.name} gives infinite numbers, or none, for some random inputs of scale {max(SCALES):g} or "
                "less, where the network gives finite ones; they were not compared"
            )
        if self._pair.free:
            cannot = sorted((runtime if runtime.done else reference).cannot)
            unseen = [n for n in SIZES if n not in {*cannot, *reference.sizes, *runtime.sizes}]
            if cannot:
                notes.append(
                    f"the model's batch axis is free, but it cannot be run with {_listed(cannot)} inputs at once; it "
                    "is read for one at a time"
                )
            if unseen:
                notes.append(
                    f"the model was not run with {_listed(unseen)} inputs at once: whether the inputs of a batch are "
                    "independent in it was not seen"
                )
        return tuple(notes)

    # --- a user's inputs

    @property
    def source(self) -> Source:
        return Source(self._differs)

    def _differs(self, x: Tensor) -> str | None:
        try:
            for rows in self._parts(self._rounded(x)) if len(x) else ():
                if self._runtime.done and self._deployed is not None:
                    self._deployed.infinite = 0
                    self._deployed.compare(rows, self._expected(rows))
                    if self._deployed.infinite:
                        return f"at the inputs given {self._runtime.name} gives infinite numbers, or none"
                elif self._reference.done:
                    self._guard.compare(rows)
        except UnsupportedError as error:
            return f"at the inputs given: {error}"
        except (CannotRunError, NotComparableError) as error:
            return f"the model cannot be run at the inputs given: {error}"
        return None

    def _parts(self, x: Tensor) -> Iterator[Tensor]:
        """Batches as the model takes them: one by one, and of the sizes compared before, where they are free."""
        side = self._runtime if self._runtime.done else self._reference
        if not self._pair.free:
            size = self._pair.batch
            yield from x[torch.arange(-(-len(x) // size) * size) % len(x)].split(size)  # the last one filled up
            return
        yield from x.split(1)  # alone first: a batch that differs is mixed then
        for size in side.sizes:
            if 1 < size <= len(x):
                yield x[:size]


def _shown(error: Exception) -> str:
    """An error in a sentence; names in a file may hold anything."""
    text = str(error)
    return text if text.isprintable() else ascii(text)[1:-1]


def _listed(things: Sequence[object]) -> str:
    texts = [f"{thing:g}" if isinstance(thing, float) else str(thing) for thing in things]
    return " and ".join([*([", ".join(texts[:-1])] if texts[1:] else []), *texts[-1:]])


__all__ = ["Comparison"]
