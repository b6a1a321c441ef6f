"""Arrays of numbers in MATLAB's files of level 5 (.mat, versions 5 to 7), which is how SVHN is published.

Read here, though scipy has a reader: that one ends the whole program on some damaged files.

A file is 128 bytes of head, then elements: a tag of 8 bytes (kind, length), the data, and zeros up to a multiple of 8.
Up to 4 bytes of data may stand in the tag itself. An element is an array, or one packed by zlib. An array is made of
elements again: flags, lengths of the axes, name, numbers (the first axis runs fastest).
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elbowroom.data.reading import read_bytes, refuse_bomb
from elbowroom.errors import InputError

_NUMBERS = {
    1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8",
}  # fmt: skip
_BYTES, _LENGTHS, _FLAGS, _ARRAY, _PACKED = 1, 5, 6, 14, 15
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x0800


class _Damaged(Exception):
    pass


def read_matlab(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of real numbers with these names, each of which the file must hold once."""
    data = memoryview(read_bytes(path))
    if bytes(data[:10]) == b"MATLAB 7.3":
        raise InputError(f"{path} is of MATLAB's version 7.3, which is not read; save it with -v7")
    found: dict[str, np.ndarray] = {}
    try:
        if bytes(data[124:128]) != b"\x00\x01IM":
            raise _Damaged("its head is that of another format, or of a machine with the big end first")
        position = 128
        while position < len(data):
            kind, content, position = _element(data, position)
            if kind == _PACKED:
                kind, content = _unpacked(path, content)
            name, array = _array(content, names) if kind == _ARRAY else ("", None)
            if array is not None:
                if name in found:
                    raise _Damaged(f"{name} appears twice")
                found[name] = array
    except (_Damaged, zlib.error, struct.error) as error:
        raise InputError(f"{path} is damaged, or no MATLAB file: {error}") from None
    for name in names:
        if name not in found:
            raise InputError(f"{path}: the array {name} is missing")
    return found


def _element(data: memoryview, start: int) -> tuple[int, memoryview, int]:
    """Kind and content of the element at `start`, and where the next one starts."""
    kind, length = struct.unpack_from("<2I", data, start)
    if kind >> 16:  # a short one, within the tag
        kind, length = kind & 0xFFFF, kind >> 16
        if length > 4:
            raise _Damaged(f"a short element of {length} bytes")
        return kind, data[start + 4 : start + 4 + length], start + 8
    first = start + 8
    if first + length > len(data):
        raise _Damaged("it is cut short")
    following = first + length
    return kind, data[first:following], following if kind == _PACKED else following + -length % 8


def _unpacked(path: Path, packed: memoryview) -> tuple[int, memoryview]:
    """The one element in a packed one."""
    kind, length = struct.unpack("<2I", zlib.decompressobj().decompress(packed[:1024], 8))
    refuse_bomb(path, length, "give the official files")
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed, 8 + length + 1)  # one more, to see the end and have the sum checked
    if not unpacker.eof or len(data) != 8 + length:
        raise _Damaged("a packed array has not the length it states")
    return kind, memoryview(data)[8:]


def _array(data: memoryview, names: Sequence[str]) -> tuple[str, np.ndarray | None]:
    """Name and numbers of an array; None for one that is not among `names`."""
    kind, flags, position = _element(data, 0)
    if kind != _FLAGS or len(flags) != 8:
        raise _Damaged("an array has no flags")
    kind, axes, position = _element(data, position)
    if kind != _LENGTHS or len(axes) % 4:
        raise _Damaged("an array has no lengths of axes")
    shape = struct.unpack(f"<{len(axes) // 4}i", axes)
    kind, text, position = _element(data, position)
    if kind != _BYTES:
        raise _Damaged("an array has no name")
    name = bytes(text).decode("latin-1")
    if name not in names:
        return name, None
    (flag,) = struct.unpack_from("<I", flags)
    if flag & 0xFF not in _CLASSES or flag & _COMPLEX:
        raise _Damaged(f"{name} is not an array of real numbers")
    kind, numbers, _ = _element(data, position)
    stored = _NUMBERS.get(kind)
    if stored is None:
        raise _Damaged(f"{name} holds numbers of the unknown kind {kind}")
    if min(shape, default=0) < 0 or math.prod(shape) * np.dtype(stored).itemsize != len(numbers):
        raise _Damaged(f"{name} has {len(numbers)} bytes, which is not what its axes {shape} need")
    meant = np.dtype(_CLASSES[flag & 0xFF])
    array = np.frombuffer(numbers, stored).reshape(shape, order="F")
    if not np.can_cast(array.dtype, meant, "safe"):  # whole numbers may be stored in fewer bytes than they are meant in
        raise _Damaged(f"{name} holds {array.dtype} numbers that are meant as {meant}")
    return name, array.astype(meant)
