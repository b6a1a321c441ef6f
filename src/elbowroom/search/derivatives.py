"""Derivatives of margins, all that may bind at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elbowroom.machine.failures import is_out_of_memory


class Derivatives(NamedTuple):
    """`margins`: `b x g`; `chosen`: `b x k`, which of them were differentiated; `by_center`, `by_radius`: their
    derivatives, `k x b x *input_shape`, the first None where it was not asked for."""

    margins: Tensor
    chosen: Tensor
    by_center: Tensor | None
    by_radius: Tensor


def least_left(margins: Tensor, at_input: Tensor, most: int) -> Tensor:
    """Which margins, `b x g`, have the smallest share left of what they are `at_input`: `b x k`, `most` of them."""
    left = torch.nan_to_num(margins / at_input, nan=-torch.inf)
    return left.topk(min(left.shape[1], most), 1, largest=False).indices


def derivatives(values: Tensor, by: Sequence[Tensor]) -> list[Tensor]:
    """Derivatives of `values`, `b x k`, by tensors `b x ...` of which a line depends on the same line: `k x b x ...`
    each."""
    units = torch.eye(values.shape[1], dtype=values.dtype, device=values.device)[:, None].expand(-1, len(values), -1)

    def along(unit: Tensor) -> tuple[Tensor, ...]:
        # A bound of one's own need not ask for everything.
        return torch.autograd.grad(values, by, unit, retain_graph=True, allow_unused=True, materialize_grads=True)

    try:
        # The bounds' own derivatives then serve all at once, see `linear._PullBack`.
        return list(torch.func.vmap(along)(units))
    except RuntimeError as error:  # a bound of one's own may hold what cannot be batched
        if is_out_of_memory(error):
            raise
        return [torch.stack(t) for t in zip(*(along(unit) for unit in units))]


__all__ = ["Derivatives", "derivatives", "least_left"]
