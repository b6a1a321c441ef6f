"""Projected gradient steps (PGD): the one loop behind every attack, in training too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


def climb(
    value: Callable[[Tensor], tuple[Tensor, Any]],
    x: Tensor,
    step: Callable[[Tensor, Tensor, Any], Tensor],
    lengths: Iterable[float | Tensor],
    seen: Callable[[Tensor, Any], None] | None = None,
) -> Tensor:
    """Moves points uphill, a step for each of `lengths`; the points where they end.

    `x`: `b x *s`. `value`: from points, `b x *s`, to what is to grow (one number, the sum over the points) and anything
    `seen` wants to know; that is told every point before it moves, and this. The last step's end is nobody's to see.
    `step`: from points, gradients and a length to where the points go.
    """
    for length in lengths:
        x = x.detach().requires_grad_()
        total, about = value(x)
        (gradient,) = torch.autograd.grad(total, x)
        x = x.detach()
        if seen is not None:
            seen(x, about)
        x = step(x, torch.nan_to_num(gradient), length)
    return x


def pgd(
    value: Callable[[Tensor], tuple[Tensor, Any]],
    x: Tensor,
    lower: Tensor,
    upper: Tensor,
    lengths: Iterable[float | Tensor],
    seen: Callable[[Tensor, Any], None] | None = None,
) -> Tensor:
    """Points moved uphill inside boxes along the signs of the gradient; see `climb`.

    `lower`, `upper`: `b x *s`. A feature in which the gradient is not a number stays where it is.
    """

    def step(x: Tensor, gradient: Tensor, length: Any) -> Tensor:
        return torch.clamp(x + length * gradient.sign(), lower, upper)

    return climb(value, x, step, lengths, seen)
