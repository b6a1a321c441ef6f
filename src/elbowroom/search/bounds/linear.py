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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elbowroom.network.graph import Network
from elbowroom.search.bounds.coefficients import Coefficients, Columns
from elbowroom.search.bounds.front import Nodes
from elbowroom.search.bounds.fused import collected
from elbowroom.search.bounds.planes import Planes
from elbowroom.search.bounds.route import Route
from elbowroom.search.bounds.sizes import Active, Sizes, alike, numbers_of
from elbowroom.search.bounds.starts import down_to_lines, unit_rows
from elbowroom.search.bounds.walk import Steps, Walk, relaxations
from elbowroom.search.bounds.wide import Through
from elbowroom.search.memory import Pool
from elbowroom.search.regions.input_set import InputSet

_ROWS = 64  # at once, at least: fewer would read a large matrix again and again
_ON_GPU, _ON_CPU = 4, 2  # chunks of rows: what derivatives may take that are computed at once
_MANY = 1 << 21  # numbers of all rows: of fewer, half precision saves nothing


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
    active: dict[int, Active] | None = None,
    sizes: Sizes | None = None,
    signed: bool = False,
    rough: Network | None = None,
    keep_ways: bool = False,
) -> Tensor:
    """Lower bounds of rows over a node's deviation from its value at the centre.

    `rows`: `b x r x size` (or `1 x r x size`) coefficients; None for the node itself, its identity
    followed, with adaptive lines, by minus the identity (`r = 2 size`). `chosen`: only these entries of the node,
    `b x s`, each input's own (-1 at the end of a line for none; what is returned there means nothing); then `r` is `s`,
    or, every entry followed by its negative, `2 s`. `signed`: they are numbers of rows of the identity and, past its
    last, of its negative, and stand for themselves. Returns `b x r`. With
    parallel lines the result is minus the radius, to be added to the rows' centre. `chunk`: bytes for the rows in
    flight; `pool`: where Jacobians may be kept, which are computed again for each gradient where they do not fit.
    `active`: of some relaxed nodes, the entries that are not zero throughout. `sizes`: how many rows there is room for,
    where that depends on numbers. `rough`: the network in half precision, if rows may be.
    `keep_ways`: what rows were on their way down is kept for their derivatives, where there is room; of use where these
    are asked for of nearly all rows.
    Differentiable by the region's radius and the planes.
    """
    route = Route.of(net, inputs, node, rows is None, rough is not None)
    seen: Nodes = net
    if route.front is not None:
        seen, inputs = route.front, route.front.inputs(inputs)
    relaxed = [i for i in route.ancestors if i in planes]
    both = False
    if chosen is not None and not parallel and not signed:
        negative = torch.where(chosen >= 0, chosen + net.nodes[node].size, -1)
        chosen = torch.stack([chosen, negative], 2).flatten(1)
        below = (active or {}).get(net.nodes[node].inputs[0])
        both = below is not None and below.open is not None
    own = active or {}, sizes or Sizes(), rough, both
    job = _Job(seen, route, node, rows, chosen, relaxed, inputs, parallel, chunk, pool, planes, *own)
    tensors = [inputs.radius]
    for i in relaxed:
        tensors.extend(_parameters(planes[i], parallel))
    if keep_ways and torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        job.keep_ways()
    result: Tensor = _Bound.apply(job, *tensors)  # type: ignore[no-untyped-call]  # torch gives it no types
    return result


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
        found: tuple[Tensor, ...] = _PullBack.apply(ctx.job, grad, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return (None, *found)


class _PullBack(torch.autograd.Function):
    """The derivative of `_Bound`: of one function of the rows or, under `vmap`, of several at once."""

    @staticmethod
    def forward(job: _Job, grad: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t[0] for t in job.pull_back(grad[None], tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: Any, job: _Job, grad: Tensor, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        found = job.pull_back(grad.movedim(dims[1], 0), tensors, keep=False)  # whoever asks for several asks once
        return tuple(found), (0,) * len(found)


class _Piece(NamedTuple):
    """Derivatives of some rows of some inputs: of which, `m`, which, `m x s` (-1 for none), and by each tensor."""

    batch: slice | Tensor
    rows: Tensor
    parts: list[Coefficients | Through]
    unit: Tensor | None  # `m`, by which derivatives by slopes are to be multiplied


@dataclass
class _Jacobian:
    """Derivatives of the selected rows; `covered`: which, `b x r`."""

    covered: Tensor
    pieces: list[_Piece]


@dataclass
class _Job:
    """Bounds of rows over one node. `tensors`: the region's radius, then each relaxed node's parameters."""

    net: Nodes
    route: Route
    node: int
    rows: Tensor | None
    chosen: Tensor | None
    relaxed: list[int]
    inputs: InputSet
    parallel: bool
    chunk: int
    pool: Pool
    planes: dict[int, Planes]
    active: dict[int, Active]
    sizes: Sizes
    rough: Network | None
    both: bool  # whether each chosen row is followed by its negative, and both may go down together
    _kept: _Jacobian | None = field(default=None, repr=False)
    _asked: bool = field(default=False, repr=False)
    _ways: list[tuple[slice, Tensor, Walk]] | None = field(default=None, repr=False)  # of which inputs and rows

    def __post_init__(self) -> None:
        self.plan, self.entry, self.widest = self.route.plan, self.route.entry, self.route.widest
        # What they are differentiated by comes through autograd; what is read here are their numbers.
        inputs = {i: self.net.nodes[i].inputs for i in self.relaxed}
        self._terms = {i: [(inputs[i][t.input], t.source) for t in self.planes[i].terms] for i in self.relaxed}
        self._lines = {i: self.planes[i].gaps if self.parallel else self.planes[i].pairs for i in self.relaxed}
        self.planes = {}
        listed = self.rows if self.rows is not None else self.chosen
        units = self.net.nodes[self.node].size * (1 if self.parallel else 2)
        self.count = listed.shape[1] if listed is not None else units
        numbers = len(self.inputs.radius) * self.count * self.widest
        if numbers < _MANY or self.entry is not None or not self.inputs.is_box:
            self.rough = None
        self.dtype = self.inputs.radius.dtype if self.rough is None else torch.float16

    @property
    def carrier(self) -> Nodes:
        """The network whose maps rows go through."""
        return self.net if self.rough is None else self.rough

    @property
    def _steps(self) -> Steps:
        """The same for all inputs."""
        return Steps(self.carrier, self.plan)

    @property
    def _ends(self) -> set[int]:
        """The nodes from which on rows are each input's own."""
        return {0, *self._terms} if self.entry is None else {0, *self._terms, self.entry.node}

    # --- values

    def value(self, tensors: Sequence[Tensor]) -> Tensor:
        radius = tensors[0]
        batch = radius.shape[0]
        out = radius.new_empty(batch, self.count)
        rows_at_once = max(_ROWS, self.chunk // (3 * self.dtype.itemsize * self.widest))
        if self.chosen is not None:
            return self._chosen_values(tensors, self.chosen, rows_at_once, out)
        own_rows = self.rows is not None and self.rows.shape[0] > 1
        if not self.relaxed and not own_rows:
            step_r, step_b = rows_at_once, batch  # nothing depends on the input's own lines
        else:
            step_r = min(self.count, rows_at_once)
            step_b = max(1, rows_at_once // step_r)
        for r in range(0, self.count, step_r):
            r_end = min(r + step_r, self.count)
            shared = None if own_rows else down_to_lines(self._steps, self._start(r, r_end, None), self._ends)
            for b in range(0, batch, step_b):
                b_end = min(b + step_b, batch)
                start = shared if shared is not None else self._start(r, r_end, slice(b, b_end))
                walk = self._walk(tensors, slice(b, b_end), self._ways is not None)
                out[b:b_end, r:r_end] = walk.down(dict(start))
                if self._ways is not None:
                    walk.rest()
                    index = torch.arange(r, r_end, device=radius.device)
                    self._ways.append((slice(b, b_end), index.expand(b_end - b, -1), walk))
        return out

    def keep_ways(self) -> None:
        """Has `value` keep what rows were on their way down, where there is room, for whoever first asks for their
        derivatives: these then take half the products. (The room is not given back: an evaluation is short.)"""
        if self.relaxed and self.chosen is None and self.rows is None:
            numbers = len(self.inputs.radius) * self.count * self._numbers_over([0, *self.relaxed])
            self._ways = [] if self.pool.take(numbers * self.dtype.itemsize) else None

    def _chosen_values(self, tensors: Sequence[Tensor], chosen: Tensor, rows_at_once: int, out: Tensor) -> Tensor:
        for part, count in alike(chosen, self.sizes, rows_at_once):
            walk = self._walk(tensors, part, False)
            step = -(-count // -(-count // rows_at_once)) if count else 1  # parts of a size
            step += step % 2 if self.both else 0
            for r in range(0, count, step):
                r_end = min(r + step, count)
                out[part, r:r_end] = self._down_chosen(chosen[part, r:r_end].clamp_min(0), walk)
        return out

    def _down_chosen(self, index: Tensor, walk: Walk) -> Tensor:
        """The lower bounds of rows by number, `b x r`; if `both`, pairs of one and its negative."""
        if not self.both or not walk.has_pairs(self.node):
            return walk.down(unit_rows(walk, self.node, index, self.dtype))
        ((below, start),) = unit_rows(walk, self.node, index[:, ::2], self.dtype).items()
        assert isinstance(start, Columns)
        return walk.down_both(below, start)

    def _walk(self, tensors: Sequence[Tensor], part: slice | Tensor, trace: bool, unit: Tensor | None = None) -> Walk:
        """`unit`: `m`, of what radius and ends are measured in."""
        active = {i: self._active_in(i, part) for i in self.active}
        planes = relaxations(self._terms, self._lines, active, part)
        radius = tensors[0][part]
        if unit is not None:
            radius, ends = radius / unit.reshape(-1, *[1] * (radius.dim() - 1)), 1 if self.parallel else 2
            planes = {i: p._replace(lines=p.lines.in_units(unit, ends)) for i, p in planes.items()}
        return Walk(self.carrier, self.plan, self.inputs.take(part, radius), planes, self.parallel, trace, self.entry)

    def _active_in(self, i: int, part: slice | Tensor) -> tuple[Tensor, int | None]:
        """The active entries of node i for a part of the batch, `b x m`, as many as these inputs have at most, and how
        many of them may be open."""
        entries, open_ = self.active[i]
        own = entries[part]
        if self.sizes.fixed or own.is_cuda:  # it is not worth to wait for a number
            return own, None
        return own[:, : int((own >= 0).sum(1).max())], None if open_ is None else int(open_[part].max())

    def _start(self, first: int, last: int, batch: slice | None) -> dict[int, Coefficients]:
        """Coefficients of rows `first` to `last`: `1 x r x *shape`, or the inputs' own where `batch` is given."""
        if self.rows is not None:
            rows = self.rows if batch is None else self.rows[batch]
            return {self.node: self._shaped(rows[:, first:last].to(self.dtype))}
        index = torch.arange(first, last, device=self.inputs.radius.device)
        return unit_rows(self._steps, self.node, index[None], self.dtype)

    def _shaped(self, rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:2], *self.net.nodes[self.node].shape)

    # --- derivatives

    def pull_back(self, grads: Tensor, tensors: Sequence[Tensor], keep: bool = True) -> list[Tensor]:
        """Gradients of k functions by every tensor, `k x b x ...`, given those by the rows' bounds, `k x b x r`.
        `keep`: what derivatives were computed, for others, where there is room. (Not the first time: who asks once
        need not write them all.)"""
        needed = (grads != 0).any(0)
        if self.both:
            needed = needed.unflatten(1, (-1, 2)).any(2).repeat_interleave(2, 1)
        totals = [t.new_zeros(len(grads), *t.shape) for t in tensors]
        index = numbers_of(needed, self.sizes, ("needed", self.node))
        if not index.numel():
            return totals
        jacobian = self._kept
        lacking = jacobian is None or bool((needed & ~jacobian.covered).any())
        keep, self._asked = keep and self._asked, True
        if lacking and keep:
            covered = needed if jacobian is None else needed | jacobian.covered
            every = numbers_of(covered, self.sizes, ("needed", self.node))
            if self.pool.take(every.numel() * self._width * self.dtype.itemsize):
                self._kept = _Jacobian(covered, list(self._pieces(every, tensors)))
                jacobian, lacking = self._kept, False
        ways, self._ways = self._ways, None
        pieces: Iterable[_Piece]
        if jacobian is not None and not lacking:
            pieces = jacobian.pieces
        elif ways:
            pieces = (
                _Piece(batch, rows, walk.up(self.route.ancestors), None)
                for batch, rows, walk in ways
                if needed[batch].gather(1, rows).any()
            )
        else:
            pieces = self._pieces(index, tensors)
        slopes = self._slopes()
        for batch, rows, parts, unit in pieces:
            at = rows.clamp_min(0).expand(len(grads), -1, -1)
            weight = torch.where(rows >= 0, grads[:, batch].gather(2, at), 0.0).transpose(0, 1)
            for whole, part, slope in zip(totals, parts, slopes):
                shape = tuple(whole.shape[2:])
                found = part.collected(weight, shape) if isinstance(part, Through) else collected(weight, part, shape)
                if slope and unit is not None:
                    found = found * unit.reshape(-1, *[1] * (found.dim() - 1))
                whole[:, batch] += found.transpose(0, 1)
        if not self.parallel:  # see `Walk.up`
            for lower, upper in zip(totals[1::2], totals[2::2]):
                upper -= lower
        return totals

    @property
    def _width(self) -> int:
        """How many numbers the derivatives of a row have, at most."""
        return self._numbers_over([0, *(i for i in self.relaxed for _ in range(self._parameters_of(i)))])

    def _numbers_over(self, nodes: Sequence[int]) -> int:
        """How many numbers a row has over all of these nodes, at most."""
        found = 0
        for i in nodes:
            at, node = self.plan[i], self.net.nodes[i]
            if i == 0 and self.entry is not None:  # not written out
                found += self.net.nodes[self.entry.node].size
            else:
                pooled = any(source is not None for _, source in self._terms.get(i, ()))  # rows are whole there
                found += node.size if at is None or pooled else at.numbers(node.shape[0])
        return found

    def _slopes(self) -> list[bool]:
        """Which of the tensors are slopes."""
        ends = [False] * (1 if self.parallel else 2)
        return [False, *(s for i in self.relaxed for s in [*[True] * (self._parameters_of(i) - len(ends)), *ends])]

    def _parameters_of(self, i: int) -> int:
        return (len(self._terms[i]) + 1) * (1 if self.parallel else 2)

    def _pieces(self, index: Tensor, tensors: Sequence[Tensor]) -> Iterator[_Piece]:
        """Derivatives of the rows `index` (`b x s`, -1 for none), some at a time."""
        size = (_ON_GPU if index.is_cuda else _ON_CPU) * self.chunk
        step = max(1, size // (self._width * self.dtype.itemsize))
        step += step % 2 if self.both else 0
        for part, count in alike(index, self.sizes, step):
            # Radii may be too small for half precision: there they are measured in the largest one.
            unit = None if self.rough is None else _largest(tensors[0][part])
            for rows in index[part, :count].split(step, 1):
                yield _Piece(part, rows, self._derivatives(rows, part, tensors, unit), unit)

    def _derivatives(
        self, index: Tensor, part: slice | Tensor, tensors: Sequence[Tensor], unit: Tensor | None
    ) -> list[Coefficients | Through]:
        walk = self._walk(tensors, part, True, unit)
        rows = index.clamp_min(0)
        if self.rows is not None:
            own = self.rows[part] if self.rows.shape[0] > 1 else self.rows
            own = own.expand(len(index), -1, -1).to(self.dtype)
            start: dict[int, Coefficients] = {}
            start[self.node] = self._shaped(own.gather(1, rows[..., None].expand(-1, -1, own.shape[-1])))
            walk.down(start)
        elif self.chosen is not None:
            self._down_chosen(self.chosen[part].gather(1, rows).clamp_min(0), walk)
        else:
            walk.down(unit_rows(walk, self.node, rows, self.dtype))
        return walk.up(self.route.ancestors)


def _largest(radius: Tensor) -> Tensor:
    """The largest radius of each input, `m`, and 1 where all are zero."""
    found = radius.flatten(1).amax(1)
    return torch.where(found > 0, found, 1.0)
