"""What a question is about: inputs, what must stay, where features may be, and what may be spent on it."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.inputs import points_of
from elbowroom.arguments.names import few
from elbowroom.arguments.tensors import Array
from elbowroom.certify.api import fills_in, what_stays
from elbowroom.certify.larger import effort_of
from elbowroom.certify.measure import measure
from elbowroom.certify.triage import triage
from elbowroom.claim.space import Space, space_of
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.errors import InputError
from elbowroom.machine.device import usable_device
from elbowroom.network.graph import Network
from elbowroom.network.work import settle_threads_for
from elbowroom.proof.kernel.prove import refuse_uncovered
from elbowroom.readers.given import network_for
from elbowroom.search.regions.box import Box

_AT_ONCE = 1024  # inputs that are evaluated


@dataclass(frozen=True, eq=False)
class Asked:
    """A question's arguments, understood. `points`: `b x *input_shape`, float64; `labels`: `b`, -1 where `told`, a
    specification, says what must stay; `margins`: `b x g`, at the inputs themselves; `status`, `message`: of inputs
    about which nothing can be asked, "" for the others; `has_domain`: whether a domain was given; `imputed`:
    `b x *input_shape`, values that were missing, None where the network knows of no such; `scale`: `n`, what room is a
    share of, None where that is not known."""

    net: Network
    points: Tensor
    labels: Tensor
    told: Specification | None
    space: Space
    margins: Tensor
    status: list[str]
    message: list[str]
    has_domain: bool
    imputed: Tensor | None
    scale: Tensor | None

    @property
    def x(self) -> Tensor:
        """`b x n`."""
        return self.points.flatten(1)

    @property
    def good(self) -> Tensor:
        """The numbers of the inputs that can be asked about, `m`."""
        return torch.tensor([s == "" for s in self.status], device=self.points.device).nonzero().squeeze(1)

    def spec(self, index: Tensor) -> Specification:
        """What must hold of these inputs, `m` numbers."""
        if self.told is not None:
            return self.told.part(index)
        return label_stays(self.labels[index], self.net.n_outputs, self.net.decision)

    def shaped(self, t: Tensor) -> Tensor:
        """`b x n` as `b x *input_shape`, on the CPU."""
        return t.reshape(self.points.shape).cpu()


def asked_of(
    net: Network | Any, x: Array | Any, labels: Array | None, spec: Specification | None, domain: Any, frozen: Any,
    max_eps: Any, device: str | torch.device | None,
) -> Asked:  # fmt: skip
    """The arguments that all questions share; refused where they cannot be used as they are."""
    where = x.device if device is None and isinstance(x, Tensor) else usable_device(device or "cpu")
    net = network_for(net, x)
    if where.type == "cpu":
        settle_threads_for(net)
    given, points = points_of(net, x, where)
    if net.n_outputs < 2 and spec is None:
        raise InputError(
            "the network has one output, so there is no label that could stay; say what must hold by `spec`, such as "
            "er.outputs_within(net(x), 0.5)"
        )
    refuse_uncovered(net)
    net.must_agree(points[points.flatten(1).isfinite().all(1)][:3])
    measured = measure(net, points, Box(), given.of_table, domain, max_eps, None)
    space = space_of(net, points, measured.domain, frozen, None, measured.max_eps)
    work = net.cast(torch.float64, where)
    with torch.no_grad():
        outputs = torch.cat([work.values(part)[-1] for part in points.split(_AT_ONCE)])
    chosen, told = what_stays(net, outputs, labels, spec)
    every = torch.arange(len(points), device=where)
    parts = every.split(_AT_ONCE)
    of = [label_stays(chosen[k], net.n_outputs, net.decision) if told is None else told.part(k) for k in parts]
    margins = torch.cat([own.margins(outputs[k]) for own, k in zip(of, parts)])
    who = "labels" if labels is not None else "spec" if spec is not None else ""
    status, message = triage(net, points.flatten(1), outputs, margins.amin(1), chosen, space, who)
    for row, why in given.faults.items():
        status[row], message[row] = "error", why
    imputed = None
    if fills_in(net):
        missing = np.zeros(tuple(points.shape), dtype=bool) if given.imputed is None else given.imputed
        imputed = torch.from_numpy(missing).reshape(points.shape)
    # Categories stay as they are: their entries are numbers that do not move.
    space = space.of_numbers()
    return Asked(
        net, points, chosen, told, space, margins, status, message, measured.domain_given, imputed, measured.scale
    )


def features_of(net: Network, wanted: Any, what: str) -> list[int]:
    """The numbers of features given by names or numbers: one of them, or a list."""
    given = list(wanted) if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
    return [feature_of(net, one, what) for one in given]


def feature_of(net: Network, name: Any, what: str) -> int:
    """The number of a feature given by its name or its number; `what`: the argument, for a message."""
    known = net.about.features or ()
    if isinstance(name, str):
        if name in known:
            return known.index(name)
        if not (name.isascii() and name.isdecimal()):
            told = f"the features are {few(known)}" if known else "the network's features have no names, only numbers"
            raise InputError(f"{what}: there is no feature {name!r}; {told}")
        name = int(name)
    try:
        number = operator.index(name)
    except TypeError:
        number = -1
    if isinstance(name, bool) or not 0 <= number < net.n_inputs:
        raise InputError(f"{what}: features are names or numbers from 0 to {net.n_inputs - 1}, got {name!r:.60}")
    return number


@dataclass(frozen=True)
class Spend:
    """What may be spent: `parts`, into which a box may be cut for each class or group, `seconds`, per input."""

    parts: int
    seconds: float


def spend_of(effort: str | int) -> Spend:
    """From an effort as in `certify`; "fast" cuts nothing."""
    found = effort_of(effort)
    return Spend(1, math.inf) if found is None else Spend(found.leaves, found.seconds)


__all__ = ["Asked", "Spend", "asked_of", "feature_of", "features_of", "spend_of"]
