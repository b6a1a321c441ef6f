"""How bounds of leaves change with their sets of inputs, hidden bounds included."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from elbowroom.claim.tree import STEPS
from elbowroom.search.branching.leaves import Leaves
from elbowroom.search.branching.roots import Roots

if TYPE_CHECKING:
    from elbowroom.search.branching.engine import Search


def by_set(search: Search, leaves: Leaves) -> tuple[Tensor, Tensor]:
    """Derivatives of the leaves' bounds by centre and radius of their sets, `l x *input_shape` each, at their slopes
    and multipliers. Splits of the input move with the set. Hidden bounds are the plain ones: sharpened, they take twice
    the time, and tell the same."""
    sets = search.roots.sets
    with torch.enable_grad():
        center, radius = (t[leaves.root].detach().requires_grad_() for t in (sets.center, sets.radius))
        own_sets = replace(sets.take(leaves.root, radius), center=center)
        roots = Roots(search.net, own_sets, search.roots.budget)
        own = leaves.with_(root=torch.arange(len(leaves), device=leaves.root.device))
        carrier, need = search.prepare(own, roots)
        bound = carrier.down(leaves.slope.to(need.dtype) / STEPS, leaves.multiplier.to(need.dtype)).bound
        by_center, by_radius = torch.autograd.grad(bound.sum(), [center, radius])
    return torch.nan_to_num(by_center, 0.0, 0.0, 0.0), torch.nan_to_num(by_radius, 0.0, 0.0, 0.0)
