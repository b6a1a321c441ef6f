"""Max-pooling: what its windows see, and planes below and above each maximum."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elbowroom.network.operations import MaxPool, Shape
from elbowroom.search.bounds.planes import Planes, Relaxed, Term, ratio


class MaxPooling(Relaxed):
    """The row of max-pooling."""

    def interval(self, op: Any, lowers: Sequence[Tensor], uppers: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        (l,), (u,) = lowers, uppers
        seen, shape = _seen(op, l)
        low, high = (_windowed(t, seen).amax(-1).reshape(l.shape[0], *shape) for t in (l, u))
        return low, high

    def planes(
        self, op: Any, lowers: Sequence[Tensor], uppers: Sequence[Tensor], values: Sequence[Tensor], parallel: bool
    ) -> Planes:
        """From below the input j with the largest lower bound. From above `max(x_j, v)` with v the largest upper
        bound of the others: its chord on [l_j, u_j] (adaptive), or slope 1 (parallel). Exact where v <= l_j.
        """
        (l,), (u,), (z,) = lowers, uppers, values
        seen, shape = _seen(op, l)
        b, c = l.shape[:2]
        low, high, at = (_windowed(t, seen) for t in (l, u, z))  # b x c x outputs x window
        j = low.detach().argmax(-1, keepdim=True)
        l_j, u_j, z_j = (t.gather(-1, j).squeeze(-1) for t in (low, high, at))
        others = high.scatter(-1, j, -math.inf).amax(-1).clamp_min(_lowest(l))
        v = torch.maximum(others, l_j)  # the maximum is at most max(x_j, v)
        top = torch.maximum(u_j, v)
        slope = ratio(top - v, u_j - l_j, torch.ones_like(v))
        slope = torch.where(v <= l_j, 1.0, slope.clamp(0, 1))
        z_max = at.amax(-1)
        if parallel:
            slope = torch.ones_like(slope)
        # The line through x_j's two ends, whichever is higher for the slope as rounded.
        upper = torch.maximum(v - slope * (l_j - z_j), top - slope * (u_j - z_j)) - z_max
        lower = z_j - z_max
        spatial = l[0, 0].numel()
        flat = seen[None, None].expand(b, c, -1, -1).gather(-1, j).squeeze(-1)
        source = flat + spatial * torch.arange(c, device=l.device)[None, :, None]
        one, slope, lower, upper = (t.reshape(b, *shape) for t in (torch.ones_like(slope), slope, lower, upper))
        return Planes((Term(0, one, slope, source.reshape(b, -1)),), lower, upper)


def windows(op: MaxPool, shape: Shape, out: Shape) -> Tensor:
    """The flat spatial positions each output looks at: `outputs x window`, -1 for padding. `shape`, `out`: of input
    and output."""
    index = torch.zeros(1, 1, dtype=torch.long)
    for n, o, k, s, p, d in zip(shape[1:], out[1:], op.kernel, op.stride, op.padding, op.dilation):
        at = torch.arange(o)[:, None] * s - p + torch.arange(k) * d  # o x k positions along this axis
        at = torch.where((at >= 0) & (at < n), at, -1)
        joint = index[:, None, :, None] * n + at[None, :, None, :]
        joint = torch.where((index[:, None, :, None] < 0) | (at[None, :, None, :] < 0), -1, joint)
        index = joint.reshape(index.shape[0] * o, index.shape[1] * k)
    return index


def _seen(op: MaxPool, x: Tensor) -> tuple[Tensor, Shape]:
    """The windows over inputs like `x`, on its device, and the output's shape."""
    return _found(op.kernel, op.stride, op.padding, op.dilation, op.ceil_mode, tuple(x.shape[1:]), x.device)


@functools.lru_cache(maxsize=64)  # looked at in every evaluation, and always the same
def _found(
    kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool, shape: Shape, device: torch.device
) -> tuple[Tensor, Shape]:
    with torch.inference_mode(False):  # what is kept must serve callers in any mode
        op = MaxPool(kernel, stride, padding, dilation, ceil_mode)
        out = op.output_shape(shape)
        return windows(op, shape, out).to(device), out


def _windowed(t: Tensor, seen: Tensor) -> Tensor:
    """`b x c x outputs x window`: the values each window sees, the lowest number in place of padding."""
    flat = t.flatten(2)
    padded = torch.cat([flat, flat.new_full((*flat.shape[:2], 1), _lowest(t))], -1)
    return padded[:, :, seen]  # position -1 is the padding


def _lowest(t: Tensor) -> float:
    return torch.finfo(t.dtype).min
