"""`elbowroom verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from elbowroom.commands.flags import Json, takes
from elbowroom.errors import InputError
from elbowroom.runs.settings import OPTIONS, READING, Settings

EXIT_STATUS = {"holds": 0, "violated": 1, "unknown": 3}  # 2 is for errors
# How the model is read. Its task is none of them: a box is asked about with a decision, and a query says what it is of.
_READING = [name for name, option in OPTIONS.items() if option.kind == READING and name != "task"]


@takes(*_READING, "trust_pickle", input_shape="Of one input, such as 1,28,28; default: the model's.")
def verify(
    model: Annotated[str, typer.Argument(help="The network: .onnx, .pt2, .elbowroom.", show_default=False)],
    *,
    vnnlib: Annotated[
        Path | None, typer.Option(help="A VNN-LIB query about the model's inputs and outputs.", show_default=False)
    ] = None,
    lower: Annotated[
        str | None,
        typer.Option(help="Of a box: a number for all features, numbers with commas, or a .npy.", show_default=False),
    ] = None,
    upper: Annotated[str | None, typer.Option(help="Of a box, likewise.", show_default=False)] = None,
    label: Annotated[
        int | None,
        typer.Option(help="The decision to prove on the box; default: that of its midpoint.", show_default=False),
    ] = None,
    boxes: Annotated[
        int | None, typer.Option(help="Give up when a clause takes more parts of the box.", show_default=False, min=1)
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Give up after this time.", show_default=False, min=0)] = None,
    given: dict[str, Any],
    json: Json = False,
) -> int:
    """Whether the decision is the same on a whole box, or the answer to a VNN-LIB query.

    Exit status 0: it holds; 1: it is violated, and a counterexample is shown; 3: unknown; 2: something is wrong.
    """
    from elbowroom.readers.load import load
    from elbowroom.report.answers import as_json, show
    from elbowroom.report.plain import print_json
    from elbowroom.verify.answer import BOXES, SECONDS, answer
    from elbowroom.verify.question import about_box, corner, load_for
    from elbowroom.vnnlib.read import read_query

    read = Settings.of(given, lambda name: OPTIONS[name].flag)
    if vnnlib is not None:
        box = {"--lower": lower, "--upper": upper, "--label": label}
        more = [flag for flag, value in box.items() if value is not None]
        more += [OPTIONS[name].flag for name in given if name != "trust_pickle"]
        if more:
            raise InputError(
                f"a VNN-LIB query states its own box, of the model's own inputs: leave off {', '.join(more)}"
            )
        query = read_query(vnnlib)
        net = load_for(query, model, read.trust_pickle)
    elif lower is None or upper is None:
        raise InputError("say what to verify: a query by --vnnlib, or a box by --lower and --upper")
    else:
        net = load(model, **read.reading(), trust_pickle=read.trust_pickle)
        query, label = about_box(net, corner(net, lower, "lower"), corner(net, upper, "upper"), label)
    found = answer(net, query, boxes or BOXES, SECONDS if seconds is None else seconds)
    if json:
        print_json(as_json(found))
    else:
        show(found, net, label)
    return EXIT_STATUS[found.verdict]
