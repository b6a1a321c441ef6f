"""A run on disk: one folder with a network and the certificates that are about it.

    run.json                  what all certificates share (`claim`), what is to be done (`plan`), versions, a checksum
    network.elbowroom         the network, see `elbowroom.network.file`
    shared.npz                arrays that all certificates share: a basis, a domain or specification that is one for all
    parts/part-00000.parquet  a row per certificate: exact float64 numbers, and a checksum of the row
    lock, .lock               while a process writes: which one; what it holds locked

All but the parts is written first. Then parts come one by one, each whole or not at all; part k has the rows
`k * part_rows` and following of the plan's `inputs`. A run is complete when all parts are there, and can be read at
any time.

A row's checksum is the sha256 of the digest of `claim` (which has the network's hash, a digest of its names and origin,
the settings, the sizes and digests of the shared arrays) followed by the row's own columns in the order of the file:
numbers as 8 bytes each, little end first, booleans as one byte, text as its length in 8 bytes and its UTF-8, lists that
differ in length as their length in 8 bytes and their numbers. Checksums find damage and careless changes. A forger can
recompute them, but cannot make a proof, see `elbowroom.check`.

Which columns and arrays there are follows from how `Certificates` are declared, see `elbowroom.certificates.schema`,
and from the claim: `sizes`, the parts that these certificates have (`has`), and digests of what all share (`shared`).
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from elbowroom.certificates import parts
from elbowroom.certificates.header import (
    CLAIM,
    Plan,
    cells_of,
    claim_of,
    must_hold,
    plan_of,
    refuse_odd_claim,
    sha256_of,
    stated_sizes,
)
from elbowroom.certificates.lock import locked
from elbowroom.certificates.result import Certificates
from elbowroom.certificates.schema import declared, shared_by_all
from elbowroom.errors import InputError
from elbowroom.files import Archive, canonical_json, digest, parse_json, read_file, replace_file, write_archive
from elbowroom.network.file import about_hash, load_network, network_hash, save_network
from elbowroom.network.graph import Network
from elbowroom.version import __version__

FORMAT, VERSION = "elbowroom-run", 6
PART_BYTES = 1 << 28  # of numbers in one part at most, before compression, except for
ROW_BYTES = 1 << 30  # one row, which is a part of its own if it must be
_MOST_JSON = 1 << 25  # bytes of run.json
HEADER, NETWORK, SHARED = "run.json", "network.elbowroom", "shared.npz"
Kind = TypeVar("Kind", bound=Certificates)


@dataclass(frozen=True, eq=False)
class Run:
    """A run's folder: `Run.open` one, or `Run.create` one and `write` its parts while holding its lock."""

    folder: Path
    claim: dict[str, Any]
    plan: Plan
    network: Network = field(repr=False)
    shared: dict[str, Any] = field(repr=False)  # columns of which there is one for all rows
    kind: type[Certificates] = Certificates  # what it holds
    packages: Mapping[str, Any] = field(default_factory=dict, repr=False)  # versions that wrote it, as it states them

    @staticmethod
    def create(folder: str | os.PathLike[str], certs: Certificates, plan: Plan) -> Run:
        """Begins a run, in place of the one that was there, that makes the same claim as `certs` (two rows or more,
        where each is to have a specification of its own). The lock must be held."""
        parts.pyarrow()
        target, net = Path(folder), _network_of(certs)
        certs.must_fit(net)
        stated, found = certs.settings.get("network_hash"), network_hash(net)
        if stated != found:
            raise InputError(f"the network was changed since it was certified: its hash is {found}, not {stated}")
        claim = claim_of(certs, net, shared_by_all(certs))
        kind = type(certs)
        _refuse_too_much(cells_of(claim, kind), plan, "`part_rows`")
        head: dict[str, Any] = {
            "format": FORMAT, "version": VERSION, "claim": claim, "plan": vars(plan), "packages": _packages()
        }  # fmt: skip
        text = canonical_json({**head, "checksum": digest(head)}, indent=1)
        if len(text) > _MOST_JSON:
            raise InputError(f"the plan would take {len(text):,} bytes in {HEADER}, which holds {_MOST_JSON:,}")
        _remove_run(target)
        make_folder(target / "parts")
        save_network(net, target / NETWORK)
        if claim["shared"]:
            write_archive(
                target / SHARED, {}, {f"{name}.npy": getattr(certs, name).numpy() for name in claim["shared"]}
            )
        replace_file(target / HEADER, lambda file: file.write(text))
        return Run(target, claim, plan, net, _read_shared(target / SHARED, claim, kind), kind, head["packages"])

    @staticmethod
    def open(folder: str | os.PathLike[str], kind: type[Certificates] = Certificates) -> Run:
        """Reads all but the parts. Never runs code from files; refuses, by name, what was damaged, changed or is
        unknown."""
        source = Path(folder)
        where = f"{source / HEADER}"
        if not (source / HEADER).exists():
            raise InputError(f"{source} holds no run: {HEADER} is missing")
        head = parse_json(read_file(source / HEADER, _MOST_JSON), where)
        if head.get("format") != FORMAT:
            raise InputError(f"{where}: the format is {head.get('format')!r}, not {FORMAT!r}")
        if head.get("version") != VERSION:
            raise InputError(f"{where}: version {head.get('version')!r} is unknown; this program reads {VERSION}")
        must_hold(head, {"format", "version", "claim", "plan", "packages", "checksum"}, where)
        if digest({k: v for k, v in head.items() if k != "checksum"}) != head["checksum"]:
            raise InputError(f"{where} was changed: its content does not match its checksum")
        claim = head["claim"]
        refuse_odd_claim(claim, kind, where)
        plan = plan_of(head["plan"], where)
        net = load_network(source / NETWORK)
        found = network_hash(net)
        if found != claim["network_hash"]:
            raise InputError(
                f"{source / NETWORK} is not the network that was certified: its hash is {found}, "
                f"not {claim['network_hash']!r}"
            )
        if about_hash(net) != claim["about"]:
            raise InputError(f"{source / NETWORK}: the names or the origin of the network are not those of the run")
        sizes = stated_sizes(claim)
        if (net.input_shape, net.n_outputs) != (sizes.input_shape, sizes.outputs):
            raise InputError(f"{where}: the claim is about another shape of inputs or outputs than the network has")
        _refuse_too_much(cells_of(claim, kind), plan, f"{where}: plan: part_rows")
        packages = head["packages"]
        if not isinstance(packages, dict) or not all(isinstance(value, str) for value in packages.values()):
            raise InputError(f"{where}: packages cannot be {packages!r:.80}")
        return Run(source, claim, plan, net, _read_shared(source / SHARED, claim, kind), kind, packages)

    @property
    def n_parts(self) -> int:
        return -(-self.plan.inputs // self.plan.part_rows)

    def rows(self, part: int) -> range:
        """The rows of the plan that a part has."""
        first = part * self.plan.part_rows
        return range(first, min(first + self.plan.part_rows, self.plan.inputs))

    def finished(self) -> list[int]:
        """The parts that are there, in order."""
        try:
            names = {entry.name for entry in os.scandir(self.folder / "parts")}
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"{self.folder / 'parts'} cannot be read: {error.strerror or error}") from None
        numbers = {int(m[1]) for m in map(_NAME.fullmatch, names) if m}
        return sorted(k for k in numbers if k < self.n_parts and _name(k) in names)

    def last_written(self) -> float | None:
        """When the newest part was written, in seconds since 1970; None where there is none."""
        try:
            return max((entry.stat().st_mtime for entry in os.scandir(self.folder / "parts")), default=None)
        except OSError:
            return None

    def write(self, part: int, certs: Certificates) -> None:
        """Writes a part; refuses certificates that make another claim than the run does."""
        certs.must_fit(self.network)
        # What is shared is what the run says: a single row has, of everything, one for all.
        shared = [name for name in self.claim["shared"] if getattr(certs, name) is not None]
        stated = claim_of(certs, self.network, shared)
        for name in CLAIM:
            if stated[name] != self.claim[name]:
                raise InputError(
                    f"these certificates do not belong into {self.folder}: their {name} is {stated[name]}, "
                    f"not {self.claim[name]}"
                )
        if len(certs) != len(self.rows(part)):
            raise InputError(f"part {part} of {self.folder} has {len(self.rows(part))} rows, not {len(certs)}")
        parts.write_part(self._path(part), certs, cells_of(self.claim, self.kind), self._seal(part))

    def read(self, *numbers: int) -> Certificates:
        """The certificates of some parts, checked against their checksums."""
        cells, sizes = cells_of(self.claim, self.kind), stated_sizes(self.claim)
        found = []
        for k in numbers:
            rows = self.rows(k)
            found.append(parts.read_part(self._path(k), cells, self._seal(k), len(rows), rows.start))
        found = found or [parts.no_rows(cells)]
        values: dict[str, Any] = dict(self.shared)
        for name, cell in cells.items():
            pieces = [part[name] for part in found]
            if cell.kind == "text":
                values[name] = tuple(text for piece in pieces for text in piece)
            elif cell.ragged:
                values[name] = tuple(torch.from_numpy(entry) for piece in pieces for entry in piece)
            else:
                tensor = torch.from_numpy(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))
                values[name] = tensor.reshape(len(tensor), *declared(self.kind)[name].shape(sizes))
        settings = {**self.claim["settings"], "network_hash": self.claim["network_hash"]}
        certs = self.kind(settings=settings, network=self.network, **values)
        try:
            certs.must_fit(self.network)
        except InputError as error:
            raise InputError(f"{self.folder}: {error}") from None
        return certs

    def _path(self, part: int) -> Path:
        return self.folder / "parts" / _name(part)

    def _seal(self, part: int) -> parts.Seal:
        return parts.Seal(digest(self.claim), digest(vars(self.plan)), part)


def save_run(certs: Certificates, directory: str | os.PathLike[str]) -> Path:
    """Writes a run, in place of the one that was there; returns its folder."""
    target = Path(directory)
    parts.pyarrow()
    make_folder(target)
    with locked(target):
        plan = Plan(len(certs), rows_per_part(certs, len(certs)))
        run = Run.create(target, certs, plan)
        for k in range(run.n_parts):
            rows = run.rows(k)
            run.write(k, certs.rows(rows.start, rows.stop))
    return target


def load_run(directory: str | os.PathLike[str], kind: type[Kind]) -> Kind:
    """Reads what is there of a run."""
    run = Run.open(directory, kind)
    certs = run.read(*run.finished())
    assert isinstance(certs, kind)
    return replace(certs, missing=run.plan.inputs - len(certs))


def rows_per_part(certs: Certificates, most: int) -> int:
    """At most `most` rows, and as many as one file may hold; at least one."""
    claim = claim_of(certs, _network_of(certs), shared_by_all(certs))
    each = parts.bytes_per_row(cells_of(claim, type(certs)))
    return max(1, min(most, PART_BYTES // each))


def _network_of(certs: Certificates) -> Network:
    if certs.network is None:
        raise InputError("these certificates do not know their network, so they cannot be saved; certify sets it")
    return certs.network


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror or error}") from None


def remove_leftovers(folder: Path) -> None:
    """Removes files that a killed process had not finished. The lock must be held."""
    _remove([*folder.glob("*.part"), *folder.glob("parts/*.part")])


def _remove_run(folder: Path) -> None:
    """The header first: without it there is no run, whatever else is left."""
    _remove([folder / HEADER, folder / SHARED, folder / NETWORK, *folder.glob("parts/part-*.parquet")])
    remove_leftovers(folder)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"cannot remove {path}: {error.strerror or error}") from None


def _name(part: int) -> str:
    return f"part-{part:05d}.parquet"


_NAME = re.compile(r"part-([0-9]{5,13})\.parquet")


def _refuse_too_much(cells: Mapping[str, parts.Cell], plan: Plan, what: str) -> None:
    """Refuses parts that would take more memory than a part may."""
    each, rows = parts.bytes_per_row(cells), min(plan.part_rows, plan.inputs)
    if each > ROW_BYTES:
        raise InputError(
            f"one certificate of this network takes {each:,} bytes; a run holds at most {ROW_BYTES:,} each"
        )
    if rows > max(1, PART_BYTES // each):
        raise InputError(f"{what} can be {max(1, PART_BYTES // each):,} at most for this network, got {rows:,}")


def _read_shared(path: Path, claim: dict[str, Any], kind: type[Certificates]) -> dict[str, Any]:
    """The shared arrays as tensors, by column."""
    if not claim["shared"]:
        return {}
    found, sizes = {}, stated_sizes(claim)
    with Archive(path) as archive:
        archive.must_hold_only({f"{name}.npy" for name in claim["shared"]})
        for name, stated in claim["shared"].items():
            c = declared(kind)[name]
            array = archive.array(f"{name}.npy", c.kind, (*[1] * c.shareable, *c.shape(sizes)))
            if sha256_of(array) != stated:
                raise InputError(f"{path} was changed: the content of {name} does not match its checksum in run.json")
            found[name] = torch.from_numpy(array)
    return found


def _packages() -> dict[str, str]:
    pa, _ = parts.pyarrow()
    return {
        "elbowroom": __version__,
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
