"""Named sets: the real files where they are at hand, small ones of the same formats, and what is wrong with others."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from sklearn.datasets import load_digits

from data.samples import COLOUR, EVERY_KIND, IMAGES, LABELS, MNIST, cifar, idx, mnist, put, svhn, written
from elbowroom.data.matlab import read_matlab
from elbowroom.data.sources import open_data
from elbowroom.data.standard import load_standard
from elbowroom.errors import InputError


def test_digits() -> None:
    found = open_data("digits")
    pixels, classes = load_digits(return_X_y=True)
    assert (found.shape, found.count, found.domain, found.features) == ((1, 8, 8), 1797, (0.0, 1.0), None)
    assert np.array_equal(found.inputs([0, 1796]).reshape(2, 64) * 16, pixels[[0, 1796]])
    assert np.array_equal(found.labels, classes) and found.labels.dtype == np.int64
    every = found.inputs(np.arange(1797))
    assert (every.min(), every.max(), every.dtype) == (0, 1, np.float64)
    assert open_data("digits", input_shape=(64,)).inputs([5]).shape == (1, 64)
    with pytest.raises(InputError, match="digits has no splits"):
        open_data("digits:test")


@pytest.mark.parametrize("name, split, first, counts", [
    ("mnist", "test", [7, 2, 1, 0, 4], [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
    ("mnist", "train", [5, 0, 4, 1, 9], [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
    ("fashion-mnist", "test", [9, 2, 1, 1, 6], [1000] * 10),
    ("fashion-mnist", "train", [9, 0, 0, 3, 0], [6000] * 10),
    ("svhn", "test", None, [271, 785, 611, 448, 396, 374, 303, 306, 253, 253]),
    ("svhn", "train", None, [1115, 3041, 2317, 1836, 1671, 1514, 1209, 1182, 1056, 1059]),
    ("cifar10", "test", [3, 8, 8, 0, 6], [103, 89, 100, 103, 90, 86, 112, 102, 106, 109]),
])  # fmt: skip
def test_real_files(shared: Path, name: str, split: str, first: list[int] | None, counts: list[int]) -> None:
    found = open_data(f"{name}:{split}", shared / "data")
    assert np.bincount(found.labels).tolist() == counts and found.count == sum(counts)
    assert first is None or found.labels[:5].tolist() == first
    assert found.shape == ((1, 28, 28) if "mnist" in name else (3, 32, 32)) and found.domain == (0.0, 1.0)
    some = found.inputs(np.arange(0, found.count, 97))
    assert some.dtype == np.float64 and (some.min(), some.max()) == (0, 1)
    x, y = load_standard(name, split, shared / "data")
    assert x.dtype == np.uint8 and x.shape == (found.count, *found.shape) and np.array_equal(y, found.labels)
    assert np.array_equal(some, x[::97] / 255)


def test_real_images_are_upright(shared: Path) -> None:
    """The first test image of MNIST is a 7: a bar at the top, a stem below it, nothing at the left of the stem."""
    seven = open_data("mnist", shared / "data").inputs([0])[0, 0] > 0.5
    assert seven[8:10, 7:20].mean() > 0.5 and not seven[14:, :8].any()
    # A sky is bluer than what is below it; channels come first, and the first is red
    planes = open_data("cifar10", shared / "data")
    some = planes.inputs(np.flatnonzero(planes.labels == 0)).mean(axis=0)
    assert some[2, :8].mean() > some[0, :8].mean() + 0.03


def test_svhn_reads_as_scipy_does(shared: Path) -> None:
    path = shared / "data" / "SVHN" / "test_32x32.mat"
    mine, theirs = read_matlab(path, ("X", "y")), loadmat(path)
    for name in ("X", "y"):
        assert mine[name].dtype == theirs[name].dtype and np.array_equal(mine[name], theirs[name])


@pytest.mark.parametrize("do_compression", [False, True])
def test_matlab_arrays_of_every_type(tmp_path: Path, do_compression: bool) -> None:
    kinds = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
    arrays = {f"a_{kind}": np.arange(6).reshape(1, 2, 3).astype(kind) for kind in kinds}
    arrays |= {
        "short": np.array([[3]], np.uint8),
        "none": np.zeros((0, 4)),
        "a_long_name_of_31_characters__31": np.eye(5),
    }
    path = tmp_path / "a.mat"
    savemat(path, {"text": "no numbers", "cells": {"a": 1}, **arrays}, do_compression=do_compression)
    found = read_matlab(path, tuple(arrays))
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array), name
    for name in ("text", "cells"):
        with pytest.raises(InputError, match=f"{name} is not an array of real numbers"):
            read_matlab(path, (name,))
    with pytest.raises(InputError, match="absent is missing"):
        read_matlab(path, ("absent",))


@pytest.mark.parametrize("kind", ["mnist", "mnist, packed", "svhn", "svhn, packed", "cifar10", "cifar10, npz"])
def test_small_files(tmp_path: Path, kind: str) -> None:
    name, files = EVERY_KIND[kind]
    folder = put(tmp_path, files)
    found = open_data(name, folder)
    expected = IMAGES[:, None] if name == "mnist" else COLOUR
    assert np.array_equal(found.inputs([2, 0]), expected[[2, 0]] / 255)
    assert found.labels.tolist() == LABELS.tolist() and found.labels.dtype == np.int64
    assert np.array_equal(load_standard(name, "test", folder)[0], expected)
    assert (found.classes is None) == (name != "cifar10")


def test_classes_have_their_names(tmp_path: Path) -> None:
    put(tmp_path, mnist(prefix="FashionMNIST/raw/t10k-"))
    put(tmp_path, {"CIFAR10/cifar-10-batches-bin/test_batch.bin": cifar()})
    clothes, things = open_data("fashion-mnist", tmp_path), open_data("cifar10:test", tmp_path)
    assert [clothes.classes[k] for k in clothes.labels] == ["Sneaker", "T-shirt/top", "Ankle boot"]
    assert [things.classes[k] for k in things.labels] == ["horse", "airplane", "truck"]


def test_training_batches_of_cifar10(tmp_path: Path) -> None:
    batches = {f"cifar-10-batches-bin/data_batch_{k + 1}.bin": cifar(COLOUR, np.full(3, k, np.uint8)) for k in range(5)}
    x, y = load_standard("cifar10", "train", put(tmp_path, batches))
    assert y.tolist() == np.repeat(np.arange(5), 3).tolist() and np.array_equal(x, np.concatenate([COLOUR] * 5))
    x, y = load_standard("cifar10", "train", tmp_path, classes=[4, 1])
    assert y.tolist() == [1, 1, 1, 4, 4, 4] and x.shape == (6, 3, 32, 32)
    for wrong in ([10], [-1], []):
        with pytest.raises(InputError, match="classes must be among 0 to 9"):
            load_standard("cifar10", "train", tmp_path, classes=wrong)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(InputError, match=r"data_batch_3\.bin"):
        load_standard("cifar10", "train", tmp_path)


def test_official_cifar10_comes_first(tmp_path: Path) -> None:
    put(tmp_path, EVERY_KIND["cifar10, npz"][1])
    assert open_data("cifar10", tmp_path).name == "CIFAR-10 test (from test_first1000.npz)"
    put(tmp_path, {"CIFAR10/cifar-10-batches-bin/test_batch.bin": cifar(COLOUR[:2], LABELS[:2])})
    found = open_data("cifar10", tmp_path)
    assert (found.name, found.count) == ("CIFAR-10 test", 2)


def test_digest_follows_the_files(tmp_path: Path) -> None:
    folder = put(tmp_path, mnist())
    first = open_data("mnist", folder)
    assert open_data("mnist:test", folder).digest == first.digest and len(first.digest) == 64
    assert open_data("mnist", folder, input_shape=(784,)).digest != first.digest
    put(tmp_path, mnist(labels=np.array([7, 0, 8], np.uint8)))
    assert open_data("mnist", folder).digest != first.digest
    other = IMAGES.copy()
    other[2, 27, 27] ^= 1
    put(tmp_path, mnist(images=other))
    assert open_data("mnist", folder).digest != first.digest


def test_the_usual_folders_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    for place in (here, home):
        place.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("ELBOWROOM_DATA", raising=False)
    words = (
        r"mnist:test was not found: neither data nor datasets nor .*home/data nor .*home/datasets holds MNIST/raw/"
        r"t10k-images-idx3-ubyte\.gz and .*; put them into one of these \(nothing is downloaded\), or say where"
    )
    with pytest.raises(InputError, match=words):
        open_data("mnist")
    put(home / "datasets", mnist())
    assert open_data("mnist").digest == open_data("mnist", home / "datasets").digest
    put(here / "data", mnist(labels=np.array([7, 0, 8], np.uint8)))  # what is nearer comes first
    assert open_data("mnist").digest == open_data("mnist", here / "data").digest
    monkeypatch.setenv("ELBOWROOM_DATA", str(tmp_path / "told"))  # and what was said, alone
    with pytest.raises(InputError, match=r"mnist:test was not found: .*told does not hold MNIST/raw"):
        open_data("mnist")
    put(tmp_path / "told", mnist())
    assert open_data("mnist").digest == open_data("mnist", home / "datasets").digest


def test_what_to_give_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"svhn:train was not found: .* does not hold SVHN/train_32x32\.mat"):
        open_data("svhn:train", tmp_path)
    with pytest.raises(InputError, match="mnist has no split 'validation'; it has test and train"):
        open_data("mnist:validation", tmp_path)
    with pytest.raises(InputError, match="the set 'imagenet' is unknown; known: mnist, fashion-mnist, svhn, cifar10"):
        load_standard("imagenet", "test", tmp_path)
    put(tmp_path, {"cifar-10-batches-py/test_batch": b"\x80\x04."})
    with pytest.raises(InputError, match="pickles, which can run code and are not read: get the binary version"):
        open_data("cifar10", tmp_path)


def head(*numbers: Any) -> Any:
    return struct.pack(f">{len(numbers)}I", *numbers)


@pytest.mark.parametrize("data, words", [
    (b"", "not an idx file of bytes with 3 axes"),
    (b"\x1f\x8b not an idx file", "not an idx file"),
    (idx(LABELS), "not an idx file of bytes with 3 axes: it starts with 00000801"),
    (head(0x0D03, 3, 28, 28) + bytes(3 * 784 * 4), "not an idx file of bytes"),
    (idx(IMAGES)[:-1], "has 2367 bytes; its header states 2368"),
    (idx(IMAGES) + b"0", "has 2369 bytes; its header states 2368"),
    (head(0x0803, 2**32 - 1, 2**32 - 1, 2**32 - 1), "its header states"),
    (idx(IMAGES[:, :27]), r"images of MNIST have the shape \(1, 28, 28\), not \(1, 27, 28\)"),
    (idx(IMAGES[:2]), "2 images, but 3 labels"),
    (head(0x0803, 0, 28, 28), "holds no images"),
])  # fmt: skip
def test_wrong_idx_files(tmp_path: Path, data: bytes, words: str) -> None:
    put(tmp_path, mnist() | {f"{MNIST}images-idx3-ubyte": data})
    with pytest.raises(InputError, match=words):
        open_data("mnist", tmp_path)


PACKED = gzip.compress(idx(IMAGES), mtime=0)


@pytest.mark.parametrize("data, words", [
    (b"", "not an idx file|cut short"),
    (b"plain", "damaged or cut short"),
    (PACKED[:-9], "damaged or cut short"),
    (PACKED[:500], "damaged or cut short"),
    (PACKED[:-8] + bytes(8), "CRC check failed"),
    (gzip.compress(idx(IMAGES)[:-1], mtime=0), "states 2352 bytes, but there are only 2351"),
    (gzip.compress(idx(IMAGES) + b"0", mtime=0), "but there are more"),
    (gzip.compress(head(0x0803, 10**6, 10**3, 10**3), mtime=0), "would unpack to 1000000000000, which is refused"),
])  # fmt: skip
def test_wrong_packed_idx_files(tmp_path: Path, data: bytes, words: str) -> None:
    put(tmp_path, mnist(gzip.compress, ".gz") | {f"{MNIST}images-idx3-ubyte.gz": data})
    with pytest.raises(InputError, match=words):
        open_data("mnist", tmp_path)


def test_labels_that_are_no_digits(tmp_path: Path) -> None:
    put(tmp_path, mnist(labels=np.array([1, 2, 10], np.uint8)))
    with pytest.raises(InputError, match="labels must be 0 to 9, found 1 to 10"):
        open_data("mnist", tmp_path)
    put(tmp_path, {"cifar-10-batches-bin/test_batch.bin": cifar(y=np.array([1, 2, 10], np.uint8))})
    with pytest.raises(InputError, match="labels must be 0 to 9"):
        open_data("cifar10", tmp_path)
    put(tmp_path, svhn(y=np.array([[0], [1], [2]], np.uint8)))
    with pytest.raises(InputError, match="y must be 1 to 10, found 0 to 2"):
        open_data("svhn", tmp_path)


CUBE = COLOUR.transpose(2, 3, 1, 0)


@pytest.mark.parametrize("files, words", [
    (svhn(x=CUBE.astype(float)), "X must hold bytes with 4 axes, not float64"),
    (svhn(x=CUBE[..., 0]), "X must hold bytes with 4 axes"),
    (svhn(x=CUBE.transpose(3, 2, 0, 1)), "images of SVHN have the shape"),
    (svhn(y=np.array([[1.0], [2.5], [3.0]])), "label 2.5, which is not a class number"),
    (svhn(y=np.array([[1], [2]], np.uint8)), "3 images, but 2 labels"),
    (svhn(y=np.eye(3, dtype=np.uint8)), "one class per input"),
    ({"SVHN/test_32x32.mat": b"MATLAB 7.3 MAT-file" + bytes(600)}, "version 7.3, which is not read"),
    ({"SVHN/test_32x32.mat": b"no such thing"}, "no MATLAB file"),
    ({"SVHN/test_32x32.mat": svhn(False)["SVHN/test_32x32.mat"][:-600]}, "cut short"),
])  # fmt: skip
def test_wrong_matlab_files(tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_data("svhn", put(tmp_path, files))


def test_labels_of_svhn_may_be_stored_as_float64(tmp_path: Path) -> None:
    put(tmp_path, svhn(y=np.array([[1.0], [10.0], [3.0]])))
    assert open_data("svhn", tmp_path).labels.tolist() == [1, 0, 3]


@pytest.mark.parametrize("data, words", [
    (written(np.savez, x=COLOUR.astype(float), y=LABELS), "x must hold bytes"),
    (written(np.savez, x=COLOUR, y=np.array(["a", "b", "c"])), "y must hold class numbers"),
    (written(np.savez, x=COLOUR), "the array 'y' is damaged"),
    (written(np.savez, x=COLOUR[:, :, :, :31], y=LABELS), "images of CIFAR-10 have the shape"),
])  # fmt: skip
def test_wrong_cifar10_archives(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_data("cifar10", put(tmp_path, {"CIFAR10/test_first1000.npz": data}))


def test_cut_batches_of_cifar10(tmp_path: Path) -> None:
    put(tmp_path, {"cifar-10-batches-bin/test_batch.bin": cifar()[:-1]})
    with pytest.raises(InputError, match="not a multiple of the 3073 of one image"):
        open_data("cifar10", tmp_path)
