"""ATen's pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elbowroom.network import operations as ops
from elbowroom.readers.reading import refuse
from elbowroom.readers.torch.step import At, Step, each


def _pooled(to: Step, x: At, op: Any) -> At:
    """Pools a value that may lack the channel axis."""
    if len(x.shape) == len(op.kernel) + 1:
        return to.add(op, x)
    pooled = to.add(op, to.add(ops.Reshape((1, *x.shape)), x))
    return to.add(ops.Reshape(pooled.shape[1:]), pooled)


def avg_pool(dims: int) -> Callable[..., At]:
    def handler(
        to: Step,
        x: At,
        kernel: Any,
        stride: Any = (),
        padding: Any = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> At:
        if divisor_override is not None:
            refuse("divisor_override is not supported")
        kernel, stride, padding = each(kernel, dims), each(stride or kernel, dims), each(padding, dims)
        return _pooled(to, x, ops.AvgPool(kernel, stride, padding, ceil_mode, count_include_pad))

    return handler


def max_pool(dims: int) -> Callable[..., At]:
    def handler(
        to: Step, x: At, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,),
        ceil_mode: bool = False,
    ) -> At:  # fmt: skip
        kernel = each(kernel, dims)
        op = ops.MaxPool(kernel, tuple(stride or kernel), tuple(padding), tuple(dilation), ceil_mode)
        return _pooled(to, x, op)

    return handler


def adaptive(pool: type[ops.AvgPool] | type[ops.MaxPool]) -> Callable[..., At]:
    def handler(to: Step, x: At, size: Any) -> At:
        inputs = x.shape[-len(size) :]
        sizes = [o or n for n, o in zip(inputs, size)]
        if any(n % o for n, o in zip(inputs, sizes)):
            refuse(f"its output size {tuple(sizes)} does not divide its input size {inputs}")
        kernel = tuple(n // o for n, o in zip(inputs, sizes))
        return _pooled(to, x, pool(kernel, kernel))

    return handler


def first(handler: Callable[..., At]) -> Callable[..., tuple[At, None]]:
    """For pooling that returns positions as well."""
    return lambda *args, **kwargs: (handler(*args, **kwargs), None)
