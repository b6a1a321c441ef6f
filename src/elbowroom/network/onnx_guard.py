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
from elbowroom.network.onnx_step import Place, Value
from elbowroom.network.operations import Shape
from elbowroom.network.reading import RefusalError

if TYPE_CHECKING:
    from onnx import NodeProto

_MUCH = 1 << 30  # multiplications that take a few seconds
_WRONG = {"MaxPool", "AveragePool", "GlobalMaxPool"}
_HALF = (10, 16)  # types of half precision


class NotComparableError(Exception):
    """The model cannot be computed here."""


class Guard:
    """Runs a model's operators by the reference implementation, next to the graph that was read from the model.

    Each operator gets what was read of its inputs, at a random input of the model and in float64, so that rounding
    has no say. `values`: what each name of the model stands for; `batch`: the batch size the model is made for.
    """

    def __init__(self, graph: Graph, values: dict[str, Any], opset: int, batch: int) -> None:
        self.nodes, self.values, self.opset, self.batch = graph.nodes, values, opset, batch

    def compare(self, nodes: Sequence[NodeProto], source: str) -> None:
        """Compares every value that these ONNX nodes compute and the graph holds; raises where one differs."""
        if self.batch * sum(map(_work, self.nodes)) > _MUCH:
            raise NotComparableError("it is too large")
        value: Value = self.values[source]
        rng = np.random.default_rng(0)
        shape = self._shape(value)
        x = rng.integers(0, 128, shape).astype(np.float64) if value.whole else rng.standard_normal(shape)
        found = self._run(torch.from_numpy(x).reshape(self.batch, *self.nodes[0].shape))
        known: dict[str, Any] = {source: x}
        for node in nodes:
            for name in node.input:
                if name and name not in known:
                    known[name] = _wide(self.values[name])
            known.update(self._results(node, known, found))

    def _shape(self, value: Value) -> Shape:
        return (self.batch, *value.shape[1:]) if self.batch > 1 else value.shape

    def _run(self, x: Tensor) -> list[Tensor]:
        """Every node of the graph, at `x`: `batch x *shape`."""
        found = [x]
        for node in self.nodes[1:]:
            found.append(node.op.map_tensors(Tensor.double)(*(found[j] for j in node.inputs)))
        return found

    def _results(self, node: NodeProto, known: dict[str, Any], found: list[Tensor]) -> dict[str, Any]:
        """What was read of the node's outputs, compared; and what the reference makes of those not in the graph."""
        own = {name: self.values.get(name) for name in node.output if name}
        constant = all(isinstance(v, np.ndarray) for v in own.values())
        if node.op_type == "Constant" or (constant and self.batch == 1):
            return {name: _wide(self.values[name]) for name in own}
        place = Place.of(node)
        read = {}
        for name, value in own.items():
            if isinstance(value, Value) and not value.cut:
                if self.batch > 1 and value.shape[:1] != (1,):
                    raise self._mixed(place)
                read[name] = found[value.number].numpy().reshape(self._shape(value))
        if _unreliable(node, self.opset):
            return read
        try:
            arrays = evaluate([node], {n: known[n] for n in node.input if n}, list(own), self.opset)
        except (InputError, RefusalError):
            if set(read) == set(own):
                return read
            raise NotComparableError(f"the reference implementation lacks {node.op_type}") from None
        results = {name: _wide(np.asarray(y)) for name, y in zip(own, arrays)}
        for name, y in read.items():
            self._check(place, results[name], y, _tolerance(node))
        return results | read

    def _check(self, place: Place, expected: np.ndarray, y: np.ndarray, tolerance: float) -> None:
        if expected.shape == y.shape:
            allowed = tolerance * (1 + float(np.abs(expected).max(initial=0)))
            difference = float(np.abs(expected - y).max(initial=0))
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


def _wide(array: np.ndarray) -> np.ndarray:
    return widened(array).astype(np.float64) if widened(array).dtype.kind == "f" else array


def _tolerance(node: NodeProto) -> float:
    """Of the largest number: for constants rounded to float32, or what a conversion to half precision loses."""
    to_half = node.op_type == "Cast" and any(a.name == "to" and a.i in _HALF for a in node.attribute)
    return 2e-3 if to_half else 1e-6


def _unreliable(node: NodeProto, opset: int) -> bool:
    """Whether the reference implementation is known to be wrong in some version of onnx.

    Old batch norms take the statistics of the batch; pooling goes wrong with pads, dilations or ceil_mode.
    """
    return node.op_type in _WRONG or (node.op_type == "BatchNormalization" and opset < 14)


def _work(node: Node) -> int:
    """Multiplications for one input, and numbers to hold."""
    match node.op:
        case ops.Linear():
            return node.op.weight.numel() * math.prod(node.shape[:-1]) + node.size
        case ops.Conv():
            return node.op.weight.numel() * math.prod(node.shape[1:]) + node.size
        case _:
            return node.size
