"""NumPy's files: .npy by memory-mapping, .npz into memory. No pickles: object arrays are refused."""

from __future__ import annotations

import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np

from elbowroom.data.dataset import Dataset, Rows, Shape, number_labels, seen_as
from elbowroom.data.reading import file_size, hash_files, one_line, refuse_bomb
from elbowroom.errors import InputError
from elbowroom.files import digest

INPUT_KEYS, LABEL_KEYS = ("x", "X", "inputs", "data"), ("y", "Y", "labels", "target")
# What a damaged file makes the readers of headers and zips raise.
_DAMAGE = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, KeyError,
    IndexError, TypeError, AttributeError, OverflowError, RuntimeError, NotImplementedError, SyntaxError, MemoryError,
)  # fmt: skip


@dataclass(frozen=True)
class Header:
    """What the head of a .npy file says; the numbers start at byte `offset`."""

    dtype: np.dtype
    shape: Shape
    order: Literal["C", "F"]
    offset: int

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class MappedRows:
    """Rows of a .npy file; the file is mapped anew on every call, so the object stays small wherever it is sent."""

    path: Path
    header: Header

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        head = self.header
        try:
            array = np.memmap(self.path, head.dtype, "r", head.offset, head.shape, head.order)
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path} cannot be read any more: {one_line(error)}") from None
        return np.asarray(array[indices], dtype=np.float64)


def open_npy(path: Path, input_shape: Sequence[int] | None) -> Dataset:
    """Inputs `n x *shape` without labels."""
    size = file_size(path)
    try:
        with open(path, "rb") as file:
            head = _header(file)
    except _DAMAGE as error:
        raise InputError(f"{path} is damaged, or no .npy file: {one_line(error)}") from None
    if head.offset + head.n_bytes != size:
        raise InputError(f"{path} has {size} bytes; its header states {head.offset + head.n_bytes}")
    _must_be_inputs(head.dtype, head.shape, f"{path}")
    shape = seen_as(head.shape[1:], input_shape, f"{path}")
    content = digest({"npy": hash_files([path]), "shape": shape})
    return Dataset(path.name, shape, head.shape[0], content, MappedRows(path, head))


def open_npz(path: Path, input_shape: Sequence[int] | None, key: str | None) -> Dataset:
    """Inputs `n x *shape` and, if there is such an entry, labels `n`. `key`: "inputs" or "inputs,labels"."""
    x_key, y_key = _keys(path, key)
    x = read_npz(path, x_key)
    _must_be_inputs(x.dtype, x.shape, f"{path}: {x_key}")
    shape = seen_as(x.shape[1:], input_shape, f"{path}: {x_key}")
    labels, classes = None, None
    if y_key is not None:
        labels, classes = labels_of(read_npz(path, y_key), f"{path}: {y_key}")
        if len(labels) != len(x):
            raise InputError(f"{path} has {len(x)} inputs in {x_key!r}, but {len(labels)} labels in {y_key!r}")
    content = digest({"npz": hash_files([path]), "keys": [x_key, y_key], "shape": shape})
    named = None if y_key is None else f"array {y_key!r}"
    return Dataset(
        path.name, shape, len(x), content, Rows(x), labels, classes, labelled_by=named, own_numbers=classes is None
    )


def read_npz(path: Path, key: str) -> np.ndarray:
    """The array `key` of a .npz file; never of objects. The entry is read once, its sum checked by the zip reader."""
    try:
        with zipfile.ZipFile(path) as archive:
            entry = archive.getinfo(f"{key}.npy")
            refuse_bomb(path, entry.file_size, "save the array as a .npy file")
            with archive.open(entry) as file:
                head = _header(file)
                if head.offset + head.n_bytes != entry.file_size:
                    stated = f"its header states {head.offset + head.n_bytes}"
                    raise InputError(f"{path}: the array {key!r} has {entry.file_size} bytes; {stated}")
                data = bytearray(file.read())
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(f"{path}: the array {key!r} is damaged: {one_line(error)}") from None
    if len(data) != head.n_bytes:
        raise InputError(f"{path}: the array {key!r} is cut short")
    return np.frombuffer(data, head.dtype).reshape(head.shape, order=head.order)


def labels_of(array: np.ndarray, where: str) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Class numbers from an array `n` or `n x 1` of whole numbers or names, and the names."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{where}: labels must be one class per input, not an array of shape {array.shape}")
    kind = array.dtype.kind
    if kind not in "iufbUS":
        raise InputError(f"{where}: labels must be whole numbers or text, not {array.dtype}")
    if kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{where}: the labels are not UTF-8 text") from None
    if kind == "f":
        array = array + 0.0  # of which -0.0 is 0.0
    try:
        texts = [str(value) for value in array.tolist()]
    except ValueError:  # text of four bytes a letter, where some are not letters
        raise InputError(f"{where}: the labels are not text") from None
    return number_labels(texts, where)


def _keys(path: Path, key: str | None) -> tuple[str, str | None]:
    """The names of the inputs and of the labels, each of which the file holds once."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except FileNotFoundError:
        raise InputError(f"{path} is missing") from None
    except _DAMAGE as error:
        raise InputError(f"{path} is damaged, or no .npz file: {one_line(error)}") from None
    held = f"it holds {', '.join(map(repr, entries[:20])) or 'none'}"
    if key is not None:
        chosen = [part.strip() for part in key.split(",")]
        if len(chosen) > 2 or not all(chosen):
            raise InputError(f"key must be the name of the inputs, or of inputs and labels as in x,y; got {key!r}")
    else:
        inputs = [name for name in INPUT_KEYS if name in entries]
        labels = [name for name in LABEL_KEYS if name in entries]
        if len(inputs) != 1 or len(labels) > 1:
            raise InputError(f"{path}: which array has the inputs, which the labels? Give `key`, as in x,y; {held}")
        chosen = inputs + labels
    for name in chosen:
        if entries.count(name) != 1:
            raise InputError(f"{path}: the array {name!r} is missing or appears twice; {held}")
    return chosen[0], chosen[1] if len(chosen) == 2 else None


def _header(file: IO[bytes]) -> Header:
    """Reads the head of a .npy file with NumPy's own reader, which takes literals only and bounds their length."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version[0]}.{version[1]} of the format is unknown here")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd literals in damaged heads, and of Python 2's
        try:
            shape, fortran, dtype = read(file)
        except Exception:  # whatever Python's parser and tokenizer raise
            raise ValueError("its header makes no sense") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never read")
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape is {shape}")
    return Header(dtype, tuple(int(n) for n in shape), "F" if fortran else "C", file.tell())


def _must_be_inputs(dtype: np.dtype, shape: Shape, where: str) -> None:
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise InputError(f"{where}: inputs must be real numbers of at most 64 bits, not {dtype}")
    if len(shape) < 2:
        raise InputError(f"{where}: inputs must have a leading axis, n x shape of one; the array has the shape {shape}")
    if 0 in shape:
        raise InputError(f"{where} holds no inputs: its shape is {shape}")
