"""`elbowroom certify`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from elbowroom.commands.flags import takes
from elbowroom.errors import InputError
from elbowroom.runs.settings import OPTIONS, OUTPUT, read_config

NOTHING_TRIED, INTERRUPTED = 1, 130
_STOPPING = "stopping when what is in progress is done; once more to stop at once and lose that"
_USAGE = "elbowroom certify MODEL DATA [--out RUN]"


@takes(*OPTIONS, panels=True)
def certify(
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run; made if it is not there; default: named after model and data.",
            rich_help_panel=OUTPUT,
            show_default=False,
            metavar="RUN",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the run in that folder, or begin it. Nothing is done twice. Flags of the machine, and "
            "--trust-pickle, are given anew.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with settings, named as the flags are (and model, data, out); flags win.",
            rich_help_panel=OUTPUT,
            show_default=False,
            metavar="FILE",
        ),
    ] = None,
    given: dict[str, Any],
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.", rich_help_panel=OUTPUT)
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.", rich_help_panel=OUTPUT)] = False,
) -> int:
    """Certify a whole data set into a folder, part by part; it may be interrupted and resumed at any time.

    Exit status 0: all inputs are done; 1: they are, but not one could be tried (unreadable, no finite numbers);
    2: something is wrong; 130: interrupted cleanly.
    """
    from elbowroom.certificates.store import HEADER
    from elbowroom.report.plain import print_json
    from elbowroom.report.progress import display
    from elbowroom.report.runs import show_summary
    from elbowroom.runs.interrupt import on_signals
    from elbowroom.runs.opening import opened, settings_for
    from elbowroom.runs.runner import run_dataset
    from elbowroom.runs.status import how_to_go_on
    from elbowroom.runs.summary import found_by, summarise

    out, told, where = _told(given, out, config)
    settings, own_network = settings_for(told, out, resume, where)
    if resume and not told.keys() & {"model", "data"} and not (out / HEADER).exists():
        raise InputError(f"{out} holds no run to resume; begin one: {_USAGE}")
    if settings.data is None or (settings.model is None and not own_network):
        raise InputError(f"give a model and data: {_USAGE}")
    settings = settings.settled()
    if own_network and not quiet and "data" not in told:
        print(f"resuming {out}: its own network, and the data that it names, {settings.data}", file=sys.stderr)
    net, data = opened(settings, out if own_network else None)
    watch = display(quiet)
    try:
        with on_signals(_STOPPING) as stop:
            outcome = run_dataset(net, data, out, settings, resume=resume, watch=watch, stop=stop, sharing=True)
    except KeyboardInterrupt:
        print(f"elbowroom: stopped at once; finished parts are kept: {how_to_go_on(out)}", file=sys.stderr)
        return INTERRUPTED
    finally:
        watch.end()
    summary = summarise(outcome.tally, outcome.run.plan, found_by(outcome.run))
    if json:
        print_json(summary)
    elif not quiet:
        show_summary(summary)
    return _status(outcome.complete, summary, out)


def _status(complete: bool, summary: dict[str, Any], out: Path) -> int:
    """The exit status, and what it means where it is not 0."""
    from elbowroom.runs.status import how_to_go_on

    if not complete:
        print(
            f"elbowroom: stopped at {summary['done']:,} of {summary['inputs']:,} inputs, all saved; resume with: "
            f"{how_to_go_on(out)}",
            file=sys.stderr,
        )
        return INTERRUPTED
    if not summary["tried"]:
        print(
            f"elbowroom: not one of {summary['inputs']:,} inputs could be tried; why: elbowroom show "
            f"{shlex.quote(str(out))}",
            file=sys.stderr,
        )
        return NOTHING_TRIED
    return 0


def _told(
    flags: dict[str, Any], out: Path | None, config: Path | None
) -> tuple[Path, dict[str, Any], Callable[[str], str]]:
    """The folder, the values given by flag or file, and what to call one of them in a message."""
    values = {} if config is None else read_config(config)
    place = values.pop("out", None)
    if place is not None and not isinstance(place, str):
        raise InputError(f"{config}: out must be text, got {place!r}")
    out = out or (Path(place) if place else None)
    told = {**values, **flags}
    if out is None:
        out = _default_folder(told)
    return out, told, lambda name: OPTIONS[name].flag if name in flags else f"{config}: {name}"


def _default_folder(told: dict[str, Any]) -> Path:
    """The folder of a run that was given none: model-mnist-test for model.onnx and mnist:test."""
    model, data = told.get("model"), told.get("data")
    if not isinstance(model, str) or not isinstance(data, str):
        raise InputError(
            f"give a model and data ({_USAGE}), or the folder of a run that is to go on (--resume --out RUN)"
        )
    names = [Path(text).stem if Path(text).exists() else text for text in (model, data)]
    return Path("-".join(re.sub(r"[^\w.]+", "-", name).strip("-.") or "run" for name in names))
