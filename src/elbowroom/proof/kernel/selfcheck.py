"""The proof's own maps held to the forward pass, once per network.

Transposes, absolute maps and windows are the proof's own code (`rows`, `relaxed`); what they must belong to is what the
operation computes. So every node is tried out before anything is proved of it, and a node where the two differ is
refused. What is compared:

- of an affine operation, `a @ L` against the forward pass: `(a @ L) x = a (f(x) - f(0))` for several rows and inputs at
  once; `|L| r` against the rows themselves, `|e_i @ L| r`, and against the forward pass with absolute parameters;
- its offset: there is one where `f(0)` is not zero, and its stated size is no less than that;
- of max-pooling, the windows against the maximum that the forward pass takes;
- of everything that is not affine, intervals and lines against its values.

With small whole numbers in place of parameters, inputs and rows, all sums are exact, so that a map with one wrong entry
differs by a whole number, however small the parameters of the network are. The stored parameters are tried as well, up
to rounding. Operations that divide or take roots are compared up to rounding in both.

Rounding terms cannot be seen here: they are what tests by exact arithmetic are for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from elbowroom.errors import UnsupportedError
from elbowroom.machine.torch_modes import CUDNN_OFF
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network, Node
from elbowroom.network.operations import Operation, Shape
from elbowroom.proof.kernel.relaxed import RELAXED, windows
from elbowroom.proof.kernel.rows import AFFINE

_ROWS = 6  # rows and inputs tried against each other
_PART = 1 << 18  # numbers that are drawn at a time
_UNITS, _NUMBERS = 32, 1 << 21  # outputs whose rows are looked at one by one, and numbers in those at most
_TRIALS = 16  # of windows, per place of the kernel
_MOST = 1 << 20  # numbers in all trials of windows
_ENTRIES, _EDGE = 256, 8  # of an activation that are tried: of a vector, or along each of several axes
_FAR = 1e6  # numbers of an operation around which nothing is tried any more
_ROUNDED = 1e-9  # relative: far more than rounding may be, far less than a wrong entry
_ROUNDING = (ops.Divide, ops.BatchNorm, ops.Mean, ops.AvgPool)  # also of whole numbers

# The nodes that passed. A network whose nodes were exchanged is tried again; parameters that were changed in place
# change forward pass and maps alike.
_passed: WeakKeyDictionary[Network, tuple[Node, ...]] = WeakKeyDictionary()


def refuse_other_maps(net: Network) -> None:
    """Raises `UnsupportedError`, naming every node whose maps are not those of its forward pass. Every operation must
    have a row."""
    given, known = tuple(net.nodes), _passed.get(net)
    if known is not None and len(known) == len(given) and all(a is b for a, b in zip(known, given)):
        return
    with torch.no_grad(), CUDNN_OFF.hold():
        draw = torch.Generator().manual_seed(0)
        # A cast that the proof will ask for, too. It must not be changed.
        stored = net.exact().nodes[1:]
        reasons = [f"{node.name}: {why}" for node in stored for why in _faults(net, node, draw)]
    if reasons:
        raise UnsupportedError(
            "the strict check refuses operations whose own maps are not those of the forward pass: "
            + "; ".join(reasons)
        )
    _passed[net] = given


def _faults(net: Network, node: Node, draw: torch.Generator) -> list[str]:
    shapes = [net.nodes[j].shape for j in node.inputs]
    stored = node.op
    if type(stored) is ops.MaxPool:
        return _pool_faults(stored, node.shape, shapes[0], draw)
    if type(stored) in RELAXED:
        return _line_faults(*_sampled(stored, node.shape), draw)
    exact = type(stored) not in _ROUNDING
    found = _affine_faults(_whole(stored, draw), node.shape, shapes, draw, exact, ours=True)
    return found or _affine_faults(stored, node.shape, shapes, draw, exact=False, ours=False)


# --- affine operations


def _numbers(draw: torch.Generator, *shape: int) -> Tensor:
    """Whole numbers from 1 to 7 in size, none of them zero."""
    return _drawn(draw, shape, torch.float64)


def _drawn(draw: torch.Generator, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    found = torch.empty(tuple(shape), dtype=dtype)
    for part in found.view(-1).split(_PART):  # of a large matrix no second one is written
        # In a type that can be drawn in: not all can.
        sign, size = (torch.empty(part.shape, dtype=torch.float64) for _ in range(2))
        sign.random_(0, 2, generator=draw).mul_(2).sub_(1)
        part.copy_(size.random_(1, 8, generator=draw).mul_(sign))
    return found


def _whole(op: Operation, draw: torch.Generator) -> Operation:
    """The same operation with small whole numbers for parameters."""
    if type(op) is ops.Add:
        return ops.Add(tuple(_numbers(draw, len(op.signs)).tolist()))
    found = op.map_tensors(lambda t: _drawn(draw, t.shape, t.dtype))  # in its own type: see `ops.Linear`
    return dataclasses.replace(found, var=found.var.abs()) if type(found) is ops.BatchNorm else found


def _affine_faults(
    op: Any, shape: Shape, shapes: Sequence[Shape], draw: torch.Generator, exact: bool, ours: bool
) -> list[str]:
    """`ours`: whether nobody else has the operation's parameters, which then may be written to."""
    row = AFFINE[type(op)]

    def same(found: Tensor, right: Tensor, size: Tensor) -> bool:
        """`size`: of what was added up."""
        if found.shape != right.shape or not bool(torch.isfinite(right).all() & torch.isfinite(found).all()):
            # Parameters near the ends of float64 overflow on both sides; whole numbers do not.
            return not exact and found.shape == right.shape
        return bool(((found - right).abs() <= (torch.zeros_like(size) if exact else _ROUNDED * size)).all())

    xs = [_numbers(draw, _ROWS, *s) for s in shapes]
    rows = _numbers(draw, _ROWS, *shape)
    moved = (op(*xs) - op(*map(torch.zeros_like, xs))).flatten(1)
    back = row.back(op, rows, shapes)
    if [tuple(t.shape) for t in back] != [(_ROWS, *s) for s in shapes]:
        return ["the transpose has another shape than the inputs"]
    sizes = row.sizes(op, *(x.abs() for x in xs))
    if tuple(sizes.shape) != (_ROWS, *shape):
        return ["the absolute map has another shape than the output"]
    zero = op(*(torch.zeros_like(x[:1]) for x in xs))
    stated = row.offset_size(op, zero)
    if stated is None and bool((zero != 0).any()):
        return ["the offset of the forward pass is left out"]
    added = torch.zeros_like(zero) if stated is None else stated.expand_as(zero)
    if bool((added < zero.abs() * (1 - _ROUNDED)).any()):
        return ["the offset is larger than its stated size"]
    offset = added.flatten(1)  # what was added up to get it, which may be more than is left
    through = rows.flatten(1).abs() @ (sizes.flatten(1) + offset).T
    product = sum((t.flatten(1) @ x.flatten(1).T for t, x in zip(back, xs)), torch.zeros(_ROWS, _ROWS).double())
    if not same(product, rows.flatten(1) @ moved.T, through):
        return ["the transpose is not that of the forward pass"]
    del back  # of a wide input as large as what follows
    most = max(1, min(_UNITS, _NUMBERS // max(x[0].numel() for x in (rows, *xs))))
    chosen = torch.randperm(rows[0].numel(), generator=draw)[:most]
    units = torch.zeros(len(chosen), rows[0].numel(), dtype=torch.float64)
    units[torch.arange(len(chosen)), chosen] = 1.0
    parts = row.back(op, units.reshape(-1, *shape), shapes)
    right = sum((t.flatten(1).abs() @ x.flatten(1).abs().T for t, x in zip(parts, xs)), torch.zeros(()).double())
    del parts
    found = sizes.flatten(1)[:, chosen].T
    positive = _absolute(op, ours)
    bound = positive(*(x.abs() for x in xs)) - positive(*map(torch.zeros_like, xs))
    if not same(found, right, right.abs()) or not same(sizes, bound, bound.abs() + offset.reshape(1, *shape)):
        return ["the absolute map is not that of the forward pass"]
    return []


def _absolute(op: Any, in_place: bool) -> Any:
    """The operation with absolute parameters, of which every coefficient is a product."""
    if type(op) is ops.Add:
        return ops.Add(tuple(map(abs, op.signs)))
    return op.map_tensors(lambda t: t.abs_() if in_place else t.abs())


# --- the others


def _pool_faults(op: ops.MaxPool, shape: Shape, input_shape: Shape, draw: torch.Generator) -> list[str]:
    """Different numbers everywhere, several times: a place that is missing under a window, or too many, shows where it
    would hold the largest of them. Then the lines, of a few channels."""
    seen = windows(op, shape, input_shape)
    places = [int(n) for n in input_shape[1:]]
    count = torch.Size(places).numel()
    trials = max(2, min(_TRIALS * seen.shape[1], _MOST // (count + seen.numel())))
    order = torch.stack([torch.randperm(count, generator=draw) for _ in range(trials)]).double()
    # Places numbered along one axis, either way: the first and the last that each window sees.
    along = torch.stack(torch.meshgrid(*(torch.arange(n).double() for n in places), indexing="ij")).flatten(1)
    order, trials = torch.cat([order, along, -along]), trials + 2 * len(along)
    padded = torch.cat([order, order.new_full((trials, 1), -torch.inf)], 1)
    right = op(order.reshape(trials, 1, *places)).flatten(1)
    found = padded[:, seen].amax(-1)
    if found.shape != right.shape or not bool((found == right).all()):
        return ["the windows are not those of the forward pass"]
    few, channels = 4 if count <= _MOST // 256 else 1, min(3, input_shape[0])
    return _line_faults(op, (channels, *shape[1:]), (channels, *places), draw, few)


def _sampled(op: Any, shape: Shape) -> tuple[Any, Shape, Shape]:
    """The activation on some of its entries alone: it treats each by itself, by its own slope where it has one, which
    broadcasts as it did."""
    small = tuple(min(n, _ENTRIES if len(shape) == 1 else _EDGE) for n in shape)
    slope = getattr(op, "slope", None)
    if isinstance(slope, Tensor):
        ends = small[len(small) - slope.dim() :]
        op = dataclasses.replace(op, slope=slope[tuple(slice(0, n) for n in ends)].clone())
    return op, small, small


def _centers(op: Any) -> list[float]:
    """Where something may happen: at zero, and at the numbers of the operation's own fields."""
    values = (getattr(op, field.name) for field in dataclasses.fields(op))
    return [0.0, *(v for v in values if isinstance(v, float) and abs(v) < _FAR)]


def _line_faults(op: Any, shape: Shape, given: Shape, draw: torch.Generator, count: int = 12) -> list[str]:
    """Intervals of all widths, some across zero; what the operation does at points of them must lie within. `given`:
    the shape of its input. Where numbers overflow there is nothing to compare."""
    row, points = RELAXED[type(op)], 9
    centers = torch.tensor(_centers(op), dtype=torch.float64)
    around = centers[torch.randint(len(centers), (count, *given), generator=draw)]
    middle = around + 3 * torch.randn(count, *given, generator=draw, dtype=torch.float64)
    width = 10.0 ** torch.empty(count, *given, dtype=torch.float64).uniform_(-5, 2.5, generator=draw)
    low, high = middle - width, middle + width
    share = torch.linspace(0, 1, points, dtype=torch.float64).reshape(-1, *[1] * low.dim())
    # All entries at the same share of their intervals, and each at its own.
    own = torch.rand(points, *low.shape, generator=draw, dtype=torch.float64)
    at = torch.cat([low + share * (high - low), low + own * (high - low)])
    value = op(at.flatten(0, 1)).reshape(2 * points, count, *shape)

    def wrong(slack: Tensor, *sizes: Tensor) -> bool:
        size = 1 + sum((s.abs().nan_to_num(posinf=0.0) for s in sizes), torch.zeros_like(slack))
        return bool((torch.isfinite(value) & (slack < -_ROUNDED * size)).any())  # false of NaN

    least, most = row.interval(op, shape, [low], [high])
    if wrong(value - least, value) or wrong(most - value, value):
        return ["the interval is not that of the forward pass"]
    for parallel in (False, True):
        planes = row.planes(op, shape, [low], [high], parallel)
        (term,) = planes.terms
        x = at
        if term.source is not None:
            x = at.flatten(2).gather(2, term.source.expand(2 * points, -1, -1))
        x = x.reshape(value.shape)
        for k, m, sign in ((term.lower, planes.lower, 1.0), (term.upper, planes.upper, -1.0)):
            if wrong(sign * (value - (k * x + m)), value, k * x, m):
                return ["the lines are not valid for the forward pass"]
    return []
