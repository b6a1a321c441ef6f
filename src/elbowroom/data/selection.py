"""Which inputs of a set: by class, by index, by place."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from elbowroom.arguments.names import whole_of
from elbowroom.data.dataset import Dataset, whole_numbers
from elbowroom.errors import InputError


def select(
    dataset: Dataset,
    limit: int | None = None,
    offset: int = 0,
    indices: str | Sequence[int] | np.ndarray | None = None,
    classes: str | Sequence[int | str] | None = None,
) -> np.ndarray:
    """The indices of the inputs asked for, int64, in this order of filters.

    `classes`: only these, by number or name, a list or text such as "3,7". `indices`: only these inputs of the set, in
    the order given, a list or text such as "0-9,17"; an index names the same input whatever the classes. Of what
    remains, `offset` inputs are left out at the start, and then at most `limit` are taken.
    """
    _must_count("offset", offset, 0)
    if limit is not None:
        _must_count("limit", limit, 1)
    found = np.arange(dataset.count)
    if indices is not None:
        found = _indices(indices, dataset)
    if classes is not None:
        found = found[np.isin(_labels(dataset)[found], class_numbers(classes, dataset))]
    found = found[offset:] if limit is None else found[offset : offset + limit]
    if not len(found):
        raise InputError(f"no input of {dataset.name} is left by this choice of classes, indices and offset")
    return found


def _must_count(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _indices(given: str | Sequence[int] | np.ndarray, dataset: Dataset) -> np.ndarray:
    if isinstance(given, str):
        found = np.concatenate([np.arange(a, b + 1) for a, b in _ranges(given, dataset)])
    else:
        found = whole_numbers(given, "indices")
        for index in found[(found < 0) | (found >= dataset.count)][:1]:
            raise InputError(_out_of_range(int(index), dataset))
    values, counts = np.unique(found, return_counts=True)
    for index in values[counts > 1][:1]:
        raise InputError(f"indices: {index} is given more than once")
    return found


def _ranges(text: str, dataset: Dataset) -> list[tuple[int, int]]:
    """The pairs (first, last) of "0-9,17", all within the set: a range is never spelt out before it is known to be."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?", part, re.ASCII)
        if match is None:
            raise InputError(f"indices must look like 0-9,17, got {part.strip()!r} in {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise InputError(f"indices: the range {first}-{last} runs backwards")
        if last >= dataset.count:
            raise InputError(_out_of_range(last, dataset))
        found.append((first, last))
    if sum(last - first + 1 for first, last in found) > dataset.count:
        raise InputError(f"indices: {text!r} names some inputs more than once")
    return found


def _out_of_range(index: int, dataset: Dataset) -> str:
    return f"indices: {dataset.name} has the inputs 0 to {dataset.count - 1}, not {index}"


def _labels(dataset: Dataset) -> np.ndarray:
    if dataset.labels is None:
        raise InputError(f"{dataset.name} has no labels, so classes cannot be chosen")
    return dataset.labels


def class_numbers(given: str | Sequence[int | str], dataset: Dataset) -> list[int]:
    """The numbers of classes given by number or name, a list or text such as "3,7"."""
    items = given.split(",") if isinstance(given, str) else list(given)
    return [_class_number(item.strip() if isinstance(item, str) else item, dataset) for item in items]


def _class_number(item: int | str, dataset: Dataset) -> int:
    names = dataset.classes
    known = list(range(len(names))) if names is not None else np.unique(_labels(dataset)).tolist()
    if isinstance(item, str):
        if names is not None and item in names:
            return names.index(item)
        number = int(item) if re.fullmatch(r"-?\d{1,18}", item, re.ASCII) else None
    else:
        number = None if isinstance(item, bool) or not isinstance(item, int | np.integer) else int(item)
    values = None if dataset.own_numbers else whole_of(names or ())
    if number is not None and values is not None and number in values:  # names such as 007, which are numbers
        return values.index(number)
    if number in known and not dataset.own_numbers:  # they follow the alphabet, which nobody may know
        raise InputError(f"the classes of {dataset.name} are names, so choose by name: {', '.join(names or ())}"[:300])
    if number is None or number not in known:
        shown = ", ".join(f"{k} ({names[k]})" if names is not None else str(k) for k in known[:20])
        more = ", ..." if len(known) > 20 else ""
        raise InputError(f"{dataset.name} has no class {item!r}; it has {shown}{more}")
    return number
