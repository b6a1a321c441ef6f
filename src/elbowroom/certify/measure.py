"""What extents of features are measured in, and held to, where features have different units.

Of a table that is the width of a feature's domain, or of the range in which the data lie: a share of it means the same
for ages and for incomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.features import spread
from elbowroom.arguments.observed import OBSERVED, Observed
from elbowroom.claim.space import domain_of, held, space_of
from elbowroom.errors import InputError, warn
from elbowroom.network.graph import Network
from elbowroom.search.regions.base import Region
from elbowroom.search.regions.box import Uniform


@dataclass(frozen=True, eq=False)
class Measure:
    """`domain`, `max_eps`: as `space_of` takes them. `scale`: what the room of a feature is a share of, `n`, 0 where
    that is not known; None where it is of no feature. `shares`: whether the uniform region has the same share of it
    in every feature; it has not where its user gave it another scale. `widths`: the scale as it would be for features,
    also where regions lie along other directions, `n`. `domain_given`: whether inputs are said to lie in one, by the
    user or by what columns are declared to be."""

    domain: Any
    max_eps: Any
    scale: Tensor | None
    shares: bool
    widths: Tensor
    domain_given: bool


def measure(
    net: Network, points: Tensor, region: Region, of_table: bool, domain: Any, max_eps: Any, room_scale: Any
) -> Measure:
    """What `certify` was told, and what follows from the inputs `points`, `b x *input_shape`. `of_table`: whether they
    come from one."""
    table = net.about.table
    if table is not None and region.basis is not None and not table.moves.all():
        raise InputError(
            f"region {region.name} turns features into each other, which those of categories ("
            f"{', '.join(repr(c.name) for c in table.columns if c.levels is not None)}) cannot; choose another shape"
        )
    moves = ~held(net, points)[0].cpu().numpy()
    seen: Observed | None = None
    if isinstance(domain, str):
        if domain != OBSERVED:
            raise InputError(f'domain must be a pair (lowest, highest) or "{OBSERVED}", got {domain!r}')
        seen = _observed(points)
        domain = tuple(torch.from_numpy(end).reshape(net.input_shape) for end in seen.domain(moves))
        note = seen.constant(net.about.features or tuple(f"feature {k}" for k in range(net.n_inputs)), moves)
        if note is not None:
            warn(note)
    own = isinstance(region, Uniform) and region.scale_by is not None
    ranges = torch.zeros(net.n_inputs, dtype=torch.float64)
    if of_table:
        ranges = torch.from_numpy(np.where(moves, (seen or _observed(points)).widths, 0.0))
        if domain is None and max_eps is None and region.basis is None and bool((ranges > 0).any()):
            max_eps = torch.where(ranges > 0, ranges, torch.inf).reshape(net.input_shape)
    if room_scale is not None:
        scale = spread(net, points[:1], room_scale, "room_scale").double()[0].cpu()
        if not bool((scale.isfinite() & (scale >= 0)).all()):
            raise InputError("room_scale must be finite and not negative for every feature")
    else:
        widths = _widths_of(net, points, domain)
        scale = torch.where(torch.from_numpy(moves), torch.where(widths > 0, widths, ranges), 0.0)
    found = scale if region.basis is None and bool((scale > 0).any()) else None  # of directions there is none
    shares = found is not None and not own and (of_table or room_scale is not None)
    return Measure(domain, max_eps, found, shares, scale, domain is not None or domain_of(table) is not None)


def _observed(points: Tensor) -> Observed:
    rows = points.flatten(1).cpu().numpy()
    return Observed.of([rows], rows.shape[1])


def _widths_of(net: Network, points: Tensor, domain: Any) -> Tensor:
    """Of a domain that is the same for all inputs, `n`; 0 where it has no end, or differs."""
    none = torch.zeros(net.n_inputs, dtype=torch.float64)
    if domain is None and domain_of(net.about.table) is None:
        return none
    space = space_of(net, points, domain, sets=True)
    low, high = space.lowest, space.highest
    same = bool((low == low[:1]).all() & (high == high[:1]).all())
    width = (high - low)[0].cpu()
    return torch.where(width.isfinite(), width, 0.0) if same else none


__all__ = ["Measure", "measure"]
