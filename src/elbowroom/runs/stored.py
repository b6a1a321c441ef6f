"""The settings that a run's file states, which anybody may have written: the one way to use or to show them."""

from __future__ import annotations

from typing import Any

from elbowroom.certificates.header import Plan
from elbowroom.certificates.store import HEADER
from elbowroom.errors import InputError
from elbowroom.files import canonical_json
from elbowroom.runs.settings import Settings


def stored_settings(plan: Plan) -> dict[str, Any] | None:
    """By name, all of them, as `Settings.stored` gives them; None where a run states none.

    Settings are stored as they are used, and those of the machine or of trust are not: an `InputError` names any other.
    """
    if plan.settings is None:
        return None
    where = f"{HEADER}: plan"
    found = Settings.of(plan.settings, lambda name: f"{where}: {name}").stored()
    for name, value in plan.settings.items():
        if name not in found:
            raise InputError(f"{where}: {name} has no place in a run's file; it is given anew each time")
        if value is not None and canonical_json(found[name]) != canonical_json(value):
            raise InputError(f"{where}: {name} cannot be {str(value)[:80]}")
    return found
