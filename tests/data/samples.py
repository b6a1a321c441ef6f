"""Small files of every kind that `open_data` reads, as bytes."""

import gzip
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from scipy.io import savemat

RNG = np.random.default_rng(0)
MNIST = "MNIST/raw/t10k-"
IMAGES = RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (3, 3, 32, 32), dtype=np.uint8)
LABELS = np.array([7, 0, 9], np.uint8)
TABLE = {"width": [1.5, None, 3.0], "age": [1, 2, 3], "label": ["ham", "spam", "ham"]}
CSV = b'width,age,label\n1.5,1,ham\n,2,spam\n3.0,3,"ham"\n'


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist(
    pack: Callable[..., Any] | type[Any] = bytes,
    ending: str = "",
    images: np.ndarray = IMAGES,
    labels: np.ndarray = LABELS,
    prefix: str = MNIST,
) -> dict[str, bytes]:
    names = (f"{prefix}images-idx3-ubyte{ending}", f"{prefix}labels-idx1-ubyte{ending}")
    return {names[0]: pack(idx(images)), names[1]: pack(idx(labels))}


def written(
    write: Callable[..., Any] | Callable[..., Any],
    *args: dict[str, Any] | np.ndarray,
    **options: bool | np.ndarray,
) -> bytes:
    """What `write(file, ...)` puts into a file."""
    file = io.BytesIO()
    write(file, *args, **options)
    return file.getvalue()


def svhn(
    do_compression: bool = True,
    x: np.ndarray = COLOUR.transpose(2, 3, 1, 0),  # noqa: B008
    y: np.ndarray = np.array([[7], [10], [9]], np.uint8),  # noqa: B008
) -> dict[str, bytes]:
    return {"SVHN/test_32x32.mat": written(savemat, {"X": x, "y": y, "more": [1.5]}, do_compression=do_compression)}


def cifar(x: np.ndarray = COLOUR, y: np.ndarray = LABELS) -> bytes:
    return np.concatenate([y[:, None], x.reshape(len(x), -1)], axis=1).tobytes()


def parquet(columns: dict[str, Any] | None = None, **options: int) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns or TABLE), file, **options)
    return file.getvalue()


def image(values: np.ndarray, kind: str = "PNG", mode: str | None = None) -> bytes:
    file = io.BytesIO()
    picture = Image.fromarray(values)
    (picture if mode is None else picture.convert(mode)).save(file, kind)
    return file.getvalue()


def put(folder: Path | str, files: dict[str, bytes]) -> Path:
    """Writes files by their names relative to `folder`, which is returned."""
    for name, data in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Path(folder)


PICTURE = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)

# What to open (a file is relative to the folder) and the files there.
EVERY_KIND = {
    "mnist": ("mnist", mnist()),
    "mnist, packed": ("mnist", mnist(gzip.compress, ".gz")),
    "svhn": ("svhn", svhn(False)),
    "svhn, packed": ("svhn", svhn(True)),
    "cifar10": ("cifar10", {"cifar-10-batches-bin/test_batch.bin": cifar()}),
    "cifar10, npz": (
        "cifar10",
        {"CIFAR10/test_first1000.npz": written(np.savez_compressed, x=COLOUR, y=LABELS)},
    ),
    "npy": ("a.npy", {"a.npy": written(np.save, RNG.normal(size=(4, 3)))}),
    "npz": ("a.npz", {"a.npz": written(np.savez, x=RNG.normal(size=(4, 3)), y=np.array(["a", "b", "b", "c"]))}),
    "csv": ("a.csv", {"a.csv": CSV}),
    "parquet": ("a.parquet", {"a.parquet": parquet(row_group_size=2)}),
    "parquet, plain": ("a.parquet", {"a.parquet": parquet(use_dictionary=False, compression="none")}),
    **{
        kind: ("p", {f"p/{name}.{kind}": image(PICTURE, kind.upper()) for name in "ab"})
        for kind in ("png", "jpeg", "bmp", "webp")
    },
}
