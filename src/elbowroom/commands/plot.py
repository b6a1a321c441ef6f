"""`elbowroom plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elbowroom.commands.flags import RunFolder
from elbowroom.errors import InputError

_KINDS = (
    "One input: tolerance (the range of each feature) or map (of an image, or of two features). All: summary (a row "
    "per feature), histogram (of all rooms), similarity (of regions)."
)


def plot(
    run: RunFolder,
    kind: Annotated[
        str, typer.Option(help=_KINDS, metavar="KIND", show_default="tolerance with --index, else summary")
    ] = "",
    index: Annotated[
        int | None, typer.Option(help="The input of the data set, for tolerance and map.", show_default=False, min=0)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The picture: .png, .svg or .pdf; default: KIND.png or KIND_N.png.", show_default=False),
    ] = None,
    max_features: Annotated[int, typer.Option(help="How many features, those with the least room.", min=1)] = 20,
    image_shape: Annotated[
        str | None,
        typer.Option(help="Inputs are images of this shape, such as 8,8.", metavar="SHAPE", show_default=False),
    ] = None,
) -> None:
    """Draw what a run found: one input's room, or that of all inputs.

    As its files state it: elbowroom check proves it again.
    """
    from elbowroom.certificates.store import Run
    from elbowroom.report.plot.drawing import must_be_picture, need_matplotlib
    from elbowroom.report.plot.of_runs import picture_of
    from elbowroom.report.plot.pictures import KINDS, OF_ONE, default_name
    from elbowroom.runs import values

    need_matplotlib()
    kind = kind or ("summary" if index is None else "tolerance")
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r:.40}")
    if kind in OF_ONE and index is None:
        raise InputError(f"a {kind} is of one input: say by --index which; elbowroom report shows which there are")
    if kind not in OF_ONE and index is not None:
        raise InputError(f"a {kind} is of all inputs; leave off --index, or draw a tolerance")
    try:
        shape = None if image_shape is None else values.shape(image_shape)
    except values.Wrong as wrong:
        raise InputError(f"image_shape must be {wrong}, got {image_shape!r:.40}") from None
    target = out or default_name(kind, index)
    must_be_picture(target)
    picture_of(Run.open(run), kind, index, max_features, shape).save(target)
    typer.echo(f"{target}: the {kind} of {f'input {index}' if index is not None else run}")
