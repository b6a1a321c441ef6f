"""What all readers of data files share: digests of files, packages that may be missing, sizes that cannot be true."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elbowroom.errors import InputError

_ALWAYS_FINE = 1 << 30  # bytes that anyone may unpack
_MOST_EXPANSION = 50  # above that, unpacked bytes per byte of the file; sets of images have 1 to 10


def require(module: str, package: str, purpose: str, extra: str | None = None) -> Any:
    """Imports an optional package, or says what it is needed for, and by which extra of ours it is installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        what = package if extra is None else f"'elbowroom[{extra}]'"
        raise InputError(f"{purpose} needs {package}, which is not installed: pip install {what}") from None


def one_line(error: BaseException) -> str:
    """A library's message, short enough to be part of a sentence."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def hash_files(paths: Sequence[Path]) -> list[str]:
    """The sha256 of every file's bytes."""
    found = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                found.append(hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    return found


def refuse_bomb(path: Path, unpacked: int, advice: str) -> None:
    """Refuses a small file that would unpack to a huge one, before any memory is taken for it."""
    size = file_size(path)
    if unpacked > max(_ALWAYS_FINE, _MOST_EXPANSION * size):
        raise InputError(
            f"{path} has {size} bytes but would unpack to {unpacked}, which is refused as a likely trap; {advice}"
        )
