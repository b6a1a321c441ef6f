"""The program `elbowroom`: its commands, and what becomes of their errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from elbowroom.commands.accuracy import accuracy
from elbowroom.commands.alone import alone
from elbowroom.commands.certify import certify
from elbowroom.commands.check import check
from elbowroom.commands.demo import demo
from elbowroom.commands.diff import diff
from elbowroom.commands.export_vnnlib import export_vnnlib
from elbowroom.commands.flags import flags_of
from elbowroom.commands.plot import plot
from elbowroom.commands.report import report
from elbowroom.commands.reproduce import reproduce
from elbowroom.commands.safe import safe
from elbowroom.commands.show import show
from elbowroom.commands.start import load_torch
from elbowroom.commands.status import status
from elbowroom.commands.train import train
from elbowroom.commands.verify import verify
from elbowroom.errors import ElbowroomError
from elbowroom.report.flags import as_flags
from elbowroom.version import __version__

WRONG, INTERRUPTED = 2, 130

app = typer.Typer(
    name="elbowroom",
    help="How much room does each input feature have before a neural network's decision could change? "
    "Proved, not sampled.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"elbowroom {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def _command(function: Callable[..., int | None]) -> None:
    """Makes a command of a function: errors made on purpose become one line and exit code 2, Ctrl-C one and 130.

    Such errors name parameters, which are flags here.
    """
    flags = flags_of(function)

    @app.command()
    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            load_torch()
            code = function(*arguments, **options)
        except ElbowroomError as error:
            typer.echo(f"elbowroom: {as_flags(str(error), flags)}", err=True)
            raise typer.Exit(WRONG) from None
        except KeyboardInterrupt:
            typer.echo("elbowroom: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        if code:
            raise typer.Exit(code)


for _each in (
    demo, certify, status, show, plot, report, diff, check, verify, alone, safe, accuracy, export_vnnlib, train,
    reproduce,
):  # fmt: skip
    _command(_each)


def main() -> None:
    """What the command `elbowroom` runs."""
    app(prog_name="elbowroom")


if __name__ == "__main__":
    main()
