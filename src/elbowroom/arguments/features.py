"""Numbers per feature, from one number, one per channel, one per feature, or names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.axes import looks_channels_last
from elbowroom.arguments.frames import by_name, names_of
from elbowroom.arguments.names import few, nearest_of
from elbowroom.arguments.tensors import tensor_of
from elbowroom.errors import InputError
from elbowroom.network.graph import Network


def numbers_of(net: Network, name: str) -> list[int]:
    """The numbers of the features with this name: one, or all entries of a table's column; none where there is none."""
    table, found = net.about.table, [k for k, own in enumerate(net.about.features or ()) if own == name]
    if table is not None and name in table.names:
        place = table.places[table.names.index(name)]
        column = list(range(place.start, place.stop))
        if found and found != column:
            raise InputError(f"{name!r} is a column, and what a level of another one is called; use numbers instead")
        return column
    return found


def known_names(net: Network) -> tuple[str, ...]:
    """What features may be called: the columns of a table, and its entries."""
    table, features = net.about.table, net.about.features or ()
    return features if table is None else tuple(dict.fromkeys((*table.names, *features)))


def named(net: Network, frozen: Any) -> Any:
    """Booleans for a list of features' names or numbers; anything else as it is.

    Whole numbers are those of features, never a mask: one that lists 0 and 1 for every feature has some twice.
    """
    keys = [frozen] if isinstance(frozen, str) or _is_number(frozen) else frozen
    if not isinstance(keys, list | tuple | range):
        if hasattr(keys, "__array__") and not isinstance(keys, Tensor) and names_of(keys) is None:
            keys = np.asarray(keys)  # a column of pandas, say
        whole = isinstance(keys, Tensor | np.ndarray) and keys.ndim == 1 and not _is_mask(keys)
        keys = keys.tolist() if whole else None
    if not keys or not all(isinstance(key, str) or _is_number(key) for key in keys):
        return frozen
    found = torch.zeros(net.n_inputs, dtype=torch.bool)
    for key in keys:
        here = _places(net, key, "frozen")
        if _is_number(key) and bool(found[here].any()):
            raise InputError(f"frozen: feature {key} is listed twice; a mask has True and False, not 1 and 0")
        found[here] = True
    return found.reshape(net.input_shape)


def _is_mask(array: Any) -> bool:
    """Whether an array holds something else than whole numbers: truth values, or fractions, which are refused later."""
    return not all(_is_number(one) for one in array.tolist())


def _is_number(key: Any) -> bool:
    """Whether this may be the number of a feature."""
    return isinstance(key, int | np.integer) and not isinstance(key, bool)


def spread(net: Network, points: Tensor, value: Any, name: str, other: float = 0.0) -> Tensor:
    """`b x n` numbers from one, one per channel (the first axis), one per feature (matched by name where they have
    names), one per feature and input, or a mapping to numbers from names or numbers of features, in which features
    that are not named have the `other` one."""
    if isinstance(value, Mapping):
        return _by_mapping(net, points, value, name, other)
    value = by_name(net, value, name)
    try:
        t = tensor_of(value).detach().to(points.device)
    except InputError:
        raise InputError(f"{name} must be numbers, got {str(value)[:60]!r}") from None
    shape = net.input_shape
    if t.dim() == 1 and len(shape) > 1:
        if len(t) == shape[0]:
            t = t.reshape(-1, *[1] * (len(shape) - 1))
        elif len(t) == net.n_inputs:
            t = t.reshape(shape)
    try:
        return t.expand(points.shape).flatten(1)
    except RuntimeError:
        raise InputError(f"{name} of shape {tuple(t.shape)} does not fit inputs of shape {shape}") from None


def _by_mapping(net: Network, points: Tensor, value: Mapping[Any, Any], name: str, other: float) -> Tensor:
    found = torch.full((net.n_inputs,), other, dtype=torch.float64, device=points.device)
    given: set[int] = set()
    for key, number in value.items():
        here = _places(net, key, name)
        if given & set(here):
            raise InputError(f"{name}: {key!r} has two values")
        given |= set(here)
        try:
            found[here] = float(number)
        except (TypeError, ValueError):
            raise InputError(f"{name}: the value of {key!r} must be a number, got {number!r:.60}") from None
    return found.expand(len(points), -1)


def _places(net: Network, name: Any, what: str) -> list[int]:
    if _is_number(name):
        if not 0 <= name < net.n_inputs:
            raise InputError(f"{what}: the features have the numbers 0 to {net.n_inputs - 1}, not {name}")
        return [int(name)]
    known = known_names(net)
    if not known:
        raise InputError(f"{what}: features are named, but the network's features have none; see load(features=...)")
    found = numbers_of(net, name) if isinstance(name, str) else []
    if not found:
        raise InputError(f"{what}: there is no feature {name!r}{nearest_of(str(name), known)}; there are {few(known)}")
    return found


def feature_titles(net: Network) -> list[str]:
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
