"""Which inputs are shown feature by feature: all of a small run; of a large one the worst, the best, some between."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from elbowroom.errors import InputError

MOST_CELLS = 150_000  # features of inputs, over all runs: some 7 MB of page
_EACH = 8  # of the worst, the best and those in the middle
_FAILED = 3  # of each status without a certificate


def asked_for(text: str | None) -> list[int]:
    """The numbers in a text such as "0-9,17"."""
    found: list[int] = []
    for item in (text or "").split(",") if text else ():
        match = re.fullmatch(r"\s*([0-9]{1,12})\s*(?:-\s*([0-9]{1,12})\s*)?", item)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise InputError(f"inputs must be numbers such as 0-9,17, got {item!r:.40}")
        last = int(match[2] or match[1])
        if last - int(match[1]) > MOST_CELLS:
            raise InputError(f"inputs: {item.strip()} are more than a page can show")
        found += range(int(match[1]), last + 1)
    return list(dict.fromkeys(found))


def chosen(
    tables: Sequence[dict[str, Any]], asked: Sequence[int], changed: Iterable[int], each: Sequence[int]
) -> list[list[int]]:
    """The numbers of the inputs to show, for each run in the order in which they matter.

    `tables`: the columns of each run; `asked`: inputs that somebody asked for, `changed`: those that a comparison is
    about; `each`: features of an input, of each run.
    """
    known = [set(table["number"]) for table in tables]
    for number in asked:
        if not any(number in numbers for numbers in known):
            raise InputError(f"inputs: no run here has a certificate of input {number}")
    order = list(dict.fromkeys([*asked, *changed, *(n for table in tables for n in _telling(table))]))
    order += [n for n in sorted(set().union(*known)) if n not in set(order)]
    cells, found = 0, 0
    for number in order:
        cells += sum(size for numbers, size in zip(known, each) if number in numbers)
        if cells > MOST_CELLS and found >= max(1, len(asked)):
            break
        found += 1
    return [[n for n in order[:found] if n in numbers] for numbers in known]


def _telling(table: dict[str, Any]) -> list[int]:
    """The worst, the best, those in the middle, one of each label, and some without a certificate."""
    numbers, sizes, states = table["number"], table["size"], table["status"]
    good = sorted((k for k, s in enumerate(states) if s == "certified"), key=lambda k: sizes[k])
    middle = max(0, (len(good) - _EACH) // 2)
    rows = [*good[:_EACH], *good[middle : middle + _EACH], *good[-_EACH:]]
    by_label: dict[Any, list[int]] = {}
    for k in good:
        by_label.setdefault(table["label"][k], []).append(k)
    rows += [ranked[len(ranked) // 2] for ranked in by_label.values()]
    for status in dict.fromkeys(states):
        if status != "certified":
            rows += [k for k, s in enumerate(states) if s == status][:_FAILED]
    return [numbers[k] for k in rows]
