"""A check's result for people and for programs."""

from __future__ import annotations

from typing import Any

from elbowroom.certificate import STATUSES, Certificates
from elbowroom.check.api import CheckReport

_SHOWN = 20  # failures that are listed


def as_json(report: CheckReport, certs: Certificates) -> dict[str, Any]:
    """The result as a JSON object: counts, and every failure with its reason."""
    return {
        "network_hash": certs.settings["network_hash"],
        "arithmetic": report.arithmetic,
        "deployed": report.deployed,
        "passed": bool(report),
        "inputs": len(report),
        "missing": certs.missing,
        "counts": report.counts,
        "status": {name: certs.status.count(name) for name in STATUSES},
        "failures": [{"input": certs.number(k), "message": report.message[k]} for k in report.failures],
        "seconds": report.seconds,
    }


def show(report: CheckReport, certs: Certificates) -> None:
    """Prints a table of what was found, the failures, and a last line that says it all."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("status", box=None, header_style="bold")
    for name in ("inputs", "proved again", "failed"):
        table.add_column(name, justify="right")
    failed = set(report.failures)
    for status in STATUSES:
        at = [k for k, s in enumerate(certs.status) if s == status]
        if status == "certified":
            table.add_row(status, str(len(at)), str(int(report.passed[at].sum())), str(len(failed & set(at))))
        elif at:
            table.add_row(status, str(len(at)), "-", "-")
    console.print(table)
    for k in report.failures[:_SHOWN]:
        console.print(f"input {certs.number(k)}: {escape(report.message[k])}", soft_wrap=True)
    if len(failed) > _SHOWN:
        console.print(f"... and {len(failed) - _SHOWN} more (all of them with --json)")
    how = {"float64": "float64 that counts its own rounding", "arb": "ball arithmetic"}[report.arithmetic]
    claim = f", for the network as executed in {report.deployed}" if report.deployed else ""
    proved, claims = int(report.passed.sum()), int(report.checked.sum())
    verdict = "[green]all proved[/]" if report else f"[red]{len(failed)} not proved[/]"
    if not claims:
        verdict = "[yellow]nothing to prove[/]"
    console.print(f"{verdict}: {proved} of {claims} certificates, in {how}{claim}", soft_wrap=True)
    if certs.missing:
        console.print(f"the run is incomplete: {certs.missing} more inputs are still to be certified", soft_wrap=True)
