"""A guard against misreading: what was read is compared, operator by operator, with onnx's reference implementation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Node
from elbowroom.network.onnx_constants import evaluate
from elbowroom.network.onnx_file import widened
from elbowroom.network.onnx_step import Place, RefusalError, Value

if TYPE_CHECKING:
    from onnx import NodeProto

_MUCH = 1 << 30  # multiplications that take a few seconds
_HALF = (10, 16)  # types of half precision


class TooLargeError(Exception):
    """The model takes too long to compute here."""


class Guard:
    """Runs a model by the reference implementation at random inputs, next to the graph that was read from it.

    `values`: what each name of the model stands for; `batch`: the batch size the model is made for; `kind`: the type
    of its input.
    """

    def __init__(self, graph: Graph, values: dict[str, Any], opset: int, batch: int, kind: int) -> None:
        self.nodes, self.values, self.opset, self.batch, self.kind = graph.nodes, values, opset, batch, kind

    def compare(self, nodes: Sequence[NodeProto], source: str) -> None:
        """Compares every value that these ONNX nodes compute and the graph holds; raises where one differs."""
        with np.errstate(all="ignore"):
            self._compare(nodes, source)

    def _compare(self, nodes: Sequence[NodeProto], source: str) -> None:
        if self.batch * sum(map(_work, self.nodes)) > _MUCH:
            raise TooLargeError("it is too large")
        value: Value = self.values[source]
        rng = np.random.default_rng(0)
        shape = (self.batch, *value.shape[1:]) if self.batch > 1 else value.shape
        x = rng.integers(0, 128, shape) if value.whole else rng.standard_normal(shape)
        found = self._run(torch.from_numpy(x.astype(np.float32)).reshape(self.batch, *self.nodes[0].shape).double())
        known: dict[str, Any] = {source: x.astype(np.float64 if self.kind == 11 else np.float32)}
        for node in nodes:
            for name in node.input:
                if name and name not in known:
                    known[name] = self.values[name]
            known.update(self._results(node, known, found))

    def _run(self, x: Tensor) -> list[Tensor]:
        """Every node of the graph in float64, which shows no rounding of its own."""
        found = [x]
        for node in self.nodes[1:]:
            found.append(node.op.map_tensors(Tensor.double)(*(found[j] for j in node.inputs)))
        return found

    def _results(self, node: NodeProto, known: dict[str, Any], found: list[Tensor]) -> dict[str, Any]:
        """What the reference makes of what is known; what was read, where it has no say."""
        own = {name: self.values.get(name) for name in node.output if name}
        constant = all(isinstance(v, np.ndarray) for v in own.values())
        if node.op_type == "Constant" or (constant and self.batch == 1):
            return own
        place = Place.of(node)
        shaped = {}
        for name, value in own.items():
            if isinstance(value, Value) and not value.cut:
                if self.batch > 1 and value.shape[:1] != (1,):
                    raise self._mixed(place)
                shaped[name] = self._shaped(found[value.number], value)
        if _unreliable(node, self.opset):
            return shaped
        try:
            arrays = evaluate([node], {n: known[n] for n in node.input if n}, list(own), self.opset)
        except (InputError, RefusalError):
            if set(shaped) == set(own):
                return shaped
            raise TooLargeError("the reference implementation lacks an operator") from None
        results = dict(zip(own, (widened(np.asarray(y)) for y in arrays)))
        for name, y in shaped.items():
            self._check(place, results[name], y, self._tolerance(node))
        return results

    def _shaped(self, y: Tensor, value: Value) -> np.ndarray:
        """A value as the model has it: in its shape, and in a type that a constant of the model may meet."""
        shape = (self.batch, *value.shape[1:]) if self.batch > 1 else value.shape
        return y.numpy().reshape(shape).astype(np.float64 if self.kind == 11 else np.float32)

    def _check(self, place: Place, expected: np.ndarray, y: np.ndarray, tolerance: float) -> None:
        if expected.shape == y.shape:
            allowed = tolerance * (1 + float(np.abs(expected).max(initial=0)))
            difference = float(np.abs(expected.astype(np.float64) - y).max(initial=0))
            if not np.isfinite(expected).all() or difference <= allowed:
                return
            reason = f"they differ by {difference:.2g}"
        else:
            reason = f"the shapes are {y.shape} and {expected.shape}"
        if self.batch > 1:
            raise self._mixed(place)
        raise UnsupportedError(
            f"{place} is read differently here and by onnx's reference implementation: at a random input {reason}. "
            "One of the two is wrong; please report this"
        )

    def _mixed(self, place: Place) -> UnsupportedError:
        return UnsupportedError(
            f"the model is made for batches of {self.batch} inputs, and {place} mixes them; export the model with a "
            "free batch axis, or with batch size 1"
        )

    def _tolerance(self, node: NodeProto) -> float:
        """Generous, since rounding grows with depth; more so where the model computes in half precision."""
        to_half = node.op_type == "Cast" and any(a.name == "to" and a.i in _HALF for a in node.attribute)
        return 0.02 if self.kind in _HALF or to_half else 1e-4


def _unreliable(node: NodeProto, opset: int) -> bool:
    """Whether the reference implementation is known to be wrong, in some version of onnx."""
    attributes = {a.name for a in node.attribute if a.i or a.s not in (b"", b"NOTSET")}
    match node.op_type:
        case "BatchNormalization":
            return opset < 14  # it takes the batch's own statistics
        case "GlobalMaxPool":
            return True  # it counts axes wrongly, but for images
        case "MaxPool" | "AveragePool":
            return bool(attributes & {"ceil_mode", "auto_pad"})
        case _:
            return False


def _work(node: Node) -> int:
    """Multiplications for one input, and numbers to hold."""
    match node.op:
        case ops.Linear():
            return node.op.weight.numel() * math.prod(node.shape[:-1]) + node.size
        case ops.Conv():
            return node.op.weight.numel() * math.prod(node.shape[1:]) + node.size
        case _:
            return node.size
