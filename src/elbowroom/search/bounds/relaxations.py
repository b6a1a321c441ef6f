"""What is not affine: one table, one row per operation, by its exact type. How lines follow from a row: `lines`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Node
from elbowroom.search.bounds.lines import convex, enveloped, like, piecewise, s_shaped, wavy
from elbowroom.search.bounds.max_pool import MaxPooling
from elbowroom.search.bounds.planes import Relaxed
from elbowroom.search.bounds.rectifier import Rectifier


def _sigmoid_slope(op: Any, x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)


def _sigmoid_stationary(k: Tensor) -> Tensor:
    q = (1 - 4 * k).clamp_min(0).sqrt()
    return 2 * torch.log((1 + q) / (2 * k.sqrt()))


def _tanh_slope(op: Any, x: Tensor) -> Tensor:
    return 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)  # 1 - tanh^2 without the cancellation


def _tanh_stationary(k: Tensor) -> Tensor:
    return torch.log((1 + (1 - k).clamp_min(0).sqrt()) / k.sqrt())


def _arctan_slope(op: Any, x: Tensor) -> Tensor:
    return 1 / (1 + x * x)


def _arctan_stationary(k: Tensor) -> Tensor:
    return (1 / k - 1).clamp(0, torch.finfo(k.dtype).max).sqrt()


def _elu_slope(op: ops.ELU, x: Tensor) -> Tensor:
    return torch.where(x > 0, 1.0, op.alpha * torch.exp(x.clamp_max(0)))


def _elu_points(op: ops.ELU, k_l: Tensor, k_u: Tensor, l: Tensor, u: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    kink = torch.zeros_like(k_u)  # concave for alpha above 1
    return [torch.log(k_l.clamp_min(torch.finfo(k_l.dtype).tiny) / op.alpha).clamp_max(0)], [kink]


def _softplus_slope(op: ops.Softplus, x: Tensor) -> Tensor:
    return torch.sigmoid(op.beta * x)


def _softplus_points(
    op: ops.Softplus, k_l: Tensor, k_u: Tensor, l: Tensor, u: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    info = torch.finfo(k_l.dtype)
    return [torch.logit(k_l.clamp(info.tiny, 1 - info.eps)) / op.beta], []


def _silu_slope(op: Any, x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s + x * s * torch.sigmoid(-x)


def _gelu_slope(op: ops.GELU, x: Tensor) -> Tensor:
    if not op.tanh:
        density = torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return 0.5 * torch.erfc(x * -math.sqrt(0.5)) + x * density
    c = 2 * math.sqrt(2 / math.pi)
    # x^2 is capped where the sigmoid is already flat, lest infinity times zero appear.
    y = x.clamp(-1e4, 1e4)
    p = c * (y + 0.044715 * y**3)
    s = torch.sigmoid(p)
    return s + y * s * torch.sigmoid(-p) * c * (1 + 3 * 0.044715 * y * y)


def _elu_slopes(op: ops.ELU, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    return (_ELU.slopes if op.alpha <= 1 else _ELU_ENVELOPED)(op, l, u)


def _leaky_slope(op: ops.LeakyReLU, x: Tensor) -> Tensor:
    return torch.where(x > 0, torch.ones_like(x), like(op.slope, x))


def _clip_kinks(op: ops.Clip) -> tuple[float, ...]:
    return tuple(k for k in (op.low, op.high) if math.isfinite(k))


def _clip_slope(op: ops.Clip, x: Tensor) -> Tensor:
    return ((x > op.low) & (x < op.high)).to(x.dtype)


def _zero(op: Any) -> tuple[float, ...]:
    return (0.0,)


_SILU_BEND, _SILU_VALLEY = 2.3993572805154677, -1.2784645427610738
_GELU_BEND, _GELU_VALLEY = math.sqrt(2), -0.7517915246935645
_GELU_TANH_BEND, _GELU_TANH_VALLEY = 1.4185040087908284, -0.7524614220710163


def _gelu_bends(op: ops.GELU) -> tuple[float, float]:
    bend = _GELU_TANH_BEND if op.tanh else _GELU_BEND
    return (-bend, bend)


_ELU, _ELU_ENVELOPED = convex(_elu_slope, _elu_points), enveloped(_elu_slope)

TABLE: dict[type[ops.Operation], Relaxed] = {
    ops.ReLU: Rectifier(),
    ops.LeakyReLU: piecewise(_zero, _leaky_slope),
    ops.Clip: piecewise(_clip_kinks, _clip_slope),
    ops.Sigmoid: s_shaped(_sigmoid_slope, _sigmoid_stationary),
    ops.Tanh: s_shaped(_tanh_slope, _tanh_stationary),
    ops.Arctan: s_shaped(_arctan_slope, _arctan_stationary),
    ops.ELU: replace(_ELU, slopes=_elu_slopes),
    ops.Softplus: convex(_softplus_slope, _softplus_points),
    ops.SiLU: wavy(_silu_slope, lambda op: (-_SILU_BEND, _SILU_BEND), lambda op: (_SILU_VALLEY,)),
    ops.GELU: wavy(_gelu_slope, _gelu_bends, lambda op: (_GELU_TANH_VALLEY if op.tanh else _GELU_VALLEY,)),
    ops.MaxPool: MaxPooling(),
}


def row_of(node: Node) -> Relaxed:
    """The row of the operation of a node that is not affine."""
    try:
        return TABLE[type(node.op)]
    except KeyError:
        raise UnsupportedError(
            f"node {node.name}: the search knows neither a linear map nor lines of {node.op.name}"
        ) from None
