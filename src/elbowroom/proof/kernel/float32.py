"""What a network executed in IEEE float32 adds of its own: a bound on the error of every operation.

Every sum in any order, with or without fused multiply-add, with or without flushing subnormals to zero. Not
covered, and not to be claimed: TF32, bfloat16, Winograd, FFT or Strassen kernels, rewrites that change weights.

An operation that may overflow on the way has no error but infinity, and nothing is proved of that input any more
(`StrictBounds.overflowed`): what follows might turn infinity or NaN into any number.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network, Node
from elbowroom.proof.kernel.rounding import FLOAT32, SAFE
from elbowroom.proof.kernel.rows import AFFINE, size_of_offset

# What is assumed of float32 activations: this far off, relative to the value and absolutely. The products x Phi(x) and
# x sigmoid(x) multiply the gate's own error by x before it vanishes (measured: docs/soundness.md).
RELATIVE, ABSOLUTE, ABSOLUTE_GATED = 2.0**-20, 2.0**-20, 2.0**-17
# What divides is far from where flushing it, or its reciprocal, would matter by more than a rounding.
DIVISORS = (2.0**-100, 2.0**100)
_ETA = FLOAT32.eta  # also the smallest number that is not flushed


class Error(NamedTuple):
    """`noise`: how far off the result may be; `largest`: what no number on the way exceeds, roundings aside.

    Both broadcast to `b x *shape`. All noise has room for a result that is flushed where it is read to decide.
    """

    noise: Tensor
    largest: Tensor


def refuse_unfit(net: Network) -> None:
    """Raises `UnsupportedError`, naming every node, where the network cannot be claimed to run in float32."""
    reasons = [f"{node.name}: {reason}" for node in net.nodes[1:] for reason in _unfit(node.op)]
    if len(net.nodes) == 1:
        reasons.append("the network has no operations to execute")
    if reasons:
        raise UnsupportedError("the claim about float32 execution cannot be made: " + "; ".join(reasons))


def _unfit(op: ops.Operation) -> list[str]:
    """Reasons why the operation has no analysis here: its type, and every number in its fields."""
    if type(op) not in ANALYSES:
        return [f"{op.name} has no analysis in float32"]
    reasons = []
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if isinstance(value, Tensor):
            if not torch.equal(value.to(torch.float32).to(value.dtype), value) or not bool(value.isfinite().all()):
                reasons.append(f"{field.name} is not made of float32 numbers")
            continue
        for number in value if isinstance(value, tuple) else (value,):
            if number is None or isinstance(number, bool):
                continue
            if not isinstance(number, int | float):
                reasons.append(f"{field.name} = {str(number)[:40]} has no analysis in float32")
            elif not abs(number) <= FLOAT32.largest and not (type(op) is ops.Clip and math.isinf(number)):
                reasons.append(f"{field.name} = {str(number)[:40]} is out of float32's range")
    for name, size in _divisors(op).items():
        if not bool(((size >= DIVISORS[0]) & (size <= DIVISORS[1])).all()):
            least, most = (float(t) for t in size.aminmax())
            reasons.append(
                f"{name} ({least:g} to {most:g}) divides, and float32 cannot be trusted to keep it "
                f"unless it is between {DIVISORS[0]:.0e} and {DIVISORS[1]:.0e}"
            )
    if isinstance(op, ops.BatchNorm) and op.eps < 0:
        reasons.append(f"eps = {op.eps:g} is negative: var + eps may cancel")
    return reasons


def _divisors(op: ops.Operation) -> dict[str, Tensor]:
    """Sizes of the numbers that the operation divides by."""
    if isinstance(op, ops.Divide):
        return {"divisor": op.divisor.double().abs()}
    if isinstance(op, ops.Softplus):
        return {"beta": torch.tensor(abs(op.beta), dtype=torch.float64)}
    if isinstance(op, ops.BatchNorm):
        return {"the variance plus eps": op.var.double() + op.eps}
    return {}


class Float32Noise:
    """By how much node i of `net`, computed in float32, may differ from the exact operation on the same inputs."""

    def __init__(self, net: Network) -> None:
        self.net = net

    def __call__(self, i: int, sizes: list[Tensor], result: Tensor) -> Tensor:
        """`sizes`: largest magnitudes of the inputs, as executed; `result`: of the exact result; `b x *shape`.

        Infinite where anything on the way may overflow. Node 0, the input, has no noise, but must fit.
        """
        node = self.net.nodes[i]
        if i == 0:
            error = Error(torch.zeros_like(result), result)
        else:
            shapes = [self.net.nodes[j].shape for j in node.inputs]
            error = ANALYSES[type(node.op)](node, shapes, sizes, result)
        # Half of the range is room for roundings; NaN does not fit, either.
        fits = torch.maximum(error.largest, result) + error.noise < FLOAT32.largest / 2
        return torch.where(fits, error.noise * SAFE, torch.inf)


Analysis = Callable[[Node, list[ops.Shape], list[Tensor], Tensor], Error]


def _may_vanish(size: Tensor) -> Tensor:
    """What is lost of numbers up to `size` if the subnormal ones among them are flushed."""
    return size.clamp_max(_ETA)


def _vanishing(size: Tensor) -> Tensor:
    """What is lost of these very numbers, given their sizes, if they are flushed: all of those that are subnormal."""
    return torch.where(size < _ETA, size, 0.0)


def _sum(node: Node, shapes: list[ops.Shape], sizes: list[Tensor], result: Tensor) -> Error:
    """`sum_k w_k x_k + b`: roundings; flushed coefficients and inputs, each times the other; flushed intermediates."""
    op: Any = node.op
    row = AFFINE[type(op)]
    count = row.terms(op, node.shape, shapes).forward
    through = row.sizes(op, *sizes) + size_of_offset(op, result)
    lost = row.sizes(op, *map(_may_vanish, sizes))
    if isinstance(op, ops.Add):
        lost = lost + row.sizes(op, *(s * (abs(sign) < _ETA) for s, sign in zip(sizes, op.signs)))
    elif isinstance(op, ops.Linear | ops.Conv | ops.Scale):
        lost = lost + row.sizes(op.map_tensors(lambda t: _vanishing(t.abs())), *sizes)
    # Scalars (signs of an addition, 1/k of a pooling, a reciprocal) are rounded too: a few more roundings.
    noise = FLOAT32.gamma(count + 8) * through + 2 * lost + 8 * (count + 4) * _ETA
    # An average's sum, before it is divided, is larger.
    return Error(noise, through * count if isinstance(op, ops.AvgPool | ops.Mean) else through)


def _batch_norm(node: Node, shapes: list[ops.Shape], sizes: list[Tensor], result: Tensor) -> Error:
    """Three factors, x - mean, 1 / std and the weight, in any order: each product of some of them may be flushed, and
    what is lost is multiplied by the others. 1 / std itself is never subnormal (`DIVISORS`).
    """
    op: Any = node.op

    def channels(t: Tensor) -> Tensor:
        return t.abs().reshape(1, -1, *[1] * (result.dim() - 2))

    moved = sizes[0] + channels(op.mean)
    inverse = channels((op.var + op.eps).rsqrt())
    weight = channels(torch.ones_like(op.mean) if op.weight is None else op.weight)
    bias = channels(torch.zeros_like(op.mean) if op.bias is None else op.bias)
    count = AFFINE[type(op)].terms(op, node.shape, shapes).forward
    noise = FLOAT32.gamma(count + 8) * (moved * inverse * weight + bias)
    noise = noise + 32 * _ETA * (1 + moved) * (1 + inverse) * (1 + weight)
    return Error(noise, moved.clamp_min(1) * inverse.clamp_min(1) * weight.clamp_min(1) + bias)


def _move(node: Node, shapes: list[ops.Shape], sizes: list[Tensor], result: Tensor) -> Error:
    """Numbers that are moved about, or chosen among, may be flushed; a constant among them is rounded.

    Comparing subnormals as zeros, a maximum may choose wrongly, but by no more than two of them.
    """
    op: Any = node.op
    constants = {ops.Clip: ("low", "high"), ops.Pad: ("value",)}.get(type(op), ())
    rounded = max((_rounding(getattr(op, name)) for name in constants), default=0.0)
    return Error(torch.full_like(result, 4 * _ETA + rounded), result)


def _rounding(value: float) -> float:
    """How far the float32 number next to `value` is from it; both ends of the range are exact."""
    return 0.0 if math.isinf(value) else abs(float(torch.tensor(value, dtype=torch.float32)) - value)


def _leaky(node: Node, shapes: list[ops.Shape], sizes: list[Tensor], result: Tensor) -> Error:
    """`x`, or `slope * x`; what is not chosen is computed all the same, and must not overflow."""
    op: Any = node.op
    slope = torch.as_tensor(op.slope, dtype=result.dtype, device=result.device).abs()
    product = slope * sizes[0]
    lost = slope * _may_vanish(sizes[0]) + _vanishing(slope) * sizes[0]
    return Error(FLOAT32.gamma(4) * product + 2 * lost + 8 * _ETA, torch.maximum(product, sizes[0]))


def _curved(node: Node, shapes: list[ops.Shape], sizes: list[Tensor], result: Tensor) -> Error:
    """The stated error, times what the computed exponential is multiplied by. Flushing is far below it."""
    op, absolute, largest = node.op, ABSOLUTE, sizes[0]
    if isinstance(op, ops.ELU):
        absolute, largest = ABSOLUTE * max(1.0, op.alpha), largest.clamp_min(op.alpha)
    elif isinstance(op, ops.Softplus):
        absolute, largest = ABSOLUTE * max(1.0, 1 / op.beta), largest * max(2.0, op.beta)
    elif isinstance(op, ops.SiLU | ops.GELU):
        absolute = ABSOLUTE_GATED
        if isinstance(op, ops.GELU) and op.tanh:
            largest = torch.maximum(largest, largest**3)
    return Error(RELATIVE * result + absolute, largest)


# By exact type: of a subclass nothing is known.
ANALYSES: dict[type[ops.Operation], Analysis] = {
    **dict.fromkeys((ops.Linear, ops.Conv, ops.Scale, ops.Divide, ops.Shift, ops.Add, ops.Mean, ops.AvgPool), _sum),
    ops.BatchNorm: _batch_norm,
    **dict.fromkeys((ops.Reshape, ops.Transpose, ops.Slice, ops.Pad, ops.Concat), _move),
    **dict.fromkeys((ops.ReLU, ops.Clip, ops.MaxPool), _move),
    ops.LeakyReLU: _leaky,
    **dict.fromkeys((ops.Sigmoid, ops.Tanh, ops.Arctan, ops.ELU, ops.Softplus, ops.SiLU, ops.GELU), _curved),
}
