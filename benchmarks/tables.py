"""How long a large table takes to be read, and how much memory: CSV and Parquet, numbers, categories and holes.

    python benchmarks/tables.py [--rows 1000000] [--folder DIR] [--certify]

Writes a table of 24 columns of numbers, 4 of categories, one of truth values and a label into DIR (default: a temporary
folder), in both formats, then for each, in a process of its own: opens it for a network that takes such rows, finds the
range of the data, reads it once in blocks and 10,000 rows at random. With --certify, also certifies 1,000 inputs of it
into a run. Memory is the process's peak, less what it had after its imports.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS, CATEGORIES, LEVELS = 24, 4, 12
NAMES = [f"level {k}" for k in range(LEVELS)]
BLOCK = 100_000


def write(folder: Path, rows: int) -> None:
    """table.csv and table.parquet, block by block."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    writers: list[Any] = []
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        columns: dict[str, Any] = {}
        for k in range(NUMBERS):
            values = rng.normal(size=count) * 10.0 ** (k % 7 - 3)
            columns[f"n{k}"] = pa.array(values, mask=rng.random(count) < 0.001)
        for k in range(CATEGORIES):
            chosen = pa.array(rng.integers(0, LEVELS, count), pa.int32())
            columns[f"c{k}"] = pa.DictionaryArray.from_arrays(chosen, pa.array(NAMES)).cast(pa.string())
        columns["yes"] = pa.array(rng.random(count) < 0.5)
        columns["label"] = pa.array(np.where(rng.random(count) < 0.5, "a", "b"))
        table = pa.table(columns)
        if not writers:
            writers += [pyarrow.csv.CSVWriter(folder / "table.csv", table.schema)]
            writers += [pyarrow.parquet.ParquetWriter(folder / "table.parquet", table.schema)]
        for writer in writers:
            writer.write_table(table)
    for writer in writers:
        writer.close()


def network() -> Any:
    """One that takes such rows: holes in the first ten columns are filled in, elsewhere they are errors."""
    import torch

    from elbowroom.network import operations as ops
    from elbowroom.network.graph import About, Graph
    from elbowroom.network.table import Column, Table

    codes = tuple(tuple(float(j == k) for j in range(LEVELS)) for k in range(LEVELS))
    columns = [Column(f"n{k}", missing=0.0 if k < 10 else np.nan) for k in range(NUMBERS)]
    columns += [Column(f"c{k}", tuple(NAMES), codes) for k in range(CATEGORIES)]
    columns.append(Column("yes", (False, True), ((0.0,), (1.0,))))
    table = Table(tuple(columns))
    torch.manual_seed(0)
    scales = torch.tensor([10.0 ** (k % 7 - 3) for k in range(NUMBERS)] + [1.0] * (table.width - NUMBERS))
    graph = Graph((table.width,))
    node = graph.add(ops.Linear(torch.randn(32, table.width) / scales / 6, torch.randn(32)), graph.input)
    graph.add(ops.Linear(torch.randn(2, 32), torch.zeros(2)), graph.add(ops.ReLU(), node))
    return graph.network(about=About(features=table.entries, table=table, classes=("a", "b")))


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read(path: Path, certify: bool) -> dict[str, Any]:
    """In this process: seconds of each step, and the peak of memory in MiB."""
    from elbowroom.data.sources import open_data
    from elbowroom.runs.ranges import observed
    from elbowroom.runs.runner import run_dataset
    from elbowroom.runs.settings import Settings

    net = network()
    before, found = peak(), {}
    started = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal started
        found[name] = round(time.perf_counter() - started, 1)
        started = time.perf_counter()

    data = open_data(path, features=net.about.table)
    lap("open")
    observed(data)
    lap("range")
    for first in range(0, data.count, 1024):
        data.inputs(np.arange(first, min(first + 1024, data.count)))
    lap("blocks")
    if path.suffix == ".csv":  # of Parquet, each row may be in another row group
        data.inputs(np.random.default_rng(0).integers(0, data.count, 10_000))
        lap("10,000 at random")
    if certify:
        with tempfile.TemporaryDirectory() as out:
            settings = Settings(limit=1000, device="cpu", domain="observed")
            found["certified"] = run_dataset(net, data, out, settings).tally.certified
        lap("run of 1,000")
    return {
        "rows": data.count,
        "width": net.n_inputs,
        **found,
        "MiB": round(peak() - before),
        "MiB before": round(before),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--certify", action="store_true")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.read is not None:
        print(json.dumps(read(told.read, told.certify)))
        return
    with tempfile.TemporaryDirectory() as made:
        folder = told.folder or Path(made)
        write(folder, told.rows)
        for name in ("table.csv", "table.parquet"):
            size = (folder / name).stat().st_size / 2**20
            command = [sys.executable, __file__, "--read", str(folder / name), *(["--certify"] if told.certify else [])]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"{name} ({size:.0f} MiB): {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
