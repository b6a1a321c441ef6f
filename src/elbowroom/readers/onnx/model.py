"""Reads an ONNX model, operator by operator, at batch size 1.

Every value has its full ONNX shape, with a free batch axis set to 1; what is computed from constants alone (shapes,
mostly) is evaluated once. Parameters are taken exactly as stored: batch norm is not folded into its neighbours, and
whatever is rewritten is the same function in real arithmetic. What was read is compared with the model, as a guard
against misreading.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.graph import DECISIONS, About, Graph, Network, Origin
from elbowroom.readers.onnx import constants as constants
from elbowroom.readers.onnx.comparison import Comparison
from elbowroom.readers.onnx.composites import settle
from elbowroom.readers.onnx.ends import Outputs, described, input_shape
from elbowroom.readers.onnx.file import FLOATS, INTEGERS, read_model, read_tensor, type_name, with_data
from elbowroom.readers.onnx.guard import Pair
from elbowroom.readers.onnx.operators import AFTER_CUT, HANDLERS, ML, REASONS, TAKES_FORMULA, TAKES_WHOLE
from elbowroom.readers.onnx.originals import as_it_was
from elbowroom.readers.onnx.step import Builder, Lost, LostError, Place, Step, Value, inner
from elbowroom.readers.onnx.tables import plain_model
from elbowroom.readers.onnx.types import Types, result_shapes
from elbowroom.readers.reading import RefusalError, Unknown, first_line, left_off, refuse

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

# What numbers in the wrong places of a file make numpy, torch and this reader raise.
_DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, AttributeError, MemoryError)


def read_onnx(path: Path, task: str | None = None) -> Network:
    """The network in an ONNX file, in the model's own input shape without the batch axis.

    For classification (the default) a softmax or an argmax at the very end is left off, with a note.
    """
    model, opset = read_model(path)
    try:
        plain = plain_model(model, path.parent)
        if plain is None:
            return _Reading(model, opset, path.parent, task).network
        return as_it_was(_Reading(plain.model, opset, path.parent, task).network, plain, model, task)
    except UnsupportedError as error:
        raise UnsupportedError(f"{path}: {error}") from None
    except InputError as error:
        text = str(error)
        raise InputError(f"{path}: {text if len(text) < 1000 else text[:1000] + ' ...'}") from None


# --- the walk


class _Reading:
    """Walks a model in order and adds what it finds to a graph; `network` is the result."""

    def __init__(self, model: ModelProto, opset: int, folder: Path, task: str | None) -> None:
        self.model, self.graph, self.opset, self.folder = model, model.graph, opset, folder
        self.tensors = {t.name: t for t in self.graph.initializer}
        if all(i.name in self.tensors for i in self.graph.input):
            raise UnsupportedError("the model takes no input")
        self.outputs = Outputs(self.graph)
        self.nodes = self._needed([o.name for o in self.outputs.read])
        self.uses = Counter(name for node in self.nodes for name in node.input)
        self.uses.update(o.name for o in self.outputs.read)
        self.source = self._source()
        shape, self.batch, self.free = input_shape(self.source, self.outputs.read[0])
        self.build = Builder(Graph(inner(shape)))
        self.notes: list[str] = []
        self.problems: dict[tuple[str, str], dict[str, None]] = {}  # node names by operator and reason
        self.rounded: set[str] = set()  # constants that the model computes itself
        whole = self._is_whole()
        self.types = Types(self.source, self.graph.initializer, self.nodes)
        self.values: dict[str, Any] = {self.source.name: Value(self.build.graph.input, shape, whole)}
        for node in self.nodes:
            self._translate(node)
        self.network = self._finish(task)

    def _needed(self, names: list[str]) -> list[NodeProto]:
        """The nodes that these values depend on, in the file's order, which must be one to compute them in."""
        nodes = list(self.graph.node)
        makers: dict[str, int] = {}
        given = {*self.tensors, *(i.name for i in self.graph.input)}
        for i, node in enumerate(nodes):
            for name in filter(None, node.output):
                if name in makers or name in given:
                    raise InputError(f"the value {name!r} is computed twice; the model is damaged")
                makers[name] = i
        wanted: set[int] = set()
        stack = list(names)
        while stack:
            i = makers.get(stack.pop(), -1)
            if i >= 0 and i not in wanted:
                wanted.add(i)
                stack.extend(nodes[i].input)
        needed = [node for i, node in enumerate(nodes) if i in wanted]
        known = {"", *given, *(t.values.name for t in self.graph.sparse_initializer)}
        for node in needed:
            self._must_know(node.input, known)
            known.update(node.output)
        self._must_know(names, known)
        return needed

    @staticmethod
    def _must_know(names: Iterable[str], known: set[str]) -> None:
        for name in names:
            if name not in known:
                raise InputError(f"the value {name!r} is used, and nothing before computes it; the model is damaged")

    def _source(self) -> ValueInfoProto:
        """The one input that the outputs depend on."""
        used: list[ValueInfoProto] = [i for i in self.graph.input if i.name not in self.tensors and self.uses[i.name]]
        if not used:
            raise UnsupportedError("the model's output does not depend on its input")
        if len(used) > 1:
            raise UnsupportedError(
                f"the model takes {len(used)} inputs, and one is supported: {', '.join(map(described, used))}"
            )
        return used[0]

    def _is_whole(self) -> bool:
        kind = self.source.type.tensor_type.elem_type
        if self.source.type.WhichOneof("value") != "tensor_type" or kind not in (*FLOATS, *INTEGERS):
            raise UnsupportedError(f"the input {self.source.name!r} is not a tensor of numbers")
        if kind in INTEGERS:
            self.notes.append(
                f"the input is declared as {type_name(kind)}; it is read as real numbers, which the model makes of it"
            )
        return kind in INTEGERS

    def value(self, name: str) -> Any:
        """What a name stands for: an array, or what is computed from the input."""
        if name not in self.values:
            if any(name == t.values.name for t in self.graph.sparse_initializer):
                raise UnsupportedError(f"the tensor {name!r} is stored as a sparse tensor; store it as a plain one")
            self.values[name] = self._array(self.tensors[name], f"the tensor {name!r}")
        return self.values[name]

    def _array(self, tensor: Any, what: str = "its tensor") -> np.ndarray:
        try:
            return read_tensor(tensor, self.folder)
        except (InputError, UnsupportedError) as error:
            raise type(error)(f"{what} {error}") from None

    # --- one node

    def _translate(self, node: NodeProto) -> None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        place = Place.of(node)
        step = Step(
            self.build, node, place, self.opset, self.batch, lambda name: self.uses[name] == 1, self._array, self.notes
        )
        outputs, lost = list(node.output), Lost()
        inputs: list[Any] = []
        self.types.follow(node)
        try:
            inputs = [self.value(name) if name else None for name in node.input]
            lost = Lost(all(map(_is_constant, inputs)) or (not domain and node.op_type in ("Shape", "Size")))
            results = self._results(step, domain, inputs)
            if any(self.uses[name] for name in outputs[len(results) :] if name):
                refuse("only its first output is supported")
        except LostError:
            results = []
        except RefusalError as refusal:
            self._problem(refusal.at or place, str(refusal))
            results = [] if lost.constant else self._stand_ins(node, inputs, lost)
        except UnsupportedError:
            raise
        except InputError as error:
            if not self.problems:  # else it may be about what stands in for the real values
                made = f" (the model is made for batches of {self.batch} inputs, and is read for one)"
                raise InputError(f"{place}: {error}{made if self.batch > 1 else ''}") from None
            results = []
        except _DAMAGE as error:
            raise InputError(f"{place} cannot be read; the model may be damaged: {first_line(error)}") from None
        self.values.update(zip(outputs, [*results, *[lost] * len(outputs)]))

    def _stand_ins(self, node: NodeProto, inputs: list[Any], lost: Lost) -> list[Any]:
        """What the rest of the model is looked through with, behind a node that is not supported."""
        if any(isinstance(v, Lost) for v in inputs):
            return []
        return [
            lost if shape is None else Value(self.build.add(node.name, Unknown(inner(shape)), 0), shape)
            for shape in result_shapes(node, inputs, self.types, self.opset)
        ]

    def _results(self, step: Step, domain: str, inputs: list[Any]) -> list[Any]:
        operator = step.node.op_type
        while inputs and inputs[-1] is None:
            inputs.pop()
        if domain not in ("", ML):
            refuse(f"an operator of the domain {domain!r}")
        if operator in REASONS:
            refuse(REASONS[operator])
        known = self._known(step, domain, inputs)
        if known is not None:
            return known
        if (domain, operator) not in HANDLERS:
            refuse("not supported")
        if any(isinstance(v, Lost) and v.constant for v in inputs):
            raise LostError
        for v in inputs:
            if getattr(v, "whole", False) and operator not in TAKES_WHOLE:
                refuse("computes with whole numbers; they must be converted to real ones first")
            cut = getattr(v, "cut", None)
            if cut is not None and operator not in AFTER_CUT:
                raise RefusalError("read only at the very end of a classifier", cut.places[0])
            if cut is not None and cut.label and operator != "ZipMap":
                return [v]  # a label, whatever shape it is given
        if operator not in TAKES_FORMULA:
            inputs = [self._settled(name) if name else None for name in step.node.input][: len(inputs)]
        self.types.refuse_rounding(step.node, [name for name, v in zip(step.node.input, inputs) if not _is_constant(v)])
        result = _bound(HANDLERS[domain, operator], step, inputs)
        if step.unread():
            refuse(f"its attribute {step.unread()[0]!r} is not understood")
        for name in step.node.input:
            if name in self.rounded:
                self.notes.append(
                    f"the model computes the constant {name!r} itself; it is taken as rounded to its type"
                )
        return list(result) if isinstance(result, tuple) else [result]

    def _known(self, step: Step, domain: str, inputs: list[Any]) -> list[Any] | None:
        """The results of a node that computes nothing from the input's numbers; None of one that does."""
        operator = step.node.op_type
        if (domain, operator) == ("", "Constant"):
            return [constants.stored(step)]
        if operator in ("Shape", "Size") and not domain and inputs and not isinstance(inputs[0], np.ndarray):
            return constants.fold(step.node, [np.broadcast_to(np.False_, inputs[0].shape)], self.opset)
        if all(v is None or isinstance(v, np.ndarray) for v in inputs):
            return self._fold(step, inputs)
        if all(map(_is_constant, inputs)):
            raise LostError
        return None

    def _settled(self, name: str) -> Any:
        self.values[name] = settle(self.values[name], self.build, self.notes)
        return self.values[name]

    def _fold(self, step: Step, inputs: list[np.ndarray | None]) -> list[np.ndarray]:
        node = step.node
        results = constants.fold(node, inputs, self.opset)
        self.types.refuse_half(node, results)
        computes = node.op_type not in constants.MOVES or any(name in self.rounded for name in node.input)
        if node.op_type == "Cast" and inputs[0] is not None and not (self.rounded & set(node.input)):
            computes = not np.array_equal(results[0].astype(np.float64), inputs[0].astype(np.float64))
        if computes:
            self.rounded.update(name for name, y in zip(node.output, results) if y.dtype.kind == "f")
        return results

    def _problem(self, place: Place, reason: str) -> None:
        self.problems.setdefault((place.operator, reason), {})[place.name] = None

    # --- the end

    def _finish(self, task: str | None) -> Network:
        found = [self.value(o.name) for o in self.outputs.read]
        for i, output in enumerate(self.outputs.read):
            try:
                found[i] = self._settled(output.name)
            except RefusalError as refusal:
                self._problem(refusal.at or Place("", output.name), str(refusal))
        cut = getattr(found[0], "cut", None)
        if cut is not None and task == "regression":
            for place in cut.places:
                self._problem(place, "a regression model cannot end in it")
        if self.problems:
            raise UnsupportedError(_listed(self.problems))
        if any(isinstance(v, np.ndarray) for v in found):
            raise UnsupportedError("the model's output does not depend on its input")
        chosen: Value = found[0]
        if any(v.number != chosen.number for v in found):
            raise self.outputs.ambiguous()
        if chosen.whole:
            raise UnsupportedError("the model's output holds whole numbers; real ones are needed")
        if len(self.outputs.all) > 1:
            self.notes.append(f"of the model's {len(self.outputs.all)} outputs {self.outputs.read[0].name!r} is read")
        if cut is not None:
            names = " and ".join(place.operator for place in cut.places)
            self.notes.append(left_off(names))
        self.notes.extend(self.types.notes())
        if sum(n > 1 for n in chosen.shape) > 1:
            self.notes.append(f"the outputs have the shape {inner(chosen.shape)}; they are read row by row")
        net = self.build.graph.network(chosen.number, _decision(self.model))
        comparison = self._compare(net, self.outputs.read[0].name if cut is None else cut.source)
        if self.batch > 1:
            self.notes.append(f"the model is made for batches of {self.batch} inputs; it is read for one")
        self.notes.extend(comparison.notes)
        classes = next((v.cut.classes for v in found if v.cut is not None and v.cut.classes), None)
        origin = Origin("", compared=comparison.compared)
        left = None if cut is None else " and ".join(place.operator for place in cut.places)
        about = About(classes=classes, notes=tuple(dict.fromkeys(self.notes)), origin=origin, cut=left)
        return Network(net.nodes, net.decision, about, comparison.source)

    def _compare(self, net: Network, logits: str) -> Comparison:
        """A guard against misreading, and against a batch whose rows have something to do with each other."""
        makers = {name: node for node in self.nodes for name in node.output}
        zipped = {o.name: makers[o.name] for o in self.outputs.read if makers[o.name].op_type == "ZipMap"}
        ends = tuple(zipped[o.name].input[0] if o.name in zipped else o.name for o in self.outputs.read)
        nodes = self._needed([logits, *ends])
        graph = tuple(self.build.graph.nodes)
        pair = Pair(nodes, graph, self.values, self.opset, self.source.name, logits, ends, self.free, self.batch)
        kind = self.types.coarsest(n for node in nodes for n in node.output if not _is_constant(self.values.get(n)))
        declared = self.source.type.tensor_type.elem_type
        try:
            return Comparison(pair, net, lambda names: self._extracted(nodes, names), declared, kind)
        except _DAMAGE as error:
            raise UnsupportedError(f"what was read cannot be compared with the model: {first_line(error)}") from None

    def _extracted(self, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> ModelProto:
        """A model of some of the nodes, as they are, that gives the values named and needs no other file."""
        model = type(self.model)(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
        model.graph.name = "read"
        model.graph.input.append(self.source)
        for name in outputs:
            model.graph.output.add().name = name
        for node in nodes:
            copy = model.graph.node.add()
            copy.CopyFrom(node)
            for attribute in copy.attribute:
                if attribute.HasField("t"):
                    attribute.t.CopyFrom(with_data(attribute.t, self.folder))
        used = dict.fromkeys(name for node in nodes for name in node.input if name in self.tensors)
        model.graph.initializer.extend(with_data(self.tensors[name], self.folder) for name in used)
        return model


def _is_constant(value: Any) -> bool:
    """Whether an input does not depend on the model's input: a constant, one that cannot be computed, or none."""
    return value is None or isinstance(value, np.ndarray) or (isinstance(value, Lost) and value.constant)


def _bound(handler: Any, step: Step, inputs: list[Any]) -> Any:
    """Calls a handler with the node's inputs, which must be those it takes."""
    signature = inspect.signature(handler)
    try:
        given = signature.bind(step, *inputs)
    except TypeError:
        raise InputError(f"it has {len(inputs)} input{'s' if len(inputs) != 1 else ''}, too few or too many") from None
    for name, value in given.arguments.items():
        missing = value is None and signature.parameters[name].default is inspect.Parameter.empty
        if missing or (isinstance(value, tuple) and any(v is None for v in value)):
            raise InputError("one of its inputs is missing")
    return handler(*given.args)


def _listed(problems: dict[tuple[str, str], dict[str, None]]) -> str:
    lines = ["the model holds operators without a bound here:"]
    for (operator, reason), names in problems.items():
        shown = [repr(n) for n in names][:5]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        lines.append(f"{operator} (node{'s' if len(names) > 1 else ''} {', '.join(shown)}{more}): {reason}")
    return "\n  ".join(lines)


def _decision(model: ModelProto) -> str:
    """Which output decides, where this package wrote the model; other models do not say."""
    said = {p.key: p.value for p in model.metadata_props} if model.producer_name == "elbowroom" else {}
    return said["decision"] if said.get("decision") in DECISIONS else "max"


__all__ = ["read_onnx"]
