"""The cores that this process may use, and how its threads wait for each other. Loads no torch: libraries of threads
read their environment when they are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

# Says how threads wait: to any library of OpenMP; to GNU's (torch on Linux); to LLVM's and Intel's (torch elsewhere).
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
_HOW_MANY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def usable_cores(root: Path = Path("/")) -> int:
    """How many threads can run at a time: the cores that this process may run on, or what the CPU quota of its
    container (or of another control group) comes to, where that is less. At least one. `root`: of the file system."""
    return max(1, min(_allowed(), *(int(quota) for quota in _quotas(root)), 1 << 20))


def _allowed() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas(root: Path) -> Iterator[float]:
    """The quotas, in cores, of the control groups that this process is in, and of those around them: versions 2 and 1.

    A container sees its own group at the top, whatever its path is called outside; so the top is always looked at."""
    base = root / "sys/fs/cgroup"
    for controllers, path in _groups(root):
        tops = [base / name for name in {controllers, "cpu"}] if controllers else [base, base / "unified"]
        inner = Path(path.lstrip("/"))
        for top in tops:
            for folder in {top, *(top / each for each in (inner, *inner.parents))}:
                quota = _quota(folder) if controllers else _quota_2(folder)
                if quota is not None:
                    yield quota


def _groups(root: Path) -> list[tuple[str, str]]:
    """Controllers ("" in version 2) and path of each group that may limit CPU time."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # no such thing on this system
        return []
    found = [line.split(":", 2)[1:] for line in lines if line.count(":") >= 2]
    return [(names, path) for names, path in found if not names or "cpu" in names.split(",")]


def _quota_2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # not there, or "max"
        return None


def _quota(folder: Path) -> float | None:
    try:
        quota, period = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return quota / period if quota > 0 else None  # -1: no limit
    except (OSError, ValueError, ZeroDivisionError):
        return None


def settle_threads(environment: MutableMapping[str, str], root: Path = Path("/")) -> None:
    """Has the threads of this process and of those that it starts wait passively, and no more of them than the quota
    has room for; what a user has set stays. For commands, before torch is loaded: a library leaves this alone.

    A thread that waits for others by default tries again and again for milliseconds. Where other work keeps the others
    from running, that takes many times the CPU time of the work itself.
    """
    if not any(name in environment for name in _WAITING):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    cores = usable_cores(root)
    if cores < _allowed() and not any(name in environment for name in _HOW_MANY):
        environment["OMP_NUM_THREADS"] = str(cores)


__all__ = ["settle_threads", "usable_cores"]
