"""Lines above and below the maximum over each window of a max-pooling."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from elbowroom.search.bounds.planes import Lines, ratio


def max_pool_lines(windows: Tensor, l: Tensor, u: Tensor, z: Tensor, shape: tuple[int, ...], parallel: bool) -> Lines:
    """Lines for the maximum over each window; `l`, `u`, `z`: `b x c x *spatial`, `windows`: `outputs x window`.

    From below the input j with the largest lower bound. From above `max(x_j, v)` with v the largest upper
    bound of the others: its chord on [l_j, u_j] (adaptive), or slope 1 (parallel). Exact where v <= l_j.
    """
    b, c = l.shape[:2]
    low, high, at = (_windowed(t, windows) for t in (l, u, z))  # b x c x outputs x window
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
    flat = windows[None, None].expand(b, c, -1, -1).gather(-1, j).squeeze(-1)
    source = flat + spatial * torch.arange(c, device=l.device)[None, :, None]
    one, slope, lower, upper = (t.reshape(b, *shape) for t in (torch.ones_like(slope), slope, lower, upper))
    return Lines(one, slope, lower, upper, source.reshape(b, -1))


def max_pool_interval(windows: Tensor, l: Tensor, u: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The interval of the maximum over each window."""
    low, high = (_windowed(t, windows).amax(-1).reshape(l.shape[0], *shape) for t in (l, u))
    return low, high


def _windowed(t: Tensor, windows: Tensor) -> Tensor:
    """`b x c x outputs x window`: the values each window sees, the lowest number in place of padding."""
    flat = t.flatten(2)
    padded = torch.cat([flat, flat.new_full((*flat.shape[:2], 1), _lowest(t))], -1)
    return padded[:, :, windows]  # position -1 is the padding


def _lowest(t: Tensor) -> float:
    return torch.finfo(t.dtype).min
