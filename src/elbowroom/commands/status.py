"""`elbowroom status`."""

from __future__ import annotations

from elbowroom.commands.flags import Json, RunFolder


def status(run: RunFolder, json: Json = False) -> None:
    """How far a run is, whether it is running, and how to resume it."""
    from elbowroom.certificates.store import Run
    from elbowroom.report.plain import print_json
    from elbowroom.report.runs import show_status
    from elbowroom.runs.status import status_of

    (print_json if json else show_status)(status_of(Run.open(run)))
