"""The command line: parse, call, print. Everything heavy is imported inside the commands, so that help is quick."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from elbowroom import __version__
from elbowroom.errors import ElbowroomError

app = typer.Typer(
    name="elbowroom",
    help="How much room does each input feature have before a neural network's decision could change? "
    "Proved, not sampled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"elbowroom {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Makes a command of a function: errors made on purpose become one line and exit code 2, Ctrl-C one and 130."""

    @app.command()
    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except ElbowroomError as error:
            typer.echo(f"elbowroom: {error}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("elbowroom: interrupted", err=True)
            raise typer.Exit(130) from None

    return run


@_command
def demo(
    out: Annotated[Path, typer.Option(help="Folder for pictures and certificates.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Of the networks' training.", min=0, max=2**32 - 1)] = 0,
) -> None:
    """The whole story on embedded data: train two small networks, certify, compare, attack."""
    from elbowroom.demo import run_demo

    run_demo(out, seed=seed)


@_command
def check(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    arithmetic: Annotated[str, typer.Option(help="float64, or arb: slow, by python-flint.")] = "float64",
    deployed: Annotated[
        str | None, typer.Option(help="float32: prove also the network as executed in float32.", show_default=False)
    ] = None,
    network: Annotated[
        Path | None, typer.Option(help="The network they must speak of; default: the run's own.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Prove every certificate of a run again. Exit status 1 if one fails, 2 if the run cannot be read."""
    from json import dumps

    from elbowroom.certificate import Certificates
    from elbowroom.check import api, show
    from elbowroom.network.files import load_network

    certs = Certificates.load(run)
    report = api.check(certs, None if network is None else load_network(network), arithmetic, deployed)
    if json:
        typer.echo(dumps(show.as_json(report, certs), indent=1))
    else:
        show.show(report, certs)
    if not report:
        raise typer.Exit(1)


@_command
def export_vnnlib(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the queries.")] = Path("out/vnnlib"),
    timeout: Annotated[int, typer.Option(help="Seconds per query, for instances.csv.", min=1)] = 60,
    float64: Annotated[bool, typer.Option("--float64", help="Write the network in float64.")] = False,
) -> None:
    """Write each certificate of a run as a VNN-LIB query, and its network as ONNX, for other verifiers."""
    import torch

    from elbowroom.certificate import Certificates
    from elbowroom.network.to_onnx import rounded_constants
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


def main() -> None:
    """What the command `elbowroom` runs."""
    app(prog_name="elbowroom")


if __name__ == "__main__":
    main()
