"""A check's result for people and for programs."""

from __future__ import annotations

from typing import Any

from elbowroom.network.names import counted
from elbowroom.report.digits import at_most
from elbowroom.report.flags import as_flags
from elbowroom.runs.check import Outcome

_SHOWN = 20  # failures that are listed


def as_json(found: Outcome, exit_status: int) -> dict[str, Any]:
    """The result as a JSON object: counts, the margins proved, and every failure with its reason.

    `network`: which network was proved, in sentences; `origin`: where the run says its own comes from.
    """
    failed, origin = len(found.failures), found.origin
    return {
        "network_hash": found.network_hash,
        "network": _network(found),
        "origin": None if origin is None else {**vars(origin), "options": dict(origin.options)},
        "arithmetic": found.arithmetic,
        "deployed": found.deployed,
        "passed": found.verdict == "passed",
        "exit_status": exit_status,
        "inputs": found.inputs,
        "missing": found.missing,
        "counts": {
            "proved": found.proved, "failed": failed, "no certificate": found.inputs - found.proved - failed,
        },
        "status": found.status,
        "margins": [{"input": number, "smallest": margin} for number, margin in found.margins],
        "failures": [{"input": number, "message": message} for number, message in found.failures],
        "seconds": found.seconds,
    }  # fmt: skip


def _network(found: Outcome) -> list[str]:
    """Which network was proved, in lines."""
    return [as_flags(line, {"model": "--model"}) for line in found.network]


def show(found: Outcome) -> None:
    """Prints a table of what was found, the failures, which network it is about, and last lines that say it all."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("status", box=None, header_style="bold")
    for name in ("inputs", "proved again", "failed"):
        table.add_column(name, justify="right")
    failed = len(found.failures)
    for status, count in found.status.items():
        if status == "certified":
            table.add_row(status, str(count), str(found.proved), str(failed))
        elif count:
            table.add_row(status, str(count), "-", "-")
    console.print(table)
    for number, message in found.failures[:_SHOWN]:
        console.print(f"input {number}: {escape(message)}", soft_wrap=True)
    if failed > _SHOWN:
        console.print(f"... and {failed - _SHOWN} more (all of them with --json)")
    for line in _network(found):
        console.print(escape(line), soft_wrap=True)
    if found.margins:
        number, margin = min(found.margins, key=lambda pair: pair[1])
        console.print(f"smallest margin proved: {at_most(margin, 3)}, of input {number}", soft_wrap=True)
    how = {"float64": "float64 that counts its own rounding", "arb": "ball arithmetic"}[found.arithmetic]
    claim = f", for the network as executed in {found.deployed}" if found.deployed else ""
    verdict = f"[red]{failed} not proved[/]" if failed else "[green]all proved[/]"
    if not found.claims:
        verdict = "[yellow]nothing to prove[/]"
    console.print(
        f"{verdict}: {found.proved} of {counted(found.claims, 'certificate')}, in {how}{claim}", soft_wrap=True
    )
    if found.missing:
        console.print(
            f"[yellow]the run is incomplete[/]: {counted(found.missing, 'more input')} still to be certified",
            soft_wrap=True,
        )
