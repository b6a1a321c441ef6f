"""How much memory certifying takes beside the budget it was given, model by model, each in a process of its own.

    python benchmarks/memory.py [--shared DIR] [--budgets 128MiB 1GiB] [--inputs 2] [--only NAME ...] [--json FILE]

`budget` is `memory=`, which the bounds of the search keep to; `peak` is the largest resident memory while inputs are
certified, beyond what the process had just before: torch and the model loaded, one small network certified. Networks:
those of DIR/models (default: ELBOWROOM_SHARED, or ../shared), and one of 150,528 features. Needs Linux's /proc.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import elbowroom as er
from elbowroom.search.memory import bytes_of
from speed import PIXELS, SHARED, network

WIDE = "150528-64-64-10"


def status(field: str) -> int:
    """A field of this process's memory, in bytes."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def models(shared: Path) -> list[str]:
    found = sorted(path.stem for path in (shared / "models").glob("*.onnx"))
    first = sorted((shared / "models" / "acasxu").glob("*.onnx"))[:1]
    return [*found, *(f"acasxu/{path.stem}" for path in first), WIDE]


def one(name: str, shared: Path, budget: str, inputs: int) -> dict[str, Any]:
    """Certifies some inputs of one model in this process."""
    torch.set_num_threads(1)
    net = (
        network([150528, 64, 64, 10])
        if name == WIDE
        else er.load(shared / "models" / f"{name}.onnx", **PIXELS.get(name, {}))
    )
    x = torch.rand(inputs, *net.input_shape, generator=torch.Generator().manual_seed(0))
    told = {"domain": (0, 1)} if net.n_inputs > 100 else {}
    er.certify(network([4, 8, 3]), torch.zeros(1, 4))  # libraries take memory of their own when they start
    net(x)
    Path("/proc/self/clear_refs").write_text("5")  # the largest so far is forgotten
    before, started = status("VmRSS"), time.perf_counter()
    certs = er.certify(net, x, memory=budget, **told)
    return {
        "peak": status("VmHWM") - before, "seconds": time.perf_counter() - started,
        "certified": int(certs.certified.sum()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--budgets", nargs="*", default=["128MiB", "1GiB"])
    parser.add_argument("--inputs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one, given.shared, given.budgets[0], given.inputs)))
        return
    rows = []
    print(f"{'model':26} {'budget':>8} {'peak MiB':>9} {'of budget':>9} {'seconds':>8}  certified")
    for name in models(given.shared):
        if not any(part in name for part in given.only):
            continue
        for budget in given.budgets:
            told = ["--one", name, "--shared", str(given.shared), "--inputs", str(given.inputs), "--budgets", budget]
            done = subprocess.run([sys.executable, __file__, *told], capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name:26} {budget:>8}  failed: {done.stderr.strip().splitlines()[-1][:100]}")
                continue
            row = {"model": name, "budget": budget, **json.loads(done.stdout.splitlines()[-1])}
            rows.append(row)
            share = row["peak"] / bytes_of(budget)
            print(
                f"{name:26} {budget:>8} {row['peak'] / 2**20:9.0f} {share:9.0%} {row['seconds']:8.1f}"
                f"  {row['certified']} of {given.inputs}",
                flush=True,
            )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
