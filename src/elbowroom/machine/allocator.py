"""What the C library does with memory that is given back."""

from __future__ import annotations

import contextlib
from functools import cache

import torch

_LARGE = 16 << 20  # bytes: hardly any piece that comes and goes is larger, and more would be kept for nothing


@cache
def settle() -> None:
    """Has memory kept that is given back, where it will be asked for again.

    glibc returns every piece above a threshold, 128 KiB at first, to the system as soon as it is free, and the end of
    its heap where twice as much is. What is then taken anew the system has to make page by page, which may take as long
    as what is computed there. But the threshold rises to the largest piece that was ever given back: this is one, which
    nobody writes to. (Other libraries make nothing of it.)
    """
    with contextlib.suppress(RuntimeError):  # no room for it: then there are no large pieces
        torch.empty(_LARGE, dtype=torch.uint8)


__all__ = ["settle"]
