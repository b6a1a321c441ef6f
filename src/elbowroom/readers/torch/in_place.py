"""Operations that write over a value which nobody looks at again, as those that make a new one."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from elbowroom.readers.torch.aten import HANDLERS

aten = torch.ops.aten

# What they give lies in memory of its own, always: a view, or a dropout that does nothing, may be its input.
_NEW = {
    aten.linear.default, aten.matmul.default, aten.mm.default, aten.addmm.default, aten.conv1d.default,
    aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding, aten.conv3d.default, aten.conv3d.padding,
    aten.batch_norm.default, aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.relu.default,
}  # fmt: skip


def out_of_place(graph: fx.Graph) -> dict[fx.Node, torch._ops.OpOverload]:
    """The nodes that write into their first argument, a new value that is nobody else's, and what does the same
    without; of operations that are known. Others, such as one into a view or a value used again, are left out."""
    found: dict[fx.Node, torch._ops.OpOverload] = {}
    for node in graph.nodes:
        plain = _plain(node)
        if plain is None or not node.args:
            continue
        over = node.args[0]
        if isinstance(over, fx.Node) and len(over.users) == 1 and (over.target in _NEW or over in found):
            kinds = {n.meta["val"].dtype for n in (node, *node.all_input_nodes) if isinstance(n.meta["val"], Tensor)}
            if len(kinds) == 1:  # a value keeps its type where it is written over
                found[node] = plain
    return found


def _plain(node: fx.Node) -> torch._ops.OpOverload | None:
    """Of an operation in place, the one that is not, if it is known."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return None
    name = target._schema.name.removeprefix("aten::")
    writes = [a.alias_info is not None and a.alias_info.is_write for a in target._schema.arguments]
    if not name.endswith("_") or not writes[0] or any(writes[1:]):
        return None
    packet = getattr(aten, name[:-1], None)
    plain = None if packet is None else getattr(packet, target._overloadname, None)
    return plain if plain in HANDLERS else None


__all__ = ["out_of_place"]
