"""Formal explanations: features that may take any value of their domain, those that are needed, those not decided.

What is stored is a box like any other, the whole domain in free features and the input itself in the others. Of those
a counterexample, with that feature and the free ones anywhere in their domain, shows that they are needed; it is
believed where the strict check proves it to be one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from elbowroom.certificates.result import FIXED, NEEDED, UNDECIDED
from elbowroom.certify.reach import Quarry
from elbowroom.claim.specification import Specification
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Trees
from elbowroom.claim.tree_bytes import as_words, pack
from elbowroom.network.graph import Network
from elbowroom.network.names import counted
from elbowroom.search.attack import pgd
from elbowroom.search.branching.enlarge import Effort
from elbowroom.search.branching.faces import Fits
from elbowroom.search.find import Inputs
from elbowroom.search.free import Freed, Freeing

_POINTS, _PROVED = 1024, 64  # that are attacked at once, and proved
_STARTS, _TRIED, _STEPS = 4, 3, 12  # of an attack: for the worst points, from those, and how long
_FIRST, _LAST = 0.5, 0.01  # its steps, as shares of the domain's width

# The strict check: from regions, a specification and trees to margins, `b x g`.
Prove = Callable[[Stated, Specification, Trees | None], Tensor]


def free_features(
    search: Freeing, inputs: Inputs, net: Network, effort: Effort | None, fits: Fits, prove: Prove,
    passes: Callable[[Tensor], Tensor],
) -> dict[str, Any]:  # fmt: skip
    """Columns of certificates (see `Certificates`) of inputs, features flat; `certified`: which have one, `b`. `fits`:
    whether trees are short enough; `passes`: which margins are a certificate's."""
    hunt = _Hunt(net, inputs)
    found = search.plain()
    if effort is not None:
        search.further(found, hunt.needed(found.free, search.movable), effort, fits)
    margins, good = _proved(search, inputs, found, prove, passes)
    free = found.free & good[:, None]
    needed = hunt.needed(free, search.movable)
    index = torch.arange(len(free), device=free.device)
    lower, upper = search.box(index, free)
    half = Stated(lower, upper).half_widths()
    n = free.sum(1)
    log = torch.where(n > 0, torch.where(free, half, 1.0).log().sum(1) / n.clamp_min(1), -torch.inf)
    kept = torch.where(needed, NEEDED, UNDECIDED)
    certified = good & (n > 0)
    return {
        "certified": certified,
        "ended": [_in_words(*row) for row in zip(n.tolist(), (kept * search.movable * ~free).tolist())],
        "eps": half, "center": Stated(lower, upper).middle(), "lower": lower, "upper": upper,
        "capped": free, "geomean": log.exp(),
        "log_volume": torch.where(n > 0, n * (log + torch.log(torch.tensor(2.0, dtype=log.dtype))), -torch.inf),
        "margins": margins,
        "kept": torch.where(search.movable & ~free & certified[:, None], kept, FIXED),
        **({} if effort is None else {"trees": [as_words(pack(tuple(own.items()))) for own in found.trees]}),
    }  # fmt: skip


def _proved(
    search: Freeing, inputs: Inputs, found: Freed, prove: Prove, passes: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Margins of the boxes as the strict check proves them, `b x g`, and where they will do, `b`. Where they do not,
    what was freed last is taken back, and its proof with it."""
    margins = torch.zeros_like(inputs.spec.margins(inputs.outputs))
    good = torch.zeros_like(found.free[:, 0])
    pending = torch.arange(len(good), device=good.device)
    while len(pending):
        trees = [tuple(found.trees[k].items()) for k in pending.tolist()]
        proved = prove(Stated(*search.box(pending, found.free[pending])), inputs.spec.part(pending), trees)
        ok = passes(proved)
        margins[pending[ok]], good[pending[ok]] = proved[ok], True
        pending = pending[~ok]
        last = found.order[pending].amax(1)
        undone = (found.order[pending] == last[:, None]) & (last > 0)[:, None]
        found.free[pending] &= ~undone
        found.order[pending] = torch.where(undone, 0, found.order[pending])
        pending = pending[last > 0]
    return margins, good


class _Hunt:
    """Counterexamples in boxes of free features and one more."""

    def __init__(self, net: Network, inputs: Inputs) -> None:
        self.net, self.inputs, self.quarry = net, inputs, Quarry(net, inputs.spec)

    def needed(self, free: Tensor, movable: Tensor) -> Tensor:
        """Which other features have a proved counterexample where they are free as well, `b x n`."""
        worst, margins, slopes = self._worst(free)
        found = torch.zeros_like(free)
        for part in (movable & ~free).nonzero().split(_POINTS):
            index, feature = part.unbind(1)
            at = feature[:, None]
            lower, upper = self._box(index, free[index].scatter(1, at, True))
            # From the worst point of a group, moved to an end of the feature's domain: those that promise most.
            here, slope = (t[index].gather(2, at[:, None].expand(-1, t.shape[1], 1)) for t in (worst, slopes))
            ends = torch.cat([lower.gather(1, at), upper.gather(1, at)], 1)
            promised = (margins[index][..., None] + slope * (ends[:, None] - here)).flatten(1)
            for choice in promised.topk(min(_TRIED, promised.shape[1]), 1, largest=False).indices.unbind(1):
                group, end = choice // 2, choice % 2
                start = worst[index, group].scatter(1, at, ends.gather(1, end[:, None]))
                points, least = self._descend(index, group, lower, upper, start)
                some = ((least <= 0) & ~found[index, feature]).nonzero().squeeze(1)
                for few in some.split(_PROVED):
                    point = Stated(points[few], points[few])
                    found[index[few], feature[few]] = self.quarry.proved(point, index[few])
        return found

    def _worst(self, free: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Per input and group of the specification the worst point found in the box, `b x g x n`, the group's margin
        there, `b x g`, and its slope, `b x g x n`."""
        b, g = self.inputs.spec.margins(self.inputs.outputs).shape
        index = torch.arange(b, device=free.device).repeat_interleave(g * _STARTS)
        group = torch.arange(g, device=free.device).repeat_interleave(_STARTS).repeat(b)
        lower, upper = self._box(index, free[index])
        share = torch.rand(lower.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(lower)
        share[1::2] = share[1::2].round()
        points, _ = self._descend(index, group, lower, upper, lower + share * (upper - lower), own=True)
        with torch.enable_grad():
            points.requires_grad_()
            margins = self.quarry.margins(points, index).gather(1, group[:, None]).squeeze(1)
            (slopes,) = torch.autograd.grad(margins.sum(), points)
        points, margins = points.detach(), margins.detach()
        best = margins.reshape(b, g, _STARTS).argmin(2, keepdim=True)

        def chosen(t: Tensor) -> Tensor:
            return t.reshape(b, g, _STARTS, -1).gather(2, best[..., None].expand(-1, -1, 1, t[0].numel())).squeeze(2)

        return chosen(points), chosen(margins).squeeze(2), chosen(slopes)

    def _box(self, index: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
        space, x = self.inputs.space.part(index), self.inputs.x[index]
        return torch.where(free, space.lowest, x), torch.where(free, space.highest, x)

    def _descend(
        self, index: Tensor, group: Tensor, lower: Tensor, upper: Tensor, start: Tensor, own: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Moves points of boxes, `m x n`, downhill in the margins of groups, `m`: those where any margin was the least
        on the way (`own`: that of its group), and that, `m`."""
        best, least = start.clone(), torch.full_like(start[:, 0], torch.inf)

        def value(points: Tensor) -> tuple[Tensor, Tensor]:
            every = self.quarry.margins(points, index)
            margin = every.gather(1, group[:, None]).squeeze(1)
            return -margin.sum(), (margin if own else every.amin(1)).detach()

        def seen(points: Tensor, margin: Tensor) -> None:
            better = margin < least
            best[better], least[better] = points[better], margin[better]

        width = upper - lower
        lengths = (width * _FIRST * (_LAST / _FIRST) ** (k / _STEPS) for k in range(_STEPS))
        with torch.enable_grad():
            last = pgd(value, start, lower, upper, lengths, seen)
        with torch.no_grad():
            seen(last, value(last)[1])
        return best, least


def _in_words(free: int, kept: list[int]) -> str:
    needed, open_ = kept.count(NEEDED), kept.count(UNDECIDED)
    if not open_:
        return f"with {counted(free, 'feature')} free and {needed} needed"
    return f"with {counted(free, 'feature')} free, {needed} needed and {open_} not decided"


__all__ = ["free_features"]
