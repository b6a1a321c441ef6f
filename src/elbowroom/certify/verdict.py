"""The verdict: regions shrink until the proof passes on the very numbers that are stored."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from elbowroom.claim.stated import Stated

# How regions shrink, by powers of 2: the first step, its growth, the last, and how near to the largest they end.
_FIRST, _GROWTH, _LAST, _NEAR = 1e-7, 4.0, 40.0, 5e-3


def largest_proved(
    whole: Stated,
    x: Tensor,
    free: Tensor,
    wanted: Tensor,
    prove: Callable[[Stated, Tensor], Tensor],
    passes: Callable[[Tensor], Tensor],
    at_input: Tensor,
    delta: float,
) -> tuple[Stated, Tensor, Tensor]:
    """The largest regions found that are proved, `whole` or smaller; their margins; and how much smaller they are, `b`:
    zero where nothing was proved.

    `x`, `free`: `b x n`, the inputs and which features may move. `wanted`: `b`, for whom. `prove`: from some regions
    and the numbers of their inputs to margins, `passes`: from those to which will do. `at_input`: `b x g`, the margins
    of the inputs alone; `delta`: what margins must be at least. Where the proof falls short a little, the chord from
    there to the input says how far to shrink: margins are mostly concave in the size, so it is on the safe side. Else
    by steps that grow, then by halving the gap between the last that was refused and the first that was proved. Proofs
    need not be monotone in the size: what is returned was proved.
    """
    region = whole.scaled(x, torch.ones_like(x[:, 0]), free)
    margins = torch.zeros_like(at_input)
    # Of each factor 2^-t: the last t refused, the least t proved, the next to try, the last worth trying.
    refused, proved = x.new_zeros(len(x)), x.new_full((len(x),), torch.inf)
    trial, last = refused.clone(), whole.thinnest(x, free).clamp(0, _LAST)
    pending = wanted.nonzero().squeeze(1)
    while len(pending):
        part = whole.take(pending).scaled(x[pending], torch.exp2(-trial[pending]), free[pending])
        found = prove(part, pending)
        # A region too thin for float64 in some free feature is not a region.
        ok = passes(found) & ((part.half_widths() > 0) | ~free[pending]).all(1)
        good, bad = pending[ok], pending[~ok]
        margins[good], proved[good], refused[bad] = found[ok], trial[good], trial[bad]
        region.put(good, part.take(ok))
        step = torch.where(refused > 0, _GROWTH * refused, _FIRST)
        # After the first refusal: how much margin is missing, as a share of the chord's whole fall.
        new = trial[pending] == 0
        missing = ((delta - found).clamp_min(0) / (at_input[pending] - found)).amax(1)
        chord = -torch.log2(1 - missing) + _FIRST
        at = pending[new & ~ok & chord.isfinite()]
        step[at] = chord[new & ~ok & chord.isfinite()]
        trial = torch.where(proved.isfinite(), (refused + proved) / 2, torch.minimum(step, last))
        ended = (proved - refused <= _NEAR) | (proved.isinf() & ~(refused < last))
        pending = pending[~ended[pending]]
    return region, margins, torch.exp2(-proved)


__all__ = ["largest_proved"]
