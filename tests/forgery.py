"""Shared by the tests of files and of the check: a network of every operation, and what a forger does to files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from elbowroom.certificates import parts, store
from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError
from elbowroom.files import digest
from elbowroom.network import operations as ops
from elbowroom.network.file import about_hash, load_network, network_hash
from elbowroom.network.graph import Graph, Network
from support import normal


def every_operation(seed: int = 0, dtype: torch.dtype = torch.float64) -> Network:
    """A small network in which every operation and every activation has a part; the smallest output decides."""
    rng = np.random.default_rng(seed)

    def w(*shape: int) -> torch.Tensor:
        return (normal(rng, *shape) * 0.3).to(dtype)

    g = Graph((2, 6, 6))
    x = g.add(ops.Divide(w(2, 1, 1).abs() + 1), g.add(ops.Shift(w(2, 1, 1)), g.input, name="mean"), name="std")
    a = g.add(ops.Conv(w(4, 1, 3, 2), w(4), (1, 2), (1, 1), (1, 2), 2), x)
    a = g.add(ops.BatchNorm(w(4), w(4).abs() + 0.5, w(4) + 1, w(4), eps=1e-3), a)
    a = g.add(ops.LeakyReLU(w(4, 1, 1)), a)
    b = g.add(ops.MaxPool((2, 2), (1,), (1,)), g.add(ops.Pad((1, 0, 0, 1), 0.25), a))
    c = g.add(ops.AvgPool((2, 2), (2, 1), count_include_pad=False), b)
    c = g.add(ops.Transpose((1, 2, 0)), g.add(ops.Softplus(2.0), c))
    c = g.add(ops.Reshape((-1,)), g.add(ops.Mean((1,), keepdim=True), c))
    d = g.add(ops.Linear(w(5, 1), None), g.add(ops.Reshape((-1, 1)), g.add(ops.Slice(0, 1, 6, 2), c)))
    parts = []
    shared = g.add(ops.Linear(w(6, 15), w(6)), g.add(ops.Reshape((-1,)), d))
    for op in (
        ops.ReLU(), ops.LeakyReLU(0.1), ops.Clip(-math.inf, 0.5), ops.Clip(), ops.Sigmoid(), ops.Tanh(), ops.Arctan(),
        ops.ELU(1.5), ops.SiLU(), ops.GELU(), ops.GELU(tanh=True),
    ):  # fmt: skip
        parts.append(g.add(op, shared))
    e = g.add(ops.Concat(-1), *parts)
    e = g.add(ops.Add((1.0, -0.5)), e, g.add(ops.Scale(w(66)), e))
    out = g.add(ops.Linear(w(3, 66), torch.tensor([0.0, 1.0, 2.0], dtype=dtype)), e)
    return g.network(out, decision="min")


def sized(certs: Certificates) -> Certificates:
    """The same with the sizes that its extents give: a forger who forgets nothing."""
    eps = certs.eps.flatten(1)
    free = eps > 0
    n = free.sum(1).double()
    log = torch.where(free, eps, 1.0).log().sum(1) / n
    p = math.inf if certs.settings["p"] == "inf" else float(certs.settings["p"])
    unit = n * math.log(2 * math.gamma(1 + 1 / p)) - torch.lgamma(n / p + 1)
    none = n == 0
    return dataclasses.replace(
        certs,
        geomean=torch.where(none, 0.0, log.exp()),
        log_volume=torch.where(none, -math.inf, n * log + unit),
    )


def edit_archive(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    """Rewrites a zip after `change` of its entries, in the manner of the original: sound in itself."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)


def edit_graph(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrites a network file after `change` of its graph."""

    def edit(entries: dict[str, bytes]) -> None:
        graph = json.loads(entries["graph.json"])
        change(graph)
        entries["graph.json"] = json.dumps(graph).encode()

    edit_archive(path, edit)


def edit_run(run: Path, change: Callable[[dict[str, Any]], None], seal: bool = True) -> None:
    """Rewrites run.json after `change`; `seal`: with the right checksum."""
    content = json.loads((run / "run.json").read_text())
    change(content)
    if seal:
        del content["checksum"]
        content["checksum"] = digest(content)
    (run / "run.json").write_text(json.dumps(content))


def edit_rows(run: Path, column: str, change: Callable[[list[Any]], None], part: int = 0) -> None:
    """Rewrites one column of a part after `change` of the list of its rows; checksums stay as they were."""
    path = run / "parts" / f"part-{part:05d}.parquet"
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    change(values)
    at = table.schema.get_field_index(column)
    field = table.schema.field(column)
    write_table(table.set_column(at, field, pa.array(values, type=field.type)), path)


def write_table(table: pa.Table, path: Path) -> None:
    """In the manner of the original."""
    pq.write_table(table, path, compression="zstd", use_dictionary=False)


def reseal(run: Path) -> None:
    """Makes a run sound again whose network, claim, plan, shared arrays or rows were changed: every hash, digest and
    checksum is what the content gives, as far as it can be read. What a forger does who knows the format."""
    with contextlib.suppress(InputError):
        path = run / "network.elbowroom"
        try:
            net = load_network(path)
        except InputError as error:
            found = re.search("its content has the hash ([0-9a-f]{64})", str(error))
            if found is None:
                raise
            edit_graph(path, lambda graph: graph.update(hash=found[1]))
            net = load_network(path)
        edit_run(run, lambda r: r["claim"].update(network_hash=network_hash(net), about=about_hash(net)))
    edit_run(run, lambda r: _reseal_shared(run, r["claim"]))
    content = json.loads((run / "run.json").read_text())
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):  # a claim of no columns
        cells = store.cells_of(content["claim"], Certificates)
        for path in sorted(run.glob("parts/part-*.parquet")):
            table = pq.read_table(path)
            values = {name: table.column(name).to_pylist() for name in cells}
            numbers = {n: v if cells[n].kind == "text" else np.array(v) for n, v in values.items()}
            sums = parts.row_checksums(numbers, cells, digest(content["claim"]))
            seal = parts.Seal(digest(content["claim"]), digest(content["plan"]), int(path.stem[5:]))
            at = table.column_names.index("checksum")
            table = table.set_column(at, table.schema.field("checksum"), pa.array(sums, type=pa.binary(32)))
            write_table(table.replace_schema_metadata(seal.metadata()), path)


def _reseal_shared(run: Path, claim: dict[str, Any]) -> None:
    if not (run / "shared.npz").exists() or not isinstance(claim.get("shared"), dict):
        return
    with np.load(run / "shared.npz") as arrays:
        for name in set(arrays) & set(claim["shared"]):
            claim["shared"][name] = hashlib.sha256(np.ascontiguousarray(arrays[name]).tobytes()).hexdigest()
