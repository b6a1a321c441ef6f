"""Which features may take any value of their domain while the others stay at the input: as many as can be.

First with plain bounds: features are ranked by what freeing them costs the margins where they stand, as many of the
cheapest are freed at once as the bounds allow, and this is repeated with those left that could be freed alone. Then, if
there is effort for it, one by one or a few at a time by branch and bound.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.claim.tree import Tree
from elbowroom.network.graph import Network
from elbowroom.search.bounds.propagate import BoundFunction
from elbowroom.search.branching.engine import Limits, prove
from elbowroom.search.branching.enlarge import Effort
from elbowroom.search.branching.faces import Fits
from elbowroom.search.regions.input_set import InputSet

_AT_ONCE = 128  # boxes that are bounded together
_SPARE = 1e-5  # of the margins at the input: what bounds must leave, since the proof counts its rounding
_SHARP = 8.0  # how much the margin of which least is left counts beside the others
_ATTEMPTS = 16  # of branch and bound, per start of an effort
_FIRST, _MOST = 4, 64  # features freed at once by it


@dataclass
class Freed:
    """`free`: which features may take any value, `b x n`; `order`: after how many steps each was freed, `b x n`, zero
    where it was not; `trees`: per input, by group, the proofs that plain bounds do not do."""

    free: Tensor
    order: Tensor
    trees: list[dict[int, Tree]]


@dataclass
class Freeing:
    """The search for some inputs: `x`, `lowest`, `highest`: `b x n`, the domain finite in `movable` features, `b x n`.

    `net`, `spec`: in the type to compute with; `at_input`: `b x g`, margins of the inputs alone.
    """

    net: Network
    evaluate: BoundFunction
    spec: Specification
    x: Tensor
    lowest: Tensor
    highest: Tensor
    movable: Tensor
    at_input: Tensor

    def box(self, index: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
        """Corners where these features, `m x n`, of the inputs `index`, `m`, are free: `m x n` each."""
        x = self.x[index]
        return torch.where(free, self.lowest[index], x), torch.where(free, self.highest[index], x)

    def _set(self, lower: Tensor, upper: Tensor) -> InputSet:
        shape = (len(lower), *self.net.input_shape)
        kind = self.at_input.dtype
        return InputSet.box(lower.to(kind).reshape(shape), upper.to(kind).reshape(shape))

    def holds(self, index: Tensor, free: Tensor) -> Tensor:
        """Where plain bounds leave something of every margin, `m`."""
        found = [torch.zeros(0, dtype=torch.bool, device=index.device)]
        with torch.no_grad():
            for part in torch.arange(len(index), device=index.device).split(_AT_ONCE) if len(index) else ():
                at = index[part]
                margins = self.evaluate(self.net, self._set(*self.box(at, free[part])), self.spec.part(at))
                found.append((margins >= _SPARE * self.at_input[at]).all(1))
        return torch.cat(found)

    def prices(self, index: Tensor, free: Tensor) -> Tensor:
        """What freeing each feature would cost margins linearised where these are free, `m x n`."""
        lower, upper = self.box(index, free)
        kind, x = self.at_input.dtype, self.x[index]
        down, up = ((x - lower).to(kind).requires_grad_(), (upper - x).to(kind).requires_grad_())
        shape = (len(x), *self.net.input_shape)
        with torch.enable_grad():
            center, radius = x.to(kind) + (up - down) / 2, (up + down) / 2
            sets = InputSet(center.reshape(shape), radius.reshape(shape))
            left = self.evaluate(self.net, sets, self.spec.part(index)) / self.at_input[index]
            weight = torch.softmax(-_SHARP * left.detach(), 1)
            by_down, by_up = torch.autograd.grad((weight * left).sum(), (down, up))
        below, above = (x - self.lowest[index]).to(kind), (self.highest[index] - x).to(kind)
        cost = (-by_down).clamp_min(0) * below + (-by_up).clamp_min(0) * above
        return torch.where(self.movable[index], cost.nan_to_num(nan=torch.inf), torch.inf)

    # --- plain bounds

    def plain(self) -> Freed:
        """As many features as plain bounds free."""
        free = torch.zeros_like(self.movable)
        order = torch.zeros_like(free, dtype=torch.long)
        left = self.movable.clone()
        step = 0
        while True:
            index = left.any(1).nonzero().squeeze(1)
            if not len(index):
                return Freed(free, order, [{} for _ in self.x])
            step += 1
            rank = self._ranks(index, free, left)
            count = self._most(index, free[index], rank, left[index].sum(1))
            added = rank < count[:, None]
            free[index] |= added
            order[index] = torch.where(added, step, order[index])
            # Where nothing was added, not the cheapest either: rounding must not ask for it again and again.
            left[index] &= ~added & ~((rank == 0) & (count == 0)[:, None])
            left = self._alone(left, free)

    def _ranks(self, index: Tensor, free: Tensor, left: Tensor) -> Tensor:
        """The place of each feature that is left in the order of its price, `m x n`; beyond all of them for others."""
        cost = torch.where(left[index], self.prices(index, free[index]), torch.inf)
        rank = cost.argsort(dim=1, stable=True).argsort(1)
        return torch.where(left[index], rank, left.shape[1])

    def _most(self, index: Tensor, free: Tensor, rank: Tensor, most: Tensor) -> Tensor:
        """How many of the cheapest features can be freed at once, by halving, `m`."""
        low, high = torch.zeros_like(most), most + 1
        while bool((high - low > 1).any()):
            middle = (low + high) // 2
            good = self.holds(index, free | (rank < middle[:, None])) & (middle > low)
            low, high = torch.where(good, middle, low), torch.where(good, high, torch.maximum(middle, low + 1))
        return low

    def _alone(self, left: Tensor, free: Tensor) -> Tensor:
        """Those features that could be freed by themselves now, `b x n`: what cannot, cannot later either."""
        index, feature = left.nonzero().unbind(1)
        more = free[index].scatter(1, feature[:, None], True)
        alone = torch.zeros_like(left)
        alone[index, feature] = self.holds(index, more)
        return alone

    # --- branch and bound

    def further(self, found: Freed, hopeless: Tensor, effort: Effort, fits: Fits) -> None:
        """Frees more features by branch and bound. `hopeless`: `b x n`, those with a counterexample."""
        deadline = time.monotonic() + effort.seconds * len(self.x)
        left = self.movable & ~found.free & ~hopeless
        size = torch.full_like(found.order[:, 0], _FIRST)
        step = int(found.order.max())
        for _ in range(_ATTEMPTS * effort.starts):
            index = left.any(1).nonzero().squeeze(1)
            if not len(index) or time.monotonic() > deadline:
                return
            step += 1
            tried = self._ranks(index, found.free, left) < size[index][:, None]
            limits = Limits(
                effort.leaves, max(0.0, 0.2 * (deadline - time.monotonic())), memory=effort.memory
            )  # fmt: skip
            sets = self._set(*self.box(index, found.free[index] | tried))
            out = prove(self.net, sets, self.spec.part(index), limits, [found.trees[k] for k in index.tolist()])
            for k, place in enumerate(index.tolist()):
                if bool(out.proved[k].all()) and fits(out.trees[k]):
                    found.free[place] |= tried[k]
                    found.order[place][tried[k]] = step
                    found.trees[place] = out.trees[k]
                    left[place] &= ~tried[k]
                    size[place] = min(2 * int(size[place]), _MOST)
                elif int(tried[k].sum()) == 1:
                    left[place] &= ~tried[k]
                else:
                    size[place] = max(1, int(tried[k].sum()) // 4)


__all__ = ["Freed", "Freeing"]
