"""`elbowroom certify`: settings from flags and files, a model and data read, a run, and its summary."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elbowroom.certificates.store import HEADER, NETWORK, Run
from elbowroom.data.dataset import Dataset
from elbowroom.data.sources import TABLES, open_data
from elbowroom.errors import InputError
from elbowroom.network.file import load_network
from elbowroom.network.graph import Network
from elbowroom.readers.load import feature_names_of, load
from elbowroom.report.progress import display
from elbowroom.report.runs import show_summary
from elbowroom.runs.interrupt import on_signals
from elbowroom.runs.runner import run_dataset
from elbowroom.runs.settings import Settings, read_config
from elbowroom.runs.status import how_to_go_on
from elbowroom.runs.summary import found_by, summarise

NOTHING_TRIED, INTERRUPTED = 1, 130
_READING = ("input_shape", "mean", "std", "scale", "layout", "decision", "task")  # settings of how a model is read
_STOPPING = "stopping when what is in progress is done; once more to stop at once and lose that"


def certify_command(
    flags: dict[str, Any], out: Path | None, resume: bool, config: Path | None, quiet: bool, as_json: bool
) -> int:
    """Runs it; the exit status."""
    out, given, where = _given(flags, out, config)
    settings, own_network = Settings.of(given, where), False
    if resume and (settings.model is None or settings.data is None) and (out / HEADER).exists():
        # What was not said is as it was when the run was begun; but for the machine and for trust, which no file gives.
        stored = Settings.of(Run.open(out).plan.settings or {})
        settings = dataclasses.replace(stored, **{name: getattr(settings, name) for name in given})
        own_network = "model" not in given
        changed = [name for name in _READING if name in given and getattr(settings, name) != getattr(stored, name)]
        if own_network and changed:
            raise InputError(
                f"{', '.join(where(name) for name in changed)}: the run in {out} goes on with its own network, which "
                "was read otherwise; choose another folder for a run of the model read so"
            )
    if resume and not given.keys() & {"model", "data"} and not (out / HEADER).exists():
        raise InputError(f"{out} holds no run to go on with; begin one: elbowroom certify MODEL DATA --out RUN")
    if settings.data is None or (settings.model is None and not own_network):
        raise InputError("give a model and data: elbowroom certify MODEL DATA --out RUN")
    settings = settings.settled()
    if own_network and not quiet and "data" not in given:
        print(f"going on with {out}: its own network, and the data that it names, {settings.data}", file=sys.stderr)
    if own_network:
        net = load_network(out / NETWORK)
        data = _data(settings, net)
    else:
        data = _data(settings, settings.model)
        net = _network(settings, data)
    watch = display(quiet)
    try:
        with on_signals(_STOPPING) as stop:
            outcome = run_dataset(net, data, out, settings, resume=resume, watch=watch, stop=stop)
    except KeyboardInterrupt:
        print(f"elbowroom: stopped at once; finished parts are kept: {how_to_go_on(out)}", file=sys.stderr)
        return INTERRUPTED
    finally:
        watch.end()
    summary = summarise(outcome.tally, outcome.run.plan, found_by(outcome.run))
    if as_json:
        print(json.dumps(summary, indent=1))
    elif not quiet:
        show_summary(summary)
    if outcome.complete:
        if summary["tried"]:
            return 0
        print(
            f"elbowroom: not one of {summary['inputs']:,} inputs could be tried; why: elbowroom show "
            f"{shlex.quote(str(out))}",
            file=sys.stderr,
        )
        return NOTHING_TRIED
    print(
        f"elbowroom: stopped at {summary['done']:,} of {summary['inputs']:,} inputs, all saved; go on with: "
        f"{how_to_go_on(out)}",
        file=sys.stderr,
    )
    return INTERRUPTED


def _given(
    flags: dict[str, Any], out: Path | None, config: Path | None
) -> tuple[Path, dict[str, Any], Callable[[str], str]]:
    """The folder, the values given by flag or file, and what to call one of them in a message."""
    values = {} if config is None else read_config(config)
    place = values.pop("out", None)
    if place is not None and not isinstance(place, str):
        raise InputError(f"{config}: out must be text, got {place!r}")
    out = out or (Path(place) if place else None)
    if out is None:
        raise InputError("give the folder of the run: --out RUN")
    return out, {**values, **flags}, lambda n: f"--{n.replace('_', '-')}" if n in flags else f"{config}: {n}"


def _data(settings: Settings, model: Any) -> Dataset:
    """`model`: whose features are looked for in a table, by name."""
    assert settings.data is not None
    is_table = Path(settings.data).suffix.lower() in TABLES
    return open_data(
        settings.data, settings.data_dir, label_column=settings.label_column,
        feature_columns=settings.feature_columns, image_shape=settings.input_shape, key=settings.key,
        features=feature_names_of(model, settings.trust_pickle) if is_table else None,
    )  # fmt: skip


def _network(settings: Settings, data: Dataset) -> Network:
    try:
        return load(
            settings.model, data.shape, settings.mean, settings.std, settings.decision, scale=settings.scale,
            layout=settings.layout, task=settings.task, trust_pickle=settings.trust_pickle,
        )  # fmt: skip
    except InputError as error:
        if str(error).startswith(("input_shape ", "inputs of shape ")):  # which nobody may have given: it is the data's
            raise InputError(f"{data.name} does not fit {settings.model}: {error}") from None
        raise
