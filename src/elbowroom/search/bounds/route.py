"""What is known of the way of rows from a node down to the input before any number is: found once per network."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from elbowroom.network.graph import Network
from elbowroom.search.bounds.front import Front, Nodes
from elbowroom.search.bounds.walk import Plan, plan, widest
from elbowroom.search.bounds.wide import Entry
from elbowroom.search.regions.input_set import InputSet


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


__all__ = ["Route", "net_ancestors"]
