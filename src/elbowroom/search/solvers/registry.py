"""The solvers by name. Names only, so that the command line can list them before torch is loaded."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from elbowroom.errors import InputError

if TYPE_CHECKING:
    from elbowroom.search.solvers.driver import Solver

# A name, then the file here and the class in it.
SOLVERS: dict[str, tuple[str, str]] = {
    "sequential": ("sequential", "Sequential"),
    "augmented-lagrangian": ("augmented_lagrangian", "AugmentedLagrangian"),
}


def solver_class(name: str) -> type[Any]:
    """The class of the solver of this name: a dataclass of its options."""
    if name not in SOLVERS:
        raise InputError(f"unknown solver {name!r}; choose one of {', '.join(SOLVERS)}")
    file, kind = SOLVERS[name]
    found: type[Any] = getattr(importlib.import_module(f"{__package__}.{file}"), kind)
    return found


def solver_named(name: str) -> Solver:
    """The solver of this name, with its defaults."""
    found: Solver = solver_class(name)()
    return found
