"""Bounds of the hidden nodes on the boxes that leaves are parts of: computed once per box, by lines and intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.bounds.sharpened import PLAIN, Sharpening
from elbowroom.search.memory import Budget
from elbowroom.search.regions.input_set import InputSet

METHOD = "adaptive"  # of hidden bounds: one that the proof has, too
_SLACK = 16  # roundings, of all that a row adds up, by which a bound must be positive


class Roots:
    """Sets of inputs, `m` of them, and what is known of every node that is not affine on them.

    `sets`: the sets. `lower[j]`, `upper[j]`: bounds of node j,
    `m x *shape`, for nodes that feed one that is not affine; `values[j]`: of these, of those that are not affine, and
    of the output, at the sets' centres. `size`: the largest magnitude of every output, `m x k`. `sharpened`: what
    was done for these bounds, row by row. `across`: the feature across which each is to be halved, `m`, -1
    where that is not known.
    """

    def __init__(self, net: Network, sets: InputSet, budget: Budget, sharpened: Sharpening = PLAIN) -> None:
        self.net, self.budget, self.sharpened = net, budget, sharpened
        self.sets = sets
        found = Propagation(
            net, sets, method_named(METHOD), budget, bound_outputs=False, skip_inactive=True, sharpened=sharpened
        )
        last = len(net.nodes) - 1
        self.lower = {j: found.lower[j] for j in net.preactivations}
        self.upper = {j: found.upper[j] for j in net.preactivations}
        self.values = {j: found.values[j] for j in {*net.preactivations, *net.relaxed, last}}
        self.size = torch.maximum(found.lower[last].abs(), found.upper[last].abs())
        self.across = torch.full((len(self.size),), -1, device=self.size.device)
        self._found: Propagation | None = None if sharpened else found

    def __len__(self) -> int:
        return len(self.size)

    def rows(self, spec: Specification) -> Tensor:
        """Plain bounds of a specification's rows, `m x t`; once, since what it needs is let go."""
        assert self._found is not None
        found, self._found = self._found.rows_direct(spec), None
        return found

    def tensors(self) -> Iterator[tuple[dict[int, Tensor], int]]:
        for table in (self.lower, self.upper, self.values):
            for j in table:
                yield table, j

    def add(self, other: Roots) -> Tensor:
        """Appends the sets of `other`; their numbers."""
        first = len(self)
        center, radius = (torch.cat([getattr(r.sets, name) for r in (self, other)]) for name in ("center", "radius"))
        self.sets = replace(self.sets, center=center, radius=radius)
        self.size, self.across = torch.cat([self.size, other.size]), torch.cat([self.across, other.across])
        for (table, j), (more, _) in zip(self.tensors(), other.tensors()):
            table[j] = torch.cat([table[j], more[j]])
        return torch.arange(first, len(self), device=self.size.device)

    def kept(self, used: Tensor) -> Tensor:
        """Lets go of the sets that are not among `used`; where each set now is, `m` before."""
        wanted = torch.zeros(len(self), dtype=torch.bool, device=self.size.device)
        wanted[used] = True
        place = torch.cumsum(wanted, 0) - 1
        self.sets = self.sets.take(wanted)
        self.size, self.across = self.size[wanted], self.across[wanted]
        for table, j in self.tensors():
            table[j] = table[j][wanted]
        return place

    def room(self, root: Tensor, rows: Tensor, offset: Tensor) -> Tensor:
        """By how much the bound of a row, `l x k`, on each of these sets must be positive for rounding, `l`."""
        added = (rows.abs() * self.size[root]).sum(1) + offset.abs()
        return _SLACK * torch.finfo(added.dtype).eps * added


class Neurons:
    """Where the slopes of ReLUs stand in one long line: `first[i]` of node i, `count` in all."""

    def __init__(self, net: Network) -> None:
        self.first: dict[int, int] = {}
        self.count = 0
        for i in net.relaxed:
            if type(net.nodes[i].op) is ops.ReLU:
                self.first[i] = self.count
                self.count += net.nodes[i].size

    def of(self, net: Network, i: int, line: Tensor) -> Tensor:
        """The part of node i, `l x *shape`, of lines `l x count`."""
        first, node = self.first[i], net.nodes[i]
        return line[:, first : first + node.size].reshape(-1, *node.shape)

    def places(self, net: Network, device: torch.device) -> Tensor:
        """Node and entry of each place in the line, `count x 2`."""
        parts = [
            torch.stack([torch.full((net.nodes[i].size,), i), torch.arange(net.nodes[i].size)], 1) for i in self.first
        ]
        return torch.cat([torch.zeros(0, 2, dtype=torch.long), *parts]).to(device)
