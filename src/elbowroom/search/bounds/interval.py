"""The paper's *simple* algorithm (Algorithm 4): intervals, one operation at a time."""

from __future__ import annotations

from torch import Tensor

from elbowroom.network.graph import Node
from elbowroom.network.operations import Activation, Affine, MaxPool, Shape
from elbowroom.search.bounds.max_pool import max_pool_interval
from elbowroom.search.bounds.relaxations import activation_interval


def interval(node: Node, lowers: list[Tensor], uppers: list[Tensor], shapes: list[Shape]) -> tuple[Tensor, Tensor]:
    """The node's interval from those of its inputs; every tensor `b x *shape`.

    Affine maps act on centre and radius, `W c + b` and `|W| r`: the same as
    `W_+ l + W_- u + b` with half the products.
    """
    op = node.op
    if isinstance(op, Affine):
        center = op(*((l + u) / 2 for l, u in zip(lowers, uppers)))
        radius = op.absolute().linear(*((u - l) / 2 for l, u in zip(lowers, uppers)))
        return center - radius, center + radius
    if isinstance(op, MaxPool):
        windows = op.windows(shapes[0]).to(lowers[0].device)
        return max_pool_interval(windows, lowers[0], uppers[0], node.shape)
    assert isinstance(op, Activation)
    return activation_interval(op, lowers[0], uppers[0])
