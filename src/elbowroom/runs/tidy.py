"""The certificates of a run as one tidy table in a file, part by part, so that a run of any length fits into memory."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from elbowroom.certificates.frame import arrow_of
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.files import replace_file

ENDINGS = (".csv", ".parquet")


def write_frame(run: Run, path: Path) -> int:
    """Writes `Certificates.to_arrow` of all that is done into a .csv or .parquet file, in place of one that was there;
    gives the number of rows."""
    import pyarrow.csv
    import pyarrow.parquet

    writers: dict[str, Any] = {".csv": pyarrow.csv.CSVWriter, ".parquet": pyarrow.parquet.ParquetWriter}
    kind = writers.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path}: the ending says how to write it, which must be one of {', '.join(ENDINGS)}")
    count = 0

    def write(file: IO[bytes]) -> None:
        nonlocal count
        with kind(file, arrow_of(run.read()).schema) as writer:
            for k in run.finished():
                table = arrow_of(run.read(k))
                writer.write_table(table)
                count += table.num_rows

    replace_file(path, write)
    return count


__all__ = ["ENDINGS", "write_frame"]
