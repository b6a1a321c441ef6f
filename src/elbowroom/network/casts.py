"""Operations with their parameters in another type or place."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from elbowroom.machine.torch_modes import recordable
from elbowroom.network.operations import Linear, Operation

_PART = 1 << 15  # numbers that are compared at a time: in the cache, and by one thread


def cast(op: Operation, dtype: torch.dtype, device: torch.device, weight: bool) -> Operation:
    """The operation with its parameters in a type and place; all but the one called so where `weight` is false."""
    moved = {k: t for k, t in op.tensors().items() if weight or k != "weight"}
    return replace(op, **{k: recordable(_to(t, device, dtype)) for k, t in moved.items()})


def _to(t: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """In another type and place; what goes to another device goes as the type that has fewer bytes."""
    return t.to(device).to(dtype) if t.element_size() < dtype.itemsize else t.to(dtype).to(device)


def widens(op: Operation) -> bool:
    """Whether it computes in float64 with the weight as it is stored."""
    return type(op) is Linear and op.is_long and op.weight.dtype != torch.float64


def is_cast(kept: Operation, op: Operation) -> bool:
    """Whether `kept` is `op` with its parameters in another type or place."""
    if type(kept) is not type(op):
        return False
    for name, value in vars(op).items():
        cast = vars(kept)[name]
        if not isinstance(value, Tensor):
            if cast != value or type(cast) is not type(value):
                return False
        elif cast is not value and not (isinstance(cast, Tensor) and _equal(cast, value)):
            return False
    return True


def _equal(cast: Tensor, value: Tensor) -> bool:
    """Whether the one holds the other's numbers; a part at a time, so that no second cast is written."""
    if cast.shape != value.shape:
        return False
    size = _PART if cast.device.type == "cpu" else max(1, cast.numel())
    parts = (t.flatten().split(size) for t in (cast, value))
    # Not torch.equal, which on a CPU looks at one number after another.
    return all(bool((a == _to(b, a.device, a.dtype)).all()) for a, b in zip(*parts))
