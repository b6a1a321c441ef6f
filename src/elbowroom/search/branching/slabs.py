"""A box that grows at a face: only what is added, a slab, has to be proved; its tree is set beside that of the box."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from elbowroom.claim.tree import USUAL, Tree


def beside(feature: int, value: float, low: Mapping[int, Tree], high: Mapping[int, Tree]) -> dict[int, Tree]:
    """The proofs, by group, of a box that is split at one value of a feature, from those of both of its parts."""
    return {group: joined(feature, value, low[group], high[group]) for group in low}


def joined(feature: int, value: float, low: Tree, high: Tree) -> Tree:
    """The tree that splits an entry of the input first, with these trees, alike but for their leaves, on its sides."""
    assert (low.again, low.sharpened, low.cases) == (high.again, high.sharpened, high.cases)
    neurons = torch.cat([low.neurons, high.neurons]).unique(dim=0)
    return Tree(
        node=torch.cat([torch.zeros(1, dtype=torch.long), low.node, high.node]),
        entry=torch.cat([torch.tensor([feature]), low.entry, high.entry]),
        value=torch.cat([torch.tensor([value], dtype=torch.float64), low.value, high.value]),
        multipliers=torch.cat([_one_deeper(low), _one_deeper(high)]),
        neurons=neurons,
        slopes=torch.cat([_spread(low, neurons), _spread(high, neurons)]),
        again=low.again,
        sharpened=low.sharpened,
        cases=low.cases,
    )


def _one_deeper(tree: Tree) -> Tensor:
    """The multipliers with a zero before those of every leaf: splits of the input need none, they cut the box."""
    none = torch.zeros(1, dtype=torch.float64)
    parts = []
    for leaf in tree.leaves():
        parts += [none, tree.multipliers[leaf.first : leaf.first + len(leaf.path)]]
    return torch.cat(parts)


def _spread(tree: Tree, neurons: Tensor) -> Tensor:
    """The slopes of a tree, `l x u`, in the order of more neurons, `u x 2`, its own among them."""
    slopes = torch.full((tree.n_leaves, len(neurons)), USUAL, dtype=torch.uint8)
    if len(tree.neurons):
        same = (neurons[:, None] == tree.neurons).all(2)  # each of the tree's own is in one place
        slopes[:, same.int().argmax(0)] = tree.slopes
    return slopes
