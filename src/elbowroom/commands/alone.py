"""`elbowroom alone`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from elbowroom.commands.flags import Json, takes
from elbowroom.commands.questions import MODEL, TABLE, TEXTS, WHAT, Labels, question, tell

NO_ANSWER = 1


@takes(*MODEL, *TABLE, *WHAT, "max_eps", "frozen", panels=True, **TEXTS)
def alone(
    *,
    given: dict[str, Any],
    index: Annotated[int, typer.Option(help="The input of the data that is asked about.", min=0)] = 0,
    feature: Annotated[
        list[str] | None,
        typer.Option(help="Only this feature, by name or number (repeat).", show_default=False, metavar="NAME"),
    ] = None,
    most: Annotated[int, typer.Option("--features", help="How many features to print, least room first.", min=1)] = 20,
    labels: Labels = False,
    json: Json = False,
) -> int:
    """How far may each feature of an input move alone, all others fixed: proved, and where the decision changes.

    Exit status 0: answered; 1: the input could not be asked about; 2: something is wrong.
    """
    from elbowroom.questions.alone import alone as ask
    from elbowroom.report.questions import alone_as_json, show_alone
    from elbowroom.runs.problem import features_named

    asked = question({**given, "indices": [index]}, ("max_eps", "frozen"), labels)
    wanted = None if not feature else [k for text in feature for k in features_named(text, asked.net, "feature")]
    found = ask(asked.net, asked.x, wanted, **asked.told)
    told = alone_as_json(found, asked)
    tell(asked, told, json, lambda found: show_alone(found, most))
    return 0 if told["status"] == "answered" else NO_ANSWER
