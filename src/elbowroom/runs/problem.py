"""From settings to what `certify` is asked for: features by their numbers, regions and solvers as objects."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from elbowroom.arguments.features import known_names, numbers_of
from elbowroom.errors import InputError
from elbowroom.machine.device import usable_device
from elbowroom.network.graph import Network
from elbowroom.runs.settings import Settings
from elbowroom.runs.values import ALL, FROM_DATA, OBSERVED, nearest
from elbowroom.search.regions.oblique import Oblique
from elbowroom.search.regions.registry import region_named
from elbowroom.search.solvers.driver import Solver
from elbowroom.search.solvers.registry import solver_class

_NAMED_AT_MOST = 10


def resolve(settings: Settings, net: Network, domain: tuple[float, float] | None) -> Settings:
    """The same settings with every feature known by its number, the data set's `domain` where it was asked for, and
    the task that follows from the claim. A domain that is the data's range stays so: see `elbowroom.runs.ranges`."""
    settings = settings.settled()
    found = settings.domain
    if found == FROM_DATA:
        if domain is None:
            raise InputError("domain: the data state none; give the lowest and the highest valid value")
        found = {ALL: [None if math.isinf(end) else float(end) for end in domain]}
    frozen = None
    if settings.frozen is not None:
        frozen = [str(k) for k in sorted({k for text in settings.frozen for k in features_named(text, net, "frozen")})]
    return dataclasses.replace(
        settings,
        frozen=frozen,
        domain=found if found == OBSERVED else _by_number(found, net, "domain"),
        room_scale=_by_number(settings.room_scale, net, "room_scale"),
        max_eps=_by_number(settings.max_eps, net, "max_eps"),
        importance=_by_number(settings.importance, net, "importance"),
    )


def arguments(settings: Settings, net: Network, basis: torch.Tensor | None = None) -> dict[str, Any]:
    """The arguments of `certify` that are the same for all inputs, from resolved settings. `basis`: directions that
    were found for the run, `n x n`."""
    region = region_named(settings.region)
    if basis is not None and isinstance(region, Oblique):
        region = region.along(basis)
    frozen = None
    if settings.frozen is not None:
        frozen = np.zeros(net.n_inputs, dtype=bool)
        frozen[[int(k) for k in settings.frozen]] = True
        frozen = frozen.reshape(net.input_shape)
    domain = None
    if settings.domain is not None:
        lowest = {k: -math.inf if low is None else low for k, (low, _) in settings.domain.items()}
        highest = {k: math.inf if high is None else high for k, (_, high) in settings.domain.items()}
        domain = (_spread(lowest, -math.inf, net), _spread(highest, math.inf, net))
    return {
        "region": region,
        "bounds": settings.bounds,
        "margin": settings.margin,
        "solver": _solver(settings),
        "objective": settings.objective,
        "domain": domain,
        "frozen": frozen,
        "importance": None if settings.importance is None else _spread(settings.importance, 1.0, net),
        "max_eps": None if settings.max_eps is None else _spread(settings.max_eps, math.inf, net),
        "delta": settings.delta,
        "precision": settings.precision,
        "deployed": settings.deployed,
        "reach": settings.reach,
        "effort": settings.effort,
        "proof_bytes": settings.proof_bytes,
        "memory": settings.memory,
        "batch": settings.batch,
        "device": device_of(settings),
        "room_scale": None if settings.room_scale is None else _spread(settings.room_scale, 0.0, net),
    }


def device_of(settings: Settings) -> torch.device:
    """The device that was asked for; else a GPU, where there is one."""
    return usable_device(settings.device)


def _solver(settings: Settings) -> Solver:
    kind = solver_class(settings.solver)
    known: dict[str, type] = {field.name: type(field.default) for field in dataclasses.fields(kind)}
    options: dict[str, Any] = {}
    for name, value in (settings.solver_options or {}).items():
        if name not in known:
            raise InputError(f"solver_options: {settings.solver} has no {name!r}{nearest(name, known)}")
        if known[name] is int and (value != int(value) or value < 0):
            raise InputError(f"solver_options: {name} must be a whole number that is not negative, got {value:g}")
        options[name] = known[name](value)
    solver: Solver = kind(**options)
    return solver


def _spread(table: Mapping[str, float], other: float, net: Network) -> np.ndarray:
    """A value per feature, `*input_shape`."""
    found = np.full(net.n_inputs, table.get(ALL, other), dtype=np.float64)
    for k, value in table.items():
        if k != ALL:
            found[int(k)] = value
    return found.reshape(net.input_shape)


def _by_number(table: Mapping[str, Any] | None, net: Network, setting: str) -> dict[str, Any] | None:
    if table is None:
        return None
    found: dict[str, Any] = {}
    for name, value in table.items():
        keys = [ALL] if name == ALL else [str(k) for k in features_named(name, net, setting)]
        for key in keys:
            if key in found:
                raise InputError(f"{setting}: feature {key} has two values")
            found[key] = value
    return found


def by_feature_text(texts: list[str], net: Network, setting: str) -> dict[int | str, str]:
    """A table from features' numbers, or "*" for all others, to texts, from texts such as "age=3", "0-9=2%" or "5"."""
    table: dict[str, str] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        name = name.strip() or ALL
        if name in table:
            raise InputError(f"{setting}: {'all features have' if name == ALL else f'{name} has'} two values")
        table[name] = value
    found = _by_number(table, net, setting) or {}
    return {name if name == ALL else int(name): value for name, value in found.items()}


def features_named(text: str, net: Network, setting: str) -> list[int]:
    """The numbers of the features that a text names: one by its name (of a table's column of categories, all its
    entries), or numbers and names such as "0-9,17,age"."""
    names, count = known_names(net), net.n_inputs
    if text in names:
        found = numbers_of(net, text)
        if text.isdecimal() and int(text) < count and [int(text)] != found:
            raise InputError(f"{setting}: {text!r} is the name of feature {found[0]} and the number of another one")
        return found
    if "," in text:
        return [k for part in text.split(",") for k in features_named(part.strip(), net, setting)]
    match = re.fullmatch(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", text)
    if match is None:
        shown = ", ".join(names[:_NAMED_AT_MOST]) + (", ..." if len(names) > _NAMED_AT_MOST else "")
        hint = f"; the features are {shown}" if names else "; the features have no names, only numbers"
        raise InputError(f"{setting}: there is no feature {text!r}{nearest(text, names) or hint}")
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last < count:
        raise InputError(f"{setting}: the features have the numbers 0 to {count - 1}, not {text}")
    return list(range(first, last + 1))
