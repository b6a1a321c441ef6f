"""The device that work is done on."""

from __future__ import annotations

import torch

from elbowroom.errors import InputError


def usable_device(name: str | torch.device | None = None) -> torch.device:
    """The device of this name; by default a GPU, where there is one. Refused where torch cannot use it."""
    wanted = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):  # what torch raises depends on how it was built
        raise InputError(f"device {str(wanted)!r} cannot be used here; the device 'cpu' always can") from None
    return device


__all__ = ["usable_device"]
