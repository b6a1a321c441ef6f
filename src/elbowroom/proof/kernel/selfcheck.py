"""The proof's own maps held to the forward pass, once per network.

Transposes, absolute maps and windows are the proof's own code (`rows`, `relaxed`); what they must belong to is what the
operation computes. So every node is tried out before anything is proved of it, and a node where the two differ is
refused. What is compared:

- of an affine operation, `a @ L` against the forward pass: `(a @ L) x = a (f(x) - f(0))` for several rows and inputs at
  once; `|L| r` against the rows themselves, `|e_i @ L| r`, and against the forward pass with absolute parameters;
- of max-pooling, the windows against the maximum that the forward pass takes;
- of an activation, intervals and lines against its values.

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
_UNITS = 32  # outputs whose rows are looked at one by one
_TRIALS = 16  # of windows, per place of the kernel
_MOST = 1 << 20  # numbers in all trials of windows
_ROUNDED = 1e-9  # relative: far more than rounding may be, far less than a wrong entry
_ROUNDING = (ops.Divide, ops.BatchNorm, ops.Mean, ops.AvgPool)  # also of whole numbers

# The operations that passed, in the order of the nodes. A network whose nodes were exchanged is tried again; parameters
# that were changed in place change forward pass and maps alike.
_passed: WeakKeyDictionary[Network, tuple[Operation, ...]] = WeakKeyDictionary()


def refuse_other_maps(net: Network) -> None:
    """Raises `UnsupportedError`, naming every node whose maps are not those of its forward pass. Every operation must
    have a row."""
    given = tuple(node.op for node in net.nodes)
    known = _passed.get(net)
    if known is not None and len(known) == len(given) and all(a is b for a, b in zip(known, given)):
        return
    with torch.no_grad(), CUDNN_OFF.hold():
        draw = torch.Generator().manual_seed(0)
        reasons = [f"{node.name}: {why}" for node in net.nodes[1:] for why in _faults(net, node, draw)]
    if reasons:
        raise UnsupportedError(
            "the strict check refuses operations whose own maps are not those of the forward pass: "
            + "; ".join(reasons)
        )
    _passed[net] = given


def _faults(net: Network, node: Node, draw: torch.Generator) -> list[str]:
    shapes = [net.nodes[j].shape for j in node.inputs]
    stored = node.op.map_tensors(lambda t: t.detach().to("cpu", torch.float64))
    if type(stored) is ops.MaxPool:
        return _pool_faults(stored, node.shape, shapes[0], draw)
    if type(stored) in RELAXED:
        return _activation_faults(stored, node.shape, draw)
    found = _affine_faults(_whole(stored, draw), node.shape, shapes, draw, exact=type(stored) not in _ROUNDING)
    return found or _affine_faults(stored, node.shape, shapes, draw, exact=False)


# --- affine operations


def _numbers(draw: torch.Generator, *shape: int) -> Tensor:
    """Whole numbers from 1 to 7 in size, none of them zero."""
    size = torch.randint(1, 8, shape, generator=draw)
    return (size * (2 * torch.randint(0, 2, shape, generator=draw) - 1)).double()


def _whole(op: Operation, draw: torch.Generator) -> Operation:
    """The same operation with small whole numbers for parameters."""
    if type(op) is ops.Add:
        return ops.Add(tuple(_numbers(draw, len(op.signs)).tolist()))
    found = op.map_tensors(lambda t: _numbers(draw, *t.shape))
    return dataclasses.replace(found, var=found.var.abs()) if type(found) is ops.BatchNorm else found


def _affine_faults(op: Any, shape: Shape, shapes: Sequence[Shape], draw: torch.Generator, exact: bool) -> list[str]:
    row = AFFINE[type(op)]

    def same(found: Tensor, right: Tensor, size: Tensor) -> bool:
        """`size`: of what was added up."""
        if found.shape != right.shape or not bool(torch.isfinite(right).all() & torch.isfinite(found).all()):
            # Parameters near the ends of float64 overflow on both sides; whole numbers do not.
            return not exact and found.shape == right.shape
        return bool(((found - right).abs() <= (0.0 if exact else _ROUNDED) * size).all())

    xs = [_numbers(draw, _ROWS, *s) for s in shapes]
    rows = _numbers(draw, _ROWS, *shape)
    moved = (op(*xs) - op(*map(torch.zeros_like, xs))).flatten(1)
    back = row.back(op, rows, shapes)
    if [tuple(t.shape) for t in back] != [(_ROWS, *s) for s in shapes]:
        return ["the transpose has another shape than the inputs"]
    sizes = row.sizes(op, *(x.abs() for x in xs))
    if tuple(sizes.shape) != (_ROWS, *shape):
        return ["the absolute map has another shape than the output"]
    offset = op(*(torch.zeros_like(x[:1]) for x in xs)).abs().flatten(1)
    through = rows.flatten(1).abs() @ (sizes.flatten(1) + offset).T
    product = sum((t.flatten(1) @ x.flatten(1).T for t, x in zip(back, xs)), torch.zeros(_ROWS, _ROWS).double())
    if not same(product, rows.flatten(1) @ moved.T, through):
        return ["the transpose is not that of the forward pass"]
    chosen = torch.randperm(rows[0].numel(), generator=draw)[:_UNITS]
    units = torch.zeros(len(chosen), rows[0].numel(), dtype=torch.float64)
    units[torch.arange(len(chosen)), chosen] = 1.0
    parts = row.back(op, units.reshape(-1, *shape), shapes)
    right = sum((t.flatten(1).abs() @ x.flatten(1).abs().T for t, x in zip(parts, xs)), torch.zeros(()).double())
    found = sizes.flatten(1)[:, chosen].T
    positive = _absolute(op)
    bound = positive(*(x.abs() for x in xs)) - positive(*map(torch.zeros_like, xs))
    if not same(found, right, right.abs()) or not same(sizes, bound, bound.abs() + offset.reshape(1, *shape)):
        return ["the absolute map is not that of the forward pass"]
    return []


def _absolute(op: Any) -> Any:
    """The operation with absolute parameters, of which every coefficient is a product."""
    if type(op) is ops.Add:
        return ops.Add(tuple(map(abs, op.signs)))
    return op.map_tensors(lambda t: t.abs())


# --- the others


def _pool_faults(op: ops.MaxPool, shape: Shape, input_shape: Shape, draw: torch.Generator) -> list[str]:
    """Different numbers everywhere, several times: a place that is missing under a window, or too many, shows where it
    would hold the largest of them."""
    seen = windows(op, shape, input_shape)
    places = [int(n) for n in input_shape[1:]]
    count = torch.Size(places).numel()
    trials = max(2, min(_TRIALS * seen.shape[1], _MOST // (count + seen.numel())))
    order = torch.stack([torch.randperm(count, generator=draw) for _ in range(trials)]).double()
    padded = torch.cat([order, order.new_full((trials, 1), -torch.inf)], 1)
    right = op(order.reshape(trials, 1, *places)).flatten(1)
    found = padded[:, seen].amax(-1)
    same = found.shape == right.shape and bool((found == right).all())
    return [] if same else ["the windows are not those of the forward pass"]


def _activation_faults(op: Any, shape: Shape, draw: torch.Generator) -> list[str]:
    """Intervals of all widths, some across zero; what the function does at points of them must lie within."""
    row, count, points = RELAXED[type(op)], 12, 9
    middle = torch.randn(count, *shape, generator=draw, dtype=torch.float64)
    width = 10.0 ** torch.empty(count, *shape, dtype=torch.float64).uniform_(-3, 1, generator=draw)
    low, high = 3 * middle - width, 3 * middle + width
    share = torch.linspace(0, 1, points, dtype=torch.float64).reshape(-1, *[1] * low.dim())
    at = low + share * (high - low)
    value = op(at.flatten(0, 1)).reshape(at.shape)
    least, most = row.interval(op, shape, [low], [high])
    slack = _ROUNDED * (1 + value.abs())
    if not bool(((value >= least - slack) & (value <= most + slack)).all()):
        return ["the interval is not that of the forward pass"]
    for parallel in (False, True):
        planes = row.planes(op, shape, [low], [high], parallel)
        (term,) = planes.terms
        for k, m, sign in ((term.lower, planes.lower, 1.0), (term.upper, planes.upper, -1.0)):
            size = 1 + value.abs() + (k * at).abs() + m.abs()
            if not bool((sign * (value - (k * at + m)) >= -_ROUNDED * size).all()):
                return ["the lines are not valid for the forward pass"]
    return []
