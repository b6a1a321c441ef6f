"""`elbowroom safe`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from elbowroom.commands.flags import Json, takes
from elbowroom.commands.questions import INPUTS, MODEL, TABLE, TEXTS, WHAT, Labels, Out, question, tell

UNSAFE, UNKNOWN = 1, 3


@takes(*MODEL, *TABLE, *INPUTS, *WHAT, panels=True, **TEXTS)
def safe(
    *,
    given: dict[str, Any],
    accuracy: Annotated[
        list[str],
        typer.Option(
            help="How far off features may be: 0.5 for all, temp=0.5, pressure=2% of the value, or 'flow=1% of range' "
            "of the domain (repeat); those not named are exact.",
            show_default=False,
            metavar="FEATURE=SIZE",
        ),
    ],
    ranking: Annotated[
        bool | None, typer.Option(help="Which feature's accuracy matters most; default: for up to 64.")
    ] = None,
    labels: Labels = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """Given how accurate features are: of which inputs is the decision proved safe, proved unsafe, or unknown?

    Exit status 0: all are safe; 1: one or more are unsafe; 3: none is, but some are unknown or could not be asked
    about; 2: something is wrong.
    """
    from elbowroom.questions.safe import safe_share
    from elbowroom.report.questions import safety_as_json, show_safety
    from elbowroom.runs.asking import must_be_new
    from elbowroom.runs.problem import by_feature_text

    must_be_new(out)
    asked = question(given, (), labels)
    told = by_feature_text(accuracy, asked.net, "accuracy")
    found = safe_share(asked.net, asked.x, told, ranking=ranking, **asked.told)
    if out is not None:
        asked.save(found.certificates, out)
    summary = safety_as_json(found, asked)
    tell(asked, summary, json, lambda found: show_safety(found, out))
    if found.counts["unsafe"]:
        return UNSAFE
    return 0 if found.counts["safe"] == len(found) else UNKNOWN
