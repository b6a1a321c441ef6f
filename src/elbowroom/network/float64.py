"""Runs torch's operations in float64, whatever types the code asks for: as near to real arithmetic as torch goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

_LARGEST_EXPONENT = 700.0  # e^700 is a float64


def in_float64(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """An operation on arguments widened to float64; a floating-point type it asks for is float64 as well.

    Softplus is computed without torch's jump to `x` at its threshold, as `operations.Softplus` is.
    """
    args, kwargs = tree_map(_widened, (args, kwargs or {}))
    if function is torch.ops.aten.softplus.default:
        args = (args[0], args[1] if len(args) > 1 else 1, _LARGEST_EXPONENT)
    return function(*args, **kwargs)


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


class InFloat64(TorchDispatchMode):
    """While it is entered, whatever is computed from `x` (float64) is computed in float64.

    Operations on constants alone are left as they are: a weight that the code rounds to another type is rounded.
    """

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.computed = WeakTensorKeyDictionary()
        self.computed[x] = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
        if not any(t in self.computed for t in tensors):
            return func(*args, **(kwargs or {}))
        if func._schema.is_mutable and not all(_is_wide(t) for t in tensors):
            raise RuntimeError(f"{func} writes values into a tensor that may have another type than float64")
        result = in_float64(func, args, kwargs)
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                self.computed[value] = True
        return result


def _is_wide(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float64 or not tensor.is_floating_point()


__all__ = ["InFloat64", "in_float64"]
