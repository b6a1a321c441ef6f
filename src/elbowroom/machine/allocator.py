"""What the C library does with memory that is given back."""

from __future__ import annotations

import contextlib
from functools import cache

import torch

_MOST = (32 << 20) - (64 << 10)  # bytes: glibc learns nothing from larger pieces
_SHARE = 8  # of the memory that there is


def settle(memory: int | None = None) -> None:
    """Has memory kept that is given back, where it will be asked for again.

    glibc returns every piece above a threshold, 128 KiB at first, to the system as soon as it is free, and the end of
    its heap where twice as much is. What is then taken anew the system has to make page by page, which may take as long
    as what is computed there. But the threshold rises to the largest piece that was ever given back: this is one, which
    nobody writes to. (Other libraries make nothing of it.)

    Args:
        memory: How many bytes may be taken in all, if that is known: what is kept, up to twice the threshold, counts.
    """
    _give_back(_MOST if memory is None else min(memory // _SHARE, _MOST))


@cache
def _give_back(size: int) -> None:
    with contextlib.suppress(RuntimeError):  # no room for it: then there are no large pieces
        torch.empty(size, dtype=torch.uint8)


__all__ = ["settle"]
