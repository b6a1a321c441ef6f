"""One writer per run folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from elbowroom.errors import InputError

try:
    import fcntl
except ImportError:  # Windows has no flock; there nothing keeps a second writer away
    fcntl = None  # type: ignore[assignment]

NAME = "lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock; an `InputError` that names the process where another one has it."""
    path = folder / NAME
    try:
        file = _take(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # before the lock is let go, so that nobody waits for a file that is gone
        os.close(file)


def holder(folder: Path) -> str | None:
    """Who writes into the folder now, in words; None where nobody does."""
    path = folder / NAME
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe is not waited for
    except OSError:
        return None
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _name(path)
    finally:
        os.close(file)
    return None


def held_since(folder: Path) -> float | None:
    """When the lock was taken, in seconds since 1970; None where it was let go meanwhile."""
    try:
        return (folder / NAME).stat().st_mtime  # it is written once, by who takes it
    except OSError:
        return None


def _take(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InputError(f"{path.parent} is being written by {_name(path)}") from None
                if not _is_still(file, path):
                    os.close(file)
                    continue
            os.ftruncate(file, 0)
            os.write(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
            return file
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(file)
            raise


def _is_still(file: int, path: Path) -> bool:
    """Whether the file that was locked is the one that has the name: its last owner may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _name(path: Path) -> str:
    try:
        found = json.loads(path.read_text())
        return f"process {int(found['pid'])} on {str(found['host'])[:80]!r}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
