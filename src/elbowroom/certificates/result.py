"""`Certificates`: what was found and proved for a batch of inputs, and its files."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network.graph import Network

STATUSES = ("certified", "misclassified", "not_certified", "nonfinite", "error")
NORMS = {"inf": math.inf, 1: 1.0, 2: 2.0}  # as settings name them
_SHAPES = {"inf": "Box", 2: "Ellipsoid", 1: "L1"}  # by norm
# What a search calls its regions, by what they then are.
_SEARCHES = {
    "Box": ("Uniform", "Box", "Box(asymmetric)"),
    "Oblique(Box)": ("Oblique(Box)", "Oblique(Box(asymmetric))"),
    **{name: (name,) for name in ("Ellipsoid", "L1", "Oblique(Ellipsoid)", "Oblique(L1)")},
}
_ORTHOGONAL = 1e-4  # how far products of a basis's directions may be from 0 and 1
_SHAREABLE = ("spec_rows", "spec_offset")  # one for all inputs, or one for each
_PER_INPUT = (
    "x", "labels", "eps", "center", "lower", "upper", "capped", "uniform", "geomean", "ratio", "log_volume", "margins",
    "evaluations", "gradients", "gradient_rows", "seconds", "index", *_SHAREABLE,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Certificates:
    """One certificate per input. `b` inputs of shape `*s`; sizes count the free features only.

    An input without a certificate has a region of no size: eps 0, corners at x, geomean 0. Those read from a file are
    what the file states; `elbowroom.check` says which of it is true.
    """

    x: Tensor  # b x *s, float64
    labels: Tensor  # b; -1 where the specification is not about a label
    status: tuple[str, ...]
    message: tuple[str, ...]
    eps: Tensor  # b x *s: half-widths (boxes), semi-axes (the other shapes)
    center: Tensor  # b x *s: the region's centre: x, but for boxes with unequal sides
    lower: Tensor | None  # b x *s: the certified corners, for boxes along the axes
    upper: Tensor | None
    capped: Tensor  # b x *s: features whose extent is at its cap
    uniform: Tensor  # b: the uniform radius under the same bounds
    geomean: Tensor  # b: the paper's measure, (prod eps)^(1/n)
    ratio: Tensor  # b: to the uniform region, per feature: exp((log_volume - uniform's) / n)
    log_volume: Tensor  # b
    margins: Tensor  # b x g: the margins that `certify` proved
    evaluations: Tensor  # b: evaluations of the bounds
    gradients: Tensor  # b: those with gradient
    gradient_rows: Tensor  # b: margins differentiated, in all
    seconds: Tensor  # b: time spent, shared evenly by the inputs of a batch
    basis: Tensor | None = None  # n x n: the directions of a rotated shape
    spec_rows: Tensor | None = None  # b or 1 x t x k: the specification, where it is not "the label stays"
    spec_offset: Tensor | None = None
    spec_group: Tensor | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # how they were found; `network_hash`: of which network
    network: Network | None = field(default=None, repr=False)  # the network they speak of
    index: Tensor | None = None  # b: the inputs' numbers in the data set they come from
    missing: int = 0  # inputs of the run they were read from that are still to be certified

    def __len__(self) -> int:
        return len(self.status)

    @property
    def certified(self) -> Tensor:
        """Which inputs have a certificate, `b` booleans."""
        return torch.tensor([s == "certified" for s in self.status], dtype=torch.bool)

    @property
    def shape(self) -> str:
        """What the regions are, by the fields that a proof uses: "Box", "Ellipsoid" or "L1"; "Oblique(Box)" and so on
        in a basis."""
        name = _SHAPES[self.settings["p"]]
        return name if self.basis is None else f"Oblique({name})"

    @property
    def orthogonal(self) -> bool:
        """Whether directions are those of an orthogonal basis, so that extents along them mean something."""
        if self.basis is None:
            return True
        off = (self.basis.T @ self.basis - torch.eye(len(self.basis), dtype=self.basis.dtype)).abs().max()
        return bool(off < _ORTHOGONAL)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {s}" for s, n in Counter(self.status).most_common())
        text = f"Certificates({len(self)} inputs: {counts or 'none'}"
        good = self.certified
        if bool(good.any()):
            geomean, ratio = self.geomean[good].mean(), self.ratio[good].mean()
            text += f"; mean geomean {geomean:.4g}, {ratio:.3f} times the uniform region per feature"
        if self.missing:
            text += f"; the run is incomplete: {self.missing} more inputs are still to be certified"
        return text + ")"

    def number(self, row: int) -> int:
        """The number by which people know the input of a row: its number in the data set, if it came from one."""
        return row if self.index is None else int(self.index[row])

    def rows(self, first: int, last: int) -> Certificates:
        """Those of the inputs `first` to `last - 1`."""
        own: dict[str, Any] = {"status": self.status[first:last], "message": self.message[first:last], "missing": 0}
        for name in _PER_INPUT:
            value = getattr(self, name)
            if value is not None and not (name in _SHAREABLE and len(value) == 1):
                own[name] = value[first:last]
        return replace(self, **own)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes a run: the network, the certificates and what they claim, into a folder (made if it is not there)."""
        from elbowroom.certificates.store import save_run

        return save_run(self, directory)

    @staticmethod
    def load(directory: str | os.PathLike[str]) -> Certificates:
        """Reads what `save` or a run over a data set wrote; of a run that is not complete, what is there (`missing`).

        Never runs code from the files, and refuses by name what was changed in them.
        """
        from elbowroom.certificates.store import load_run

        return load_run(directory)

    def must_fit(self, net: Network) -> None:
        """Raises an `InputError` that names the field whose type or shape is not what `net` and the others ask for."""
        b, s, n, k = len(self.status), net.input_shape, net.n_inputs, net.n_outputs
        real, whole = torch.float64, torch.int64
        groups = k - 1 if self.spec_group is None else len(self.spec_group.unique())
        wanted: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            **dict.fromkeys(("x", "eps", "center"), (real, (b, *s))),
            **dict.fromkeys(("uniform", "geomean", "ratio", "log_volume", "seconds"), (real, (b,))),
            **dict.fromkeys(("labels", "evaluations", "gradients", "gradient_rows"), (whole, (b,))),
            "capped": (torch.bool, (b, *s)),
            "margins": (real, (b, groups)),
        }
        if self.lower is not None or self.upper is not None:
            wanted.update(lower=(real, (b, *s)), upper=(real, (b, *s)))
        if self.index is not None:
            wanted["index"] = (whole, (b,))
        if self.basis is not None:
            wanted["basis"] = (real, (n, n))
        stated = (self.spec_rows, self.spec_offset, self.spec_group)
        if any(t is not None for t in stated):
            t = 0 if self.spec_group is None else self.spec_group.numel()
            lead = 1 if self.spec_rows is not None and len(self.spec_rows) == 1 else b
            wanted.update(spec_rows=(real, (lead, t, k)), spec_offset=(real, (lead, t)), spec_group=(whole, (t,)))
        for name, (dtype, shape) in wanted.items():
            value = getattr(self, name)
            if not isinstance(value, Tensor):
                raise InputError(f"the certificates have no {name}")
            if value.dtype != dtype or tuple(value.shape) != shape:
                raise InputError(
                    f"{name} must hold {dtype} numbers of shape {shape}, not {value.dtype} of {tuple(value.shape)}"
                )
        if self.spec_group is not None and self.spec_group.unique().tolist() != list(range(groups)):
            raise InputError(f"spec_group must number the groups 0, 1, 2, ..., got {self.spec_group.unique().tolist()}")
        if self.basis is not None and self.lower is not None:
            raise InputError("a region is stated either by its corners or in a basis, not by both")
        if len(self.message) != b or not set(self.status) <= set(STATUSES):
            raise InputError(f"status and message must have {b} entries, each status one of {', '.join(STATUSES)}")
        for name in ("uniform", "geomean", "ratio", "seconds"):
            value = getattr(self, name)
            if not bool((value.isfinite() & (value >= 0)).all()):
                raise InputError(f"{name} must hold finite numbers that are not negative")
        if not bool(self.margins.isfinite().all()) or not bool((self.log_volume < torch.inf).all()):
            raise InputError("margins must be finite, and log_volume must be numbers")
        self._settings_must_fit(net)

    def _settings_must_fit(self, net: Network) -> None:
        settings = self.settings
        allowed: dict[str, tuple[Any, ...]] = {
            "p": tuple(NORMS), "decision": (net.decision,), "deployed": (None, "float32")
        }  # fmt: skip
        for name, values in allowed.items():
            stated = settings.get(name, "missing")
            if not any(type(stated) is type(value) and stated == value for value in values):  # nor 1.0 or true for 1
                raise InputError(f"settings: {name} cannot be {settings.get(name, 'missing')!r}")
        for name, kind in {"bounds": str, "margin": str, "network_hash": str, "delta": float}.items():
            if not isinstance(settings.get(name), kind):
                raise InputError(f"settings: {name} cannot be {settings.get(name, 'missing')!r}")
        if self.lower is not None and settings["p"] != "inf":
            raise InputError(f"settings: p is {settings['p']!r}, but the regions are boxes")
        if settings.get("region") not in _SEARCHES[self.shape]:
            called = str(settings.get("region", "missing"))[:80]
            raise InputError(f"settings: region cannot be {called!r}: by its other fields, it is {self.shape}")
