"""A place of a convolutional layer depends on a small part of the image: coefficients kept for that part alone.

Rows of neighbouring places, a *block*, are carried back together over the window that they reach; windows grow from
layer to layer, and once an operation knows no window (a flattening, say) the coefficients become whole. This saves
the products with zeros, which for the early layers of a deep network are nearly all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.network.graph import Network, Node
from elbowroom.network.operations import Shape
from elbowroom.search.bounds.maps import MAPS, map_of
from elbowroom.search.bounds.relaxations import TABLE
from elbowroom.search.bounds.windows import Window, hull, margins

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
    return F.pad(c.a, margins(c.at, [slice(0, n) for n in shape[1:]]))


def total(x: Coefficients, y: Coefficients, shape: Shape) -> Coefficients:
    """The sum of coefficients that arrive at one node on two ways."""
    if not (isinstance(x, Patch) and isinstance(y, Patch)):
        return whole(x, shape) + whole(y, shape)
    at = hull(x.at, y.at)
    return Patch(F.pad(x.a, margins(x.at, at)) + F.pad(y.a, margins(y.at, at)), at)


def back(net: Network, node: Node, c: Coefficients) -> list[Coefficients]:
    """Coefficients over an affine node as coefficients over each of its inputs."""
    op, row = node.op, map_of(node)
    shapes = [net.nodes[j].shape for j in node.inputs]
    if isinstance(c, Patch):
        below = row.reach(op, c.at, node.shape, shapes)
        if below is not None:
            parts = row.adjoint_at(op, c.a.flatten(0, 1), c.at, below, shapes)
            return [Patch(part.reshape(*c.a.shape[:2], *part.shape[1:]), below) for part in parts]
    a = whole(c, node.shape)
    parts = row.adjoint(op, a.flatten(0, 1), shapes)
    return [part.reshape(*a.shape[:2], *shape) for part, shape in zip(parts, shapes)]


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
        window = None if below is None else _reach(net, here, below)
        for j in here.inputs:
            old = found.get(j, window)
            if window is None or old is None:
                found[j] = None
            else:
                found[j] = hull(window, old)
    return found


def _reach(net: Network, node: Node, at: Window) -> Window | None:
    """The places of the inputs that these places of the node depend on; None where no window is known."""
    row = MAPS.get(type(node.op))
    if row is not None:
        return row.reach(node.op, at, node.shape, [net.nodes[j].shape for j in node.inputs])
    relaxed = TABLE.get(type(node.op))
    return at if relaxed is not None and relaxed.univariate else None


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
        row = MAPS.get(type(node.op))
        work += size * (16 + (row.products(node.op) if row is not None else 0))
        widest = max(widest, size)
    return work, widest


__all__ = ["Coefficients", "Patch", "Plan", "back", "blocks", "cut", "like", "numbers", "plan", "total", "whole"]
