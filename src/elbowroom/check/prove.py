"""`prove`: margins proved on a region, by the strict check. What `certify`, `verify` and `check` all rest on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.check.deployed import Float32Noise, refuse_unfit
from elbowroom.check.rounding import refuse_flush_to_zero
from elbowroom.check.strict import Area, StrictBounds
from elbowroom.errors import InputError
from elbowroom.network.graph import Network

DEPLOYED = (None, "float32")


@dataclass(frozen=True)
class Hints:
    """How the bound was found, which a checker need not believe: no method is better than every other.

    `parallel`: lines with one slope per neuron; `logits`: from the outputs' own bounds, as in the paper.
    """

    parallel: bool = False
    logits: bool = False

    @staticmethod
    def of(bounds: str, margin: str) -> Hints:
        return Hints(bounds in ("combined", "quadratic"), margin == "logits")


def prove(
    net: Network,
    area: Area,
    rows: Tensor,
    offset: Tensor,
    group: Tensor,
    hints: Hints | None = None,
    deployed: str | None = None,
) -> Tensor:
    """Numbers below the specification's groups on the whole area, `b x g`; where all are positive it is proved.

    `rows`: `b x t x k` (or `1 x ...`), `offset`: `b x t`, `group`: `t`; taken as exact numbers.
    The claim is about the network in real arithmetic, its stored parameters taken as exact; with `deployed`
    "float32", about that network executed in float32.
    """
    if deployed not in DEPLOYED:
        raise InputError(f'deployed must be None or "float32", got {deployed!r}')
    hints = hints or Hints()
    device = rows.device
    refuse_flush_to_zero(device)
    if deployed:
        refuse_unfit(net)
    work = net.cast(torch.float64, device)
    noise = Float32Noise(work) if deployed else None
    with torch.no_grad():
        bounds = StrictBounds(work, area, hints.parallel, noise)
        found = bounds.margins(rows, offset, hints.logits)
        out = found.new_full((len(found), int(group.max()) + 1), -torch.inf)
        return out.scatter_reduce(1, group.expand_as(found), found, "amax")
