"""What a field of an operation may hold, by its declared type; values come back in one form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError


def _tensor(value: Any, where: str) -> Tensor:
    plain = isinstance(value, Tensor) and value.layout is torch.strided and not value.is_quantized
    if not isinstance(value, Tensor) or not plain or not value.is_floating_point():
        what = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else repr(value)
        raise InputError(f"{where} must be a plain tensor of floating-point numbers, got {what}")
    if not value.numel():
        raise InputError(f"{where} is empty: its shape is {tuple(value.shape)}")
    return value


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InputError(f"{where} must be a whole number, got {value!r}")
    return int(value)


def _number(value: Any, where: str) -> float:
    """Infinite ones are refused where they make no sense, by `_check`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(f"{where} must be a number, got {value!r}")
    if math.isnan(value):
        raise InputError(f"{where} is NaN")
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{where} = {value} is not a floating-point number") from None


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{where} must be true or false, got {value!r}")
    return bool(value)


def _tuple_of(each: Callable[[Any, str], Any]) -> Callable[[Any, str], tuple[Any, ...]]:
    def check(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list):
            raise InputError(f"{where} must be a tuple, got {value!r}")
        return tuple(each(v, where) for v in value)

    return check


FIELDS: dict[str, Callable[[Any, str], Any]] = {
    "Tensor": _tensor,
    "Tensor | None": lambda value, where: None if value is None else _tensor(value, where),
    "int": _whole,
    "bool": _flag,
    "float": _number,
    "float | Tensor": lambda value, where: (_tensor if isinstance(value, Tensor) else _number)(value, where),
    "Shape": _tuple_of(_whole),
    "tuple[float, ...]": _tuple_of(_number),
}
