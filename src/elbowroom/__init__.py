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
    from elbowroom.errors import ElbowroomError as ElbowroomError
    from elbowroom.errors import InputError as InputError
    from elbowroom.errors import UnsupportedError as UnsupportedError
    from elbowroom.network.graph import Graph as Graph
    from elbowroom.network.graph import Network as Network
    from elbowroom.network.load import load as load
    from elbowroom.regions.input_set import InputSet as InputSet
    from elbowroom.specification import Specification as Specification

__version__ = "0.1.0"

_HOMES = {
    "Bounds": "elbowroom.bounds.api",
    "Verification": "elbowroom.bounds.api",
    "bounds": "elbowroom.bounds.api",
    "verify": "elbowroom.bounds.api",
    "ElbowroomError": "elbowroom.errors",
    "InputError": "elbowroom.errors",
    "UnsupportedError": "elbowroom.errors",
    "Graph": "elbowroom.network.graph",
    "Network": "elbowroom.network.graph",
    "load": "elbowroom.network.load",
    "InputSet": "elbowroom.regions.input_set",
    "Specification": "elbowroom.specification",
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
