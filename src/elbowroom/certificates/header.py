"""What run.json says: the claim that all certificates of a run share, and the plan; made, and looked at when read."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from elbowroom.certificates import parts
from elbowroom.certificates.result import Certificates, sizes_of
from elbowroom.certificates.schema import Sizes, columns, declared, parts_of
from elbowroom.errors import InputError
from elbowroom.files import BINARY, canonical_json
from elbowroom.network.file import about_hash
from elbowroom.network.graph import Network

_DEEPEST = 16  # lists and objects in one another, in settings
# The data's labels, the network's own decisions, or outputs within a tolerance.
KEPT = ("labels", "decisions", "outputs")


@dataclass(frozen=True)
class Plan:
    """What a run is to do: `inputs` rows, `part_rows` of them in a part.

    `data`: of the data set its `name`, `digest` and `count`, digests of the numbers of the inputs taken (`selection`)
    and of their labels, and what must stay (`kept`: one of `KEPT`). `settings`: how they are certified; what they mean,
    and whether they mean anything, only `elbowroom.runs.stored` can tell, by way of which they are used. `ids`: what
    people call the inputs, a name per row, where that is not too much text. All three are None where certificates were
    saved without a data set. `notes`: what whoever reads the run must know about its data, sentences that begin with
    "note: " or "warning: ".
    """

    inputs: int
    part_rows: int
    data: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    ids: list[str] | None = None
    notes: list[str] = field(default_factory=list)


def claim_of(certs: Certificates, net: Network, shared: Collection[str]) -> dict[str, Any]:
    """What all these certificates share, see `elbowroom.certificates.store`; `shared`: columns with one row for all."""
    settings = {k: v for k, v in certs.settings.items() if k != "network_hash"}
    try:
        canonical_json(settings)
    except (TypeError, ValueError) as error:
        raise InputError(f"the settings cannot be saved: {error}") from None
    sizes = asdict(sizes_of(net, certs.spec_group))
    return {
        "network_hash": certs.settings["network_hash"],
        "about": about_hash(net),
        "settings": settings,
        "sizes": {**sizes, "input_shape": list(sizes["input_shape"])},
        "has": sorted(parts_of(certs)),
        "shared": {name: sha256_of(getattr(certs, name).numpy()) for name in sorted(shared)},
    }


CLAIM = ("network_hash", "about", "settings", "sizes", "has", "shared")


def cells_of(claim: Mapping[str, Any], kind: type[Certificates]) -> dict[str, parts.Cell]:
    """The columns of every part of a run with this claim, in order."""
    return parts.cells_of(columns(kind, claim["has"]), stated_sizes(claim), claim["shared"])


def stated_sizes(claim: Mapping[str, Any]) -> Sizes:
    """The sizes that a claim is about."""
    stated = claim["sizes"]
    rest = (stated[name] for name in ("outputs", "rows", "groups", "levels"))
    return Sizes(tuple(stated["input_shape"]), *rest)


def refuse_odd_claim(claim: Any, kind: type[Certificates], where: str) -> None:
    """Raises `InputError` where a claim as read cannot be one of such certificates."""
    where = f"{where}: claim"
    must_hold(claim, set(CLAIM), where)

    def must(good: bool, name: str, value: Any) -> None:
        if not good:
            raise InputError(f"{where}: {name} cannot be {value!r:.80}")

    must(isinstance(claim["network_hash"], str), "network_hash", claim["network_hash"])
    must(isinstance(claim["about"], str), "about", claim["about"])
    settings, sizes, has, shared = claim["settings"], claim["sizes"], claim["has"], claim["shared"]
    must(isinstance(settings, dict) and "network_hash" not in settings, "settings", settings)
    must_hold(sizes, {f.name for f in fields(Sizes)}, f"{where}: sizes")
    for name, value in sizes.items():
        counts = value if name == "input_shape" else [value]
        must(isinstance(counts, list) and all(map(_is_count, counts)), name, value)
    known = sorted({c.when for c in declared(kind).values() if c.when is not None})
    must(isinstance(has, list) and has == [part for part in known if part in has], "has", has)
    must(isinstance(shared, dict), "shared", shared)
    # What one part shares: all that there is one of in any case, and of the rest all, or nothing.
    here = {name: c for name, c in columns(kind, has).items() if c.shareable or not c.per_input}
    parts_shared = {c.when for name, c in here.items() if c.shareable and name in shared}
    right = {name for name, c in here.items() if not c.per_input or c.when in parts_shared}
    must(shared.keys() == right, "shared", shared)


def plan_of(plan: Any, where: str) -> Plan:
    """The plan as stored, after a look at what it holds."""
    where = f"{where}: plan"
    must_hold(plan, {"inputs", "part_rows", "data", "settings", "ids", "notes"}, where)
    ids, data = plan["ids"], plan["data"]
    if data is not None:
        must_hold(data, {"name", "digest", "count", "selection", "labels", "kept"}, f"{where}: data")
    good = {
        "inputs": _is_count(plan["inputs"]),
        "part_rows": _is_count(plan["part_rows"]) and plan["part_rows"] > 0,
        "data": data is None
        or (data["kept"] in KEPT and all(type(v) is (int if k == "count" else str) for k, v in data.items())),
        "settings": plan["settings"] is None or (isinstance(plan["settings"], dict) and _is_shallow(plan["settings"])),
        "ids": ids is None
        or (isinstance(ids, list) and len(ids) == plan["inputs"] and all(isinstance(i, str) for i in ids)),
        "notes": isinstance(plan["notes"], list) and all(isinstance(note, str) for note in plan["notes"]),
    }
    for name, fine in good.items():
        if not fine:
            raise InputError(f"{where}: {name} cannot be {str(plan[name])[:80]}")
    return Plan(**plan)


def _is_shallow(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether a JSON value nests no deeper than what reads it can follow."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_shallow(entry, depth - 1) for entry in inner)


def sha256_of(array: np.ndarray) -> str:
    """Of the numbers, little end first."""
    return hashlib.sha256(np.ascontiguousarray(array, BINARY[array.dtype.name]).tobytes()).hexdigest()


def must_hold(found: Any, names: set[str], where: str) -> None:
    """Raises `InputError` unless `found` is an object with just these fields."""
    if not isinstance(found, dict):
        raise InputError(f"{where} is damaged: an object was expected, not {found!r}")
    for name in sorted(names ^ set(found)):
        raise InputError(f"{where}: the field {name!r} is {'missing' if name in names else 'unknown'}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 40
