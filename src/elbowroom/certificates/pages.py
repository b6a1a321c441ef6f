"""What the columns of a Parquet file unpack to, read from the headers of its pages before any is unpacked.

The footer of such a file states the sizes of its columns, but a reader goes by the header of each page: a forger may
make a page of a few bytes unpack to gigabytes, and the footer say nothing about it. Only pages as
`elbowroom.certificates.parts` writes them are let through: plain data, or split by bytes, without dictionaries (in
which one long text can stand for all rows). Such a page holds every value that it states, so that its
unpacked size bounds them all.

Footer and headers are structs in Thrift's compact protocol: per field a byte with the step from the last field's number
and a type, then the value; whole numbers are zigzag and of variable length. They are read here, and not by pyarrow,
since its view of a damaged footer may end the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MAGIC = b"PAR1"
_GROUPS, _COLUMNS, _CHUNK = 4, 1, 3  # fields of the footer, a row group, a column chunk
_PATH, _CODEC, _VALUES, _SIZE, _FIRST, _DICTIONARY = 3, 4, 5, 7, 9, 11  # of its metadata
_TYPE, _UNPACKED, _PACKED, _DATA = 1, 2, 3, 5  # of a page's header
_COUNT, _ENCODING = 1, 2  # of a data page's
_CODECS = (0, 6)  # none, zstd
_DATA_PAGE = 0
_ENCODINGS = (0, 9)  # plain, split by bytes
_DEEPEST = 8


class Odd(ValueError):
    """What is wrong with a file's pages, in words."""


@dataclass(frozen=True)
class Unpacked:
    """Of a column: how many values its pages state, and the bytes they unpack to."""

    values: int
    size: int


def unpacked(data: bytes) -> dict[str, Unpacked]:
    """What the columns of a file with this content unpack to, by name."""
    length = int.from_bytes(data[-8:-4], "little")
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC or length > len(data) - 12:
        raise Odd("it is not a Parquet file, or its end is missing")
    footer = _Reader(data, len(data) - 8 - length, len(data) - 8).struct()
    found: dict[str, Unpacked] = {}
    for group in _structs(footer.get(_GROUPS)):
        for chunk in _structs(group.get(_COLUMNS)):
            (column,) = _structs([chunk.get(_CHUNK)])
            path = column.get(_PATH)
            if not isinstance(path, list) or not path or not isinstance(path[0], bytes):
                raise Odd("its footer has a column without a name")
            name = path[0].decode(errors="replace")
            before, more = found.get(name, Unpacked(0, 0)), _pages(data, column, name)
            found[name] = Unpacked(before.values + more.values, before.size + more.size)
    return found


def _structs(found: Any) -> list[dict[int, Any]]:
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise Odd("its footer cannot be read")
    return found


def _pages(data: bytes, column: dict[int, Any], name: str) -> Unpacked:
    """Of one column chunk."""
    if _DICTIONARY in column or column.get(_CODEC) not in _CODECS:
        raise Odd(f"the column {name!r} is packed in a way that this program does not write")
    at = _count(column.get(_FIRST), len(data))
    end = at + _count(column.get(_SIZE), len(data) - at)
    values = size = 0
    while at < end:
        reader = _Reader(data, at, end)
        header = reader.struct()
        page = header.get(_DATA)
        if header.get(_TYPE) != _DATA_PAGE or not isinstance(page, dict) or page.get(_ENCODING) not in _ENCODINGS:
            raise Odd(f"the column {name!r} has a page of a kind that this program does not write")
        values += _count(page.get(_COUNT))
        size += _count(header.get(_UNPACKED))
        at = reader.at + _count(header.get(_PACKED), end - reader.at)
    if column.get(_VALUES) != values:
        raise Odd(f"the column {name!r} has another number of values than its footer states")
    return Unpacked(values, size)


def _count(value: Any, most: int = (1 << 31) - 1) -> int:
    if not isinstance(value, int) or not 0 <= value <= most:
        raise Odd("a size in it is missing or out of range")
    return value


class _Reader:
    """Reads `data` from `at`, up to `end`."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """By field number."""
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step = head >> 4
            number = number + step if step else self._whole()
            # Numbers beyond 16 bits would be cut by other readers, and mean another field to them.
            if number in found or not 0 < number < 1 << 15:
                raise Odd("a field in it is given twice, or has a number that none has")
            found[number] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int, alone: bool = False) -> Any:
        """A value of this type; None for what is neither a number, bytes, a list nor a struct. `alone`: in a list."""
        if depth > _DEEPEST:
            raise Odd("it nests too deep")
        match kind:
            case 1 | 2:  # true, false: the type says it all, but in lists
                if alone:
                    self._byte()
                return None
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._whole()
            case 7:  # a double
                self._bytes(8)
                return None
            case 8:
                return self._bytes(self._variable())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 < 15 else self._variable()
                if count > self.end - self.at:  # each takes a byte at least
                    raise Odd("a list in it ends beyond its end")
                return [self._value(head & 15, depth + 1, alone=True) for _ in range(count)]
            case 12:
                return self.struct(depth + 1)
            case _:
                raise Odd("it holds something of an unknown type")

    def _whole(self) -> int:
        value = self._variable()
        return (value >> 1) ^ -(value & 1)

    def _variable(self) -> int:
        value = 0
        for shift in range(0, 63, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise Odd("a number in it is too long")

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, count: int) -> bytes:
        if count > self.end - self.at:
            raise Odd("its footer or a page's header is cut short")
        self.at += count
        return self.data[self.at - count : self.at]
