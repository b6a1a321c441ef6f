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
import elbowroom as er
from elbowroom.network.operations import Linear
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("a", "b", "c", "d", "apart", "e", "f", "g", "h", "i")]
info = ctypes.CDLL(None).mallinfo2
info.restype = Info
net = er.Network.chain((2,), [Linear(torch.eye(2))])
x = torch.tensor([[1.0, 0.0]])
if sys.argv[1] != "not called":
    certs = er.certify(net, x, memory=sys.argv[1])
if len(sys.argv) > 2:
    er.check(certs)
apart, held = [], []
for size in (1 << 20, 15 << 20, 31 << 20):
    before = info().apart
    piece = torch.empty(size, dtype=torch.uint8)
    apart.append(info().apart - before >= size)
    held.append(piece)  # given back, it would teach the library something
print(apart)
"""


def can_be_asked() -> bool:
    return platform.libc_ver()[0] == "glibc" and hasattr(ctypes.CDLL(None), "mallinfo2")


@pytest.mark.skipif(not can_be_asked(), reason="the C library cannot be asked")
@pytest.mark.parametrize(
    ("calls", "apart"),
    [
        (["not called"], [True, True, True]),
        (["4GiB"], [False, False, False]),
        (["128MiB"], [False, False, True]),  # where there is less, less is kept
        (["1MiB", "and checked"], [False, False, False]),
    ],
)
def test_after_a_call_of_ours_memory_is_kept(calls: list[str], apart: list[bool]) -> None:
    run = [sys.executable, "-c", APART, *calls]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() == str(apart)


def test_where_there_is_no_room_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr("torch.empty", full)
    settle(12345)
