"""One row per leaf, carried back to the input under the leaf's splits; and derivatives by slopes and multipliers.

As in `search.bounds.linear`, values are deviations from the network's own at the centre of the leaf's set of inputs.
What is new: intervals are clamped by the splits, a ReLU's lower line has a slope of the leaf's own, and where a row
passes a node that was split its coefficient there is lowered by `multiplier * sign`, its constant raised by
`multiplier * sign * value`: on the leaf, `sign * (z - value)` is not negative. The derivatives cost one more sweep: the
point of the set where the bound is attained, pushed forward along the chosen lines.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from elbowroom.network.graph import Network
from elbowroom.search.bounds.maps import MAPS, map_of
from elbowroom.search.bounds.planes import ratio
from elbowroom.search.bounds.relaxations import row_of
from elbowroom.search.branching.leaves import Leaves
from elbowroom.search.branching.roots import Neurons, Roots

_CROSSED = 1e-4  # of an interval's size: by more than this, bounds that cross say that a leaf is empty


class Rectified(NamedTuple):
    """A ReLU: where it is `bent` (and has a slope of its own), its slope elsewhere (0 or 1), the chord's slope and
    offset, all `l x *shape`."""

    bent: Tensor
    stable: Tensor
    chord: Tensor
    offset: Tensor


class Lines(NamedTuple):
    """Lower and upper slopes and offsets of a node, `l x *shape`; `source`: `l x size`, the entries read, or None."""

    slopes: tuple[Tensor, Tensor]
    ends: tuple[Tensor, Tensor]
    source: Tensor | None


class Splits(NamedTuple):
    """The splits of one node, all leaves together: leaf, place on its path, entry, sign, and how far the value where it
    is split lies above the node's at the centre."""

    leaf: Tensor
    depth: Tensor
    entry: Tensor
    sign: Tensor
    above: Tensor


class Sweep(NamedTuple):
    """What a row met on its way down. `coefficients`: over every node that is not affine, and over the input (flat);
    `lines`: those it took."""

    bound: Tensor
    coefficients: dict[int, Tensor]
    lines: dict[int, Lines]


class Carrier:
    """Leaves ready to be bounded. `empty`, `l`: leaves without any point, by their intervals alone."""

    def __init__(self, net: Network, neurons: Neurons, roots: Roots, leaves: Leaves, rows: Tensor, offset: Tensor):
        """`rows`: `l x k`, `offset`: `l`."""
        self.net, self.neurons, self.rows = net, neurons, rows
        root = leaves.root
        sets = roots.sets
        self.sets = sets.take(root)
        self.values = {j: t[root] for j, t in roots.values.items()}
        self.start = (rows * self.values[len(net.nodes) - 1]).sum(1) + offset
        self.empty = torch.zeros(len(leaves), dtype=torch.bool, device=rows.device)
        self.splits: dict[int, Splits] = {}
        self.lower, self.upper = {}, {}
        for j in net.preactivations:
            self.lower[j], self.upper[j] = self._clamped(j, roots.lower[j][root], roots.upper[j][root], leaves)
        self.lines: dict[int, Rectified | Lines] = {i: self._lines(i) for i in net.relaxed}

    def _clamped(self, j: int, low: Tensor, high: Tensor, leaves: Leaves) -> tuple[Tensor, Tensor]:
        """The interval of node j under the splits; notes these."""
        if j == 0 or not bool((leaves.node == j).any()):  # the input's splits made the sets of inputs
            return low, high
        leaf, depth = (leaves.node == j).nonzero(as_tuple=True)
        entry, sign = leaves.entry[leaf, depth], leaves.sign[leaf, depth].to(low.dtype)
        value = leaves.value[leaf, depth].to(low.dtype)
        self.splits[j] = Splits(leaf, depth, entry, sign, value - self.values[j].flatten(1)[leaf, entry])
        size = low[0].numel()
        at = leaf * size + entry
        up, down = sign > 0, sign < 0
        tight_low = low.flatten().scatter_reduce(0, at[up], value[up], "amax").reshape(low.shape)
        tight_high = high.flatten().scatter_reduce(0, at[down], value[down], "amin").reshape(low.shape)
        gap = tight_low - tight_high
        crossed = gap > 0
        beyond = gap > _CROSSED * (low.abs() + high.abs())
        self.empty |= beyond.flatten(1).any(1)
        return torch.where(crossed, low, tight_low), torch.where(crossed, high, tight_high)

    def _lines(self, i: int) -> Rectified | Lines:
        node = self.net.nodes[i]
        if i in self.neurons.first:
            l, u = self.lower[node.inputs[0]], self.upper[node.inputs[0]]
            bent = (l < 0) & (u > 0)
            stable = (l >= 0).to(l.dtype)
            chord = torch.where(bent, ratio(u, u - l, stable), stable)
            return Rectified(bent, stable, chord, torch.where(bent, -chord * l, 0.0))
        lowers, uppers, values = ([of[j] for j in node.inputs] for of in (self.lower, self.upper, self.values))
        planes = row_of(node).planes(node.op, lowers, uppers, values, False)
        (term,) = planes.terms
        return Lines((term.lower_slope, term.upper_slope), (planes.lower, planes.upper), term.source)

    def _taken(self, i: int, slope: Tensor) -> Lines:
        """The lines of node i, given the slopes of all ReLUs, `l x u`."""
        lines = self.lines[i]
        if isinstance(lines, Lines):
            return lines
        below = torch.where(lines.bent, self.neurons.of(self.net, i, slope), lines.stable)
        z, at = self.values[self.net.nodes[i].inputs[0]], self.values[i]
        return Lines((below, lines.chord), (below * z - at, lines.chord * z + lines.offset - at), None)

    # --- down

    def down(self, slope: Tensor, multiplier: Tensor) -> Sweep:
        """Bounds of the rows, `l`. Slopes: `l x u`, in [0, 1]; multipliers: `l x d`, not negative."""
        net, count = self.net, len(self.rows)
        total = self.start
        coefficients = {len(net.nodes) - 1: self.rows}
        met: dict[int, Tensor] = {}
        taken: dict[int, Lines] = {}
        while True:
            i = max(coefficients)
            a, node = coefficients.pop(i), net.nodes[i]
            splits = self.splits.get(i)
            if splits is not None:
                beta = multiplier[splits.leaf, splits.depth] * splits.sign
                a = a.flatten(1).index_put((splits.leaf, splits.entry), -beta, accumulate=True).reshape(a.shape)
                total = total.index_add(0, splits.leaf, beta * splits.above)
            if i == 0:
                met[0] = a.flatten(1)
                return Sweep(total - self.sets.support(met[0][:, None]).squeeze(1), met, taken)
            if i in self.lines:
                met[i] = a
                taken[i] = lines = self._taken(i, slope)
                positive = a.clamp_min(0)
                negative = a - positive
                ends = positive * lines.ends[0] + negative * lines.ends[1]
                total = total + ends.flatten(1).sum(1)
                below = positive * lines.slopes[0] + negative * lines.slopes[1]
                if lines.source is not None:
                    flat = below.new_zeros(count, net.nodes[node.inputs[0]].size)
                    below = flat.scatter_add(1, lines.source, below.flatten(1))
                parts: tuple[Tensor, ...] = (below,)
            else:
                parts = map_of(node).adjoint(node.op, a, [net.nodes[j].shape for j in node.inputs])
            for j, part in zip(node.inputs, parts):
                part = part.reshape(count, *net.nodes[j].shape)
                coefficients[j] = coefficients[j] + part if j in coefficients else part

    # --- up

    def up(self, sweep: Sweep) -> dict[int, Tensor]:
        """Every node's deviation, `l x *shape`, where the bound is attained, along the lines taken."""
        net = self.net
        attained, _ = self.sets.support_gradient(sweep.coefficients[0][:, None])
        g = {0: -attained.reshape(-1, *net.input_shape)}
        for i in range(1, len(net.nodes)):
            node = net.nodes[i]
            row = MAPS.get(type(node.op))
            if row is not None:
                g[i] = row.linear(node.op, *(g[j] for j in node.inputs))
                continue
            lines, below = sweep.lines[i], g[node.inputs[0]]
            if lines.source is not None:
                below = below.flatten(1).gather(1, lines.source)
            below = below.reshape(-1, *node.shape)
            above = sweep.coefficients[i] > 0
            slope, end = (torch.where(above, *pair) for pair in (lines.slopes, lines.ends))
            g[i] = below * slope + end
        return g

    def gradient(self, sweep: Sweep, reached: dict[int, Tensor], multiplier: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives of the bounds by slopes, `l x u`, and multipliers, `l x d`. `reached`: from `up`."""
        parts = []
        for i in self.neurons.first:
            lines, j = self.lines[i], self.net.nodes[i].inputs[0]
            assert isinstance(lines, Rectified)
            at = reached[j] + self.values[j]
            parts.append((sweep.coefficients[i].clamp_min(0) * at * lines.bent).flatten(1))
        by_slope = torch.cat(parts, 1) if parts else multiplier.new_zeros(len(multiplier), 0)
        by_multiplier = torch.zeros_like(multiplier)
        for i, splits in self.splits.items():
            at = reached[i].flatten(1)[splits.leaf, splits.entry]
            by_multiplier[splits.leaf, splits.depth] = splits.sign * (splits.above - at)
        return by_slope, by_multiplier

    def point(self, reached: dict[int, Tensor]) -> Tensor:
        """The inputs where the bounds are attained, `l x *input_shape`."""
        return self.sets.center + reached[0]
