"""The directions of a run whose regions lie along some that are found: one basis for all its inputs.

It is found before the first part, from inputs of the whole data set, and is part of the run from then on: stored with
what all certificates share, handed to every worker, and taken from there when the run is resumed.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.certificates.store import HEADER, Run
from elbowroom.certify.oblique import turned
from elbowroom.claim.specification import outputs_within
from elbowroom.data.dataset import Dataset
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.runs.problem import arguments
from elbowroom.runs.settings import Settings
from elbowroom.runs.values import ALL
from elbowroom.search.regions.registry import OBLIQUE

SAMPLE = 1000  # inputs that directions are found from, spread evenly over the data set


def with_directions(
    settings: Settings, net: Network, data: Dataset, out: Path, resume: bool
) -> tuple[Settings, Tensor | None, Dataset]:
    """The settings, with how far regions may reach along directions; these: `n x n`, None where there are none; and
    the data, with a note on where they come from. `out`: the run's folder, whose own they are where it is resumed."""
    if settings.region != OBLIQUE:
        return settings, None, data
    told = arguments(settings, net)
    max_eps: Any = told["max_eps"]
    if settings.max_eps is not None and set(settings.max_eps) == {ALL}:
        max_eps = settings.max_eps[ALL]
    index = np.unique(np.linspace(0, data.count - 1, min(SAMPLE, data.count)).round().astype(np.int64))
    points = torch.from_numpy(data.inputs(index)).double()
    points = points[points.flatten(1).isfinite().all(1)]
    if not len(points):
        raise InputError(f"{data.name}: none of the inputs that directions are to be found from is all numbers")
    within: Any = settings.within
    spec = None if within is None else outputs_within(net(points), torch.tensor(within, dtype=torch.float64))
    of_table = data.features is not None or net.about.table is not None
    limits = {name: told[name] for name in ("domain", "frozen", "importance", "room_scale")}
    own = _stored(out, net.n_inputs) if resume else None
    found = turned(
        net, told["region"], points, of_table, spec, **limits, max_eps=max_eps, basis=own
    )  # fmt: skip
    if found.max_eps is not None:
        settings = dataclasses.replace(settings, max_eps={ALL: float(found.max_eps)})
    note = (
        f"regions lie along directions found from {len(points):,} of the {data.count:,} inputs of {data.name}, evenly "
        "apart, and are not cut to a domain"
    )
    return settings, found.region.basis, dataclasses.replace(data, notes=(*data.notes, note))


def _stored(out: Path, count: int) -> Tensor | None:
    """The directions of a run that is there; None where it has none that fit, which is refused by what differs."""
    if not (out / HEADER).exists():
        return None
    basis = Run.open(out).shared.get("basis")
    return basis if isinstance(basis, Tensor) and basis.shape == (count, count) else None


__all__ = ["SAMPLE", "with_directions"]
