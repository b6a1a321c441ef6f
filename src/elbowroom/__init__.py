"""Elbowroom: how much room each input feature has before a neural network's decision could change.

The public surface. Names are loaded on first use, so that `import elbowroom` alone is quick.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elbowroom.bounds.api import Bounds as Bounds
    from elbowroom.bounds.api import Verification as Verification
    from elbowroom.bounds.api import bounds as bounds
    from elbowroom.bounds.api import verify as verify
    from elbowroom.certificate import Certificates as Certificates
    from elbowroom.certify import certify as certify
    from elbowroom.check.api import CheckReport as CheckReport
    from elbowroom.check.api import check as check
    from elbowroom.errors import DataWarning as DataWarning
    from elbowroom.errors import ElbowroomError as ElbowroomError
    from elbowroom.errors import InputError as InputError
    from elbowroom.errors import UnsupportedError as UnsupportedError
    from elbowroom.network.files import load_network as load_network
    from elbowroom.network.files import save_network as save_network
    from elbowroom.network.graph import Graph as Graph
    from elbowroom.network.graph import Network as Network
    from elbowroom.network.load import load as load
    from elbowroom.regions.input_set import InputSet as InputSet
    from elbowroom.regions.shapes import L1 as L1
    from elbowroom.regions.shapes import Box as Box
    from elbowroom.regions.shapes import Ellipsoid as Ellipsoid
    from elbowroom.regions.shapes import Oblique as Oblique
    from elbowroom.regions.shapes import Uniform as Uniform
    from elbowroom.solvers.augmented_lagrangian import AugmentedLagrangian as AugmentedLagrangian
    from elbowroom.solvers.sequential import Sequential as Sequential
    from elbowroom.specification import Specification as Specification
    from elbowroom.specification import label_in as label_in
    from elbowroom.specification import label_stays as label_stays
    from elbowroom.specification import linear_specification as linear_specification
    from elbowroom.specification import outputs_within as outputs_within

__version__ = "0.1.0"

_HOMES = {
    "Bounds": "elbowroom.bounds.api",
    "Verification": "elbowroom.bounds.api",
    "bounds": "elbowroom.bounds.api",
    "verify": "elbowroom.bounds.api",
    "Certificates": "elbowroom.certificate",
    "certify": "elbowroom.certify",
    "CheckReport": "elbowroom.check.api",
    "check": "elbowroom.check.api",
    "DataWarning": "elbowroom.errors",
    "ElbowroomError": "elbowroom.errors",
    "InputError": "elbowroom.errors",
    "UnsupportedError": "elbowroom.errors",
    "load_network": "elbowroom.network.files",
    "save_network": "elbowroom.network.files",
    "Graph": "elbowroom.network.graph",
    "Network": "elbowroom.network.graph",
    "load": "elbowroom.network.load",
    "InputSet": "elbowroom.regions.input_set",
    "Box": "elbowroom.regions.shapes",
    "Ellipsoid": "elbowroom.regions.shapes",
    "L1": "elbowroom.regions.shapes",
    "Oblique": "elbowroom.regions.shapes",
    "Uniform": "elbowroom.regions.shapes",
    "AugmentedLagrangian": "elbowroom.solvers.augmented_lagrangian",
    "Sequential": "elbowroom.solvers.sequential",
    "Specification": "elbowroom.specification",
    "label_in": "elbowroom.specification",
    "label_stays": "elbowroom.specification",
    "linear_specification": "elbowroom.specification",
    "outputs_within": "elbowroom.specification",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'elbowroom' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """Where a function and a subpackage share a name (`bounds`, `certify`), the function is what users see.

    Importing a subpackage makes Python set it as an attribute of this module; here that is passed over.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
