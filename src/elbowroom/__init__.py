"""Elbowroom: how much room each input feature has before a neural network's decision could change.

The public surface. Names are loaded on first use, so that `import elbowroom` alone is quick.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from elbowroom.version import __version__ as __version__

if TYPE_CHECKING:
    from elbowroom import analyse as analyse
    from elbowroom.certificates.objects import Certificate as Certificate
    from elbowroom.certificates.result import Certificates as Certificates
    from elbowroom.certify.api import certify as certify
    from elbowroom.claim.specification import Specification as Specification
    from elbowroom.claim.specification import label_in as label_in
    from elbowroom.claim.specification import label_stays as label_stays
    from elbowroom.claim.specification import linear_specification as linear_specification
    from elbowroom.claim.specification import outputs_within as outputs_within
    from elbowroom.errors import DataWarning as DataWarning
    from elbowroom.errors import ElbowroomError as ElbowroomError
    from elbowroom.errors import InputError as InputError
    from elbowroom.errors import UnsupportedError as UnsupportedError
    from elbowroom.network.file import load_network as load_network
    from elbowroom.network.file import save_network as save_network
    from elbowroom.network.graph import Graph as Graph
    from elbowroom.network.graph import Network as Network
    from elbowroom.proof.recheck import CheckReport as CheckReport
    from elbowroom.proof.recheck import check as check
    from elbowroom.questions.alone import Alone as Alone
    from elbowroom.questions.alone import alone as alone
    from elbowroom.questions.needed import Accuracy as Accuracy
    from elbowroom.questions.needed import accuracy_needed as accuracy_needed
    from elbowroom.questions.safe import Safety as Safety
    from elbowroom.questions.safe import Sensor as Sensor
    from elbowroom.questions.safe import safe_share as safe_share
    from elbowroom.readers.load import load as load
    from elbowroom.search.bounds.api import Bounds as Bounds
    from elbowroom.search.bounds.api import bounds as bounds
    from elbowroom.search.regions.ball import Ball as Ball
    from elbowroom.search.regions.box import Box as Box
    from elbowroom.search.regions.box import Uniform as Uniform
    from elbowroom.search.regions.ellipsoid import Ellipsoid as Ellipsoid
    from elbowroom.search.regions.input_set import InputSet as InputSet
    from elbowroom.search.regions.l1 import L1 as L1
    from elbowroom.search.regions.oblique import Oblique as Oblique
    from elbowroom.search.solvers.augmented_lagrangian import AugmentedLagrangian as AugmentedLagrangian
    from elbowroom.search.solvers.sequential import Sequential as Sequential
    from elbowroom.verify.box import Verification as Verification
    from elbowroom.verify.box import verify as verify

_HOMES = {
    "Bounds": "elbowroom.search.bounds.api",
    "Verification": "elbowroom.verify.box",
    "bounds": "elbowroom.search.bounds.api",
    "verify": "elbowroom.verify.box",
    "Certificate": "elbowroom.certificates.objects",
    "Certificates": "elbowroom.certificates.result",
    "certify": "elbowroom.certify.api",
    "CheckReport": "elbowroom.proof.recheck",
    "check": "elbowroom.proof.recheck",
    "DataWarning": "elbowroom.errors",
    "ElbowroomError": "elbowroom.errors",
    "InputError": "elbowroom.errors",
    "UnsupportedError": "elbowroom.errors",
    "load_network": "elbowroom.network.file",
    "save_network": "elbowroom.network.file",
    "Graph": "elbowroom.network.graph",
    "Network": "elbowroom.network.graph",
    "Alone": "elbowroom.questions.alone",
    "alone": "elbowroom.questions.alone",
    "Accuracy": "elbowroom.questions.needed",
    "accuracy_needed": "elbowroom.questions.needed",
    "Safety": "elbowroom.questions.safe",
    "Sensor": "elbowroom.questions.safe",
    "safe_share": "elbowroom.questions.safe",
    "load": "elbowroom.readers.load",
    "InputSet": "elbowroom.search.regions.input_set",
    "Ball": "elbowroom.search.regions.ball",
    "Box": "elbowroom.search.regions.box",
    "Ellipsoid": "elbowroom.search.regions.ellipsoid",
    "L1": "elbowroom.search.regions.l1",
    "Oblique": "elbowroom.search.regions.oblique",
    "Uniform": "elbowroom.search.regions.box",
    "AugmentedLagrangian": "elbowroom.search.solvers.augmented_lagrangian",
    "Sequential": "elbowroom.search.solvers.sequential",
    "Specification": "elbowroom.claim.specification",
    "label_in": "elbowroom.claim.specification",
    "label_stays": "elbowroom.claim.specification",
    "linear_specification": "elbowroom.claim.specification",
    "outputs_within": "elbowroom.claim.specification",
}
_MODULES = {"analyse"}  # which are public as such
__all__ = [*_HOMES, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"elbowroom.{name}")
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
