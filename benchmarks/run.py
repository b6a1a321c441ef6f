"""A long run of tiny inputs: whether rate and memory stay flat, and what the files take.

    python benchmarks/run.py [--inputs 100000] [--batch N] [--workers N] [--out DIR]

Random points of the plane and a random network of two hidden layers, one thread. Memory is that of the process that
writes, its resident set; so is CPU time, except for the rate per second of the clock, which counts all workers.
"""

import argparse
import hashlib
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from elbowroom.data.dataset import Dataset, Rows
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.runs.runner import Start, run_dataset
from elbowroom.runs.settings import Settings
from elbowroom.runs.summary import Tally, summary_of

TENTHS = 10


def resident() -> float:
    """MiB in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def network(rng: np.random.Generator) -> Network:
    layers: list[ops.Operation] = []
    for n, m in ((2, 20), (20, 20), (20, 4)):
        weight = rng.normal(size=(m, n)) * 1.5 / n**0.5
        layers += [
            ops.Linear(torch.from_numpy(weight).float(), torch.from_numpy(rng.normal(size=m)).float()),
            ops.ReLU(),
        ]
    return Network.chain((2,), layers[:-1])


class Clock:
    """Prints a line per tenth of the run."""

    def begin(self, start: Start) -> None:
        self.total, self.last, self.since = start.run.plan.inputs, 0, time.process_time()
        print(f"{start.run.n_parts} parts of {start.run.plan.part_rows} rows\n  inputs   inputs per CPU s   MiB")

    def advance(self, tally: Tally) -> None:
        if tally.count - self.last >= self.total / TENTHS or tally.count == self.total:
            now = time.process_time()
            print(
                f"{tally.count:8d} {(tally.count - self.last) / (now - self.since):18.1f} {resident():5.0f}", flush=True
            )
            self.last, self.since = tally.count, now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    net, x = network(rng), rng.uniform(-1, 1, size=(given.inputs, 2))
    data = Dataset("points", (2,), len(x), hashlib.sha256(x.tobytes()).hexdigest(), Rows(x))
    settings = Settings(device="cpu", batch=given.batch, workers=given.workers)
    with tempfile.TemporaryDirectory() as place:
        out = given.out or Path(place) / "run"
        began, clock = time.process_time(), time.perf_counter()
        run = run_dataset(net, data, out, settings, watch=Clock()).run
        per_cpu, per_second = (len(x) / t for t in (time.process_time() - began, time.perf_counter() - clock))
        print(f"all: {per_cpu:.1f} inputs per CPU s, {per_second:.1f} per s of the clock")
        began = time.process_time()
        summary = summary_of(run)
        size = sum(p.stat().st_size for p in run.folder.rglob("*") if p.is_file())
        print(f"summary read again in {time.process_time() - began:.1f} CPU s, at {resident():.0f} MiB")
        certified, ratio = summary["status"]["certified"], summary["ratio_of_sizes"]
        print(f"{size / 2**20:.1f} MiB on disk; {certified} certified, ratio of sizes {ratio:.3f}")


if __name__ == "__main__":
    main()
