"""The operations a `Network` is made of: affine maps, activations and max-pooling.

Every operation works on tensors with one leading axis (`n x *shape`) for whatever is batched. Shapes in signatures
leave that axis out.

An operation says what it computes (`__call__`), and nothing of how that is bounded: search, proof and Arb each have
their own maps (`search.bounds.maps`, `proof.kernel.rows`, `proof.arb`), so that no fault is shared. Weights of batch
norm and the like are never folded into neighbours: results are about the network as stored.

`base` says what every operation is, `fields` what its fields may hold; the operations themselves are in `affine`,
`windows`, `reshaping` and `activations`, and all are imported here, which makes them known to network files.

An operation is whole or refused. Every field is validated when it is built, by its declared type and then by `_check`;
whether it fits its inputs is said by `output_shape`; whether its numbers make sense by `refuse_values`, which every
network asks. Nothing is left to what torch makes of an odd argument: an empty stride means the kernel to torch, and
might mean something else to a proof.
"""

from __future__ import annotations

from elbowroom.network.operations.activations import (
    ELU,
    GELU,
    Arctan,
    Clip,
    LeakyReLU,
    ReLU,
    Sigmoid,
    SiLU,
    Softplus,
    Tanh,
)
from elbowroom.network.operations.affine import Add, BatchNorm, Divide, Linear, Mean, Scale, Shift
from elbowroom.network.operations.base import Activation, Affine, Input, Operation, Shape
from elbowroom.network.operations.reshaping import Concat, Pad, Reshape, Slice, Transpose
from elbowroom.network.operations.windows import AvgPool, Conv, MaxPool

__all__ = [
    "ELU",
    "GELU",
    "Activation",
    "Add",
    "Affine",
    "Arctan",
    "AvgPool",
    "BatchNorm",
    "Clip",
    "Concat",
    "Conv",
    "Divide",
    "Input",
    "LeakyReLU",
    "Linear",
    "MaxPool",
    "Mean",
    "Operation",
    "Pad",
    "ReLU",
    "Reshape",
    "Scale",
    "Shape",
    "Shift",
    "SiLU",
    "Sigmoid",
    "Slice",
    "Softplus",
    "Tanh",
    "Transpose",
]
