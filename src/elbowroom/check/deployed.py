"""What a network executed in IEEE float32 adds of its own: a bound on the error of every operation.

Every sum in any order, with or without fused multiply-add, with or without flushing subnormals to zero. Not
covered, and not to be claimed: TF32, bfloat16, Winograd, FFT or Strassen kernels, rewrites that change weights.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from elbowroom.check import affine
from elbowroom.check.rounding import FLOAT32, SAFE
from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network

# What is assumed of float32 activations: this far off, relative to the value and absolutely. The products x Phi(x) and
# x sigmoid(x) multiply the gate's own error by x before it vanishes (measured: docs/soundness.md).
RELATIVE, ABSOLUTE, ABSOLUTE_GATED = 2.0**-20, 2.0**-20, 2.0**-17
_EXACT = (ops.ReLU, ops.Clip)
_CURVED = (ops.Sigmoid, ops.Tanh, ops.Arctan, ops.ELU, ops.Softplus, ops.SiLU, ops.GELU)


_DIVISORS = ("beta",)
_SMALLEST = 2.0**-100  # far from where flushing to zero would change a divisor by more than a rounding


def _scalars(op: ops.Operation) -> list[tuple[str, float]]:
    """Numbers an operation carries besides its tensors, which execution rounds to float32; ends of a clip if finite."""
    found = [(name, getattr(op, name, None)) for name in ("slope", "alpha", "beta", "eps", "value", "low", "high")]
    found += [("sign", sign) for sign in getattr(op, "signs", ())]
    numbers = [(name, float(v)) for name, v in found if isinstance(v, (int, float))]
    return [(name, v) for name, v in numbers if not (math.isinf(v) and name in ("low", "high"))]


def refuse_unfit(net: Network) -> None:
    """Raises `UnsupportedError`, naming every node, where the network cannot be claimed to run in float32."""
    reasons = []
    for node in net.nodes[1:]:
        for field, t in node.op.tensors().items():
            if not torch.equal(t.to(torch.float32).to(t.dtype), t):
                reasons.append(f"{node.name}: {field} is not made of float32 numbers")
        for field, value in _scalars(node.op):
            if not (abs(value) < FLOAT32.largest / 2 and (field not in _DIVISORS or abs(value) > _SMALLEST)):
                reasons.append(f"{node.name}: {field} = {value:g} is out of float32's range")
        if isinstance(node.op, ops.BatchNorm) and bool((node.op.var.double() + node.op.eps <= _SMALLEST).any()):
            reasons.append(f"{node.name}: the variance plus eps is out of float32's range")
        if not isinstance(node.op, (ops.Affine, ops.MaxPool, ops.LeakyReLU, *_EXACT, *_CURVED)):
            reasons.append(f"{node.name}: {node.op.name} has no analysis in float32")
    if reasons:
        raise UnsupportedError("the claim about float32 execution cannot be made: " + "; ".join(reasons))


class Float32Noise:
    """By how much node i of `net`, computed in float32, may differ from the exact operation on the same inputs."""

    def __init__(self, net: Network) -> None:
        self.net = net

    def __call__(self, i: int, sizes: list[Tensor], result: Tensor) -> Tensor:
        """`sizes`: largest magnitudes of the inputs, as executed; `result`: of the exact result; `b x *shape`."""
        node = self.net.nodes[i]
        op = node.op
        if isinstance(op, ops.Affine):
            noise = self._affine(i, sizes, result)
        elif isinstance(op, (*_EXACT, ops.MaxPool)):
            # Ends of a clip are rounded to float32.
            noise = torch.full_like(result, FLOAT32.eta)
            if isinstance(op, ops.Clip):
                ends = [abs(e) for e in (op.low, op.high) if math.isfinite(e)]
                noise = noise + 2 * FLOAT32.u * max(ends, default=0.0)
        elif isinstance(op, ops.LeakyReLU):
            # Input, slope and product may each be flushed.
            slope = float(torch.as_tensor(op.slope).abs().max())
            noise = FLOAT32.gamma(3) * torch.maximum(result, sizes[0]) + FLOAT32.eta * (2 + slope + sizes[0])
        else:
            noise = RELATIVE * result + self._absolute(op)
        # An overflow anywhere on the way, partial sums included, is no longer a rounding error.
        return torch.where(result + noise < FLOAT32.largest / 2, noise * SAFE, torch.inf)

    @staticmethod
    def _absolute(op: ops.Operation) -> float:
        """The activation's absolute error, times what the computed exponential is multiplied by."""
        if isinstance(op, (ops.SiLU, ops.GELU)):
            return ABSOLUTE_GATED
        factor = op.alpha if isinstance(op, ops.ELU) else 1 / op.beta if isinstance(op, ops.Softplus) else 1.0
        return ABSOLUTE * max(1.0, factor)

    def _affine(self, i: int, sizes: list[Tensor], result: Tensor) -> Tensor:
        node = self.net.nodes[i]
        op = node.op
        assert isinstance(op, ops.Affine)
        shapes = [self.net.nodes[j].shape for j in node.inputs]
        count = affine.terms(node, shapes).forward
        if count == 0:
            pad = abs(op.value) * 2 * FLOAT32.u if isinstance(op, ops.Pad) else 0.0
            return torch.full_like(result, FLOAT32.eta + pad)
        # Scalars (signs of an addition, 1/k of a pooling, eps of a batch norm) are rounded too: a few more roundings.
        through = op.absolute().linear(*sizes) + affine.size_of_offset(node, result)
        flushed = op.absolute().linear(*(torch.ones_like(s) for s in sizes)) + sum(
            s.flatten(1).sum(1).amax() for s in sizes
        )
        largest = through
        if isinstance(op, (ops.AvgPool, ops.Mean)):
            largest = through * count  # the sum, before it is divided
        if isinstance(op, ops.BatchNorm):
            # x - mean may be multiplied by 1 / sqrt(var + eps) first and by the weight after that.
            plain = ops.BatchNorm(op.mean, op.var, eps=op.eps)
            largest = torch.maximum(
                largest, plain.absolute().linear(*sizes) + affine.size_of_offset(replace(node, op=plain), result)
            )
            flushed = flushed + (0.0 if op.weight is None else op.weight.abs().amax()) + op.mean.abs().sum()
        noise = FLOAT32.gamma(count + 8) * through * SAFE + 4 * (count + 4) * FLOAT32.eta * (1 + flushed)
        return torch.where(largest < FLOAT32.largest / 2, noise, torch.inf)
