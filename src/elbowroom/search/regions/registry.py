"""The shapes by the names that commands know them by. (`Oblique` needs a matrix, which no command can be told.)"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from elbowroom.search.regions.base import Region
from elbowroom.search.regions.box import Box, Uniform
from elbowroom.search.regions.ellipsoid import Ellipsoid
from elbowroom.search.regions.l1 import L1

REGIONS: dict[str, Callable[[], Region]] = {
    "uniform": Uniform,
    "box": Box,
    "box-asymmetric": partial(Box, asymmetric=True),
    "ellipsoid": Ellipsoid,
    "l1": L1,
}
