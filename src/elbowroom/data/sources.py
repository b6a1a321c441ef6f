"""DATA of the command line: a named set, a file or a folder, as a `Dataset`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from elbowroom.data.dataset import Dataset, Rows, seen_as
from elbowroom.data.reading import hash_files
from elbowroom.errors import InputError
from elbowroom.files import digest
from elbowroom.network.table import Table

TABLES = (".csv", ".parquet", ".pq")
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib")


def open_data(
    text: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    label_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    input_shape: Sequence[int] | None = None,
    key: str | None = None,
    features: Sequence[str] | Table | None = None,
) -> Dataset:
    """Opens a data set.

    Args:
        text: What to open. `digits`, which comes with scikit-learn, or a set under `data_dir`: `mnist:test`,
            `mnist:train`, `fashion-mnist`, `svhn`, `cifar10`; without a split, the test images. FILE.npy: inputs `n x
            *shape` as they are. FILE.npz: inputs and labels. FILE.csv, FILE.parquet: a row per input. A folder of
            images, the classes in sub-folders. Pixels are float64 in [0, 1], images `c x h x w`. The name of a set
            comes before a file of the same name; write ./digits for a file called digits.
        data_dir: Where the files of named sets are; default, ELBOWROOM_DATA, or `data` or `datasets` here or at home.
        label_column: Of a table, see `elbowroom.data.tables`.
        feature_columns: Of a table, likewise.
        input_shape: How to see one input whose values come as a row, or the reverse.
        key: Of an .npz file, "inputs" or "inputs,labels": the names of its arrays, where these are not x and y, X and
            Y, inputs and labels, or data and target.
        features: The names that a model has for its features, if it has some: of a table those columns are taken. Or
            the table that it takes rows of (`network.about.table`), as which values are then read.

    Returns:
        The data set.

    Raises:
        InputError: There is no such set, file or folder, it cannot be read, or an option is not for its kind.
    """
    given = os.fspath(text)
    name, _, split = given.partition(":")
    path = Path(given)
    kind = _kind(given, name, path)
    for option, value, fits in (
        ("label_column", label_column, ("table",)),
        ("feature_columns", feature_columns, ("table",)),
        ("key", key, ("npz",)),
    ):
        if value is not None and kind not in fits:
            raise InputError(
                f"`{option}` does not apply to {given}: it is for {' and '.join(_PEOPLE[k] for k in fits)}"
            )
    if kind == "digits":
        return _digits(split, input_shape)
    if kind == "set":
        return _named(name, split or "test", data_dir, input_shape)
    if kind == "table":
        from elbowroom.data.tables import open_table

        return open_table(path, label_column, feature_columns, input_shape, features)
    if kind == "folder":
        from elbowroom.data.images import open_folder

        return open_folder(path, input_shape)
    from elbowroom.data.arrays import open_npy, open_npz

    return open_npy(path, input_shape) if kind == "npy" else open_npz(path, input_shape, key)


_PEOPLE = {"table": "tables", "npz": ".npz files"}


def _kind(given: str, name: str, path: Path) -> str:
    from elbowroom.data.standard import SETS

    if name == "digits" or name in SETS:
        return "digits" if name == "digits" else "set"
    if not given.strip():
        raise InputError("no data were named: give a set, a file or a folder")
    ending = path.suffix.lower()
    if ending in _PICKLES:
        raise InputError(f"{given}: pickles can run code, so they are not read; save the arrays as .npy or .npz")
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as error:
        raise InputError(f"{given} cannot be read: {error.strerror or error}") from None
    if is_folder:
        return "folder"
    if not is_file:
        known = ", ".join(["digits", *(f"{n}:{s}" for n, known in SETS.items() for s in known.splits)])
        raise InputError(f"{given!r} is neither a file, a folder nor a known set; known sets: {known}")
    if ending in TABLES:
        return "table"
    if ending in (".npy", ".npz"):
        return ending[1:]
    raise InputError(f"{given}: the ending {ending!r} is unknown; known: .npy, .npz, {', '.join(TABLES)}, or a folder")


def _digits(split: str, input_shape: Sequence[int] | None) -> Dataset:
    from elbowroom.data.standard import digits_pixels

    if split:
        raise InputError(f"digits has no splits, so {split!r} cannot be chosen; select some by index")
    x, y = digits_pixels()
    shape = seen_as(x.shape[1:], input_shape, "digits")
    content = digest({"digits": [x.tobytes().hex(), y.tolist()], "shape": shape})
    return Dataset("digits", shape, len(x), content, Rows(x, 16.0), y, domain=(0.0, 1.0))


def _named(
    name: str, split: str, data_dir: str | os.PathLike[str] | None, input_shape: Sequence[int] | None
) -> Dataset:
    from elbowroom.data.standard import SETS, read_split

    found, known = read_split(name, split, data_dir), SETS[name]
    shape = seen_as(known.shape, input_shape, name)
    content = digest({"set": f"{name}:{split}", "files": hash_files(found.files), "shape": shape})
    title = f"{known.title} {split}" + (f" ({found.note})" if found.note else "")
    return Dataset(title, shape, len(found.x), content, Rows(found.x, 255.0), found.y, known.classes, domain=(0.0, 1.0))
