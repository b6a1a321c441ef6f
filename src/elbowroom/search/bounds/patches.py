"""A place of a convolutional layer depends on a small part of the image: coefficients kept for that part alone.

Rows of neighbouring places, a *block*, are carried back together over the window that they reach; windows grow from
layer to layer, and once an operation knows no window (a flattening, say) the coefficients become whole. This saves
the products with zeros, which for the early layers of a deep network are nearly all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Network, Node
from elbowroom.network.operations import Shape

Window = tuple[slice, ...]  # places of a node `c x *spatial`, a slice per spatial axis

# What carrying one number back costs, and what every step of a block costs besides, in seconds. Only ratios matter,
# and only roughly: they decide how large blocks are.
_SECONDS = {"cpu": (2e-11, 4e-5), "cuda": (1e-13, 4e-5)}
_EDGES = (1, 2, 4, 8, 16)
_WORTHWHILE = 0.5  # of the estimate for whole rows: small products are less efficient than it says


@dataclass(frozen=True, eq=False)
class Patch:
    """Coefficients `b x r x c x *window` over the places `at` of a node; zero over the others."""

    a: Tensor
    at: Window


Coefficients = Tensor | Patch  # the former over the whole node


def numbers(c: Coefficients) -> Tensor:
    return c.a if isinstance(c, Patch) else c


def like(c: Coefficients, a: Tensor) -> Coefficients:
    """Other numbers over the same places."""
    return Patch(a, c.at) if isinstance(c, Patch) else a


def cut(t: Tensor, c: Coefficients) -> Tensor:
    """Of `t`, `b x c x *spatial`, the places that `c` is about."""
    return t[(slice(None), slice(None), *c.at)] if isinstance(c, Patch) else t


def whole(c: Coefficients, shape: Shape) -> Tensor:
    """Coefficients over all of a node of this shape."""
    if not isinstance(c, Patch):
        return c
    return F.pad(c.a, _margins(c.at, [slice(0, n) for n in shape[1:]]))


def total(x: Coefficients, y: Coefficients, shape: Shape) -> Coefficients:
    """The sum of coefficients that arrive at one node on two ways."""
    if not (isinstance(x, Patch) and isinstance(y, Patch)):
        return whole(x, shape) + whole(y, shape)
    at = tuple(slice(min(s.start, t.start), max(s.stop, t.stop)) for s, t in zip(x.at, y.at))
    return Patch(F.pad(x.a, _margins(x.at, at)) + F.pad(y.a, _margins(y.at, at)), at)


def _margins(inner: Sequence[slice], outer: Sequence[slice]) -> list[int]:
    """What `F.pad` must add to get from one window to another (or, negative, cut off)."""
    ends = [(i.start - o.start, o.stop - i.stop) for i, o in zip(inner, outer)]
    return [n for pair in reversed(ends) for n in pair]


# --- past an affine operation


def back(net: Network, node: Node, c: Coefficients) -> list[Coefficients]:
    """Coefficients over an affine node as coefficients over each of its inputs."""
    assert isinstance(node.op, ops.Affine)
    shapes = [net.nodes[j].shape for j in node.inputs]
    if isinstance(c, Patch):
        at = reach(node, shapes, c.at)
        if at is not None:
            return [Patch(a, at) for a in _adjoint(node.op, c, at, shapes)]
    a = whole(c, node.shape)
    parts = node.op.adjoint(a.flatten(0, 1), shapes)
    return [part.reshape(*a.shape[:2], *shape) for part, shape in zip(parts, shapes)]


def reach(node: Node, shapes: Sequence[Shape], at: Window) -> Window | None:
    """The places of the inputs that these places of the node depend on; None where no window is known."""
    op, same = node.op, all(s == node.shape for s in shapes)
    match op:
        case ops.Conv() | ops.AvgPool():
            if isinstance(op, ops.AvgPool) and (op.ceil_mode or max(op.padding) > 0):
                return None
            return tuple(
                slice(max(0, first), min(n, last)) for (first, last), n in zip(_extents(op, at), shapes[0][1:])
            )
        case ops.BatchNorm():
            return at
        case ops.Scale() | ops.Divide() | ops.Shift() | ops.Add():
            return at if same else None
        case ops.Concat():
            return at if op.axis in (0, -len(node.shape)) else None
        case _:
            return None


def _extents(op: ops.Conv | ops.AvgPool, at: Window) -> list[tuple[int, int]]:
    """First and last place (not included) under the windows of the places `at`, the padding counted from -padding."""
    if isinstance(op, ops.Conv):
        kernel, padding, dilation = tuple(op.weight.shape[2:]), op.padding, op.dilation
    else:
        kernel, padding, dilation = op.kernel, (0,) * len(op.kernel), (1,) * len(op.kernel)
    return [
        (s.start * step - p, (s.stop - 1) * step - p + d * (k - 1) + 1)
        for s, step, p, d, k in zip(at, op.stride, padding, dilation, kernel)
    ]


def _adjoint(op: ops.Operation, c: Patch, at: Window, shapes: Sequence[Shape]) -> list[Tensor]:
    """The coefficients over each input at the places `at`, which `reach` gave."""
    a, lead = c.a, c.a.shape[:2]
    match op:
        case ops.Conv() | ops.AvgPool():
            extents = _extents(op, c.at)
            local = (shapes[0][0], *(last - first for first, last in extents))
            plain = replace(op, padding=(0,) * len(extents))
            (found,) = plain.adjoint(a.flatten(0, 1), [local])
            found = F.pad(found, _margins([slice(*e) for e in extents], at))
            return [found.reshape(*lead, *found.shape[1:])]
        case ops.BatchNorm():
            return [op.linear(a.flatten(0, 1)).reshape(a.shape)]
        case ops.Scale(factor=t):
            return [a * _cut_constant(t, at)]
        case ops.Divide(divisor=t):
            return [a / _cut_constant(t, at)]
        case ops.Add():
            return [a if sign == 1 else a * sign for sign in op.signs]
        case ops.Concat():
            return list(a.split([s[0] for s in shapes], dim=2))
        case _:
            assert isinstance(op, ops.Shift)
            return [a]


def _cut_constant(t: Tensor, at: Window) -> Tensor:
    """Of a constant that broadcasts from the right, the places `at`."""
    spatial = min(t.dim(), len(at))
    chosen = [s if n > 1 else slice(None) for s, n in zip(at[len(at) - spatial :], t.shape[t.dim() - spatial :])]
    return t[(slice(None),) * (t.dim() - spatial) + tuple(chosen)]


# --- blocks


def blocks(shape: Shape, edge: int) -> Iterator[Window]:
    """The node's places in blocks of `edge` along each axis."""
    sides = [[slice(k, min(k + edge, n)) for k in range(0, n, edge)] for n in shape[1:]]
    yield from itertools.product(*sides)


@dataclass(frozen=True)
class Plan:
    """Blocks of `edge` places along each axis; `widest`: the most numbers a row then has over any node."""

    edge: int
    widest: int


def plan(net: Network, node: int, ancestors: Sequence[int], batch: int, device: torch.device) -> Plan | None:
    """How to cut the rows of a node; None where blocks do not pay."""
    shape = net.nodes[node].shape
    if not 2 <= len(shape) <= 4:
        return None
    per_number, per_step = _SECONDS.get(device.type, _SECONDS["cpu"])
    whole_rows = batch * net.nodes[node].size * per_number * _cost(net, dict.fromkeys(ancestors))[0]
    best, least = None, _WORTHWHILE * whole_rows
    for edge in _EDGES:
        if edge >= max(shape[1:]):
            break
        middle = tuple(slice(max(0, n // 2 - edge // 2), min(n, n // 2 - edge // 2 + edge)) for n in shape[1:])
        work, widest = _cost(net, _windows(net, node, middle, ancestors))
        count = sum(1 for _ in blocks(shape, edge))
        seconds = batch * net.nodes[node].size * per_number * work + count * len(ancestors) * per_step
        if seconds < least:
            best, least = Plan(edge, widest), seconds
    return best


def _windows(net: Network, node: int, at: Window, ancestors: Sequence[int]) -> dict[int, Window | None]:
    """The window of every ancestor; None where it is the whole node."""
    found: dict[int, Window | None] = {node: at}
    for i in reversed(ancestors):
        here, below = net.nodes[i], found.get(i)
        shapes = [net.nodes[j].shape for j in here.inputs]
        if isinstance(here.op, ops.Activation):
            window = below
        else:
            window = None if below is None or not shapes else reach(here, shapes, below)
        for j in here.inputs:
            old = found.get(j, window)
            if window is None or old is None:
                found[j] = None
            else:
                found[j] = tuple(slice(min(s.start, t.start), max(s.stop, t.stop)) for s, t in zip(window, old))
    return found


def _cost(net: Network, windows: dict[int, Window | None]) -> tuple[float, int]:
    """Products and moves per row, and the most numbers a row has over any node."""
    work, widest = 0.0, 1
    for i, at in windows.items():
        node = net.nodes[i]
        size = node.size
        if at is not None:
            size = node.shape[0]
            for s in at:
                size *= s.stop - s.start
        weight = getattr(node.op, "weight", None)
        products = weight[0].numel() if isinstance(node.op, ops.Conv | ops.Linear) and weight is not None else 0
        work += size * (16 + products)
        widest = max(widest, size)
    return work, widest


__all__ = ["Coefficients", "Patch", "Plan", "back", "blocks", "cut", "like", "numbers", "plan", "total", "whole"]
