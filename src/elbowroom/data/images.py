"""A folder of images, decoded one by one when asked for."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elbowroom.data.dataset import Dataset, Shape, number_labels, seen_as
from elbowroom.data.reading import one_line, read_bytes, require
from elbowroom.errors import InputError
from elbowroom.files import digest

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP")  # none that starts another program, as Pillow does for PostScript
_CHANNELS = {"1": 1, "L": 1, "LA": 1, "I;16": 1, "P": 3, "RGB": 3, "RGBA": 3}  # by Pillow's mode


class Unreadable(Exception):
    """One image cannot be used; the message says why."""


def open_folder(folder: Path, input_shape: Sequence[int] | None) -> Dataset:
    """Images `c x h x w` in [0, 1]: grey ones have one channel, others three.

    Sub-folders are classes, named by their names (or numbered, where all of these are whole numbers). Images follow in
    the order of their paths. Files that are not images (by their endings) and hidden ones are passed over.
    """
    library = require("PIL.Image", "pillow", "reading images", "data")
    files, classes_of = _list(folder)
    labels, classes = (None, None) if classes_of is None else number_labels(classes_of, f"{folder}")
    names = tuple(path.relative_to(folder).as_posix() for path in files)
    sums, found, first, why = [], None, "", ""
    for path, name in zip(files, names):
        data = read_bytes(path)
        sums.append(hashlib.sha256(data).hexdigest())
        try:
            shape = _shape(library, data)
        except Unreadable as error:
            why = why or f"{name}: {error}"
            continue
        if found is None:
            found, first = shape, name
        elif shape != found:
            raise InputError(
                f"{folder}: all images must have one size; {name} is {_size(shape)}, but {first} is {_size(found)}"
            )
    if found is None:
        raise InputError(f"{folder}: none of the {len(files)} images can be read; {why}")
    load = ImageFiles(folder, names, tuple(sums), found)
    shape = seen_as(found, input_shape, f"{folder}")
    content = digest({"images": list(zip(names, sums)), "shape": shape})
    name = f"{folder.resolve().name} ({len(files)} images)"
    return Dataset(
        name, shape, len(files), content, load, labels, classes,
        domain=(0.0, 1.0), ids=load.name, fault=load.fault, own_numbers=classes is None,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Decodes images; `sums` are the sha256 of the files as they were when the folder was opened."""

    folder: Path
    names: tuple[str, ...]
    sums: tuple[str, ...]
    shape: Shape

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        found = np.full((len(indices), *self.shape), np.nan)
        for row, index in zip(found, indices.tolist()):
            try:
                row[:] = self._decode(index)
            except Unreadable:
                continue  # stays NaN; `fault` tells
        return found

    def name(self, index: int) -> str:
        return self.names[index]

    def fault(self, index: int) -> str | None:
        """Why this image cannot be read."""
        try:
            self._decode(index)
        except Unreadable as error:
            return f"{self.names[index]}: {error}"
        return None

    def _decode(self, index: int) -> np.ndarray:
        library = require("PIL.Image", "pillow", "reading images", "data")
        data = read_bytes(self.folder / self.names[index])
        if hashlib.sha256(data).hexdigest() != self.sums[index]:
            raise InputError(f"{self.folder / self.names[index]} was changed since the folder was opened")
        found = _pixels(library, data)
        if found.shape != self.shape:
            raise Unreadable(f"its pixels have the shape {found.shape}, unlike what its head says")
        return found


def _list(folder: Path) -> tuple[list[Path], list[str] | None]:
    """All images in order, and the sub-folder each lies in, if there are sub-folders."""
    try:
        top = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
        folders = [p for p in top if p.is_dir()]
        inner = [p for sub in folders for p in sorted(sub.iterdir()) if not p.name.startswith(".")]
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror or error}") from None
    deep = [p for p in inner if p.is_dir()]
    if deep:
        raise InputError(f"{deep[0]}: folders within the folders of the classes are not read")
    loose, sorted_in = ([p for p in paths if p.suffix.lower() in ENDINGS and not p.is_dir()] for paths in (top, inner))
    if not loose and not sorted_in:
        raise InputError(f"{folder} holds no images: no file ends in {', '.join(ENDINGS)}")
    if not sorted_in:
        if folders:
            raise InputError(f"{folder}: the folder of a class, {folders[0].name!r}, holds no images")
        return loose, None
    if loose:
        raise InputError(f"{folder}: some images lie in folders of classes, but {loose[0].name} does not")
    for sub in folders:
        if not any(p.parent == sub for p in sorted_in):
            raise InputError(f"{folder}: the folder of a class, {sub.name!r}, holds no images")
    return sorted_in, [p.parent.name for p in sorted_in]


def _size(shape: Shape) -> str:
    return f"{shape[2]}x{shape[1]} with {shape[0]} channel{'s' * (shape[0] > 1)}"


def _shape(library: Any, data: bytes) -> Shape:
    """From the head alone."""
    with _opened(library, data) as image:
        return _CHANNELS[image.mode], image.height, image.width


def _pixels(library: Any, data: bytes) -> np.ndarray:
    """`c x h x w`, float64 in [0, 1]: the smallest value is 0 and the largest 1, exactly."""
    with _opened(library, data) as image:
        try:
            image.load()
            if image.mode == "P":
                image = image.convert("RGBA" if "transparency" in image.info else "RGB")
            elif image.mode == "1":
                image = image.convert("L")
            most = 65535.0 if image.mode == "I;16" else 255.0
            values = np.asarray(image)
        except Exception as error:  # Pillow states no list of what a damaged file makes it raise
            raise Unreadable(f"damaged: {one_line(error)}") from None
    values = values.reshape(*values.shape[:2], -1)
    if image.mode in ("LA", "RGBA"):
        if values[..., -1].min() < 255:
            raise Unreadable("some pixels are transparent, so their colour is not defined")
        values = values[..., :-1]
    return values.transpose(2, 0, 1) / most


def _opened(library: Any, data: bytes) -> Any:
    """The image with its head read: one picture, of a mode that is read here without loss."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow warns of images that would fill the memory
            image = library.open(io.BytesIO(data), formats=_FORMATS)
        frames = getattr(image, "n_frames", 1)
    except Exception as error:
        reason = (
            "no image of a known kind"
            if type(error).__name__ == "UnidentifiedImageError"
            else f"damaged: {one_line(error)}"
        )
        raise Unreadable(reason) from None
    if frames != 1:
        raise Unreadable(f"it holds {frames} pictures")
    deep = image.format == "PNG" and data[24] == 16  # bits per channel; Pillow would drop half of a colour's
    if image.mode not in _CHANNELS or (deep and image.mode != "I;16"):
        raise Unreadable(f"images of the kind {image.mode}{' with 16 bits per channel' * deep} are not supported")
    return image
