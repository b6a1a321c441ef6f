"""What a set of inputs is: how many, of which shape, what they are called, and how to get at some of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from elbowroom.arguments.axes import keeps_axes
from elbowroom.arguments.names import places
from elbowroom.errors import InputError
from elbowroom.files import digest
from elbowroom.network.names import counted

Shape = tuple[int, ...]

_MOST_LABEL = 2**31
_WHOLE = re.compile(r"-?(0|[1-9]\d*)(\.0*)?", re.ASCII)
_PADDED = re.compile(r"-?0\d+(\.0*)?", re.ASCII)  # with zeros in front, as codes and names of folders have them
_NAMED_AT_MOST = 5  # features in a message


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Inputs that are read when asked for.

    `name`: for people. `shape`: of one input. `count`: of the inputs, `n`. `labels`: class numbers, `n`, int64, or
    None. `classes`: the name of every class number, or None. `features`: a name per value of an input, or None.
    `domain`: (lowest, highest) valid value where that is known. `digest`: sha256 of the content, so that changed data
    are noticed. `ids`: what people call an input, by its index. `load`: the inputs at some indices, `b x *any shape`
    of as many values; NaN where an input cannot be read. `fault`: why an input cannot be read, None where it can be.
    `labelled_by`: where the labels come from, in words. `imputed`: which entries of the inputs at some indices are what
    a model takes for missing values, `b x n`; None where none is. `own_numbers`: whether class numbers are the data's
    own; else the labels are names, and were numbered along the alphabet, which says nothing about a network's outputs.
    `notes`: what was done to the data that their user should know, in sentences.
    """

    name: str
    shape: Shape
    count: int
    digest: str
    load: Callable[[np.ndarray], np.ndarray]
    labels: np.ndarray | None = None
    classes: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    domain: tuple[float, float] | None = None
    ids: Callable[[int], str] = str
    fault: Callable[[int], str | None] | None = None
    labelled_by: str | None = None
    imputed: Callable[[np.ndarray], np.ndarray] | None = None
    own_numbers: bool = True
    notes: tuple[str, ...] = ()

    def inputs(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """The inputs at these indices, `b x *shape`, float64, a new array; nothing else is read."""
        wanted = whole_numbers(indices, "indices")
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < self.count:
            worst = wanted.min() if wanted.min() < 0 else wanted.max()
            raise InputError(f"{self.name} has the inputs 0 to {self.count - 1}, not {worst}")
        return np.array(self.load(wanted), dtype=np.float64).reshape(len(wanted), *self.shape)

    def with_features(self, names: Sequence[str]) -> Dataset:
        """The same inputs with these features, found by their names, in this order; see `arguments.names.places`."""
        order, notes = places(names, self.features or (), self.name)
        if order == list(range(len(self.features or ()))):
            return self
        return replace(
            self,
            shape=self.shape if len(order) == math.prod(self.shape) else (len(order),),
            digest=digest({"data": self.digest, "features": list(names)}),
            load=Picked(self.load, tuple(order)),
            features=tuple(names),
            imputed=None if self.imputed is None else Picked(self.imputed, tuple(order)),
            notes=(*self.notes, *notes),
        )

    def trouble(self, index: int) -> str | None:
        """Why this input holds NaN or infinite values, in words; None where it does not."""
        values = self.inputs([index]).reshape(-1)
        bad = np.flatnonzero(~np.isfinite(values))
        if not len(bad):
            return None
        found = self.fault(index) if self.fault is not None else None
        if found is not None:
            return found
        shown = [repr(self.features[k]) if self.features else str(k) for k in bad[:_NAMED_AT_MOST].tolist()]
        more = f" and {len(bad) - len(shown)} more" if len(bad) > len(shown) else ""
        kind = "feature" if len(bad) == 1 else "features"
        return f"no finite number in {kind} {', '.join(shown)}{more}"

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) if len(self.shape) != 1 else counted(self.shape[0], "feature")
        domain = "" if self.domain is None else f" in [{self.domain[0]:g}, {self.domain[1]:g}]"
        labels = "no labels"
        if self.labels is not None:
            labels = counted(len(np.unique(self.labels)), "class", "classes")
            labels += f", labels from {self.labelled_by}" if self.labelled_by else ""
        return f"Dataset({self.name}: {counted(self.count, 'input')}, {shape}{domain}, {labels})"


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of an array `n x ...` in memory, divided by `scale`."""

    array: np.ndarray
    scale: float = 1.0

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        rows: np.ndarray = self.array[indices].astype(np.float64) / self.scale
        return rows


@dataclass(frozen=True, eq=False)
class Picked:
    """Some of the values of each input, by their places in it, in this order."""

    load: Callable[[np.ndarray], np.ndarray]
    order: tuple[int, ...]

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        return self.load(indices).reshape(len(indices), -1)[:, list(self.order)]


def whole_numbers(given: Any, name: str) -> np.ndarray:
    """A list or array of whole numbers as int64, `b`."""
    try:
        found = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} must be a list of whole numbers, got {given!r}") from None
    if found.size == 0:
        found = found.astype(np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu" or (found.size and found.max() > np.iinfo(np.int64).max):
        raise InputError(f"{name} must be a list of whole numbers, got {given!r}")
    return found.astype(np.int64)


def seen_as(found: Shape, wanted: Sequence[int] | None, where: str) -> Shape:
    """The shape of one input: `found`, or `wanted` where the user states it (None: not stated).

    Rows of numbers may be seen as images and images as rows; axes are never exchanged, so that (3, 32, 32) is not
    taken for (32, 32, 3).
    """
    if wanted is None:
        return found
    shape = tuple(whole_numbers(list(wanted), "input_shape").tolist())
    if not shape or min(shape) < 1:
        raise InputError(f"input_shape must hold positive whole numbers, got {tuple(wanted)}")
    if math.prod(shape) != math.prod(found):
        raise InputError(f"{where}: one input has the shape {found}, which cannot be seen as {shape}")
    if not keeps_axes(found, shape):
        raise InputError(
            f"{where}: one input has the shape {found}; as {shape} its values would be mixed up. Leave "
            "`input_shape` out: channels are transposed where the model has them at the other end"
        )
    return shape


def number_labels(texts: Sequence[str | None], where: str) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Class numbers, `n`, and the classes' names.

    Labels that are all whole numbers are class numbers already, without names. Other labels are names; their numbers
    follow the alphabet, and stand for no network's outputs (`Dataset.own_numbers`). So are numbers with zeros in
    front, and those of which some are written in two ways: "007" and "7", or "1" and "1.0", may be two classes.
    """
    stripped = ["" if t is None else t.strip() for t in texts]
    first: dict[str, int] = {}
    for k, text in enumerate(stripped):
        if not text:
            raise InputError(f"{where}: input {k} has no label; leave it out, or go without labels")
        first.setdefault(text, k)
    number = {name: k for k, name in enumerate(sorted(first))}
    names: tuple[str, ...] | None = tuple(number)
    if all(map(_is_number, first)):
        meant = {text: _class_number(text, k, where) for text, k in first.items()}
        if len(set(meant.values())) == len(meant) and not any(map(_PADDED.fullmatch, meant)):
            number, names = meant, None
    return np.array([number[text] for text in stripped], dtype=np.int64), names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _class_number(text: str, index: int, where: str) -> int:
    whole = text.partition(".")[0] if _WHOLE.fullmatch(text) or _PADDED.fullmatch(text) else ""
    if not whole or len(whole) > 20 or abs(int(whole)) >= _MOST_LABEL:
        raise InputError(f"{where}: input {index} has the label {text}, which is not a class number (0, 1, 2, ...)")
    return int(whole)
