"""Encoders of categories: the numbers that each level of a column becomes.

Codes follow from what an encoder states about itself after `fit`; the model's own answers are compared with them at
every level (`compared.py`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from elbowroom.network.table import Code
from elbowroom.readers.flow import Coding, Flow, Plan, Raw, level_of, refuse_many
from elbowroom.readers.reading import refuse
from elbowroom.readers.sklearn.steps import Step


def encoders() -> dict[type, Step]:
    from sklearn import preprocessing as p

    return {p.OneHotEncoder: _encoder(_one_hot), p.OrdinalEncoder: _encoder(_ordinal)}


def _encoder(read: Any) -> Step:
    def step(plan: Plan, flow: Flow, encoder: Any, where: str) -> Flow:
        found: Flow = ()
        for k, item in enumerate(flow):
            if not isinstance(item, Raw):
                refuse(
                    "encodes what an earlier step computed, and categories are those of the table: put it in front, "
                    "behind nothing but an imputer"
                )
            name = plan.names[item.column]
            try:
                coding = read(encoder, k)
            except _Many:
                refuse(f"finds both None and NaN among the categories of {name!r}: make them one")
            if coding is None:
                plan.notes.append(f"{name!r} has one category for the encoder, which it drops: it is no input")
                plan.constant[item.column] = encoder.categories_[k][0]
                continue
            if any(level is None for level in coding.raw):
                plan.notes.append(
                    f"{name!r} has the category None, for which NaN is taken, too; scikit-learn itself tells them apart"
                )
            found += plan.coded(item, coding, where)
        return found

    return step


class _Many(Exception):
    """Two levels that a table cannot tell apart."""


def _one_hot(encoder: Any, k: int) -> Coding | None:
    raw = encoder.categories_[k]
    group = _groups(encoder, k)
    dropped = None if encoder.drop_idx_ is None else encoder.drop_idx_[k]
    if dropped is not None:
        dropped = group[dropped]
    kept = [g for g in sorted(set(group)) if g != dropped]
    if not kept:
        return None
    refuse_many(len(raw), len(kept))

    def code(g: int | None) -> Code:
        return tuple(float(g == own) for own in kept)

    unknown: Code | None = code(None)
    if encoder.handle_unknown == "error":
        unknown = None
    elif encoder.handle_unknown != "ignore" and _infrequent(encoder, k) is not None:
        unknown = code(max(group))
    return _coding(raw, [code(g) for g in group], unknown)


def _ordinal(encoder: Any, k: int) -> Coding | None:
    raw = encoder.categories_[k]
    present = [j for j, level in enumerate(raw) if not _is_nan(level)]
    group = dict(zip(present, _groups(encoder, k, present)))
    codes: list[Code | None] = [(float(group[j]),) if j in group else None for j in range(len(raw))]
    missing = float(encoder.encoded_missing_value)
    if math.isfinite(missing):
        codes = [(missing,) if code is None else code for code in codes]
    unknown: Code | None = None
    if encoder.handle_unknown == "use_encoded_value" and math.isfinite(float(encoder.unknown_value)):
        unknown = (float(encoder.unknown_value),)
    known = [j for j, code in enumerate(codes) if code is not None]
    if not known:
        refuse("saw nothing but missing values in a column; leave it out")
    return _coding([raw[j] for j in known], [code for code in codes if code is not None], unknown)


def _infrequent(encoder: Any, k: int) -> Any:
    """The rare levels of feature `k` that are taken together; None where there are none."""
    found = getattr(encoder, "infrequent_categories_", None)
    return None if found is None else found[k]


def _groups(encoder: Any, k: int, present: list[int] | None = None) -> list[int]:
    """Which number each level (of those `present`) has: its own, in order, or the last one, of all that are rare."""
    levels = [level for j, level in enumerate(encoder.categories_[k]) if present is None or j in present]
    rare = _infrequent(encoder, k)
    if rare is None:
        return list(range(len(levels)))
    # Levels and rare ones stand in the same order; NaN is no key, and stands last.
    few = {None if _is_nan(one) else one for one in rare}
    is_rare = [(None if _is_nan(level) else level) in few for level in levels]
    number = {j: k for k, j in enumerate(j for j, yes in enumerate(is_rare) if not yes)}
    return [number.get(j, len(number)) for j in range(len(levels))]


def _coding(raw: Any, codes: list[Code], unknown: Code | None) -> Coding:
    levels = tuple(level_of(_plain(level)) for level in raw)
    if levels.count(None) > 1:
        raise _Many
    return Coding(levels, tuple(codes), unknown, tuple(raw))


def _plain(level: Any) -> Any:
    return level.item() if isinstance(level, np.generic) and not isinstance(level, np.datetime64) else level


def _is_nan(level: Any) -> bool:
    return isinstance(level, float | np.floating) and bool(np.isnan(level))


__all__ = ["encoders"]
