"""A guard against misreading: what was read of a model beside the model itself, node by node.

`Pair` is both; `Guard` compares them with onnx's reference implementation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Node
from elbowroom.network.operations import Shape
from elbowroom.readers.onnx.composites import Formula
from elbowroom.readers.onnx.constants import Evaluator, check_size, fold
from elbowroom.readers.onnx.file import widened
from elbowroom.readers.onnx.plain import check_fit, plain_operator
from elbowroom.readers.onnx.step import Place, Value
from elbowroom.readers.reading import RefusalError

if TYPE_CHECKING:
    from onnx import NodeProto

TIGHT = 1e-9  # of the largest number: both sides compute in float64
_LOOSE = 1e-6  # the constants of a GELU that is written out are rounded to float32
_ROUNDS = {1: 2.0**-23, 10: 2.0**-10, 16: 2.0**-7}  # what a conversion to float32, float16 or bfloat16 may lose


class NotComparableError(Exception):
    """The model cannot be computed here."""


class CannotRunError(Exception):
    """The model can be computed, but not with this many inputs at once."""


class TooLargeError(CannotRunError):
    """With this many inputs it would take more memory than there is for it."""


@dataclass(frozen=True, eq=False)
class Pair:
    """A model's nodes, and the graph that was read from them.

    `nodes`: those that the outputs depend on, in order; `values`: what each name of the model stands for; `source`: the
    input's name; `logits`: the value that was read; `ends`: the outputs, which are that value or what was left off
    makes of it; `free`: whether the batch axis is free; `batch`: the size it is fixed to otherwise.
    """

    nodes: Sequence[NodeProto]
    graph: Sequence[Node]
    values: dict[str, Any]
    opset: int
    source: str
    logits: str
    ends: tuple[str, ...]
    free: bool
    batch: int

    @property
    def work(self) -> int:
        """About how long one input takes the reference implementation, in multiplications of a large matrix."""
        return sum(map(_work, self.graph))

    @property
    def room(self) -> int:
        """How many numbers it has to hold at once, for one input."""
        return 2 * sum(node.size for node in self.graph) + max(map(_patches, self.graph))

    def fed(self, x: Tensor) -> np.ndarray:
        """The model's input, in float64, from `x`: `b x *shape` of the network."""
        shape: Shape = self.values[self.source].shape
        return x.numpy().reshape(-1, *shape[1:]) if self.free or self.batch > 1 else x.numpy().reshape(shape)

    def run(self, x: Tensor) -> list[Tensor]:
        """Every node of the graph in float64, at `x`: `b x *shape`."""
        found = [x]
        for node in self.graph[1:]:
            found.append(node.op.map_tensors(Tensor.double)(*(found[j] for j in node.inputs)))
        return found

    def read(self, name: str, found: list[Tensor]) -> np.ndarray | None:
        """What was read of a value, as the model has it; None where it was not read, or has no batch axis in front."""
        value = self.values.get(name)
        if not isinstance(value, Value) or value.cut:
            return None
        array: np.ndarray = found[value.number].numpy()
        if len(array) == 1:
            return array.reshape(value.shape)
        return array.reshape(len(array), *value.shape[1:]) if value.shape[:1] == (1,) else None

    def answers(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """What the outputs must be for each input alone, `b x n`: by the logits, `b x k`, and what was left off."""
        cut = {name for name, value in self.values.items() if getattr(value, "cut", None)}
        tail = [_Operator(node, self.opset) for node in self.nodes if cut & set(node.output)]
        given = {n: self.values[n] for step in tail for n in step.node.input if n and n not in cut}
        ends: list[dict[str, np.ndarray]] = []
        for row in rows:
            known = {n: _wide(v) if _constant(v) else row.reshape(v.shape) for n, v in given.items()}
            for step in tail:
                try:
                    known |= step(known)
                except (InputError, RefusalError) as error:
                    raise NotComparableError(f"{step.place} is lacking, or fails: {error}") from None
            ends.append(known)
        late = {end: np.stack([y[end].reshape(-1) for y in ends]) if end in cut else rows for end in self.ends}
        return {self.logits: rows} | late


def rows_of(array: np.ndarray, count: int) -> Iterable[np.ndarray]:
    """An output's rows, one for each of `count` inputs, in every way it may hold them: `count x n`."""
    if count == 1:
        yield array.reshape(1, -1)
        return
    for axis, size in enumerate(array.shape):
        if size == count:
            yield np.moveaxis(array, axis, 0).reshape(count, -1)


def distance(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The largest difference in each row, of finite numbers; infinite where other numbers are not the same. `b`"""
    with np.errstate(all="ignore"):
        same = (expected == found) | (np.isnan(expected) & np.isnan(found))
        apart = np.where(same, 0.0, np.abs(expected - found))
    largest: np.ndarray = np.where(np.isfinite(apart), apart, np.inf).max(1, initial=0.0)
    return largest


def largest(array: np.ndarray) -> np.ndarray:
    """The largest finite magnitude in each row. `b`"""
    largest: np.ndarray = np.where(np.isfinite(array), np.abs(array), 0.0).max(1, initial=0.0)
    return largest


class Guard:
    """Runs a model's nodes by the reference implementation, next to the graph that was read from the model.

    For one input each node gets what was read of its inputs, in float64, so that rounding has no say. Where the
    reference implementation is wrong, the specification, written out, stands in for it. `seen`: the largest difference
    of a node so far, relative to its largest number; `lacking`: nodes that could not be computed alone; `plain`:
    operators written out; `infinite`: whether a value was not finite.
    """

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.seen = 0.0
        self.lacking: dict[Place, None] = {}
        self.plain: dict[str, None] = {}
        self.infinite = False
        self.steps = [_Operator(node, pair.opset) for node in pair.nodes]

    def compare(self, x: Tensor) -> None:
        """Compares at `x`: `b x *shape`, all inputs in one batch; raises where something differs."""
        _Run(self, x).compare()


class _Operator:
    """One ONNX node as something that can be called, made when it first is."""

    def __init__(self, node: NodeProto, opset: int) -> None:
        self.node, self.opset = node, opset
        self.place = Place.of(node)
        self.outputs = [name for name in node.output if name]
        self.plain = plain_operator(node, opset)
        self._evaluator: Evaluator | None = None

    def __call__(self, known: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = {name: known[name] for name in self.node.input if name}
        try:
            check_fit(self.node, list(given.values()))
            if self.plain is not None:
                return dict(zip(self.node.output, self.plain(list(given.values()))))
        except (ValueError, LookupError, ArithmeticError, MemoryError) as error:
            raise InputError(str(error)) from None
        if self._evaluator is None:
            self._evaluator = Evaluator([self.node], list(given), self.outputs, self.opset)
        return {name: _wide(np.asarray(y)) for name, y in zip(self.outputs, self._evaluator(given))}


@dataclass
class _Run:
    """One comparison: all nodes in order.

    `constants`: those that depend on the batch's size; `known`: values as numbers in float64; `doubts`: how far those
    may be off that were not read; `reaches`: how large the numbers were that these come from; `suspect`: the first node
    whose values for an input are not what they are for it alone. Alone that is a mistake; in a batch the values may
    just be arranged differently, and the outputs tell.
    """

    guard: Guard
    x: Tensor
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    known: dict[str, np.ndarray] = field(default_factory=dict)
    doubts: dict[str, float] = field(default_factory=dict)
    reaches: dict[str, float] = field(default_factory=dict)
    suspect: Place | None = None

    def __post_init__(self) -> None:
        self.pair, self.count = self.guard.pair, len(self.x)
        self.found = self.pair.run(self.x)
        self.known[self.pair.source] = self.pair.fed(self.x)

    def compare(self) -> None:
        for step in self.guard.steps:
            values = [self.pair.values.get(name) for name in step.outputs]
            if all(map(_constant, values)):
                self._refold(step.node)
            elif self.count > 1 or not any(getattr(value, "cut", None) for value in values):
                self._compute(step)
        if self.count > 1:
            self._compare_outputs()

    def _refold(self, node: NodeProto) -> None:
        """A constant again, if it depends on the batch's size."""
        values, shapes = self.pair.values, node.op_type in ("Shape", "Size") and node.domain in ("", "ai.onnx")
        if self.count == 1 or not (shapes or any(name in self.constants for name in node.input)):
            return
        inputs = [self.constants.get(name, values.get(name)) for name in node.input]
        if shapes and not _constant(inputs[0]):
            inputs = [np.broadcast_to(np.False_, self.known[node.input[0]].shape)]
        self._check_size(node, inputs)
        try:
            results = fold(node, inputs, self.pair.opset)
        except (InputError, RefusalError) as error:
            raise CannotRunError(f"{Place.of(node)}: {error}") from None
        self.constants.update(zip(node.output, results))

    def _check_size(self, node: NodeProto, inputs: Sequence[np.ndarray | None]) -> None:
        """A few bytes of a file may ask for terabytes, and only with more than one input."""
        try:
            check_size(node, inputs)
        except InputError as error:
            raise TooLargeError(f"{Place.of(node)}: {error}") from None

    def _compute(self, step: _Operator) -> None:
        for name in step.node.input:
            if name and name not in self.known:
                self.known[name] = _wide(self.constants.get(name, self.pair.values[name]))
        if self.count > 1:
            self._check_size(step.node, [self.known.get(name) for name in step.node.input])
        read = {name: y for name in step.outputs if (y := self.pair.read(name, self.found)) is not None}
        try:
            results = step(self.known)
        except (InputError, RefusalError) as error:
            if self.count > 1 and step.place not in self.guard.lacking:
                raise CannotRunError(f"{step.place}: {error}") from None
            if self.count > 1 or set(read) != set(step.outputs):
                raise NotComparableError(f"{step.place} is lacking there, or fails: {error}") from None
            self.guard.lacking[step.place] = None
            self.known.update(read)
            return
        if step.plain is not None:
            self.guard.plain[step.node.op_type] = None
        doubt = max([_tolerance(step.node, self.pair.values), *(self.doubts.get(n, 0.0) for n in step.node.input)])
        reach = self._reach(step.node)
        for name, y in results.items():
            agrees = name in read and self._agrees(step, read[name], y, doubt, reach)
            if agrees and (self.count == 1 or doubt > TIGHT):
                self.known[name] = read[name]
            else:  # in a batch a small share of the other inputs must not be lost on the way
                self.known[name], self.doubts[name], self.reaches[name] = y, doubt, reach

    def _reach(self, node: NodeProto) -> float:
        """How large the numbers are that a node adds up, of which little may be left."""
        sizes = {
            n: max(self.reaches.get(n, 0.0), float(largest(self.known[n].reshape(1, -1))[0])) for n in node.input if n
        }
        if node.op_type in ("MatMul", "Gemm", "Conv"):
            return math.prod([sizes[n] for n in node.input if n][:2])
        return max((size for n, size in sizes.items() if not _constant(self.pair.values[n])), default=0.0)

    def _agrees(self, step: _Operator, y: np.ndarray, expected: np.ndarray, doubt: float, reach: float) -> bool:
        """Whether a value is what was read of it; an error where it is not, alone."""
        reason = f"the shapes are {y.shape} and {expected.shape}"
        if expected.shape == y.shape:
            expected, y = (v.reshape(self.count, -1) for v in (expected, y))
            self.guard.infinite |= not np.isfinite(expected).all()
            apart, size = distance(expected, y), np.maximum(largest(expected), 1e-3 * reach)
            if (apart <= doubt * size).all():
                relative = apart / np.maximum(size, np.finfo(np.float64).tiny)
                self.guard.seen = max(self.guard.seen, float(relative.max(initial=0.0)))
                return True
            reason = f"they differ by {apart.max():.2g}"
            if not self.pair.free and self.count > 1:
                raise mixes(self.pair, self.count, self.suspect or step.place)
        if self.count == 1:
            by = (
                "onnx's reference implementation" if step.plain is None else "onnx's specification, written out plainly"
            )
            raise UnsupportedError(
                f"{step.place} is read differently here and by {by}: {reason}. One of the two is wrong; please report "
                "this"
            )
        self.suspect = self.suspect or step.place
        return False

    def _compare_outputs(self) -> None:
        logits = self.found[self.pair.values[self.pair.logits].number].numpy().reshape(self.count, -1)
        for name, answer in self.pair.answers(logits).items():
            doubt, reach = max(TIGHT, self.doubts.get(name, 0.0)), self.reaches.get(name, 0.0)
            allowed = doubt * np.maximum(largest(answer), 1e-3 * reach)
            if not any(
                rows.shape == answer.shape and (distance(answer, rows) <= allowed).all()
                for rows in rows_of(self.known[name], self.count)
            ):
                raise mixes(self.pair, self.count, self.suspect)


def mixes(pair: Pair, count: int, place: Place | None) -> UnsupportedError:
    """The error for a model whose answer for one input depends on the others."""
    if not pair.free:
        return UnsupportedError(
            f"the model is made for batches of {count} inputs, and {place or 'it'} mixes them; export the model with a "
            "free batch axis, or with batch size 1"
        )
    return UnsupportedError(
        f"the model's batch axis is free, but what it gives for an input depends on the other inputs of the batch, or "
        f"on how many there are: with {count} inputs {place or 'an output'} is not, for each of them, what it is for "
        "that one alone. No claim about one input could hold then; if the model is only used for one at a time, export "
        "it with batch size 1"
    )


def _constant(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _wide(array: np.ndarray) -> np.ndarray:
    return widened(array).astype(np.float64) if widened(array).dtype.kind == "f" else array


def _tolerance(node: NodeProto, values: dict[str, Any]) -> float:
    """How far a node may be off what was read of it, as a share of the largest number."""
    if any(isinstance(values.get(name), Formula) for name in (*node.input, *node.output)):
        return _LOOSE
    to = next((a.i for a in node.attribute if a.name == "to"), 0) if node.op_type == "Cast" else 0
    return _ROUNDS.get(to, TIGHT)


def _patches(node: Node) -> int:
    """How many numbers a convolution's windows have, all written out."""
    if not isinstance(node.op, ops.Conv):
        return 0
    return node.op.groups * node.op.weight[0].numel() * math.prod(node.shape[1:])


def _work(node: Node) -> int:
    """For one input, measured: small groups and other than two axes are slow, and so are functions one by one."""
    match node.op:
        case ops.Linear():
            return node.op.weight.numel() * math.prod(node.shape[:-1]) + 16 * node.size
        case ops.Conv():
            slow = min(node.op.groups, 64) * (1 if node.op.weight.dim() == 4 else 8)
            return node.op.weight.numel() * math.prod(node.shape[1:]) * slow + 16 * node.size
        case ops.Activation():
            return 256 * node.size
        case _:
            return 16 * node.size


__all__ = [
    "CannotRunError", "Guard", "NotComparableError", "Pair", "TooLargeError", "distance", "largest", "mixes", "rows_of",
]  # fmt: skip
