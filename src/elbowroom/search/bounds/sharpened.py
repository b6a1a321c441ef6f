"""Bounds of hidden nodes where every row has slopes of its own for the lower lines of ReLUs, improved step by step, and
takes the ReLUs whose upper lines cost it most by cases.

Steps and cases are those of `proof.kernel.slopes`, so that what is found here is what the proof will find, up to
rounding. Rows are written out whole, without windows: it is done for few sets of inputs, each of which serves many
leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from elbowroom.claim.tree import MOST_CASES
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.bounds.maps import map_of
from elbowroom.search.bounds.planes import Planes
from elbowroom.search.bounds.sizes import Sizes, numbers_of
from elbowroom.search.regions.input_set import InputSet, dot

_STEP = 3.0  # the first step of a slope, where the ReLU's input is a whole interval away from zero
_STEPS = 4
_CASES, _CASES_PER_LEAF = 5000, 25  # rows in all cases
_GRAPH = {"cpu": 1, "cuda": 16}  # parts of a chunk, where autograd keeps all that is computed


class Sharpening(NamedTuple):
    """`steps`: how often slopes are improved for every hidden row; `cases`: how many ReLUs it then takes by cases."""

    steps: int = 0
    cases: int = 0

    def __bool__(self) -> bool:
        return self.steps > 0 or self.cases > 0


PLAIN = Sharpening()


def worthwhile(net: Network, leaves: int) -> Sharpening:
    """What is worth its time where so many leaves share the bounds: rows in all cases are as many as a few dozen per
    leaf, what a leaf itself takes; and there are hardly more cases than the root of the leaves: each is a call."""
    rows = 2 * sum(net.nodes[j].size for j in net.preactivations if j > net.relaxed[0])
    most = (_CASES + _CASES_PER_LEAF * leaves) // max(1, rows)
    return Sharpening(_STEPS, min(MOST_CASES, leaves.bit_length() // 2, max(1, most).bit_length() - 1))


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of the nodes before: values at the sets' centres and ends of intervals, by node, `b x *shape`, and
    planes of those that are not affine."""

    net: Network
    inputs: InputSet
    values: Sequence[Tensor]
    lower: Sequence[Tensor]
    upper: Sequence[Tensor]
    planes: Mapping[int, Planes]

    def detached(self) -> Known:
        """Constants to autograd."""
        inputs = replace(self.inputs, center=self.inputs.center.detach(), radius=self.inputs.radius.detach())
        values, lower, upper = ([t.detach() for t in of] for of in (self.values, self.lower, self.upper))
        planes = {
            i: Planes(
                tuple(
                    replace(t, lower_slope=t.lower_slope.detach(), upper_slope=t.upper_slope.detach())
                    for t in p.terms
                ),
                p.lower.detach(), p.upper.detach(),
            )
            for i, p in self.planes.items()
        }  # fmt: skip
        return Known(self.net, inputs, values, lower, upper, planes)


def sharpened(known: Known, i: int, open_: Tensor, how: Sharpening, chunk: int) -> tuple[Tensor, Tensor]:
    """Bounds of node i, `b x size` each; infinite where they were not asked for.

    `open_`: `b x size`, which entries; `chunk`: bytes of rows at a time.
    """
    net, fixed = known.net, known.detached()
    size = open_.shape[1]
    below = above = known.values[i].new_full((len(open_), size + 1), -torch.inf)
    widest = max(node.size for node in net.nodes[: i + 1])
    most = max(1, chunk // (2 * widest * below.element_size()) // _GRAPH.get(open_.device.type, 1))
    for part, index in _pieces(open_, most):
        rows = _Rows(fixed, i, part, index)
        best = rows.climb(how.steps)
        if how.cases:
            best = rows.by_cases(how.cases, best)
        if torch.is_grad_enabled():  # the same once more, slopes being constants, in the worst case
            best = _Rows(known, i, part, index, rows.slopes, rows.bits, rows.case).down()
        value = known.values[i].flatten(1)[part].gather(1, index.clamp_min(0))
        # What stands at -1 goes to one place more, which is then cut off.
        at = part[:, None], torch.where(index >= 0, index, size)
        low, high = best.chunk(2, dim=1)
        below, above = below.index_put(at, value + low), above.index_put(at, high - value)
    return below[:, :-1], -above[:, :-1]


def _pieces(open_: Tensor, most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs, `m`, and entries of theirs, `m x s`, -1 for none: at most `most` entries at a time, or one input."""
    sizes, order = open_.sum(1).sort(descending=True, stable=True)
    entries = numbers_of(open_, Sizes(), ("sharpened", 0))
    listed, first = sizes.tolist(), 0
    while first < len(listed) and listed[first]:
        last = first + max(1, most // listed[first])
        part = order[first:last]
        for some in entries[part, : listed[first]].split(most, 1):
            yield part, some
        first = last


class _Rows:
    """Entries of a node and their negatives, carried back to the input. `slopes`: the best found, by ReLU node,
    `m x r x size`; where there are none, the usual ones. `bits`, likewise: of the ReLUs that a row takes by cases, 0
    for others; `case`, `m x r`: the sum of those that are on the high side."""

    def __init__(
        self, known: Known, i: int, part: Tensor, index: Tensor, slopes: Mapping[int, Tensor] | None = None,
        bits: Mapping[int, Tensor] | None = None, case: Tensor | None = None,
    ) -> None:  # fmt: skip
        self.known, self.i, self.part = known, i, part
        self.inputs = known.inputs.take(part)
        unit = known.values[i].new_zeros(*index.shape, known.net.nodes[i].size)
        unit = unit.scatter(2, index.clamp_min(0)[..., None], 1.0)
        self.rows = torch.cat([unit, -unit], 1)
        self.slopes: dict[int, Tensor] = dict(slopes or {})
        self.bits: dict[int, Tensor] = dict(bits or {})
        self.case = torch.zeros(self.rows.shape[:2], dtype=torch.uint8, device=unit.device) if case is None else case
        self._met: dict[int, Tensor] | None = None
        self._costs: dict[int, Tensor] | None = None

    def climb(self, rounds: int) -> Tensor:
        """The best bounds, as deviations from the values at the centres, `m x r`; notes their slopes."""
        best: Tensor | None = None
        kept: dict[int, Tensor] = {}
        for t in range(rounds + 1):
            met: dict[int, Tensor] = {}
            self._met = met
            with torch.set_grad_enabled(t < rounds):
                found = self.down()
            # What arrives at a ReLU's input where the bound is attained.
            going = t < rounds and met
            inputs = torch.autograd.grad(found, list(met.values()), torch.ones_like(found)) if going else ()
            found = found.detach()
            better = torch.ones_like(found, dtype=torch.bool) if best is None else found > best
            best = found if best is None else torch.maximum(best, found)
            now = {k: self.slopes.get(k, self._usual(k).expand(*found.shape, -1)) for k in met}
            kept = {k: torch.where(better[..., None], slope, kept.get(k, slope)) for k, slope in now.items()}
            self.slopes = {k: self._moved(k, now[k], at, t) for k, at in zip(met, inputs)}
        self.slopes, self._met = kept, None
        assert best is not None
        return best

    def _moved(self, k: int, slope: Tensor, at: Tensor, t: int) -> Tensor:
        """Slopes after a step: `at`, the deviations of the ReLU's inputs where bounds are attained."""
        j = self.known.net.nodes[k].inputs[0]
        low, high = self._of(self.known.lower[j]), self._of(self.known.upper[j])
        step = _STEP * (t + 1) ** -0.5 * (at + self._of(self.known.values[j])[:, None]) / (high - low)[:, None]
        return torch.nan_to_num(slope + step, 0.0, 1.0, 0.0).clamp(0, 1)

    @torch.no_grad()
    def by_cases(self, most: int, best: Tensor) -> Tensor:
        """The least bounds of all cases, or those at hand, `m x r`, where they are better; notes the worst case."""
        costs = self._costs = {}
        self.down()
        self._costs = None
        if not costs:
            return best
        cost = torch.cat(list(costs.values()), 2)
        worst, at = cost.topk(min(most, cost.shape[2]), 2)
        bits = torch.where(worst > 0, 2 ** torch.arange(worst.shape[2], device=at.device), 0).to(torch.uint8)
        every = torch.zeros(cost.shape, dtype=torch.uint8, device=at.device).scatter_(2, at, bits)
        self.bits = dict(zip(costs, every.split([t.shape[2] for t in costs.values()], 2)))
        least = torch.full_like(best, torch.inf)
        at_worst = torch.zeros_like(self.case)
        for case in range(2 ** int((worst > 0).sum(2).max())):
            self.case = torch.full_like(at_worst, case)
            found = self.down()
            at_worst = torch.where(found < least, self.case, at_worst)
            least = torch.minimum(least, found)
        better, self.case = least > best, at_worst
        self.bits = {k: torch.where(better[..., None], t, 0) for k, t in self.bits.items()}
        return torch.maximum(best, least)

    def _of(self, t: Tensor) -> Tensor:
        return t[self.part].flatten(1)

    def _usual(self, k: int) -> Tensor:
        (term,) = self.known.planes[k].terms
        return self._of(term.lower_slope)[:, None]

    def down(self) -> Tensor:
        """The rows' bounds, as deviations from the values at the centres, `m x r`."""
        net, lead = self.known.net, self.rows.shape[:2]
        total = self.rows.new_zeros(lead)
        coefficients = {self.i: self.rows}
        while True:
            k = max(coefficients)
            flat, node = coefficients.pop(k), net.nodes[k]
            if k == 0:
                return total - self.inputs.support(flat)
            if k in self.known.planes:
                constant, parts = self._past(k, flat)
                total = total + constant
            else:
                a = flat.reshape(-1, *node.shape)
                parts = list(
                    zip(node.inputs, map_of(node).adjoint(node.op, a, [net.nodes[j].shape for j in node.inputs]))
                )
            for j, below in parts:
                below = below.reshape(*lead, -1)
                coefficients[j] = coefficients[j] + below if j in coefficients else below

    def _past(self, k: int, flat: Tensor) -> tuple[Tensor, list[tuple[int, Tensor]]]:
        """Constants, and rows over the inputs of node k, which is not affine."""
        node, planes = self.known.net.nodes[k], self.known.planes[k]
        positive, negative = flat.clamp_min(0), flat.clamp_max(0)
        lower, upper = self._of(planes.lower), self._of(planes.upper)
        if type(node.op) is ops.ReLU:
            return self._past_relu(k, positive, negative, lower, upper)
        parts = []
        for term in planes.terms:
            j = node.inputs[term.input]
            below = positive * self._of(term.lower_slope)[:, None] + negative * self._of(term.upper_slope)[:, None]
            if term.source is not None:
                at = term.source[self.part][:, None].expand(-1, flat.shape[1], -1)
                below = below.new_zeros(*flat.shape[:2], self.known.net.nodes[j].size).scatter_add(2, at, below)
            parts.append((j, below))
        return dot(positive, lower) + dot(negative, upper), parts

    def _past_relu(
        self, k: int, positive: Tensor, negative: Tensor, lower: Tensor, upper: Tensor
    ) -> tuple[Tensor, list[tuple[int, Tensor]]]:
        (j,), (term,) = self.known.net.nodes[k].inputs, self.known.planes[k].terms
        bent = (self._of(self.known.lower[j]) < 0) & (self._of(self.known.upper[j]) > 0)
        slope, above = self._of(term.lower_slope)[:, None], self._of(term.upper_slope)[:, None]
        z, at = self._of(self.known.values[j]), self._of(self.known.values[k])
        if self._costs is not None:  # the upper lines' constants are upper - above z + at, deviations set aside
            cost = negative * torch.where(bent, self._of(term.upper_slope) * z - at - upper, 0.0)[:, None]
            self._costs[k] = torch.nan_to_num(cost, 0.0, 0.0, 0.0)
        constant = positive.new_zeros(positive.shape[:2])
        if k in self.bits:
            # In a case the ReLU is a line: side (z + x), less what it gives at z.
            taken = self.bits[k] > 0
            side = ((self.bits[k] & self.case[..., None]) > 0).to(positive.dtype)
            both = torch.where(taken, positive + negative, 0.0)
            constant = dot(both * side, z) - dot(both, at)
            positive, negative = (torch.where(taken, 0.0, t) for t in (positive, negative))
        constant = constant + dot(negative, upper)
        if k in self.slopes:
            slope = torch.where(bent[:, None], self.slopes[k], slope)
            # Through the origin: slope (z + x) is slope x and, with what the ReLU gives at z, the rest.
            constant = constant + dot(positive * slope, torch.where(bent, z, 0.0))
            constant = constant + dot(positive, torch.where(bent, -at, lower))
        else:
            constant = constant + dot(positive, lower)
        below = positive * slope + negative * above
        if k in self.bits:
            below = below + both * side
        if self._met is not None:
            self._met[k] = below if below.requires_grad else below.requires_grad_()
        return constant, [(j, below)]
