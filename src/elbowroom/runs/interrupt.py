"""Stopping cleanly: Ctrl-C and SIGTERM ask for an end, and what is being computed is finished first."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Stop:
    """Whether an end was asked for."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked


@contextlib.contextmanager
def on_signals(message: str) -> Iterator[Stop]:
    """While this lasts, the first SIGINT or SIGTERM writes `message` and sets the stop that is given; the second
    raises `KeyboardInterrupt`."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True
        # Not print: a signal may come while another print holds the stream.
        with contextlib.suppress(OSError):
            os.write(2, f"\n{message}\n".encode())

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
