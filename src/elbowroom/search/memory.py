"""How much memory there is, and how much of it the bounds may take."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from elbowroom.errors import InputError
from elbowroom.network.graph import Network

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("kmgt", 1)
    for kind, base in (("", 1024), ("b", 1000), ("ib", 1024))
}
_SHARE = 0.5  # of what is free, where nothing is said: others use the machine, too
_CACHE = 4 << 20  # on a CPU, rows in flight are fastest where they stay in the cache
_GPU_CHUNK = 8 << 30
_BYTES_PER_ENTRY = (
    256  # of a node, per input: its values, bounds and lines in float32 and float64, and what autograd keeps
)
_BYTES_PER_DERIVATIVE = 32  # of a margin by a node's bounds or lines, all margins at once
_MARGINS = 16  # that are differentiated, at most
# Of a row over a node, per input: in the strict check, and in the sub-problem, where a feature has two sides.
_BYTES_PER_COEFFICIENT = 64
_MOST = {"cpu": (64, 32 << 20), "cuda": (8192, 16 << 30)}  # more inputs at a time bring nothing: so many, or such bytes


def bytes_of(memory: int | str) -> int:
    """A number of bytes from a number or a text such as "4GiB", "500 MB" or "4G" (1024s, as in GiB)."""
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", memory.lower())
        if match is None or match[2] not in _UNITS:
            raise InputError(f'memory must be a number of bytes or a text such as "4GiB", got {memory!r}')
        memory = int(float(match[1]) * _UNITS[match[2]])
    if not isinstance(memory, int) or isinstance(memory, bool) or memory < 1 << 20:
        raise InputError(f'memory must be at least a megabyte, in bytes or as a text such as "4GiB", got {memory!r}')
    return memory


def free_bytes(device: torch.device) -> int:
    """Memory that can be had on a device now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min(_available(), *_left_to_group(), 1 << 50)


def _available() -> int:
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        if found:
            return int(found[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):  # no such question on this system
        return 4 << 30


def _left_to_group() -> list[int]:
    """What a container's limit leaves, where there is one (cgroups, version 2 then 1)."""
    base = Path("/sys/fs/cgroup")
    found = []
    for limit, used in (
        (base / "memory.max", base / "memory.current"),
        (base / "memory/memory.limit_in_bytes", base / "memory/memory.usage_in_bytes"),
    ):
        try:
            found.append(max(0, int(limit.read_text()) - int(used.read_text())))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return found


@dataclass(frozen=True)
class Budget:
    """How much memory bounds may take: `total` bytes, of which `chunk` for rows in flight, `keep` for Jacobians."""

    total: int
    chunk: int
    keep: int

    @staticmethod
    def of(memory: int | str | None, device: torch.device) -> Budget:
        """From a total; by default, half of what is free on the device."""
        total = int(_SHARE * free_bytes(device)) if memory is None else bytes_of(memory)
        natural = _CACHE if device.type == "cpu" else _GPU_CHUNK
        return Budget(total, max(1 << 16, min(natural, total // 8)), total // 2)

    def batch(self, net: Network, device: torch.device, rows: int = 1) -> int:
        """How many inputs at a time: as many as are of use and fit, the `rows` of a specification included. At least
        one."""
        states = (_BYTES_PER_ENTRY + _BYTES_PER_DERIVATIVE * min(rows, _MARGINS)) * sum(n.size for n in net.nodes)
        carried = _BYTES_PER_COEFFICIENT * rows * max(node.size for node in net.nodes)
        fit = self.total // 4 // max(states, carried)
        count, size = _MOST.get(device.type, _MOST["cpu"])
        return max(1, min(fit, max(count, size // states)))


class Pool:
    """What may still be kept of a budget; shared by the layers of one evaluation."""

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, size: int) -> bool:
        """Whether there was room for `size` bytes, which are then taken."""
        fits = size <= self.left
        self.left -= size * fits
        return fits


__all__ = ["Budget", "Pool", "bytes_of", "free_bytes"]
