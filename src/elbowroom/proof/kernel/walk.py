"""The strict check: float64 bounds that count their own rounding. See docs/soundness.md.

The scheme: a row of coefficients `A` over some node is carried back to the input. Coefficients, once computed,
are taken as exact numbers; the difference between the step that was computed and the true one is bounded, multiplied
by the largest magnitude the node below can have, and added to the row's `error`. What comes out is
`value - error`, below the row on the whole region, in real arithmetic, for the network as stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel import affine
from elbowroom.proof.kernel.activations import Lines, interval, lines
from elbowroom.proof.kernel.rounding import ETA, SAFE, U, down, gamma, up

# Errors a deployed network adds of its own: (node number, sizes of the inputs, size of the output) -> `b x *shape`.
Noise = Callable[[int, list[Tensor], Tensor], Tensor]
_ROWS = 1 << 22  # numbers in flight per chunk of rows


@dataclass(frozen=True, eq=False)
class Area:
    """The region as the certificate states it, in float64, taken as exact numbers; all `b x n`.

    A box: `lower`, `upper`. Otherwise `center + basis (radius * v)`, `||v||_p <= 1`.
    """

    lower: Tensor | None = None
    upper: Tensor | None = None
    center: Tensor | None = None
    radius: Tensor | None = None
    p: float = math.inf
    basis: Tensor | None = None

    def take(self, index: Tensor) -> Area:
        def of(t: Tensor | None) -> Tensor | None:
            return None if t is None else t[index]

        return Area(of(self.lower), of(self.upper), of(self.center), of(self.radius), self.p, self.basis)

    @property
    def is_box(self) -> bool:
        return self.lower is not None and self.upper is not None

    def sensible(self) -> Tensor:
        """Which inputs' regions are what they say, `b`: corners in order, radii that are not negative, no NaN."""
        if self.lower is not None and self.upper is not None:
            return (self.lower <= self.upper).all(1)
        assert self.center is not None and self.radius is not None
        return (torch.isfinite(self.center) & (self.radius >= 0)).all(1)

    def hull(self) -> tuple[Tensor, Tensor]:
        """A box around the region."""
        if self.lower is not None and self.upper is not None:
            return self.lower, self.upper
        assert self.center is not None and self.radius is not None
        reach = self.radius
        if self.basis is not None:
            size = self.basis.abs()[None]
            if self.p == math.inf:
                reach = (size * reach[:, None]).sum(-1)
            elif self.p == 2:
                reach = (size * reach[:, None]).square().sum(-1).sqrt()
            elif self.p == 1:
                reach = (size * reach[:, None]).amax(-1)
            else:
                raise InputError(f"the strict check knows the norms 1, 2 and infinity, not {self.p}")
            reach = reach * SAFE + 1e-150  # squares of numbers under 1e-160 may have vanished
        return down(self.center - reach), up(self.center + reach)

    def least(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """The least value of `a . x` over the region and a bound on the error; `a`: `b x r x n`."""
        n = a.shape[-1]
        if self.lower is not None and self.upper is not None:
            value = _dot(a.clamp_min(0), self.lower) + _dot(a.clamp_max(0), self.upper)
            size = torch.maximum(self.lower.abs(), self.upper.abs())
            return value, gamma(n + 2) * _dot(a.abs(), size) + 2 * n * ETA
        assert self.center is not None and self.radius is not None
        middle = _dot(a, self.center)
        error = gamma(n + 2) * _dot(a.abs(), self.center.abs()) + n * ETA
        reach = self.radius[:, None]
        doubt = torch.zeros_like(a)
        if self.basis is not None:
            # a Q is rounded; each coordinate of v is at most 1 in size, whatever the norm.
            doubt = gamma(n + 1) * (a.abs() @ self.basis.abs()) + (n + 2) * ETA
            a = a @ self.basis
        error = error + (doubt * reach).sum(-1) * SAFE + 2 * n * ETA
        scaled = a.abs() * reach
        if self.p == math.inf:
            spread = scaled.sum(-1)
        elif self.p == 2:
            # Scaled by the largest entry, so that squares neither overflow nor all vanish.
            top = scaled.amax(-1, keepdim=True).clamp_min(torch.finfo(a.dtype).tiny)
            spread = (scaled / top).square().sum(-1).sqrt() * top.squeeze(-1)
        elif self.p == 1:
            spread = scaled.amax(-1)
        else:
            raise InputError(f"the strict check knows the norms 1, 2 and infinity, not {self.p}")
        spread = spread * (1 + 2 * gamma(n + 8)) + n * ETA
        value = middle - spread
        return value, error + 2 * U * (middle.abs() + spread)


# Affine operations that give each entry of one input by itself, once at most where sizes do not grow.
_EACH = (ops.Scale, ops.Divide, ops.Shift, ops.BatchNorm, ops.Reshape, ops.Transpose, ops.Slice)


def _dot(a: Tensor, v: Tensor) -> Tensor:
    """`b x r x n` by `b x n` (or `1 x n`)."""
    return torch.bmm(a, v.expand(a.shape[0], -1)[:, :, None]).squeeze(-1)


class StrictBounds:
    """Proved intervals of every node over an area, and lines of every activation.

    `lower[i]`, `upper[i]`: `b x *shape`. `noise`: errors the network as executed adds of its own, infinite where it may
    overflow; `overflowed`, `b`: inputs where it may, of which nothing is proved from there on. `hidden`: linear bounds
    for the hidden layers, too, where the intervals do not suffice.
    """

    def __init__(
        self, net: Network, area: Area, parallel: bool, noise: Noise | None = None, hidden: bool = True
    ) -> None:
        gamma(max(node.size for node in net.nodes))  # sums of error terms over a node must not be too long, either
        self.net, self.area, self.parallel, self.noise = net, area, parallel, noise
        low, high = area.hull()
        shape = (len(low), *net.input_shape)
        self.lower, self.upper = [low.reshape(shape)], [high.reshape(shape)]
        self.overflowed = torch.zeros(len(low), dtype=torch.bool, device=low.device)
        if noise is not None:
            self._watch(noise(0, [], self.size(0)))
        self.lines: dict[int, Lines] = {}
        self.source: dict[int, Tensor] = {}
        self._weights: dict[int, Tensor] = {}  # per node: what |A| costs in error, per unit
        self._offsets: dict[int, tuple[Tensor, Tensor] | None] = {}
        self._added: dict[int, Tensor] = {}
        # The range of an activation over the best bounds of its input is not improved on by its own lines.
        targets = {i for i in net.preactivations if hidden and not isinstance(net.nodes[i].op, ops.Activation)}
        read_by_others = {j for node in net.nodes for j in node.inputs if not isinstance(node.op, ops.ReLU)}
        self._only_relus = targets - read_by_others  # where an entry is not positive, that is all they ask for
        # Nodes whose entries move freely of each other, as a box's do, and nodes whose interval is their very range.
        self._free, self._exact = [area.is_box], [area.is_box]
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
        if isinstance(node.op, ops.Affine):
            low, high = self._affine(i, lows, highs)
        elif isinstance(node.op, ops.MaxPool):
            low, high = self._pool(i, lows[0], highs[0])
        else:
            assert isinstance(node.op, ops.Activation)
            self.lines[i] = lines(node.op, lows[0], highs[0], self.parallel)
            low, high = interval(node.op, lows[0], highs[0])
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
            wanted = ~(high <= 0) if i in self._only_relus else torch.ones_like(low, dtype=torch.bool)
            below, above = self._linear(i, wanted.flatten(1))
            low, high = torch.maximum(low, below), torch.minimum(high, above)
        # A node whose bounds are not numbers, or cross (which real values cannot do), proves nothing.
        broken = ~(low <= high) | self.overflowed.reshape(-1, *[1] * len(node.shape))
        self.lower.append(torch.where(broken, -torch.inf, low))
        self.upper.append(torch.where(broken, torch.inf, high))

    def _note_range(self, i: int) -> None:
        """Whether rows can improve on the interval of node i. One affine operation on entries that move freely has the
        interval for its range; two in a row do not: x - x is not zero for intervals."""
        node, j = self.net.nodes[i], self.net.nodes[i].inputs[0]
        each = isinstance(node.op, _EACH) and node.size <= self.net.nodes[j].size  # more: some are repeated
        single = isinstance(node.op, ops.Affine) and len(node.inputs) == 1
        padded = isinstance(node.op, ops.Pad)
        self._free.append(self._free[j] and (each or padded))
        self._exact.append(single and (self._free[j] or (self._exact[j] and (each or padded))))

    def _affine(self, i: int, lows: list[Tensor], highs: list[Tensor]) -> tuple[Tensor, Tensor]:
        node = self.net.nodes[i]
        op = node.op
        assert isinstance(op, ops.Affine)
        shapes = [self.net.nodes[j].shape for j in node.inputs]
        count = affine.terms(node, shapes).forward
        if count == 0:
            return op(*lows), op(*highs)
        middle = [l / 2 + u / 2 for l, u in zip(lows, highs)]
        radius = [up(torch.maximum(u - m, m - l)) for l, m, u in zip(lows, middle, highs)]
        center = op(*middle)
        rounding = gamma(count + 4)
        spread = op.absolute().linear(*(r + rounding * m.abs() for r, m in zip(radius, middle)))
        spread = (spread + rounding * affine.size_of_offset(node, center)) * (1 + 2 * rounding) + count * ETA
        # A partial sum that overflowed says nothing about the sum: the step down from infinity is a finite number.
        lost = ~(torch.isfinite(center) & torch.isfinite(spread))
        return (
            torch.where(lost, -torch.inf, down(center - spread)),
            torch.where(lost, torch.inf, up(center + spread)),
        )

    def _pool(self, i: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        node = self.net.nodes[i]
        op = node.op
        assert isinstance(op, ops.MaxPool)
        windows = op.windows(self.net.nodes[node.inputs[0]].shape).to(low.device)
        if bool((windows < 0).all(1).any()):
            raise UnsupportedError(f"{node.name}: a window of this MaxPool lies in the padding alone")
        b, c = low.shape[:2]
        spatial = low[0, 0].numel()
        views = [torch.cat([t.flatten(2), t.new_full((b, c, 1), -torch.inf)], -1)[:, :, windows] for t in (low, high)]
        # Padding is never chosen, not even where nothing is known of the real entries.
        j = views[0].clamp_min(torch.finfo(low.dtype).min).where(windows >= 0, -torch.inf).argmax(-1, keepdim=True)
        l_j, u_j = (v.gather(-1, j).squeeze(-1) for v in views)
        others = views[1].scatter(-1, j, -torch.inf).amax(-1)
        # max <= max(x_j, v) with v the others' largest; a line over [l_j, u_j], valid if it is above both ends.
        v = torch.maximum(others, l_j)
        top = torch.maximum(u_j, v)
        slope = torch.where(v > l_j, (top - v) / torch.where(u_j > l_j, u_j - l_j, 1.0), 1.0)
        slope = torch.ones_like(slope) if self.parallel else torch.nan_to_num(slope).clamp(0, 1)
        ends = [(v, l_j), (top, u_j)]
        high_m = torch.stack([up(y - slope * x + 4 * U * (y.abs() + (slope * x).abs()) + ETA) for y, x in ends]).amax(0)
        high_m = torch.where((v <= l_j) & (slope == 1), 0.0, high_m)  # then the maximum is x_j itself
        shape = (b, *node.shape)
        zero = torch.zeros_like(slope)
        self.lines[i] = Lines(*(t.reshape(shape) for t in (torch.ones_like(slope), zero, slope, high_m)))
        flat = windows[None, None].expand(b, c, -1, -1).gather(-1, j).squeeze(-1)
        self.source[i] = (flat + spatial * torch.arange(c, device=low.device)[None, :, None]).reshape(b, -1)
        return views[0].amax(-1).reshape(shape), views[1].amax(-1).reshape(shape)

    def _prepare(self, i: int, added: Tensor) -> None:
        """The error that carrying coefficients past node i costs, per unit of their size: `b x *shape`.

        Coefficients may be large where values are tiny, so the underflow of these bounds themselves is added, too.
        """
        node = self.net.nodes[i]
        shapes = [self.net.nodes[j].shape for j in node.inputs]
        sizes = [self.size(j) for j in node.inputs]
        if i in self.lines:
            line = self.lines[i]
            steepest = torch.maximum(line.k_l.abs(), line.k_u.abs())
            offset = torch.maximum(line.m_l.abs(), line.m_u.abs())
            below = sizes[0].flatten(1).gather(1, self.source[i]) if i in self.source else sizes[0].flatten(1)
            carried = gamma(_roundings(node.op)) * (steepest * below.reshape(steepest.shape))
            weight = carried + gamma(2 * node.size + 2) * offset + added
        else:
            assert isinstance(node.op, ops.Affine)
            count = affine.terms(node, shapes).adjoint
            weight = added
            if count:
                weight = weight + gamma(count + 2) * (node.op.absolute().linear(*sizes) * SAFE)
            found = affine.offset(node, shapes, sizes[0])
            self._offsets[i] = found
            if found is not None:
                value, doubt = found
                weight = weight + gamma(node.size + 2) * value.abs() + doubt
        self._weights[i] = weight * SAFE + 4 * ETA

    # --- rows

    def _linear(self, i: int, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of node i by carrying the rows of the identity, and of its negative, back to the input.

        `wanted`: `b x size`, of which entries; infinite elsewhere (nearly: inputs are taken in groups).
        """
        node, batch = self.net.nodes[i], len(self.lower[0])
        below, above = self.lower[0].new_full((2, batch, node.size), -torch.inf)
        widest = max(n.size for n in self.net.nodes[: i + 1])
        step = max(1, _ROWS // (2 * widest))
        per = max(1, step // node.size)
        for b in range(0, batch, per):
            chosen = torch.arange(b, min(b + per, batch), device=below.device)
            for index in wanted[chosen].any(0).nonzero().squeeze(1).split(step):
                found = self._unit_rows_below(i, index, chosen)
                below[chosen[:, None], index], above[chosen[:, None], index] = found.chunk(2, dim=1)
        return below.reshape(-1, *node.shape), -above.reshape(-1, *node.shape)

    def _unit_rows_below(self, i: int, index: Tensor, chosen: Tensor) -> Tensor:
        """Numbers below the entries `index` (`r`) of node i, then below their negatives: `b x 2 r`."""
        node, count = self.net.nodes[i], len(index)
        if isinstance(node.op, ops.Linear) and len(node.shape) == 1:
            # One step down is free: the rows of W are exact.
            rows = node.op.weight[index]
            bias = rows.new_zeros(count) if node.op.bias is None else node.op.bias[index]
            value = torch.cat([bias, -bias]).expand(len(chosen), -1)
            error = self._added[i][chosen[:, None], index].repeat(1, 2)
            below = node.inputs[0]
        else:
            rows = torch.zeros(count, node.size, dtype=torch.float64, device=chosen.device)
            rows[torch.arange(count), index] = 1.0
            value = error = rows.new_zeros(len(chosen), 2 * count)
            below = i
        return self.rows_below(below, torch.cat([rows, -rows]).expand(len(chosen), -1, -1), chosen, value, error)

    def rows_below(
        self,
        i: int,
        rows: Tensor,
        chosen: Tensor,
        value: Tensor | None = None,
        error: Tensor | None = None,
        intervals: bool = False,
    ) -> Tensor:
        """Numbers below `value + rows @ z_i` on the whole area, `b x r`; minus infinity where arithmetic failed.

        `rows`: `b x r x size`, exact; `chosen`: which inputs of the batch; `value`, `error`: `b x r`, to start with.
        `intervals`: stop at the first activations and use their intervals instead of their lines.
        """
        net = self.net
        lead = rows.shape[:2]
        coefficients = {i: rows.reshape(*lead, *net.nodes[i].shape)}
        value = rows.new_zeros(lead) if value is None else value
        error = rows.new_zeros(lead) if error is None else error
        total = _Total(value, error)

        def give(j: int, part: Tensor) -> None:
            """Coefficients arriving at node j add up; the sum is rounded."""
            part = part.reshape(*lead, *net.nodes[j].shape)
            if j in coefficients:
                part = coefficients[j] + part
                total.doubt(2 * U * _dot(part.abs().flatten(2), self.size(j)[chosen].flatten(1)) + ETA)
            coefficients[j] = part

        while coefficients:
            k = max(coefficients)
            a = coefficients.pop(k)
            flat = a.flatten(2)
            node = net.nodes[k]
            if k == 0:
                term, doubt = self.area.take(chosen).least(flat)
                total.add(term)
                total.doubt(doubt)
                continue
            if intervals and k in self.lines:
                low, high = self.lower[k][chosen].flatten(1), self.upper[k][chosen].flatten(1)
                total.add(_dot(flat.clamp_min(0), low) + _dot(flat.clamp_max(0), high))
                largest = torch.maximum(low.abs(), high.abs())
                total.doubt(gamma(2 * node.size + 2) * _dot(flat.abs(), largest) + 4 * node.size * ETA)
                continue
            weight = self._weights[k].expand(len(self.lower[0]), *node.shape)[chosen].flatten(1)
            total.doubt(_dot(flat.abs(), weight) + 4 * node.size * ETA)
            if k in self.lines:
                line = Lines(*(t[chosen].flatten(1) for t in self.lines[k]))
                positive, negative = flat.clamp_min(0), flat.clamp_max(0)
                total.add(_dot(positive, line.m_l) + _dot(negative, line.m_u))
                below = positive * line.k_l[:, None] + negative * line.k_u[:, None]
                j = node.inputs[0]
                total.doubt(_roundings(node.op) * ETA * (self.size(j)[chosen].flatten(1).sum(1, keepdim=True) + 1))
                if k in self.source:
                    at = self.source[k][chosen][:, None].expand(-1, lead[1], -1)
                    below = below.new_zeros(*lead, net.nodes[j].size).scatter_add_(2, at, below)
                give(j, below)
                continue
            assert isinstance(node.op, ops.Affine)
            found = self._offsets[k]
            if found is not None:
                total.add(_dot(flat, found[0].expand(1, *node.shape).flatten(1)))
            shapes = [net.nodes[j].shape for j in node.inputs]
            count = affine.terms(node, shapes).adjoint
            for j, part in zip(node.inputs, affine.adjoint(node, a.flatten(0, 1), shapes)):
                total.doubt(count * ETA * (self.size(j)[chosen].flatten(1).sum(1, keepdim=True) + 1))
                give(j, part)
        return total.below()

    def margins(self, rows: Tensor, offset: Tensor, logits: bool = False) -> Tensor:
        """Numbers below `rows @ z + offset` on the whole area, `b x t`; `rows`: `b x t x k`, `offset`: `b x t`."""
        last = len(self.net.nodes) - 1
        chosen = torch.arange(len(self.lower[0]), device=rows.device)
        rows, offset = rows.expand(len(chosen), -1, -1), offset.expand(len(chosen), -1)
        found = self.rows_below(last, rows, chosen, offset)
        found = torch.maximum(found, self.rows_below(last, rows, chosen, offset, intervals=True))
        if logits:
            below, above = self._linear(last, torch.ones_like(self.lower[-1], dtype=torch.bool))
            below, above = torch.maximum(below, self.lower[-1]), torch.minimum(above, self.upper[-1])
            value = _dot(rows.clamp_min(0), below) + _dot(rows.clamp_max(0), above)
            size = _dot(rows.abs(), torch.maximum(below.abs(), above.abs()))
            count = 2 * rows.shape[-1] + 4
            value = down(value + offset - (gamma(count) * (size + offset.abs()) * SAFE + count * ETA))
            found = torch.maximum(found, torch.where(torch.isfinite(value), value, -torch.inf))
        return torch.where(self.overflowed[:, None], -torch.inf, found)


def _roundings(op: ops.Operation) -> int:
    """How many roundings lie behind a coefficient carried past an activation, or past max-pooling.

    There it is a sum over the windows that chose the same entry: at most as many as the kernel has places.
    """
    return 2 + (math.prod(op.kernel) if isinstance(op, ops.MaxPool) else 0)


class _Total:
    """A running sum of computed terms, `b x r`, and a bound on how far it is from the true one."""

    def __init__(self, value: Tensor, error: Tensor) -> None:
        self.value, self.error = value, error

    def add(self, term: Tensor) -> None:
        self.value = self.value + term
        self.error = self.error + U * self.value.abs()

    def doubt(self, error: Tensor) -> None:
        self.error = self.error + error

    def below(self) -> Tensor:
        """A number below the true sum; minus infinity where something overflowed."""
        result = down(self.value - up(self.error * SAFE))
        return torch.where(torch.isfinite(self.value) & torch.isfinite(self.error), result, -torch.inf)
