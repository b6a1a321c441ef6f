"""Runs torch's operations in float64, whatever types the code asks for: as near to real arithmetic as torch goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from elbowroom.readers.reading import holds

_LARGEST_EXPONENT = 700.0  # e^700 is a float64


def in_float64(function: Callable[..., Any], args: Any, kwargs: Any, own: torch.dtype | None = None) -> Any:
    """An operation on arguments widened to float64; a floating-point type it asks for is float64 as well.

    `own`: a type that lacks some of this one's numbers is left, so that values are rounded to it.
    Softplus is computed without torch's jump to `x` at its threshold, as `operations.Softplus` is.
    """

    def widened(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.double() if value.is_floating_point() else value
        is_wide = isinstance(value, torch.dtype) and value.is_floating_point and (own is None or holds(value, own))
        return torch.float64 if is_wide else value

    args, kwargs = tree_map(widened, (args, kwargs or {}))
    if function is torch.ops.aten.softplus.default:
        args = (args[0], args[1] if len(args) > 1 else 1, _LARGEST_EXPONENT)
    return function(*args, **kwargs)


class InFloat64(TorchDispatchMode):
    """While it is entered, whatever is computed from `given` (float64, or whole numbers) is computed in float64.

    `own`: the type that the code is made for. A conversion to this type, or to one that has all of its numbers, is
    left out; one to a narrower type rounds. Operations on constants alone are left as they are.
    """

    def __init__(self, given: Sequence[Tensor], own: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch gives it no types
        self.own = own
        self.computed = WeakTensorKeyDictionary()
        for x in given:
            self.computed[x] = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
        if not any(t in self.computed for t in tensors):
            return func(*args, **(kwargs or {}))
        if func._schema.is_mutable and not all(t.dtype == torch.float64 for t in tensors if t.is_floating_point()):
            raise RuntimeError(f"{func} writes values into a tensor of another type than float64")
        result = in_float64(func, args, kwargs, self.own)
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                self.computed[value] = True
        return result


__all__ = ["InFloat64", "in_float64"]
