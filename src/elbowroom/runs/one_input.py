"""One input of a run: its certificate, feature by feature."""

from __future__ import annotations

import math
from typing import Any

import torch

from elbowroom.arguments.axes import looks_channels_last
from elbowroom.certificates.result import FIXED, NEEDED, UNDECIDED, Certificates
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.runs.summary import HALF_WIDTH, extent_of

# What `one_input` has that no proof covers.
_STATED = (
    "input",
    "name",
    "message",
    "class",
    "uniform",
    "ratio",
    "margin",
    "search",
    "features: feature",
    "features: capped",
    "features: seen_lower",
    "features: seen_upper",
    "features: state",
)
FREE, NEEDS, OPEN, FROZEN = "free", "needed", "not decided", "frozen"  # states of features in an explanation


def one_input(run: Run, number: int) -> dict[str, Any]:
    """Everything about the input with this number in the data set, as a JSON object."""
    for k in run.finished():
        certs, rows = run.read(k), run.rows(k)
        numbers = list(rows) if certs.index is None else certs.index.tolist()
        if number in numbers:
            row = numbers.index(number)
            return _as_json(certs, row, number, run.plan.ids[rows[row]] if run.plan.ids else None)
    done = sum(len(run.rows(k)) for k in run.finished())
    left = "" if done == run.plan.inputs else f", and {run.plan.inputs - done:,} inputs are still to be certified"
    raise InputError(f"{run.folder} has no certificate of input {number}{left}")


def _as_json(certs: Certificates, row: int, number: int, name: str | None) -> dict[str, Any]:
    """The features come sorted: least room first."""
    net = certs.network
    assert net is not None
    eps, capped = certs.eps[row].flatten().tolist(), certs.capped[row].flatten().tolist()
    x, ends = _coordinates(certs, row)
    names = feature_names(net) if certs.basis is None else [f"direction {k}" for k in range(len(eps))]
    label = int(certs.labels[row])
    features = []
    states = _states(certs, row)
    order = sorted(range(len(eps)), key=lambda k: (eps[k] == 0, eps[k]))  # frozen features last
    if states is not None:
        order = sorted(range(len(eps)), key=lambda k: (NEEDS, OPEN, FREE, FROZEN).index(states[k]))
    for k in order if certs.status[row] == "certified" else ():
        found = {"feature": names[k], "number": k, "value": x[k], "half_width": eps[k], "capped": capped[k]}
        if states is not None:
            found["state"] = states[k]
        if ends:
            found.update(lower=ends[0][k], upper=ends[1][k])
        if certs.seen_lower is not None and certs.seen_upper is not None:
            seen = (float(t[row].flatten()[k]) for t in (certs.seen_lower, certs.seen_upper))
            found.update(zip(("seen_lower", "seen_upper"), (v if math.isfinite(v) else None for v in seen)))
        features.append(found)
    return {
        "input": number,
        "name": name,
        "status": certs.status[row],
        "message": certs.message[row],
        "label": label if label >= 0 else None,
        "class": net.about.classes[label] if net.about.classes and 0 <= label < len(net.about.classes) else None,
        "conditions": None if certs.spec_group is None else len(certs.spec_group.unique()),
        "deployed": certs.settings["deployed"],
        "uniform": float(certs.uniform[row]),
        "geomean": float(certs.geomean[row]),
        "ratio": float(certs.ratio[row]),
        "margin": float(certs.margins[row].min()),
        "search": certs.ended[row],
        "region": certs.shape,
        "extent": extent_of(certs),
        "counterexample": _counterexample(certs, row),
        "features": features,
        "stated": list(_STATED),
    }


def _states(certs: Certificates, row: int) -> list[str] | None:
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


def feature_names(net: Network) -> list[str]:
    """What features are called: by the model or the data, else by their place."""
    if net.about.features:
        return list(net.about.features)
    shape = net.input_shape
    if looks_channels_last(shape):
        rows, columns, channels = shape
        tail = [f"channel {c}, " for c in range(channels)] if channels > 1 else [""]
        return [f"{c}row {i}, column {j}" for i in range(rows) for j in range(columns) for c in tail]
    if len(shape) == 3:
        channels, rows, columns = shape
        lead = [f"channel {c}, " for c in range(channels)] if channels > 1 else [""]
        return [f"{c}row {i}, column {j}" for c in lead for i in range(rows) for j in range(columns)]
    if len(shape) == 2:
        return [f"row {i}, column {j}" for i in range(shape[0]) for j in range(shape[1])]
    return [f"feature {k}" for k in range(net.n_inputs)]
