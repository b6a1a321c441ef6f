"""Maps as text, for terminals."""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.errors import InputError

SHADES = " ░▒▓█"


def text_map(
    values: Tensor, *, low: float | None = None, high: float | None = None, log: bool = False, unit: str = ""
) -> str:
    """A small map as text, two characters per pixel in five shades, and under it a line that says what the shades mean.

    `values`: `h x w`. `low`, `high`: where the scale begins and ends; default, the smallest and the largest value.
    `log`: shades of equal ratios instead of equal differences. Fuller means larger.
    """
    if values.dim() != 2 or not values.numel() or not bool(values.isfinite().all()):
        raise InputError(f"a text map needs finite values of shape h x w, got shape {tuple(values.shape)}")
    start = float(values.min()) if low is None else low
    end = float(values.max()) if high is None else high
    if log and start <= 0:
        raise InputError(f"a log scale needs values above zero, it would begin at {start:g}")
    if not start <= end:
        raise InputError(f"the scale's low {start:g} is above its high {end:g}")
    n = len(SHADES)
    edges = [start * (end / start) ** (k / n) if log else start + (end - start) * k / n for k in range(1, n)]
    levels = torch.bucketize(values.double(), torch.tensor(edges, dtype=torch.float64), right=True)
    lines = ["".join(SHADES[k] * 2 for k in row) for row in levels.tolist()]
    ends = [_short(e) for e in edges]
    meanings = [f"below {ends[0]}", *(f"to {e}" for e in ends[1:]), "more"]
    legend = "  ".join(f"[{SHADES[k] * 2}] {meanings[k]}" for k in range(n))
    return "\n".join([*lines, legend + (f"  ({unit})" if unit else "")])


def _short(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.0f}"
