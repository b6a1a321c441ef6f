"""Certificates as notebooks show them: small tables, in which every name is escaped."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.features import feature_titles
from elbowroom.certificates.result import Certificates
from elbowroom.network.levels import listed
from elbowroom.network.names import class_title, counted, printable
from elbowroom.report.digits import around, at_most, near
from elbowroom.report.explain import one_of, what_stays

_ROWS, _FAILED, _FEATURES, _LONGEST = 8, 4, 12, 160
_NUMBER = ' style="text-align:right"'


def table_of(certs: Certificates) -> str:
    """The inputs with the smallest regions first, then some without a certificate, and why."""
    counts = ", ".join(f"{n:,} {s.replace('_', ' ')}" for s, n in Counter(certs.status).most_common())
    head = f"<b>Certificates</b> of {counted(len(certs), 'input')}: {escape(counts) or 'none'}"
    if certs.network is None:
        return f"<div>{head}</div>"
    shown = certs.tightest(_ROWS)
    rows = _certified(shown)
    failed = [k for k, status in enumerate(certs.status) if status != "certified"]
    for k in failed[:_FAILED]:
        why = certs.message[k] or certs.status[k].replace("_", " ")
        rows.append(
            f"<tr><td>{certs.number(k)}</td><td>{_text(certs.status[k])}</td><td colspan=4>{_text(why)}</td></tr>"
        )
    left = len(certs) - len(shown) - len(failed[:_FAILED])
    more = f"<div>... and {left:,} more; certs.tightest(k), certs[i], certs.explain(i)</div>" if left else ""
    heads = ("input", "status", "stays", "size", "least room", "range")
    return f"<div>{head}</div>{_table(heads, rows)}{more}"


def _certified(certs: Certificates) -> list[str]:
    """A row per input: what stays, the region's size, and which feature has the least room."""
    net = certs.network
    assert net is not None
    table, names = net.about.table, feature_titles(net)
    units = [column.unit for column in table.columns for _ in range(column.width)] if table else [""] * len(names)
    decimals = [c.decimals for c in table.columns for _ in range(c.width)] if table else [None] * len(names)
    eps, share = certs.eps.flatten(1), None if certs.room is None else certs.room.flatten(1)
    found = []
    for row in range(len(certs)):
        label, k = int(certs.labels[row]), _least(eps[row], None if share is None else share[row])
        stays = "the specification" if label < 0 else class_title(net, label)
        least, text = "-", "-"
        if k is not None and certs.basis is None:
            f: dict[str, Any] = {"value": float(certs.x[row].flatten()[k]), "extent": float(eps[row, k])}
            f["decimals"] = decimals[k]
            if certs.lower is not None and certs.upper is not None:
                f.update(lower=float(certs.lower[row].flatten()[k]), upper=float(certs.upper[row].flatten()[k]))
            least, text = names[k], f"{_range(f)} {units[k]}".strip()
        cells = f"<td>{certs.number(row)}</td><td>certified</td><td>{_text(stays)}</td>"
        size = at_most(float(certs.geomean[row]), 4)
        found.append(f"<tr>{cells}<td{_NUMBER}>{size}</td><td>{_text(least)}</td><td>{_text(text)}</td></tr>")
    return found


def _least(eps: Tensor, share: Tensor | None) -> int | None:
    """Which of the features that move has the least room, as a share where that is known; None where none moves."""
    measure = eps if share is None or not bool((share.isfinite() & (eps > 0)).any()) else share
    some = measure.isfinite() & (eps > 0)
    return int(torch.where(some, measure, torch.inf).argmin()) if bool(some.any()) else None


def table_of_one(certs: Certificates) -> str:
    """The features of one input, the least room first."""
    if certs.network is None:
        return f"<div>{_text(repr(certs))}</div>"
    one = one_of(certs)
    head = f"<b>Input {one['input']}</b>: {_text(one['status'].replace('_', ' '))}"
    if not one["features"]:
        return f"<div>{head}: {_text(one['message'])}</div>"
    rows = []
    for f in one["features"][:_FEATURES]:
        note = f.get("state", f["note"])
        share = "-" if f["share"] is None else f"{at_most(100 * f['share'], 3)} %"
        value = f["value"] if isinstance(f["value"], str) else near(f["value"], f["extent"], f["decimals"])
        cells = f"<td>{_text(f['feature'])}</td><td{_NUMBER}>{_text(value)}</td><td{_NUMBER}>{_text(_range(f))}</td>"
        rows.append(f"<tr>{cells}<td>{_text(f['unit'])}</td><td{_NUMBER}>{share}</td><td>{_text(note)}</td></tr>")
    left = len(one["features"]) - len(rows)
    more = f"<div>... and {counted(left, 'more feature')}, with more room or held fixed</div>" if left else ""
    heads = ("feature", "value", "certified", "unit", "room", "")
    return f"<div>{head}, {_text(what_stays(one))}</div>{_table(heads, rows)}{more}"


def _range(f: dict[str, Any]) -> str:
    if "levels" in f:
        return "any of " + listed(f["levels"], ", ") if len(f["levels"]) > 1 else "as it is"
    if f["extent"] == 0:
        return "as it is"
    if "lower" not in f:
        return f"{at_most(f['extent'], 4)} either way, alone"
    low, _, high = around(f["lower"], f["value"], f["upper"], f["decimals"], 4)
    return f"{low} to {high}"


def _table(heads: tuple[str, ...], rows: list[str]) -> str:
    cells = "".join(f"<th>{head}</th>" for head in heads)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _text(text: str) -> str:
    """As text: no tags, no control characters, and no longer than a table can have."""
    shown = printable(text)
    return escape(shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}...")


__all__ = ["table_of", "table_of_one"]
