"""A program of `torch.export` as a graph of this package's operations; the operations are those of `aten.py`.

ATen counts the batch as axis 0 and the graph leaves it out; every value must keep the batch there, unmixed.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from elbowroom.errors import UnsupportedError
from elbowroom.network.graph import Graph
from elbowroom.readers.reading import (
    RefusalError,
    Unknown,
    computes_in,
    exactly,
    holds,
    is_half,
    left_off,
    refuse,
    rounds_to,
)
from elbowroom.readers.torch.aten import (
    HANDLERS,
    KEEPS_ORDER,
    REASONS,
    SOFTMAX,
    TAKES_BATCH_SIZE,
    TAKES_CODES,
    TAKES_WHOLE,
)
from elbowroom.readers.torch.entries import Entries, Held
from elbowroom.readers.torch.float64 import in_float64
from elbowroom.readers.torch.step import At, Step
from elbowroom.readers.torch.takes import Takes
from elbowroom.readers.torch.tracks import LOOKUPS, Tracks

WITHOUT_BOUND = "the model holds operations without a bound here:"


class Mark:
    """Stands for a value that has no node."""


BATCH = Mark()  # a number computed from the batch size
LOST = Mark()  # follows an unsupported operation and does not have the batch as its first axis
PIECES = Mark()  # several tensors that hold columns as they stand; what is taken out of it is known


class Translation:
    """Walks an exported program in order and builds `graph` from what it finds.

    `output`: the number of its output; `softmax`: the function that was left off behind it, `notes` says so.
    `order`: the program's nodes that were read; `values`: what each stands for; `made`: the graph's nodes it became.
    `entries`: what the graph's input stands for, where that is not the module's one input as it is.

    Constants. A model whose input has half precision is read with exact constants: its stored tensors, and Python
    numbers, counts and what it computes from constants alone as the module in float64 would have them. In a model of
    float32 or float64 a number is rounded to the type it is used in, as torch does, so that a network of float32
    consists of float32 numbers and can be claimed to run as such; `rounded` has the nodes where this changed a
    number, and `is_rounded` says whether any constant may have been.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        takes: Takes,
        dtype: torch.dtype,
        task: str | None,
        names: Sequence[str] | None,
    ) -> None:
        self.values: dict[fx.Node, Any] = {}
        self.made: dict[fx.Node, range] = {}
        self.rounded: set[fx.Node] = set()
        self.problems: list[str] = []
        self.refused: dict[fx.Node, str] = {}
        nodes = {node.name: node for node in program.graph.nodes}
        outputs = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
        self.last = nodes[outputs[0].arg.name]
        made: list[Tensor] = []
        given: list[fx.Node] = []
        self.dtype, self.is_exact = dtype, is_half(dtype)
        for spec in program.graph_signature.input_specs:
            node = nodes[spec.arg.name]
            if spec.kind is InputKind.USER_INPUT:
                given.append(node)
                self.batch = str(node.meta["val"].shape[0])
            else:  # a parameter, a buffer or a tensor that forward made itself
                stored = program.state_dict if spec.target in program.state_dict else program.constants
                self.values[node] = stored[spec.target].detach()  # of the copy, so nobody else holds it
                if str(spec.target).startswith("lifted_tensor"):  # torch.export's name for what forward makes
                    made.append(self.values[node])
        self.is_rounded = any(t.dtype == self.dtype for t in made)  # they would have other digits in another type
        self.halves: dict[torch.dtype, None] = {}  # in which values are computed
        weights = [t for t in self.values.values() if isinstance(t, Tensor) and t.is_floating_point()]
        self.is_mixed = any(t.dtype != self.dtype for t in weights)
        self.softmax: Callable[..., Tensor] | None = None
        self.notes: tuple[str, ...] = ()
        if task != "regression" and (softmax := self._final_softmax()) is not None:
            self.last, self.softmax = softmax.all_input_nodes[0], SOFTMAX[softmax.target]
            self.notes = (left_off("the softmax"),)
        self.order = self._needed()
        self.entries = self._followed(takes, given, names)
        self.graph = Graph(takes.shapes[0] if self.entries is None else (self.entries.table.width,))
        if self.entries is None:
            self.values[given[0]] = At(self.graph.input, takes.shapes[0])
        for node in self.order:
            if node not in self.values:
                self.values[node] = self._translate(node)
        if self.problems:
            raise UnsupportedError("\n  ".join([WITHOUT_BOUND, *self.problems]))
        if isinstance(self.values[self.last], Held):
            raise UnsupportedError("the model gives columns back as they are, and computes nothing")
        if not isinstance(self.values[self.last], At):
            raise UnsupportedError("the model's output does not depend on its input")
        self.notes += tuple(computes_in(_type_name(kind)) for kind in self.halves)
        self.output: int = self.values[self.last].number
        self.is_rounded = self.dtype == torch.float32 and (self.is_rounded or bool(self.rounded))

    def _followed(self, takes: Takes, given: list[fx.Node], names: Sequence[str] | None) -> Entries | None:
        """What becomes of columns where some are codes, or come in several inputs; None where the one input is the
        network's own."""
        self.tracks: Tracks | None = None
        if takes.is_plain and not any(node.target in LOOKUPS for node in self.order):
            return None
        columns = {
            node: torch.arange(place.start, place.stop).reshape(shape)
            for node, place, shape in zip(given, takes.places, takes.shapes, strict=True)
        }
        constants = {node: value for node, value in self.values.items() if isinstance(value, Tensor)}
        tracks = Tracks(self.order, columns, constants)
        if takes.is_plain and not tracks.levels:
            self.refused = tracks.refused
            return None
        self.tracks, self.refused = tracks, tracks.refused
        entries = Entries(takes, tuple(names or takes.default_names()), tracks.levels)
        for node in given:
            self.values[node] = self._held(node, entries)
        self.notes += entries.notes(tracks.restricted)
        return entries

    def _held(self, node: fx.Node, entries: Entries) -> Held | Mark:
        assert self.tracks is not None
        sources = self.tracks.held[node]
        return PIECES if sources is None else Held(entries, sources, tuple(node.meta["val"].shape[1:]))

    def _final_softmax(self) -> fx.Node | None:
        """The softmax over the classes that the output is, except for its shape."""
        node = self._end()
        if node.target not in SOFTMAX or not self._is_plain(node):
            return None
        shape, dim = node.meta["val"].shape, int(node.args[1])
        over_classes = dim % len(shape) > 0 and shape[dim] == math.prod(shape[1:])
        return node if over_classes and shape[dim] > 1 else None

    def _end(self) -> Any:
        """The node that gives the output, except for its shape."""
        node = self.last
        while HANDLERS.get(node.target) in KEEPS_ORDER and self._is_plain(node):
            node = node.all_input_nodes[0]
        return node

    def _is_plain(self, node: fx.Node) -> bool:
        """Whether a node of one input keeps the batch and all of the values' digits."""
        value = node.meta["val"]
        return value.is_floating_point() and self._keeps_batch(value) and not self._rounds(node, node.all_input_nodes)

    def _rounds(self, node: fx.Node, computed: list[fx.Node]) -> torch.dtype | None:
        """The type that a node rounds computed values to, if it does; that of the whole model may be returned to."""
        old, new = ({t.dtype for n in nodes for t in _reals(n)} for nodes in (computed, [node]))
        narrow = [kind for kind in new if not all(holds(kind, other) for other in old)]
        own = {self.dtype} if not (is_half(self.dtype) and self.is_mixed) else set()
        return next((kind for kind in narrow if kind not in own), None)

    def _needed(self) -> list[fx.Node]:
        """The nodes the output depends on, in order; assertions and leftovers are not among them."""
        needed, stack = {self.last}, [self.last]
        while stack:
            for node in stack.pop().all_input_nodes:
                if node not in needed:
                    needed.add(node)
                    stack.append(node)
        return [node for node in self.last.graph.nodes if node in needed]

    def _translate(self, node: fx.Node) -> Any:
        if node.op != "call_function":  # a subgraph for the likes of torch.cond
            return LOST
        if self.tracks is not None and self.entries is not None and node in self.tracks.held:
            return self._held(node, self.entries)
        inputs = [self.values[n] for n in node.all_input_nodes]
        try:
            if not any(isinstance(i, At | Held | Mark | tuple) for i in inputs):
                return self._fold(node, *fx.node.map_arg((node.args, node.kwargs), lambda n: self.values[n]))
            value: Any = node.meta.get("val")
            if not isinstance(value, Tensor | tuple | list):
                return BATCH
            handler = HANDLERS.get(node.target)
            if handler is None:
                refuse(self._reason(node, inputs))
            if node in self.refused:
                refuse(self.refused[node])
            if any(i is LOST for i in inputs):
                return self._placeholder(value)
            if any(i is BATCH for i in inputs) and handler not in TAKES_BATCH_SIZE:
                refuse("uses the batch size, or a value computed from the whole batch, as a number")
            if isinstance(value, Tensor) and not self._keeps_batch(value):
                refuse("moves, merges or reduces the batch axis")
            computed = [n for n in node.all_input_nodes if isinstance(self.values[n], At | Held | tuple)]
            whole = [n for n in computed if isinstance(self.values[n], At) and not n.meta["val"].is_floating_point()]
            if whole and handler not in TAKES_WHOLE | set(TAKES_CODES):
                refuse("computes with whole numbers; convert them to real ones first")
            if (kind := self._rounds(node, computed)) is not None:
                refuse(rounds_to(_type_name(kind)))
            self.halves.update(dict.fromkeys(t.dtype for t in _reals(node) if is_half(t.dtype)))
            start = len(self.graph.nodes)
            step = Step(self.graph, node, self._name(node), self.is_exact, self.rounded)
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self._argument(step, handler, n))
            result = handler(step, *args, **kwargs)
            self.made[node] = range(start, len(self.graph.nodes))
            if isinstance(result, At) and result.shape != step.shape:
                refuse(f"gives shape {result.shape} here and {step.shape} in torch; please report this")
            return result
        except RefusalError as refusal:
            what = "getitem" if node.target is operator.getitem else node.target
            self.problems.append(f"{what} ({place(node)}): {refusal}")
            return self._placeholder(node.meta.get("val"))

    def _argument(self, step: Step, handler: Callable[..., Any], node: fx.Node) -> Any:
        """What a handler is given for a node: columns as numbers, unless it looks up codes."""
        value = self.values[node]
        if not isinstance(value, Held) or handler in TAKES_CODES:
            return value
        if not node.meta["val"].is_floating_point():
            refuse("computes with codes; they can be looked up, or converted to real numbers first")
        return value.entries.numbers(step, value)

    def _fold(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """Evaluates an operation on constants: in their own types, or exactly in a model of half precision."""
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            refuse("draws random numbers")
        function: Callable[..., Any] = node.target  # type: ignore[assignment]
        own = function(*args, **kwargs)
        try:
            wide = in_float64(function, args, kwargs)
        except RuntimeError:
            refuse("cannot be computed in float64")
        leaves, structure = tree_flatten(own)
        for i, (narrow, exact) in enumerate(zip(leaves, tree_leaves(wide), strict=True)):
            if isinstance(narrow, Tensor) and narrow.is_floating_point():
                self.is_rounded |= not torch.equal(narrow.double(), exact.double())
                leaves[i] = exactly(exact, narrow.dtype) if self.is_exact else narrow
        result = tree_unflatten(leaves, structure)
        return list(result) if isinstance(result, tuple) else result  # tuples hold computed values

    def _keeps_batch(self, value: Tensor) -> bool:
        """Whether the batch is the first axis, and no other depends on it."""
        shape = value.shape
        return len(shape) > 0 and str(shape[0]) == self.batch and all(type(n) is int for n in shape[1:])

    def _placeholder(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not self._keeps_batch(value):
            return LOST
        shape = tuple(value.shape[1:]) or (1,)
        return At(self.graph.add(Unknown(shape), 0, name="unknown"), shape)

    def _reason(self, node: fx.Node, inputs: list[Any]) -> str:
        if node.target in SOFTMAX:
            if node is self._end():
                return (
                    "a softmax is left off only where it is over all classes of a classifier; return the logits instead"
                )
            return "a softmax inside a network has no bound here; one at the end of a classifier is left off"
        if all(i is BATCH for i in inputs):
            return "makes a tensor whose size or values depend on the batch size"
        return REASONS.get(node.target, "not supported")

    def _name(self, node: fx.Node) -> str:
        path, _ = _module_of(node)
        return f"{path}.{node.name}" if path else node.name


def _reals(node: fx.Node) -> list[Tensor]:
    """The floating-point tensors that a node gives."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    return [t for t in values if isinstance(t, Tensor) and t.is_floating_point()]


def _type_name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _module_of(node: fx.Node) -> tuple[str, str]:
    """Path and class of the submodule an operation belongs to."""
    stack = node.meta.get("nn_module_stack") or {"": ("", "")}
    path, kind = list(stack.values())[-1]
    return path, (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]


def is_read(node: fx.Node) -> bool:
    """Whether a node can be read as torch.export gives it: it changes no value in place, and what it does is known, or
    gives no tensor. Others are to be decomposed first, into operations that may be known."""
    if node.op != "call_function":
        return True
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
        return False
    if node.target is torch.ops.aten.batch_norm.default and (len(node.args) < 6 or node.args[5]):
        return False  # by the batch's own statistics
    tensors = isinstance(node.meta.get("val"), Tensor | tuple | list)
    return not tensors or node.target in HANDLERS or node.target in SOFTMAX


def place(node: fx.Node) -> str:
    """Where an operation is: its name in the trace, its submodule, its line in the user's code."""
    path, kind = _module_of(node)
    inside = (os.path.dirname(torch.__file__), os.path.dirname(__file__), "<eval_with_key>")
    frames = re.findall(r'File "(.+)", line (\d+)', node.meta.get("stack_trace") or "")
    lines = [f"{os.path.basename(file)}:{line}" for file, line in frames if not file.startswith(inside)]
    module = f"module {path!r} of type {kind}" if path else kind
    return ", ".join([f"node {node.name!r}", *filter(None, [module]), *lines[-1:]])


__all__ = ["BATCH", "PIECES", "WITHOUT_BOUND", "Translation", "is_read", "place"]
