"""A tree that was found on one region, as the start on another: its splits, with its slopes and multipliers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from elbowroom.claim.tree import EMPTY, USUAL, Tree
from elbowroom.search.branching.forest import Growing
from elbowroom.search.branching.leaves import Leaves
from elbowroom.search.branching.roots import Neurons, Roots
from elbowroom.search.regions.input_set import InputSet


def planted(
    tree: Tree, neurons: Neurons, problem: int, root: int, row: int, device: torch.device
) -> tuple[Growing, Leaves]:
    """The tree, ready to grow, and its leaves, all of which are open again; slopes of which the tree says nothing are
    `USUAL`. `root`: the set of inputs. `row`: for leaves that were empty."""
    growing, places = _regrown(tree)
    found = list(tree.leaves())
    longest = max((len(leaf.path) for leaf in found), default=0)
    shape = (len(found), longest)
    node, entry = np.full(shape, -1), np.zeros(shape, dtype=np.int64)
    value, sign, multiplier = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.float32)
    stored = tree.multipliers.numpy()
    for k, leaf in enumerate(found):
        depth = len(leaf.path)
        if depth:
            nodes, entries, values, high = zip(*leaf.path)
            node[k, :depth], entry[k, :depth], value[k, :depth] = nodes, entries, values
            sign[k, :depth] = np.where(high, 1.0, -1.0)
            multiplier[k, :depth] = stored[leaf.first : leaf.first + depth]
    slopes = torch.full((len(found), neurons.count), USUAL, dtype=torch.uint8, device=device)
    if len(tree.neurons):
        first = torch.tensor([neurons.first[i] for i in tree.neurons[:, 0].tolist()])
        slopes[:, (first + tree.neurons[:, 1]).to(device)] = tree.slopes.to(device)
    rows = torch.tensor([row if leaf.row == EMPTY else leaf.row for leaf in found], device=device)
    node_, entry_, value_, sign_, multiplier_ = (
        torch.from_numpy(t).to(device) for t in (node, entry, value, sign, multiplier)
    )
    at = torch.tensor(places, device=device)
    every, roots = torch.full_like(rows, problem), torch.full_like(rows, root)
    return growing, Leaves(every, roots, at, rows, node_, entry_, value_, sign_, multiplier_, slopes)


def _regrown(tree: Tree) -> tuple[Growing, list[int]]:
    """The tree, ready to grow, and the places of its leaves in their order."""
    growing, places, waiting = Growing(), [], [0]
    for node, entry, value in zip(tree.node.tolist(), tree.entry.tolist(), tree.value.tolist()):
        at = waiting.pop()
        if node < 0:
            places.append(at)
            continue
        low = growing.split(at, node, entry, value)
        waiting += [low + 1, low]
    return growing, places


def with_own_boxes(roots: Roots, leaves: Leaves) -> Leaves:
    """The leaves with the boxes that splits of the input leave them, which join the roots."""
    split = (leaves.node == 0).any(1).nonzero().squeeze(1)
    if not len(split):
        return leaves
    some = leaves.take(split)
    shape = roots.sets.center.shape[1:]
    center, radius = (t[some.root].flatten(1) for t in (roots.sets.center, roots.sets.radius))
    corners = torch.cat(cut_corners(center - radius, center + radius, some), 1)
    both, inverse = corners.unique(dim=0, return_inverse=True)
    boxes = InputSet.box(*(t.reshape(-1, *shape) for t in both.chunk(2, 1)))
    root = leaves.root.clone()
    root[split] = roots.add(Roots(roots.net, boxes, roots.budget, roots.sharpened))[inverse]
    return leaves.with_(root=root)


def cut_corners(lower: Tensor, upper: Tensor, leaves: Leaves) -> tuple[Tensor, Tensor]:
    """What the leaves' splits of the input leave of boxes, by their corners, `l x n` each."""
    for d in range(leaves.node.shape[1]):
        here = leaves.node[:, d] == 0
        at = torch.where(here, leaves.entry[:, d], 0)[:, None]
        value = leaves.value[:, d : d + 1].to(lower.dtype)
        high, low = (here & (leaves.sign[:, d] == s) for s in (1, -1))
        raised, lowered = torch.maximum(lower.gather(1, at), value), torch.minimum(upper.gather(1, at), value)
        lower = torch.where(high[:, None], lower.scatter(1, at, raised), lower)
        upper = torch.where(low[:, None], upper.scatter(1, at, lowered), upper)
    return lower, torch.maximum(lower, upper)
