"""What is known of the way of rows from a node down to the input before any number is: found once per network."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from elbowroom.network.graph import Network, Node
from elbowroom.search.bounds.coefficients import Geometry
from elbowroom.search.bounds.front import Front, Nodes
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.bounds.relaxations import TABLE
from elbowroom.search.bounds.wide import Entry
from elbowroom.search.regions.input_set import InputSet

Plan = dict[int, Geometry | None]  # per node: the windows of rows over it; None: rows are over all of it
_NEARLY_ALL = 0.7  # of the places of a node: windows so large bring nothing


@dataclass(frozen=True, eq=False)
class Route:
    """`front`: what rows see of the network, if not all. (It is not kept in here: nobody else may need it any more.)
    `ancestors`: the nodes that the rows depend on, in
    topological order. `entry`: where they end, if not at the input. `widest`: the most numbers of a row."""

    front: Front | None
    ancestors: list[int]
    plan: Plan
    entry: Entry | None
    widest: int

    @staticmethod
    def of(net: Network, inputs: InputSet, node: int, unit: bool, rough: bool) -> Route:
        """Of rows over a node. `unit`: of rows over single entries; `rough`: in half precision, which see all of it."""
        known = _KNOWN.setdefault(net, {})
        # (Networks are on one device, and so are their inputs.)
        key = node, unit, inputs.is_box, rough
        found = known.get(key)
        if found is None or (found.front is not None and not found.front.is_current):
            found = known[key] = _made(net, inputs, node, unit, rough)
        return found


_KNOWN: weakref.WeakKeyDictionary[Network, dict[tuple[int, bool, bool, bool], Route]] = weakref.WeakKeyDictionary()


def _made(net: Network, inputs: InputSet, node: int, unit: bool, rough: bool) -> Route:
    front = Front.of(net) if inputs.is_box and inputs.center.device.type == "cpu" and not rough else None
    if front is not None and node < front.entrance.node:
        front = None
    seen: Nodes = net if front is None else front
    ancestors = net_ancestors(seen, node)
    windows = plan(seen, node, ancestors, inputs.is_box) if unit else dict.fromkeys(ancestors)
    entry = Entry.of(seen, inputs)
    # Unit rows over the entry itself are those of its matrix: nothing is left to multiply.
    if entry is not None and entry.node > (node - 1 if unit else node):
        entry = None
    first = 0 if entry is None else entry.node
    return Route(front, ancestors, windows, entry, widest(seen, {i: windows[i] for i in windows if i >= first}))


def net_ancestors(net: Nodes, node: int) -> list[int]:
    """The nodes that `node` depends on, itself included, in topological order."""
    needed, stack = {node}, [node]
    while stack:
        for j in net.nodes[stack.pop()].inputs:
            if j not in needed:
                needed.add(j)
                stack.append(j)
    return sorted(needed)


def plan(net: Nodes, node: int, ancestors: Sequence[int], at_input: bool) -> Plan:
    """The windows of unit rows over a node. `at_input`: also over the input."""
    found: Plan = dict.fromkeys(ancestors)
    shape = net.nodes[node].shape
    if not 2 <= len(shape) <= 4:
        return found
    met = {node: True}
    found[node] = Geometry.point(len(shape) - 1)
    for i in reversed(ancestors):
        here, at = net.nodes[i], found[i]
        if at is not None and i != node:
            everywhere = _NEARLY_ALL * math.prod(here.shape[1:]) <= math.prod(at.size)
            at = found[i] = None if everywhere or (i == 0 and not at_input) else at
        below = None if at is None or i == 0 else _reach(net, here, at)
        for j in here.inputs:
            old = found[j]
            found[j] = below if j not in met else old.hull(below) if old is not None and below is not None else None
            met[j] = True
    return found


def _reach(net: Nodes, node: Node, at: Geometry) -> Geometry | None:
    """The windows over the inputs that these windows over the node depend on; None where they are not known."""
    row = MAPS.get(type(node.op))
    if row is not None:
        return row.reach(node.op, at, node.shape, [net.nodes[j].shape for j in node.inputs])
    relaxed = TABLE.get(type(node.op))
    return at if relaxed is not None and relaxed.univariate else None


def widest(net: Nodes, plan: Plan) -> int:
    """The most numbers that a row has over any node."""
    return max(net.nodes[i].size if at is None else at.numbers(net.nodes[i].shape[0]) for i, at in plan.items())


__all__ = ["Plan", "Route", "net_ancestors", "plan", "widest"]
