"""Bounds of every layer, and of a specification's rows: intervals and linear bounds put together.

This is the paper's Algorithm 1 for general graphs (appendix D): at each layer that feeds an activation both bounds are
computed, the better end is kept, and the activation's lines follow from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.bounds.interval import interval
from elbowroom.bounds.linear import Budget, lower_deviation
from elbowroom.bounds.relaxations import Lines, activation_lines, max_pool_lines
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.regions.input_set import InputSet, dot
from elbowroom.specification import Specification


@dataclass(frozen=True)
class Method:
    """How bounds are made: `linear` bounds or not, with `parallel` lines or not, met with `intervals` or not."""

    linear: bool
    parallel: bool
    intervals: bool


METHODS = {
    "simple": Method(linear=False, parallel=True, intervals=True),
    "quadratic": Method(linear=True, parallel=True, intervals=False),
    "combined": Method(linear=True, parallel=True, intervals=True),
    "adaptive": Method(linear=True, parallel=False, intervals=True),
}

# A bound of one's own: margins, `b x g`, proved on the input set and differentiable by its centre and radius.
BoundFunction = Callable[[Network, InputSet, Specification], Tensor]


def method_named(name: str) -> Method:
    try:
        return METHODS[name]
    except KeyError:
        raise InputError(f"unknown bounds {name!r}; choose one of {', '.join(METHODS)}") from None


def check_margin(name: str) -> None:
    if name not in ("direct", "logits"):
        raise InputError(f'margin must be "direct" or "logits", got {name!r}')


class Propagation:
    """Bounds of all layers over an input set. `lower[i]`, `upper[i]`: `b x *shape` of node i."""

    def __init__(
        self,
        net: Network,
        inputs: InputSet,
        method: Method,
        budget: Budget | None = None,
        bound_outputs: bool = True,
    ) -> None:
        """`bound_outputs`: also the outputs themselves, which direct margins do not need."""
        self.net = net
        self.inputs = inputs
        self.method = method
        self.budget = budget or Budget.of(None, inputs.center.device)
        self.values = net.values(inputs.center)
        lower, upper = inputs.hull()
        self.lower, self.upper = [lower], [upper]
        # The linearised network's value at the centre, as a deviation from the true one (the paper's phi).
        self.phi = [torch.zeros_like(lower)]
        self.lines: dict[int, Lines] = {}
        self._product = [inputs.is_box]  # node i takes every point of its interval (coordinates are free)
        self._tight = [inputs.is_box]  # node i's interval is exact, so a linear bound cannot improve on it
        targets = {*net.preactivations, len(net.nodes) - 1} if bound_outputs else set(net.preactivations)
        for i in range(1, len(net.nodes)):
            self._visit(i, i in targets)

    def _visit(self, i: int, target: bool) -> None:
        net, node = self.net, self.net.nodes[i]
        shapes = [net.nodes[j].shape for j in node.inputs]
        low, high = interval(node, [self.lower[j] for j in node.inputs], [self.upper[j] for j in node.inputs], shapes)
        j = node.inputs[0]
        alone = len(node.inputs) == 1
        elementwise = isinstance(node.op, _ELEMENTWISE) and alone
        affine = isinstance(node.op, ops.Affine)
        repeats = isinstance(node.op, _BROADCASTING) and node.size != net.nodes[j].size
        self._product.append(self._product[j] and elementwise and not repeats)
        self._tight.append(affine and alone and (self._product[j] or (self._tight[j] and elementwise)))
        if affine:
            assert isinstance(node.op, ops.Affine)
            self.phi.append(node.op.linear(*(self.phi[j] for j in node.inputs)))
        else:
            self._relax(i)
        if target and self.method.linear and not self._tight[i]:
            linear_low, linear_high = self._linear_bounds(i)
            if self.method.intervals:
                low, high = torch.maximum(low, linear_low), torch.minimum(high, linear_high)
            else:
                low, high = linear_low, linear_high
            # Bounds that meet in one point may cross by rounding. (Not by minimum and maximum: in a tie, as
            # at zero width, autograd would give each end half of the other's gradient.)
            crossed = low > high
            low, high = torch.where(crossed, high, low), torch.where(crossed, low, high)
        self.lower.append(low)
        self.upper.append(high)

    def _relax(self, i: int) -> None:
        """The lines of an activation or max-pooling, and phi past it."""
        node = self.net.nodes[i]
        j = node.inputs[0]
        l, u, z = self.lower[j], self.upper[j], self.values[j]
        if not self.method.linear:
            self.phi.append(torch.zeros_like(self.values[i]))  # never used
            return
        if isinstance(node.op, ops.MaxPool):
            windows = node.op.windows(self.net.nodes[j].shape).to(l.device)
            lines = max_pool_lines(windows, l, u, z, node.shape, self.method.parallel)
        else:
            assert isinstance(node.op, ops.Activation)
            lines = activation_lines(node.op, l, u, z, self.method.parallel)
        self.lines[i] = lines
        if not self.method.parallel:
            self.phi.append(torch.zeros_like(self.values[i]))  # never used
            return
        phi = self.phi[j]
        if lines.source is not None:
            phi = phi.flatten(1).gather(1, lines.source).reshape(lines.lower.shape)
        self.phi.append(lines.lower_slope * phi + (lines.lower + lines.upper) / 2)

    def _linear_bounds(self, i: int) -> tuple[Tensor, Tensor]:
        value, parallel = self.values[i], self.method.parallel
        found = lower_deviation(self.net, i, None, self.lines, self.inputs, parallel, self.budget)
        if parallel:
            center, radius = value + self.phi[i], -found.reshape(value.shape)
            return center - radius, center + radius
        below, above = found.split(self.net.nodes[i].size, dim=1)
        return value + below.reshape(value.shape), value - above.reshape(value.shape)

    # --- rows over the outputs

    def rows_direct(self, spec: Specification) -> Tensor:
        """Lower bounds, `b x t`, of `c . z + d` with the row carried through the network whole."""
        last = len(self.net.nodes) - 1
        value = dot_rows(spec.rows, self.values[last]) + spec.offset
        found = None
        if self.method.linear:
            found = value + lower_deviation(
                self.net, last, spec.rows, self.lines, self.inputs, self.method.parallel, self.budget
            )
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
            if i == 0:
                total = total - self.inputs.support(a.flatten(2))
            elif isinstance(node.op, ops.Affine):
                shapes = [net.nodes[j].shape for j in node.inputs]
                back = node.op.adjoint(a.flatten(0, 1).reshape(-1, *node.shape), shapes)
                for j, part in zip(node.inputs, back):
                    part = part.reshape(*a.shape[:2], *net.nodes[j].shape)
                    coefficients[j] = coefficients[j] + part if j in coefficients else part
            else:
                a = a.flatten(2)
                low = (self.lower[i] - self.values[i]).flatten(1)
                high = (self.upper[i] - self.values[i]).flatten(1)
                total = total + dot(a.clamp_min(0), low) + dot(a.clamp_max(0), high)
        return torch.as_tensor(total)


# Operations under which distinct coordinates stay distinct: an interval maps to an interval exactly.
_ELEMENTWISE = (
    ops.Scale, ops.Divide, ops.Shift, ops.BatchNorm, ops.Reshape, ops.Transpose, ops.Slice, ops.Pad,
)  # fmt: skip
# Of these, the ones that may repeat coordinates, which then move together.
_BROADCASTING = (ops.Scale, ops.Divide, ops.Shift)


def dot_rows(rows: Tensor, z: Tensor) -> Tensor:
    """`rows @ z` per input: `b x t`; rows `b x t x k` or `1 x t x k`, `z`: `b x k`."""
    return dot(rows, z)


def margins_of(bounds: str | BoundFunction, margin: str = "direct", budget: Budget | None = None) -> BoundFunction:
    """The function from (network, input set, specification) to proved margins that solvers work on."""
    if not isinstance(bounds, str):
        return bounds
    method = method_named(bounds)

    def margins(net: Network, inputs: InputSet, spec: Specification) -> Tensor:
        return Propagation(net, inputs, method, budget, bound_outputs=margin != "direct").margins(spec, margin)

    return margins
