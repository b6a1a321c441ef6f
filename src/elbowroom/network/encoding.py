"""Fields and parameters of operations as a network's file and hash have them, by their declared types; and back."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network.graph import Node

_PART = 1 << 15  # numbers that are hashed at a time: in the cache, and by one thread


def exact(t: Tensor, node: Node, field: str) -> np.ndarray:
    """The parameter as float64 numbers, little end first; refused where those cannot be the same numbers."""
    wide = t.detach().to(device="cpu", dtype=torch.float64)
    if not bool((wide.to(t.dtype) == t.detach().cpu()).all()):  # torch.equal looks at one number after another
        raise InputError(f"node {node.name}: {field} holds numbers that float64 cannot hold")
    return np.asarray(wide.numpy(), dtype="<f8", order="C")


def hash_of(t: Tensor, node: Node, field: str) -> str:
    """The hash of the parameter as `exact` gives it, a part at a time: no copy of it is made."""
    found = hashlib.sha256()
    for part in t.detach().flatten().split(_PART):
        found.update(exact(part, node, field).data)
    return found.hexdigest()


def plain_fields(node: Node) -> dict[str, Any]:
    """The fields that are not tensors, as JSON holds them."""
    found = {}
    for field in fields(node.op):
        value = getattr(node.op, field.name)
        if isinstance(value, Tensor) or (value is None and "Tensor" in str(field.type)):
            continue
        try:
            found[field.name] = _ENCODE[str(field.type)](value)
        except (KeyError, TypeError, ValueError):
            raise InputError(f"node {node.name}: {field.name} = {value!r} has no place in a network file") from None
    return found


def _encode_float(value: Any) -> float | str:
    number = float(value)
    if math.isnan(number):
        raise ValueError("NaN")
    return number if math.isfinite(number) else str(number)  # JSON has no infinity


def _encode_shape(value: Any) -> list[int]:
    return [int(n) for n in value]


_ENCODE: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "bool": bool,
    "float": _encode_float,
    "float | Tensor": _encode_float,
    "Shape": _encode_shape,
    "tuple[float, ...]": lambda value: [_encode_float(v) for v in value],
}


def _decode_int(value: Any, where: str) -> int:
    if type(value) is not int or abs(value) >= 1 << 62:
        raise InputError(f"{where} must be a whole number, got {value!r}")
    return value


def _decode_bool(value: Any, where: str) -> bool:
    if type(value) is not bool:
        raise InputError(f"{where} must be true or false, got {value!r}")
    return value


def _decode_float(value: Any, where: str) -> float:
    if type(value) is float or value in ("inf", "-inf"):
        return float(value)
    raise InputError(f"{where} must be a number with a decimal point, got {value!r}")


def decode_shape(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise InputError(f"{where} must be a list of whole numbers, got {value!r}")
    return tuple(_decode_int(n, where) for n in value)


def _decode_floats(value: Any, where: str) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise InputError(f"{where} must be a list of numbers, got {value!r}")
    found = tuple(_decode_float(v, where) for v in value)
    if not all(map(math.isfinite, found)):
        raise InputError(f"{where} must be finite")
    return found


DECODE: dict[str, Callable[[Any, str], Any]] = {
    "int": _decode_int,
    "bool": _decode_bool,
    "float": _decode_float,
    "float | Tensor": _decode_float,
    "Shape": decode_shape,
    "tuple[float, ...]": _decode_floats,
}
