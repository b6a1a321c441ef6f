"""`elbowroom accuracy`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from elbowroom.commands.flags import Json, takes
from elbowroom.commands.questions import INPUTS, MODEL, TABLE, TEXTS, WHAT, Labels, Out, question, tell

NOT_REACHED = 1


@takes(*MODEL, *TABLE, *INPUTS, *WHAT, "max_eps", "frozen", "importance", panels=True, **TEXTS)
def accuracy(
    *,
    given: dict[str, Any],
    share: Annotated[float, typer.Option(help="Of all inputs, for which it must be proved.")] = 0.9,
    labels: Labels = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """How accurate must each feature be, so that a share of the inputs provably keep their decision?

    One vector of tolerances, all at once, proved on each input. Exit status 0: it is proved for as many as were asked
    for; 1: no tolerances were found that are; 2: something is wrong.
    """
    from elbowroom.questions.needed import accuracy_needed
    from elbowroom.report.questions import accuracy_as_json, show_accuracy
    from elbowroom.runs.asking import must_be_new

    must_be_new(out)
    asked = question(given, ("max_eps", "frozen", "importance"), labels)
    found = accuracy_needed(asked.net, asked.x, share, **asked.told)
    if out is not None:
        asked.save(found.certificates, out)
    summary = accuracy_as_json(found, asked)
    tell(asked, summary, json, lambda found: show_accuracy(found, out))
    return 0 if found.reached else NOT_REACHED
