"""The directions of a rotated shape: when extents along them mean something, and how points are measured in them."""

from __future__ import annotations

import torch
from torch import Tensor

_ORTHOGONAL = 1e-4  # how far products of directions may be from 0 and 1, and per feature the log of a volume from 0


def units_of(basis: Tensor) -> Tensor:
    """In what each feature is measured for the basis to be orthogonal, if it is so in any units: the rows' norms, `n`.
    `basis`: `n x n`."""
    size = basis.abs().amax(1, keepdim=True)
    found: Tensor = torch.linalg.vector_norm(basis / torch.where(size > 0, size, 1.0), dim=1) * size.squeeze(1)
    return found


def how_crooked(basis: Tensor) -> float:
    """How far directions are from those of an orthogonal basis, each feature in a unit of its own, and these units
    from leaving volumes as they are: 0 of `diag(d) Q` with Q orthogonal and the product of d being 1. Infinite where
    the basis has no inverse, or numbers that are not finite."""
    basis = basis.double()
    unit = units_of(basis)
    if not bool((torch.isfinite(unit) & (unit > 0)).all()):
        return torch.inf
    turned = basis / unit[:, None]
    off = (turned.T @ turned - torch.eye(len(basis)).to(basis)).abs().max()
    volume = unit.log().mean().abs()
    found = float(torch.maximum(off, volume))
    return found if found == found else torch.inf  # NaN is nothing to compare with


def is_straight(basis: Tensor) -> bool:
    """Whether extents along the basis' columns mean something, and their product is a volume; see `how_crooked`."""
    return how_crooked(basis) < _ORTHOGONAL


def coordinates(basis: Tensor, moved: Tensor) -> Tensor:
    """How far points lie along the directions, `... x n`, that were `moved`, `... x n`; for a basis that is straight.
    Up to rounding, and how straight it is."""
    return (moved / units_of(basis).square()) @ basis


__all__ = ["coordinates", "how_crooked", "is_straight", "units_of"]
