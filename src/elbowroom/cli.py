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


def main() -> None:
    """What the command `elbowroom` runs."""
    app(prog_name="elbowroom")


if __name__ == "__main__":
    main()
