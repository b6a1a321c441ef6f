"""One input of a run: its certificate, feature by feature."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import torch

from elbowroom.arguments.features import feature_titles
from elbowroom.certificates.frame import STUCK, levels_allowed, notes_of
from elbowroom.certificates.result import FIXED, NEEDED, UNDECIDED, Certificates
from elbowroom.certificates.store import Run
from elbowroom.certify.reach import MOST_FACES
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.network.levels import words
from elbowroom.network.names import counted
from elbowroom.network.table import Column, Table, kind_of
from elbowroom.runs.summary import HALF_WIDTH, extent_of

# What `one_input` has that no proof covers.
_STATED = (
    "input",
    "name",
    "message",
    "class",
    "uniform_radius",
    "ratio",
    "margin",
    "search",
    "features: feature",
    "features: capped",
    "features: seen_lower",
    "features: seen_upper",
    "features: open_below",
    "features: open_above",
    "features: share",
    "features: unit",
    "features: kind",
    "features: decimals",
    "features: note",
    "shares",
    "features: state",
)
CLOSE = 0.05  # of the width: a counterexample nearer than that to an end leaves nothing open worth telling
Ends = list[float | None] | None
FREE, NEEDS, OPEN, FROZEN = "free", "needed", "not decided", "frozen"  # states of features in an explanation


def one_input(run: Run, number: int) -> dict[str, Any]:
    """Everything about the input with this number in the data set, as a JSON object."""
    part, row = where_is(run, number)
    return input_of(run.read(part), row, number, name_of(run, part, row))


def where_is(run: Run, number: int) -> tuple[int, int]:
    """Part and row of the input with this number in the data set; an `InputError` where it has no certificate."""
    for k in run.finished():
        numbers = numbers_of(run, k, run.read(k))
        if number in numbers:
            return k, numbers.index(number)
    done = sum(len(run.rows(k)) for k in run.finished())
    left = "" if done == run.plan.inputs else f", with {counted(run.plan.inputs - done, 'input')} still to be certified"
    raise InputError(f"{run.folder} has no certificate of input {number}{left}")


def numbers_of(run: Run, part: int, certs: Certificates) -> list[int]:
    """The numbers by which people know the inputs of a part: those in the data set, or their rows in the run."""
    return list(run.rows(part)) if certs.index is None else certs.index.tolist()


def name_of(run: Run, part: int, row: int) -> str | None:
    """What people call the input in a row of a part, where the run knows."""
    return run.plan.ids[run.rows(part)[row]] if run.plan.ids else None


def input_of(certs: Certificates, row: int, number: int, name: str | None) -> dict[str, Any]:
    """Everything about the input in a row, see `one_input`. The features come sorted: least room first."""
    net = certs.network
    assert net is not None
    label = int(certs.labels[row])
    return {
        "input": number,
        "name": name,
        "status": certs.status[row],
        "message": certs.message[row],
        "label": label if label >= 0 else None,
        "class": net.about.classes[label] if net.about.classes and 0 <= label < len(net.about.classes) else None,
        "conditions": None if certs.spec_group is None else len(certs.spec_group.unique()),
        "deployed": certs.settings["deployed"],
        "uniform_radius": float(certs.uniform[row]),
        "shares": certs.settings.get("shares", False),
        "geomean": float(certs.geomean[row]),
        "ratio": float(certs.ratio[row]),
        "margin": float(certs.margins[row].min()),
        "search": certs.ended[row],
        "region": certs.shape,
        "extent": extent_of(certs),
        "counterexample": _counterexample(certs, row),
        "features": _features(certs, net, row) if certs.status[row] == "certified" else [],
        "stated": list(_STATED),
    }


def _features(certs: Certificates, net: Network, row: int) -> list[dict[str, Any]]:
    """Feature by feature, and of a table column by column; least room first, as a share where it is known, and what
    does not move last."""
    own, states = certs.rows(row, row + 1), states_of(certs, row)  # what is computed, of this row alone
    eps, capped, room = own.eps.flatten().tolist(), own.capped.flatten().tolist(), own.room
    shares = [math.nan] * len(eps) if room is None else room.flatten().tolist()
    x, ends = _coordinates(certs, row)
    sides = _sides(own, x, ends) if ends else None
    names = feature_titles(net) if certs.basis is None else [f"direction {k}" for k in range(len(eps))]
    table = (net.about.table if certs.basis is None else None) or Table(tuple(Column(title) for title in names))
    features, looked = [], faces_looked_at(certs, row)
    for column, place, note in zip(table.columns, table.places, notes_of(own, table)[0]):
        k = place.start
        found: dict[str, Any] = {"feature": column.name, "number": k, "value": x[k], "extent": eps[k]}
        if ends and sides:
            found.update(lower=ends[0][k], upper=ends[1][k], down=sides[0][k], up=sides[1][k])
        if certs.seen_lower is not None and certs.seen_upper is not None:
            seen = (float(t[row].flatten()[k]) for t in (certs.seen_lower, certs.seen_upper))
            found.update(zip(("seen_lower", "seen_upper"), (v if math.isfinite(v) else None for v in seen)))
            # Counterexamples know no whole numbers: of these it is not said between which values nothing is known.
            told = looked and column.decimals is None
            found["open_below"], found["open_above"] = open_ends(certs, row, k) if told else (None, None)
        if column.levels is not None:  # whose codes are nobody's business
            found = dict.fromkeys(found) | {"feature": column.name, "number": k, "extent": 0.0}
            found["value"], found["levels"] = words(column, x[place]), levels_allowed(own, column)[0]
        share = None if math.isnan(shares[k]) or column.levels is not None else shares[k]
        if states is not None:
            # Of a category corners are the hull of codes, which says nothing of the levels between.
            found["state"] = states[k] if column.levels is None else FROZEN
        kind = {"unit": column.unit, "kind": kind_of(column), "decimals": column.decimals}
        features.append({**found, "capped": capped[k], "share": share, **kind, "note": note})

    def order(f: dict[str, Any]) -> tuple[bool, bool, float]:
        held = f["extent"] == 0 and STUCK not in f["note"]
        return held, f["share"] is None, f["extent"] if f["share"] is None else f["share"]

    if states is not None:
        return sorted(features, key=lambda f: (NEEDS, OPEN, FREE, FROZEN).index(f["state"]))
    return sorted(features, key=order)


def faces_looked_at(certs: Certificates, row: int) -> bool:
    """Whether counterexamples were looked for beyond each face of the box in a row by itself."""
    if certs.seen_lower is None or certs.lower is None or certs.upper is None:
        return False
    return int((certs.upper[row] > certs.lower[row]).sum()) <= MOST_FACES


def open_ends(certs: Certificates, row: int, k: int) -> tuple[Ends, Ends]:
    """Below and above the range of a feature, the interval, if it is wider than 5 % of the range, in which nothing is
    proved and no counterexample was found while the others stay in theirs: from the range to what was seen, or to the
    end of the domain; None stands for an end that there is not."""
    lower, upper, *seen = (
        float(t[row].flatten()[k]) for t in (certs.lower, certs.upper, certs.seen_lower, certs.seen_upper)
        if t is not None
    )  # fmt: skip
    least, most = -math.inf, math.inf
    if certs.lowest is not None and certs.highest is not None:
        of = 0 if len(certs.lowest) == 1 else row
        least, most = (float(t[of].flatten()[k]) for t in (certs.lowest, certs.highest))
    near = CLOSE * (upper - lower)
    below, above = max(least, seen[0]), min(most, seen[1])
    told = [None if math.isinf(v) else v for v in (below, above)]
    moves = upper > lower
    return (
        [told[0], lower] if moves and lower - below > near else None,
        [upper, told[1]] if moves and above - upper > near else None,
    )


def _sides(one: Certificates, x: list[float], ends: tuple[list[float], list[float]]) -> tuple[list[float], list[float]]:
    """How far each feature, or direction, of the one input may fall and rise; never too much."""
    down, up = one.down, one.up
    if down is not None and up is not None:
        return down.flatten().tolist(), up.flatten().tolist()
    return [inward(a, b) for a, b in zip(x, ends[0])], [inward(b, a) for a, b in zip(x, ends[1])]


def inward(high: float, low: float) -> float:
    """The difference, rounded down where it is no float64 number; 0 where it is negative."""
    found = high - low
    if found > 0 and math.isfinite(found) and Fraction(found) > Fraction(high) - Fraction(low):
        found = math.nextafter(found, 0.0)
    return max(0.0, found)


def states_of(certs: Certificates, row: int) -> list[str] | None:
    """What an explanation says of each feature: that it is free by the corners and the domain, which are proved; the
    rest as the run states it. None where the run has no explanations."""
    if (
        certs.kept is None
        or certs.lower is None
        or certs.upper is None
        or certs.lowest is None
        or certs.highest is None
    ):
        return None
    k = 0 if len(certs.lowest) == 1 else row
    low, high = certs.lowest[k].flatten(), certs.highest[k].flatten()
    whole = (certs.lower[row].flatten() == low) & (certs.upper[row].flatten() == high) & (low < high)
    named = {FIXED: FROZEN, NEEDED: NEEDS, UNDECIDED: OPEN}
    return [FREE if free else named[kept] for free, kept in zip(whole.tolist(), certs.kept[row].flatten().tolist())]


def _counterexample(certs: Certificates, row: int) -> dict[str, Any] | None:
    """The scale of the region, at most, at which it holds a counterexample, and that; both None where none was found.
    None where none was looked for."""
    if certs.reach is None or certs.seen is None or certs.status[row] != "certified":
        return None
    reach = float(certs.reach[row])
    found = math.isfinite(reach)
    return {"reach": reach if found else None, "point": certs.seen[row].flatten().tolist() if found else None}


def _coordinates(certs: Certificates, row: int) -> tuple[list[float], tuple[list[float], list[float]] | None]:
    """Of an input: its features, or what they are along the directions of its region's basis, and between which ends
    each may move whatever the others do: None for shapes in which that depends on the others."""
    x, center, eps = (t[row].flatten() for t in (certs.x, certs.center, certs.eps))
    if certs.lower is not None and certs.upper is not None:
        return x.tolist(), (certs.lower[row].flatten().tolist(), certs.upper[row].flatten().tolist())
    if certs.basis is not None:
        if not certs.orthogonal:
            raise InputError("the run's basis is not orthogonal, so that its directions mean nothing")
        x, center = torch.linalg.solve(certs.basis, torch.stack([x, center], 1)).unbind(1)
    if extent_of(certs) != HALF_WIDTH:
        return x.tolist(), None
    # Rounded inwards: a sum is within half a unit of its last place.
    lower, upper = torch.nextafter(center - eps, center), torch.nextafter(center + eps, center)
    return x.tolist(), (lower.tolist(), upper.tolist())
