"""Which inputs are chosen, in which order, and what cannot be chosen."""

from typing import Any

import numpy as np
import pytest

from elbowroom.data.dataset import Dataset, Rows, number_labels, seen_as
from elbowroom.data.selection import select
from elbowroom.errors import InputError

LABELS = np.array([2, 0, 1, 2, 0, 1, 2, 0, 1, 2])


def dataset(labels: np.ndarray | None = LABELS, classes: tuple[str, str, str] | None = ("cat", "dog", "7")) -> Dataset:
    return Dataset("ten", (1,), 10, "", Rows(np.arange(10.0)[:, None]), labels, classes)


@pytest.mark.parametrize("options, expected", [
    ({}, list(range(10))),
    ({"limit": 3}, [0, 1, 2]),
    ({"limit": 99}, list(range(10))),
    ({"offset": 8}, [8, 9]),
    ({"offset": 2, "limit": 2}, [2, 3]),
    ({"indices": "0-2,7"}, [0, 1, 2, 7]),
    ({"indices": " 9 , 3 - 4 "}, [9, 3, 4]),
    ({"indices": [5, 1]}, [5, 1]),
    ({"indices": np.array([5, 1], np.uint8), "offset": 1}, [1]),
    ({"indices": "9,8,7,6", "offset": 1, "limit": 2}, [8, 7]),
    ({"classes": "cat"}, [1, 4, 7]),
    ({"classes": [0, 1]}, [1, 2, 4, 5, 7, 8]),
    ({"classes": "dog, 0"}, [1, 2, 4, 5, 7, 8]),
    ({"classes": "7"}, [0, 3, 6, 9]),
    ({"classes": ["dog", np.int64(2)]}, [0, 2, 3, 5, 6, 8, 9]),
    ({"classes": "cat", "limit": 2}, [1, 4]),
    ({"classes": "cat", "offset": 1, "limit": 9}, [4, 7]),
    ({"classes": "cat", "indices": "7,0-4"}, [7, 1, 4]),
    ({"classes": "cat", "indices": "7,0-4", "offset": 1, "limit": 1}, [1]),
])  # fmt: skip
def test_select(options: dict[str, Any], expected: list[int]) -> None:
    found = select(dataset(), **options)
    assert found.dtype == np.int64 and found.tolist() == expected


@pytest.mark.parametrize("options, words", [
    ({"limit": 0}, "limit must be a whole number of at least 1"),
    ({"limit": True}, "limit"),
    ({"limit": 2.5}, "limit"),
    ({"offset": -1}, "offset must be a whole number of at least 0"),
    ({"offset": 10}, "no input of ten is left"),
    ({"indices": []}, "no input of ten is left"),
    ({"indices": ""}, "indices must look like 0-9,17"),
    ({"indices": "1,,2"}, "indices must look like"),
    ({"indices": "-3"}, "indices must look like"),
    ({"indices": "1-2-3"}, "indices must look like"),
    ({"indices": "٣"}, "indices must look like"),
    ({"indices": "4-2"}, "the range 4-2 runs backwards"),
    ({"indices": "3,10"}, "ten has the inputs 0 to 9, not 10"),
    ({"indices": "0-999999999999999999"}, "not 999999999999999999"),
    ({"indices": [3, -1]}, "ten has the inputs 0 to 9, not -1"),
    ({"indices": [10]}, "not 10"),
    ({"indices": [1.0]}, "list of whole numbers"),
    ({"indices": [True]}, "list of whole numbers"),
    ({"indices": [[1]]}, "list of whole numbers"),
    ({"indices": [2**64]}, "list of whole numbers"),
    ({"indices": "1,3,0-2"}, "1 is given more than once"),
    ({"indices": "0-9,0-9,0-9"}, "more than once"),
    ({"indices": [4, 4]}, "4 is given more than once"),
    ({"classes": "bird"}, r"ten has no class 'bird'; it has 0 \(cat\), 1 \(dog\), 2 \(7\)"),
    ({"classes": [3]}, "no class 3"),
    ({"classes": [True]}, "no class True"),
    ({"classes": "cat", "indices": "0"}, "no input of ten is left"),
])  # fmt: skip
def test_what_cannot_be_selected(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        select(dataset(), **options)


def test_classes_without_names_or_labels() -> None:
    assert select(dataset(classes=None), classes="2,0").tolist() == [0, 1, 3, 4, 6, 7, 9]
    with pytest.raises(InputError, match="no class '3'; it has 0, 1, 2"):
        select(dataset(classes=None), classes="3")
    with pytest.raises(InputError, match="ten has no labels"):
        select(dataset(labels=None), classes="0")


def test_inputs_are_new_arrays_of_float64() -> None:
    data = Dataset("two", (2, 1), 3, "", Rows(np.arange(6, dtype=np.uint8).reshape(3, 2), 5.0))
    found = data.inputs([2, 0])
    assert found.dtype == np.float64 and found.tolist() == [[[0.8], [1.0]], [[0.0], [0.2]]]
    found[:] = -1
    assert data.inputs(np.array([2])).tolist() == [[[0.8], [1.0]]] and data.inputs([]).shape == (0, 2, 1)
    for wrong, words in (([3], "0 to 2, not 3"), ([-1], "not -1"), ([0.5], "whole numbers"), ("01", "whole numbers")):
        with pytest.raises(InputError, match=words):
            data.inputs(wrong)
    assert repr(data) == "Dataset(two: 3 inputs, 2x1, no labels)"


def test_trouble_names_the_features() -> None:
    values = np.array([[1.0, 2, 3], [np.nan, 0, np.inf]])
    named = Dataset("t", (3,), 2, "", Rows(values), features=("a", "b", "c"))
    assert named.trouble(0) is None and named.trouble(1) == "no finite number in features 'a', 'c'"
    many = Dataset("t", (9,), 1, "", Rows(np.full((1, 9), np.nan)))
    assert many.trouble(0) == "no finite number in features 0, 1, 2, 3, 4 and 4 more"


@pytest.mark.parametrize("texts, numbers, names", [
    (["0", "2", " 1"], [0, 2, 1], None),
    (["10", "2.0", "7."], [10, 2, 7], None),
    (["-1.0", "1.0", "-1.0"], [-1, 1, -1], None),
    (["-1", "1.0", "-1"], [-1, 1, -1], None),
    (["-1", "1", "-1.0"], [0, 2, 1], ("-1", "-1.0", "1")),
    (["1", "1.0", "1."], [0, 2, 1], ("1", "1.", "1.0")),
    (["7", "007", "10"], [2, 0, 1], ("007", "10", "7")),
    (["b", "a", "b "], [1, 0, 1], ("a", "b")),
    (["2", "10", "x"], [1, 0, 2], ("10", "2", "x")),
    (["True", "False"], [1, 0], ("False", "True")),
])  # fmt: skip
def test_number_labels(texts: list[str], numbers: list[int], names: tuple[str, ...] | None) -> None:
    found, classes = number_labels(texts, "here")
    assert found.tolist() == numbers and found.dtype == np.int64 and classes == names


@pytest.mark.parametrize("text", ["-2.5", "2.5", "1e3", "nan", "inf", "9999999999", "9" * 5000, "", None, "  "])
def test_labels_that_are_none(text: str | None) -> None:
    with pytest.raises(InputError, match="here: input 1 has"):
        number_labels(["0", text, "1"], "here")


@pytest.mark.parametrize("found, wanted, good", [
    ((784,), (1, 28, 28), True),
    ((784,), (28, 28), True),
    ((1, 28, 28), (784,), True),
    ((28, 28), (28, 28, 1), True),
    ((3, 32, 32), (3072,), True),
    ((3, 32, 32), (32, 32, 3), False),
    ((3, 32, 32), (3, 1024), False),
    ((2, 3), (3, 2), False),
    ((784,), (28, 27), False),
    ((784,), (-28, -28), False),
    ((784,), (28.0, 28.0), False),
    ((784,), (), False),
    ((784,), "28,28", False),
])  # fmt: skip
def test_seen_as(found: tuple[int, ...], wanted: str | tuple[float, ...], good: bool) -> None:
    assert seen_as(found, None, "here") == found
    if good:
        assert seen_as(found, wanted, "here") == wanted
    else:
        with pytest.raises(InputError):
            seen_as(found, wanted, "here")
