"""What rounding may do to a network's outputs: random errors of its size, put in everywhere and carried through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from elbowroom.network.graph import Network
from elbowroom.network.operations import ELU, Activation

# What one operation may lose, relative to its largest number: a few roundings, or a fast approximation of a function.
LOSSES = {torch.float64: 2.0**-45, torch.float32: 2.0**-19, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
_SAFETY = 8.0


@dataclass(frozen=True)
class Rounding:
    """What a network gives, and what a type may make of it.

    `outputs`: `b x k`, in float64; `allowed`: how far rounding may move those of a row, `b`; `largest`: the largest
    magnitude of any node's numbers, `b`.
    """

    outputs: np.ndarray
    allowed: np.ndarray
    largest: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[Rounding]) -> Rounding:
        """The rows of all parts, in order."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def __getitem__(self, rows: Sequence[int]) -> Rounding:
        chosen = list(rows)
        return Rounding(self.outputs[chosen], self.allowed[chosen], self.largest[chosen])


def rounding(net: Network, x: Tensor, kind: torch.dtype, copies: int = 3) -> Rounding:
    """The outputs at `x` (`b x *shape`, float64), and how far they may be off in a type.

    An estimate, no bound: for telling rounding from a different function. Every node's numbers are moved at random by
    what its operation may lose, and so are the inputs, which stands for the rounding of products.
    """
    loss, rng = LOSSES[kind], np.random.default_rng(0)
    every = torch.cat([x] * (1 + copies))
    values: list[Tensor] = []
    largest = torch.zeros(len(x), dtype=torch.float64)

    def moved(y: Tensor, size: Tensor) -> Tensor:
        noise = torch.from_numpy(rng.uniform(-1, 1, y.shape)) * loss
        noise[: len(x)] = 0
        return y + noise * size

    for node in net.nodes:
        op = node.op.map_tensors(Tensor.double)
        y = op(*(values[j] for j in node.inputs)) if node.inputs else every
        size = y.abs() + _largest(y) / 8 if node.inputs else y.abs()
        if isinstance(node.op, Activation):  # a sigmoid's error is a share of 1 where it is next to nothing, and that
            least = 1 / 8 if isinstance(node.op, ELU) else 0.0  # of e^x - 1 is one where x is
            size = size + _largest(values[node.inputs[0]]).clamp(least, 1)
        values.append(moved(y, size))
        largest = torch.maximum(largest, _largest(y)[: len(x)].reshape(-1))
    exact, *noisy = values[-1].split(len(x))
    spread = torch.stack([(y - exact).abs().amax(1) for y in noisy]).amax(0)
    allowed = _SAFETY * (spread + loss * exact.abs().amax(1))
    return Rounding(exact.numpy(), allowed.numpy(), largest.numpy())


def _largest(y: Tensor) -> Tensor:
    """The largest magnitude of each row, with axes of size 1 for the others."""
    return y.abs().reshape(len(y), -1).amax(1).reshape(-1, *[1] * (y.dim() - 1))


__all__ = ["LOSSES", "Rounding", "rounding"]
