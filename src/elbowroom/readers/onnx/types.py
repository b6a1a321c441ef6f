"""Which type each value of an ONNX model has, and where values are rounded to a narrower one.

An operator gives the type it takes, except for the few that are named here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from elbowroom.network.operations import Shape
from elbowroom.readers.onnx.constants import MOVES
from elbowroom.readers.onnx.file import FLOATS, INTEGERS, type_name
from elbowroom.readers.reading import computes_in, holds, is_half, refuse, rounds_to

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto, ValueInfoProto

_FLOAT, _INT64 = 1, 7


class Types:
    """The types of a model's values by their names, as ONNX numbers them; `nodes` are those that are read."""

    def __init__(self, source: ValueInfoProto, tensors: Iterable[TensorProto], nodes: Sequence[NodeProto]) -> None:
        self._of: dict[str, int] = {t.name: t.data_type for t in tensors}
        used = {self._of.get(name, 0) for node in nodes for name in node.input}
        used |= {_constant(node) for node in nodes if node.op_type == "Constant"}
        self._weights = used & set(FLOATS)
        self._declared = self._of[source.name] = source.type.tensor_type.elem_type
        self._halves: dict[int, None] = {}  # in which values are computed

    def follow(self, node: NodeProto) -> None:
        """Takes down the type of what a node gives; nodes come in the order of computation."""
        given = [self.of(name) for name in node.input if name]
        kind = next((k for k in given if k in FLOATS), next(iter(given), 0))
        match node.op_type:
            case "Cast":
                kind = next((a.i for a in node.attribute if a.name == "to"), 0)
            case "Scaler":
                kind = _FLOAT
            case "Constant" | "ConstantOfShape":
                kind = _constant(node)
            case "Shape" | "Size" | "ArgMax" | "ArgMin":
                kind = _INT64
        self._of.update(dict.fromkeys(filter(None, node.output), kind))

    def of(self, name: str) -> int:
        return self._of.get(name, 0)

    def refuse_rounding(self, node: NodeProto, computed: Sequence[str]) -> None:
        """Refuses a node that gives the values named in `computed` in a type that cannot hold them.

        The type of the whole model may be returned to: its operations round to it as well.
        """
        kind = self.of(node.output[0])
        if kind not in FLOATS:
            return
        known = [k for k in map(self.of, computed) if k in (*FLOATS, *INTEGERS)]
        if not all(holds(_dtype(kind), _dtype(k)) for k in known) and not self._is_own(kind):
            refuse(rounds_to(type_name(kind)))
        if is_half(_dtype(kind)) and node.op_type not in MOVES:
            self._halves[kind] = None

    def refuse_half(self, node: NodeProto, results: Sequence[np.ndarray]) -> None:
        """Refuses arithmetic on constants of half precision, which are held in float32 here: it would not round."""
        halves = [k for k in map(self.of, node.input) if k in FLOATS and is_half(_dtype(k))]
        computes = node.op_type not in MOVES and node.op_type != "Cast"
        if computes and halves and any(y.dtype.kind == "f" for y in results):
            refuse(f"it computes a constant in {type_name(halves[0])}; compute it before the export")

    def notes(self) -> list[str]:
        return [computes_in(type_name(kind)) for kind in self._halves]

    def coarsest(self, names: Iterable[str]) -> torch.dtype:
        """The type among those of these values that rounds most."""
        kinds = {_dtype(k) for k in map(self.of, names) if k in FLOATS}
        return max(kinds, key=lambda kind: torch.finfo(kind).eps, default=torch.float32)

    def _is_own(self, kind: int) -> bool:
        """Whether this is the type of the whole model."""
        if self._declared in FLOATS and not is_half(_dtype(kind)):
            return kind == self._declared
        return self._weights | ({self._declared} & set(FLOATS)) <= {kind}


def _dtype(kind: int) -> torch.dtype:
    found: torch.dtype = getattr(torch, type_name(kind))
    return found


def _constant(node: NodeProto) -> int:
    """The type of what a node makes out of its attributes."""
    held = {a.name: a for a in node.attribute}
    if "value" in held:
        return int(held["value"].t.data_type)
    return _INT64 if {"value_int", "value_ints"} & set(held) else _FLOAT


def result_shapes(node: NodeProto, inputs: Sequence[Any], types: Types, opset: int) -> list[Shape | None]:
    """The shapes of an unsupported node's real results, from those of its inputs, where onnx can tell."""
    import onnx
    from onnx import helper, numpy_helper

    if node.domain not in ("", "ai.onnx") or any(a.HasField("g") for a in node.attribute):
        return []
    given = {name: v for name, v in zip(node.input, inputs) if name and v is not None}
    sizes = [numpy_helper.from_array(v, n) for n, v in given.items() if isinstance(v, np.ndarray) and v.dtype == "i8"]
    try:
        graph = helper.make_graph(
            [node], "part", [helper.make_tensor_value_info(n, types.of(n), v.shape) for n, v in given.items()],
            [onnx.ValueInfoProto(name=n) for n in node.output if n], sizes,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        found = {o.name: o.type.tensor_type for o in onnx.shape_inference.infer_shapes(model).graph.output}
    except Exception:  # whatever an inference raises on a misfit
        return []
    shapes: list[Shape | None] = []
    for name in node.output:
        real = name in found and found[name].elem_type in FLOATS
        shape = tuple(d.dim_value for d in found[name].shape.dim) if real else ()
        shapes.append(shape if shape and all(shape) else None)
    return shapes
