"""Parts of a run: Parquet files of a row per certificate, exact float64 numbers, and a checksum per row."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elbowroom.certificates.pages import Odd, Unpacked, unpacked
from elbowroom.certificates.schema import Column, Sizes, spread
from elbowroom.errors import InputError
from elbowroom.files import BINARY, read_file, replace_file

TEXT_BYTES = 2000  # of a message in a part at most, in UTF-8
_CHECKSUM = 32  # bytes
_BESIDE = 1 << 13  # bytes of schema, headers and the like, per column


@dataclass(frozen=True)
class Cell:
    """What a row has of a column: text or numbers of type `kind`, one (`width` None) or `width` of them; `ragged`: any
    number of them, `width` at most."""

    kind: str
    width: int | None = None
    ragged: bool = False


def cells_of(columns: Mapping[str, Column], sizes: Sizes, shared: Collection[str]) -> dict[str, Cell]:
    """The columns of a part by name, in order: those of `columns` that are not `shared` by all rows."""
    found = {}
    for name, c in columns.items():
        if c.per_input and name not in shared:
            width = None if len(c.axes) == 1 else c.most if c.most is not None else math.prod(c.shape(sizes))
            found[name] = Cell(c.kind, width, c.most is not None)
    return found


def bytes_per_row(cells: Mapping[str, Cell]) -> int:
    """Of numbers, before compression."""
    return sum(8 * (1 if c.width is None else c.width) for c in cells.values())


@dataclass(frozen=True)
class Seal:
    """What binds a part to its run and its place: digests of the claim and of the plan, and the part's number."""

    claim: str
    plan: str
    part: int

    def metadata(self) -> dict[bytes, bytes]:
        return {b"claim": self.claim.encode(), b"plan": self.plan.encode(), b"part": str(self.part).encode()}


def row_checksums(values: Mapping[str, Any], cells: Mapping[str, Cell], claim_digest: str) -> list[bytes]:
    """The checksum of every row: 32 bytes each."""
    blocks: list[Any] = []
    for name, cell in cells.items():
        if cell.kind == "text":
            encoded = [text.encode() for text in values[name]]
            blocks.append([struct.pack("<q", len(text)) + text for text in encoded])
        elif cell.ragged:
            binary = BINARY[cell.kind]
            blocks.append([struct.pack("<q", len(v)) + np.ascontiguousarray(v, binary).tobytes() for v in values[name]])
        else:
            rows = len(values[name])
            blocks.append(np.ascontiguousarray(values[name], BINARY[cell.kind]).reshape(rows, cell.width or 1))
    found = []
    for row in zip(*blocks):
        total = hashlib.sha256(claim_digest.encode())
        for block in row:
            total.update(block)
        found.append(total.digest())
    return found


def write_part(path: Path, certs: Any, cells: Mapping[str, Cell], seal: Seal) -> None:
    """Writes all rows of `certs` under a temporary name first: there is a whole part or none."""
    pa, parquet = pyarrow()
    values, schema = _values(certs, cells), _schema(cells, seal)
    arrays, split = [], []
    for name, cell in cells.items():
        value, kind = values[name], schema.field(name).type
        if cell.kind == "text":
            encoded = [text.encode() for text in value]
            arrays.append(_packed(kind, len(value), _ends(encoded), b"".join(encoded)))
        elif cell.ragged:
            ends = _packed(pa.int32(), len(value) + 1, _ends(value))
            flat = _numbers(np.concatenate([np.empty(0, cell.kind), *value]), cell, kind.value_type)
            arrays.append(pa.ListArray.from_arrays(ends, flat, type=kind))
        elif cell.width is None:
            arrays.append(_numbers(value, cell, kind))
        else:
            flat = _numbers(value.reshape(-1), cell, kind.value_type)
            arrays.append(pa.FixedSizeListArray.from_arrays(flat, type=kind))
        if cell.kind == "float64":
            split.append(name if cell.width is None else f"{name}.list.element")
    checksums = row_checksums(values, cells, seal.claim)
    arrays.append(_packed(pa.binary(32), len(checksums), b"".join(checksums)))
    table = pa.Table.from_arrays(arrays, schema=schema)

    def write(file: Any) -> None:
        parquet.write_table(
            table, file, compression="zstd", use_dictionary=False, use_byte_stream_split=split,
            write_page_checksum=True, write_statistics=False, data_page_version="1.0",
        )  # fmt: skip

    replace_file(path, write)


def read_part(path: Path, cells: Mapping[str, Cell], seal: Seal, rows: int, first: int) -> dict[str, Any]:
    """The rows by column: text as lists, numbers as arrays `rows` or `rows x width`, as lists of arrays where ragged.
    `first`: the number of row 0."""
    pa, parquet = pyarrow()
    schema = _schema(cells, seal)
    needed = {name: rows * _bytes_of(cell) for name, cell in cells.items()}
    data = read_file(path, 2 * sum(needed.values()) + (len(cells) + 1) * (_BESIDE + rows * _CHECKSUM))
    try:
        if rows * _CHECKSUM > len(data):  # which do not compress
            raise InputError(f"{path} is too small for the {rows} rows that run.json states")
        unpacking = unpacked(data)
        with parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            _refuse_other_columns(file.schema_arrow, schema, path)
            if file.metadata.num_rows != rows:
                raise InputError(f"{path} has {file.metadata.num_rows} rows; run.json states {rows}")
            _refuse_bombs(unpacking, cells, rows)
            found = {}
            for name, cell in cells.items():  # one by one, so that none is held twice for long
                found[name] = _column_of(file.read(columns=[name]).column(name), cell, rows)
            stored = file.read(columns=["checksum"]).column("checksum").to_pylist()
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    numbers = found["index"] if "index" in found else range(first, first + rows)
    for k, (right, given) in enumerate(zip(row_checksums(found, cells, seal.claim), stored)):
        if right != given:
            raise InputError(
                f"{path}: the certificate of input {numbers[k]} (row {k}) was changed: it does not match its checksum"
            )
    return found


def _bytes_of(cell: Cell) -> int:
    """Per row at most, unpacked: numbers take 8 bytes, text its length besides."""
    return 4 + TEXT_BYTES if cell.kind == "text" else 8 * max(1, cell.width or 1)


def _refuse_bombs(found: Mapping[str, Unpacked], cells: Mapping[str, Cell], rows: int) -> None:
    """Refuses a part whose pages unpack to more than its rows need, before any is unpacked."""
    wanted = {**cells, "checksum": Cell("int64", _CHECKSUM // 8)}
    if found.keys() != wanted.keys():  # a reader goes by places, and would find what is not looked at here
        raise Odd("its footer has other columns than its schema")
    for name, cell in wanted.items():
        # A list without entries counts as a value. How long lists are may be packed into a few bytes for millions of
        # them: it is the number of values that bounds them.
        most = rows * (cell.width or 1 if name in cells else 1)
        least = rows if cell.ragged else most
        if not least <= found[name].values <= most:
            range_ = f"{least:,} to {most:,}" if cell.ragged else f"{most:,}"
            raise Odd(f"the pages of the column {name!r} do not hold {range_} values")
        if found[name].size > 2 * rows * _bytes_of(cell) + _BESIDE:
            raise Odd(f"the column {name!r} unpacks to {found[name].size:,} bytes, more than {rows:,} rows need")


def no_rows(cells: Mapping[str, Cell]) -> dict[str, Any]:
    """What `read_part` gives for a part without rows."""
    return {
        name: [] if c.kind == "text" or c.ragged else np.empty((0,) if c.width is None else (0, c.width), c.kind)
        for name, c in cells.items()
    }


def _values(certs: Any, cells: Mapping[str, Cell]) -> dict[str, Any]:
    """As `read_part` gives them."""
    found: dict[str, Any] = {}
    for name, cell in cells.items():
        value = getattr(certs, name)
        if cell.kind == "text":
            found[name] = [text.encode()[:TEXT_BYTES].decode(errors="ignore") for text in value]
        elif cell.ragged:
            found[name] = [entry.detach().numpy() for entry in value]
        else:
            shape = (len(certs),) if cell.width is None else (len(certs), cell.width)
            found[name] = spread(value.detach(), len(certs)).reshape(shape).numpy()
    return found


def _schema(cells: Mapping[str, Cell], seal: Seal) -> Any:
    pa, _ = pyarrow()
    types = {"text": pa.string(), "float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}

    def of(cell: Cell) -> Any:
        if cell.width is None:
            return types[cell.kind]
        return pa.list_(pa.field("element", types[cell.kind], nullable=False), -1 if cell.ragged else cell.width)

    found = [pa.field(name, of(cell), nullable=False) for name, cell in cells.items()]
    found.append(pa.field("checksum", pa.binary(32), nullable=False))
    return pa.schema(found, metadata=seal.metadata())


def _refuse_other_columns(found: Any, wanted: Any, path: Path) -> None:
    for name in found.names:
        if found.names.count(name) != 1 or name not in wanted.names:
            raise InputError(f"{path}: the column {name!r} is unknown or appears twice")
    for field in wanted:
        if field.name not in found.names:
            raise InputError(f"{path}: the column {field.name!r} is missing")
        given = found.field(field.name)
        if given.type != field.type or given.nullable:
            raise InputError(f"{path}: the column {field.name!r} holds {given.type}, not {field.type}")
    stated = found.metadata or {}
    for name, value in wanted.metadata.items():
        if stated.get(name) != value:
            raise InputError(f"{path} belongs to another run or another place in it: it states another {name.decode()}")


def _column_of(found: Any, cell: Cell, rows: int) -> Any:
    if cell.kind == "text":
        return found.to_pylist()
    kind = np.dtype(cell.kind)
    chunks = [c if cell.width is None else c.flatten() for c in found.chunks]
    flat = np.concatenate([np.empty(0, kind), *(_unpacked(c, kind) for c in chunks)])
    if not cell.ragged:
        return flat.reshape((rows,) if cell.width is None else (rows, cell.width))
    lengths = [n for c in found.chunks for n in c.value_lengths().to_pylist()]
    if len(lengths) != rows or sum(lengths) != len(flat):
        raise ValueError(f"its lists are not those of {rows} rows")
    return np.split(flat, np.cumsum(lengths)[:-1]) if rows else []


# --- arrays of Arrow around those of numpy, and back. By their buffers: `pyarrow.array` and `to_numpy` load pandas
# wherever that is installed, which takes longer than all that we load ourselves.


def _packed(kind: Any, count: int, *buffers: Any) -> Any:
    """An array of `count` values without nulls."""
    pa, _ = pyarrow()
    return pa.Array.from_buffers(kind, count, [None, *(pa.py_buffer(each) for each in buffers)])


def _numbers(values: np.ndarray, cell: Cell, kind: Any) -> Any:
    """An array of Arrow's type `kind` with the numbers of a column, `n`."""
    values = np.ascontiguousarray(values.astype(cell.kind, casting="safe", copy=False))
    return _packed(kind, len(values), np.packbits(values, bitorder="little") if values.dtype == bool else values)


def _ends(values: Sequence[Sized]) -> np.ndarray:
    """Where each begins if they stand one behind the other, and where the last one ends."""
    return np.cumsum([0, *map(len, values)], dtype=np.int32)


def _unpacked(array: Any, kind: np.dtype) -> np.ndarray:
    """The values of an array of that kind (its type was looked at), `n`."""
    if array.null_count:
        raise ValueError("a value is missing")
    if not len(array):
        return np.empty(0, kind)
    data = array.buffers()[1]
    if kind.kind == "b":
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return bits[array.offset : array.offset + len(array)].astype(bool)
    return np.frombuffer(data, kind, len(array), array.offset * kind.itemsize)


def pyarrow() -> tuple[Any, Any]:
    """The package and its Parquet module."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("certificates are kept in Parquet files, which need pyarrow: pip install pyarrow") from None
    return pyarrow, pyarrow.parquet
