"""The sets everybody knows, read from their own files in a folder of the user's; nothing is downloaded or unpickled.

MNIST/raw, FashionMNIST/raw     idx files as published, packed by gzip or not
SVHN                            train_32x32.mat, test_32x32.mat
CIFAR10                         cifar-10-batches-bin (the "binary version"), or test_first1000.npz: x, y
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elbowroom.data.arrays import labels_of, read_npz
from elbowroom.data.dataset import Shape
from elbowroom.data.matlab import read_matlab
from elbowroom.data.reading import file_size, one_line, read_bytes, refuse_bomb, require
from elbowroom.errors import InputError

Pixels = tuple[np.ndarray, np.ndarray]

_SMALLER = "give the official files"
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True, eq=False)
class Split:
    """The images of one split: `x`, uint8, `n x c x h x w`; `y`, int64, `n`; the files they came from; remarks."""

    x: np.ndarray
    y: np.ndarray
    files: tuple[Path, ...]
    note: str = ""


@dataclass(frozen=True)
class Choice:
    """One way in which a split may lie on the disk: files relative to the data folder, and their reader."""

    files: tuple[str, ...]
    read: Callable[[Sequence[Path]], Pixels]
    note: str = ""


@dataclass(frozen=True)
class StandardSet:
    """`splits`: for each, the ways it may lie on the disk, the best first. `classes`: names, None for digits."""

    title: str
    shape: Shape
    splits: dict[str, tuple[Choice, ...]]
    classes: tuple[str, ...] | None = None


def load_standard(
    name: str, split: str, data_dir: str | os.PathLike[str] | None, classes: Sequence[int] | None = None
) -> Pixels:
    """Images, uint8, `n x c x h x w`, and labels 0 to 9, int64, `n`, of a set named in `SETS`.

    `classes`: only these, in the order of the set; labels keep their numbers.
    """
    found = read_split(name, split, data_dir)
    if classes is None:
        return found.x, found.y
    unknown = sorted(set(classes) - set(range(10)), key=str)
    if unknown or not len(classes):
        raise InputError(f"classes must be among 0 to 9, got {list(classes)}")
    chosen = np.isin(found.y, list(classes))
    return found.x[chosen], found.y[chosen]


def read_split(name: str, split: str, data_dir: str | os.PathLike[str] | None) -> Split:
    """The whole split, with the files that hold it."""
    known = SETS.get(name)
    if known is None:
        raise InputError(f"the set {name!r} is unknown; known: {', '.join(SETS)}")
    if split not in known.splits:
        raise InputError(f"{name} has no split {split!r}; it has {' and '.join(known.splits)}")
    choices = known.splits[split]
    wanted = ", or ".join(" and ".join(choice.files) for choice in choices)
    folders = usual_folders() if data_dir is None else [Path(data_dir)]
    for folder in folders:
        for choice in choices:
            paths = [folder / file for file in choice.files]
            if all(path.is_file() for path in paths):
                x, y = choice.read(paths)
                _must_be(known, x, y, paths[0])
                return Split(x, y, tuple(paths), choice.note)
    hint = ""
    pickles = "cifar-10-batches-py"
    if name == "cifar10" and any(
        (folder / place / pickles).is_dir() for folder in folders for place in (".", "CIFAR10")
    ):
        hint = f"; {pickles} holds pickles, which can run code and are not read: get the binary version"
    looked = " nor ".join(map(str, folders))
    if data_dir is None:
        hint += "; put them into one of these (nothing is downloaded), or say where they are: `data_dir=DIR`"
    either = "" if len(folders) == 1 else "neither "
    raise InputError(
        f"{name}:{split} was not found: {either}{looked} {'holds' if either else 'does not hold'} {wanted}{hint}"
    )


def usual_folders() -> list[Path]:
    """Where sets are looked for if nobody says: in ELBOWROOM_DATA, where that is set, else in data and datasets, here
    and at home."""
    told = os.environ.get("ELBOWROOM_DATA")
    if told:
        return [Path(told)]
    return [base / name for base in (Path(), Path(os.path.expanduser("~"))) for name in ("data", "datasets")]


def digits_pixels() -> Pixels:
    """scikit-learn's 1797 handwritten digits: pixels 0 to 16, uint8, `n x 1 x 8 x 8`, and labels, int64, `n`."""
    datasets = require("sklearn.datasets", "scikit-learn", "the set digits", "data")
    pixels, classes = datasets.load_digits(return_X_y=True)
    return np.asarray(pixels).astype(np.uint8).reshape(-1, 1, 8, 8), np.asarray(classes, dtype=np.int64)


def _must_be(known: StandardSet, x: np.ndarray, y: np.ndarray, path: Path) -> None:
    if x.shape[1:] != known.shape:
        raise InputError(f"{path}: images of {known.title} have the shape {known.shape}, not {x.shape[1:]}")
    if not len(x):
        raise InputError(f"{path} holds no images")
    if len(x) != len(y):
        raise InputError(f"{path}: there are {len(x)} images, but {len(y)} labels")
    if not 0 <= y.min() <= y.max() <= 9:
        raise InputError(f"{path}: labels must be 0 to 9, found {y.min()} to {y.max()}")


# ---------------------------------------------------------------------------------------------------------------
# Readers


def _read_idx_pair(paths: Sequence[Path]) -> Pixels:
    images, labels = read_idx(paths[0], 3), read_idx(paths[1], 1)
    return images[:, None], labels.astype(np.int64)


def read_idx(path: Path, n_axes: int) -> np.ndarray:
    """An idx file of bytes with so many axes: a magic number, the lengths of the axes (big end first), the bytes."""
    packed = path.suffix == ".gz"
    head_size = 4 + 4 * n_axes
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            head = file.read(head_size)
            if len(head) < head_size or head[:4] != bytes((0, 0, 8, n_axes)):
                start = head[:4].hex()
                raise InputError(f"{path} is not an idx file of bytes with {n_axes} axes: it starts with {start}")
            shape = struct.unpack(f">{n_axes}I", head[4:])
            n_bytes = math.prod(shape)
            if packed:
                refuse_bomb(path, n_bytes, _SMALLER)
            elif head_size + n_bytes != file_size(path):
                stated = head_size + n_bytes
                raise InputError(f"{path} has {file_size(path)} bytes; its header states {stated}")
            data = file.read(n_bytes + 1)  # one more, to see the end and have the sum checked
    except (OSError, EOFError, zlib.error, MemoryError) as error:
        raise InputError(f"{path} is damaged or cut short: {one_line(error)}") from None
    if len(data) != n_bytes:
        more = "more" if len(data) > n_bytes else f"only {len(data)}"
        raise InputError(f"{path}: its header states {n_bytes} bytes, but there are {more}")
    return np.frombuffer(bytearray(data), np.uint8).reshape(shape)


def _read_svhn(paths: Sequence[Path]) -> Pixels:
    """MATLAB's file with X, `32 x 32 x 3 x n`, and y, `n x 1`, from 1 to 10, where 10 is the digit 0."""
    (path,) = paths
    held = read_matlab(path, ("X", "y"))
    x = held["X"]
    if x.dtype != np.uint8 or x.ndim != 4:
        raise InputError(f"{path}: X must hold bytes with 4 axes, not {x.dtype} of shape {x.shape}")
    labels, names = labels_of(held["y"], f"{path}: y")
    if names is not None or (len(labels) and not 1 <= labels.min() <= labels.max() <= 10):
        raise InputError(f"{path}: y must be 1 to 10, found {labels.min()} to {labels.max()}")
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), labels % 10


def _read_cifar(paths: Sequence[Path]) -> Pixels:
    """Records of one byte for the label and 3 x 32 x 32 for the image."""
    record = 1 + 3 * 32 * 32
    parts = []
    for path in paths:
        data = np.frombuffer(read_bytes(path), np.uint8)
        if len(data) % record:
            raise InputError(f"{path} has {len(data)} bytes, which is not a multiple of the {record} of one image")
        parts.append(data.reshape(-1, record))
    rows = np.concatenate(parts)
    return np.ascontiguousarray(rows[:, 1:]).reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)


def _read_cifar_npz(paths: Sequence[Path]) -> Pixels:
    (path,) = paths
    x = read_npz(path, "x")
    if x.dtype != np.uint8:
        raise InputError(f"{path}: x must hold bytes, not {x.dtype}")
    labels, names = labels_of(read_npz(path, "y"), f"{path}: y")
    if names is not None:
        raise InputError(f"{path}: y must hold class numbers")
    return x, labels


def _idx(folder: str, prefix: str) -> tuple[Choice, ...]:
    names = (f"{folder}/raw/{prefix}-images-idx3-ubyte", f"{folder}/raw/{prefix}-labels-idx1-ubyte")
    return (Choice(tuple(f"{name}.gz" for name in names), _read_idx_pair), Choice(names, _read_idx_pair))


def _cifar(files: tuple[str, ...]) -> tuple[Choice, ...]:
    places = ("CIFAR10/cifar-10-batches-bin", "cifar-10-batches-bin")
    return tuple(Choice(tuple(f"{place}/{file}" for file in files), _read_cifar) for place in places)


SETS = {
    "mnist": StandardSet("MNIST", (1, 28, 28), {"test": _idx("MNIST", "t10k"), "train": _idx("MNIST", "train")}),
    "fashion-mnist": StandardSet(
        "Fashion-MNIST",
        (1, 28, 28),
        {"test": _idx("FashionMNIST", "t10k"), "train": _idx("FashionMNIST", "train")},
        _CLOTHES,
    ),
    "svhn": StandardSet(
        "SVHN",
        (3, 32, 32),
        {split: (Choice((f"SVHN/{split}_32x32.mat",), _read_svhn),) for split in ("test", "train")},
    ),
    "cifar10": StandardSet(
        "CIFAR-10",
        (3, 32, 32),
        {
            "test": (
                *_cifar(("test_batch.bin",)),
                Choice(("CIFAR10/test_first1000.npz",), _read_cifar_npz, "from test_first1000.npz"),
            ),
            "train": _cifar(tuple(f"data_batch_{k}.bin" for k in range(1, 6))),
        },
        _THINGS,
    ),
}
