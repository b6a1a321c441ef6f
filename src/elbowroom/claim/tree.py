"""How a region is cut into parts, each of which is proved by itself: a tree of splits, with hints for its leaves.

A split cuts what is left in two, by one number: an entry of the input, or of any node of the network, is at most
`value` on the low side and at least `value` on the high side. Every point of the region lies on one of the two (or on
both), so the leaves of a full binary tree cover the region whatever the splits are. Multipliers and slopes are hints:
any multiplier that is not negative and any slope in [0, 1] gives a bound that is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from elbowroom.errors import InputError

EMPTY = -1  # in place of a row: the leaf claims that nothing of the region is left there
STEPS = 15  # slopes are stored as multiples of one fifteenth


class Split(NamedTuple):
    """On a leaf's path: entry `entry` (flat) of node `node` (0: the input) is at least `value` (`high`) or at most."""

    node: int
    entry: int
    value: float
    high: bool


class Leaf(NamedTuple):
    """One part. `row`: which row of the specification is positive there, or `EMPTY`; `path`: its splits, from the root;
    `first`: where its multipliers stand in `Tree.multipliers`, one per split of the path."""

    row: int
    path: tuple[Split, ...]
    first: int


@dataclass(frozen=True, eq=False)
class Tree:
    """The proof of one group of a specification on one region, in parts.

    The tree in preorder, the low side of a split before the high one; `m` nodes, of which `l` are leaves.

    Attributes:
        node: `m`, int64: the node of the network that is split, 0 for the input; -1 at a leaf.
        entry: `m`, int64: which entry of it, flat; at a leaf, the row of the specification that is proved, or `EMPTY`.
        value: `m`, float64: where it is split; zero at a leaf.
        multipliers: float64, not negative: one per split on the path of each leaf, from the root, leaf after leaf.
        neurons: `u x 2`, int64: ReLU nodes and entries of them for whose lower lines slopes are stored.
        slopes: `l x u`, uint8: those slopes, in fifteenths.
        again: Whether the bounds of hidden nodes are computed again for each leaf, under its splits; otherwise those of
            the leaf's inputs alone, clamped by its splits, serve.
    """

    node: Tensor
    entry: Tensor
    value: Tensor
    multipliers: Tensor
    neurons: Tensor
    slopes: Tensor
    again: bool = False

    @property
    def n_leaves(self) -> int:
        return int((self.node < 0).sum())

    def leaves(self) -> Iterator[Leaf]:
        """The leaves, from the lowest on; raises `InputError` where a side of a split is missing, or one too many."""
        nodes, entries, values = self.node.tolist(), self.entry.tolist(), self.value.tolist()
        path: list[Split] = []
        first = 0
        for i, (node, entry, value) in enumerate(zip(nodes, entries, values)):
            if i and not path:
                raise InputError(f"the tree of splits is complete after {i} of its {len(nodes)} entries")
            if node >= 0:
                path.append(Split(node, entry, value, False))
                continue
            yield Leaf(entry, tuple(path), first)
            first += len(path)
            while path and path[-1].high:
                path.pop()
            if path:
                path[-1] = path[-1]._replace(high=True)
        if path or not nodes:
            raise InputError("the tree of splits ends before all of its sides are there")


def single_leaf(row: int) -> Tree:
    """The tree that splits nothing."""
    none = torch.zeros(0, dtype=torch.float64)
    return Tree(
        node=torch.tensor([-1]),
        entry=torch.tensor([row]),
        value=torch.zeros(1, dtype=torch.float64),
        multipliers=none,
        neurons=torch.zeros(0, 2, dtype=torch.long),
        slopes=torch.zeros(1, 0, dtype=torch.uint8),
    )
