"""The least value of rows over a region as it is stated, and a box around it: with bounds on their own rounding."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from elbowroom.claim.stated import Stated, is_norm
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.rounding import ETA, SAFE, U, down, gamma, up

# In a norm, beside those of its sum: products, quotients and the last product; two powers at LIBRARY each.
ROUNDINGS = 48
_NUMBERS = {"cpu": 200_000, "cuda": 1 << 25}  # of a part of a product at a time: on a CPU, what the cache holds
_FEWEST = 256  # features of such a part


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
        reach = _dual(region.basis.abs()[None] * reach[:, None], region.p) * SAFE + 1e-150
    return down(region.center - reach), up(region.center + reach)


def least(region: Stated, a: Tensor) -> tuple[Tensor, Tensor]:
    """The least value of `a . x` over the region and a bound on the error, `b x r` each; `a`: `b x r x n`."""
    n = a.shape[-1]
    if region.lower is not None and region.upper is not None:
        lower, upper = region.lower, region.upper
        size, count = torch.maximum(lower.abs(), upper.abs()), n + 2
        by_levels: Tensor | float = 0.0
        if region.categories is not None:
            moves = region.categories.moves.to(a.device)
            lower, upper = (torch.where(moves, t, 0.0) for t in (lower, upper))
            by_levels, count = least_of_levels(region, a), n + 2 + len(region.categories.each)
        value = dot(a.clamp_min(0), lower) + dot(a.clamp_max(0), upper) + by_levels
        return value, gamma(count) * dot(a.abs(), size) + 2 * n * ETA
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
    spread = _dual(a.abs() * reach, region.p) * (1 + 2 * gamma(n + ROUNDINGS)) + n * ETA
    value = middle - spread
    return value, error + 2 * U * (middle.abs() + spread)


def least_past(region: Stated, a: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """`least(region, a @ weight)` for a box without categories, some features at a time, so that the product is never
    written out; `a`: `b x r x m`, `weight`: `m x n`, of any type whose numbers are exact in float64.

    Sums over parts of the features, added up, are sums over all of them in some order.
    """
    assert region.lower is not None and region.upper is not None and region.categories is None
    n = weight.shape[1]
    lower, upper = region.lower, region.upper
    size = torch.maximum(lower.abs(), upper.abs())
    value, error = a.new_zeros(2, *a.shape[:2])
    # Inactive neurons have no coefficients: what is zero in all rows adds nothing, and is left out.
    used = (a != 0).flatten(0, 1).any(0).nonzero().squeeze(1)
    a = a[..., used]
    step = max(_FEWEST, _NUMBERS.get(a.device.type, _NUMBERS["cpu"]) // (a.shape[0] * a.shape[1]))
    for start in range(0, n, step):
        at = slice(start, start + step)
        part = (a.flatten(0, 1) @ weight[:, at][used].to(a.dtype)).reshape(*a.shape[:2], -1)
        value += dot(part.clamp_min(0), lower[:, at]) + dot(part.clamp_max(0), upper[:, at])
        error += dot(part.abs_(), size[:, at])
    return value, gamma(n + 2) * error + 2 * n * ETA


def sole_reader(net: Network, exact: bool) -> int:
    """The matrix that alone reads the input as it is or, where moving numbers about is exact, laid out in one axis; 0
    where there is none."""
    at = 0
    for i, node in enumerate(net.nodes[1:], 1):
        if node.inputs != (at,) or any(at in other.inputs for other in net.nodes[i + 1 :]):
            return 0
        if type(node.op) is ops.Linear and len(net.nodes[at].shape) == 1:
            return i
        if type(node.op) is not ops.Reshape or not exact:
            return 0
        at = i
    return 0


def least_of_levels(region: Stated, a: Tensor) -> Tensor:
    """Summed over the categories, the least value of `a` over the codes of levels that are allowed, `b x r`.

    A sum of as many products as there are entries, in some order, of numbers no larger than the corners: its rounding
    is that of a row over the corners, but for a term more per category.
    """
    assert region.categories is not None and region.allowed is not None
    total = a.new_zeros(a.shape[:2])
    for one, place in region.categories:
        values = a[..., one.entries] @ one.codes.to(a.device).T
        total = total + torch.where(region.allowed[:, None, place], values, torch.inf).amin(-1)
    return total


def _dual(scaled: Tensor, p: float) -> Tensor:
    """The norm dual to p of numbers that are not negative, along the last axis: too small by `gamma(n + ROUNDINGS)` of
    itself at most. What is not a norm's p is refused."""
    if not is_norm(p):
        raise InputError(f"the strict check knows the norms from 1 to infinity, not {p}")
    if p == math.inf:
        return scaled.sum(-1)
    if p == 1:
        return scaled.amax(-1)
    # Scaled by the largest entry, so that powers neither overflow nor all vanish.
    top = scaled.amax(-1, keepdim=True).clamp_min(torch.finfo(scaled.dtype).tiny)
    share, top = scaled / top, top.squeeze(-1)
    if p == 2:
        return share.square().sum(-1).sqrt() * top
    # Norms fall as their power grows, so that a power below q = p / (p - 1) gives more. The sum is at least 1, the
    # largest entry's own, and so grows with the root's exponent.
    q = dual_power(p)
    return share.pow(q).sum(-1).clamp_min(1.0).pow(math.nextafter(1 / q, math.inf)) * top


def dual_power(p: float) -> float:
    """A number not above `q = p / (p - 1)`, and next to it; 1 < p < infinity."""
    p = float(p)
    # p - 1 is exact up to 2, and rounded beyond.
    less = p - 1 if p <= 2 else math.nextafter(p - 1, math.inf)
    return max(1.0, math.nextafter(p / less, 0.0))
