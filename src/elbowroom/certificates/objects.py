"""Certificates as objects at home in a notebook: single ones, chosen ones, in words, in tables and in pictures.

What people are shown is made in `elbowroom.report`, floors above, and is looked up there when it is asked for:
certificates themselves are plain data, which a proof can be copied out with.
"""

from __future__ import annotations

import importlib
import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.certificates.schema import declared, taken
from elbowroom.errors import InputError
from elbowroom.network.names import counted, printable

if TYPE_CHECKING:
    from elbowroom.certificates.result import Certificates

_REASONS = 3  # that a line about all certificates gives
_SHORT = 120  # characters of a reason


def _shown_by(module: str) -> Any:
    return importlib.import_module(f"elbowroom.report.{module}")


class Views:
    """How certificates are chosen and shown; `Certificates` has the columns."""

    if TYPE_CHECKING:
        status: tuple[str, ...]
        message: tuple[str, ...]
        labels: Tensor
        index: Tensor | None
        x: Tensor
        lower: Tensor | None
        upper: Tensor | None
        eps: Tensor
        geomean: Tensor
        ratio: Tensor
        kept: Tensor | None
        missing: int
        network: Any

        @property
        def certified(self) -> Tensor: ...

        def number(self, row: int) -> int: ...

    def __len__(self) -> int:
        return len(self.status)

    def __getitem__(self, key: Any) -> Any:
        """The certificate of a row (`certs[3]`, a `Certificate`); or `Certificates` of several: a slice, booleans, or a
        list of rows. Those chosen keep the numbers by which they were known (`number`)."""
        if isinstance(key, slice):
            return _chosen(self, list(range(len(self))[key]))
        row = _row(key)
        if row is None:
            return _chosen(self, _rows(key, len(self)))
        if not -len(self) <= row < len(self):
            raise IndexError(f"there is no row {row}: these are certificates of {counted(len(self), 'input')}")
        return Certificate(_chosen(self, [row % len(self)]))

    def __iter__(self) -> Iterator[Certificate]:
        return (self[row] for row in range(len(self)))

    @property
    def down(self) -> Tensor | None:
        """How far each feature may fall from the input's value, all of them at once, `b x *s`: x - lower, rounded so
        that it is never too much. 0 for categories, whose levels are in `allowed`, and without a certificate. None for
        shapes in which it depends on the others."""
        return None if self.lower is None else self._distance(self.x, self.lower)

    @property
    def up(self) -> Tensor | None:
        """How far each feature may rise, see `down`: upper - x."""
        return None if self.upper is None else self._distance(self.upper, self.x)

    def _distance(self, high: Tensor, low: Tensor) -> Tensor:
        found = high - low
        # What was lost by rounding, exactly (Knuth's sum of two numbers): where it is negative, `found` is too large.
        back = found - high
        lost = (high - (found - back)) - (low + back)
        found = torch.where((lost < 0) & found.isfinite(), torch.nextafter(found, torch.zeros_like(found)), found)
        table = None if self.network is None else self.network.about.table
        if table is not None:
            found = torch.where(torch.from_numpy(table.moves).reshape(found.shape[1:]), found, 0.0)
        return torch.where(self.eps > 0, found, 0.0)  # also where an input holds NaN

    def tightest(self, k: int = 5) -> Certificates:
        """The certified inputs with the smallest regions, the smallest first: by `geomean`; with `objective="free"`,
        by how many features are free.

        Args:
            k: How many, at most.

        Returns:
            Their certificates.

        Raises:
            InputError: `k` is not a positive whole number.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k must be a positive whole number, got {k!r:.40}")
        sizes = self.geomean if self.kept is None else (self.eps > 0).flatten(1).sum(1).double()
        good = self.certified.nonzero().flatten()
        found: Certificates = _chosen(self, good[sizes[good].argsort(stable=True)[:k]].tolist())
        return found

    def explain(self, i: int = 0, max_features: int = 10) -> str:
        """What is certified of one input, and no more than that, in sentences.

        Args:
            i: Its row.
            max_features: How many features to name, those with the least room first.

        Returns:
            The sentences, a line each, in raw units and with names; of an input without a certificate, why.

        Raises:
            InputError: The certificates do not know their network.
        """
        one = self[operator.index(i)].certificates
        found: str = _shown_by("explain").explained(one, max_features)
        return found

    @property
    def plot(self) -> Any:
        """Pictures, by matplotlib: `plot.tolerance(i)`, `plot.map(i)`, `plot.summary()`, `plot.histogram()` and
        `plot.similarity()`; see `elbowroom.report.plot.pictures.Pictures`."""
        return _shown_by("plot.pictures").Pictures(self)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {s}" for s, n in Counter(self.status).most_common())
        text = f"Certificates({counted(len(self), 'input')}: {counts or 'none'}"
        good = self.certified
        if bool(good.any()) and self.kept is not None:
            free = (self.eps[good] > 0).flatten(1).sum(1).double().mean()
            text += f"; {free:.4g} features free in the mean"
        elif bool(good.any()):
            means = {n: format(getattr(self, n)[good].mean(), declared(type(self))[n].show or "") for n in _MEANS}
            text += "; mean geomean {geomean}, mean ratio {ratio} to the uniform region".format(**means)
        failed = [row for row, status in enumerate(self.status) if status != "certified"]
        for row in failed[:_REASONS]:
            text += f"; input {self.number(row)}: {_short(self.message[row]) or self.status[row]}"
        if len(failed) > _REASONS:
            text += "; ..."
        if self.missing:
            still = "1 more input is" if self.missing == 1 else f"{self.missing} more inputs are"
            text += f"; the run is incomplete: {still} still to be certified"
        return text + ")"

    def _repr_html_(self) -> str:
        found: str = _shown_by("notebook").table_of(self)
        return found


class Certificate:
    """The certificate of one input: the fields of `Certificates` without the axis of inputs, numbers and texts as such.

    `certs[3].lower` is `certs.lower[3]`, `certs[3].status` is `certs.status[3]`, and so on.

    Args:
        certificates: Those of one input.

    Attributes:
        certificates: The same as `Certificates` of one input, to save or to check.

    Example:
        >>> one = certs[3]
        >>> one.status, one.class_name, one.down, one.up
    """

    def __init__(self, certificates: Certificates) -> None:
        if len(certificates) != 1:
            raise InputError(f"a certificate is of one input, not of {len(certificates)}")
        self.certificates = certificates

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "certificates":
            raise AttributeError(name)
        value, column = getattr(self.certificates, name), declared(type(self.certificates)).get(name)
        if value is None or not (name in _PER_INPUT or (column is not None and column.per_input)):
            return value
        own = value[0]
        return own.item() if isinstance(own, Tensor) and own.dim() == 0 else own

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *declared(type(self.certificates)), *_PER_INPUT, *_SHARED})

    @property
    def number(self) -> int:
        """The number by which people know the input, see `Certificates.number`."""
        return self.certificates.number(0)

    @property
    def label(self) -> int | None:
        """The decision that is certified; None where a specification is about something else."""
        label = int(self.certificates.labels[0])
        return label if label >= 0 else None

    @property
    def class_name(self) -> str | None:
        """The name of that class; None where classes have none."""
        net, label = self.certificates.network, self.label
        classes = () if net is None else net.about.classes or ()
        return classes[label] if label is not None and label < len(classes) else None

    def explain(self, max_features: int = 10) -> str:
        """See `Certificates.explain`.

        Args:
            max_features: How many features to name, those with the least room first.

        Returns:
            The sentences, a line each.
        """
        return self.certificates.explain(0, max_features)

    def __repr__(self) -> str:
        certs = self.certificates
        if not bool(certs.certified[0]):
            why = _short(certs.message[0])
            return f"Certificate(input {self.number}: {certs.status[0]}{f': {why}' if why else ''})"
        stays = "the specification" if self.label is None else self.class_name or f"class {self.label}"
        return f"Certificate(input {self.number}: certified, {_short(stays)} stays; geomean {self.geomean:.4g})"

    def _repr_html_(self) -> str:
        found: str = _shown_by("notebook").table_of_one(self.certificates)
        return found


_MEANS = ("geomean", "ratio")  # which one line about all certificates has
_PER_INPUT = ("certified", "room", "down", "up")  # properties with a row per input
_SHARED = ("settings", "network", "shape", "plot")


def _chosen(certs: Any, rows: list[int]) -> Any:
    """These rows, known by the numbers they had."""
    numbers = torch.tensor(rows, dtype=torch.int64)
    numbers = numbers if certs.index is None else certs.index[numbers]
    return replace(taken(certs, rows), index=numbers, missing=0)


def _row(key: Any) -> int | None:
    """A whole number; None for whatever chooses several, or nothing: arrays of one entry, too, and true or false."""
    if isinstance(key, Tensor | np.ndarray) and (key.ndim or key.dtype in (torch.bool, bool)):
        return None
    if isinstance(key, bool | np.bool_):
        return None
    try:
        return operator.index(key)
    except (TypeError, RuntimeError):
        return None


def _rows(key: Any, count: int) -> list[int]:
    """The rows that booleans, one per input, or a list of rows choose."""
    given = np.asarray(key.detach().cpu() if isinstance(key, Tensor) else key)
    if given.dtype == bool and given.shape == (count,):
        return np.flatnonzero(given).tolist()
    if given.shape == (0,) and given.dtype != bool:
        return []
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise InputError(
            f"certificates are chosen by a row, a slice, a list of rows, or {count} booleans, one per input; got "
            f"{type(key).__name__} of shape {given.shape}"
        )
    rows = given.tolist()
    beyond = [row for row in rows if not -count <= row < count]
    if beyond:
        raise IndexError(f"there is no row {beyond[0]}: these are certificates of {counted(count, 'input')}")
    return [row % count for row in rows]


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."


__all__ = ["Certificate", "Views"]
