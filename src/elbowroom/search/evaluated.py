"""The margins of regions around the inputs of a batch, by a bound of one's own or by ours; on a GPU by passes that are
recorded."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.machine.recorder import Recorder
from elbowroom.network.graph import Network
from elbowroom.search.bounds.propagate import BoundFunction, OwnBounds
from elbowroom.search.bounds.recorded import Passes, can_record
from elbowroom.search.bounds.rough import roughly
from elbowroom.search.bounds.stable import Stable
from elbowroom.search.derivatives import Derivatives
from elbowroom.search.regions.input_set import InputSet


@dataclass(eq=False)
class Evaluated:
    """Margins less `delta` of inputs whose numbers are `rows`, `b`, in order; `spec`: theirs, in the network's type."""

    net: Network
    bound: BoundFunction
    spec: Specification
    rows: Tensor
    delta: float

    def __call__(self, sets: InputSet, index: Tensor) -> Tensor:
        return self.bound(self.net, sets, self.spec.part(positions(self.rows, index))) - self.delta


class Kept:
    """Recorded passes of the last batch, which serve the next if it is like that one."""

    def __init__(self) -> None:
        self._key: object = None
        self._passes: Passes | None = None
        self._owner: weakref.ref[OwnEvaluated] | None = None  # which has this: graphs are to go with the search

    def of(self, owner: OwnEvaluated, own: OwnBounds, device: torch.device) -> Passes:
        """Passes for the batch of `owner`, of which nothing is known where they served another since."""
        if self._passes is not None and self._owner is not None and self._owner() is owner:
            return self._passes
        spec, batch = owner.spec, len(owner.rows)
        key = own, owner.delta, batch, spec.rows.shape, tuple(spec.group.tolist())
        if self._passes is not None and self._passes.net is owner.net and key == self._key:
            self._passes.begin(spec)
        else:
            copied = replace(spec, rows=spec.rows.clone(), offset=spec.offset.clone())
            self._key, self._passes = key, Passes(owner.net, own, copied, batch, Recorder(device))
        self._owner = weakref.ref(owner)
        return self._passes


class OwnEvaluated(Evaluated):
    """The same by one of our bounds, which remember what neurons were stable; roughly, where that is faster."""

    def __init__(
        self, net: Network, bound: OwnBounds, spec: Specification, rows: Tensor, delta: float, kept: Kept
    ) -> None:
        super().__init__(net, bound, spec, rows, delta)
        self._own, self._kept = bound, kept
        self._stable = Stable(net, len(rows))
        self._rough = roughly(net)

    @property
    def precise(self) -> Evaluated | None:
        """See `problem.Rough`."""
        plain = Evaluated(self.net, self.bound, self.spec, self.rows, self.delta)
        return None if self._rough is None else plain

    def __call__(self, sets: InputSet, index: Tensor) -> Tensor:
        at, passes = positions(self.rows, index), self._recorded(sets)
        differentiable = sets.radius.requires_grad or sets.center.requires_grad
        if passes is not None and not (torch.is_grad_enabled() and differentiable):
            return passes.margins(sets, at) - self.delta
        seen = self._stable.at(at, sets)
        return self._own(self.net, sets, self.spec.part(at), seen, rough=self._rough) - self.delta

    def derivatives(self, sets: InputSet, index: Tensor, at_input: Tensor, most: int) -> Derivatives | None:
        """See `problem.Differentiated`."""
        passes = self._recorded(sets)
        if passes is None:
            return None
        found = passes.derivatives(sets, positions(self.rows, index), at_input, self.delta, most)
        return found._replace(margins=found.margins - self.delta)

    def _recorded(self, sets: InputSet) -> Passes | None:
        if not can_record(self._own, sets):
            return None
        passes = self._kept.of(self, self._own, sets.center.device)
        return None if passes.given_up else passes


def positions(rows: Tensor, index: Tensor) -> Tensor:
    """Where each of `index` stands in `rows` (sorted)."""
    return torch.searchsorted(rows, index)


__all__ = ["Evaluated", "Kept", "OwnEvaluated", "positions"]
