"""What `certify` may be told, looked at before the work, and how certificates state it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from elbowroom.certificates.result import name_of_norm
from elbowroom.certify.larger import effort_of
from elbowroom.errors import InputError
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from elbowroom.search.bounds.propagate import BoundFunction
from elbowroom.search.branching.enlarge import Effort
from elbowroom.search.memory import Budget
from elbowroom.search.regions.base import Region
from elbowroom.search.regions.box import Box
from elbowroom.search.regions.registry import OBJECTIVES
from elbowroom.search.solvers.driver import Solver
from elbowroom.search.solvers.registry import solver_named

PRECISIONS = {"float32": torch.float32, "float64": torch.float64}


def chosen_ways(
    region: Region | None, solver: str | Solver, delta: float, precision: str, batch: int | None, reach: bool,
    objective: str,
) -> tuple[Region, Solver]:  # fmt: skip
    """Shape and solver, after a look at what was told."""
    region = Box() if region is None else region
    if not isinstance(region, Region):
        raise InputError(f"region must be a shape such as Box(), got {region!r}")
    if isinstance(solver, str):
        solver = solver_named(solver)
    if not hasattr(solver, "run") or isinstance(solver, type):
        raise InputError(f"solver must be a name or a solver object such as er.Sequential(), got {solver!r}")
    if not isinstance(delta, int | float) or not delta >= 0:
        raise InputError(f"delta must not be negative, got {delta}")
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise InputError(f"batch must be a positive number of inputs, got {batch!r}")
    if not isinstance(reach, bool):
        raise InputError(f"reach must be True or False, got {reach!r}")
    if objective not in OBJECTIVES:
        raise InputError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r:.80}")
    if objective == "free" and (type(region) is not Box or reach):
        what = "reach=True" if reach else f"region {region.name}"
        raise InputError(
            f'objective="free" has boxes of its own, and nothing beyond them is looked for: leave out {what}'
        )
    if objective == "smallest" and not region.stated_by_corners:
        raise InputError(
            f'objective="smallest" is about boxes along the axes, not {region.name}: of the other shapes, the region '
            "whose least extent is largest is the uniform one"
        )
    return region, solver


def asked_of(region: Region, objective: str) -> dict[str, bool]:
    """What a shape and an objective ask of the space, see `space_of`: a domain that ends, or something that can grow,
    a number or, of boxes, a set of levels."""
    return {"finite": objective == "free", "sets": region.stated_by_corners and objective == "volume"}


def effort_for(effort: str | int, bounds: str | BoundFunction, margin: str, budget: Budget) -> Effort | None:
    """What may be spent on larger regions; refused where branch and bound has other bounds than are asked for."""
    spent = effort_of(effort)
    if spent is not None and (bounds, margin) != ("adaptive", "direct"):
        asked = bounds if isinstance(bounds, str) else "a function of one's own"
        raise InputError(
            f'effort={effort!r} cuts regions into parts, which is done with bounds="adaptive" and margin="direct" '
            f"only; these are bounds={asked}, margin={margin!r}"
        )
    return None if spent is None else replace(spent, memory=budget.total)


def settings_of(
    net: Network, region: Region, solver: Solver, bounds: str | BoundFunction, margin: str, delta: float,
    precision: str, deployed: str | None, shares: bool, objective: str,
) -> dict[str, Any]:  # fmt: skip
    """How certificates are found, as they state it."""
    return {
        "region": region.name, "bounds": bounds if isinstance(bounds, str) else "own function",
        "margin": margin, "solver": repr(solver), "delta": float(delta), "decision": net.decision,
        "objective": objective, "precision": precision, "p": name_of_norm(region.p), "deployed": deployed,
        "shares": shares,
        "network_hash": network_hash(net),
    }  # fmt: skip


__all__ = ["PRECISIONS", "asked_of", "chosen_ways", "effort_for", "settings_of"]
