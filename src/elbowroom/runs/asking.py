"""From settings to the arguments of a question: the model, the inputs that are asked about, and what must stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elbowroom.certificates.result import Certificates
from elbowroom.certificates.store import HEADER
from elbowroom.claim.specification import outputs_within
from elbowroom.data.selection import select
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.runs.matching import matched
from elbowroom.runs.opening import opened
from elbowroom.runs.problem import arguments, resolve
from elbowroom.runs.ranges import ranged
from elbowroom.runs.settings import Settings


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked: `x`, `b x *input_shape`, of which `rows` says their numbers in the data, `b`, and `names` what
    people call them; `told`: arguments of questions; `notes`: what was done to the data; `troubles`: why inputs hold
    values that are not finite, by their place here; `imputed`: as `x`, values that were missing, or None."""

    net: Network
    x: torch.Tensor
    rows: np.ndarray
    names: tuple[str, ...]
    told: dict[str, Any]
    notes: tuple[str, ...]
    troubles: dict[int, str]
    imputed: np.ndarray | None

    def messages(self, found: tuple[str, ...]) -> list[str]:
        """Why inputs could not be asked about, in the words of the data where these know better."""
        return [self.troubles.get(k, why) for k, why in enumerate(found)]

    def save(self, certs: Certificates, out: Path) -> None:
        """Writes a run of certificates that know the numbers of their inputs."""
        message = tuple(self.messages(certs.message))
        if certs.imputed is not None and self.imputed is not None:
            certs = dataclasses.replace(certs, imputed=torch.from_numpy(self.imputed))
        dataclasses.replace(certs, index=torch.from_numpy(self.rows), message=message).save(out)


def question_of(
    given: Mapping[str, Any], names: tuple[str, ...], labels: bool, where: Callable[[str], str] = lambda name: name
) -> Question:
    """The question that settings, by name, ask about; `names`: the arguments of it that are settings as well;
    `labels`: whether the data's labels must stay, and not what the network decides."""
    settings = Settings.of({**given, "predicted": not labels}, where).settled()
    if settings.data is None or settings.model is None:
        raise InputError("give a model and data")
    net, data = opened(settings)
    net, data, settings = matched(net, data, settings)
    settings, notes = ranged(resolve(settings, net, data.domain), net, data)
    rows = select(data, settings.limit, settings.offset, settings.indices, settings.classes)
    x = data.inputs(rows)
    told = {name: value for name, value in arguments(settings, net).items() if name in names}
    if "effort" not in given:
        told.pop("effort", None)  # questions have one of their own
    if labels:
        if data.labels is None or settings.within is not None:
            raise InputError(f"labels: {data.name} has no labels that could stay; what the network decides can")
        told["labels"] = np.asarray(data.labels[rows], dtype=np.int64)
    if settings.within is not None:
        within = torch.as_tensor(settings.within, dtype=torch.float64)
        told["spec"] = outputs_within(net(torch.from_numpy(x)), within)
    bad = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1)).tolist()
    troubles = {k: data.trouble(int(rows[k])) or "" for k in bad}
    called = tuple(data.ids(int(k)) for k in rows)
    imputed = None if data.imputed is None else data.imputed(rows).reshape(x.shape)
    # As a tensor: these are the network's own entries, and no raw values of a table.
    own = torch.from_numpy(x)
    return Question(net, own, rows.astype(np.int64), called, told, (*data.notes, *notes), troubles, imputed)


def must_be_new(out: Path | None) -> None:
    """Refuses a folder that holds a run, before anything is computed."""
    if out is not None and (out / HEADER).exists():
        raise InputError(f"{out} already holds a run; choose another folder")


__all__ = ["Question", "must_be_new", "question_of"]
