"""How much may change from one run to another before a gate closes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elbowroom.errors import InputError

FINE, EXCEEDED, INCOMPLETE = 0, 1, 3  # exit statuses; 2 is for errors


@dataclass(frozen=True)
class Limit:
    """One limit: the `field` of a comparison that it is about (see `elbowroom.runs.diff.diff_of`), and what that is in
    words."""

    field: str
    words: str


LIMITS = {
    "max_shrink": Limit("most_shrink", "the region of an input shrank by"),
    "max_mean_shrink": Limit("mean_shrink", "the mean size shrank by"),
    "max_lost": Limit("lost", "inputs that lost their certificate:"),
    "max_levels_lost": Limit("levels_lost", "inputs whose regions lost levels of a category:"),
    "max_changed": Limit("changed", "decisions that changed:"),
}


def judged(found: Mapping[str, Any], limits: Mapping[str, str]) -> list[dict[str, Any]]:
    """What was found against each limit, by the names of `LIMITS`: texts such as "10%", "0.1" or, of inputs, "5".

    `exceeded` is None where there is nothing to compare.
    """
    answers = []
    for name, text in limits.items():
        limit = LIMITS[name]
        value = found[limit.field]
        if limit.field == "changed" and value is None:
            raise InputError(f"{name}: these runs are not about decisions")
        of = {"lost": found["both"] + found["lost"], "levels_lost": found["both"], "changed": found["decided"]}.get(
            limit.field
        )
        most = _share(name, text) if of is None else _count(name, text, of)
        answers.append(
            {
                "name": name,
                "limit": text.strip(),
                "found": value,
                "of": of,
                "words": limit.words,
                "exceeded": None if value is None else bool(value > most),
            }
        )
    return answers


def exit_status(found: Mapping[str, Any], answers: list[dict[str, Any]]) -> int:
    """1 where a limit is exceeded; else 3 where runs or inputs are missing, or nothing could be compared; else 0."""
    if any(answer["exceeded"] for answer in answers):
        return EXCEEDED
    return FINE if found["complete"] and all(answer["exceeded"] is not None for answer in answers) else INCOMPLETE


def _share(name: str, text: str) -> float:
    """A share: "10%", or a number from 0 to 1."""
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?|\.[0-9]{1,15})\s*(%?)\s*", text)
    value = None if match is None else float(match[1]) / (100 if match[2] else 1)
    if value is None or value > 1:
        raise InputError(f"{name} must be a share such as 10% or 0.1, got {text!r:.40}")
    return value


def _count(name: str, text: str, of: int) -> float:
    """A whole number, or a share of `of`."""
    if "%" in text:
        return _share(name, text) * of
    if not re.fullmatch(r"\s*[0-9]{1,15}\s*", text):
        raise InputError(f"{name} must be a number of inputs such as 5, or a share such as 1%, got {text!r:.40}")
    return int(text)
