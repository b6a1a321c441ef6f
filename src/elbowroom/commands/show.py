"""`elbowroom show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elbowroom.commands.flags import Json, RunFolder


def show(
    run: RunFolder,
    index: Annotated[
        int | None, typer.Option(help="Show this input of the data set instead.", show_default=False, min=0)
    ] = None,
    features: Annotated[int, typer.Option(help="With --index: how many features, least room first.", min=1)] = 20,
    frame: Annotated[
        Path | None,
        typer.Option(
            help="Write all certificates into this .csv or .parquet file instead, a row per input and feature.",
            show_default=False,
            metavar="FILE",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """What a run found: sizes, ratios, failures; or, of one input, the room of each feature.

    As its files state it: elbowroom check proves it again.
    """
    from elbowroom.certificates.store import Run
    from elbowroom.errors import InputError
    from elbowroom.report.plain import print_json
    from elbowroom.report.runs import show_input, show_summary
    from elbowroom.runs.one_input import one_input
    from elbowroom.runs.summary import summary_of
    from elbowroom.runs.tidy import write_frame

    opened = Run.open(run)
    if frame is not None:
        if index is not None or json:
            raise InputError("--frame writes all inputs into a file; it goes without --index and --json")
        print(f"{write_frame(opened, frame):,} rows written to {frame}")
        return
    if index is None:
        (print_json if json else show_summary)(summary_of(opened))
        return
    found = one_input(opened, index)
    if json:
        print_json(found)
    else:
        show_input(found, features)
