"""What stands in a column of a table, whoever holds it: numbers, texts, truth values, or nothing."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from elbowroom.errors import InputError

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_TEXT_SHOWN = 40
_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


def array_of(given: Any, name: str) -> np.ndarray:
    """A column's values as an array, `b`, of numbers or of Python's objects: texts, numbers, truth values, None."""
    if is_arrow(given):
        given = _from_arrow(given, name)
    elif isinstance(given, np.ma.MaskedArray):
        given = np.ma.filled(given.astype(object), None)
    array = np.asarray(given)
    if array.ndim != 1:
        array = _objects(given)
    if array.dtype.kind in "Mm":
        raise _refuse_dates(name, str(array.dtype))
    if array.dtype.kind == "U":
        array = _objects(given)  # numpy makes texts of numbers that stand beside them
    if array.dtype.kind == "O":
        for value in _distinct_types(array):
            if isinstance(value, _DATES) and not is_missing(value):
                raise _refuse_dates(name, type(value).__name__)
            if not (is_missing(value) or isinstance(value, str | bool | int | float | Decimal | np.bool_ | np.number)):
                raise _refuse_type(name, type(value).__name__)
            if isinstance(value, np.complexfloating):
                raise _refuse_type(name, "complex numbers")
    elif array.dtype.kind not in "fiub":
        raise _refuse_type(name, str(array.dtype))
    return array


def _from_arrow(column: Any, name: str) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind, types = column.type, pa.types
    if types.is_temporal(kind):
        raise _refuse_dates(name, str(kind))
    if types.is_null(kind):
        return np.full(len(column), None, dtype=object)
    if types.is_floating(kind) or (types.is_integer(kind) and not column.null_count):
        return column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    if any(t(kind) for t in (types.is_integer, types.is_boolean, types.is_decimal)) or str(kind) == "string_view":
        return _objects(column.to_pylist())
    raise _refuse_type(name, str(kind))


def is_arrow(column: Any) -> bool:
    return type(column).__module__.partition(".")[0] == "pyarrow"


def holds_text(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _objects(values: Iterable[Any]) -> np.ndarray:
    listed = list(values)
    found = np.empty(len(listed), dtype=object)
    for k, value in enumerate(listed):  # one by one: numpy would look into lists
        found[k] = value
    return found


def _distinct_types(array: np.ndarray) -> list[Any]:
    """A value of every type that is there, missing ones last where others have their type."""
    found: dict[Any, Any] = {}
    for value in array.tolist():
        if type(value) not in found or is_missing(found[type(value)]):
            found[type(value)] = value
    return list(found.values())


def identity(value: Any) -> tuple[Any, Any]:
    """Tells values apart that Python takes for the same, as 1 and True, and has NaN once."""
    return (type(value), None if is_missing(value) else value)


def is_missing(value: Any) -> bool:
    """None, NaN, and what pandas has for them."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _refuse_dates(name: str, kind: str) -> InputError:
    return InputError(
        f"the column {name!r} holds dates or times ({kind}), which the model does not take; give it as a number in the "
        "unit that the model was trained with, such as days since a day of your choice"
    )


def _refuse_type(name: str, kind: str) -> InputError:
    return InputError(f"the column {name!r} holds {kind}; numbers, texts and truth values are read")


def parsed(text: str) -> float | int | None:
    """The number that a text is; whole ones exactly."""
    text = text.strip()
    if not re.match(NUMBER, text, re.ASCII):
        return None
    if re.fullmatch(r"[+-]?\d{1,400}", text, re.ASCII):
        return int(text)
    return float(text)


def shown(value: Any) -> str:
    """A value for a message: texts in quotes, long ones cut."""
    if isinstance(value, str):
        return repr(value[:_TEXT_SHOWN] + "..." * (len(value) > _TEXT_SHOWN))
    if is_missing(value):
        return "missing"
    if isinstance(value, bool | np.bool_ | int):
        return str(value)
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


__all__ = ["NUMBER", "array_of", "holds_text", "identity", "is_arrow", "is_missing", "parsed", "shown"]
