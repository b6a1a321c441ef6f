"""Compares a network with the torch module that it was read from; what this shows, and what not, is in `compare.py`.

Three things are compared. Each operation of the trace, one by one, with what it was read as (in float64, each on what
was read of its inputs): this names what is misread. The module itself in float64 (every parameter widened; conversions
left out, except those to a type narrower than its own) with the network: this shows that the trace is of the module.
And the module in its own type with the network, coarsely: what is in use.

A saved program (`.pt2`) is its own module here: the calls that its file lists, run one after the other. That they have
been listed rightly, and what the module before that computed, no comparison shows; sizes and types that the file
states for its values must be those found (`saved.py`).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from elbowroom.errors import UnsupportedError
from elbowroom.network.graph import Network
from elbowroom.readers import compare
from elbowroom.readers.compare import EXACT, ONE_ROUNDED, OWN, ROUNDED, Tolerance
from elbowroom.readers.reading import first_line, is_half
from elbowroom.readers.torch.entries import Held
from elbowroom.readers.torch.float64 import InFloat64, in_float64
from elbowroom.readers.torch.step import At
from elbowroom.readers.torch.trace import BATCH, PIECES, Translation, place

_AT_ONCE = 64  # inputs beyond the first few, which are there for their codes
_PASSES = 5  # of every input through the network, its trace, and what measures them


@dataclass(frozen=True)
class _Way:
    """A way to run the module: `run` gives the outputs of a batch of inputs (float64), computed in type `kind`.

    `tolerance`: for what the network gives; for what the module gives in another batch, it is that of its type.
    """

    kind: torch.dtype
    run: Callable[[Tensor], Tensor]
    tolerance: Tolerance

    @property
    def name(self) -> str:
        return _name(self.kind)


@dataclass(frozen=True)
class _Answer:
    """What the module gave for one input, `k`; `batch`: the numbers of the inputs that it was given together."""

    batch: Sequence[int]
    values: Tensor


@dataclass
class _Findings:
    """`largest`: by type, the largest difference seen, as a share of the largest number on the way to it."""

    largest: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


class _DifferenceError(Exception):
    """In words."""


class TorchGuard:
    """Compares `net` with `module`, of which `read` is the trace; all are kept, so nobody else may hold the module.

    `call`: calls a module with its inputs; `what`: what it is called; `dtype`: of its real numbers; `batch`: the
    only batch size it is for, if any.
    """

    def __init__(
        self, net: Network, module: nn.Module, read: Translation, call: Callable[..., object],
        what: str, dtype: torch.dtype, batch: int | None,
    ) -> None:  # fmt: skip
        self.net, self.module, self.read, self.call = net, module, read, call
        self.what, self.dtype, self.batch = what, dtype, batch
        self.count = max(4, 1 if batch is None else batch + 1)  # of inputs at a time
        entries = read.entries
        self.tried = compare.inputs(net.input_shape, self.count) if entries is None else entries.tried(self.count)
        self.too_much = self._too_much()

    def compare(self) -> tuple[str, ...]:
        """Compares at inputs of all scales; raises where something differs, and says in sentences what was compared."""
        if self.too_much is not None:
            return (f"not compared with {self.what}, here or at the inputs to certify: that {self.too_much}",)
        found = _Findings()
        if (difference := self._differs(self.tried, found)) is not None:
            raise UnsupportedError(difference)
        sizes = "1, 2 and 3" if self.batch is None else str(self.batch)
        scales = f"{', '.join(f'{s:g}' for s in compare.SCALES[:-1])} and {compare.SCALES[-1]:g}"
        codes = "" if self.read.entries is None else self.read.entries.words()
        shares = " and ".join(f"{share:.1g} in {kind}" for kind, share in found.largest.items())
        said = [
            f"compared with {self.what} in batches of {sizes} at inputs of sizes {scales}{codes}: "
            + (f"the largest difference, as a share of the largest number, is {shares}" if shares else "without result")
        ]
        if self.read.is_rounded:
            said.append(f"numbers in the code of {self.what} are taken in float32, as torch takes them")
        return (*said, *dict.fromkeys(found.remarks))

    def differs(self, x: Tensor) -> str | None:
        """The same at inputs `b x *shape` (float64) of the network: what differs, in words."""
        if self.too_much is not None or len(x) == 0:
            return None
        if self.read.entries is not None and (fault := self.read.entries.fault(x)) is not None:
            return f"{self.what} takes no such input: {fault}"
        return self._differs(x, _Findings())

    def _too_much(self) -> str | None:
        """Why it would take too long to compare, or too much memory."""
        rows = sum(map(len, compare.batches(self.count, self.batch)))
        times = -(-len(self.tried) // self.count)
        if times * (_PASSES * self.count + 2 * rows) * compare.work(self.net.nodes) > compare.MOST_WORK:
            return f"would take more than {compare.MOST_WORK} multiplications"
        if self.count * sum(node.size for node in self.read.graph.nodes) > compare.MOST_NUMBERS:
            return f"would hold more than {compare.MOST_NUMBERS} numbers in memory"
        return None

    def _differs(self, x: Tensor, found: _Findings) -> str | None:
        try:
            with torch.no_grad():
                ways = self._ways(found)
                held = max(1, sum(node.size for node in self.read.graph.nodes))
                rest = max(self.count, min(_AT_ONCE, compare.MOST_NUMBERS // held))
                for part in (x[: self.count], *x[self.count :].split(rest)):
                    if len(part):
                        self._compare(part, ways, found)
        except _DifferenceError as difference:
            return str(difference)
        return None

    # --- the module

    def _ways(self, found: _Findings) -> list[_Way]:
        """In float64, and in its own type."""
        own = _Way(self.dtype, self._as_called, OWN[self.dtype])
        if self.dtype == torch.float64:
            return [own]
        tolerance = ROUNDED if self.read.is_rounded else EXACT
        try:
            wide = copy.deepcopy(self.module).double()
        except Exception as error:
            found.remarks.append(self._not_in_float64(error))
            return [own]

        def run(x: Tensor) -> Tensor:
            given = self._given(x, torch.float64)
            with InFloat64(given, self.dtype):
                return self._outputs(wide, given)

        return [_Way(torch.float64, run, tolerance), own]

    def _as_called(self, x: Tensor) -> Tensor:
        """As people call it: in its own type, with gradients recorded (a trace is made without)."""
        with torch.enable_grad():
            return self._outputs(self.module, self._given(x, self.dtype)).detach()

    def _given(self, x: Tensor, kind: torch.dtype) -> tuple[Tensor, ...]:
        """The module's own inputs, real numbers in type `kind`, from those of the network."""
        return (x.to(kind),) if self.read.entries is None else self.read.entries.inputs(x, kind)

    def _outputs(self, module: nn.Module, given: tuple[Tensor, ...]) -> Tensor:
        """`b x k`, in float64."""
        x, y = given[0], self.call(module, *given)
        if not isinstance(y, Tensor) or y.numel() != len(x) * self.net.n_outputs:
            shape = tuple(y.shape) if isinstance(y, Tensor) else None
            raise _DifferenceError(
                f"{self.what} gives {'no tensor' if shape is None else f'an output of shape {shape}'} for a batch of "
                f"{len(x)}, where {self.net.n_outputs} numbers for each input are expected"
            )
        return y.double().reshape(len(x), -1)

    def _not_in_float64(self, error: Exception) -> str:
        return f"{self.what} does not run in float64 (torch says: {first_line(error)})"

    # --- one after the other

    def _compare(self, x: Tensor, ways: list[_Way], found: _Findings) -> None:
        """Raises where network and module differ at inputs `b x *shape`."""
        rows = x if len(x) > 1 else torch.cat([x, x])
        sizes = _NodeByNode(self.read, rows).compare()[: len(x)]
        for way in ways:
            at = x.to(way.kind).double()
            expected, largest = self.net(at), sizes
            if self.read.softmax is not None:
                largest = _behind(self.read.softmax, expected, sizes)
                expected = self.read.softmax(expected, -1)
            answers = self._answers(way, at, found)
            if answers is None:
                continue
            self._must_not_depend_on_batch(way, answers, largest)
            for i, given in enumerate(answers):
                for answer in given:
                    self._must_be(way, answer, expected[i : i + 1], largest[i : i + 1], found)

    def _answers(self, way: _Way, x: Tensor, found: _Findings) -> list[list[_Answer]] | None:
        """What the module gives for each input, in batches of all sizes; None where it does not run in float64."""
        answers: list[list[_Answer]] = [[] for _ in x]
        for batch in compare.batches(len(x), self.batch):
            try:
                values = way.run(x[batch])
            except _DifferenceError:
                raise
            except Exception as error:
                if way.kind != self.dtype:
                    found.remarks.append(self._not_in_float64(error))
                    return None
                raise _DifferenceError(
                    f"{self.what} does not run on a batch of {len(batch)} of these inputs, though it has been traced "
                    f"with a batch of 2; torch says: {first_line(error)}"
                ) from None
            for i, row in zip(batch, values):
                answers[i].append(_Answer(batch, row[None]))
        return answers

    def _must_not_depend_on_batch(self, way: _Way, answers: list[list[_Answer]], largest: Tensor) -> None:
        """Raises where the same input has different answers, first for batches of one size."""
        pairs = [(i, a, b) for i, given in enumerate(answers) for a, b in itertools.combinations(given, 2)]
        for i, a, b in sorted(pairs, key=lambda pair: len(pair[1].batch) != len(pair[2].batch)):
            gap = compare.difference(a.values, b.values)
            if bool((gap <= compare.allowed(a.values, largest[i : i + 1], OWN[way.kind])).all()):
                continue
            n, m = len(a.batch), len(b.batch)
            cause, other = ("the other inputs in", "another") if n == m else ("the size of", f"one of {m}")
            raise _DifferenceError(
                f"the answer of {self.what} for an input depends on {cause} its batch: it computes something else for "
                f"it in a batch of {n} than in {other} (they differ by {float(gap.max()):.2g} in {way.name}). A "
                "network has one answer for an input: look for code that uses x.shape[0] or squeeze(), or mixes the "
                "inputs of a batch"
            )

    def _must_be(self, way: _Way, answer: _Answer, expected: Tensor, largest: Tensor, found: _Findings) -> None:
        if not bool(answer.values.isfinite().all()):
            words = f"in {way.name} some outputs of {self.what} are not finite at some of these inputs"
            if way.kind != torch.float64:  # too large for this type, or for sums in it
                found.remarks.append(f"{words}, where they are not compared")
                return
            found.remarks.append(f"{words}; those of the network are the same")
        gap = compare.difference(answer.values, expected)
        if not bool((gap <= compare.allowed(expected, largest, way.tolerance)).all()):
            own = f" Constants that it makes in {_name(self.dtype)} (x.new_tensor, torch.tensor) belong into buffers."
            raise _DifferenceError(
                f"{self.what} computes something else than its trace by torch.export, which the network was read from: "
                f"in {way.name} they differ by {float(gap.max()):.2g} where numbers are up to "
                f"{float(largest.max()):.2g}. Look for "
                f"code that asks for types, or whether it is traced.{own if is_half(self.dtype) else ''}"
            )
        share = float(torch.where(gap > 0, gap / largest, 0.0).max())
        found.largest[way.name] = max(found.largest.get(way.name, 0.0), share)


class _NodeByNode:
    """The trace at inputs `rows` (two or more, since a trace need not hold for one), next to what was read of it.

    `values`: of the graph's nodes; `sizes`: of what each entry was computed from (`compare.size`); `known`: the
    value of the trace's nodes, as the graph has it, so that each operation is compared by itself.
    """

    def __init__(self, read: Translation, rows: Tensor) -> None:
        self.read, self.rows = read, rows
        self.values, self.sizes = [rows], [rows.abs()]
        for node in read.graph.nodes[1:]:
            op, inputs = node.op.map_tensors(Tensor.double), [self.values[j] for j in node.inputs]
            self.values.append(op(*inputs))
            self.sizes.append(compare.size(op, [self.sizes[j] for j in node.inputs], self.values[-1]))
        self.known: dict[fx.Node, Any] = {}
        self.columns = rows if read.entries is None else read.entries.columns(rows)

    def compare(self) -> Tensor:
        """Raises where an operation was misread; the sizes of what the outputs were computed from, `b x k`."""
        for node in self.read.order:
            value = self.read.values[node]
            if isinstance(value, At):
                self.known[node] = self._read(value, node.meta["val"])
            elif isinstance(value, Held):
                self.known[node] = value.columns(self.columns, _wide(node.meta["val"].dtype))
                if node.op == "call_function":
                    self._must_hold(node, value)
            elif isinstance(value, tuple):
                self.known[node] = tuple(map(self._read, value, node.meta["val"]))
            else:
                self.known[node] = self._computed(node) if value is BATCH or value is PIECES else value  # a constant
            if node in self.read.made:
                found, expected = self.known[node], self._computed(node)
                several = isinstance(value, tuple)
                ats = value if several else (value,)
                pairs = zip(found, expected, strict=True) if several else [(found, expected)]
                for at, (own, result) in zip(ats, pairs):
                    if own is not None:
                        self._must_be_same(node, own, result, self.sizes[at.number].reshape(own.shape))
        return self.sizes[self.read.output].flatten(1)

    def _must_hold(self, node: fx.Node, value: Held) -> None:
        """Raises where columns were followed wrongly. What was rounded on its way, and is no code, is not in use."""
        kept = value.kept.reshape(self.known[node].shape[1:])
        found, expected = self.known[node].double(), self._computed(node)
        if found.shape == expected.shape:
            found, expected = found[:, kept], expected[:, kept].double()
        self._must_be_same(node, found, expected, found.abs())

    def _read(self, at: At | None, like: Any) -> Tensor | None:
        """In torch's shape, which may have an axis less, and as views need it."""
        return None if at is None else self.values[at.number].reshape(len(self.rows), *like.shape[1:]).contiguous()

    def _computed(self, node: fx.Node) -> Any:
        """What torch makes of the node's inputs."""
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self.known[n])
        try:
            return in_float64(node.target, args, kwargs)  # type: ignore[arg-type]
        except Exception as error:
            raise _DifferenceError(
                f"{node.target} ({place(node)}) cannot be compared; in float64 torch says: {first_line(error)}"
            ) from None

    def _must_be_same(self, node: fx.Node, found: Tensor, expected: Tensor, size: Tensor) -> None:
        """`size`: of what each entry was computed from."""
        if found.shape != expected.shape:
            reason = f"the shapes are {tuple(found.shape)} and {tuple(expected.shape)}"
        else:
            gap = compare.difference(found, expected)
            excess = gap - compare.allowed(expected, size, ONE_ROUNDED if node in self.read.rounded else EXACT)
            if bool((excess <= 0).all()):
                return
            i = int(excess.argmax())
            reason = f"they differ by {float(gap.flatten()[i]):.2g} where numbers are up to {float(size.max()):.2g}"
        raise _DifferenceError(
            f"the network differs from the model itself: {node.target} ({place(node)}) is read differently here and "
            f"by torch: {reason}. An operation has been misread; please report this"
        )


def _behind(softmax: Callable[..., Tensor], z: Tensor, sizes: Tensor) -> Tensor:
    """Sizes behind a softmax, or its logarithm, of outputs `z`, `b x k`: what has no weight in it excuses nothing."""
    p = torch.softmax(z, -1)
    both = sizes + torch.where(p > 0, p * sizes, 0.0).sum(-1, keepdim=True) + 1
    return torch.where(p > 0, p * both, 0.0) if softmax is torch.softmax else both


def _wide(kind: torch.dtype) -> torch.dtype:
    return torch.float64 if kind.is_floating_point else kind


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


__all__ = ["TorchGuard"]
