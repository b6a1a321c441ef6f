"""`elbowroom export-vnnlib`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elbowroom.commands.flags import RunFolder


def export_vnnlib(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="Folder for the queries.")] = Path("out/vnnlib"),
    timeout: Annotated[int, typer.Option(help="Seconds per query, for instances.csv.", min=1)] = 60,
    float64: Annotated[bool, typer.Option("--float64", help="Write the network in float64.")] = False,
) -> None:
    """Write each certificate of a run as a VNN-LIB query, and its network as ONNX, for other verifiers."""
    import torch

    from elbowroom.certificates.result import Certificates
    from elbowroom.readers.onnx.write import rounded_constants
    from elbowroom.vnnlib import export

    certs = Certificates.load(run)
    dtype = torch.float64 if float64 else None
    paths = export(certs, None, out, timeout, dtype)
    count = "1 query" if len(paths) == 1 else f"{len(paths)} queries"
    typer.echo(f"{count} in {out}, with network.onnx and instances.csv; unsat: the certificate holds")
    rounded = len(rounded_constants(certs.network, dtype)) if certs.network else 0
    if rounded:
        hint = "" if float64 else "; --float64 would hold more of them"
        typer.echo(f"network.onnx holds {rounded} number{'s' * (rounded > 1)} rounded, named in each query{hint}")
