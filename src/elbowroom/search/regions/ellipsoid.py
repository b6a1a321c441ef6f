"""Axis-aligned ellipsoids."""

from __future__ import annotations

from dataclasses import dataclass

from elbowroom.search.regions.ball import PlacedEllipsoid
from elbowroom.search.regions.base import Region


@dataclass(frozen=True, eq=False)
class Ellipsoid(Region):
    """An axis-aligned ellipsoid with its own semi-axis per feature."""

    placed = PlacedEllipsoid
