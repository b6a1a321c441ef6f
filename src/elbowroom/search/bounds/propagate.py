"""Bounds of every layer, and of a specification's rows: intervals and linear bounds put together.

This is the paper's Algorithm 1 for general graphs (appendix D): at each layer that feeds an activation both bounds are
computed, the better end is kept, and the activation's lines follow from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.network.graph import Network
from elbowroom.search.bounds.interval import interval
from elbowroom.search.bounds.linear import lower_deviation
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.bounds.methods import Method, check_margin, method_named
from elbowroom.search.bounds.planes import Planes
from elbowroom.search.bounds.relaxations import TABLE, row_of
from elbowroom.search.bounds.sharpened import PLAIN, Known, Sharpening, sharpened
from elbowroom.search.bounds.sizes import Active, Sizes, numbers_of
from elbowroom.search.bounds.stable import Seen
from elbowroom.search.bounds.wide import is_wide
from elbowroom.search.memory import Budget, Pool
from elbowroom.search.regions.input_set import InputSet, dot

# A bound of one's own: margins, `b x g`, proved on the input set and differentiable by its centre and radius.
_FEW, _MOST_ACTIVE = 128, 0.8  # entries of a node, and the share of them: from where on cutting rows to them pays
# Rows for one end of each entry, then for the other ends that are needed: from where on two passes pay. Entries of an
# image; and of the last layer, numbers in all rows.
_MANY, _LONG = 256, 1 << 19

BoundFunction = Callable[[Network, InputSet, Specification], Tensor]


class Propagation:
    """Bounds of all layers over an input set. `lower[i]`, `upper[i]`: `b x *shape` of node i."""

    def __init__(
        self,
        net: Network,
        inputs: InputSet,
        method: Method,
        budget: Budget | None = None,
        bound_outputs: bool = True,
        skip_inactive: bool = False,
        seen: Seen | None = None,
        sizes: Sizes | None = None,
        sharpened: Sharpening = PLAIN,
        rough: Network | None = None,
    ) -> None:
        """`bound_outputs`: also the outputs themselves, which direct margins do not need. `skip_inactive`: no
        linear bounds where the intervals already say that a ReLU gives zero or, in images, its input. `seen`: what
        is known of ReLUs from regions nearby; they have no linear bounds, either. `sizes`: how many rows there is
        room for; default, as many as there are. `sharpened`: what more is done for every hidden row. `rough`: the
        network in half precision, where bounds need not be better than that.
        """
        self.net = net
        self.inputs = inputs
        self.method = method
        budget = budget or Budget.of(None, inputs.center.device)
        self._chunk, self._pool = budget.chunk, Pool(budget.keep)
        self._skips = _only_relus_read(net) if skip_inactive and method.intervals else frozenset()
        self._seen, self._sizes, self._sharpening, self._rough = seen, sizes or Sizes(), sharpened, rough
        # On a GPU a pass more takes longer than its rows.
        on_cpu = inputs.center.device.type == "cpu" and not self._sizes.fixed
        self._one_by_one = on_cpu and not method.parallel and not sharpened
        self._smooth = _smooth_read(net) if on_cpu else frozenset()
        self._readers = Counter(j for node in net.nodes for j in node.inputs)
        self.values = net.values(inputs.center)
        lower, upper = inputs.hull()
        self.lower, self.upper = [lower], [upper]
        # With parallel lines, the linearised network's value at the centre, as a deviation from the true one (the
        # paper's phi); with others anything.
        self.phi = [torch.zeros_like(lower)]
        self.planes: dict[int, Planes] = {}
        self._active: dict[int, Active] = {}
        self._wide = is_wide(net, inputs)  # so that even in a small layer a row is worth being cut short
        self._product = [inputs.is_box]  # node i takes every point of its interval (coordinates are free)
        self._tight = [inputs.is_box]  # node i's interval is exact, so a linear bound cannot improve on it
        self._centred = [inputs.categories is None]  # the middle of node i's interval is its value at the centre
        targets = {*net.preactivations, len(net.nodes) - 1} if bound_outputs else set(net.preactivations)
        # The range of an activation over the best bounds of its input is not improved on by its own lines.
        if method.intervals:
            targets -= {i for i in targets if (row := TABLE.get(type(net.nodes[i].op))) and row.univariate}
        for i in range(1, len(net.nodes)):
            self._visit(i, i in targets)

    def _visit(self, i: int, target: bool) -> None:
        net, node = self.net, self.net.nodes[i]
        row = MAPS.get(type(node.op))
        centred = row is not None and all(self._centred[j] for j in node.inputs)
        lows, highs = ([of[j] for j in node.inputs] for of in (self.lower, self.upper))
        low, high = interval(node, lows, highs, self.values[i] if centred else None)
        if row is None:
            self._relax(i)
            self._product.append(False)
            self._tight.append(False)
        else:
            used = self.method.linear and self.method.parallel
            self.phi.append(row.linear(node.op, *(self.phi[j] for j in node.inputs)) if used else self.values[i])
            j, alone = node.inputs[0], len(node.inputs) == 1
            elementwise = row.elementwise and alone
            repeats = row.broadcasts and node.size != net.nodes[j].size
            self._product.append(self._product[j] and elementwise and not repeats)
            self._tight.append(alone and (self._product[j] or (self._tight[j] and elementwise)))
        self._centred.append(centred and (self._tight[i] or not target))
        chosen = None
        # In small layers the rows cost little, and intervals without them are wider.
        worth = target and i in self._skips and not self._tight[i] and (node.size >= _FEW or self._wide)
        remembered = self._seen if worth else None
        if target and i in self._skips:
            # An image has many neurons that surely pass their input on; elsewhere a linear bound of those few still
            # helps the intervals of later layers, if there are any.
            known = (high <= 0) | (low >= 0) if len(node.shape) > 1 or self._is_costly_last(i) else high <= 0
            if remembered is not None:
                on, off = remembered.assumed(i, self.values[i])
                low, high = torch.where(on, low.clamp_min(0), low), torch.where(off, high.clamp_max(0), high)
                known = known | on | off
            chosen = numbers_of(~known.flatten(1), self._sizes, ("rows", i))
        wanted = self.method.hidden or (self.method.linear and i == len(net.nodes) - 1)
        if target and wanted and not self._tight[i] and (chosen is None or chosen.numel()):
            many = len(node.shape) > 1 and chosen is not None and chosen.shape[1] >= _MANY
            if chosen is not None and self._one_by_one and (many or self._is_costly_last(i)):
                linear_low, linear_high = self._nearer_ends(i, chosen, low, high)
            else:
                linear_low, linear_high = self._linear_bounds(i, chosen)
            if self.method.intervals:
                low, high = torch.maximum(low, linear_low), torch.minimum(high, linear_high)
            else:
                low, high = linear_low, linear_high
            # Bounds that meet in one point may cross by rounding. (Not by minimum and maximum: in a tie, as
            # at zero width, autograd would give each end half of the other's gradient.)
            crossed = low > high
            low, high = torch.where(crossed, high, low), torch.where(crossed, low, high)
        if remembered is not None:
            remembered.keep(i, low.detach(), high.detach())
        self.lower.append(low)
        self.upper.append(high)

    def _relax(self, i: int) -> None:
        """The planes of a node that is not affine, and phi past it."""
        node, parallel = self.net.nodes[i], self.method.parallel
        if not self.method.linear:
            self.phi.append(self.values[i])  # never used
            return
        l, u, z = ([of[j] for j in node.inputs] for of in (self.lower, self.upper, self.values))
        planes = self.planes[i] = row_of(node).planes(node.op, l, u, z, parallel)
        self._note_active(i)
        if not parallel:
            self.phi.append(self.values[i])  # never used
            return
        total = (planes.lower + planes.upper) / 2
        for term in planes.terms:
            phi = self.phi[node.inputs[term.input]]
            if term.source is not None:
                phi = phi.flatten(1).gather(1, term.source).reshape(total.shape)
            total = term.lower_slope * phi + total
        self.phi.append(total)

    def _note_active(self, i: int) -> None:
        """Remembers which entries of a node are not zero throughout (a ReLU's inactive ones are), where the matrix
        below can be cut to them, and is the smaller for it."""
        node = self.net.nodes[i]
        if len(node.shape) != 1 or len(node.inputs) != 1 or self._readers[node.inputs[0]] != 1:
            return
        below = self.net.nodes[node.inputs[0]]
        row = MAPS.get(type(below.op))
        if row is None or row.matrix(below.op) is None or (node.size < _FEW and not self._wide):
            return
        planes = self.planes[i]
        zero = (planes.lower == 0) & (planes.upper == 0)
        one_line = planes.lower == planes.upper
        for term in planes.terms:
            zero = zero & (term.lower_slope == 0) & (term.upper_slope == 0)
            one_line = one_line & (term.lower_slope == term.upper_slope)
        index = numbers_of(~zero, self._sizes, ("active", i))
        # On average, but where a number would have to be waited for.
        most = index.shape[1] if self._sizes.fixed or index.is_cuda else int((index >= 0).sum()) / len(index)
        if most <= _MOST_ACTIVE * node.size or self._rough is not None:  # whose rows are better cut evenly
            self._active[i] = Active.of(index, ~one_line if row_of(node).straight else None)

    def _linear_bounds(self, i: int, chosen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Bounds of node i; of its `chosen` entries only (`b x s`, -1 for none), infinite for the others."""
        value, parallel = self.values[i], self.method.parallel
        found = lower_deviation(
            self.net, i, None, self.planes, self.inputs, parallel, self._chunk, self._pool, chosen, self._active,
            self._sizes, rough=self._rough, keep_ways=i in self._smooth,
        )  # fmt: skip
        below, above = (found, found) if parallel else found.chunk(2, dim=1)
        if chosen is not None:
            below, above = (found, found) if parallel else (found[:, 0::2], found[:, 1::2])
            below, above = (_spread(t, chosen, self.net.nodes[i].size) for t in (below, above))
        center = value + self.phi[i] if parallel else value
        low, high = center + below.reshape(value.shape), center - above.reshape(value.shape)
        return self._sharpened(i, low, high) if self._sharpening else (low, high)

    def _sharpened(self, i: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of node i, made better by slopes of their own, and case by case."""
        open_ = torch.isfinite(low) & torch.isfinite(high)
        if i in self._skips:  # of an entry that is surely on one side of zero, nothing more is asked
            open_ = open_ & (low < 0) & (high > 0)
        known = Known(self.net, self.inputs, self.values, self.lower, self.upper, self.planes)
        below, above = sharpened(known, i, open_.flatten(1), self._sharpening, self._chunk)
        return torch.maximum(low, below.reshape(low.shape)), torch.minimum(high, above.reshape(high.shape))

    def _is_costly_last(self, i: int) -> bool:
        """Whether no layer comes after node i whose intervals could be better for its own, and its rows are long. (Over
        a wide input they are not made at all, and each pass reads the matrix.)"""
        numbers = self.net.nodes[i].size * sum(node.size for node in self.net.nodes[:i])
        return self._one_by_one and not self._wide and i == max(self.net.preactivations) and numbers >= _LONG

    def _nearer_ends(self, i: int, chosen: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of the `chosen` entries of node i, infinite for the others. First the end that zero is
        nearer to; the other one only of entries that may still be on or off. (As of entries whose intervals say it, of
        those whose first end does nothing more is asked: see `_visit`.)"""
        size, value = self.net.nodes[i].size, self.values[i].flatten(1)
        negative = value < 0
        ends = self._one_end(i, chosen, negative)
        low, high = torch.maximum(low.flatten(1), value + ends[0]), torch.minimum(high.flatten(1), value - ends[1])
        asked = _spread(torch.zeros_like(chosen, dtype=value.dtype), chosen, size) == 0
        others = numbers_of(asked & (low < 0) & (high > 0), self._sizes, ("others", i))
        if others.numel():
            more = self._one_end(i, others, ~negative)
            ends = torch.maximum(ends[0], more[0]), torch.maximum(ends[1], more[1])
        shape = self.values[i].shape
        return (value + ends[0]).reshape(shape), (value - ends[1]).reshape(shape)

    def _one_end(self, i: int, chosen: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """How far below their value at the centre the `chosen` entries of node i are at most, or above it, where
        `upper`, `b x size`, says so; minus infinity for others: `b x size` each."""
        size = self.net.nodes[i].size
        side = upper.gather(1, chosen.clamp_min(0))
        numbers = torch.where(chosen >= 0, chosen + size * side, -1)
        found = lower_deviation(
            self.net, i, None, self.planes, self.inputs, False, self._chunk, self._pool, numbers, self._active,
            self._sizes, signed=True,
        )  # fmt: skip
        below, above = torch.where(side, -torch.inf, found), torch.where(side, found, -torch.inf)
        return _spread(below, chosen, size), _spread(above, chosen, size)

    # --- rows over the outputs

    def rows_direct(self, spec: Specification) -> Tensor:
        """Lower bounds, `b x t`, of `c . z + d` with the row carried through the network whole."""
        last = len(self.net.nodes) - 1
        value = dot_rows(spec.rows, self.values[last]) + spec.offset
        found = None
        if self.method.linear:
            found = value + lower_deviation(
                self.net, last, spec.rows, self.planes, self.inputs, self.method.parallel, self._chunk, self._pool,
                active=self._active, sizes=self._sizes, rough=self._rough,
            )  # fmt: skip
            if self.method.parallel:
                found = found + dot_rows(spec.rows, self.phi[last])
            if not self.method.intervals:
                return found
        by_intervals = value + self._rows_by_intervals(spec.rows)
        return by_intervals if found is None else torch.maximum(found, by_intervals)

    def rows_logits(self, spec: Specification) -> Tensor:
        """Lower bounds, `b x t`, of `c . z + d` from the outputs' bounds: the paper's `l_c - u_j`."""
        l, u = self.lower[-1], self.upper[-1]
        rows = spec.rows
        return dot_rows(rows.clamp_min(0), l) + dot_rows(rows.clamp_max(0), u) + spec.offset

    def margins(self, spec: Specification, margin: str) -> Tensor:
        """Proved margins, `b x g`: the specification holds on the whole set where all are positive."""
        check_margin(margin)
        return spec.reduce(self.rows_direct(spec) if margin == "direct" else self.rows_logits(spec))

    def _rows_by_intervals(self, rows: Tensor) -> Tensor:
        """Rows carried back through the last affine operations, then met with the intervals found there."""
        net = self.net
        last = len(net.nodes) - 1
        coefficients = {last: rows}
        total: Tensor | float = 0.0
        while coefficients:
            i = max(coefficients)
            node, a = net.nodes[i], coefficients.pop(i)
            row = MAPS.get(type(node.op))
            if i == 0:
                total = total - self.inputs.support(a.flatten(2))
            elif row is not None:
                shapes = [net.nodes[j].shape for j in node.inputs]
                back = row.adjoint(node.op, a.flatten(0, 1).reshape(-1, *node.shape), shapes)
                for j, part in zip(node.inputs, back):
                    part = part.reshape(*a.shape[:2], *net.nodes[j].shape)
                    coefficients[j] = coefficients[j] + part if j in coefficients else part
            else:
                a = a.flatten(2)
                low = (self.lower[i] - self.values[i]).flatten(1)
                high = (self.upper[i] - self.values[i]).flatten(1)
                total = total + dot(a.clamp_min(0), low) + dot(a.clamp_max(0), high)
        return torch.as_tensor(total)


def _only_relus_read(net: Network) -> frozenset[int]:
    """The nodes that nothing but ReLUs reads: where they are not positive, nothing more is asked of them."""
    cutting = {kind for kind, row in TABLE.items() if row.zero_below}
    others = {j for node in net.nodes for j in node.inputs if type(node.op) not in cutting}
    return frozenset(range(len(net.nodes) - 1)) - others


def _smooth_read(net: Network) -> frozenset[int]:
    """The nodes that smooth activations read: whatever of their bounds moves, lines do."""
    return frozenset(j for node in net.nodes for j in node.inputs if (row := TABLE.get(type(node.op))) and row.smooth)


def _spread(values: Tensor, chosen: Tensor, size: int) -> Tensor:
    """`b x s` values at their places among `size`, minus infinity elsewhere."""
    # What stands at -1 goes to one place more, which is then cut off.
    empty = values.new_full((len(values), size + 1), -torch.inf)
    return empty.scatter(1, torch.where(chosen >= 0, chosen, size), values)[:, :size]


def dot_rows(rows: Tensor, z: Tensor) -> Tensor:
    """`rows @ z` per input: `b x t`; rows `b x t x k` or `1 x t x k`, `z`: `b x k`."""
    return dot(rows, z)


@dataclass(frozen=True)
class OwnBounds:
    """The margins that one of our methods proves on an input set."""

    method: Method
    margin: str
    budget: Budget | None

    def __call__(
        self,
        net: Network,
        inputs: InputSet,
        spec: Specification,
        seen: Seen | None = None,
        sizes: Sizes | None = None,
        rough: Network | None = None,
    ) -> Tensor:
        direct = self.margin == "direct"
        found = Propagation(
            net, inputs, self.method, self.budget, bound_outputs=not direct, skip_inactive=True, seen=seen, sizes=sizes,
            rough=rough,
        )  # fmt: skip
        return found.margins(spec, self.margin)


def margins_of(bounds: str | BoundFunction, margin: str = "direct", budget: Budget | None = None) -> BoundFunction:
    """The function from (network, input set, specification) to proved margins that solvers work on."""
    return OwnBounds(method_named(bounds), margin, budget) if isinstance(bounds, str) else bounds
