"""Counterexamples in boxes of few features: points at random and downhill from the lowest of them."""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.network.graph import Network
from elbowroom.search.attack import pgd

_SAMPLES, _STEPS = 1024, 12  # per box
_TARGETS, _STARTS = 4, 64  # groups whose margins come lowest, and samples in all that go downhill towards them
_FIRST, _SHORTER = 0.25, 0.65  # their first step, as a share of the box, and each further one beside the last
_HALVINGS = 16
_AT_ONCE, _FEWEST = 1 << 15, 16  # points
_MEMORY, _BYTES = 1 << 28, 64  # where nothing is said; of a point, per number that the network computes


class Points:
    """Margins of points of some inputs, features flat, and where these are broken. `memory`: what it may take, in
    bytes."""

    def __init__(self, net: Network, spec: Specification, memory: int | None = None) -> None:
        self.net, self.spec = net, spec
        each = _BYTES * sum(node.size for node in net.nodes)
        self._at_once = min(_AT_ONCE, max(_FEWEST, (memory or _MEMORY) // 4 // each))

    def margins(self, points: Tensor, owner: Tensor) -> Tensor:
        """The least margin at each point, `m x n`, of the inputs with these numbers, `m`."""
        return self.of_groups(points, owner).amin(1)

    def of_groups(self, points: Tensor, owner: Tensor) -> Tensor:
        """The margins at each point, `m x g`; differentiable."""
        if torch.is_grad_enabled() or len(points) <= self._at_once:
            return self._of_groups(points, owner)
        parts = zip(points.split(self._at_once), owner.split(self._at_once))
        return torch.cat([self._of_groups(*part) for part in parts])

    def _of_groups(self, points: Tensor, owner: Tensor) -> Tensor:
        outputs = self.net.values(points.reshape(-1, *self.net.input_shape))[-1]
        return self.spec.part(owner).margins(outputs)

    def inside(
        self, owner: Tensor, lower: Tensor, upper: Tensor, seed: int, samples: int = _SAMPLES
    ) -> tuple[Tensor, Tensor]:
        """Counterexamples in boxes, `m x n` by their corners, each of the input `owner`, `m`: the points, `p x n`, and
        the numbers of their boxes, `p`. Points at random are at the same places of all boxes, so that what is found in
        one does not depend on the others."""
        found, boxes = [lower[:0]], [owner[:0]]
        draw = torch.Generator().manual_seed(seed)
        share = torch.rand(samples, lower.shape[1], generator=draw, dtype=torch.float64)
        # Most valleys end at sides of the box: there points are in half of their features.
        at_side = torch.rand(share.shape, generator=draw) < 0.5
        share = torch.where(at_side, share.round(), share).to(lower)
        for part in torch.arange(len(owner), device=owner.device).split(max(1, self._at_once // samples)):
            points, which = self._some(owner[part], lower[part], upper[part], share)
            found.append(points)
            boxes.append(part[which])
        return torch.cat(found), torch.cat(boxes)

    def _some(self, owner: Tensor, lower: Tensor, upper: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        (count, n), samples = lower.shape, len(share)
        low, wide = lower[:, None], (upper - lower)[:, None]
        x = (low + share * wide).clamp(low, upper[:, None])
        which = torch.arange(count, device=owner.device)[:, None]
        every = owner[which.expand(-1, samples)].flatten()
        with torch.no_grad():
            margins = self.of_groups(x.flatten(0, 1), every).unflatten(0, (count, samples))
        broken = margins.amin(2) <= 0
        points, boxes = [x[broken]], [which.expand(-1, samples)[broken]]
        # Each group has its own valleys: what is lowest of one may lead to nothing of another.
        aims = margins.amin(1).topk(min(_TARGETS, margins.shape[2]), largest=False).indices
        starts = min(_STARTS // aims.shape[1], samples)
        toward = margins.gather(2, aims[:, None].expand(-1, samples, -1))
        lowest = toward.topk(starts, dim=1, largest=False).indices.flatten(1)
        x = x.gather(1, lowest[:, :, None].expand(-1, -1, n)).flatten(0, 1)
        aim, box = aims.repeat(1, starts).reshape(-1, 1), which.expand(-1, lowest.shape[1]).flatten()
        mine, ends = owner[box], (lower[box], upper[box])

        def value(x: Tensor) -> tuple[Tensor, Tensor]:
            margins = self.of_groups(x, mine) + 0 * x.sum(1, keepdim=True)  # of a network that is constant, too
            return -margins.gather(1, aim).sum(), margins.detach().amin(1)

        def seen(x: Tensor, margin: Tensor) -> None:
            points.append(x[margin <= 0])
            boxes.append(box[margin <= 0])

        lengths = (_FIRST * _SHORTER**t * (ends[1] - ends[0]) for t in range(_STEPS))
        with torch.enable_grad():
            x = pgd(value, x, *ends, lengths, seen)
        with torch.no_grad():
            seen(x, self.margins(x, mine))
        return torch.cat(points), torch.cat(boxes)

    def pulled(self, points: Tensor, owner: Tensor, towards: Tensor) -> Tensor:
        """The points moved towards others, `m x n`, at which all is well, to about where they are broken."""
        held, broken = torch.zeros_like(points[:, :1]), torch.ones_like(points[:, :1])
        with torch.no_grad():
            for _ in range(_HALVINGS):
                middle = (held + broken) / 2
                bad = (self.margins(towards + middle * (points - towards), owner) <= 0)[:, None]
                held, broken = torch.where(bad, held, middle), torch.where(bad, middle, broken)
        return towards + broken * (points - towards)
