"""The paper's *quadratic* algorithm (Algorithm 3) as one backward pass over the graph, and its derivative.

A row of coefficients `A` over some node, "what is A z at least, over the region?", is carried back to the
input: past an affine operation as `A W`, past an activation by its lines (planes, where there are several inputs), and
where paths meet the `A`s add up (the paper's sum over paths, appendix D). All values are deviations from the network's
own values at the region's centre, so biases play no part: see `relaxations`.

With *parallel* lines one `A` serves the lower and the upper bound, `A phi -+ radius(A)`: phi is a vector the
forward pass carries along, and only the radius, `sum_i |A_i| m_i + support(A_0)`, is computed here. With *adaptive*
lines the slope depends on the sign of the coefficient, and an upper bound is minus the lower bound of `-A`.

The derivative is hand-written. Row r's bound depends on slopes, intercepts and region through row r alone, so
its whole Jacobian costs one more sweep: the derivative by `A_0` is the point of the region where the bound is
attained, and pushing that point *forward* through the linear parts and the chosen lines gives the derivative by
every other `A_i`. One Jacobian then answers any number of margins' gradients by a small product, nothing of the
forward pass is stored, and only the rows that matter (for ReLU, the unstable neurons) are ever differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elbowroom.network.graph import Network
from elbowroom.network.operations import Shape
from elbowroom.search.bounds import patches
from elbowroom.search.bounds.maps import MAPS, map_of
from elbowroom.search.bounds.patches import Coefficients, Patch
from elbowroom.search.bounds.planes import Planes
from elbowroom.search.memory import Pool
from elbowroom.search.regions.input_set import InputSet, dot


def lower_deviation(
    net: Network,
    node: int,
    rows: Tensor | None,
    planes: dict[int, Planes],
    inputs: InputSet,
    parallel: bool,
    chunk: int,
    pool: Pool,
    chosen: Tensor | None = None,
) -> Tensor:
    """Lower bounds of rows over a node's deviation from its value at the centre.

    `rows`: `b x r x size` (or `1 x r x size`) coefficients; None for the node itself, its identity
    followed, with adaptive lines, by minus the identity (`r = 2 size`). `chosen`: only these entries of the node,
    `b x s`, each input's own (what stands at -1 means nothing); then `r` is `s`, or `2 s`. Returns `b x r`. With
    parallel lines the result is minus the radius, to be added to the rows' centre. `chunk`: bytes for the rows in
    flight; `pool`: where Jacobians may be kept, which are computed again for each gradient where they do not fit.
    Differentiable by the region's radius and the planes.
    """
    ancestors = net_ancestors(net, node)
    relaxed = [i for i in ancestors if i in planes]
    if chosen is not None:
        chosen = chosen.clamp_min(0)
        chosen = chosen if parallel else torch.cat([chosen, chosen + net.nodes[node].size], 1)
    job = _Job(net, node, rows, chosen, relaxed, ancestors, inputs, parallel, chunk, pool, planes)
    tensors = [inputs.radius]
    for i in relaxed:
        tensors.extend(_parameters(planes[i], parallel))
    result: Tensor = _Bound.apply(job, *tensors)  # type: ignore[no-untyped-call]  # torch gives it no types
    return result


def net_ancestors(net: Network, node: int) -> list[int]:
    """The nodes that `node` depends on, itself included, in topological order."""
    needed, stack = {node}, [node]
    while stack:
        for j in net.nodes[stack.pop()].inputs:
            if j not in needed:
                needed.add(j)
                stack.append(j)
    return sorted(needed)


def _parameters(planes: Planes, parallel: bool) -> list[Tensor]:
    """What a relaxation is differentiated by: slopes and half-gap, or both slopes of each term and both intercepts."""
    if parallel:
        return [*(t.lower_slope for t in planes.terms), (planes.upper - planes.lower) / 2]
    return [*(k for t in planes.terms for k in (t.lower_slope, t.upper_slope)), planes.lower, planes.upper]


class _Bound(torch.autograd.Function):
    """Hands autograd the value and the hand-written derivative of a `_Job`."""

    @staticmethod
    def forward(ctx: Any, job: _Job, *tensors: Tensor) -> Tensor:
        ctx.job = job
        ctx.save_for_backward(*tensors)
        return job.value(tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *ctx.job.pull_back(grad, ctx.saved_tensors))


@dataclass
class _Jacobian:
    """Derivatives of the selected rows by all parameters, flattened: `b x s x d`."""

    index: Tensor  # b x s: which rows
    covered: Tensor  # b x r: the same as a mask
    matrix: Tensor


@dataclass
class _Job:
    """Bounds of rows over one node. `tensors`: the region's radius, then each relaxed node's parameters."""

    net: Network
    node: int
    rows: Tensor | None
    chosen: Tensor | None
    relaxed: list[int]
    ancestors: list[int]
    inputs: InputSet
    parallel: bool
    chunk: int
    pool: Pool
    planes: dict[int, Planes]
    _kept: _Jacobian | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        # Only what their terms belong to is read from the planes here; their numbers come through autograd.
        inputs = {i: self.net.nodes[i].inputs for i in self.relaxed}
        self._terms = {i: [(inputs[i][t.input], t.source) for t in self.planes[i].terms] for i in self.relaxed}
        self.planes = {}
        size = self.net.nodes[self.node].size
        listed = self.rows if self.rows is not None else self.chosen
        self.count = listed.shape[1] if listed is not None else size * (1 if self.parallel else 2)

    # --- values

    def value(self, tensors: Sequence[Tensor]) -> Tensor:
        radius = tensors[0]
        batch = radius.shape[0]
        if self.rows is None and self.inputs.is_box:
            plan = patches.plan(self.net, self.node, self.ancestors, batch, radius.device)
            if plan is not None:
                return self._value_by_blocks(tensors, plan)
        out = radius.new_empty(batch, self.count)
        per_row = 3 * radius.element_size() * max(self.net.nodes[i].size for i in self.ancestors)
        rows_at_once = max(1, self.chunk // per_row)
        own_rows = self.chosen is not None or (self.rows is not None and self.rows.shape[0] > 1)
        if not self.relaxed and not own_rows:
            step_r, step_b = rows_at_once, batch  # nothing depends on the input's own lines
        else:
            step_r = min(self.count, rows_at_once)
            step_b = max(1, rows_at_once // step_r)
        for r in range(0, self.count, step_r):
            r_end = min(r + step_r, self.count)
            shared = None if own_rows else self._down_to_lines(self._start(r, r_end, None))
            for b in range(0, batch, step_b):
                b_end = min(b + step_b, batch)
                start = shared if shared is not None else self._start(r, r_end, slice(b, b_end))
                walk = _Walk(self, tensors, b, b_end)
                out[b:b_end, r:r_end] = walk.down(dict(start))
        return out

    def _value_by_blocks(self, tensors: Sequence[Tensor], plan: patches.Plan) -> Tensor:
        """The same for the rows of a convolutional layer, block after block of neighbouring places."""
        radius, node = tensors[0], self.net.nodes[self.node]
        batch, device = radius.shape[0], radius.device
        out = radius.new_zeros(batch, node.size * (1 if self.parallel else 2))
        wanted = torch.ones(node.size, dtype=torch.bool, device=device)
        if self.chosen is not None:
            wanted.zero_()[self.chosen.flatten() % node.size] = True
        places = torch.arange(node.size, device=device).reshape(node.shape)
        rows_at_once = max(1, self.chunk // (3 * radius.element_size() * plan.widest))
        for at in patches.blocks(node.shape, plan.edge):
            block = places[(slice(None), *at)]
            local = wanted[block.flatten()].nonzero().squeeze(1)
            for own in local.split(max(1, rows_at_once if self.parallel else rows_at_once // 2)) if len(local) else ():
                unit = radius.new_zeros(len(own), block.numel())
                unit[torch.arange(len(own), device=device), own] = 1.0
                index = block.flatten()[own]
                if not self.parallel:
                    unit, index = torch.cat([unit, -unit]), torch.cat([index, index + node.size])
                start = self._down_to_lines({self.node: Patch(unit.reshape(1, -1, *block.shape), at)})
                per = max(1, rows_at_once // len(index))
                for b in range(0, batch, per):
                    out[b : b + per, index] = _Walk(self, tensors, b, min(b + per, batch)).down(dict(start))
        return out if self.chosen is None else out.gather(1, self.chosen)

    def _start(self, first: int, last: int, batch: slice | None) -> dict[int, Coefficients]:
        """Coefficients of rows `first` to `last`: `1 x r x *shape`, or the inputs' own where `batch` is given."""
        if self.rows is not None:
            rows = self.rows if batch is None else self.rows[batch]
            return {self.node: self._shaped(rows[:, first:last])}
        if self.chosen is not None and batch is not None:
            return self._unit_rows(self.chosen[batch, first:last])
        index = torch.arange(first, last, device=self.inputs.radius.device)
        return self._unit_rows(index[None])

    def _shaped(self, rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:2], *self.net.nodes[self.node].shape)

    def _unit_rows(self, index: Tensor) -> dict[int, Coefficients]:
        """Rows of the (signed) identity by number, `b x r`; one step further down where that is free."""
        node = self.net.nodes[self.node]
        sign = torch.where(index < node.size, 1.0, -1.0).to(self.inputs.radius.dtype)[..., None]
        index = index % node.size
        row = MAPS.get(type(node.op)) if len(node.shape) == 1 else None
        matrix = None if row is None else row.matrix(node.op)
        if matrix is not None:
            return {node.inputs[0]: matrix[index] * sign}
        unit = sign.new_zeros(*index.shape, node.size).scatter_(-1, index[..., None], sign)
        return {self.node: self._shaped(unit)}

    def _down_to_lines(self, coefficients: dict[int, Coefficients]) -> dict[int, Coefficients]:
        """Carries coefficients back as far as they are the same for all inputs of the batch."""
        while True:
            top = max(coefficients)
            if top == 0 or top in self._terms:
                return coefficients
            _affine_step(self.net, top, coefficients)

    # --- derivatives

    def pull_back(self, grad: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Gradients by every tensor, given those by the rows' bounds (`b x r`)."""
        needed = grad != 0
        if not bool(needed.any()):
            return [torch.zeros_like(t) for t in tensors]
        jacobian = self._kept
        if jacobian is None or bool((needed & ~jacobian.covered).any()):
            covered = needed if jacobian is None else needed | jacobian.covered
            index = numbers_of(covered)
            width = sum(t[0].numel() for t in tensors)
            if self.pool.take(index.numel() * width * grad.element_size()):
                parts = [m for _, m in self._jacobians(index, tensors)]
                matrix = torch.cat(parts, 1) if len(parts) != 1 else parts[0]
                self._kept = jacobian = _Jacobian(index, covered, matrix)
            else:
                total = grad.new_zeros(grad.shape[0], width)
                for part, matrix in self._jacobians(numbers_of(needed), tensors):
                    total += _weighted(grad, part, matrix)
                return _split(total, tensors)
        return _split(_weighted(grad, jacobian.index, jacobian.matrix), tensors)

    def _jacobians(self, index: Tensor, tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Jacobians of the rows `index` (`b x s`, -1 for none), in groups of rows."""
        width = sum(t[0].numel() for t in tensors)
        batch, selected = index.shape
        step = max(1, 4 * self.chunk // (width * tensors[0].element_size()))
        if selected <= step:
            per = max(1, step // max(1, selected))
            parts = [self._jacobian(index[b : b + per], b, tensors) for b in range(0, batch, per)]
            yield index, torch.cat(parts, 0)
            return
        for r in range(0, selected, step):
            part = index[:, r : r + step]
            yield part, torch.cat([self._jacobian(part[b : b + 1], b, tensors) for b in range(batch)], 0)

    def _jacobian(self, index: Tensor, first: int, tensors: Sequence[Tensor]) -> Tensor:
        walk = _Walk(self, tensors, first, first + index.shape[0], trace=True)
        rows = index.clamp_min(0)
        if self.rows is not None:
            own = self.rows[first : first + index.shape[0]] if self.rows.shape[0] > 1 else self.rows
            own = own.expand(index.shape[0], -1, -1)
            start: dict[int, Coefficients] = {}
            start[self.node] = self._shaped(own.gather(1, rows[..., None].expand(-1, -1, own.shape[-1])))
        elif self.chosen is not None:
            start = self._unit_rows(self.chosen[first : first + index.shape[0]].gather(1, rows))
        else:
            start = self._unit_rows(rows)
        walk.down(start)
        return walk.up()


def numbers_of(mask: Tensor) -> Tensor:
    """The positions that are set in each line of `mask`, `b x most`, filled up with -1."""
    most = int(mask.sum(1).max()) if mask.numel() else 0
    order = torch.argsort(mask.to(torch.int8), dim=1, descending=True, stable=True)[:, :most]
    return torch.where(mask.gather(1, order), order, -1)


def _weighted(grad: Tensor, index: Tensor, matrix: Tensor) -> Tensor:
    """`sum_s grad[b, index[b, s]] matrix[b, s]`."""
    weight = torch.where(index >= 0, grad.gather(1, index.clamp_min(0)), 0.0)
    return torch.bmm(weight[:, None], matrix).squeeze(1)


def _split(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    pieces = flat.split([math.prod(t.shape[1:]) for t in tensors], dim=1)
    return [p.reshape(t.shape) for p, t in zip(pieces, tensors)]


def _affine_step(net: Network, i: int, coefficients: dict[int, Coefficients]) -> None:
    """Replaces coefficients over an affine node by coefficients over its inputs."""
    node = net.nodes[i]
    for j, part in zip(node.inputs, patches.back(net, node, coefficients.pop(i))):
        _give(net, j, part, coefficients)


def _give(net: Network, j: int, part: Coefficients, coefficients: dict[int, Coefficients]) -> None:
    coefficients[j] = patches.total(coefficients[j], part, net.nodes[j].shape) if j in coefficients else part


def _scattered(a: Tensor, source: Tensor, shape: Shape) -> Tensor:
    """Coefficients, `b x r x *output`, added up at the places of a node of this shape that they belong to."""
    flat = a.flatten(2)
    zeros = flat.new_zeros(*flat.shape[:2], math.prod(shape))
    at = source[:, None].expand(-1, flat.shape[1], -1)
    return zeros.scatter_add_(2, at, flat).reshape(*flat.shape[:2], *shape)


class _Term(NamedTuple):
    """A term of a relaxation: the node it reads, its `source` there, its slope (parallel), or lower and upper one."""

    node: int
    source: Tensor | None
    slopes: list[Tensor]


class _Relaxation(NamedTuple):
    """The planes of a node: terms, and half-gap (parallel), or lower and upper intercept."""

    terms: list[_Term]
    ends: list[Tensor]


class _Walk:
    """One chunk's way down to the input and, for the derivative, up again."""

    def __init__(self, job: _Job, tensors: Sequence[Tensor], first: int, last: int, trace: bool = False) -> None:
        self.job = job
        self.net = job.net
        sets = job.inputs
        self.inputs = replace(sets, center=sets.center[first:last], radius=tensors[0][first:last])
        numbers = (t[first:last] for t in tensors[1:])  # in the order of `_parameters`, node after node
        sides = 1 if job.parallel else 2
        self.relaxed: dict[int, _Relaxation] = {}
        for i in job.relaxed:
            terms = [
                _Term(j, None if source is None else source[first:last], list(islice(numbers, sides)))
                for j, source in job._terms[i]
            ]
            self.relaxed[i] = _Relaxation(terms, list(islice(numbers, sides)))
        self.trace: dict[int, Tensor] | None = {} if trace else None

    def down(self, coefficients: dict[int, Coefficients]) -> Tensor:
        """The rows' lower bounds, `b x r`. Coefficients: `b x r x *shape` or `1 x r x *shape` per node, or patches
        (without `trace`, and over boxes only)."""
        total: Tensor | float = 0.0
        while True:
            i = max(coefficients)
            if i == 0:
                c = coefficients.pop(0)
                a = patches.numbers(c).flatten(2)
                if isinstance(c, Patch):
                    return total - dot(a.abs(), patches.cut(self.inputs.radius, c).flatten(1))
                if self.trace is not None:
                    self.trace[0] = a
                return total - self.inputs.support(a)
            if i not in self.relaxed:
                _affine_step(self.net, i, coefficients)
                continue
            terms, ends = self.relaxed[i]
            c = coefficients.pop(i)
            if any(term.source is not None for term in terms):
                c = patches.whole(c, self.net.nodes[i].shape)
            a = patches.numbers(c)
            if self.trace is not None:
                self.trace[i] = a
            ends = [patches.cut(t, c) for t in ends]
            if self.job.parallel:
                (gap,) = ends
                total = total - dot(a.abs().flatten(2), gap.flatten(1))
            else:
                m_l, m_u = ends
                positive = a.clamp_min(0)
                total = total + dot(a.flatten(2), m_u.flatten(1))
                total = total + dot(positive.flatten(2), (m_l - m_u).flatten(1))
            for term in terms:
                slopes = [patches.cut(t, c)[:, None] for t in term.slopes]
                if self.job.parallel:
                    below = a * slopes[0]
                else:
                    k_l, k_u = slopes
                    below = torch.addcmul(a * k_u, positive, k_l - k_u)
                if term.source is not None:
                    below = _scattered(below, term.source, self.net.nodes[term.node].shape)
                _give(self.net, term.node, patches.like(c, below), coefficients)

    def up(self) -> Tensor:
        """After a traced `down`: the rows' derivatives by radius and parameters, `b x r x d`."""
        assert self.trace is not None
        at, by_radius = self.inputs.support_gradient(self.trace.pop(0))
        lead = at.shape[:2]
        # g[i]: the derivative of each row's bound by its coefficients over node i.
        g = {0: -at.reshape(*lead, *self.net.nodes[0].shape)}
        columns: dict[int, list[Tensor]] = {}
        last = max(self.trace, default=0)
        for i in self.job.ancestors[1:]:
            if i > last:
                break
            node = self.net.nodes[i]
            if any(j not in g for j in node.inputs):
                continue
            if i not in self.relaxed:
                pushed = map_of(node).linear(node.op, *(g[j].flatten(0, 1) for j in node.inputs))
                g[i] = pushed.reshape(*lead, *node.shape)
                continue
            terms, ends = self.relaxed[i]
            a = self.trace[i]
            if self.job.parallel:
                (gap,) = (t[:, None] for t in ends)
                g[i], by_ends = -torch.copysign(gap, a), [-a.abs()]
            else:
                m_l, m_u = (t[:, None] for t in ends)
                above, by_lower_end = a > 0, a.clamp_min(0)
                g[i], by_ends = torch.where(above, m_l, m_u), [by_lower_end, a - by_lower_end]
            columns[i] = []
            for term in terms:
                below = g[term.node]
                if term.source is not None:
                    index = term.source[:, None].expand(-1, lead[1], -1)
                    below = below.flatten(2).gather(2, index).reshape(*lead, *node.shape)
                slopes = [t[:, None] for t in term.slopes]
                by_slope = below * a
                if self.job.parallel:
                    columns[i] += [by_slope]
                    g[i] = torch.addcmul(g[i], below, slopes[0])
                else:
                    k_l, k_u = slopes
                    by_lower = torch.where(above, by_slope, 0.0)
                    columns[i] += [by_lower, by_slope - by_lower]
                    g[i] = torch.addcmul(g[i], below, torch.where(above, k_l, k_u))
            columns[i] += by_ends
        parts = [-by_radius]
        for i in self.job.relaxed:
            parts.extend(c.flatten(2) for c in columns[i])
        return torch.cat(parts, -1)
