"""One vector of tolerances for many inputs: looked for by plain bounds and attacks, proposed, and proved by others.

The largest box that all chosen inputs can have around them, in log-volume: their margins are constraints of one and the
same vector. Around the current one margins are linearised, the best vector under these is found by prices (every
feature spends the same share of what it costs), mixed with the current one and scaled to where some margin ends. Which
inputs are chosen follows from how far each lets the vector's shape be scaled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.questions.asked import Asked
from elbowroom.search.bounds.propagate import margins_of
from elbowroom.search.memory import Budget
from elbowroom.search.regions.input_set import InputSet
from elbowroom.verify.counterexample import descend, starting_points

_SMALLEST, _BISECTIONS = -60.0, 24  # powers of 2 of a shape: the least tried, and halvings of the interval
_GROWTH, _REFINED = 1.5, 12  # steps to a boundary, and halvings of the last
_ROUNDS, _STEPS = 5, 25  # choices of inputs, and steps for each
_POINTS, _STARTS, _DESCENT = 4096, 4, 15  # of descents in boxes: points at once, starts, steps
_PRICES = 400  # iterations of prices
_WORTH, _LEAST_MIX = 1e-3, 0.04  # gains of the mean log tolerance that go on, and the smallest part of a step


@dataclass(frozen=True, eq=False)
class Joint:
    """Tolerances of the inputs `index`, `m`. `cap`: `n`, zero where a feature does not move; `weight`: `n`, of the log
    of each tolerance."""

    asked: Asked
    index: Tensor
    cap: Tensor
    weight: Tensor
    budget: Budget

    def margins(self, tolerance: Tensor, rows: Tensor) -> Tensor:
        """Margins of the inputs `index[rows]`, `r x g`, each with tolerances of its own, `r x n`; differentiable."""
        asked, which = self.asked, self.index[rows]
        net, space, x = asked.net.cast(torch.float64, rows.device), asked.space.part(which), asked.x[which]
        lower, upper = torch.maximum(x - tolerance, space.lowest), torch.minimum(x + tolerance, space.highest)
        corners = (t.reshape(-1, *net.input_shape) for t in (lower, upper))
        return margins_of("adaptive", "direct", self.budget)(net, InputSet.box(*corners), asked.spec(which))

    def hold(self, tolerance: Tensor, rows: Tensor) -> Tensor:
        """Which inputs' margins are positive, `r`; `tolerance`: `n`, or `r x n`."""
        found = []
        with torch.no_grad():
            for part in torch.arange(len(rows), device=rows.device).split(self._at_once):
                own = tolerance[part] if tolerance.dim() == 2 else tolerance.expand(len(part), -1)
                found.append((self.margins(own, rows[part]) > 0).all(1))
        return torch.cat(found)

    @property
    def _at_once(self) -> int:
        rows = self.asked.net.n_outputs - 1 if self.asked.told is None else self.asked.told.rows.shape[1]
        return self.budget.batch(self.asked.net, self.index.device, rows)

    def factors(self, shape: Tensor) -> Tensor:
        """How far each input lets a shape be scaled, `m`; nothing where not even hardly anything is proved."""
        rows = torch.arange(len(self.index), device=self.index.device)
        most = float((self.cap[shape > 0] / shape[shape > 0]).max().log2())
        low, high = torch.full((len(rows),), _SMALLEST).to(shape), torch.full((len(rows),), most).to(shape)
        whole = self.hold(self._scaled(shape, torch.exp2(high)), rows)
        some = self.hold(self._scaled(shape, torch.exp2(low)), rows)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            good = self.hold(self._scaled(shape, torch.exp2(middle)), rows)
            low, high = torch.where(good, middle, low), torch.where(good, high, middle)
        return torch.where(whole, 2.0**most, torch.where(some, torch.exp2(low), 0.0))

    def _scaled(self, shape: Tensor, factor: Tensor) -> Tensor:
        """`n`, or `r x n` for factors `r`."""
        return torch.minimum(factor[..., None] * shape, self.cap)

    def size(self, tolerance: Tensor) -> float:
        """The weighted mean of log tolerances."""
        moves = self.cap > 0
        return float((self.weight * tolerance.log())[moves].sum() / self.weight[moves].sum())

    def best(self, shape: Tensor, need: int) -> Tensor | None:
        """The largest tolerances found, `n`, that hold for `need` inputs, beginning with a shape, `n`; None where none
        were found."""
        best: Tensor | None = None
        for _ in range(_ROUNDS):
            factors = self.factors(shape)
            order = factors.argsort(descending=True, stable=True)[:need]
            least = factors[order].min()
            if not bool(least > 0):
                break
            found = self._improved(self._scaled(shape, least), order)
            if best is not None and self.size(found) <= self.size(best) + _WORTH:
                break
            best = shape = found
        return best

    def _improved(self, tolerance: Tensor, rows: Tensor) -> Tensor:
        """Tolerances that hold for these inputs, larger ones."""
        mix = 1.0
        linear = self._linear(tolerance, rows)
        for _ in range(_STEPS):
            if mix < _LEAST_MIX:
                break
            target = self._priced(*linear)
            moves = self.cap > 0
            mixed = torch.where(moves, ((1 - mix) * tolerance.log() + mix * target.log()).exp(), 0.0)
            there = self._to_boundary(mixed, rows)
            if there is not None and self.size(there) > self.size(tolerance) + _WORTH * mix:
                tolerance = there
                linear = self._linear(tolerance, rows)
                mix = min(1.0, 1.5 * mix)
            else:
                mix /= 2
        return tolerance

    def _to_boundary(self, tolerance: Tensor, rows: Tensor) -> Tensor | None:
        """The vector scaled to about where it ceases to hold; None where it holds at no size that was tried."""
        one = torch.ones((), dtype=tolerance.dtype, device=tolerance.device)

        def holds(factor: Tensor) -> bool:
            return bool(self.hold(self._scaled(tolerance, factor), rows).all())

        low, high = one, one
        if holds(one):
            while not bool((self._scaled(tolerance, low) >= self.cap).all()):
                high = low * _GROWTH
                if not holds(high):
                    break
                low = high
        else:
            for _ in range(_BISECTIONS):
                high, low = low, low / _GROWTH
                if holds(low):
                    break
            else:
                return None
        for _ in range(_REFINED):
            middle = (low * high).sqrt()
            low, high = (middle, high) if holds(middle) else (low, middle)
        return self._scaled(tolerance, low)

    def _linear(self, tolerance: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What margins cost, `c x n`, and what there is of them, `c`: around the vector they hold while `costs .
        tolerance <= room`."""
        costs, room = [], []
        for part in rows.split(self._at_once):
            with torch.enable_grad():
                own = tolerance.expand(len(part), -1).clone().requires_grad_()
                margins = self.margins(own, part)
                for g in range(margins.shape[1]):
                    (slope,) = torch.autograd.grad(margins[:, g].sum(), own, retain_graph=g + 1 < margins.shape[1])
                    cost = torch.nan_to_num(-slope).clamp_min(0)
                    costs.append(cost)
                    room.append(margins[:, g].detach() + cost @ tolerance)
        return torch.cat(costs), torch.cat(room)

    def worst(self, tolerance: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The worst points found in the boxes of these inputs, for each group: which of `rows` each is of, `p`, its
        margin, `p`, and what that costs, `p x n`: by how much it falls as tolerances grow."""
        net, groups = self.asked.net.cast(torch.float64, rows.device), self.asked.margins.shape[1]
        found = []
        for part in torch.arange(len(rows), device=rows.device).split(max(1, _POINTS // (groups * _STARTS))):
            of = part.repeat_interleave(groups * _STARTS)
            group = torch.arange(groups, device=rows.device).repeat_interleave(_STARTS).repeat(len(part))
            which = self.index[rows[of]]
            space, x = self.asked.space.part(which), self.asked.x[which]
            lower, upper = torch.maximum(x - tolerance, space.lowest), torch.minimum(x + tolerance, space.highest)
            share = starting_points(torch.zeros_like(x[0]), torch.ones_like(x[0]), _STARTS).repeat(
                len(of) // _STARTS, 1
            )
            start = lower + share * (upper - lower)
            low, high, first = (t.reshape(-1, *net.input_shape) for t in (lower, upper, start))
            spec = self.asked.spec(which)
            points, least = descend(net, spec, low, high, first, group, _DESCENT)
            best = least.reshape(-1, _STARTS).argmin(1) + _STARTS * torch.arange(
                len(least) // _STARTS, device=rows.device
            )
            with torch.enable_grad():
                point = points[best].requires_grad_()
                margin = spec.part(best).margins(net.values(point)[-1]).gather(1, group[best][:, None]).sum()
                (slope,) = torch.autograd.grad(margin, point)
            # Only towards where a box can grow: not over the domain's end.
            slope, flat = torch.nan_to_num(slope).flatten(1), point.detach().flatten(1)
            down = (flat <= lower[best]) & (lower[best] > space.lowest[best]) & (slope > 0)
            up = (flat >= upper[best]) & (upper[best] < space.highest[best]) & (slope < 0)
            found.append((of[best], least[best], torch.where(down | up, slope.abs(), 0.0)))
        of, margin, cost = (torch.cat(parts) for parts in zip(*found))
        return of, margin, cost

    def reshaped(self, tolerance: Tensor, rows: Tensor) -> Tensor:
        """The best vector, if margins were linear around the worst points found in these inputs' boxes."""
        _, margin, cost = self.worst(tolerance, rows)
        return self._priced(cost, margin.clamp_min(0) + cost @ tolerance)

    def _priced(self, costs: Tensor, room: Tensor) -> Tensor:
        """The best vector under linear constraints: prices of these follow how much of each is used."""
        good = (room > 0) & (costs > 0).any(1)
        share = costs[good] / room[good][:, None]
        moves = self.cap > 0
        if not len(share):
            return self.cap
        price = torch.full((len(share),), float(self.weight[moves].sum()) / len(share)).to(share)
        for _ in range(_PRICES):
            tolerance = torch.minimum(self.weight / (price @ share), self.cap)
            tolerance = torch.where(moves, tolerance, 0.0)
            price = price * (share @ tolerance)
        return tolerance / max(1.0, float((share @ tolerance).max()))


__all__ = ["Joint"]
