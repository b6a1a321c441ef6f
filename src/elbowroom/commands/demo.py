"""`elbowroom demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Folder for pictures and certificates.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Of the networks' training.", min=0, max=2**32 - 1)] = 0,
) -> None:
    """The whole story on embedded data: train two small networks, certify, compare, attack."""
    from elbowroom.demo.run import run_demo

    run_demo(out, seed=seed)
