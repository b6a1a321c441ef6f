"""`to_onnx`: a `Network` as an ONNX model of plain operators, for tools that read nothing else.

The parameters stand in the file exactly as stored. Numbers that are not tensors (the eps of a batch norm, the slope
of a leaky ReLU) are Python floats here; ONNX keeps some of them as float32 attributes. In a float32 model they are
rounded, and `rounded_constants` names them; a float64 model holds them all, through constants where an attribute
would round. Some runtimes have no float64 kernels for a few operators (convolution among them).
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.readers.onnx.file import import_onnx

if TYPE_CHECKING:
    from onnx import ModelProto
from elbowroom.readers.onnx.writers import WRITERS, Writer, held_as, holds

OPSET = 17

IR_VERSION = 8  # the one that came with opset 17: what readers of that time accept, and those of today

BATCH = "batch"

_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


def to_onnx(net: Network, dtype: torch.dtype | None = None) -> ModelProto:
    """The network as an ONNX model whose batch axis is free.

    `dtype`: float32 or float64; by default the type the parameters are stored in. A type that cannot hold every
    parameter exactly is refused.
    """
    onnx = import_onnx()
    chosen = _chosen(net, dtype)
    unknown = sorted({n.op.name for n in net.nodes[1:] if type(n.op) not in WRITERS})
    if unknown:
        raise UnsupportedError(f"no ONNX form is known for: {', '.join(unknown)}")
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(_NUMPY[chosen]))
    writer = Writer(onnx, net, chosen)
    values = [onnx.helper.make_tensor_value_info(n.name, kind, [BATCH, *n.shape]) for n in net.nodes]
    for node in net.nodes[1:]:
        writer.write(node, [net.nodes[j] for j in node.inputs])
    if len(net.nodes) == 1:  # an output must be the result of some node
        name = writer.emit("Identity", net.nodes[0].name)
        values.append(onnx.helper.make_tensor_value_info(name, kind, [BATCH, *net.input_shape]))
    graph = onnx.helper.make_graph(
        writer.nodes, "network", values[:1], values[-1:], writer.initializers, value_info=values[1:-1]
    )
    model: ModelProto = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="elbowroom",
    )
    onnx.helper.set_model_props(model, {"decision": net.decision})
    return model


def write_onnx(net: Network, path: str | os.PathLike[str], dtype: torch.dtype | None = None) -> Path:
    """Writes `to_onnx(net, dtype)` to a file."""
    target = Path(path)
    target.write_bytes(to_onnx(net, dtype).SerializeToString())
    return target


def rounded_constants(net: Network, dtype: torch.dtype | None = None) -> list[str]:
    """The numbers that `to_onnx(net, dtype)` cannot hold exactly, in words; empty where the model is the network.

    Parameters are never among them.
    """
    chosen = _chosen(net, dtype)
    found = []
    for node in net.nodes:
        for field in dataclasses.fields(node.op):
            value = getattr(node.op, field.name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, float) and not holds(chosen, number):
                    held = held_as(chosen, number)
                    found.append(f"{node.name} ({node.op.name}): {field.name} {number!r} becomes {held!r}")
        if isinstance(node.op, ops.GELU):
            found.append(f"{node.name} (GELU): the irrational constants in it are rounded")
    return found


def _chosen(net: Network, dtype: torch.dtype | None) -> torch.dtype:
    chosen = net.dtype if dtype is None else dtype
    if chosen not in _NUMPY:
        raise InputError(f"an ONNX model can be written in float32 or float64, not in {chosen}")
    for node in net.nodes:
        for field, tensor in node.op.tensors().items():
            if not bool((tensor.to(chosen).double() == tensor.double()).all()):
                raise InputError(
                    f"node {node.name} ({node.op.name}): {field} holds numbers that {str(chosen)[6:]} would round; "
                    "write the model in float64"
                )
    return chosen
