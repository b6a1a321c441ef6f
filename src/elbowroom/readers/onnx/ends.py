"""A model's inputs and outputs: their shapes, and which output is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.operations import Shape
from elbowroom.readers.onnx import constants as constants
from elbowroom.readers.onnx.file import FLOATS, checked_size, type_name

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto


def dims_of(info: ValueInfoProto) -> list[int | str] | None:
    """The declared shape, free axes by their names; None where there is none."""
    tensor = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        return None
    return [d.dim_value if d.dim_value > 0 else d.dim_param for d in tensor.shape.dim]


def input_shape(source: ValueInfoProto, output: ValueInfoProto) -> tuple[Shape, int, bool]:
    """The input's shape at batch size 1, the batch size the model is made for, and whether that is free."""
    dims, given = dims_of(source), dims_of(output)
    if dims is None:
        raise InputError(f"the input {source.name!r} has no declared shape; export the model with one")
    free = [f"axis {i}" + (f" ({d!r})" if d else "") for i, d in enumerate(dims) if i and isinstance(d, str)]
    if free:
        raise UnsupportedError(
            f"{', '.join(free)} of the input {source.name!r} {'are' if len(free) > 1 else 'is'} free: dynamic shapes "
            "beyond the batch are not supported; export the model with fixed sizes"
        )
    shape = tuple(1 if isinstance(d, str) else d for d in dims)
    checked_size(shape)
    one_result = given is not None and (len(given) < 2 or given[0] == 1)
    if len(shape) < 2 or shape[0] == 1 or one_result:
        return shape, 1, bool(dims) and isinstance(dims[0], str)
    return (1, *shape[1:]), shape[0], False


def described(info: ValueInfoProto) -> str:
    dims = dims_of(info)
    if dims is None:
        return repr(info.name)
    sizes = ", ".join(str(d) if d else "?" for d in dims)
    return f"{info.name!r} ({type_name(info.type.tensor_type.elem_type)}, [{sizes}])"


class Outputs:
    """Which of a graph's outputs may hold logits or probabilities."""

    def __init__(self, graph: GraphProto) -> None:
        self.all = list(graph.output)
        makers = {name: node.op_type for node in graph.node for name in node.output}
        self.read = [o for o in self.all if len(self.all) == 1 or self._real(o, makers.get(o.name, ""))]
        if not self.read:
            raise self.ambiguous()

    @staticmethod
    def _real(output: ValueInfoProto, maker: str) -> bool:
        if output.type.WhichOneof("value") == "tensor_type":
            return output.type.tensor_type.elem_type in (0, *FLOATS)
        return maker == "ZipMap"

    def ambiguous(self) -> UnsupportedError:
        listed = ", ".join(map(described, self.all))
        return UnsupportedError(
            f"the model has {len(self.all)} outputs, and which one holds the logits is not clear: {listed}. Keep one "
            "with onnx.utils.extract_model"
        )
