"""DATA of the command line: what it may be, damaged files of every kind, and packages that are not there."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.samples import EVERY_KIND, put
from elbowroom.data.dataset import Dataset
from elbowroom.data.embedded import digits
from elbowroom.data.sources import open_data
from elbowroom.errors import InputError


def opened(folder: Path, kind: str) -> Dataset | None:
    text, _ = EVERY_KIND[kind]
    return open_data(folder / text if (folder / text).exists() else text, folder)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind(tmp_path: Path, kind: str) -> None:
    put(tmp_path, EVERY_KIND[kind][1])
    found, again = opened(tmp_path, kind), opened(tmp_path, kind)
    assert found.digest == again.digest and len(found.digest) == 64
    indices = np.arange(found.count)
    values = found.inputs(indices)
    assert values.shape == (found.count, *found.shape) and values.dtype == np.float64
    assert np.array_equal(values, again.inputs(indices), equal_nan=True)
    assert found.labels is None or (found.labels.shape == (found.count,) and found.labels.dtype == np.int64)
    if found.domain is not None:
        assert found.domain[0] <= values.min() and values.max() <= found.domain[1]


places = st.floats(0, 1, exclude_max=True)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), places, st.integers(1, 255)),
        st.tuples(st.just("cut"), places, st.just(0)),
        st.tuples(st.just("insert"), places, st.integers(0, 255)),
        st.tuples(st.just("delete"), places, st.integers(1, 8)),
        # heads and footers are where the lengths stand
        st.tuples(st.just("head"), places, st.integers(1, 255)),
        st.tuples(st.just("foot"), places, st.integers(1, 255)),
    ),
    min_size=1,
    max_size=4,
)


def damaged(data: bytes, changes: list[tuple[str, float, int]]) -> bytes:
    data = bytearray(data)
    for kind, place, value in changes:
        if not data:
            break
        span = min(len(data), 300)
        at = {"head": int(place * span), "foot": len(data) - 1 - int(place * span)}.get(kind, int(place * len(data)))
        if kind == "cut":
            del data[at:]
        elif kind == "insert":
            data.insert(at, value)
        elif kind == "delete":
            del data[at : at + value]
        else:
            data[at] ^= value
    return bytes(data)


@pytest.mark.parametrize("kind", EVERY_KIND)
@given(which=st.integers(0, 1), changes=changes)
def test_damage_is_refused_or_seen(kind: str, which: int, changes: list[tuple[str, float, int]]) -> None:
    """Whatever the damage: numbers of the stated shape, or one sentence."""
    files = EVERY_KIND[kind][1]
    victim = list(files)[which % len(files)]
    with tempfile.TemporaryDirectory() as folder:
        put(folder, files | {victim: damaged(files[victim], changes)})
        try:
            found = opened(Path(folder), kind)
            values = found.inputs(np.arange(found.count))
            troubles = [found.trouble(k) for k in range(found.count)]
        except InputError as error:
            assert str(error) and "\n" not in str(error)
        else:
            assert values.shape == (found.count, *found.shape) and values.dtype == np.float64
            assert [t is None for t in troubles] == np.isfinite(values).reshape(found.count, -1).all(axis=1).tolist()


def test_unknown_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = (
        "digits, mnist:test, mnist:train, fashion-mnist:test, fashion-mnist:train, svhn:test, svhn:train, cifar10:test"
    )
    for text in ("imagenet", "MNIST", "nowhere/a.npy", "a\0b"):
        with pytest.raises(InputError, match=f"is neither a file, a folder nor a known set; known sets: {known}"):
            open_data(text)
    for text in ("", "  "):
        with pytest.raises(InputError, match="no data were named"):
            open_data(text)
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        open_data("a" * 5000)
    put(tmp_path, {"a.xlsx": b"", "digits": b""})
    with pytest.raises(InputError, match=r"the ending '\.xlsx' is unknown; known: \.npy, \.npz, \.csv"):
        open_data("a.xlsx")
    assert open_data("digits").count == 1797
    with pytest.raises(InputError, match="the ending '' is unknown"):
        open_data("./digits")


@pytest.mark.parametrize("options, words", [
    ({"label_column": "a"}, r"`label_column` does not apply to .*: it is for tables"),
    ({"feature_columns": ["a"]}, r"`feature_columns` does not apply to .*: it is for tables"),
    ({"key": "x"}, r"`key` does not apply to .*: it is for \.npz files"),
])  # fmt: skip
def test_options_that_do_not_apply(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    put(tmp_path, EVERY_KIND["npy"][1])
    for text in (tmp_path / "a.npy", "digits"):
        with pytest.raises(InputError, match=words):
            open_data(text, **options)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "parquet"])
def test_files_that_may_not_be_read(tmp_path: Path, kind: str) -> None:
    text, files = EVERY_KIND[kind]
    put(tmp_path, files)
    (tmp_path / text).chmod(0)
    with pytest.raises(InputError):
        open_data(tmp_path / text)


@pytest.mark.parametrize("kind, module, words", [
    ("csv", "pyarrow.csv", "reading tables needs pyarrow, which is not installed: pip install pyarrow"),
    ("parquet", "pyarrow.parquet", "reading tables needs pyarrow"),
    ("png", "PIL.Image", "reading images needs pillow, which is not installed: pip install 'elbowroom.data.'"),
])  # fmt: skip
def test_packages_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, module: str, words: str
) -> None:
    put(tmp_path, EVERY_KIND[kind][1])
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=words):
        opened(tmp_path, kind)


def test_digits_need_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    for read in (lambda: open_data("digits"), digits):
        with pytest.raises(InputError, match="the set digits needs scikit-learn, which is not installed"):
            read()


@pytest.mark.parametrize("kind", ["mnist", "svhn", "cifar10", "npz"])
def test_most_kinds_need_numpy_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for module in ("scipy", "scipy.io", "sklearn", "PIL", "PIL.Image", "pyarrow"):
        monkeypatch.setitem(sys.modules, module, None)
    put(tmp_path, EVERY_KIND[kind][1])
    assert opened(tmp_path, kind).count >= 3
