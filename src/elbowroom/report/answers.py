"""The answer to a query for people and for programs."""

from __future__ import annotations

from typing import Any

from elbowroom.network.graph import Network
from elbowroom.verify.answer import Answer

COMPETITION = {"holds": "unsat", "violated": "sat", "unknown": "unknown"}  # a verdict in the words of VNN-LIB
_COLOURS = {"holds": "green", "violated": "red", "unknown": "yellow"}
_SHOWN = 20  # inputs, and outputs, of a counterexample that are printed


def as_json(found: Answer) -> dict[str, Any]:
    """The answer as a JSON object, with the counterexample in full."""
    example = found.counterexample
    return {
        "verdict": found.verdict,
        "vnnlib": COMPETITION[found.verdict],
        "seconds": found.seconds,
        "boxes": found.boxes,
        "cases": [{"verdict": c.verdict, "why": c.why, "boxes": c.boxes, "proved": c.proved} for c in found.cases],
        "counterexample": None if example is None else {
            "case": len(found.cases) - 1,
            "clause": example.clause,
            "x": example.x.flatten().tolist(),
            "outputs": example.outputs.tolist(),
            "margin": example.margin,
            "float32": example.float32,
        },
    }  # fmt: skip


def show(found: Answer, net: Network, label: int | None = None) -> None:
    """Prints the verdict, the reason, and the counterexample if there is one; `label`: the decision asked about."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    verdict = found.verdict
    count = "1 box" if found.boxes == 1 else f"{found.boxes:,} boxes"
    console.print(
        f"[{_COLOURS[verdict]}]{verdict}[/] ({COMPETITION[verdict]}), {count} in {found.seconds:.1f} s", soft_wrap=True
    )
    if label is not None:
        named = "" if net.about.classes is None else f" ({escape(net.about.classes[label])})"
        console.print(f"asked: is the decision {label}{named} on the whole box?", soft_wrap=True)
    for number, case in enumerate(found.cases):
        if case.verdict == verdict:
            which = f"case {number}: " if len(found.cases) > 1 else ""
            console.print(f"{which}{case.why}", soft_wrap=True)
    example = found.counterexample
    if example is None:
        return
    features = net.about.features or tuple(f"X_{k}" for k in range(net.n_inputs))
    classes = net.about.classes or tuple(f"Y_{j}" for j in range(net.n_outputs))
    for names, values in ((features, example.x.flatten().tolist()), (classes, example.outputs.tolist())):
        for name, value in list(zip(names, values))[:_SHOWN]:
            console.print(f"  {escape(name)} = {value!r}", soft_wrap=True)
        if len(values) > _SHOWN:
            console.print(f"  ... and {len(values) - _SHOWN} more (all of them with --json)")
    shown = "shows it too" if example.float32 else "does not show it"
    console.print(
        f"unsafe by at least {example.margin:.3g} in real arithmetic; evaluated in float32 the network {shown}",
        soft_wrap=True,
    )
