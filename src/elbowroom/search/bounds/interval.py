"""The paper's *simple* algorithm (Algorithm 4): intervals, one operation at a time."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from elbowroom.network.graph import Node
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.bounds.relaxations import row_of


def interval(
    node: Node, lowers: Sequence[Tensor], uppers: Sequence[Tensor], center: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The node's interval from those of its inputs; every tensor `b x *shape`. `center`: of an affine node, its value
    in the middle of them, where that is known.

    Affine maps act on centre and radius, `W c + b` and `|W| r`: the same as
    `W_+ l + W_- u + b` with half the products.
    """
    row = MAPS.get(type(node.op))
    if row is None:
        return row_of(node).interval(node.op, lowers, uppers)
    if center is None:
        center = node.op(*((l + u) / 2 for l, u in zip(lowers, uppers)))
    radius = row.absolute(node.op, *((u - l) / 2 for l, u in zip(lowers, uppers)))
    return center - radius, center + radius
