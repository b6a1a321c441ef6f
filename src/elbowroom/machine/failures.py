"""What torch's errors say about the machine: memory that ran out, a device that failed.

Torch has a class of its own for a GPU's memory only; all else is a `RuntimeError` that is known by its words.
"""

from __future__ import annotations

import torch

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")
_NO_DEVICE = ("cuda error", "hip error", "device-side assert")


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether it says that memory ran out, so that less at a time may do."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)


def place_of_memory(error: BaseException) -> str:
    """Whose memory it was that ran out."""
    on_gpu = isinstance(error, torch.OutOfMemoryError) or any(name in str(error).lower() for name in ("cuda", "hip"))
    return "GPU" if on_gpu else "machine"


def is_device_failure(error: BaseException) -> bool:
    """Whether it says that a device failed, after which nothing works on it. Memory that ran out is no such failure,
    though the words may be alike ("CUDA error: out of memory")."""
    return not is_out_of_memory(error) and any(words in str(error).lower() for words in _NO_DEVICE)


__all__ = ["is_device_failure", "is_out_of_memory", "place_of_memory"]
