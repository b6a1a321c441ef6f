"""Parts of a run: Parquet files of a row per certificate, exact float64 numbers, and a checksum per row."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from elbowroom.certificates.pages import Odd, Unpacked, unpacked
from elbowroom.certificates.result import STATUSES, Certificates
from elbowroom.errors import InputError
from elbowroom.files import read_file, replace_file

PER_FEATURE = ("x", "eps", "center", "lower", "upper", "capped")
TEXT_BYTES = 2000  # of a message in a part at most, in UTF-8
_BINARY = {"float64": "<f8", "int64": "<i8", "bool": "|u1"}
_CHECKSUM = 32  # bytes
_BESIDE = 1 << 13  # bytes of schema, headers and the like, per column


@dataclass(frozen=True)
class Column:
    """A column of the parts: text or numbers of type `kind`, one (`width` None) or `width` of them per row."""

    kind: str
    width: int | None = None


def columns_of(claim: Mapping[str, Any]) -> dict[str, Column]:
    """The columns of every part of a run with this claim, in order."""
    n, groups = math.prod(claim["input_shape"]), claim["groups"]
    found = {"index": Column("int64")} if claim["index"] else {}
    found.update(status=Column("text"), message=Column("text"), labels=Column("int64"))
    found.update({name: Column("float64", n) for name in ("x", "eps", "center")})
    if claim["boxes"]:
        found.update(lower=Column("float64", n), upper=Column("float64", n))
    if groups is not None and "spec_rows" not in claim["shared"]:
        found.update(spec_rows=Column("float64", len(groups) * claim["outputs"]))
        found.update(spec_offset=Column("float64", len(groups)))
    found.update(margins=Column("float64", claim["margins"]), capped=Column("bool", n))
    found.update({name: Column("float64") for name in ("uniform", "geomean", "ratio", "log_volume", "seconds")})
    found.update({name: Column("int64") for name in ("evaluations", "gradients", "gradient_rows")})
    return found


def bytes_per_row(columns: Mapping[str, Column]) -> int:
    """Of numbers, before compression."""
    return sum(8 * (1 if c.width is None else c.width) for c in columns.values())


@dataclass(frozen=True)
class Seal:
    """What binds a part to its run and its place: digests of the claim and of the plan, and the part's number."""

    claim: str
    plan: str
    part: int

    def metadata(self) -> dict[bytes, bytes]:
        return {b"claim": self.claim.encode(), b"plan": self.plan.encode(), b"part": str(self.part).encode()}


def row_checksums(values: Mapping[str, Any], columns: Mapping[str, Column], claim_digest: str) -> list[bytes]:
    """The checksum of every row: 32 bytes each."""
    blocks: list[Any] = []
    for name, column in columns.items():
        if column.kind == "text":
            encoded = [text.encode() for text in values[name]]
            blocks.append([struct.pack("<q", len(text)) + text for text in encoded])
        else:
            rows = len(values[name])
            blocks.append(np.ascontiguousarray(values[name], _BINARY[column.kind]).reshape(rows, column.width or 1))
    found = []
    for row in zip(*blocks):
        total = hashlib.sha256(claim_digest.encode())
        for block in row:
            total.update(block)
        found.append(total.digest())
    return found


def write_part(path: Path, certs: Certificates, columns: Mapping[str, Column], seal: Seal) -> None:
    """Writes all rows of `certs` under a temporary name first: there is a whole part or none."""
    pa, parquet = pyarrow()
    values, schema = _values(certs, columns), _schema(columns, seal)
    arrays, split = [], []
    for name, column in columns.items():
        value = values[name]
        if column.width is None:
            arrays.append(pa.array(value, type=schema.field(name).type))
        else:
            arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(value.reshape(-1)), type=schema.field(name).type))
        if column.kind == "float64":
            split.append(name if column.width is None else f"{name}.list.element")
    arrays.append(pa.array(row_checksums(values, columns, seal.claim), type=pa.binary(32)))
    table = pa.Table.from_arrays(arrays, schema=schema)

    def write(file: Any) -> None:
        parquet.write_table(
            table, file, compression="zstd", use_dictionary=False, use_byte_stream_split=split,
            write_page_checksum=True, write_statistics=False, data_page_version="1.0",
        )  # fmt: skip

    replace_file(path, write)


def read_part(path: Path, columns: Mapping[str, Column], seal: Seal, rows: int, first: int) -> dict[str, Any]:
    """The rows by column: text as lists, numbers as arrays `rows` or `rows x width`. `first`: the number of row 0."""
    pa, parquet = pyarrow()
    schema = _schema(columns, seal)
    needed = {name: rows * _bytes_of(column) for name, column in columns.items()}
    data = read_file(path, 2 * sum(needed.values()) + (len(columns) + 1) * (_BESIDE + rows * _CHECKSUM))
    try:
        if rows * _CHECKSUM > len(data):  # which do not compress
            raise InputError(f"{path} is too small for the {rows} rows that run.json speaks of")
        unpacking = unpacked(data)
        with parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            _refuse_other_columns(file.schema_arrow, schema, path)
            if file.metadata.num_rows != rows:
                raise InputError(f"{path} has {file.metadata.num_rows} rows; run.json speaks of {rows}")
            _refuse_bombs(unpacking, columns, rows)
            found = {}
            for name, column in columns.items():  # one by one, so that none is held twice for long
                found[name] = _column_of(file.read(columns=[name]).column(name), column, rows)
            stored = file.read(columns=["checksum"]).column("checksum").to_pylist()
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    numbers = found["index"] if "index" in found else range(first, first + rows)
    for k, (right, given) in enumerate(zip(row_checksums(found, columns, seal.claim), stored)):
        if right != given:
            raise InputError(
                f"{path}: the certificate of input {numbers[k]} (row {k}) was changed: it does not match its checksum"
            )
    for k, status in enumerate(found["status"]):
        if status not in STATUSES:
            raise InputError(f"{path}: input {numbers[k]} (row {k}) has the unknown status {status!r}")
    return found


def _bytes_of(column: Column) -> int:
    """Per row at most, unpacked: numbers take 8 bytes, text its length besides."""
    return 4 + TEXT_BYTES if column.kind == "text" else 8 * max(1, column.width or 1)


def _refuse_bombs(found: Mapping[str, Unpacked], columns: Mapping[str, Column], rows: int) -> None:
    """Refuses a part whose pages unpack to more than its rows need, before any is unpacked."""
    wanted = {**columns, "checksum": Column("int64", _CHECKSUM // 8)}
    if found.keys() != wanted.keys():  # a reader goes by places, and would find what is not looked at here
        raise Odd("its footer speaks of other columns than its schema")
    for name, column in wanted.items():
        values = rows * (column.width or 1 if name in columns else 1)
        if found[name].values != values:
            raise Odd(f"the pages of the column {name!r} do not speak of {values:,} values")
        if found[name].size > 2 * rows * _bytes_of(column) + _BESIDE:
            raise Odd(f"the column {name!r} unpacks to {found[name].size:,} bytes, more than {rows:,} rows need")


def no_rows(columns: Mapping[str, Column]) -> dict[str, Any]:
    """What `read_part` gives for a part without rows."""
    return {
        name: [] if c.kind == "text" else np.empty((0,) if c.width is None else (0, c.width), c.kind)
        for name, c in columns.items()
    }


def _values(certs: Certificates, columns: Mapping[str, Column]) -> dict[str, Any]:
    """Text as lists, numbers as arrays `rows` or `rows x width`."""
    found: dict[str, Any] = {}
    for name, column in columns.items():
        value = getattr(certs, name)
        if column.kind == "text":
            value = [text.encode()[:TEXT_BYTES].decode(errors="ignore") for text in value]
        if isinstance(value, Tensor):
            shape = (len(certs),) if column.width is None else (len(certs), column.width)
            value = value.detach().reshape(shape).numpy()
        found[name] = value
    return found


def _schema(columns: Mapping[str, Column], seal: Seal) -> Any:
    pa, _ = pyarrow()
    types = {"text": pa.string(), "float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}

    def of(column: Column) -> Any:
        inner = types[column.kind]
        return inner if column.width is None else pa.list_(pa.field("element", inner, nullable=False), column.width)

    found = [pa.field(name, of(column), nullable=False) for name, column in columns.items()]
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


def _column_of(found: Any, column: Column, rows: int) -> Any:
    if column.kind == "text":
        return found.to_pylist()
    shape = (rows,) if column.width is None else (rows, column.width)
    chunks = [c if column.width is None else c.flatten() for c in found.chunks]
    pieces = [c.to_numpy(zero_copy_only=False) for c in chunks]
    kind = np.dtype(column.kind)
    return np.concatenate([np.empty(0, kind), *pieces]).astype(kind, casting="safe", copy=False).reshape(shape)


def pyarrow() -> tuple[Any, Any]:
    """The package and its Parquet module."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("certificates are kept in Parquet files, which need pyarrow: pip install pyarrow") from None
    return pyarrow, pyarrow.parquet
