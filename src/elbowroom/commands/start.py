"""How the program starts: quickly, and with threads that leave the cores to others while they wait."""

from __future__ import annotations

import gc
import importlib
import os
import sys

from elbowroom.machine.cores import settle_threads


def load_torch() -> None:
    """Loads torch, which every command needs, as this program wants it; nothing happens where it is loaded already.

    Nobody looks for garbage among its half a million objects meanwhile, nor ever after, since they stay: that is a
    sixth of the time to load it.
    """
    if "torch" in sys.modules:
        return
    settle_threads(os.environ)
    gc.disable()
    try:
        importlib.import_module("torch")
    finally:
        gc.freeze()
        gc.enable()
