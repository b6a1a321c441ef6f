"""Where rows begin: those of the (signed) identity over a node, a step further down where that is free."""

from __future__ import annotations

import math
from collections.abc import Container

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.search.bounds.coefficients import Coefficients, Columns, Geometry, Patch, Places
from elbowroom.search.bounds.fused import rows_of
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.bounds.walk import Steps


def unit_rows(steps: Steps, node: int, index: Tensor, dtype: torch.dtype) -> dict[int, Coefficients]:
    """Rows by number, `b x r`, of the identity over a node and, past its last, of the negative one."""
    here = steps.net.nodes[node]
    row = MAPS.get(type(here.op)) if len(here.shape) == 1 else None
    matrix = None if row is None else row.matrix(here.op)
    if matrix is not None:
        below = here.inputs[0]
        columns = steps.columns(below)
        if columns is None:
            return {below: rows_of(matrix, index, signed=True)}
        return {below: Columns(rows_of(matrix, index, columns, signed=True), columns)}
    sign = torch.where(index < here.size, 1.0, -1.0).to(dtype)[..., None]
    index, at = index % here.size, steps.plan[node]
    if at is not None:
        return _unit_windows(steps, node, index, sign, at)
    unit = sign.new_zeros(*index.shape, here.size).scatter_(-1, index[..., None], sign)
    return {node: unit.reshape(*unit.shape[:2], *here.shape)}


def _unit_windows(steps: Steps, node: int, index: Tensor, sign: Tensor, at: Geometry) -> dict[int, Coefficients]:
    """The same as windows of one place each; a convolution's rows are its kernels."""
    here = steps.net.nodes[node]
    began, op = tuple(here.shape[1:]), here.op
    place = Places.of(index % math.prod(began), began)
    index = index // math.prod(began)
    if type(op) is ops.Conv and op.groups == 1 and max(op.dilation) == 1:
        kernels = op.weight.movedim(1, -1).contiguous()
        kernels = kernels.index_select(0, index.flatten()).unflatten(0, index.shape)
        a = kernels * sign.reshape(*sign.shape, *[1] * (kernels.dim() - 3))
        reached = MAPS[ops.Conv].reach(op, at, here.shape, [steps.net.nodes[here.inputs[0]].shape])
        assert reached is not None
        below: dict[int, Coefficients] = {}
        steps.give(here.inputs[0], Patch(a, place, reached, False), below)
        return below
    unit = sign.new_zeros(*index.shape, here.shape[0]).scatter_(-1, index[..., None], sign)
    return {node: Patch(unit.reshape(*index.shape, *at.size, here.shape[0]), place, at, True)}


def down_to_lines(steps: Steps, coefficients: dict[int, Coefficients], ends: Container[int]) -> dict[int, Coefficients]:
    """Carries coefficients back to the first of the nodes `ends`: as far as they are the same for all inputs."""
    while (top := max(coefficients)) not in ends:
        steps.affine(top, coefficients)
    return coefficients


__all__ = ["down_to_lines", "unit_rows"]
