"""`elbowroom reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from elbowroom.commands.flags import takes


@takes("data_dir", "device", data_dir="Folder that holds MNIST, FashionMNIST and SVHN.")
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="synthetic, table1, table2 (cosines), histograms, bounding-maps, toy-bounds or all.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="Folder for models, results, tables and figures.")] = Path("out/reproduce"),
    given: dict[str, Any],
    quick: Annotated[bool, typer.Option("--quick", help="Small networks, few inputs: minutes on two cores.")] = False,
) -> None:
    """The paper's tables and figures, ours beside them. What is in the folder already is used again."""
    from elbowroom.paper.reproduce import reproduce_command

    reproduce_command(experiment, out, quick=quick, **given)
