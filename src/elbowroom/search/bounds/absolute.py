"""Products with the absolute values of a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_LARGE, _PART = 1 << 21, 1 << 18  # numbers of a matrix that the cache does not hold, and of a part that it does


def absolute_product(radius: Tensor, weight: Tensor) -> Tensor:
    """`r |W|^T`: how far outputs move, `n x out`, while inputs move by `radius`, `n x in`; `weight`: `out x in`."""
    if weight.numel() < _LARGE or weight.is_cuda:
        return F.linear(radius, weight.abs())
    found: Tensor = _InParts.apply(radius, weight)  # type: ignore[no-untyped-call]
    return found


class _InParts(torch.autograd.Function):
    """`r |W|^T` of a large matrix, some rows at a time: it is read once, and no second one is written or kept."""

    generate_vmap_rule = True

    @staticmethod
    def forward(radius: Tensor, weight: Tensor) -> Tensor:
        parts = weight.split(max(1, _PART // weight.shape[1]))
        return torch.cat([F.linear(radius, part) for part in _absolute(parts)], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        parts = weight.split(max(1, _PART // weight.shape[0]), 1)
        return torch.cat([grads[0] @ part for part in _absolute(parts)], -1), None


def _absolute(parts: Sequence[Tensor]) -> Iterator[Tensor]:
    """One after the other in one place: each is gone with the next."""
    place = parts[0].new_empty(parts[0].numel())
    for part in parts:
        yield place[: part.numel()].view(part.shape).copy_(part).abs_()
