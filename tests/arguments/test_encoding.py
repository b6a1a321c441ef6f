"""Values of tables as the numbers that a network takes for them, and back."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.arguments.encoding import Told, decode, encode, stranger
from elbowroom.network.levels import levels_of, words
from elbowroom.network.table import Column, Table
from support import cases

JOB = Column("job", ("admin", "clerk", None), ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)), unknown=(0.0, 0.0), missing=None)
SIZE = Column("size", (1.0, 2.0, 3.0), ((0.0,), (1.0,), (2.0,)))
AGE = Column("age", missing=40.0, unit="years")
WEIGHT = Column("weight")
YES = Column("yes", (False, True), ((0.0,), (1.0,)))
TEXT = Column("text", ("1", "01", "True", ""), ((0.0,), (1.0,), (2.0,), (3.0,)))


def one(column: Column, values: Any, written: bool = False) -> tuple[list[Any], dict[int, str]]:
    """The codes of a column's values, None for those that are refused, and why."""
    found = encode(Table((column,)), [values], written=written)
    refused = [bool(np.isnan(row).any()) for row in found.values]
    assert refused == found.refused[:, 0].tolist() and set(np.flatnonzero(refused)) == set(found.faults)
    return [None if bad else tuple(row) for bad, row in zip(refused, found.values.tolist())], found.faults


def ways(values: list[Any]) -> list[Any]:
    """The same column as the libraries hold it."""
    text = all(v is None or isinstance(v, str) for v in values)
    found: list[Any] = [values, np.array(values, dtype=object), pd.Series(values, dtype=object)]
    if text:
        column = pa.array(values, pa.string())
        found += [column, column.dictionary_encode(), pa.chunked_array([column[:1], column[1:]])]
        found += [pd.Series(values), pd.Series(values, dtype="category"), pa.array(values, pa.large_string())]
    return found


def test_numbers_of_every_kind() -> None:
    for values in ([1, 2.5, True], np.array([1, 2]), pd.Series([1, None], dtype="Int64"), pa.array([1, 2, None])):
        codes, faults = one(WEIGHT, values)
        assert codes[0] == (1.0,)
        assert all("'weight' is missing" in fault for fault in faults.values())
    assert one(WEIGHT, [Decimal("0.1")])[0] == [(0.1,)]
    assert one(WEIGHT, pa.array([Decimal("0.10")]))[0] == [(0.1,)]
    assert one(WEIGHT, np.array([1.0, np.nan]))[0] == [(1.0,), None]
    assert one(WEIGHT, np.ma.masked_array([1, 2], [False, True]))[0] == [(1.0,), None]
    assert one(AGE, [None, 3, math.nan, pd.NA])[0] == [(40.0,), (3.0,), (40.0,), (40.0,)]


def test_a_number_that_is_none_is_said() -> None:
    for values in ways(["12", " 1e3 ", "abc", "1,5", None]):
        codes, faults = one(WEIGHT, values)
        assert codes == [(12.0,), (1000.0,), None, None, None]
        assert faults[2] == "row 2: 'weight' is 'abc', which is no number"
        assert faults[4] == "row 4: 'weight' is missing"
    for odd in (math.inf, -math.inf, "1e400", "9" * 500, 10**400):
        assert one(AGE, [odd])[0] == [None]
        assert "not finite" in one(AGE, [odd])[1][0]
    assert one(AGE, ["nan"])[0] == one(AGE, ["NA"])[0] == [None]  # a text, where values are not written as text


def test_missing_values_of_a_text_file_are_filled_in_but_never_other_texts() -> None:
    for values in ways(["", "NA", "nan", " ", None, "?", "x", "Infinity"]):
        assert one(AGE, values, written=True)[0] == [(40.0,)] * 5 + [None] * 3


def test_texts_are_levels_exactly() -> None:
    for values in ways(["admin", "clerk", " clerk", "Clerk", None, "painter"]):
        codes, faults = one(JOB, values)
        assert codes == [(0.0, 0.0), (1.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 1.0), (0.0, 0.0)]
        assert not faults
        found = encode(Table((JOB,)), [values])
        assert found.strange[:, 0].tolist() == [False, False, True, True, False, True]
        assert found.filled[:, 0].tolist() == [False, False, False, False, True, False]
        assert found.examples == {0: "' clerk' in row 2"}


def test_levels_that_are_numbers() -> None:
    codes = [(0.0,), (1.0,), (2.0,), None, None]
    assert one(SIZE, [1, 2.0, np.float32(3), 4, None])[0] == codes
    assert one(SIZE, ["1", "2.0", " 3e0", "4", "NA"], written=True)[0] == codes
    assert one(SIZE, ["1", "2"])[0] == [None, None]  # the model would not take them so
    assert one(SIZE, [True, False])[0] == [(0.0,), None]
    assert "none of its levels 1, 2, 3" in one(SIZE, [4])[1][0]


def test_whole_numbers_beyond_float64_are_not_taken_for_others() -> None:
    big = Column("id", (2.0**53, 5.0), ((0.0,), (1.0,)))
    for written, values in ((False, [2**53, 2**53 + 1]), (True, [str(2**53), str(2**53 + 1)])):
        assert one(big, values, written)[0] == [(0.0,), None]
    assert one(big, pa.array([2**53, 2**53 + 1]))[0] == [(0.0,), None]
    decimals = [Decimal(2**53), Decimal(2**53 + 1), Decimal("5.0"), Decimal("Infinity"), Decimal("1E+99999999")]
    assert one(big, decimals)[0] == [(0.0,), None, (1.0,), None, None]


def test_truth_values() -> None:
    assert one(YES, [True, False, 1, 0, 1.0, 2])[0] == [(1.0,), (0.0,), (1.0,), (0.0,), (1.0,), None]
    assert one(YES, ["True", "FALSE", "1", "0", "yes"], written=True)[0] == [(1.0,), (0.0,), (1.0,), (0.0,), None]
    assert one(YES, pa.array([True, None]))[0] == [(1.0,), None]
    assert one(YES, ["True"])[0] == [None]


def test_texts_that_look_like_something_else_are_texts_first() -> None:
    for written in (False, True):
        assert one(TEXT, ["1", "01", "True", "", "001"], written)[0] == [(0.0,), (1.0,), (2.0,), (3.0,), None]
    assert one(TEXT, [1, True])[0] == [None, None]


@pytest.mark.parametrize(
    "values",
    [
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([1], dtype="timedelta64[s]"),
        [datetime.date(2020, 1, 1)],
        [None, datetime.datetime(2020, 1, 1)],
        pd.Series(pd.to_datetime(["2020-01-01", None])),
        pa.array([datetime.datetime(2020, 1, 1)]),
        pa.array([1], pa.time32("s")),
    ],
)
@pytest.mark.parametrize("column", [AGE, JOB])
def test_dates_are_refused_by_name(values: Any, column: Column) -> None:
    with pytest.raises(er.InputError, match=f"'{column.name}' holds dates or times.*days since"):
        encode(Table((column,)), [values])


@pytest.mark.parametrize(
    "values", [[b"a"], [(1, 2)], [[1]], [1j], np.array([1j]), pa.array([[1]]), pa.array([b"a"]), [object()], [{}]]
)
@pytest.mark.parametrize("column", [AGE, JOB])
def test_what_is_neither_text_nor_number_is_refused_by_name(values: Any, column: Column) -> None:
    with pytest.raises(er.InputError, match=f"'{column.name}' holds"):
        encode(Table((column,)), [values])


def test_columns_must_fit() -> None:
    with pytest.raises(er.InputError, match="2 columns, not 1"):
        encode(Table((AGE, JOB)), [[1.0]])
    with pytest.raises(er.InputError, match="as many values"):
        encode(Table((AGE, JOB)), [[1.0], ["admin", "clerk"]])
    empty = encode(Table((AGE, JOB)), [[], []])
    assert empty.values.shape == (0, 3) and not empty.faults


def test_notes_count_over_blocks() -> None:
    table = Table((AGE, JOB, WEIGHT))
    told = Told(table)
    told.add(encode(table, [[1, None], ["clerk", "clerk"], [1, 2]]))
    told.add(encode(table, [[None, 3], ["painter", None], [1, None]], lambda r: f"row {r + 2}"))
    assert told.notes() == (
        "the value of 'age' is missing in 2 rows, for which the model takes 40",
        "the value of 'job' is missing in 1 row, for which the model takes the category of its own",
        "the value of 'job' is none of its levels in 1 row (the first: 'painter' in row 2), which the model takes all "
        "alike",
    )


def test_one_sentence_for_all_that_is_wrong_in_a_row() -> None:
    found = encode(Table((WEIGHT, SIZE)), [["a" * 99, 1], [None, 9]])
    assert found.faults[0] == f"row 0: 'weight' is '{'a' * 40}...', which is no number; 'size' is missing"
    assert found.values.shape == (2, 2) and np.isnan(found.values).tolist() == [[True, True], [False, True]]


def test_back() -> None:
    table = Table((AGE, JOB, SIZE))
    raw = [[1.5, 40.0, 2.0], ["admin", "clerk", None], [1.0, 3.0, 2.0]]
    back = decode(table, encode(table, raw).values)
    assert back[0].tolist() == raw[0] and back[1].tolist() == raw[1] and back[2].tolist() == raw[2]
    strange = decode(table, np.array([[1.0, 1.0, 1.0, 7.0], [math.nan] * 4]))
    assert strange[1].tolist() == strange[2].tolist() == [None, None] and math.isnan(strange[0][1])


def test_words_say_all_that_a_code_may_be() -> None:
    assert words(JOB, (0.0, 0.0)) == "admin or none of the levels"
    assert words(JOB, (1.0, 0.0)) == "clerk" and words(JOB, (0.0, 1.0)) == "missing" and words(JOB, (1.0, 1.0)) == "?"
    assert words(SIZE, (1.0,)) == "2" and words(YES, (1.0,)) == "True"
    rare = Column("rare", ("a", "b"), ((1.0,), (1.0,)))
    assert words(rare, (1.0,)) == "a or b" and levels_of(rare, (1.0,)) == ["a", "b"]
    tenth = Column("tenth", ("a", "b"), ((0.1,), (0.7,)))
    assert levels_of(tenth, np.array([0.1], dtype=np.float32)) == ["a"]


def test_a_stranger_is_none_of_the_levels() -> None:
    for column in (
        Column("a", ("unknown", "unknown_"), ((0.0,), (1.0,)), (2.0,)),
        Column("a", (3.0,), ((0.0,),), (1.0,)),
        Column("a", (1e16, 1e308), ((0.0,), (1.0,)), (2.0,)),  # one more than which is the same
    ):
        found = encode(Table((column,)), [[stranger(column)]])
        assert found.strange.all() and found.values.tolist() == [list(column.unknown or ())]
        assert decode(Table((column,)), found.values)[0][0] == stranger(column)


LEVELS = st.one_of(st.text(max_size=3), st.booleans(), st.floats(allow_nan=False, width=32), st.none())


@cases(0.5)
@given(st.lists(LEVELS, min_size=1, max_size=6), st.lists(LEVELS, min_size=1, max_size=8), st.booleans())
def test_a_value_has_the_code_of_the_level_that_it_is(levels: list[Any], values: list[Any], written: bool) -> None:
    try:
        column = Column("a", tuple(levels), tuple((float(k),) for k in range(len(levels))))
    except er.InputError:  # two of them the same
        return
    codes, _ = one(column, values, written)
    for value, code in zip(values, codes):
        if code is not None:
            level = levels[int(code[0])]
            as_text = written and isinstance(value, str) and not isinstance(level, str)
            assert level == value or (as_text and (float(value) if value not in ("True", "False") else value) == level)
        elif value is not None:
            assert not any(level == value and isinstance(level, str) == isinstance(value, str) for level in levels)
