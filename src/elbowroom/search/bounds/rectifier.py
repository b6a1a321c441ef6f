"""ReLU: lines below and above it, written out. Networks are made of it, and what follows from kinks in general would be
many small steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elbowroom.search.bounds.planes import Planes, Relaxed, Term, ratio


class Rectifier(Relaxed):
    """The row of ReLU. Where zero lies inside, the upper line is the chord, the lower one `0` or `x`, whichever leaves
    less area."""

    univariate = True
    zero_below = True
    straight = True

    def interval(self, op: Any, lowers: Sequence[Tensor], uppers: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        (l,), (u,) = lowers, uppers
        return l.clamp_min(0), u.clamp_min(0)

    def planes(
        self, op: Any, lowers: Sequence[Tensor], uppers: Sequence[Tensor], values: Sequence[Tensor], parallel: bool
    ) -> Planes:
        (l,), (u,), (z,) = lowers, uppers, values
        with torch.no_grad():
            bent, middle = (l < 0) & (u > 0), (l + u) / 2
            # That of the function, where it is straight; else the lower line's: the one that leaves less beneath it.
            mostly = (middle > 0).to(l.dtype)
            # Of what is not a number nothing is known: it must not look like an inactive neuron.
            flat = torch.where(middle.isnan(), middle, 0.0)
        at = z.clamp_min(0)
        chord = torch.where(bent, ratio(u, u - l, mostly), mostly)
        lower_slope = chord if parallel else mostly
        # The lower line meets the function in zero, the chord at the ends; elsewhere both lie on it.
        lower, upper = lower_slope * z - at, chord * z - at
        upper = torch.where(bent, torch.maximum(-chord * l, u - chord * u) + upper, flat)
        return Planes((Term(0, lower_slope, chord),), torch.where(bent, lower, flat), upper)
