"""The strict check: float64 bounds that count their own rounding. See docs/soundness.md.

The scheme: a row of coefficients `A` over some node is carried back to the input. Coefficients, once computed,
are taken as exact numbers; the difference between the step that was computed and the true one is bounded, multiplied
by the largest magnitude the node below can have, and added to the row's `error`. What comes out is
`value - error`, below the row on the whole region, in real arithmetic, for the network as stored.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from elbowroom.claim.stated import Stated
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.cuts import Cuts
from elbowroom.proof.kernel.relaxed import RELAXED, Planes
from elbowroom.proof.kernel.rounding import ETA, SAFE, U, down, gamma, up
from elbowroom.proof.kernel.rows import AFFINE, offset, size_of_offset
from elbowroom.proof.kernel.slopes import OwnSlopes, improved
from elbowroom.proof.kernel.support import dot, hull, least, least_past, sole_reader
from elbowroom.proof.kernel.total import Total

# Errors a deployed network adds of its own: (node number, sizes of the inputs, size of the output) -> `b x *shape`.
Noise = Callable[[int, list[Tensor], Tensor], Tensor]
_WIDE = 1 << 13  # features, from where on rows over them are not written out
_ROWS = {"cpu": 1 << 18, "cuda": 1 << 26}  # numbers in flight per chunk of rows: on a CPU, what the cache holds
_FEWEST, _LONG = 16, 1 << 22  # rows at a time, if these are no more numbers
_GRAPH = {"cpu": 1, "cuda": 16}  # parts of a chunk of rows, where autograd keeps all that is computed


class StrictBounds:
    """Proved intervals of every node over regions as stated, and planes of every operation that is not affine.

    `lower[i]`, `upper[i]`: `b x *shape`. `noise`: errors the network as executed adds of its own, infinite where it may
    overflow; `overflowed`, `b`: inputs where it may, of which nothing is proved from there on. `hidden`: linear bounds
    for the hidden layers, too, where the intervals are not enough. `cuts`: of each region only the part where these
    splits hold counts; `empty`, `b`: where they contradict the intervals, so that no part is left. `sharpened`: how
    often slopes of ReLUs' lower lines are improved for each row of the hidden layers; `cases`: how many ReLUs are then
    taken by cases for each of them.
    """

    def __init__(
        self, net: Network, region: Stated, parallel: bool, noise: Noise | None = None, hidden: bool = True,
        cuts: Cuts | None = None, sharpened: int = 0, cases: int = 0,
    ) -> None:  # fmt: skip
        gamma(max(node.size for node in net.nodes))  # sums of error terms over a node must not be too long, either
        self.net, self.region, self.parallel, self.noise = net, region, parallel, noise
        self.cuts, self.sharpened, self.cases = cuts, sharpened, cases
        low, high = hull(region)
        shape = (len(low), *net.input_shape)
        self.lower, self.upper = [low.reshape(shape)], [high.reshape(shape)]
        self.overflowed = torch.zeros(len(low), dtype=torch.bool, device=low.device)
        self.empty = torch.zeros_like(self.overflowed)
        if noise is not None:
            self._watch(noise(0, [], self.size(0)))
        self._clamp(0)
        self.planes: dict[int, Planes] = {}
        self._weights: dict[int, Tensor] = {}  # per node: what |A| costs in error, per unit
        self._offsets: dict[int, tuple[Tensor, Tensor] | None] = {}
        self._added: dict[int, Tensor] = {}
        # The range of an activation over the best bounds of its input is not improved on by its own lines.
        targets = {i for i in net.preactivations if hidden and not isinstance(net.nodes[i].op, ops.Activation)}
        read_by_others = {j for node in net.nodes for j in node.inputs if type(node.op) is not ops.ReLU}
        self._only_relus = targets - read_by_others  # where an entry is not positive, that is all they ask for
        # Nodes whose entries move freely of each other, as a box's do, and nodes whose interval is their very range.
        apart = region.is_box and region.categories is None  # the entries of a code do not
        self._free, self._exact = [apart], [apart]
        self._entry = sole_reader(net, noise is None) if apart and low.shape[1] >= _WIDE else 0
        for i in range(1, len(net.nodes)):
            self._visit(i, i in targets)

    def size(self, i: int) -> Tensor:
        """The largest magnitude of node i, `b x *shape`."""
        return torch.maximum(self.lower[i].abs(), self.upper[i].abs())

    def _watch(self, added: Tensor) -> None:
        """Remembers where infinity or NaN may be executed: behind a clip or a sigmoid it may be any number again."""
        self.overflowed = self.overflowed | ~torch.isfinite(added).flatten(1).all(1)

    # --- one node after the other

    def _visit(self, i: int, target: bool) -> None:
        node = self.net.nodes[i]
        lows, highs = [self.lower[j] for j in node.inputs], [self.upper[j] for j in node.inputs]
        relaxed = RELAXED.get(type(node.op))
        if relaxed is None:
            low, high = self._affine(i, lows, highs)
        else:
            self._relax(i)
            low, high = relaxed.interval(node.op, node.shape, lows, highs)
        if self.noise is not None:
            added = self.noise(i, [self.size(j) for j in node.inputs], torch.maximum(low.abs(), high.abs()))
            self._watch(added)
            low, high = down(low - added), up(high + added)
        else:
            added = torch.zeros_like(low)
        self._prepare(i, added)
        self._added[i] = added
        self._note_range(i)
        if target and not self._exact[i]:
            wanted = self._undecided(i, low, high)
            below, above = self._linear(i, wanted.flatten(1))
            low, high = torch.maximum(low, below), torch.minimum(high, above)
        # A node whose bounds are not numbers, or cross (which real values cannot do), proves nothing.
        broken = ~(low <= high) | self.overflowed.reshape(-1, *[1] * len(node.shape))
        self.lower.append(torch.where(broken, -torch.inf, low))
        self.upper.append(torch.where(broken, torch.inf, high))
        self._clamp(i)

    def _relax(self, i: int) -> None:
        """Lines of node i, on the intervals of its inputs."""
        node = self.net.nodes[i]
        lows, highs = [self.lower[j] for j in node.inputs], [self.upper[j] for j in node.inputs]
        planes = RELAXED[type(node.op)].planes(node.op, node.shape, lows, highs, self.parallel)
        self.planes[i] = planes if self.cuts is None else self.cuts.tilted(i, planes, lows[0], highs[0])

    def _clamp(self, i: int) -> None:
        """Cuts the intervals of node i."""
        if self.cuts is not None and i in self.cuts.splits:
            self.lower[i], self.upper[i], crossed = self.cuts.clamped(i, self.lower[i], self.upper[i])
            # The interval is proved and the value of a split is exact: where they contradict, nothing is left.
            self.empty = self.empty | crossed

    def part(self, of: Tensor, cuts: Cuts) -> StrictBounds:
        """These bounds on parts of the regions: part k, cut by `cuts`, lies in region `of[k]`.

        All intervals stay what they are on the whole region, but for those of split nodes; only lines on these, and
        what rounding costs there, are computed again.
        """
        alike = bool((of == of[0]).all())

        def taken(t: Tensor) -> Tensor:
            if len(t) > 1 and not alike:
                return t[of]
            return (t if len(t) == 1 else t[of[:1]]).expand(len(of), *t.shape[1:])

        part = copy.copy(self)
        part.region, part.cuts = self.region.take(of), cuts
        part.lower, part.upper = ([taken(t) for t in ends] for ends in (self.lower, self.upper))
        part.overflowed, part.empty = taken(self.overflowed), taken(self.empty)
        part._added = {i: taken(t) for i, t in self._added.items()}
        for i in cuts.splits:
            part._clamp(i)
        part.planes, part._weights = {}, {i: taken(t) for i, t in self._weights.items()}
        for i, planes in self.planes.items():
            if i in cuts.slopes or any(j in cuts.splits for j in self.net.nodes[i].inputs):
                part._relax(i)
                part._prepare(i, part._added[i])
            else:
                part.planes[i] = planes.map(taken)
        return part

    def _undecided(self, i: int, low: Tensor, high: Tensor) -> Tensor:
        """The entries of node i, given its interval, whose rows are worth carrying back, `b x *shape`."""
        if i not in self._only_relus:
            return torch.ones_like(low, dtype=torch.bool)
        # An image has many neurons that surely pass their input on; elsewhere a linear bound of those few still helps
        # the intervals of later layers.
        return ~(high <= 0) & ~((low >= 0) & (low.dim() > 2))

    def _note_range(self, i: int) -> None:
        """Whether rows can improve on the interval of node i. One affine operation on entries that move freely has the
        interval for its range; two in a row do not: x - x is not zero for intervals."""
        node, j = self.net.nodes[i], self.net.nodes[i].inputs[0]
        row = AFFINE.get(type(node.op))
        single = row is not None and len(node.inputs) == 1
        apart = single and row is not None and row.keeps_apart(node.op, node.shape, self._shapes(i))
        self._free.append(self._free[j] and apart)
        self._exact.append(single and (self._free[j] or (self._exact[j] and apart)))

    def _shapes(self, i: int) -> list[ops.Shape]:
        """Of the inputs of node i."""
        return [self.net.nodes[j].shape for j in self.net.nodes[i].inputs]

    def _affine(self, i: int, lows: list[Tensor], highs: list[Tensor]) -> tuple[Tensor, Tensor]:
        node = self.net.nodes[i]
        op, row = node.op, AFFINE[type(node.op)]
        count = row.terms(op, node.shape, self._shapes(i)).forward
        if count == 0:
            return op(*lows), op(*highs)
        middle = [l / 2 + u / 2 for l, u in zip(lows, highs)]
        radius = [up(torch.maximum(u - m, m - l)) for l, m, u in zip(lows, middle, highs)]
        center = op(*middle)
        rounding = gamma(count + 4)
        spread = row.sizes(op, *(r + rounding * m.abs() for r, m in zip(radius, middle)))
        spread = (spread + rounding * size_of_offset(op, center)) * (1 + 2 * rounding) + count * ETA
        # A partial sum that overflowed says nothing about the sum: the step down from infinity is a finite number.
        lost = ~(torch.isfinite(center) & torch.isfinite(spread))
        return (
            torch.where(lost, -torch.inf, down(center - spread)),
            torch.where(lost, torch.inf, up(center + spread)),
        )

    def _prepare(self, i: int, added: Tensor) -> None:
        """The error that carrying coefficients past node i costs, per unit of their size: `b x *shape`.

        Coefficients may be large where values are tiny, so the underflow of these bounds themselves is added, too.
        """
        node = self.net.nodes[i]
        op, shapes = node.op, self._shapes(i)
        sizes = [self.size(j) for j in node.inputs]
        weight = added
        if i in self.planes:
            planes = self.planes[i]
            for term in planes.terms:
                steepest = torch.maximum(term.lower.abs(), term.upper.abs())
                if (self.sharpened or self.cases) and type(op) is ops.ReLU:
                    steepest = steepest.clamp_min(1.0)  # whatever the slopes of single rows
                below = sizes[term.input].flatten(1)
                below = below if term.source is None else below.gather(1, term.source)
                carried = steepest * below.reshape(steepest.shape)
                weight = weight + gamma(RELAXED[type(op)].roundings(op)) * carried
            weight = weight + gamma(2 * node.size + 2) * torch.maximum(planes.lower.abs(), planes.upper.abs())
        else:
            row = AFFINE[type(op)]
            count = row.terms(op, node.shape, shapes).back
            if count:
                weight = weight + gamma(count + 2) * (row.sizes(op, *sizes) * SAFE)
            found = offset(op, node.shape, shapes, sizes[0])
            self._offsets[i] = found
            if found is not None:
                value, doubt = found
                weight = weight + gamma(node.size + 2) * value.abs() + doubt
        self._weights[i] = weight * SAFE + 4 * ETA

    # --- rows

    def _linear(self, i: int, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of node i by carrying the rows of the identity, and of its negative, back to the input.

        `wanted`: `b x size`, of which entries; infinite elsewhere. Inputs that want about as many go together; what
        those that want fewer get of others is let go, so that no bound depends on what is computed beside it.
        """
        node, batch = self.net.nodes[i], len(self.lower[0])
        below, above = self.lower[0].new_full((2, batch, node.size), -torch.inf)
        widest = max(n.size for n in self.net.nodes[self._entry if self._entry < i else 0 : i + 1])
        step = max(1, min(_FEWEST, _LONG // (2 * widest)), _ROWS.get(below.device.type, _ROWS["cpu"]) // (2 * widest))
        counts, order = wanted.sum(1).sort(descending=True, stable=True)
        listed, first = counts.tolist(), 0
        while first < batch and listed[first]:
            chosen = order[first : first + max(1, step // listed[first])]
            wanted_first = wanted[chosen].to(torch.uint8).sort(dim=1, descending=True, stable=True).indices
            for index in wanted_first[:, : listed[first]].split(step, 1):
                own = wanted[chosen].gather(1, index)
                found = torch.where(own.repeat(1, 2), self._unit_rows_below(i, index, chosen), -torch.inf)
                below[chosen[:, None], index], above[chosen[:, None], index] = found.chunk(2, dim=1)
                if (self.sharpened or self.cases) and not self._entry:
                    self._improve(i, index, own, chosen, (below, above), step)
            first += len(chosen)
        return below.reshape(-1, *node.shape), -above.reshape(-1, *node.shape)

    def _improve(self, i: int, index: Tensor, open_: Tensor, chosen: Tensor, ends: Sequence[Tensor], step: int) -> None:
        """Raises `ends`, below `open_` entries `index`, `b x r`, of node i and their negatives; `step` rows at once."""
        if i in self._only_relus:  # of an entry that is surely on one side of zero, nothing more is asked
            open_ = open_ & (ends[0][chosen[:, None], index] < 0) & (ends[1][chosen[:, None], index] < 0)
        index, open_ = index[:, open_.any(0)], open_[:, open_.any(0)]
        most = max(1, step // _GRAPH.get(index.device.type, _GRAPH["cpu"]) // len(chosen))
        for some, wanted in zip(index.split(most, 1), open_.split(most, 1)) if index.shape[1] else ():
            own = OwnSlopes(self.net, (self.lower, self.upper), chosen)
            found = improved(own, partial(self._unit_rows_below, i, some, chosen, own), self.sharpened, self.cases)
            for end, new in zip(ends, torch.where(wanted.repeat(1, 2), found, -torch.inf).chunk(2, dim=1)):
                end[chosen[:, None], some] = torch.maximum(end[chosen[:, None], some], new)

    def _unit_rows_below(self, i: int, index: Tensor, chosen: Tensor, own: OwnSlopes | None = None) -> Tensor:
        """Numbers below the entries `index`, `b x r`, of node i, then below their negatives: `b x 2 r`."""
        node = self.net.nodes[i]
        if type(node.op) is ops.Linear and len(node.shape) == 1:
            # One step down is free: the rows of W are exact.
            rows = node.op.weight[index].to(self.lower[0].dtype)
            bias = rows.new_zeros(index.shape) if node.op.bias is None else node.op.bias[index]
            value = torch.cat([bias, -bias], 1)
            error = self._added[i][chosen[:, None], index].repeat(1, 2)
            below = node.inputs[0]
        else:
            rows = self.lower[0].new_zeros(*index.shape, node.size).scatter_(2, index[..., None], 1.0)
            value = error = rows.new_zeros(len(index), 2 * index.shape[1])
            below = i
        return self.rows_below(below, torch.cat([rows, -rows], 1), chosen, value, error, own=own)

    def rows_below(
        self,
        i: int,
        rows: Tensor,
        chosen: Tensor | slice,
        value: Tensor | None = None,
        error: Tensor | None = None,
        intervals: bool = False,
        others: Mapping[int, Tensor] | None = None,
        own: OwnSlopes | None = None,
    ) -> Tensor:
        """Numbers below `value + rows @ z_i` on the whole region, `b x r`; minus infinity where arithmetic failed.

        `rows`: `b x r x size`, exact; `chosen`: which inputs of the batch; `value`, `error`: `b x r`, to start with.
        `intervals`: stop at the first activations and use their intervals instead of their lines. `others`: rows over
        other nodes, up to i, that are added to these. `own`: slopes of ReLUs' lower lines for each row.
        """
        net = self.net
        lead = rows.shape[:2]
        coefficients = {i: rows.reshape(*lead, *net.nodes[i].shape)}
        value = rows.new_zeros(lead) if value is None else value
        error = rows.new_zeros(lead) if error is None else error
        total = Total(value, error)

        def give(j: int, part: Tensor) -> None:
            """Coefficients arriving at node j add up; the sum is rounded."""
            part = part.reshape(*lead, *net.nodes[j].shape)
            if j in coefficients:
                part = coefficients[j] + part
                total.doubt(2 * U * dot(part.detach().abs().flatten(2), self.size(j)[chosen].flatten(1)) + ETA)
            coefficients[j] = part

        for j, other in (others or {}).items():
            give(j, other)
        while coefficients:
            k = max(coefficients)
            a = coefficients.pop(k)
            flat = a.flatten(2)
            node = net.nodes[k]
            if k == 0:
                value, doubt = least(self.region.take(chosen), flat)
                total.add(value)
                total.doubt(doubt)
                continue
            if intervals and k in self.planes:
                low, high = self.lower[k][chosen].flatten(1), self.upper[k][chosen].flatten(1)
                total.add(dot(flat.clamp_min(0), low) + dot(flat.clamp_max(0), high))
                largest = torch.maximum(low.abs(), high.abs())
                total.doubt(gamma(2 * node.size + 2) * dot(flat.abs(), largest) + 4 * node.size * ETA)
                continue
            weight = self._weights[k].expand(len(self.lower[0]), *node.shape)[chosen].flatten(1)
            total.doubt(dot(flat.detach().abs(), weight) + 4 * node.size * ETA)
            if k in self.planes:
                for j, below in self._past(k, flat, chosen, total, own):
                    give(j, below)
                continue
            found = self._offsets[k]
            if found is not None:
                total.add(dot(flat, found[0].expand(1, *node.shape).flatten(1)))
            row, shapes = AFFINE[type(node.op)], self._shapes(k)
            count = row.terms(node.op, node.shape, shapes).back
            if k == self._entry and not coefficients:
                total.doubt(count * ETA * (self.size(0)[chosen].flatten(1).sum(1, keepdim=True) + 1))
                value, doubt = least_past(self.region.take(chosen), flat, node.op.tensors()["weight"])
                total.add(value)
                total.doubt(doubt)
                continue
            for j, part in zip(node.inputs, row.back(node.op, a.flatten(0, 1), shapes)):
                total.doubt(count * ETA * (self.size(j)[chosen].flatten(1).sum(1, keepdim=True) + 1))
                give(j, part)
        if own is not None:
            own.value = total.value
        return total.below()

    def _past(
        self, k: int, flat: Tensor, chosen: Tensor | slice, total: Total, own: OwnSlopes | None
    ) -> Iterator[tuple[int, Tensor]]:
        """Rows over node k, which is not affine, as rows over its inputs; constants are added to the total."""
        node, planes = self.net.nodes[k], self.planes[k]
        own = own if type(node.op) is ops.ReLU else None
        positive, negative = flat.clamp_min(0), flat.clamp_max(0)
        low, high = (t[chosen].flatten(1) for t in (planes.lower, planes.upper))
        counted, low = (flat, low) if own is None else own.constants(k, flat, low)
        total.add(dot(counted.clamp_min(0), low) + dot(counted.clamp_max(0), high))
        roundings = RELAXED[type(node.op)].roundings(node.op)
        for term in planes.terms:
            j = node.inputs[term.input]
            k_l, k_u = (t[chosen].flatten(1)[:, None] for t in (term.lower, term.upper))
            if own is not None:
                k_l, k_u = own.in_case(k, own.slope(k, k_l), k_u)
            below = positive * k_l + negative * k_u
            if own is not None:
                own.meet(k, flat, below, high)
            total.doubt(roundings * ETA * (self.size(j)[chosen].flatten(1).sum(1, keepdim=True) + 1))
            if term.source is not None:
                at = term.source[chosen][:, None].expand(-1, flat.shape[1], -1)
                below = below.new_zeros(*flat.shape[:2], self.net.nodes[j].size).scatter_add_(2, at, below)
            yield j, below

    def margins(self, rows: Tensor, offset: Tensor, logits: bool = False) -> Tensor:
        """Numbers below `rows @ z + offset` on the whole region, `b x t`; `rows`: `b x t x k`, `offset`: `b x t`."""
        last = len(self.net.nodes) - 1
        chosen = torch.arange(len(self.lower[0]), device=rows.device)
        rows, offset = rows.expand(len(chosen), -1, -1), offset.expand(len(chosen), -1)
        found = self.rows_below(last, rows, chosen, offset)
        found = torch.maximum(found, self.rows_below(last, rows, chosen, offset, intervals=True))
        if logits:
            below, above = self._linear(last, torch.ones_like(self.lower[-1], dtype=torch.bool))
            below, above = torch.maximum(below, self.lower[-1]), torch.minimum(above, self.upper[-1])
            value = dot(rows.clamp_min(0), below) + dot(rows.clamp_max(0), above)
            size = dot(rows.abs(), torch.maximum(below.abs(), above.abs()))
            count = 2 * rows.shape[-1] + 4
            value = down(value + offset - (gamma(count) * (size + offset.abs()) * SAFE + count * ETA))
            found = torch.maximum(found, torch.where(torch.isfinite(value), value, -torch.inf))
        return torch.where(self.overflowed[:, None], -torch.inf, found)
