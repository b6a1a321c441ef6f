"""Frames of raw values for networks that take rows of a table: what is certified is what stood in the frame."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.arguments.frames import inputs_of
from elbowroom.network.table import Column, Table
from rows import AGE, JOB, PAY, SIZE, TABLE, YES, by_hand, network, rows
from support import cases

NET = network()


def quietly(net: Any, x: Any, **told: Any) -> er.Certificates:
    """With few steps, since it is not the search that is looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", er.DataWarning)
        return er.certify(net, x, **{"solver": er.Sequential(gradients=1), **told})


def test_a_frame_is_certified_as_its_entries_are() -> None:
    raw = rows(12)
    expected = quietly(NET, torch.from_numpy(by_hand(raw)))
    frame = pd.DataFrame(raw)
    ways = [
        frame,
        frame[["job", "age", "yes", "pay", "size"]],
        frame.astype({"job": "category", "size": "category"}),
        pa.table(raw),
        pa.table({**raw, "job": pa.array(raw["job"]).dictionary_encode()}),
        frame[list(TABLE.names)].to_numpy(),  # an array of objects, by place
        by_hand(raw),  # as many entries as the network takes, and more than the table has columns
    ]
    for x in ways:
        found = quietly(NET, x)
        assert torch.equal(found.x, expected.x) and torch.equal(found.lower, expected.lower)
    assert expected.certified.sum() > 8 and er.check(expected).passed.sum() == expected.certified.sum()


def test_frozen_categories_are_held() -> None:
    certs = quietly(NET, pd.DataFrame(rows(12)), frozen=["job", "size", "yes"])
    held = ~torch.from_numpy(TABLE.moves)
    for end in (certs.lower, certs.upper):
        assert end is not None and torch.equal(end[:, held], certs.x[:, held])
    assert bool((certs.eps[certs.certified][:, ~held] > 0).all())
    levels = quietly(NET, pd.DataFrame(rows(3)), frozen=["age", "pay"])  # sets of levels grow without numbers
    assert levels.certified.any() and bool((levels.eps == 0).all())
    with pytest.raises(er.InputError, match="every feature is frozen"):
        quietly(NET, pd.DataFrame(rows(3)), frozen=["age", "pay", "job", "size", "yes"])
    with pytest.raises(er.InputError, match=r"every feature is frozen \(those of categories are held"):
        quietly(NET, pd.DataFrame(rows(3)), frozen=["age", "pay"], region=er.Ellipsoid())
    with pytest.raises(er.InputError, match="those of categories \\('job', 'size', 'yes'\\) cannot"):
        quietly(NET, pd.DataFrame(rows(3)), region=er.Oblique(torch.eye(6)))


def test_a_row_is_a_series() -> None:
    frame = pd.DataFrame(rows(3))
    assert torch.equal(quietly(NET, frame.iloc[1]).x, quietly(NET, frame).x[1:2])


def test_rows_that_cannot_be_taken_are_errors_with_reasons() -> None:
    frame = pd.DataFrame(rows(12))
    frame.loc[1, "pay"] = None
    frame.loc[2, "job"] = "painter"
    frame.loc[3, "size"] = 7
    frame.loc[4, "age"] = None
    frame["yes"] = frame["yes"].astype(object)
    frame.loc[5, "yes"] = "maybe"
    with pytest.warns(er.DataWarning) as warned:
        certs = er.certify(NET, frame)
    assert [k for k, s in enumerate(certs.status) if s == "error"] == [1, 3, 5]
    assert certs.message[1] == "row 1: 'pay' is missing"
    assert certs.message[3] == "row 3: 'size' is 7, which is none of its levels 1, 2, 3"
    assert certs.message[5] == "row 5: 'yes' is 'maybe', which is none of its levels False, True"
    told = " ".join(str(w.message) for w in warned)
    assert "'age' is missing in 1 row, for which the model takes 40" in told and "'painter' in row 2" in told
    assert certs.imputed is not None and certs.imputed.nonzero().tolist() == [[4, 0]]
    assert float(certs.x[4, 0]) == 40.0 and certs.x[2, 1:3].tolist() == [0, 0]
    everything = quietly(NET, pd.DataFrame({**rows(2), "pay": ["a", None]}))
    assert everything.status == ("error", "error")


def test_entries_that_are_no_codes_are_errors() -> None:
    x = torch.from_numpy(by_hand(rows(4)))
    x[1, 1:3] = torch.tensor([1.0, 1.0])
    x[2, 4] = 0.5
    certs = quietly(NET, x)
    assert certs.status[1] == certs.status[2] == "error" and "no code of a level of 'job'" in certs.message[1]
    assert certs.status[0] != "error"


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda f: f.rename(columns={"age": "Age"}), r"no column for 1 of the 5.*'age' \(nearest: 'Age'\)"),
        (lambda f: pd.concat([f, f[["age"]]], axis=1), "the column 'age' is there twice"),
        (lambda f: f.assign(age=pd.to_datetime("2020-01-01")), "'age' holds dates or times"),
        (lambda f: f.to_numpy()[:, :4], "rows of 5 values are needed"),
        (lambda f: f.assign(job=[[1]] * len(f)), "'job' holds list"),
    ],
)
def test_frames_that_are_refused(change: Any, words: str) -> None:
    with pytest.raises(er.InputError, match=words):
        quietly(NET, change(pd.DataFrame(rows(3))))


def test_numbers_by_name() -> None:
    frame = pd.DataFrame(rows(11))
    entries = torch.from_numpy(by_hand(rows(11)))
    pairs = [
        ({"max_eps": {"age": 2.0}}, {"max_eps": torch.tensor([2.0] + [math.inf] * 5)}),
        ({"importance": {"pay": 3}}, {"importance": torch.tensor([1.0, 1, 1, 3, 1, 1])}),
        ({"frozen": "age"}, {"frozen": torch.tensor([True] + [False] * 5)}),
        ({"frozen": ["pay", "job"]}, {"frozen": torch.tensor([False, True, True, True, False, False])}),
        ({"frozen": ["job=clerk", "pay"]}, {"frozen": torch.tensor([False, True, False, True, False, False])}),
        (
            {"domain": {"age": (0, 120), "job": (0, 1)}},
            {"domain": (torch.tensor([0.0, 0, 0] + [-math.inf] * 3), torch.tensor([120.0, 1, 1] + [math.inf] * 3))},
        ),
        (
            {"max_eps": pd.Series({"age": 1.0, "pay": 9.0, "job": 5.0, "size": 1.0, "yes": 1.0})},
            {"max_eps": torch.tensor([1.0, 5, 5, 9, 1, 1])},
        ),
    ]
    for named, plain in pairs:
        found, expected = quietly(NET, frame, **named), quietly(NET, entries, **plain)
        assert torch.equal(found.lower, expected.lower) and torch.equal(found.eps, expected.eps), named


@pytest.mark.parametrize(
    "told, words",
    [
        ({"max_eps": {"Age": 2.0}}, r"max_eps: there is no feature 'Age' \(nearest: 'age'.*there are 'age', 'job'"),
        ({"max_eps": {"job": 1.0, "job=clerk": 2.0}}, "'job=clerk' has two values"),
        ({"importance": {"age": "much"}}, "the value of 'age' must be a number"),
        ({"frozen": ["ages"]}, "frozen: there is no feature 'ages'"),
        ({"domain": {"age": 3}}, "domain must be a pair .*, or a mapping"),
        ({"domain": "seen"}, "or \"observed\", got 'seen'"),
        ({"room_scale": {"age": -1}}, "room_scale must be finite and not negative"),
    ],
)
def test_wrong_numbers_by_name(told: dict[str, Any], words: str) -> None:
    with pytest.raises(er.InputError, match=words):
        quietly(NET, pd.DataFrame(rows(3)), **told)


def test_a_column_called_like_a_level_is_refused_by_name() -> None:
    """Two things have one name: which was meant cannot be known."""
    codes = ((1.0, 0.0), (0.0, 1.0))
    net = network(Table((Column("a=b", ("x", "y"), codes), Column("a", ("b", "c"), codes), PAY)))
    frame = pd.DataFrame({"a": ["b"], "a=b": ["x"], "pay": [1.0]})
    with pytest.raises(er.InputError, match="'a=b' is a column, and what a level of another one is called"):
        quietly(net, frame, max_eps={"a=b": 1.0})


def test_boxes_between_frames() -> None:
    raw = rows(3)
    low, high = pd.DataFrame(raw), pd.DataFrame(raw)
    high["age"] += 1
    x = torch.from_numpy(by_hand(raw))
    up = x.clone()
    up[:, 0] += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", er.DataWarning)
        assert torch.equal(er.verify(NET, low, high).margins, er.verify(NET, x, up).margins)
        low.loc[1, "pay"] = None
        with pytest.raises(er.InputError, match="lower: row 1: 'pay' is missing"):
            er.verify(NET, low, high)


def test_there_is_nothing_between_two_categories() -> None:
    """Also where their codes are in order, as those of a box would be."""
    frame = pd.DataFrame(rows(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", er.DataWarning)
        for name, one, two in (("job", "clerk", "cook"), ("size", 1, 2), ("yes", False, True)):
            low, high = frame.copy(), frame.copy()
            low.loc[1, name], high.loc[1, name] = one, two
            for a, b, ends in ((low, high, (one, two)), (high, low, (two, one))):
                told = f"row 1: '{name}' is '{ends[0]}' in lower and '{ends[1]}' in upper, and between categories"
                for ask in (er.verify, er.bounds):
                    with pytest.raises(er.InputError, match=told):
                        ask(NET, a, b)


VALUES = {
    "age": st.one_of(st.none(), st.floats(0, 99), st.integers(0, 99), st.sampled_from(["41", "x"])),
    "job": st.sampled_from(["admin", "clerk", "cook", "painter", " cook", None]),
    "pay": st.one_of(st.none(), st.floats(0, 9e4), st.booleans()),
    "size": st.sampled_from([1, 2.0, 3, 4, "1", None, True]),
    "yes": st.sampled_from([True, False, 0, 1, "True", None]),
}


@cases(0.3)
@given(st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=5), st.permutations(list(VALUES)))
def test_any_frame_is_taken_row_by_row(listed: list[dict[str, Any]], order: list[str]) -> None:
    """Each row alone is what it is among others, and each value what its own column says."""
    frame = pd.DataFrame(listed, columns=order, dtype=object)
    certs = quietly(NET, frame, max_eps=1.0)
    for k, row in enumerate(listed):
        alone = quietly(NET, pd.DataFrame([row], columns=list(VALUES), dtype=object), max_eps=1.0)
        assert np.array_equal(alone.x.numpy(), certs.x[k : k + 1].numpy(), equal_nan=True)
        good = all(
            [
                row["age"] != "x",
                row["pay"] is not None,
                row["size"] in (1, 2, 3) and row["size"] != "1" and row["size"] is not None,
                row["yes"] != "True" and row["yes"] is not None,
                row["job"] is not None,
            ]
        )
        assert (certs.status[k] != "error") == good, (row, certs.message[k])
        if good:
            age = 40.0 if row["age"] is None else float(row["age"])
            assert float(certs.x[k, 0]) == age and float(certs.x[k, 3]) == float(row["pay"])
            assert float(certs.x[k, 5]) == (1 if row["yes"] else -1)


def test_one_row_and_one_column() -> None:
    for table in (Table((AGE,)), Table((PAY, JOB)), Table((YES, SIZE, PAY))):
        raw = {name: rows(1)[name] for name in table.names}
        certs = quietly(network(table), pd.DataFrame(raw))
        assert len(certs) == 1 and certs.status[0] in ("certified", "not_certified")


def test_none_among_texts_is_not_taken_for_nan() -> None:
    """scikit-learn leaves None as it is, and an imputer fills NaN alone."""
    column = Column("c", ("a", "b"), ((0.0,), (1.0,)), missing="a")
    net = network(Table((column, Column("n"))))
    for values, refused in (
        (pd.Series(["b", None], dtype=object), True),
        (pd.Series(["b", pd.NA], dtype="string"), True),
        (pd.Series(["b", math.nan], dtype=object), False),
        (pd.Series(["b", "a"], dtype=object), False),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", er.DataWarning)
            taken = inputs_of(net, pd.DataFrame({"c": values, "n": [1.0, 2.0]}), "x")
        assert set(taken.faults) == ({1} if refused else set())
        assert bool(np.isnan(taken.values[1]).all()) == refused and not np.isnan(taken.values[0]).any()
        assert not refused or "tell from NaN" in taken.faults[1]
