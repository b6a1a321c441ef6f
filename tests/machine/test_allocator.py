"""Memory that is given back and asked for again."""

import ctypes
import platform
import subprocess
import sys

import pytest

from elbowroom.machine.allocator import settle

# How many bytes glibc has taken from the system for a piece that it will return there as soon as it is free.
APART = """
import ctypes, sys, torch
from elbowroom.machine.torch_modes import in_own_modes
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("a", "b", "c", "d", "apart", "e", "f", "g", "h", "i")]
info = ctypes.CDLL(None).mallinfo2
info.restype = Info
if sys.argv[1] == "called":
    in_own_modes(lambda: None)()
before = info().apart
piece = torch.empty(15 << 20, dtype=torch.uint8)
print(info().apart - before)
"""


def can_be_asked() -> bool:
    return platform.libc_ver()[0] == "glibc" and hasattr(ctypes.CDLL(None), "mallinfo2")


@pytest.mark.skipif(not can_be_asked(), reason="the C library cannot be asked")
def test_after_a_call_of_ours_memory_is_kept() -> None:
    found = {}
    for kind in ("called", "not called"):
        run = [sys.executable, "-c", APART, kind]
        found[kind] = int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    assert found["called"] == 0 and found["not called"] >= 15 << 20


def test_where_there_is_no_room_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr("torch.empty", full)
    settle.__wrapped__()
