"""A run on disk: one folder with a network and the certificates that speak of it.

    run.json                  what all certificates share (`claim`), rows per part, versions, and a checksum of itself
    network.elbowroom         the network, see `elbowroom.network.files`
    shared.npz                arrays that all certificates share: the basis, a specification that is the same for all
    parts/part-00000.parquet  a row per certificate: exact float64 numbers, and a checksum of the row

A row's checksum is the sha256 of the digest of `claim` (which has the network's hash, the settings and digests of the
shared arrays) followed by the row's own columns in the order of the file: numbers as 8 bytes each, little end first,
booleans as one byte, text as its length in 8 bytes and its UTF-8. Checksums find damage and careless changes. A forger
can recompute them; what he cannot make is a proof, see `elbowroom.check`.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom import __version__
from elbowroom.archive import Archive, canonical_json, digest, parse_json, replace_file, write_archive
from elbowroom.certificate import STATUSES, Certificates
from elbowroom.errors import InputError
from elbowroom.network.files import load_network, network_hash, save_network

FORMAT, VERSION = "elbowroom-run", 1
_PART_BYTES = 1 << 28  # of numbers, before compression
_BINARY = {"float64": "<f8", "int64": "<i8", "bool": "|u1"}


@dataclass(frozen=True)
class Column:
    """A column of the parts: text or numbers of type `kind`, one (`width` None) or `width` of them per row."""

    kind: str
    width: int | None = None


def save_run(certs: Certificates, directory: str | os.PathLike[str]) -> Path:
    """Writes a run, in place of the one that was there; returns its folder."""
    _pyarrow()
    target, net = Path(directory), certs.network
    if net is None:
        raise InputError("these certificates do not know their network, so they cannot be saved; certify sets it")
    certs.must_fit(net)
    stated, found = certs.settings.get("network_hash"), network_hash(net)
    if stated != found:
        raise InputError(f"the network was changed since it was certified: its hash is {found}, not {stated}")
    shared = _shared_arrays(certs)
    claim = _claim(certs, shared)
    columns = _columns(claim)
    rows = _rows_per_part(len(certs), columns)
    _make_folder(target / "parts")
    (target / "run.json").unlink(missing_ok=True)  # until all is written there is no run
    first = 0
    for k, count in enumerate(rows):
        _write_part(_part(target, k), _values(certs, columns, first, first + count), columns, digest(claim))
        first += count
    for old in (target / "parts").glob("part-*.parquet"):
        if old not in {_part(target, k) for k in range(len(rows))}:
            old.unlink()
    (target / "shared.npz").unlink(missing_ok=True)
    if shared:
        write_archive(target / "shared.npz", {}, {f"{name}.npy": array for name, array in shared.items()})
    save_network(net, target / "network.elbowroom")
    run: dict[str, Any] = {"format": FORMAT, "version": VERSION, "claim": claim, "rows": rows, "packages": _packages()}
    text = canonical_json({**run, "checksum": digest(run)}, indent=1)
    replace_file(target / "run.json", lambda file: file.write(text))
    return target


def load_run(directory: str | os.PathLike[str]) -> Certificates:
    """Reads a run. Never runs code from its files; refuses, by name, what was damaged, changed or is unknown."""
    source = Path(directory)
    where = f"{source / 'run.json'}"
    try:
        run = parse_json((source / "run.json").read_bytes(), where)
    except FileNotFoundError:
        raise InputError(f"{source} holds no run: run.json is missing") from None
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror or error}") from None
    if run.get("format") != FORMAT:
        raise InputError(f"{where}: the format is {run.get('format')!r}, not {FORMAT!r}")
    if run.get("version") != VERSION:
        raise InputError(f"{where}: version {run.get('version')!r} is unknown; this program reads {VERSION}")
    _must_hold(run, {"format", "version", "claim", "rows", "packages", "checksum"}, where)
    if digest({k: v for k, v in run.items() if k != "checksum"}) != run["checksum"]:
        raise InputError(f"{where} was changed: its content does not match its checksum")
    claim, rows = run["claim"], run["rows"]
    _refuse_odd_claim(claim, where)
    if not isinstance(rows, list) or not all(_is_count(n) for n in rows) or not rows:
        raise InputError(f"{where}: rows must be numbers of rows per part, got {rows!r}")
    net = load_network(source / "network.elbowroom")
    found = network_hash(net)
    if found != claim["network_hash"]:
        raise InputError(
            f"{source / 'network.elbowroom'} is not the network that was certified: its hash is {found}, "
            f"not {claim['network_hash']!r}"
        )
    if [list(net.input_shape), net.n_outputs] != [claim["input_shape"], claim["outputs"]]:
        raise InputError(f"{where}: the claim is about another shape of inputs or outputs than the network has")
    values = _read_shared(source / "shared.npz", claim)
    values.update(_read_parts(source, rows, claim))
    certs = Certificates(settings={**claim["settings"], "network_hash": claim["network_hash"]}, network=net, **values)
    try:
        certs.must_fit(net)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    return certs


# --- what is the same for all rows


def _shared_arrays(certs: Certificates) -> dict[str, np.ndarray]:
    found = {} if certs.basis is None else {"basis": certs.basis.numpy()}
    if certs.spec_rows is not None and len(certs.spec_rows) == 1 and certs.spec_offset is not None:
        found.update(spec_rows=certs.spec_rows.numpy(), spec_offset=certs.spec_offset.numpy())
    return found


def _claim(certs: Certificates, shared: Mapping[str, np.ndarray]) -> dict[str, Any]:
    settings = {k: v for k, v in certs.settings.items() if k != "network_hash"}
    try:
        canonical_json(settings)
    except (TypeError, ValueError) as error:
        raise InputError(f"the settings cannot be saved: {error}") from None
    group = certs.spec_group
    return {
        "network_hash": certs.settings["network_hash"],
        "settings": settings,
        "input_shape": list(certs.x.shape[1:]),
        "outputs": certs.network.n_outputs if certs.network else 0,
        "margins": certs.margins.shape[1],
        "boxes": certs.lower is not None,
        "groups": None if group is None else group.tolist(),
        "shared": {name: _sha256(array) for name, array in shared.items()},
    }


_CLAIM = {"network_hash", "settings", "input_shape", "outputs", "margins", "boxes", "groups", "shared"}


def _refuse_odd_claim(claim: Any, where: str) -> None:
    _must_hold(claim, _CLAIM, f"{where}: claim")

    def must(good: bool, name: str) -> None:
        if not good:
            raise InputError(f"{where}: claim: {name} cannot be {claim[name]!r}")

    def counts(value: Any) -> bool:
        return isinstance(value, list) and all(_is_count(n) for n in value)

    must(isinstance(claim["network_hash"], str), "network_hash")
    must(isinstance(claim["settings"], dict) and "network_hash" not in claim["settings"], "settings")
    must(counts(claim["input_shape"]), "input_shape")
    must(_is_count(claim["outputs"]), "outputs")
    must(_is_count(claim["margins"]), "margins")
    must(type(claim["boxes"]) is bool, "boxes")
    must(claim["groups"] is None or (counts(claim["groups"]) and bool(claim["groups"])), "groups")
    known: tuple[set[str], ...] = (set(), {"basis"})
    if claim["groups"] is not None:
        known += tuple(names | {"spec_rows", "spec_offset"} for names in known)
    must(isinstance(claim["shared"], dict) and set(claim["shared"]) in known, "shared")


def _read_shared(path: Path, claim: dict[str, Any]) -> dict[str, Any]:
    """The shared arrays as tensors, by field."""
    n, k = math.prod(claim["input_shape"]), claim["outputs"]
    t = len(claim["groups"] or ())
    shapes: dict[str, tuple[int, ...]] = {"basis": (n, n), "spec_rows": (1, t, k), "spec_offset": (1, t)}
    found: dict[str, Any] = {}
    if claim["groups"] is not None:
        found["spec_group"] = torch.tensor(claim["groups"], dtype=torch.int64)
    if not claim["shared"]:
        return found
    with Archive(path) as archive:
        archive.must_hold_only({f"{name}.npy" for name in claim["shared"]})
        for name, stated in claim["shared"].items():
            array = archive.array(f"{name}.npy", "float64", shapes[name])
            if _sha256(array) != stated:
                raise InputError(f"{path} was changed: the content of {name} does not match its checksum in run.json")
            found[name] = torch.from_numpy(array)
    return found


def _sha256(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array, "<f8").tobytes()).hexdigest()


# --- rows


def _columns(claim: dict[str, Any]) -> dict[str, Column]:
    """The columns of every part, in order."""
    n, groups = math.prod(claim["input_shape"]), claim["groups"]
    found = {"status": Column("text"), "message": Column("text"), "labels": Column("int64")}
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


def _rows_per_part(count: int, columns: Mapping[str, Column]) -> list[int]:
    each = sum(8 * (1 if c.width is None else c.width) for c in columns.values())
    most = max(1, _PART_BYTES // each)
    return [min(most, count - first) for first in range(0, count, most)] or [0]


def _values(certs: Certificates, columns: Mapping[str, Column], first: int, last: int) -> dict[str, Any]:
    """Rows `first` to `last`: text as lists, numbers as arrays `rows` or `rows x width`."""
    found: dict[str, Any] = {}
    for name, column in columns.items():
        value = getattr(certs, name)[first:last]
        if isinstance(value, Tensor):
            shape = (last - first,) if column.width is None else (last - first, column.width)
            value = value.detach().reshape(shape).numpy()
        found[name] = value
    return found


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


def _schema(columns: Mapping[str, Column], claim_digest: str) -> Any:
    pa, _ = _pyarrow()
    types = {"text": pa.string(), "float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}

    def of(column: Column) -> Any:
        inner = types[column.kind]
        return inner if column.width is None else pa.list_(pa.field("element", inner, nullable=False), column.width)

    found = [pa.field(name, of(column), nullable=False) for name, column in columns.items()]
    found.append(pa.field("checksum", pa.binary(32), nullable=False))
    return pa.schema(found, metadata={"claim": claim_digest})


def _write_part(path: Path, values: Mapping[str, Any], columns: Mapping[str, Column], claim_digest: str) -> None:
    pa, parquet = _pyarrow()
    schema = _schema(columns, claim_digest)
    arrays, split = [], []
    for name, column in columns.items():
        value = values[name]
        if column.width is None:
            arrays.append(pa.array(value, type=schema.field(name).type))
        else:
            arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(value.reshape(-1)), type=schema.field(name).type))
        if column.kind == "float64":
            split.append(name if column.width is None else f"{name}.list.element")
    arrays.append(pa.array(row_checksums(values, columns, claim_digest), type=pa.binary(32)))
    table = pa.Table.from_arrays(arrays, schema=schema)

    def write(file: Any) -> None:
        parquet.write_table(
            table, file, compression="zstd", use_dictionary=False, use_byte_stream_split=split,
            write_page_checksum=True, write_statistics=False,
        )  # fmt: skip

    replace_file(path, write)


def _read_parts(source: Path, rows: list[int], claim: dict[str, Any]) -> dict[str, Any]:
    """All rows as the fields of `Certificates`."""
    columns, shape = _columns(claim), claim["input_shape"]
    parts, first = [], 0
    for k, count in enumerate(rows):
        parts.append(_read_part(_part(source, k), columns, digest(claim), count, first))
        first += count
    found: dict[str, Any] = {}
    for name, column in columns.items():
        values = [part[name] for part in parts]
        if column.kind == "text":
            found[name] = tuple(text for part in values for text in part)
            continue
        tensor = torch.from_numpy(np.concatenate(values))
        if name in _PER_FEATURE:
            tensor = tensor.reshape(len(tensor), *shape)
        elif name == "spec_rows":
            tensor = tensor.reshape(len(tensor), -1, claim["outputs"])
        found[name] = tensor
    for name in ("lower", "upper"):
        found.setdefault(name, None)
    return found


_PER_FEATURE = ("x", "eps", "center", "lower", "upper", "capped")


def _read_part(path: Path, columns: Mapping[str, Column], claim_digest: str, rows: int, first: int) -> dict[str, Any]:
    pa, parquet = _pyarrow()
    schema = _schema(columns, claim_digest)
    try:
        if rows * 32 > path.stat().st_size:  # checksums do not compress
            raise InputError(f"{path} is too small for the {rows} rows that run.json speaks of")
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            _refuse_other_columns(file.schema_arrow, schema, path)
            if file.metadata.num_rows != rows:
                raise InputError(f"{path} has {file.metadata.num_rows} rows; run.json speaks of {rows}")
            table = file.read()
        found = {name: _column_of(table.column(name), column, rows) for name, column in columns.items()}
        stored = table.column("checksum").to_pylist()
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} is missing") from None
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    for k, (right, given) in enumerate(zip(row_checksums(found, columns, claim_digest), stored)):
        if right != given:
            raise InputError(
                f"{path}: the certificate of input {first + k} (row {k}) was changed: it does not match its checksum"
            )
    for k, status in enumerate(found["status"]):
        if status not in STATUSES:
            raise InputError(f"{path}: input {first + k} (row {k}) has the unknown status {status!r}")
    return found


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
    if (found.metadata or {}).get(b"claim") != wanted.metadata[b"claim"]:
        raise InputError(f"{path} belongs to another run than run.json: its certificates make another claim")


def _column_of(found: Any, column: Column, rows: int) -> Any:
    if column.kind == "text":
        return found.to_pylist()
    shape = (rows,) if column.width is None else (rows, column.width)
    chunks = [c if column.width is None else c.flatten() for c in found.chunks]
    pieces = [c.to_numpy(zero_copy_only=False) for c in chunks]
    kind = np.dtype(column.kind)
    return np.concatenate([np.empty(0, kind), *pieces]).astype(kind, casting="safe", copy=False).reshape(shape)


# --- small things


def _part(source: Path, k: int) -> Path:
    return source / "parts" / f"part-{k:05d}.parquet"


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror or error}") from None


def _must_hold(found: Any, names: set[str], where: str) -> None:
    if not isinstance(found, dict):
        raise InputError(f"{where} is damaged: an object was expected, not {found!r}")
    for name in sorted(names ^ set(found)):
        raise InputError(f"{where}: the field {name!r} is {'missing' if name in names else 'unknown'}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 40


def _packages() -> dict[str, str]:
    pa, _ = _pyarrow()
    return {
        "elbowroom": __version__,
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("certificates are kept in Parquet files, which need pyarrow: pip install pyarrow") from None
    return pyarrow, pyarrow.parquet
