"""What binds a region: the worst leaf of every tree, and how its bound changes with the region.

For whoever improves a region's shape: the leaf's bound, linear in centre and radius to first order, is what must stay
positive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.claim.tree import STEPS, Tree
from elbowroom.network.graph import Network
from elbowroom.search.branching.climb import climb
from elbowroom.search.branching.engine import Limits, Search
from elbowroom.search.branching.leaves import Leaves, joined, rank, worst_first
from elbowroom.search.branching.planting import cut_corners
from elbowroom.search.branching.roots import Roots
from elbowroom.search.regions.input_set import InputSet


@dataclass(frozen=True, eq=False)
class Binding:
    """The worst leaves, `l` of them.

    Attributes:
        input: `l`: of which input.
        group: `l`: of which group.
        bound: `l`: their bounds.
        by_center: `l x *input_shape`: derivatives of these by the centre of the input's region.
        by_radius: `l x *input_shape`: and by its radius; hidden bounds included, at their slopes and multipliers.
    """

    input: Tensor
    group: Tensor
    bound: Tensor
    by_center: Tensor
    by_radius: Tensor


def binding(
    net: Network,
    sets: InputSet,
    spec: Specification,
    trees: Sequence[Mapping[int, Tree]],
    count: int = 1,
    limits: Limits | None = None,
) -> Binding:
    """The leaves of least bounds, `count` of every input and group.

    Args:
        net: The network, in the type and on the device to compute with.
        sets: The regions, likewise.
        spec: What must hold, likewise.
        trees: Per input, by group: the proof; groups without a tree are one leaf.
        count: How many leaves of each tree.
        limits: Memory, and how boxes are split.

    Returns:
        The leaves' bounds and derivatives.
    """
    with torch.no_grad():
        search = Search(net, sets, spec, limits or Limits())
        every = search.planted(search.first(every=True), trees)
        parts, found = [], []
        for part in torch.arange(len(every), device=every.problem.device).split(2 * search.at_once):
            climbed = climb(search.prepare, every.take(part), 0)
            some = (~climbed.empty).nonzero().squeeze(1)
            parts.append(climbed.leaves.take(some))
            found.append(climbed.bound[some])
        leaves, bounds = joined(parts), torch.cat(found)
        order = worst_first(leaves.problem, bounds)
        order = order[rank(leaves.problem[order]) < count]
    return _derived(search, sets, leaves.take(order), bounds[order])


def _derived(search: Search, sets: InputSet, leaves: Leaves, bounds: Tensor) -> Binding:
    of = leaves.problem // search.groups
    # Leaves share the bounds of their input's region, but where they have boxes of their own.
    cut = bool((leaves.node == 0).any())
    root, region = (
        (torch.arange(len(of), device=of.device), of) if cut else (of, torch.arange(len(sets.center), device=of.device))
    )
    with torch.enable_grad():
        center, radius = (t[region].detach().requires_grad_() for t in (sets.center, sets.radius))
        own = replace(sets.take(region, radius), center=center)
        if cut:
            lower, upper = cut_corners((center - radius).flatten(1), (center + radius).flatten(1), leaves)
            own = InputSet.box(lower.reshape(center.shape), upper.reshape(center.shape))
        leaves = leaves.with_(root=root)
        carrier, need = search.prepare(leaves, Roots(search.net, own, search.roots.budget, search.roots.sharpened))
        bound = carrier.down(leaves.slope.to(need.dtype) / STEPS, leaves.multiplier.to(need.dtype)).bound
        by_center, by_radius = (t.new_zeros(len(of), *t.shape[1:]) for t in (center, radius))
        number = rank(root)
        for k in range(int(number.max()) + 1):  # one leaf of each region at a time: these do not mix
            here = number == k
            parts = torch.autograd.grad(bound[here].sum(), [center, radius], retain_graph=True)
            by_center[here], by_radius[here] = (torch.nan_to_num(t[root[here]], 0.0, 0.0, 0.0) for t in parts)
    return Binding(of, leaves.problem % search.groups, bounds, by_center, by_radius)
