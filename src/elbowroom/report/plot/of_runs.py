"""Pictures of runs: of one input, only its part is read."""

from __future__ import annotations

from collections.abc import Sequence

from elbowroom.certificates.result import Certificates
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.report.page.details import image_of
from elbowroom.report.plot.drawing import Drawing
from elbowroom.report.plot.pictures import drawing_of
from elbowroom.report.room import scale_of
from elbowroom.runs.one_input import where_is


def picture_of(run: Run, kind: str, number: int | None, most: int, image_shape: Sequence[int] | None) -> Drawing:
    """A picture of a run, or of the input with this number."""
    if not run.finished():
        raise InputError(f"nothing of {run.folder} is done yet, so there is nothing to draw")
    rotated = "basis" in run.shared
    image = None if rotated else image_of(run.network, image_shape)
    scale = scale_of(run, image is not None)
    if number is None:
        certs: Certificates = run.read(*run.finished())
    else:
        part, row = where_is(run, number)
        certs = run.read(part)
        certs = certs[row].certificates
    return drawing_of(certs, kind, scale, most, image_shape)


__all__ = ["picture_of"]
