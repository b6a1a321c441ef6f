"""What follows from the range in which the data of a run lie: its domain, its caps, and what room is a share of.

All inputs of the data set count, not only those that were chosen, so that each part of a run, and a run that is
resumed, has the same ends. They are settings like others from then on: stored, and compared when a run is resumed.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from elbowroom.arguments.features import feature_titles
from elbowroom.arguments.observed import Observed
from elbowroom.claim.space import domain_of
from elbowroom.data.dataset import Dataset
from elbowroom.network.graph import Network
from elbowroom.runs.settings import Settings
from elbowroom.runs.values import ALL, OBSERVED
from elbowroom.search.regions.registry import OBLIQUE

_AT_ONCE = 1 << 24  # bytes of inputs
CAPPED = "no domain was given, so that no feature may move by more than the width of its range in the data"


def ranged(settings: Settings, net: Network, data: Dataset) -> tuple[Settings, tuple[str, ...]]:
    """Resolved settings with what follows from the data, and notes on it, in sentences."""
    table = data.features is not None or net.about.table is not None
    asked = settings.domain == OBSERVED
    uncapped = settings.domain is None and settings.max_eps is None and settings.objective != "free"
    if not asked and not (table and (uncapped or settings.room_scale is None)):
        return settings, ()
    seen, notes = observed(data), []
    moves = np.ones(net.n_inputs, dtype=bool) if net.about.table is None else net.about.table.moves
    if asked:
        ends = np.stack(seen.domain(moves), axis=1).tolist()
        listed = {str(k): [None if math.isinf(end) else end for end in pair] for k, pair in enumerate(ends)}
        settings = dataclasses.replace(settings, domain=listed)
        constant = seen.constant(tuple(feature_titles(net)), moves)
        notes += [] if constant is None else [constant]
    if not table:
        return settings, tuple(notes)
    widths = np.where(moves, seen.widths, 0.0)
    if uncapped and widths.any() and settings.region != OBLIQUE:  # whose directions have caps of their own
        settings = dataclasses.replace(settings, max_eps=_listed(widths))
        notes.append(CAPPED)
    if settings.room_scale is None:
        stated = _domain_widths(settings, net)
        widths = np.where(moves & (stated > 0), stated, widths)
        settings = dataclasses.replace(settings, room_scale=_listed(widths) if widths.any() else None)
    return settings, tuple(notes)


def observed(data: Dataset) -> Observed:
    """The range of all inputs of a data set, some of them at a time in memory."""
    size = math.prod(data.shape)
    step = max(1, _AT_ONCE // (8 * size))
    blocks = (np.arange(k, min(k + step, data.count)) for k in range(0, data.count, step))
    return Observed.of((data.inputs(block).reshape(len(block), -1) for block in blocks), size)


def _domain_widths(settings: Settings, net: Network) -> np.ndarray:
    """Of every feature, 0 where it has no domain with two ends."""
    domain = settings.domain or {}
    found = np.zeros(net.n_inputs)
    declared = domain_of(net.about.table)
    for k in range(net.n_inputs):
        low, high = domain.get(str(k), domain.get(ALL, (None, None)))
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        if declared is not None:
            low, high = max(low, float(declared[0][k])), min(high, float(declared[1][k]))
        found[k] = high - low
    return np.where(np.isfinite(found), found, 0.0)


def _listed(widths: np.ndarray) -> dict[str, float]:
    return {str(k): float(width) for k, width in enumerate(widths) if width > 0}


__all__ = ["CAPPED", "observed", "ranged"]
