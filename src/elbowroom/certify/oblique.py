"""`Oblique("auto")`: directions for inputs, and how far regions may reach along them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elbowroom.certify.measure import Measure, measure
from elbowroom.claim.space import space_of
from elbowroom.claim.specification import Specification
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.search.directions import found_directions, refuse_too_many
from elbowroom.search.regions.base import Region
from elbowroom.search.regions.oblique import Oblique


@dataclass(frozen=True, eq=False)
class Turned:
    """The shape along directions that were found, or as it was; `domain`, `max_eps`: as `certify` takes them."""

    region: Region
    domain: Any
    max_eps: Any


def turned(
    net: Network, region: Region, points: Tensor, of_table: bool, spec: Specification | None, domain: Any, frozen: Any,
    importance: Any, max_eps: Any, room_scale: Any, basis: Tensor | None = None,
) -> Turned:  # fmt: skip
    """What `certify` was told of directions that are to be found from `points`, `b x *input_shape`; else all as it is.

    `of_table`: whether they come from one. `basis`: where it was found before.
    """
    if not isinstance(region, Oblique) or not region.is_to_be_found:
        return Turned(region, domain, max_eps)
    refuse_too_many(net.n_inputs)
    if importance is not None:
        raise InputError(
            'importance is about features, and Oblique("auto") has directions that are found from the inputs; leave it '
            "out, or give a basis"
        )
    if max_eps is not None and torch.as_tensor(_one_number(max_eps)).numel() != 1:
        raise InputError('max_eps must be one number for all directions of Oblique("auto"), which are found')
    measured = measure(net, points, region, of_table, domain, max_eps, room_scale)
    free = space_of(net, points, measured.domain, frozen, None, None).free
    if not bool((free == free[:1]).all()):
        raise InputError('frozen must be the same for all inputs of Oblique("auto"), which have one basis')
    unit, cap = _units(measured.widths, free[0].cpu())
    if basis is None:
        if spec is not None:
            spec.check_fits(len(points), net)
        basis = found_directions(net, points, spec, free[0], unit)
    return Turned(region.along(basis), measured.domain, cap if max_eps is None else max_eps)


def measured_along(
    net: Network, region: Region, points: Tensor, of_table: bool, spec: Specification | None, domain: Any, frozen: Any,
    importance: Any, max_eps: Any, room_scale: Any,
) -> tuple[Region, Measure]:  # fmt: skip
    """The shape, along directions that are found where it has none, and what follows from the inputs for it."""
    found = turned(net, region, points, of_table, spec, domain, frozen, importance, max_eps, room_scale)
    return found.region, measure(net, points, found.region, of_table, found.domain, found.max_eps, room_scale)


def _one_number(max_eps: Any) -> Any:
    """Names of features, or a list, are not one."""
    if isinstance(max_eps, dict):
        return torch.zeros(2)
    try:
        return torch.as_tensor(max_eps)
    except (TypeError, ValueError, RuntimeError):
        return torch.zeros(2)


def _units(widths: Tensor, free: Tensor) -> tuple[Tensor, float | None]:
    """What features are measured in, `n`, and how long directions may be in that; None where no width is known, 0
    where that of one is not."""
    known = free & (widths > 0)
    if not bool(known.any()):
        return torch.ones_like(widths), None
    mean = float(widths[known].log().mean().exp())
    return torch.where(known, widths, mean), mean


__all__ = ["Turned", "measured_along", "turned"]
