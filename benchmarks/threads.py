"""What threads and workers cost: the command with nothing said, against one thread and other ways.

    python benchmarks/threads.py [--only PART] [--repeat 2] [--inputs 200] [--spinning] [--json FILE]

Each line is the command as a user runs it, in a process of its own with its workers: CPU seconds (of all of them,
loading torch included) and seconds of the clock, each the least of the repetitions, which take turns; in brackets their
ratios to those of one thread. On a machine that others use, only the CPU seconds say something.

- busy: 8 inputs on a random 784-256-256-256-256-10 network, with two processes beside that do nothing but count. The
  default must not take more than 1.25 times the CPU time of one thread.
- library: `er.certify` in a process of its own, with two such beside, of 64 inputs on 100-64-64-10, 8 on
  784-256-256-10 and on 784-300-300-300-10, and one on 150528-64-64-10: seconds of the second call, by one thread and by
  two, which wait as torch has them do by itself.
- shared: 200 inputs on 784-256-256-10. The default ought to be the quickest of these.
- large: 4 inputs on networks from 784-400x3 on, which one thread and two passive ones take: when do threads pay?
- with --spinning also two threads that wait as torch has them do by itself, which takes minutes where others are busy.
- start: each command on a run of one input, against `import torch` alone, by CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import elbowroom as er
from scaling import network

LIMIT = 1.25  # times the CPU time of one thread
LATER = 0.3  # seconds after `import torch` alone
_OURS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
_BUSY = "while True: pass"
LIBRARY = {(100, 64, 64, 10): 64, (784, 256, 256, 10): 8, (784, 300, 300, 300, 10): 8, (150528, 64, 64, 10): 1}
_CALL = """
import sys, time, torch, elbowroom as er, speed
sizes = list(map(int, sys.argv[1].split(",")))
net, x = speed.network(sizes), torch.rand(int(sys.argv[2]), sizes[0], generator=torch.Generator().manual_seed(1))
er.certify(net, x[:1], domain=(0, 1))
clock, used = time.perf_counter(), time.process_time()
er.certify(net, x, domain=(0, 1))
print(time.perf_counter() - clock, time.process_time() - used)
"""
# Workers are children of a server that nobody waits for: whatever is left without a parent is waited for here.
_WITH_ORPHANS = """
import ctypes, os, subprocess, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
status = subprocess.run(sys.argv[1:]).returncode
try:
    while True:
        os.wait()
except ChildProcessError:
    sys.exit(status)
"""
Way = tuple[tuple[str, ...], dict[str, str]]  # flags, environment
ONE, TWO = {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}
TWO_THREADS = ("--workers", "1", "--threads", "2")
SPINNING: dict[str, Way] = {"two threads, spinning": (TWO_THREADS, {**TWO, "GOMP_SPINCOUNT": "300000"})}


def cost(*arguments: str, **environment: str) -> tuple[float, float]:
    """CPU seconds of a process and of all that it started, and seconds of the clock. What this process was told about
    threads is not passed on."""
    given = {name: value for name, value in os.environ.items() if name not in _OURS}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_ORPHANS, sys.executable, *arguments],
        env={**given, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}: {said}")
    return used.ru_utime + used.ru_stime, time.monotonic() - began


@contextlib.contextmanager
def beside(count: int) -> Iterator[None]:
    """While others are busy."""
    others = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def files(folder: Path, case: tuple[int, int, int], inputs: int) -> tuple[str, str]:
    er.save_network(network(*case), folder / "net.elbowroom")
    x = torch.rand(inputs, case[0], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    np.save(folder / "data.npy", x.numpy())
    return str(folder / "net.elbowroom"), str(folder / "data.npy")


def compare(case: tuple[int, int, int], inputs: int, ways: dict[str, Way], repeat: int) -> dict[str, Any]:
    """CPU seconds and clock by way, the least of the repetitions; the others are compared with the first way."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = ("-m", "elbowroom", "certify", *files(folder, case, inputs), "--device", "cpu", "--quiet")
        for turn in range(repeat):
            for way, (flags, environment) in ways.items():
                out = str(folder / f"{way}-{turn}".replace(" ", "-"))
                found[way].append(cost(*given, "--out", out, *flags, **environment))
    least = {way: {"cpu": min(c for c, _ in all_), "clock": min(t for _, t in all_)} for way, all_ in found.items()}
    base = next(iter(least.values()))
    for way, row in least.items():
        row["cpu ratio"], row["clock ratio"] = row["cpu"] / base["cpu"], row["clock"] / base["clock"]
        print(
            f"  {way:34} {row['cpu']:7.1f} CPU s ({row['cpu ratio']:.2f}) {row['clock']:7.1f} s"
            f" ({row['clock ratio']:.2f})"
        )
    return least


def busy(repeat: int, inputs: int, more: dict[str, Way]) -> dict[str, Any]:
    print("8 inputs, 784-256x4, two busy processes beside:")
    with beside(2):
        found = compare((784, 256, 4), 8, {"one thread": ((), ONE), "default": ((), {}), **more}, repeat)
    print(
        f"  the default takes {found['default']['cpu ratio']:.2f} times the CPU time of one thread; at most {LIMIT}\n"
    )
    return found


def library(repeat: int, inputs: int, more: dict[str, Way]) -> dict[str, Any]:
    print("er.certify, seconds of the clock (CPU seconds) of a call, two busy processes beside:")
    found: dict[str, Any] = {}
    here = {name: value for name, value in os.environ.items() if name not in _OURS}
    with beside(2):
        for sizes, count in LIBRARY.items():
            taken: dict[str, list[tuple[float, float]]] = {"1": [], "2": []}
            for _ in range(repeat):
                for threads, all_ in taken.items():
                    run = [sys.executable, "-c", _CALL, ",".join(map(str, sizes)), str(count)]
                    told = {**here, "OMP_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(sys.path)}
                    said = subprocess.run(run, env=told, capture_output=True, text=True, check=True).stdout.split()
                    all_.append((float(said[0]), float(said[1])))
            name = "-".join(map(str, sizes))
            found[name] = {threads: min(all_) for threads, all_ in taken.items()}
            one, two = ("{:.2f} ({:.2f})".format(*found[name][threads]) for threads in taken)
            print(f"  {name:22} one thread {one}, two {two}", flush=True)
    print()
    return found


def shared(repeat: int, inputs: int, more: dict[str, Way]) -> dict[str, Any]:
    print(f"{inputs} inputs, 784-256x2:")
    ways: dict[str, Way] = {
        "one thread": ((), ONE),
        "default": ((), {}),
        "two workers": (("--workers", "2"), {}),
        "two threads": (TWO_THREADS, TWO),
        **more,
    }
    found = compare((784, 256, 2), inputs, ways, repeat)
    best = min(found, key=lambda way: found[way]["clock"])
    print(f"  the quickest by the clock: {best}\n")
    return found


def large(repeat: int, inputs: int, more: dict[str, Way]) -> dict[str, Any]:
    found = {}
    for width in (400, 800, 1500):
        print(f"4 inputs, 784-{width}x3:")
        ways: dict[str, Way] = {"one thread": ((), ONE), "two threads": (TWO_THREADS, TWO)}
        found[str(width)] = compare((784, width, 3), 4, ways, repeat)
    return found


def start(repeat: int, inputs: int, more: dict[str, Way]) -> dict[str, Any]:
    print("start, CPU seconds beyond `import torch` alone:")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        net, data = files(folder, (8, 8, 1), 1)
        run = str(folder / "run")
        cost("-m", "elbowroom", "certify", net, data, "--out", run, "--quiet", **ONE)
        commands = {
            "certify": ("certify", net, data, "--quiet", "--out"),
            "check": ("check", run),
            "show": ("show", run),
            "status": ("status", run),
            "verify": ("verify", net, "--lower", "0.5", "--upper", "0.5"),
            "export-vnnlib": ("export-vnnlib", run, "--out", str(folder / "queries")),
        }
        taken: dict[str, list[float]] = {"torch": [], **{command: [] for command in commands}}
        for turn in range(max(3, repeat)):
            taken["torch"].append(cost("-c", "import torch", **ONE)[0])
            for command, flags in commands.items():
                out = (str(folder / f"again{turn}"),) if command == "certify" else ()
                taken[command].append(cost("-m", "elbowroom", *flags, *out, **ONE)[0])
    torch_alone = min(taken["torch"])
    later = {command: min(taken[command]) - torch_alone for command in commands}
    for command, seconds in later.items():
        print(f"  {command:14} {seconds:+.2f} s of {LATER}, the work of one input included")
    print(f"  ({torch_alone:.2f} s for torch)\n")
    return {"torch": torch_alone, "later": later}


PARTS = {"busy": busy, "library": library, "shared": shared, "large": large, "start": start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--inputs", type=int, default=200, help="of the part `shared`")
    parser.add_argument("--spinning", action="store_true")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}\n")
    more = SPINNING if given.spinning else {}
    found = {name: part(given.repeat, given.inputs, more) for name, part in PARTS.items() if given.only in (None, name)}
    print(f"load average {os.getloadavg()[0]:.1f} at the end")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
