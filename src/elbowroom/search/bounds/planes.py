"""What a relaxation is: lines above and below an operation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Lines(NamedTuple):
    """A relaxation of one node, every tensor `b x *shape` of the node's output.

    `source`: for max-pooling, the flat position in the input that each output's line depends on
    (`b x size`); None where output i depends on input i.
    """

    lower_slope: Tensor
    upper_slope: Tensor
    lower: Tensor  # m_l
    upper: Tensor  # m_u
    source: Tensor | None = None


def ratio(numerator: Tensor, width: Tensor, otherwise: Tensor) -> Tensor:
    """`numerator / width`; `otherwise` where the width is zero, no gradient where it is next to zero."""
    safe = width > torch.finfo(width.dtype).eps ** 2
    result = numerator / torch.where(safe, width, 1.0)
    with torch.no_grad():
        positive = width > 0
        rough = torch.where(positive, numerator / torch.where(positive, width, 1.0), otherwise)
    return torch.where(safe, result, rough)
