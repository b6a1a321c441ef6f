"""Columns of certificates: how large regions are, as they state it, and which of two is kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elbowroom.certify.whole import step_of
from elbowroom.claim.space import Space
from elbowroom.search.find import Inputs
from elbowroom.search.levels import worth_of
from elbowroom.search.regions.base import Placed
from elbowroom.search.regions.objective import Objective


def sizes(region: Placed, space: Space, half: Tensor, uniform: Tensor, passed: Tensor) -> dict[str, Tensor]:
    """Geometric mean, log-volume and ratio to the uniform region, `b` each; zero, minus infinity and zero where nothing
    `passed`, `b`, or moves.

    `half`: half-widths, `b x n`; `uniform`: parameters of the uniform region, `b x d`. A feature whose values count is
    as wide as its k values, k steps, one more than from end to end; where it has one value alone, it counts as features
    without extent do, except in the ratio, in which one value is compared with the values of the uniform region.
    """
    wide, moves = half, half > 0
    if space.decimals is not None:
        wide = torch.where(moves & (space.decimals >= 0), half + step_of(space.decimals) / 2, half)
    n = moves.sum(1)
    log_geomean = torch.where(moves, wide, 1.0).log().sum(1) / n.clamp_min(1)
    if space.held is None or space.decimals is None:
        to_uniform = log_geomean - region.log_geomean(uniform)
    else:
        counts, held = space.free | space.held.features, space.held.features
        mine = torch.where(held, half + step_of(space.decimals) / 2, half)
        theirs = torch.where(held, space.held.uniform, region.widths(uniform))
        to_uniform = torch.where(counts, (mine / theirs).log(), 0.0).sum(1) / counts.sum(1)
    some = passed & (n > 0)
    return {
        "geomean": torch.where(some, log_geomean.exp(), 0.0),
        "log_volume": torch.where(some, n * log_geomean + region.log_unit_volume(n), -torch.inf),
        "ratio": torch.where(passed & to_uniform.isfinite(), to_uniform.exp(), 0.0),
    }


def keep_better(
    result: dict[str, Any], passed: Tensor, inputs: Inputs, rows: Tensor, found: dict[str, Any], objective: Objective
) -> None:
    """Writes what was found for the inputs `rows` of a batch over what there was, where it is better."""
    space = inputs.space.part(rows)
    below, above = space.around(inputs.x[rows])
    full = below / 2 + above / 2
    new, old = (objective.of(t, full, space.free, space.importance) for t in (found["eps"], result["eps"][rows]))
    if "allowed" in found:
        new, old = new + worth_of(space, found["allowed"]), old + worth_of(space, result["allowed"][rows])
    still = ~passed[rows] & ~space.free.any(1)  # a region of no size is one where nothing can move
    better = found.pop("certified") & ((new > old) | still)
    passed[rows[better]] = True
    write(result, rows, found, better)


def write(result: dict[str, Any], rows: Tensor, found: dict[str, Any], chosen: Tensor) -> None:
    """Writes what was found for the inputs `rows` of a batch, `m`, where it is `chosen`, `m`."""
    for name, value in found.items():
        if isinstance(value, list):
            for k in chosen.nonzero().squeeze(1).tolist():
                result[name][int(rows[k])] = value[k]
        else:
            result[name][rows[chosen]] = value[chosen]


__all__ = ["keep_better", "sizes", "write"]
