"""`elbowroom check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from elbowroom.commands.flags import RunFolder, takes

EXIT_STATUS = {"passed": 0, "failed": 1, "incomplete": 3}  # by verdict; 2 is for errors


@takes(
    "trust_pickle", "device", trust_pickle="Read --model also where its file runs code.",
    device="Where the float64 proof is computed, such as cuda; default: cpu.",
)  # fmt: skip
def check(
    run: RunFolder,
    *,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Your model: read again as the run states, and refused if it gives another network.",
            show_default=False,
        ),
    ] = None,
    given: dict[str, Any],
    network: Annotated[
        Path | None,
        typer.Option(help="The .elbowroom file they must be about; default: the run's own.", show_default=False),
    ] = None,
    arithmetic: Annotated[str, typer.Option(help="float64, or arb: slow, by python-flint.")] = "float64",
    deployed: Annotated[
        str | None, typer.Option(help="float32: prove also the network as executed in float32.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Prove every certificate of a run again.

    Without --model or --network, of the network in the run's own folder. Exit status 0: all are proved, and the run is
    complete; 1: one or more are not proved; 2: something cannot be read, or is about another network; 3: there is
    nothing to prove, or the run is incomplete.
    """
    from elbowroom.certificates.store import Run
    from elbowroom.machine.meter import Meter
    from elbowroom.report.checks import as_json, show
    from elbowroom.report.plain import print_json
    from elbowroom.runs.check import check_run

    opened = Run.open(run)
    meter = Meter(opened.plan.inputs, title="proving again", step="batch")
    with meter:
        outcome = check_run(opened, network, arithmetic, deployed, model, progress=meter.add, **given)
    code = EXIT_STATUS[outcome.verdict]
    if json:
        print_json(as_json(outcome, code))
    else:
        show(outcome)
    return code
