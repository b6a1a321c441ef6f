"""Answers to questions for people and for programs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elbowroom.network.graph import Network
from elbowroom.network.names import counted, printable
from elbowroom.questions.alone import ANSWERED, Alone
from elbowroom.questions.boxes import VERDICTS
from elbowroom.questions.needed import Accuracy
from elbowroom.questions.safe import Safety
from elbowroom.report.digits import at_least, at_most, between, near
from elbowroom.runs.asking import Question

_SHOWN = 10  # inputs that are named
_DIGITS = 4
_WIDEST = 28  # of names, before they are folded


def _features(net: Network) -> tuple[list[str], list[str]]:
    """What features are called, and their units."""
    table = net.about.table
    units = [c.unit for c in table.columns for _ in range(c.width)] if table is not None else [""] * net.n_inputs
    return list(net.about.features or map(str, range(net.n_inputs))), units


def _answers(found: Safety | Accuracy, asked: Question) -> list[dict[str, Any]]:
    """Input by input."""
    messages, examples = asked.messages(found.message), found.counterexamples.flatten(1)
    names, _ = _features(asked.net)
    return [
        {
            "input": int(number), "status": status, "message": message,
            "imputed": [name for j, name in enumerate(names) if _imputed(asked, k, j)],
            "counterexample": examples[k].tolist() if status == "unsafe" else None,
        }
        for k, (number, status, message) in enumerate(zip(asked.rows, found.status, messages))
    ]  # fmt: skip


def _imputed(asked: Question, row: int, feature: int) -> bool:
    """Whether a value was missing, and is what the model takes for it."""
    return asked.imputed is not None and bool(asked.imputed[row].reshape(-1)[feature])


def _label(net: Network, label: int) -> dict[str, Any]:
    classes = net.about.classes
    return {"label": None if label < 0 else label, "class": classes[label] if classes and label >= 0 else None}


# --- alone


def alone_as_json(found: Alone, asked: Question) -> dict[str, Any]:
    """The answer about one input: a row per feature that was asked about, least room first."""
    names, units = _features(asked.net)
    columns = ("x", "lower", "upper", "seen_lower", "seen_upper", "lowest", "highest", "settled", "asked")
    value = {name: getattr(found, name)[0].flatten().tolist() for name in columns}
    rows = []
    for k in range(asked.net.n_inputs):
        if value["asked"][k]:
            own = {name: value[name][k] for name in columns[1:-1]}
            looked = own["highest"] - own["lowest"]
            room = (own["upper"] - own["lower"]) / looked if looked > 0 else 0.0
            told = {"unit": units[k], "value": value["x"][k], "imputed": _imputed(asked, 0, k)}
            rows.append({"feature": k, "name": names[k], **told, **own, "share": room})
    return {
        "input": int(asked.rows[0]), "name": asked.names[0], "status": found.status[0],
        "message": asked.messages(found.message)[0], **_label(asked.net, int(found.labels[0])),
        "within": found.share, "features": sorted(rows, key=lambda row: row["share"]),
    }  # fmt: skip


def show_alone(found: dict[str, Any], most: int) -> None:
    """Prints the answer about one input, and the `most` features that have the least room."""
    print(f"input {found['input']}: {found['status']}")
    if found["status"] != ANSWERED:
        print(printable(found["message"]))
        return
    if found["label"] is not None:
        print(f"label that stays: {found['label']}" + (f" ({printable(found['class'])})" if found["class"] else ""))
    shown = found["features"][:most]
    units = any(f["unit"] for f in shown)
    heads = ("value", "proved from", "to", "changes at", "and at", *(("",) if units else ()))
    rows = []
    for f in shown:
        ends = between(f["lower"], f["upper"])
        below = at_most(f["seen_lower"]) if abs(f["seen_lower"]) < float("inf") else "-"
        above = at_least(f["seen_upper"]) if abs(f["seen_upper"]) < float("inf") else "-"
        whole = f["lower"] == f["lowest"] and f["upper"] == f["highest"]
        note = "as far as was looked" if whole else "" if f["settled"] else "not settled: more effort may be"
        note = "; ".join(filter(None, ("imputed" if f["imputed"] else "", note)))
        value = near(f["value"], f["upper"] - f["lower"])
        rows.append((f["name"], value, *ends, below, above, *((f["unit"],) if units else ()), note))
    _table(("feature", *heads, ""), rows)
    if len(found["features"]) > most:
        print(f"... and {len(found['features']) - most:,} more features with more room (--features)")
    print(
        "each feature alone, all others exactly as they are: the label stays where it is proved, and is another one at "
        "the values where it changes (both proved); together they may move less"
        if found["label"] is not None
        else "each feature alone, all others exactly as they are; together they may move less"
    )


# --- safe


def safety_as_json(found: Safety, asked: Question) -> dict[str, Any]:
    """The answers, input by input, and the ranking."""
    return {
        "inputs": len(found), "counts": found.counts, "shares": found.shares,
        "sensors": [vars(sensor) for sensor in found.sensors], "answers": _answers(found, asked),
    }  # fmt: skip


def show_safety(found: dict[str, Any], out: Path | None) -> None:
    """Prints counts, the inputs that are not safe, and which feature's accuracy matters most."""
    count = found["inputs"]
    meaning = {
        "safe": "proved", "unsafe": "a counterexample each, proved to be one", "unknown": "neither"
    }  # fmt: skip
    print(f"{counted(count, 'input')}, all features off by up to their accuracies at once:")
    for status, number in found["counts"].items():
        told = f" ({meaning[status]})" if status in meaning else ""
        print(f"  {status}: {number:,} of {count:,}, {number / count:.1%}{told}")
    for status in [s for s in found["counts"] if s != "safe" and found["counts"][s]]:
        own = [a for a in found["answers"] if a["status"] == status]
        more = ", ..." if len(own) > _SHOWN else ""
        print(f"{status}: input {', '.join(str(a['input']) for a in own[:_SHOWN])}{more}")
        if own[0]["message"]:
            print(f"  {printable(own[0]['message'])}")
    safe = found["counts"]["safe"]
    asked = sum(found["counts"][v] for v in VERDICTS)
    if found["sensors"] and safe < asked:
        print(
            "\nwhose accuracy matters most: of these inputs, if it were exact; if it alone were off, all others exact"
        )
        heads = (f"exact: {VERDICTS[0]}", *VERDICTS[1:], f"alone off: {VERDICTS[0]}", *VERDICTS[1:])
        rows = [
            (s["name"], *(f"{s[what][v]:,}" for what in ("exact", "only") for v in VERDICTS)) for s in found["sensors"]
        ]
        _table(("feature", *heads), rows[:_SHOWN])
        if len(rows) > _SHOWN:
            print(f"... and {len(rows) - _SHOWN:,} more (all of them with --json)")
    _saved(out)


# --- accuracy


def accuracy_as_json(found: Accuracy, asked: Question) -> dict[str, Any]:
    """The tolerances, least share of their scale first, and the inputs."""
    names, units = _features(asked.net)
    columns = {name: getattr(found, name).flatten().tolist() for name in ("tolerance", "shares", "scale", "capped")}
    rows = [
        {
            "feature": k, "name": names[k], "unit": units[k], "tolerance": columns["tolerance"][k],
            "share": columns["shares"][k], "scale": columns["scale"][k], "capped": columns["capped"][k],
        }
        for k in range(asked.net.n_inputs)
        if asked.net.about.table is None or asked.net.about.table.moves[k]  # categories stay as they are
    ]  # fmt: skip
    return {
        "inputs": len(found), "needed": found.needed, "proved": found.proved, "reached": found.reached,
        "features": sorted(rows, key=lambda row: row["share"]), "answers": _answers(found, asked),
    }  # fmt: skip


def show_accuracy(found: dict[str, Any], out: Path | None) -> None:
    """Prints the tolerances, and for how many inputs they are proved."""
    if not found["reached"]:
        print(
            f"no tolerances were found that are proved for {found['needed']:,} of {counted(found['inputs'], 'input')}; "
            f"with none at all it is proved for {found['proved']:,}"
        )
    else:
        print(
            f"these tolerances, all at once, are proved for {found['proved']:,} of {counted(found['inputs'], 'input')} "
            f"({found['needed']:,} were asked for):"
        )
        rows = []
        for f in found["features"]:
            fixed = f["tolerance"] == 0
            cells = ("-", "-") if fixed else (at_most(f["tolerance"], _DIGITS), f"{at_most(100 * f['share'], 3)} %")
            rows.append((f["name"], *cells, f["unit"], "exact" if fixed else "at its cap" if f["capped"] else ""))
        _table(("feature", "may be off by", "of its scale", "", ""), rows)
    for status in sorted({a["status"] for a in found["answers"]} - {"safe"}):
        own = [a for a in found["answers"] if a["status"] == status]
        more = ", ..." if len(own) > _SHOWN else ""
        print(f"{status}: {len(own):,}, input {', '.join(str(a['input']) for a in own[:_SHOWN])}{more}")
    _saved(out)


def _saved(out: Path | None) -> None:
    if out is not None:
        print(f"\nwhat is proved is in {out}: elbowroom check {shlex.quote(str(out))}")


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    widest = min(_WIDEST, max((len(row[0]) for row in rows), default=0))
    for k, head in enumerate(heads):
        table.add_column(
            head,
            justify="left" if k == 0 or not head else "right",
            overflow="fold",
            min_width=widest if k == 0 else None,
        )
    for row in rows:
        table.add_row(*map(printable, row))
    Console(highlight=False, markup=False).print(table)
