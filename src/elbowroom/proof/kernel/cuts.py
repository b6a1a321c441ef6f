"""Splits of regions, as the proof uses them: clamped intervals, slopes, and rows that multipliers add.

A part of a region is where all of its splits hold: `sign (z - value) >= 0` for an entry z of a node. There, intervals
may be clamped, and `row . z >= row . z - sum_i beta_i sign_i (z_i - value_i)` for any multipliers `beta_i >= 0`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from elbowroom.claim.tree import STEPS, USUAL, Leaf, Tree
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.relaxed import Planes
from elbowroom.proof.kernel.rounding import ETA, gamma


class Splits(NamedTuple):
    """Splits of one node, `s` in all parts together: `part` and `entry` (flat) of each, `value`, `sign` (1.0 where the
    high side is left, -1.0 where the low one is) and `multiplier`."""

    part: Tensor
    entry: Tensor
    value: Tensor
    sign: Tensor
    multiplier: Tensor


class Slopes(NamedTuple):
    """Slopes of lower lines of a ReLU: `entry` (flat), `u`, and `slope`, `c x u`, in [0, 1]; which there are, `c x u`:
    other lines stay as they are."""

    entry: Tensor
    slope: Tensor
    given: Tensor


@dataclass(frozen=True)
class Cuts:
    """The splits of `count` parts, by node, and slopes, by node of the ReLU; `longest`: splits of one part at most."""

    count: int
    longest: int
    splits: dict[int, Splits]
    slopes: dict[int, Slopes]

    @staticmethod
    def of(tree: Tree, leaves: Sequence[Leaf], numbers: Sequence[int], device: torch.device) -> Cuts:
        """Those of some leaves of a tree; `numbers`: which ones they are."""
        flat = [(k, *split, leaf.first + d) for k, leaf in enumerate(leaves) for d, split in enumerate(leaf.path)]
        part, node, entry, value, high, place = list(zip(*flat)) or [()] * 6
        found = Splits(
            torch.tensor(part, dtype=torch.long),
            torch.tensor(entry, dtype=torch.long),
            torch.tensor(value, dtype=torch.float64),
            2 * torch.tensor(high, dtype=torch.float64) - 1,
            tree.multipliers[torch.tensor(place, dtype=torch.long)],
        )
        nodes = torch.tensor(node, dtype=torch.long)
        splits = {i: Splits(*(t[nodes == i].to(device) for t in found)) for i in nodes.unique().tolist()}
        slopes, stored = {}, tree.slopes[list(numbers)]
        for i in tree.neurons[:, 0].unique().tolist():
            here = tree.neurons[:, 0] == i
            own = stored[:, here].to(device)
            slopes[i] = Slopes(tree.neurons[here, 1].to(device), own.double() / STEPS, own != USUAL)
        return Cuts(len(leaves), max(len(leaf.path) for leaf in leaves), splits, slopes)

    def clamped(self, i: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The intervals of node i, `c x *shape`, in the parts, and which parts are empty, `c`; those stay whole."""
        part, entry, value, sign, _ = self.splits[i]
        shape, size = low.shape, low[0].numel()
        at, above = part * size + entry, sign > 0
        raised = low.reshape(-1).scatter_reduce(0, at[above], value[above], "amax").reshape(shape)
        lowered = high.reshape(-1).scatter_reduce(0, at[~above], value[~above], "amin").reshape(shape)
        crossed = (raised > lowered).flatten(1).any(1)
        whole = crossed.reshape(-1, *[1] * (len(shape) - 1))
        return torch.where(whole, low, raised), torch.where(whole, high, lowered), crossed

    def tilted(self, i: int, planes: Planes, low: Tensor, high: Tensor) -> Planes:
        """The lines of node i, a ReLU, with the slopes that are given; `low`, `high`: of its input, `c x *shape`.

        A line through the origin with any slope in [0, 1] lies below a ReLU.
        """
        if i not in self.slopes:
            return planes
        entry, slope, given = self.slopes[i]
        (term,) = planes.terms
        tilted = given & (low < 0).flatten(1)[:, entry] & (high > 0).flatten(1)[:, entry]

        def put(t: Tensor, new: Tensor | float) -> Tensor:
            flat = t.flatten(1).clone()
            flat[:, entry] = torch.where(tilted, new, flat[:, entry])
            return flat.reshape(t.shape)

        return Planes((term._replace(lower=put(term.lower, slope)),), put(planes.lower, 0.0), planes.upper)

    def multiplied(self, net: Network, size: Callable[[int], Tensor]) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
        """`- sum_i beta_i sign_i (z_i - value_i)`: its constants and a bound on their error and on that of the rows,
        `c x 1` each, and rows by node, `c x 1 x size`, to be taken as exact. `size`: of a node, `c x *shape`."""
        like = size(0)
        constant, error = like.new_zeros(2, self.count).unbind()
        rows: dict[int, Tensor] = {}
        for i, (part, entry, value, sign, beta) in self.splits.items():
            at = part * net.nodes[i].size + entry
            flat = like.new_zeros(self.count * net.nodes[i].size).scatter_add(0, at, -sign * beta)
            rows[i] = flat.reshape(self.count, 1, net.nodes[i].size)
            constant = constant.scatter_add(0, part, sign * beta * value)
            # An entry that is split more than once has a sum of multipliers for its coefficient, which is rounded.
            largest = torch.where(beta > 0, size(i).flatten(1)[part, entry], 0.0)
            error = error.scatter_add(0, part, gamma(self.longest + 2) * (beta * (value.abs() + largest)))
        # Each product may underflow, and each of those that bound its error.
        return constant[:, None], error[:, None] + 4 * (self.longest + 1) * ETA, rows
