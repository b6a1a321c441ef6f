"""Archives of arrays, and JSON, that say the same thing in the same bytes and are safe to read.

An archive is a zip of uncompressed entries with a fixed date: JSON texts, and arrays in NumPy's .npy format. Reading
one runs no code, unpacks nothing onto the disk, and takes no more memory than the file has bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from elbowroom.errors import InputError

TYPES = {"float32": "<f4", "float64": "<f8"}  # of a network's parameters
BINARY = {**TYPES, "int64": "<i8", "bool": "|u1"}  # of all arrays in files
_DATE = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16
# What a damaged file makes the zip and JSON readers raise.
_DAMAGE = (
    zipfile.BadZipFile, zipfile.LargeZipFile, OSError, EOFError, ValueError, KeyError, IndexError, TypeError,
    OverflowError, RuntimeError, NotImplementedError, struct.error, MemoryError,
)  # fmt: skip


def replace_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes a file under another name first, so that a reader never sees half of one."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())  # or a crash of the machine might leave the name without the content
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_file(path: Path, most: int) -> bytes:
    """The bytes of a plain file; an `InputError` where it has more than `most`, or none can be read."""
    must_be_file(path)
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise InputError(f"{path} is missing") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > most:
        raise InputError(f"{path} is damaged: it has more than {most:,} bytes, which such a file never needs")
    return data


def must_be_file(path: Path) -> None:
    """Refuses what is there and no plain file: a folder, a device, a pipe that one would wait for."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} cannot be read: it is not a file")


def canonical_json(value: Any, indent: int | None = None) -> bytes:
    """JSON in one way only: keys in order, ASCII, numbers as Python writes them, no NaN."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, sort_keys=True, allow_nan=False, indent=indent, separators=separators).encode()


def digest(value: Any) -> str:
    """The sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object in `data`; an `InputError` naming `where` for anything else."""

    def refuse(text: str) -> Any:
        raise ValueError(f"{text} is not a number of this format")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key appears twice")
        return found

    try:
        value = json.loads(data.decode(), parse_constant=refuse, object_pairs_hook=unique)
        canonical_json(value)  # refuses 1e999, and what nests too deep to be written again
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} is damaged: it holds no JSON object")
    return value


def write_archive(path: Path, texts: Mapping[str, bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes `texts` and `arrays` (of the types in `BINARY`) by entry name; the same content gives the same bytes."""

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in sorted(texts.items()):
                archive.writestr(_entry(name), data)
            for name, array in sorted(arrays.items()):
                kind = array.dtype.name
                header = _npy_header(kind, array.shape)
                archive.writestr(_entry(name), header + np.ascontiguousarray(array, BINARY[kind]).tobytes())

    replace_file(path, write)


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DATE)
    info.create_system, info.external_attr = 3, _READABLE  # not what this machine happens to be
    return info


def _npy_header(kind: str, shape: tuple[int, ...]) -> bytes:
    """Format 1.0, written here: NumPy's own padding has changed between versions, and no header needs parsing so."""
    text = f"{{'descr': '{BINARY[kind]}', 'fortran_order': False, 'shape': {tuple(int(n) for n in shape)!r}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


class Archive:
    """Reads what `write_archive` wrote: `with Archive(path) as archive`. `sizes`: bytes by entry name.

    Every fault is an `InputError` naming the file and the entry.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        must_be_file(path)
        try:
            size = path.stat().st_size
            self._zip = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise InputError(f"{path} is missing") from None
        except _DAMAGE as error:
            raise InputError(f"{path} is damaged, or not a file of this kind: {error}") from None
        try:
            self.sizes = self._sizes(size)
        except InputError:
            self._zip.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def _sizes(self, size: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for info in self._zip.infolist():
            name = info.filename
            if info.orig_filename != name or not _is_inside(name):
                raise InputError(f"{self.path}: the entry {info.orig_filename!r} has a name that leaves the archive")
            if name in found:
                raise InputError(f"{self.path}: the entry {name!r} appears twice")
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                raise InputError(f"{self.path}: the entry {name!r} is compressed, which this format never is")
            found[name] = info.file_size
        claimed = sum(found.values())
        if claimed > size:
            raise InputError(f"{self.path}: its entries claim {claimed} bytes, but the file has {size}")
        return found

    def read(self, name: str) -> bytes:
        if name not in self.sizes:
            raise InputError(f"{self.path}: the entry {name!r} is missing")
        try:
            return self._zip.read(name)
        except _DAMAGE as error:
            raise InputError(f"{self.path}: the entry {name!r} is damaged: {error}") from None

    def array(self, name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
        """The array in entry `name`, which must have this type and shape."""
        header = _npy_header(kind, shape)
        wanted = len(header) + math.prod(shape) * np.dtype(BINARY[kind]).itemsize
        if self.sizes.get(name, wanted) != wanted:
            raise InputError(
                f"{self.path}: the entry {name!r} has {self.sizes[name]} bytes; {kind} numbers of shape {shape} "
                f"take {wanted}"
            )
        data = self.read(name)
        if not data.startswith(header):
            raise InputError(f"{self.path}: the entry {name!r} is not an array of {kind} numbers of shape {shape}")
        return np.frombuffer(data, BINARY[kind], offset=len(header)).reshape(shape).astype(kind)

    def must_hold_only(self, names: set[str]) -> None:
        surplus = sorted(set(self.sizes) - names)
        if surplus:
            raise InputError(f"{self.path}: the entry {surplus[0]!r} does not belong there")


def _is_inside(name: str) -> bool:
    """Nothing is ever unpacked; but other programs may do so."""
    return not any(p in ("", ".", "..") for p in name.split("/")) and not set(name) & set("\\:\0")
