"""Reads a `torch.nn.Module` by tracing it with `torch.export`; the operations are those of `aten.py`.

The trace sees functional calls, skips and shared modules alike. Parameters are taken exactly as stored: batch
norm is not folded, and whatever the model computes from constants alone is evaluated with torch once.
ATen counts the batch as axis 0 and the graph leaves it out; every value must keep the batch there, unmixed.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import itertools
import logging
import math
import operator
import os
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind, OutputKind

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.aten import HANDLERS, KEEPS_ORDER, REASONS, SOFTMAX, TAKES_BATCH_SIZE, At, Step
from elbowroom.network.graph import About, Graph, Network
from elbowroom.network.operations import Shape
from elbowroom.network.reading import RefusalError, Unknown, computes_in, holds, is_half, left_off, refuse, rounds_to
from elbowroom.torch_modes import DEFAULT_DTYPE

WITHOUT_BOUND = "the model holds operations without a bound here:"
NOT_SCRIPT = "give the torch.nn.Module it was made from, or save that with torch.export.save or as ONNX"


def read_module(module: nn.Module, shape: Shape, task: str | None = None) -> Network:
    """The module as a network that takes inputs of shape `shape`, read in eval mode on a copy.

    Python numbers in its code become constants rounded to the type they are used in, as torch does. A softmax over the
    classes at the end is left off, but for `task` "regression"; the network's notes say so. Raises one
    `UnsupportedError` that names every operation without a bound here, `InputError` where `shape` does not fit.
    """
    copied = _copy(module)
    return trace(copied, shape, dtype_of(copied), task)


def trace(module: nn.Module, shape: Shape, dtype: torch.dtype, task: str | None, batch: int = 2) -> Network:
    """The network of a module in eval mode that may be kept, compared with it on a batch of 2 and one of `batch`."""
    x = _sample(2, shape, dtype)
    with _quiet(), torch.no_grad():
        expected = _run(module, x)
        read = _Translation(_export(module, x), shape, task)
        net = read.graph.network(read.output, about=About(notes=read.notes))
        _must_agree(net, x, expected, read.softmax)
        if batch != 2:
            x = _sample(batch, shape, dtype)
            _must_agree(net, x, _run(module, x), read.softmax)
    return net


def _sample(n: int, shape: Shape, dtype: torch.dtype) -> Tensor:
    """A batch of inputs to trace and compare at, the same ones every time."""
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def dtype_of(module: nn.Module) -> torch.dtype:
    """The type of the module's first floating-point parameter or buffer (float32 where there is none)."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch.export's warnings, logs and printed graphs, which are about its own workings, to itself."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


def first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _copy(module: nn.Module) -> nn.Module:
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(f"{type(module).__name__} is TorchScript, which torch.export cannot trace; {NOT_SCRIPT}")
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        module = module.module
    with contextlib.suppress(ValueError, TypeError):
        parameters = inspect.signature(module.forward).parameters.values()
        n = sum(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        if n > 1:
            raise UnsupportedError(
                f"{type(module).__name__}.forward takes {n} inputs; wrap it in a module that takes one tensor"
            )
    if any(nn.parameter.is_lazy(t) for t in itertools.chain(module.parameters(), module.buffers())):
        raise InputError(f"{type(module).__name__} has lazy parameters without values; run it once first")
    try:
        return copy.deepcopy(module).cpu().eval()
    except Exception as error:
        raise UnsupportedError(
            f"{type(module).__name__} cannot be copied to the CPU; torch says: {first_line(error)}"
        ) from None


def _run(module: nn.Module, x: Tensor) -> Tensor:
    """The module's own output, which must be one floating-point tensor."""
    try:
        with DEFAULT_DTYPE.released():  # of the tensors it makes itself
            y = module(x.clone())
    except Exception as error:
        raise InputError(
            f"{type(module).__name__} does not run on a batch of {len(x)} inputs of shape {tuple(x.shape[1:])}; "
            f"check input_shape (without the batch axis). torch says: {first_line(error)}"
        ) from None
    if not isinstance(y, Tensor):
        raise UnsupportedError(
            f"{type(module).__name__} returns a {type(y).__name__}; wrap it so that it returns one tensor"
        )
    if not y.is_floating_point():
        raise UnsupportedError(
            f"{type(module).__name__} returns {y.dtype} values; return the floating-point logits instead"
        )
    return y


def _export(module: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    try:
        batch = ({0: torch.export.Dim("batch")},)
        with DEFAULT_DTYPE.released():
            program = torch.export.export(module, (x,), dynamic_shapes=batch, strict=False)
        program = program.run_decompositions({})
    except Exception as error:
        raise UnsupportedError(
            f"torch.export cannot trace {type(module).__name__}. Usual causes: an `if` or a loop that depends "
            f"on the input's values, numpy code, a fixed batch size. torch says: {first_line(error)}"
        ) from None
    if program.graph_signature.buffers_to_mutate:
        names = ", ".join(program.graph_signature.buffers_to_mutate.values())
        raise UnsupportedError(
            f"{type(module).__name__} changes its buffers when it runs ({names}), so it is no fixed "
            "function; remove the update from eval mode"
        )
    return program


def _must_agree(net: Network, x: Tensor, expected: Tensor, softmax: Callable[..., Tensor] | None) -> None:
    """A guard against misreading an operation: the network (then `softmax`) must give at `x` what the module gave."""
    values = [x.double()]
    for node in net.nodes[1:]:
        values.append(node.op.map_tensors(Tensor.double)(*(values[j] for j in node.inputs)))
    found = values[-1] if softmax is None else softmax(values[-1], -1)
    eps, expected = torch.finfo(expected.dtype).eps, expected.double().reshape(found.shape)
    difference = (found - expected).abs().max()
    allowed = max(eps**0.5, 1e-4) * (1 + expected.abs().max())  # generous: rounding grows with depth
    if bool(expected.isfinite().all()) and not bool(difference <= allowed):
        raise UnsupportedError(
            f"the network read from the model differs from the model itself by {float(difference):.2g} at a "
            "random input, so an operation has been misread; please report this"
        )


class _Mark:
    """Stands for a value that has no node."""


_BATCH = _Mark()  # a number computed from the batch size
_LOST = _Mark()  # follows an unsupported operation and does not have the batch as its first axis


class _Translation:
    """Walks an exported program in order and builds `graph` from what it finds.

    `output`: the number of its output; `softmax`: the function that was left off behind it, `notes` says so.
    """

    def __init__(self, program: torch.export.ExportedProgram, shape: Shape, task: str | None) -> None:
        self.graph = Graph(shape)
        self.values: dict[fx.Node, Any] = {}
        self.problems: list[str] = []
        nodes = {node.name: node for node in program.graph.nodes}
        outputs = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
        self.last = nodes[outputs[0].arg.name]
        for spec in program.graph_signature.input_specs:
            node = nodes[spec.arg.name]
            if spec.kind is InputKind.USER_INPUT:
                self.values[node] = At(self.graph.input, shape)
                self.batch = str(node.meta["val"].shape[0])
                self.dtype = node.meta["val"].dtype
            else:  # a parameter, a buffer or a tensor that forward made itself
                stored = program.state_dict if spec.target in program.state_dict else program.constants
                self.values[node] = stored[spec.target].detach()  # of the copy, so nobody else holds it
        self.halves: dict[torch.dtype, None] = {}  # in which values are computed
        weights = [t for t in self.values.values() if isinstance(t, Tensor) and t.is_floating_point()]
        self.is_mixed = any(t.dtype != self.dtype for t in weights)
        self.softmax: Callable[..., Tensor] | None = None
        self.notes: tuple[str, ...] = ()
        if task != "regression" and (softmax := self._final_softmax()) is not None:
            self.last, self.softmax = softmax.all_input_nodes[0], SOFTMAX[softmax.target]
            self.notes = (left_off("the softmax"),)
        for node in self._needed():
            if node not in self.values:
                self.values[node] = self._translate(node)
        if self.problems:
            raise UnsupportedError("\n  ".join([WITHOUT_BOUND, *self.problems]))
        if not isinstance(self.values[self.last], At):
            raise UnsupportedError("the model's output does not depend on its input")
        self.notes += tuple(computes_in(_type_name(kind)) for kind in self.halves)
        self.output: int = self.values[self.last].number

    def _final_softmax(self) -> fx.Node | None:
        """The softmax over the classes that the output is, but for its shape."""
        node = self.last
        while HANDLERS.get(node.target) in KEEPS_ORDER and self._is_plain(node):
            node = node.all_input_nodes[0]
        if node.target not in SOFTMAX or not self._is_plain(node):
            return None
        shape, dim = node.meta["val"].shape, int(node.args[1])
        over_classes = dim % len(shape) > 0 and shape[dim] == math.prod(shape[1:])
        return node if over_classes and shape[dim] > 1 else None

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
            return _LOST
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self.values[n])
        inputs = [self.values[n] for n in node.all_input_nodes]
        try:
            if not any(isinstance(i, At | _Mark | tuple) for i in inputs):
                return self._fold(node, args, kwargs)
            value: Any = node.meta.get("val")
            if not isinstance(value, Tensor | tuple | list):
                return _BATCH
            handler = HANDLERS.get(node.target)
            if handler is None:
                refuse(self._reason(node, inputs))
            if any(i is _LOST for i in inputs):
                return self._placeholder(value)
            if any(i is _BATCH for i in inputs) and handler not in TAKES_BATCH_SIZE:
                refuse("uses the batch size, or a value computed from the whole batch, as a number")
            if isinstance(value, Tensor) and not self._keeps_batch(value):
                refuse("moves, merges or reduces the batch axis")
            computed = [n for n in node.all_input_nodes if isinstance(self.values[n], At | tuple)]
            if (kind := self._rounds(node, computed)) is not None:
                refuse(rounds_to(_type_name(kind)))
            self.halves.update(dict.fromkeys(t.dtype for t in _reals(node) if is_half(t.dtype)))
            step = Step(self.graph, node, self._name(node))
            result = handler(step, *args, **kwargs)
            if isinstance(result, At) and result.shape != step.shape:
                refuse(f"gives shape {result.shape} here and {step.shape} in torch; please report this")
            return result
        except RefusalError as refusal:
            what = "getitem" if node.target is operator.getitem else node.target
            self.problems.append(f"{what} ({_place(node)}): {refusal}")
            return self._placeholder(node.meta.get("val"))

    def _fold(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """Evaluates an operation on constants."""
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            refuse("draws random numbers")
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        return list(result) if isinstance(result, tuple) else result  # tuples hold computed values

    def _keeps_batch(self, value: Tensor) -> bool:
        """Whether the batch is the first axis, and no other depends on it."""
        shape = value.shape
        return len(shape) > 0 and str(shape[0]) == self.batch and all(type(n) is int for n in shape[1:])

    def _placeholder(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not self._keeps_batch(value):
            return _LOST
        shape = tuple(value.shape[1:])
        return At(self.graph.add(Unknown(shape), 0, name="unknown"), shape)

    def _reason(self, node: fx.Node, inputs: list[Any]) -> str:
        if node.target in SOFTMAX:
            return "a softmax has a place only at the end of a classifier, over its classes; return the logits instead"
        if all(i is _BATCH for i in inputs):
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


def _place(node: fx.Node) -> str:
    """Where an operation is: its name in the trace, its submodule, its line in the user's code."""
    path, kind = _module_of(node)
    inside = (os.path.dirname(torch.__file__), os.path.dirname(__file__), "<eval_with_key>")
    frames = re.findall(r'File "(.+)", line (\d+)', node.meta.get("stack_trace") or "")
    lines = [f"{os.path.basename(file)}:{line}" for file, line in frames if not file.startswith(inside)]
    module = f"module {path!r} of type {kind}" if path else kind
    return ", ".join([f"node {node.name!r}", *filter(None, [module]), *lines[-1:]])
