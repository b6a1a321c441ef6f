"""`prove`: margins proved on a region, by the strict check. What `certify`, `verify` and `check` all rest on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.machine.torch_modes import CUDNN_OFF
from elbowroom.network.graph import Network
from elbowroom.proof.kernel import activations, affine
from elbowroom.proof.kernel.float32 import Float32Noise, refuse_unfit
from elbowroom.proof.kernel.rounding import refuse_flush_to_zero
from elbowroom.proof.kernel.walk import Area, StrictBounds

DEPLOYED = (None, "float32")
NORMS = (1, 2, math.inf)


@dataclass(frozen=True)
class Hints:
    """How the bound was found, which a checker need not believe: no method is better than every other.

    `parallel`: lines with one slope per neuron; `logits`: from the outputs' own bounds, as in the paper; `hidden`:
    with linear bounds of the hidden layers, too.
    """

    parallel: bool = False
    logits: bool = False
    hidden: bool = True

    @staticmethod
    def of(bounds: str, margin: str) -> Hints:
        return Hints(bounds in ("combined", "quadratic"), margin == "logits", bounds not in ("simple", "fast"))


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
    refuse_uncovered(net, deployed)
    hints = hints or Hints()
    device = rows.device
    area = _fitting(net, area, rows, offset, group)
    refuse_flush_to_zero(device)
    work = net.cast(torch.float64, device)
    noise = Float32Noise(work) if deployed else None
    # Direct sums only: cuDNN may choose transforms (FFT, Winograd) whose rounding is another matter.
    with torch.no_grad(), CUDNN_OFF.hold():
        bounds = StrictBounds(work, area, hints.parallel, noise, hints.hidden)
        found = bounds.margins(rows.double(), offset.double(), hints.logits)
        out = found.new_full((len(found), int(group.max()) + 1), -torch.inf)
        out = out.scatter_reduce(1, group.expand_as(found), found, "amax")
        # Of a region that is none (corners crossed, NaN) everything would be true; nothing is proved.
        return torch.where(area.sensible()[:, None], out, -torch.inf)


def refuse_uncovered(net: Network, deployed: str | None = None) -> None:
    """Raises `UnsupportedError`, naming every node, where nothing could be proved of the network, on any area."""
    if deployed not in DEPLOYED:
        raise InputError(f'deployed must be None or "float32", got {deployed!r}')
    if type(net) is not Network:
        raise UnsupportedError(f"the strict check does not cover {type(net).__name__}, only Network itself")
    reasons = affine.unfit(net) + activations.unfit(net)
    if reasons:
        raise UnsupportedError("the strict check does not cover " + "; ".join(reasons))
    if deployed:
        refuse_unfit(net)


def _fitting(net: Network, area: Area, rows: Tensor, offset: Tensor, group: Tensor) -> Area:
    """The area in float64, after a look at all shapes; raises `InputError`."""
    given = {"lower": area.lower, "upper": area.upper, "center": area.center, "radius": area.radius}
    pair = ("lower", "upper") if area.is_box else ("center", "radius")
    ends = [given[name] for name in pair]
    batch = -1 if ends[0] is None else len(ends[0])
    for name, t in zip(pair, ends):
        if t is None or tuple(t.shape) != (batch, net.n_inputs) or not t.is_floating_point():
            raise InputError(f"the area needs {name}: numbers, one row of {net.n_inputs} per input")
    if area.p not in NORMS:
        raise InputError(f"the strict check knows the norms 1, 2 and infinity, not {area.p}")
    if area.is_box and area.basis is not None:
        raise InputError("a box given by its corners has no basis")
    if area.basis is not None and tuple(area.basis.shape) != (net.n_inputs, net.n_inputs):
        raise InputError(f"the basis has shape {tuple(area.basis.shape)}, not {(net.n_inputs, net.n_inputs)}")
    if rows.dim() != 3 or rows.shape[0] not in (1, batch) or rows.shape[2] != net.n_outputs or not rows.shape[1]:
        raise InputError(f"rows of shape {tuple(rows.shape)} do not fit {batch} inputs and {net.n_outputs} outputs")
    if offset.shape != rows.shape[:2]:
        raise InputError(f"offsets of shape {tuple(offset.shape)} do not fit rows of shape {tuple(rows.shape)}")
    if group.shape != rows.shape[1:2] or bool((group < 0).any()):
        raise InputError("group needs one number per row, counted from 0")
    changed: dict[str, Any] = {name: t.double() for name, t in given.items() if t is not None}
    basis = None if area.basis is None else area.basis.double()
    return replace(area, **changed, basis=basis)
