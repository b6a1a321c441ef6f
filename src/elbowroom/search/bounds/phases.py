"""Kernels of convolutions with strides, sorted by phase, and of transposed ones as plain ones.

Along an axis with stride s, input position `s u + r - padding` meets the kernel at `r + s t` only, under output
`u - t`. So on the input in phases r, each an image of its own, it is a convolution without strides with every s-th
entry of the kernel, and so is the transposed one.
"""

from __future__ import annotations

import math
import weakref

import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.network import operations as ops

# By operation, whose parameters are of one type and in one place; and of which weights: whoever reaches into a network
# and changes a number gets the bounds of the new one.
_KNOWN: weakref.WeakKeyDictionary[ops.Operation, tuple[Tensor, Tensor]] = weakref.WeakKeyDictionary()
_CHANNELS = 16  # from where on transposed convolutions without strides are as fast as plain ones


def in_phases(op: ops.Conv) -> Tensor:
    """The kernel over an input in phases, `out x (*phases in) x *steps`."""
    dims, (out, into) = len(op.stride), op.weight.shape[:2]
    steps = [-(-k // s) for k, s in zip(op.weight.shape[2:], op.stride)]
    ends = [n for k, s, t in zip(op.weight.shape[2:], op.stride, steps) for n in (t * s - k, 0)]
    kernel = F.pad(op.weight, ends[::-1]).reshape(out, into, *(n for pair in zip(steps, op.stride) for n in pair))
    kernel = kernel.permute(0, *range(3, 3 + 2 * dims, 2), 1, *range(2, 2 + 2 * dims, 2))
    return kernel.reshape(out, into * math.prod(op.stride), *steps)


def transposed(op: ops.Conv) -> Tensor:
    """The same of the transposed convolution as a plain one, `(*phases in) x out x *steps`. On a CPU it is kept."""
    known = None if op.weight.is_cuda else _KNOWN.get(op)
    if known is not None and torch.equal(known[0], op.weight):
        return known[1]
    with torch.inference_mode(False):  # what is kept must serve callers in any mode
        kernel = in_phases(op)
        kernel = kernel.transpose(0, 1).flip(list(range(2, kernel.dim()))).contiguous()
        if not kernel.is_cuda:  # what is made while passes are recorded is gone after them
            _KNOWN[op] = op.weight.clone(), kernel
    return kernel


def is_faster_plain(op: ops.Conv, a: Tensor) -> bool:
    """Whether a transposed convolution without strides takes less time as a plain one with the kernel turned round: on
    a CPU in proportion to the channels that it reads, where those are few."""
    few = a.shape[1] < _CHANNELS and not a.is_cuda
    return few and max(op.stride) == 1 and op.groups == 1 and max(op.dilation) == 1


__all__ = ["in_phases", "is_faster_plain", "transposed"]
