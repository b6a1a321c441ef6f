"""The shapes by the names that commands know them by, and what makes a region good.

(Of `Oblique`, commands know the one whose directions are found; a matrix cannot be told them.)

Names only, so that the command line can list them before torch is loaded: a shape's file is imported when it is made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elbowroom.search.regions.base import Region

# A name, then the file here and the class in it, and what the class is told.
REGIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "uniform": ("box", "Uniform", {}),
    "box": ("box", "Box", {}),
    "box-asymmetric": ("box", "Box", {"asymmetric": True}),
    "ellipsoid": ("ellipsoid", "Ellipsoid", {}),
    "l1": ("l1", "L1", {}),
    "oblique": ("oblique", "Oblique", {"basis": "auto"}),
}
OBLIQUE = "oblique"
OBJECTIVES = ("volume", "smallest", "free")  # what is to be as large as possible
BALL = "ball:"  # and then a norm: "ball:1.5"


def region_named(name: str) -> Region:
    """A shape of this name."""
    if name.startswith(BALL):
        file, kind, told = "ball", "Ball", {"p": float(name.removeprefix(BALL))}
    else:
        file, kind, told = REGIONS[name]
    found: Region = getattr(importlib.import_module(f"{__package__}.{file}"), kind)(**told)
    return found
