"""Numbers as people have them, as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import recordable

Array = Tensor | np.ndarray | float  # or a data frame, see elbowroom.arguments.frames


def tensor_of(value: Any) -> Tensor:
    """As a tensor of its own precision: Python's numbers and integers are float64, not rounded to float32.

    Arrays may lie in memory as they like (backwards, read-only, of another machine's byte order).
    """
    if not isinstance(value, Tensor):
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"numbers in rows of one length are needed: {error}") from None
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise InputError(f"real numbers are needed, got {str(value)[:60]!r} of type {array.dtype}")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if not array.flags.writeable or any(step < 0 for step in array.strides):
            array = array.copy()  # torch takes neither
        value = torch.from_numpy(array)
    if value.is_complex():
        raise InputError("real numbers are needed, got complex ones")
    t = recordable(value)
    return t if t.is_floating_point() else t.to(torch.float64)


__all__ = ["Array", "tensor_of"]
