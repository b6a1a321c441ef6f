"""One writer per run folder: a lock of the operating system's, which ends with its process, however that ends.

What is locked and what says who locked it are two files, since on Windows nobody else can read a locked file. Both are
removed by the writer; what a killed one left says nothing, as long as nobody holds the lock.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from elbowroom.errors import InputError
from elbowroom.files import canonical_json, parse_json, read_file, replace_file

NAME = "lock"  # says who writes
_LOCKED = ".lock"
_PATIENCE = 0.5  # seconds: a process that only looks whether a run is being written holds its lock for a moment
_LOOK = 0.1
_MOST = 1 << 16  # bytes of a file that says who writes


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock; an `InputError` that names the process where another one has it."""
    from filelock import Timeout

    who = {"pid": os.getpid(), "host": socket.gethostname()}
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_held(folder, _PATIENCE))
        except Timeout:  # before OSError, which it is
            raise InputError(f"{folder} is being written by {_name(folder / NAME)}") from None
        except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
            raise InputError(f"cannot write {folder / _LOCKED}: {_why(error)}") from None
        stack.callback(_remove, folder / NAME)
        replace_file(folder / NAME, lambda file: file.write(canonical_json(who)))
        yield


def holder(folder: Path) -> str | None:
    """Who writes into the folder now, in words; None where nobody does."""
    from filelock import Timeout

    if not (folder / _LOCKED).exists():
        return None
    try:
        with _held(folder, _LOOK):
            return None
    except Timeout:
        return _name(folder / NAME)
    except (OSError, NotImplementedError) as error:  # a lock is tried by taking it, which not everybody may
        found = (folder / NAME).exists()
        return f"{_name(folder / NAME)}, unless that was killed (its lock: {_why(error)})" if found else None


def held_since(folder: Path) -> float | None:
    """When the lock was taken, in seconds since 1970; None where it was released meanwhile."""
    try:
        return (folder / NAME).stat().st_mtime  # it is written once, by the process that takes it
    except OSError:
        return None


@contextlib.contextmanager
def _held(folder: Path, patience: float) -> Iterator[None]:
    """Holds the lock itself; filelock's `Timeout` where another holds it for as long as this."""
    from filelock import FileLock

    path = folder / _LOCKED
    with FileLock(path, timeout=patience, poll_interval=0.02):
        try:
            yield
        finally:
            # While it is held: a process waiting with the old file open finds its name gone, and starts over.
            _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows removes no file that is open; there filelock does it afterwards
        path.unlink()


def _name(path: Path) -> str:
    try:
        found = parse_json(read_file(path, _MOST), str(path))
        return f"process {int(found['pid'])} on {str(found['host'])[:80]!r}"
    except (InputError, ValueError, KeyError, TypeError):
        return "another process"


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
