"""The least value of rows over a region as it is stated, and a box around it: with bounds on their own rounding."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError
from elbowroom.proof.kernel.rounding import ETA, SAFE, U, down, gamma, up


def dot(a: Tensor, v: Tensor) -> Tensor:
    """`b x r x n` by `b x n` (or `1 x n`)."""
    return torch.bmm(a, v.expand(a.shape[0], -1)[:, :, None]).squeeze(-1)


def hull(region: Stated) -> tuple[Tensor, Tensor]:
    """Corners of a box around the region, `b x n` each."""
    if region.lower is not None and region.upper is not None:
        return region.lower, region.upper
    assert region.center is not None and region.radius is not None
    reach = region.radius
    if region.basis is not None:
        scaled = region.basis.abs()[None] * reach[:, None]
        if region.p == math.inf:
            reach = scaled.sum(-1)
        elif region.p == 2:
            reach = scaled.square().sum(-1).sqrt()
        elif region.p == 1:
            reach = scaled.amax(-1)
        else:
            raise InputError(f"the strict check knows the norms 1, 2 and infinity, not {region.p}")
        reach = reach * SAFE + 1e-150  # squares of numbers under 1e-160 may have vanished
    return down(region.center - reach), up(region.center + reach)


def least(region: Stated, a: Tensor) -> tuple[Tensor, Tensor]:
    """The least value of `a . x` over the region and a bound on the error, `b x r` each; `a`: `b x r x n`."""
    n = a.shape[-1]
    if region.lower is not None and region.upper is not None:
        value = dot(a.clamp_min(0), region.lower) + dot(a.clamp_max(0), region.upper)
        size = torch.maximum(region.lower.abs(), region.upper.abs())
        return value, gamma(n + 2) * dot(a.abs(), size) + 2 * n * ETA
    assert region.center is not None and region.radius is not None
    middle = dot(a, region.center)
    error = gamma(n + 2) * dot(a.abs(), region.center.abs()) + n * ETA
    reach = region.radius[:, None]
    doubt = torch.zeros_like(a)
    if region.basis is not None:
        # a Q is rounded; each coordinate of v is at most 1 in size, whatever the norm.
        doubt = gamma(n + 1) * (a.abs() @ region.basis.abs()) + (n + 2) * ETA
        a = a @ region.basis
    error = error + (doubt * reach).sum(-1) * SAFE + 2 * n * ETA
    scaled = a.abs() * reach
    if region.p == math.inf:
        spread = scaled.sum(-1)
    elif region.p == 2:
        # Scaled by the largest entry, so that squares neither overflow nor all vanish.
        top = scaled.amax(-1, keepdim=True).clamp_min(torch.finfo(a.dtype).tiny)
        spread = (scaled / top).square().sum(-1).sqrt() * top.squeeze(-1)
    elif region.p == 1:
        spread = scaled.amax(-1)
    else:
        raise InputError(f"the strict check knows the norms 1, 2 and infinity, not {region.p}")
    spread = spread * (1 + 2 * gamma(n + 8)) + n * ETA
    value = middle - spread
    return value, error + 2 * U * (middle.abs() + spread)
