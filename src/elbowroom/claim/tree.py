"""How a region is cut into parts, each of which is proved by itself: a tree of splits, with hints for its leaves.

A split cuts what is left in two, by one number: an entry of the input, or of any node of the network, is at most
`value` on the low side and at least `value` on the high side. Every point of the region lies on one of the two (or on
both), so the leaves of a full binary tree cover the region whatever the splits are. Multipliers and slopes are hints:
any multiplier that is not negative and any slope in [0, 1] gives a bound that is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network

EMPTY = -1  # in place of a row: the leaf claims that nothing of the region is left there
STEPS = 15  # slopes are stored as multiples of one fifteenth
USUAL = 16  # in place of one: the slope of the line that is taken where nothing is said
# Of one tree: so that nobody who reads one needs more memory than this lets him expect.
MOST_NODES, MOST_MULTIPLIERS, MOST_NEURONS, MOST_SLOPES = 1 << 18, 1 << 22, 1 << 18, 1 << 24
MOST_SHARPENED, MOST_CASES = 16, 6
_HALF = torch.finfo(torch.float16).max


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
        value: `m`, float64: where it is split; at a leaf nothing, and zero when it comes back from bytes.
        multipliers: float64, not negative: one per split on the path of each leaf, from the root, leaf after leaf.
            They are rounded to 16 bits when the tree is made (`rounded`), so that files keep what was proved.
        neurons: `u x 2`, int64: ReLU nodes and entries of them for whose lower lines slopes are stored.
        slopes: `l x u`, uint8: those slopes, in fifteenths, or `USUAL`.
        again: Whether the bounds of hidden nodes are computed again for each leaf, under its splits; otherwise those of
            the leaf's inputs alone, clamped by its splits, serve.
        sharpened: How often, for the bounds of hidden nodes, slopes of ReLUs' lower lines are improved row by row.
        cases: How many ReLUs are then taken by cases, row by row, for these bounds.
    """

    node: Tensor
    entry: Tensor
    value: Tensor
    multipliers: Tensor
    neurons: Tensor
    slopes: Tensor
    again: bool = False
    sharpened: int = 0
    cases: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "multipliers", rounded(self.multipliers))

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
            if first + len(path) > len(self.multipliers):  # before paths take more memory than what was stored
                raise InputError("the tree of splits has fewer multipliers than its leaves have splits")
            yield Leaf(entry, tuple(path), first)
            first += len(path)
            while path and path[-1].high:
                path.pop()
            if path:
                path[-1] = path[-1]._replace(high=True)
        if path or not nodes:
            raise InputError("the tree of splits ends before all of its sides are there")
        if first != len(self.multipliers):
            raise InputError("the tree of splits has more multipliers than its leaves have splits")


Trees = Sequence[Sequence[tuple[int, Tree]]]  # per input, each with the number of the group that it is about


def rounded(multipliers: Tensor) -> Tensor:
    """Multipliers as float16 keeps them, times the power of 2 that `exponent` gives; what is not finite stays."""
    if not len(multipliers) or not bool(torch.isfinite(multipliers).all()):
        return multipliers
    before = None
    while before != (power := exponent(multipliers)):  # the largest may be rounded up to the next power of 2
        before, scale = power, 2.0**power
        multipliers = (multipliers.double() / scale).clamp(-_HALF, _HALF).half().double() * scale
    return multipliers


def exponent(multipliers: Tensor) -> int:
    """The power of 2 by which multipliers are divided before they are stored: the largest is then about 2^15."""
    largest = float(multipliers.abs().max()) if len(multipliers) else 0.0
    return max(-900, min(1000, math.frexp(largest)[1] - 15)) if largest > 0 and math.isfinite(largest) else 0


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


def leaves_of(trees: Trees, group: Tensor, net: Network, region: Stated) -> list[tuple[int, int, Tree, list[Leaf]]]:
    """Of each tree its input, its group, itself and its leaves, after a look at everything in it; see `fitting_leaves`.

    `group`: of each row of the specification, `t`.
    """
    if trees and len(trees) != len(region):
        raise InputError(f"{len(trees)} lists of trees were given for {len(region)} inputs")
    found = []
    for b, of_input in enumerate(trees):
        numbers = [number for number, _ in of_input]
        if len(set(numbers)) != len(numbers):
            raise InputError("there are two trees for one group of the specification")
        for number, tree in of_input:
            found.append((b, number, tree, fitting_leaves(tree, number, group, net, region.is_box)))
    return found


def fitting_leaves(tree: Tree, number: int, group: Tensor, net: Network, box: bool) -> list[Leaf]:
    """The leaves of a tree, after a look at everything in it.

    `number`: the group of the specification that it is about; `group`: the group of each of its rows, `t`; `box`:
    whether the region is one. Raises an `InputError` that says what is wrong.
    """
    _must_have_types(tree)
    if number not in group.tolist():
        raise InputError(f"there is a tree for group {number}, which the specification does not have")
    splits = tree.node >= 0
    if bool((tree.node < -1).any()) or bool((tree.node >= len(net.nodes)).any()):
        raise InputError(f"the tree splits a node that the network, which has {len(net.nodes)}, does not have")
    sizes = torch.tensor([node.size for node in net.nodes])
    if bool(((tree.entry < 0) | (tree.entry >= sizes[tree.node.clamp_min(0)]))[splits].any()):
        raise InputError("the tree splits an entry that its node does not have")
    if not box and bool((tree.node == 0).any()):
        raise InputError("the tree splits the input, which only regions that are boxes allow")
    if not bool(torch.isfinite(tree.value).all()):
        raise InputError("the tree splits at a value that is not finite")
    rows = tree.entry[~splits]
    if bool(((rows < EMPTY) | (rows >= len(group))).any()) or bool((group.cpu()[rows[rows >= 0]] != number).any()):
        raise InputError(f"a leaf of the tree proves a row that is not of its group, {number}")
    # Of NaN neither is true.
    if not bool(((tree.multipliers >= 0) & (tree.multipliers < math.inf)).all()):
        raise InputError("a multiplier of the tree is negative or not finite")
    if bool(((tree.slopes > STEPS) & (tree.slopes != USUAL)).any()):
        raise InputError(f"a slope of the tree is more than {STEPS} fifteenths")
    for node, entry in tree.neurons.tolist():
        if not 0 <= node < len(net.nodes) or type(net.nodes[node].op) is not ops.ReLU:
            raise InputError(f"the tree has slopes for node {node}, which is no ReLU")
        if not 0 <= entry < net.nodes[node].size:
            raise InputError(f"the tree has slopes for entry {entry} of node {node}, which has no such entry")
    if len({tuple(pair) for pair in tree.neurons.tolist()}) != len(tree.neurons):
        raise InputError("the tree has slopes for an entry twice")
    return list(tree.leaves())


def _must_have_types(tree: Tree) -> None:
    """Types, shapes and lengths."""
    kinds = {
        "node": (torch.int64, 1), "entry": (torch.int64, 1), "value": (torch.float64, 1),
        "multipliers": (torch.float64, 1), "neurons": (torch.int64, 2), "slopes": (torch.uint8, 2),
    }  # fmt: skip
    for name, (kind, axes) in kinds.items():
        t = getattr(tree, name)
        if not isinstance(t, Tensor) or t.dtype != kind or t.dim() != axes or t.device.type != "cpu":
            raise InputError(f"the tree's {name} must be a tensor of {kind} with {axes} axes")
    most = {"node": MOST_NODES, "multipliers": MOST_MULTIPLIERS, "neurons": MOST_NEURONS}
    for name, count in most.items():
        if len(getattr(tree, name)) > count:
            raise InputError(f"the tree has more {name} than are allowed, {count:,}")
    if not len(tree.node) == len(tree.entry) == len(tree.value):
        raise InputError("the tree's nodes, entries and values differ in number")
    if tree.neurons.shape[1] != 2 or tuple(tree.slopes.shape) != (tree.n_leaves, len(tree.neurons)):
        raise InputError("the tree needs a slope per leaf and listed neuron")
    for name, count in (("sharpened", MOST_SHARPENED), ("cases", MOST_CASES)):
        if type(getattr(tree, name)) is not int or not 0 <= getattr(tree, name) <= count:
            raise InputError(f"the tree's `{name}` must be a whole number from 0 to {count}")
    if tree.slopes.numel() > MOST_SLOPES:
        raise InputError(f"the tree has more slopes than are allowed, {MOST_SLOPES:,}")
