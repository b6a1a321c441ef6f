"""Whether a network's entries are values of a table's columns: codes of levels, numbers of so many decimals."""

from __future__ import annotations

import numpy as np

from elbowroom.arguments.values import shown
from elbowroom.network.decimals import is_multiple
from elbowroom.network.table import Column, Table


def is_coded(column: Column, codes: np.ndarray) -> np.ndarray:
    """Which rows of `codes`, `b x w`, are those of a level, or of values that are none, `b` booleans."""
    known = np.array([*column.codes, *([] if column.unknown is None else [column.unknown])], dtype=np.float64)
    rounded = known.astype(np.float32).astype(np.float64)
    found: np.ndarray = np.zeros(len(codes), dtype=bool)
    for code in np.unique(np.concatenate([known, rounded]), axis=0):
        found |= (codes == code).all(1)
    return found


def uncoded(table: Table, values: np.ndarray, only_parts: bool = False) -> dict[int, str]:
    """Which rows of a network's entries, `b x n`, hold at a category no code of it, or at a column of whole numbers
    another one, and where; rows that hold NaN are not looked at. `only_parts`: at those alone that data have as numbers
    of their own."""
    faults: dict[int, str] = {}
    whole = np.isfinite(values).all(1)
    for column, place in zip(table.columns, table.places):
        here = values[:, place]
        if column.levels is not None and (column.parts or not only_parts):
            for r in np.flatnonzero(whole & ~is_coded(column, here)).tolist():
                faults.setdefault(r, _no_code(column, here[r].tolist()))
        elif column.decimals is not None and not only_parts:
            # What the model takes for a missing value, a mean say, need not be one.
            filled = np.array([column.missing, np.float32(column.missing)], dtype=np.float64)
            good = is_multiple(here[:, 0], column.decimals) | np.isin(here[:, 0], filled)
            for r in np.flatnonzero(whole & ~good).tolist():
                faults.setdefault(r, f"{column.name!r} is {shown(float(here[r, 0]))}, {too_fine(column)}")
    return faults


def _no_code(column: Column, code: list[float]) -> str:
    numbers = ", ".join(map(shown, code))
    if len(column.parts) < 2:
        return f"{numbers} is no code of a level of {column.name!r}"
    hot = all(sorted(own)[:-1] == [0.0] * (len(own) - 1) and max(own) in (0.0, 1.0) for own in column.codes)
    zeros = any(not any(own) for own in (*column.codes, *(() if column.unknown is None else (column.unknown,))))
    ones = "at most" if zeros else "exactly"
    rule = f"where {ones} one of them is 1, the others 0" if hot else "which is the code of none of its levels"
    return f"the columns of {column.name!r} ({', '.join(column.parts)}) are {numbers}, {rule}"


def too_fine(column: Column) -> str:
    """What is wrong about a value that is not a multiple of what the column's are, in words."""
    return (
        "which is no whole number, as it is declared to be"
        if column.decimals == 0
        else f"which has more than the {column.decimals} decimals that are declared"
    )


__all__ = ["is_coded", "too_fine", "uncoded"]
