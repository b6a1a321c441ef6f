"""Embeddings in ONNX: a Gather of a fixed matrix's rows by codes that are columns of an input, as torch exports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from elbowroom.readers.flow import Coding
from elbowroom.readers.reading import refuse_many_codes

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_WHOLE = (6, 7)  # int32 and int64, by ONNX's numbers


@dataclass(frozen=True, eq=False)
class Lookups:
    """Follows codes from lookups back to the columns that they are.

    `columns`: of each input, the numbers of its columns; `constant`: a fixed value by its name, None for others.
    """

    graph: GraphProto
    columns: Mapping[str, np.ndarray]
    constant: Callable[[str], np.ndarray | None]
    _makers: dict[str, NodeProto] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._makers.update({name: node for node in self.graph.node for name in node.output})

    def looked_up(self, node: NodeProto) -> np.ndarray | None:
        """The numbers of the columns whose codes a node looks up, `*shape` without the batch axis; None where it looks
        up nothing, or something else."""
        if node.op_type != "Gather" or node.domain or attribute(node, "axis", 0) != 0:
            return None
        rows = self.constant(node.input[0])
        if rows is None or rows.ndim != 2 or rows.dtype.kind != "f" or self.constant(node.input[1]) is not None:
            return None
        return self.of(node.input[1])

    def of(self, name: str) -> np.ndarray | None:
        """The columns that a value holds as they stand, or as whole numbers."""
        if name in self.columns:
            return self.columns[name]
        node = self._makers.get(name)
        given = None if node is None or node.domain or not node.input else self.of(node.input[0])
        if node is None or given is None:
            return None
        match node.op_type:
            case "Identity":
                return given
            case "Cast" if attribute(node, "to", 0) in _WHOLE:
                return given
            case "Gather":
                return self._taken(node, given)
            case "Slice":
                return self._sliced(node, given)
            case "Squeeze" | "Unsqueeze":
                return self._reshaped(node, given)
        return None

    def _taken(self, node: NodeProto, given: np.ndarray) -> np.ndarray | None:
        axis, places = _axis(attribute(node, "axis", 0), given.ndim), self.constant(node.input[1])
        if places is None or axis < 0 or not (np.abs(places * 2 + 1) <= 2 * given.shape[axis]).all():
            return None
        return np.take(given, places, axis=axis)

    def _sliced(self, node: NodeProto, given: np.ndarray) -> np.ndarray | None:
        found = [attribute(node, name) for name in ("starts", "ends", "axes")]
        if len(node.input) > 1:  # attributes until opset 10
            found = [self.constant(name) if name else None for name in (*node.input[1:], "", "")][:4]
        starts, ends, axes, steps = (*found, None)[:4]
        if starts is None or ends is None or (len(node.input) > 4 and node.input[4] and steps is None):
            return None
        if len(node.input) > 3 and node.input[3] and axes is None:
            return None
        axes = range(len(starts)) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        for start, end, dim, step in zip(starts, ends, axes, steps, strict=True):
            axis = _axis(int(dim), given.ndim)
            if axis < 0:
                if (int(start), int(step)) != (0, 1) or int(end) < 1 << 31:
                    return None
                continue
            given = np.take(given, np.arange(given.shape[axis])[int(start) : int(end) : int(step)], axis=axis)
        return given if given.size else None

    def _reshaped(self, node: NodeProto, given: np.ndarray) -> np.ndarray | None:
        axes = attribute(node, "axes") if len(node.input) < 2 else self.constant(node.input[1])
        if axes is None or len(axes) != 1:
            return None
        adds = node.op_type == "Unsqueeze"
        axis = _axis(int(axes[0]), given.ndim + adds)
        if axis < 0 or (not adds and given.shape[axis] != 1):
            return None
        return np.expand_dims(given, axis) if adds else np.squeeze(given, axis)


def _axis(dim: int, rank: int) -> int:
    """Without the batch axis, which is -1; `rank`: likewise."""
    return dim % (rank + 1) - 1


def coding_of(rows: int) -> Coding:
    """Codes from 0 on, an entry for each."""
    refuse_many_codes(rows)
    levels = tuple(float(level) for level in range(rows))
    return Coding(levels, tuple(tuple(row) for row in np.eye(rows).tolist()), None, levels)


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """Of a node, by its name."""
    from onnx.helper import get_attribute_value

    return next((get_attribute_value(a) for a in node.attribute if a.name == name), default)


__all__ = ["Lookups", "attribute", "coding_of"]
