"""Inputs in NumPy's files: read as they are, by memory-mapping where that is possible, and never unpickled."""

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.samples import put, written
from elbowroom.data.sources import open_data
from elbowroom.errors import InputError

X = np.random.default_rng(0).normal(size=(5, 2, 3))


@pytest.mark.parametrize("dtype", ["f2", "<f4", ">f8", "u1", "i8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path: Path, dtype: str, order: str) -> None:
    x = np.asarray((3 * X).astype(dtype), order=order)
    np.save(tmp_path / "a.npy", x)
    found = open_data(str(tmp_path / "a.npy"))
    assert (found.name, found.shape, found.count, found.domain) == ("a.npy", (2, 3), 5, None)
    assert found.labels is None and found.classes is None and found.features is None and found.ids(3) == "3"
    got = found.inputs([4, 0, 4])
    assert got.dtype == np.float64 and np.array_equal(got, x[[4, 0, 4]].astype(float))


def test_npy_of_version_2(tmp_path: Path) -> None:
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, X, (2, 0))
    assert np.array_equal(open_data(tmp_path / "a.npy").inputs([1]), X[1:2])


def test_npy_is_mapped(tmp_path: Path) -> None:
    """A file of 200 MB (a hole, on the disk) of which three rows are read."""
    rows = 200_000
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (rows, 125)})
        start = file.tell()
        file.truncate(start + rows * 1000)
        file.seek(start + (rows - 1) * 1000)
        file.write(np.arange(125.0).tobytes())
    tracemalloc.start()
    try:
        found = open_data(tmp_path / "a.npy")
        got = found.inputs([0, rows - 1, 7])
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()
    assert got[1].tolist() == list(range(125)) and not got[[0, 2]].any()


def test_a_mapped_file_that_shrank(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    found = open_data(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", X[:2])
    with pytest.raises(InputError, match="cannot be read any more"):
        found.inputs([4])


def test_nan_stays_nan(tmp_path: Path) -> None:
    x = X.copy()
    x[1, 0, 2] = np.nan
    np.save(tmp_path / "a.npy", x)
    found = open_data(tmp_path / "a.npy")
    assert np.array_equal(found.inputs([1]), x[1:2], equal_nan=True)
    assert found.trouble(0) is None and found.trouble(1) == "no finite number in feature 2"


@pytest.mark.parametrize("array, words", [
    (X[0, 0], r"leading axis, n x shape of one; the array has the shape \(3,\)"),
    (np.array(1.0), "leading axis"),
    (X[:0], "holds no inputs"),
    (X[:, :0], "holds no inputs"),
    (X.astype(complex), "real numbers of at most 64 bits, not complex128"),
    (X.astype(np.longdouble), "real numbers of at most 64 bits"),
    (np.full((2, 2), "a"), "real numbers"),
    (np.zeros((2, 2), "f8,f8"), "real numbers"),
    (np.zeros((2, 2), "M8[s]"), "real numbers"),
])  # fmt: skip
def test_arrays_that_are_no_inputs(tmp_path: Path, array: np.ndarray, words: str) -> None:
    put(tmp_path, {"a.npy": written(np.save, array), "a.npz": written(np.savez, x=array)})
    for name in ("a.npy", "a.npz"):
        with pytest.raises(InputError, match=words):
            open_data(tmp_path / name)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    """The file holds a pickle that would raise, were it read."""
    text = b"{'descr': '|O', 'fortran_order': False, 'shape': (1, 1), }"
    bomb = b"\x93NUMPY\x01\x00" + bytes([len(text) + 1, 0]) + text + b"\nc" + b"builtins\nexit\n(tR."
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", bomb)
    put(tmp_path, {"a.npy": bomb})
    for name in ("a.npy", "a.npz"):
        with pytest.raises(InputError, match="Python objects, which are never read"):
            open_data(tmp_path / name)
    for name in ("a.pkl", "a.pt", "a.joblib"):
        put(tmp_path, {name: b"\x80\x04."})
        with pytest.raises(InputError, match="pickles can run code"):
            open_data(tmp_path / name)


@pytest.mark.parametrize("data, words", [
    (b"", "no .npy file"),
    (b"a,b\n1,2\n", "no .npy file"),
    (written(np.save, X)[:-1], "has 367 bytes; its header states 368"),
    (written(np.save, X) + b"1", "has 369 bytes; its header states 368"),
    (written(np.save, X)[:40], "its header makes no sense"),
    (written(np.save, X).replace(b"(5, 2, 3)", b"(5,-2,-3)"), r"its shape is \(5, -2, -3\)"),
    (written(np.save, X).replace(b"(5, 2, 3)", b"(5, 2, x)"), "its header makes no sense"),
    (written(np.save, X).replace(b"\x01\x00", b"\x03\x00", 1), "version 3.0 of the format is unknown"),
])  # fmt: skip
def test_damaged_npy(tmp_path: Path, data: bytes, words: str) -> None:
    put(tmp_path, {"a.npy": data})
    with pytest.raises(InputError, match=words):
        open_data(tmp_path / "a.npy")


@pytest.mark.parametrize("names", ["x,y", "X,Y", "X,y", "inputs,labels", "data,target"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, names: str, save: Callable[..., Any]) -> None:
    first, second = names.split(",")
    save(tmp_path / "a.npz", **{first: X, second: np.array([3, 1, 0, 1, 2], np.uint8), "other": np.eye(2)})
    found = open_data(tmp_path / "a.npz")
    assert (found.name, found.shape, found.count, found.domain) == ("a.npz", (2, 3), 5, None)
    assert found.labels.tolist() == [3, 1, 0, 1, 2] and found.labels.dtype == np.int64 and found.classes is None
    assert np.array_equal(found.inputs([3, 2]), X[[3, 2]])


def test_keys(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=X, b=np.arange(5), x=2 * X, X=3 * X, y=np.ones(5))
    with pytest.raises(InputError, match=r"which array has the inputs.*it holds 'a', 'b', 'x', 'X', 'y'"):
        open_data(tmp_path / "a.npz")
    alone, both = open_data(tmp_path / "a.npz", key="a"), open_data(tmp_path / "a.npz", key="X, b")
    assert alone.labels is None and np.array_equal(alone.inputs([1]), X[1:2])
    assert both.labels.tolist() == [0, 1, 2, 3, 4] and np.array_equal(both.inputs([1]), 3 * X[1:2])
    assert len({d.digest for d in (alone, both, open_data(tmp_path / "a.npz", key="x,b"))}) == 3
    with pytest.raises(InputError, match="the array 'c' is missing or appears twice; it holds 'a'"):
        open_data(tmp_path / "a.npz", key="a,c")
    for wrong in ("", "a,", "a,b,x"):
        with pytest.raises(InputError, match="must be the name of the inputs"):
            open_data(tmp_path / "a.npz", key=wrong)


@pytest.mark.parametrize("labels, numbers, names", [
    (np.array([[1], [0], [1], [2], [2]]), [1, 0, 1, 2, 2], None),
    (np.array([1.0, 0, 1, 2, 2]), [1, 0, 1, 2, 2], None),
    (np.array([1.0, 0, 1, -0.0, 2]), [1, 0, 1, 0, 2], None),
    (np.array(["b", "a", "b", "c", "c"]), [1, 0, 1, 2, 2], ("a", "b", "c")),
    (np.array([b"b", b"a", b"b", b"c", b"c"]), [1, 0, 1, 2, 2], ("a", "b", "c")),
    (np.array([True, False, True, True, False]), [1, 0, 1, 1, 0], ("False", "True")),
])  # fmt: skip
def test_labels_in_npz(tmp_path: Path, labels: np.ndarray, numbers: list[int], names: tuple[str, ...] | None) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=labels)
    found = open_data(tmp_path / "a.npz")
    assert found.labels.tolist() == numbers and found.classes == names


@pytest.mark.parametrize("labels, words", [
    (np.arange(4), "5 inputs in 'x', but 4 labels in 'y'"),
    (np.eye(5), r"one class per input, not an array of shape \(5, 5\)"),
    (np.array([0, 1, 2, 3, -0.5]), "label -0.5, which is not a class number"),
    (np.array([0, 1, 2, 3, 0.5]), "label 0.5, which is not a class number"),
    (np.array([0, 1, 2, 3, np.nan]), "not a class number"),
    (np.zeros(5, complex), "whole numbers or text, not complex128"),
    (np.array([b"\xff"] * 5), "not UTF-8 text"),
    (np.array(["a", "", "b", "c", "d"]), "input 1 has no label"),
])  # fmt: skip
def test_wrong_labels_in_npz(tmp_path: Path, labels: np.ndarray, words: str) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=labels)
    with pytest.raises(InputError, match=words):
        open_data(tmp_path / "a.npz")


def test_zip_bombs_are_refused(tmp_path: Path) -> None:
    """4 GiB of zeros in a few bytes: the length is that stated, not one that was unpacked."""
    entry = b"\x93NUMPY\x01\x00" + b"v\x00" + b"{'descr': '|u1', 'fortran_order': False, 'shape': (4, 1073741824), }"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", entry.ljust(127) + b"\n")
    data = bytearray(file.getvalue())
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    put(tmp_path, {"a.npz": bytes(data)})
    with pytest.raises(InputError, match="would unpack to 4294967294, which is refused as a likely trap"):
        open_data(tmp_path / "a.npz")


def test_a_header_larger_than_its_entry(tmp_path: Path) -> None:
    data = written(np.save, X).replace(b"(5, 2, 3), }  ", b"(5, 2, 3000),}")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", data)
    with pytest.raises(InputError, match="the array 'x' has 368 bytes; its header states 240128"):
        open_data(tmp_path / "a.npz")


def test_entries_that_appear_twice(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", written(np.save, X))
        with pytest.warns(UserWarning):
            archive.writestr("x.npy", written(np.save, 2 * X))
    with pytest.raises(InputError, match="the array 'x' is missing or appears twice"):
        open_data(tmp_path / "a.npz")


def test_digests_follow_content_and_shape(tmp_path: Path) -> None:
    put(tmp_path, {"a.npy": written(np.save, X), "b.npy": written(np.save, X), "c.npy": written(np.save, -X)})
    a, b, c = (open_data(tmp_path / f"{name}.npy").digest for name in "abc")
    flat = open_data(tmp_path / "a.npy", input_shape=(6,))
    assert a == b != c and flat.digest != a
    assert np.array_equal(flat.inputs([1]), X[1:2].reshape(1, 6))
    with pytest.raises(InputError, match="as \\(3, 2\\) its values would be mixed up"):
        open_data(tmp_path / "a.npy", input_shape=(3, 2))
