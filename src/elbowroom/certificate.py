"""`Certificates`: what was found and proved for a batch of inputs, and its files."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError

STATUSES = ("certified", "misclassified", "not_certified", "nonfinite", "error")
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Certificates:
    """One certificate per input. `b` inputs of shape `*s`; sizes count the free features only.

    An input without a certificate has a region of no size: eps 0, corners at x, geomean 0.
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
    margins: Tensor  # b x g: proved margins
    evaluations: Tensor  # b: evaluations of the bounds
    gradients: Tensor  # b: those with gradient
    gradient_rows: Tensor  # b: margins differentiated, in all
    seconds: Tensor  # b: time spent, shared evenly by the inputs of a batch
    basis: Tensor | None = None  # n x n: the directions of a rotated shape
    spec_rows: Tensor | None = None  # b or 1 x t x k: the specification, where it is not "the label stays"
    spec_offset: Tensor | None = None
    spec_group: Tensor | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.status)

    @property
    def certified(self) -> Tensor:
        """Which inputs have a certificate, `b` booleans."""
        return torch.tensor([s == "certified" for s in self.status], dtype=torch.bool)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {s}" for s, n in Counter(self.status).most_common())
        text = f"Certificates({len(self)} inputs: {counts or 'none'}"
        good = self.certified
        if bool(good.any()):
            geomean, ratio = self.geomean[good].mean(), self.ratio[good].mean()
            text += f"; mean geomean {geomean:.4g}, {ratio:.3f} times the uniform region per feature"
        return text + ")"

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes `certificates.npz` and `certificates.json` into `directory` (made if it is not there)."""
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        arrays = {n: getattr(self, n).numpy() for n in _TENSORS if getattr(self, n) is not None}
        text = {"format": FORMAT, "status": self.status, "message": self.message, "settings": self.settings}
        _replace(target / "certificates.npz", lambda file: np.savez_compressed(file, **arrays))
        _replace(target / "certificates.json", lambda file: file.write(json.dumps(text, indent=1).encode()))
        return target

    @staticmethod
    def load(directory: str | os.PathLike[str]) -> Certificates:
        """Reads what `save` wrote. Never runs code from the files."""
        source = Path(directory)
        try:
            text = json.loads((source / "certificates.json").read_text())
            with np.load(source / "certificates.npz", allow_pickle=False) as file:
                arrays = {name: torch.from_numpy(file[name]) for name in file.files}
            if text["format"] != FORMAT:
                raise InputError(f"{source} has format {text['format']}; this version reads {FORMAT}")
            present: dict[str, Any] = {name: arrays.get(name) for name in _TENSORS}
            found = Certificates(
                status=tuple(text["status"]), message=tuple(text["message"]), settings=text["settings"], **present
            )
        except FileNotFoundError as error:
            raise InputError(f"{source} holds no certificates: {error.filename} is missing") from None
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"the certificates in {source} cannot be read: {error}") from None
        sizes = {len(t) for n, t in arrays.items() if n not in _NOT_PER_INPUT} | {len(found.status), len(found.message)}
        missing = [n for n in _TENSORS if n not in arrays and n not in ("lower", "upper", *_NOT_PER_INPUT)]
        if missing or len(sizes) != 1:
            raise InputError(f"the certificates in {source} are damaged: {missing or 'lengths differ'}")
        return found


_NOT_PER_INPUT = ("basis", "spec_rows", "spec_offset", "spec_group")
_TENSORS = tuple(f.name for f in fields(Certificates) if "Tensor" in str(f.type))


def _replace(path: Path, write: Any) -> None:
    """Writes a file under another name first, so that a reader never sees half of one."""
    temporary = path.with_name(path.name + ".part")
    with open(temporary, "wb") as file:
        write(file)
    os.replace(temporary, path)
