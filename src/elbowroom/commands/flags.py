"""From the declarations of settings to flags; and flags that several commands have."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.models import OptionInfo

from elbowroom.runs.settings import FLAGS, OPTIONS, Option

RunFolder = Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def takes(
    *names: str, panels: bool = False, **texts: str
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Gives a command the flags of these settings, in the place of its parameter `given`, which gets the values of
    those that were given, by name. `panels`: whether help has the panels of the settings; `texts`: what it says of one
    that is about something else here."""
    flags = {name: _flag(OPTIONS[name], texts.get(name), panels) for name in names}

    def decorate(function: Callable[..., int | None]) -> Callable[..., int | None]:
        types = typing.get_type_hints(function, include_extras=True)

        def run(*arguments: Any, **values: Any) -> int | None:
            told = {name: values.pop(name, None) for name in flags}
            return function(*arguments, given={n: v for n, v in told.items() if v not in (None, [])}, **values)

        found: list[Parameter] = []
        for name, own in inspect.signature(function).parameters.items():
            if name == "given":
                found += [Parameter(n, Parameter.KEYWORD_ONLY, default=None, annotation=t) for n, t in flags.items()]
            else:
                found.append(own.replace(kind=Parameter.KEYWORD_ONLY, annotation=types[name]))
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in found}
        run.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
        return run

    return decorate


def _flag(option: Option, text: str | None, panels: bool) -> Any:
    """The type of a parameter that is this setting, as a flag gives it: text that is still to be parsed."""
    about: dict[str, Any] = {"help": text or option.help, "show_default": False}
    if option.panel is None:
        return Annotated[str | None, typer.Argument(**about)]
    kind: Any = bool if option.switch else list[str] if option.many else str
    about.update(metavar=option.metavar, rich_help_panel=option.panel if panels else None)
    return Annotated[kind | None, typer.Option(option.flag, **about)]


def flags_of(function: Callable[..., Any]) -> dict[str, str]:
    """The flags of a command, by the names of its parameters."""
    kinds = typing.get_type_hints(function, include_extras=True)
    return {
        name: FLAGS.get(name, f"--{name.replace('_', '-')}")
        for name, kind in kinds.items()
        if any(isinstance(about, OptionInfo) for about in getattr(kind, "__metadata__", ()))
    }
