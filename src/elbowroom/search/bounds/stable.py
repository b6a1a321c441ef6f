"""Which ReLUs are surely on or off, from the last evaluation on a larger region.

A search evaluates bounds on regions that lie in each other, and nine of ten neurons are on or off on all of them. What
is so on a region is so on every smaller one inside: their rows need not be carried back again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.network.graph import Network
from elbowroom.search.regions.input_set import InputSet

_LEAST = 0.7  # of a region's widths in all: much smaller ones have more stable neurons, and are looked at anew


class Stable:
    """What was seen of each input of a batch: on which region, and there 1 for neurons that are on, -1 for neurons that
    are off, 0 for the others, by node."""

    def __init__(self, net: Network, batch: int) -> None:
        self._net, self._batch = net, batch
        self._hull: tuple[Tensor, Tensor] | None = None
        self._states: dict[int, Tensor] = {}

    def at(self, index: Tensor, inputs: InputSet) -> Seen:
        """What is known of the inputs `index`, `m`, on regions `inputs`."""
        lower, upper = (t.detach().flatten(1) for t in inputs.hull())
        if self._hull is None:
            nowhere = lower.new_full((self._batch, lower.shape[1]), torch.nan)
            self._hull = nowhere, nowhere.clone()
        known_lower, known_upper = self._hull[0][index], self._hull[1][index]
        width = known_upper - known_lower
        inside = ((lower >= known_lower) & (upper <= known_upper)).all(1)
        near = inside & ((upper - lower).sum(1) >= _LEAST * width.sum(1))
        new = ~near
        # Masks, and nothing that has to be waited for: passes are recorded.
        for known, own in zip(self._hull, (lower, upper)):
            known[index] = torch.where(new[:, None], own, known[index])
        return Seen(self, index, new)

    def forget(self, index: Tensor) -> None:
        """As if the inputs `index`, `m`, had never been seen."""
        if self._hull is not None:
            self._hull[0][index] = torch.nan

    def of(self, node: int) -> Tensor:
        """The states of a node, `b x *shape`."""
        if node not in self._states:
            shape = (self._batch, *self._net.nodes[node].shape)
            assert self._hull is not None
            self._states[node] = torch.zeros(shape, dtype=torch.int8, device=self._hull[0].device)
        return self._states[node]


class Seen:
    """What is known of the inputs of one evaluation; `new`, `m`: those whose regions are not inside of what was seen,
    or much smaller."""

    def __init__(self, stable: Stable, index: Tensor, new: Tensor) -> None:
        self._stable, self._index, self._new = stable, index, new

    def assumed(self, node: int, value: Tensor) -> tuple[Tensor, Tensor]:
        """Which entries of a node are taken to be on, and off, `m x *shape`; `value`: what they are at the centre."""
        state = self._stable.of(node)[self._index]
        old = ~self._new.reshape(-1, *[1] * (value.dim() - 1))
        return (state > 0) & old & (value >= 0), (state < 0) & old & (value <= 0)

    def keep(self, node: int, lower: Tensor, upper: Tensor) -> None:
        """Remembers the bounds of a node, `m x *shape`, of inputs for which nothing was assumed."""
        state = (lower >= 0).to(torch.int8) - (upper <= 0).to(torch.int8)
        known = self._stable.of(node)
        new = self._new.reshape(-1, *[1] * (state.dim() - 1))
        known[self._index] = torch.where(new, state, known[self._index])
