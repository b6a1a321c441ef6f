"""`elbowroom diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elbowroom.commands.flags import Json

_PANEL = "Limits"


def _limit(text: str, metavar: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(
        help=text, metavar=metavar, rich_help_panel=_PANEL, show_default=False
    )
    return found


def diff(
    old: Annotated[Path, typer.Argument(help="Folder of the run to compare with.", show_default=False)],
    new: Annotated[Path, typer.Argument(help="Folder of the run that may be worse.", show_default=False)],
    max_shrink: Annotated[
        str | None, _limit("The region of no input may shrink by more; a lost certificate is 100%.", "10%")
    ] = None,
    max_mean_shrink: Annotated[str | None, _limit("The mean size may not shrink by more.", "5%")] = None,
    max_lost: Annotated[str | None, _limit("No more inputs may lose their certificate.", "N|1%")] = None,
    max_levels_lost: Annotated[
        str | None, _limit("The regions of no more inputs may lose levels of a category.", "N|1%")
    ] = None,
    max_changed: Annotated[str | None, _limit("No more decisions may change.", "N|1%")] = None,
    json: Json = False,
) -> int:
    """Compare two runs of two models on the same inputs: whose region shrank, by how much, whose decision changed.

    Exit status 0: no limit is exceeded; 1: one is; 2: the runs cannot be compared, or not be read; 3: one is
    incomplete, or the new run lacks inputs of the old one, or there is nothing to compare.
    """
    from elbowroom.certificates.store import Run
    from elbowroom.commands.flags import flags_of
    from elbowroom.report.diffs import show_diff
    from elbowroom.report.plain import print_json
    from elbowroom.runs.diff import diff_of
    from elbowroom.runs.limits import exit_status, judged

    given = {
        "max_shrink": max_shrink, "max_mean_shrink": max_mean_shrink, "max_lost": max_lost,
        "max_levels_lost": max_levels_lost, "max_changed": max_changed,
    }  # fmt: skip
    found = diff_of(Run.open(old), Run.open(new))
    answers = judged(found, {name: text for name, text in given.items() if text is not None})
    code = exit_status(found, answers)
    if json:
        print_json({**found, "limits": answers, "exit_status": code})
    else:
        show_diff(found, answers, flags_of(diff))
    return code
