"""`elbowroom report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elbowroom.errors import InputError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs; others are compared with the first.")],
    out: Annotated[Path, typer.Option(help="The page.", metavar="FILE")] = Path("report.html"),
    inputs: Annotated[
        str | None,
        typer.Option(
            help="Show these feature by feature in any case, such as 0-9,17; default: the worst, the best and as many "
            "others as there is place for.",
            metavar="LIST",
            show_default=False,
        ),
    ] = None,
    image_shape: Annotated[
        str | None,
        typer.Option(help="Inputs are images of this shape, such as 8,8.", metavar="SHAPE", show_default=False),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write the same as JSON, too.", metavar="FILE", show_default=False)
    ] = None,
) -> None:
    """Write one page about one run or several, that needs no network and no other file.

    As the runs' files state it: elbowroom check proves it again.
    """
    from elbowroom.report.page.gather import report_of
    from elbowroom.report.page.write import need_jinja, write_json, write_page
    from elbowroom.runs import values

    need_jinja()
    try:
        shape = None if image_shape is None else values.shape(image_shape)
    except values.Wrong as wrong:
        raise InputError(f"image_shape must be {wrong}, got {image_shape!r:.40}") from None
    found = report_of(runs, inputs, shape)
    write_page(found, out)
    typer.echo(f"{out}: {len(found['runs'])} run{'s' * (len(runs) > 1)}, {out.stat().st_size / 1e6:.1f} MB")
    if json is not None:
        write_json(found, json)
        typer.echo(f"{json}: the same for programs")
