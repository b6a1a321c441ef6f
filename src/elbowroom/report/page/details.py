"""Single inputs of a run: their features, what must stay of the outputs, and how an input is seen as an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from elbowroom.arguments.axes import looks_channels_last
from elbowroom.certificates.result import Certificates
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.report.room import Scale, shares
from elbowroom.runs.one_input import input_of, name_of, numbers_of

_SMALLEST = 4  # pixels along a side of what is seen as an image


def details_of(run: Run, wanted: Sequence[int], scale: Scale) -> list[dict[str, Any]]:
    """Everything about the inputs with these numbers, in this order; see `elbowroom.runs.one_input`. Features have
    their `share` besides, see `elbowroom.report.room`."""
    found: dict[int, dict[str, Any]] = {}
    left = set(wanted)
    for k in run.finished():
        certs = run.read(k)
        numbers = numbers_of(run, k, certs)
        room = shares(certs, scale) if left & set(numbers) else None
        for row, number in enumerate(numbers):
            if number not in left or room is None:
                continue
            left.remove(number)
            one = input_of(certs, row, number, name_of(run, k, row))
            one["categories"] = _categories(run.network, one)
            one["features"] = [entry for f in one["features"] for entry in _entries(f, one, certs.x[row].flatten())]
            for feature in one["features"]:
                share = float(room[row, feature["number"]])
                feature["share"] = share if math.isfinite(share) else None
            one["x"] = certs.x[row].flatten().tolist()
            one["outputs"] = outputs_that_stay(certs, row)
            found[number] = one
        if not left:
            break
    return [found[number] for number in wanted if number in found]


def _categories(net: Network, one: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a table: the columns of categories, their entries, the level that the input has there, and those that its
    region has."""
    table = net.about.table
    by_number = {f["number"]: f for f in one["features"]}
    found = []
    for column, place in zip(table.columns, table.places) if table and one["features"] else ():
        if column.levels is not None:
            own = by_number[place.start]
            entries = list(range(place.start, place.stop))
            found.append({"column": column.name, "entries": entries, "level": own["value"], "levels": own["levels"]})
    return found


def _entries(feature: dict[str, Any], one: dict[str, Any], x: Tensor) -> list[dict[str, Any]]:
    """A feature itself; of a category, its entries, which do not move: columns have one number per entry."""
    if "levels" not in feature:
        return [feature]
    (places,) = (c["entries"] for c in one["categories"] if c["entries"][0] == feature["number"])
    ends = ("lower", "upper") if "lower" in feature else ()
    return [
        {**feature, "number": k, "value": float(x[k]), "extent": 0.0, "capped": False, "share": None}
        | dict.fromkeys(ends, float(x[k]))
        for k in places
    ]


def outputs_that_stay(certs: Certificates, row: int) -> list[dict[str, Any]] | None:
    """Between which ends the specification keeps which outputs, where it is about single outputs: every group has one
    row, and that is an output or its opposite. None for any other, and for "the label stays"."""
    rows, offset, group = certs.spec_rows, certs.spec_offset, certs.spec_group
    if rows is None or offset is None or group is None or certs.status[row] != "certified":
        return None
    if len(group.unique()) != len(group):
        return None
    c, d = (t[row if len(t) > 1 else 0] for t in (rows, offset))
    ones = c.abs()
    if not bool(((ones == 1).sum(1) == 1).all()) or not bool((ones.sum(1) == 1).all()):
        return None
    found: dict[int, dict[str, Any]] = {}
    for t in range(len(c)):
        k = int(ones[t].argmax())
        ends = found.setdefault(k, {"output": k, "above": None, "below": None})
        side, end = ("above", -float(d[t])) if float(c[t, k]) > 0 else ("below", float(d[t]))
        old = ends[side]
        ends[side] = end if old is None else max(old, end) if side == "above" else min(old, end)
    return [found[k] for k in sorted(found)]


def image_of(net: Network, asked: Sequence[int] | None) -> dict[str, Any] | None:
    """How an input is seen as an image: its `height`, `width`, `channels`, and whether these come `last`; None where
    it is none. `asked`: the shape that somebody says it has."""
    shape = tuple(asked) if asked else net.input_shape
    if math.prod(shape) != net.n_inputs or len(shape) not in (2, 3):
        if asked:
            raise InputError(
                f"image_shape must be rows,columns (or channels,rows,columns) of {net.n_inputs:,} numbers in all, got "
                f"{','.join(map(str, asked))}"
            )
        return None
    last = looks_channels_last(shape)
    channels, height, width = (1, *shape) if len(shape) == 2 else (shape[2], *shape[:2]) if last else shape
    if min(height, width) < (1 if asked else _SMALLEST) or channels > 4:
        return None
    return {"height": height, "width": width, "channels": channels, "last": last}


def pixel_names(image: dict[str, Any]) -> list[str]:
    """What the features of an image are called, in the network's order."""
    rows, columns, channels = image["height"], image["width"], image["channels"]
    places = [f"row {i}, column {j}" for i in range(rows) for j in range(columns)]
    if channels == 1:
        return places
    if image["last"]:
        return [f"channel {c}, {place}" for place in places for c in range(channels)]
    return [f"channel {c}, {place}" for c in range(channels) for place in places]
