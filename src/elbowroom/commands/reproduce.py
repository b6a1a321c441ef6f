"""`elbowroom reproduce`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elbowroom.commands.flags import takes
from elbowroom.errors import InputError

INTERRUPTED = 130


@takes("data_dir", "device", data_dir="Folder that holds MNIST, FashionMNIST and SVHN.")
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="synthetic, table1, table2 (cosines), histograms, bounding-maps, toy-bounds or all; beyond the "
            "paper: variants (of training), prior and unconverged (the published search).",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="Folder for models, runs, tables and figures.")] = Path("out/reproduce"),
    given: dict[str, Any],
    quick: Annotated[bool, typer.Option("--quick", help="Small networks, few inputs: minutes on two cores.")] = False,
    size: Annotated[
        str | None,
        typer.Option(
            help="full (default), clipped or large-batches (other ways of training) or quick.", show_default=False
        ),
    ] = None,
    models: Annotated[
        str, typer.Option(help="Only those whose names match, such as 'mnist-*,svhn-*'.", metavar="PATTERNS")
    ] = "*",
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so long; the same command resumes.", show_default=False, min=0)
    ] = None,
    figures: Annotated[bool, typer.Option(help="Draw figures too; tables alone need no matplotlib.")] = True,
    docs: Annotated[
        Path | None, typer.Option(help="A page whose tables are to be filled in.", show_default=False)
    ] = None,
) -> int:
    """The paper's tables and figures, ours beside them. What is in the folder already is used again.

    Certificates are runs, OUT/runs/MODEL/WAY, which `elbowroom check`, `show` and `status` take. Exit status 0: all is
    done; 2: something is wrong; 130: stopped cleanly.
    """
    from elbowroom.paper.bench import Stopped
    from elbowroom.paper.reproduce import reproduce_command

    if quick and size not in (None, "quick"):
        raise InputError(f"give --quick or --size {size}, not both")
    try:
        reproduce_command(
            experiment, out, size="quick" if quick else size or "full", models=models, minutes=minutes,
            figures=figures, docs=docs, **given,
        )  # fmt: skip
    except Stopped:
        folder = shlex.quote(str(out))
        print(f"elbowroom: stopped; what is done is kept in {folder}, and the same command resumes", file=sys.stderr)
        return INTERRUPTED
    return 0
