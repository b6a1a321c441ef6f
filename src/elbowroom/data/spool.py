"""Rows that are read once and looked up often: in memory while they are few, else in a temporary file."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from elbowroom.data.dataset import Rows
from elbowroom.errors import InputError

HELD = 1 << 26  # bytes that are kept in memory


class _Temporary:
    """A file without a name, which goes when nobody holds it."""

    def __init__(self) -> None:
        self.file: Any = tempfile.TemporaryFile(prefix="elbowroom-")  # noqa: SIM115 - closed below

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


class Spool:
    """Takes blocks of rows, `b x width` of one type; `rows` then gives those at some indices."""

    def __init__(self, width: int, dtype: str = "float64") -> None:
        self._width, self._dtype = width, np.dtype(dtype)
        self._blocks: list[np.ndarray] = []
        self._bytes = self.count = 0
        self._file: _Temporary | None = None

    def add(self, block: np.ndarray) -> None:
        self.count += len(block)
        self._bytes += block.nbytes
        self._blocks.append(np.ascontiguousarray(block, self._dtype))
        if self._bytes > HELD:
            self._to_file()

    def rows(self) -> Any:
        """How to look rows up, see `Dataset.load`."""
        if self._file is None:
            return Rows(np.concatenate([np.empty((0, self._width), self._dtype), *self._blocks]))
        self._to_file()
        return FileRows(self._file, self._width, self._dtype)

    def _to_file(self) -> None:
        try:
            if self._file is None:
                self._file = _Temporary()
            for block in self._blocks:
                self._file.file.write(block.data)
            self._file.file.flush()
        except OSError as error:
            raise InputError(
                f"a table of more than {HELD >> 20} MiB of numbers is kept in the folder for temporary files, "
                f"{tempfile.gettempdir()}, which failed: {error.strerror or error}; the variable TMPDIR names another"
            ) from None
        self._blocks = []


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows of a file of numbers, `width` each."""

    kept: _Temporary
    width: int
    dtype: np.dtype[Any]

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        found = np.empty((len(indices), self.width), self.dtype)
        starts = np.flatnonzero(np.diff(indices, prepend=-2) != 1)  # of rows that follow each other
        for first, last in zip(starts, [*starts[1:], len(indices)]):
            self.kept.file.seek(int(indices[first]) * self.width * self.dtype.itemsize)
            content = self.kept.file.read((last - first) * self.width * self.dtype.itemsize)
            found[first:last] = np.frombuffer(content, self.dtype).reshape(-1, self.width)
        return found

    def __reduce__(self) -> Any:  # to another process, which does not have the file
        self.kept.file.seek(0)
        return Rows, (np.frombuffer(self.kept.file.read(), self.dtype).reshape(-1, self.width),)


__all__ = ["FileRows", "Spool"]
