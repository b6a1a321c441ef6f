"""What the proof knows of each operation that is not affine: one row per type, looked up by exact type.

A relaxation is a sum of terms, one per input: `sum_t lower_t x_t + m_l <= f(x) <= sum_t upper_t x_t + m_u`. All of
today's operations have one input; a product would have two.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.operations import Shape
from elbowroom.proof.kernel import enclosures
from elbowroom.proof.kernel.activations import TABLE
from elbowroom.proof.kernel.rounding import ETA, U, up


class Term(NamedTuple):
    """One input's share of a relaxation: slopes, `b x *shape` of the output.

    `input`: which of the node's inputs. `source`: the flat position in it that each output depends on, `b x size`;
    None where output i depends on entry i.
    """

    input: int
    lower: Tensor
    upper: Tensor
    source: Tensor | None = None


class Planes(NamedTuple):
    """A relaxation of one node; `lower`, `upper`: the intercepts m_l and m_u, `b x *shape`."""

    terms: tuple[Term, ...]
    lower: Tensor
    upper: Tensor

    def map(self, f: Callable[[Tensor], Tensor]) -> Planes:
        """With `f` of every tensor."""
        terms = (Term(t.input, f(t.lower), f(t.upper), None if t.source is None else f(t.source)) for t in self.terms)
        return Planes(tuple(terms), f(self.lower), f(self.upper))


class RelaxedRow:
    """One operation that is not affine. `shape`: of the output; `lows`, `highs`: one tensor `b x *shape` per input."""

    def unfit(self, op: Any, shape: Shape, shapes: Sequence[Shape]) -> str | None:
        """Why the analysis does not cover this operation, on inputs of these shapes."""
        return None

    def interval(self, op: Any, shape: Shape, lows: Sequence[Tensor], highs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Numbers below and above every value of the operation."""
        raise NotImplementedError

    def planes(self, op: Any, shape: Shape, lows: Sequence[Tensor], highs: Sequence[Tensor], parallel: bool) -> Planes:
        """Lines that are valid for their rounded slopes. `parallel`: one slope above and below."""
        raise NotImplementedError

    def roundings(self, op: Any) -> int:
        """How many roundings lie behind a coefficient that was carried past the operation."""
        return 2


class _Activation(RelaxedRow):
    def interval(self, op: Any, shape: Shape, lows: Sequence[Tensor], highs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        return enclosures.interval(op, lows[0], highs[0])

    def planes(self, op: Any, shape: Shape, lows: Sequence[Tensor], highs: Sequence[Tensor], parallel: bool) -> Planes:
        found = enclosures.lines(op, lows[0], highs[0], parallel)
        return Planes((Term(0, found.k_l, found.k_u),), found.m_l, found.m_u)


class _MaxPool(RelaxedRow):
    def unfit(self, op: ops.MaxPool, shape: Shape, shapes: Sequence[Shape]) -> str | None:
        if bool((windows(op, shape, shapes[0]) < 0).all(1).any()):
            return "a window of this MaxPool lies in the padding alone"
        return None

    def interval(self, op: Any, shape: Shape, lows: Sequence[Tensor], highs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        seen = windows(op, shape, tuple(lows[0].shape[1:]), lows[0].device)
        low, high = (_under(t, seen).amax(-1).reshape(len(t), *shape) for t in (lows[0], highs[0]))
        return low, high

    def planes(self, op: Any, shape: Shape, lows: Sequence[Tensor], highs: Sequence[Tensor], parallel: bool) -> Planes:
        """Below, the entry j with the largest lower bound. Above, a line over max(x_j, v), v the others' largest."""
        (low,), (high,) = lows, highs
        b, c = low.shape[:2]
        seen = windows(op, shape, tuple(low.shape[1:]), low.device)
        views = [_under(t, seen) for t in (low, high)]
        # Padding is never chosen, not even where nothing is known of the real entries.
        j = views[0].clamp_min(torch.finfo(low.dtype).min).where(seen >= 0, -torch.inf).argmax(-1, keepdim=True)
        l_j, u_j = (v.gather(-1, j).squeeze(-1) for v in views)
        others = views[1].scatter(-1, j, -torch.inf).amax(-1)
        # The line is valid if it is above both ends of [l_j, u_j].
        v = torch.maximum(others, l_j)
        top = torch.maximum(u_j, v)
        slope = torch.where(v > l_j, (top - v) / torch.where(u_j > l_j, u_j - l_j, 1.0), 1.0)
        slope = torch.ones_like(slope) if parallel else torch.nan_to_num(slope).clamp(0, 1)
        ends = [(v, l_j), (top, u_j)]
        above = torch.stack([up(y - slope * x + 4 * U * (y.abs() + (slope * x).abs()) + ETA) for y, x in ends]).amax(0)
        above = torch.where((v <= l_j) & (slope == 1), 0.0, above)  # then the maximum is x_j itself
        one, zero, slope, above = (
            t.reshape(b, *shape) for t in (torch.ones_like(slope), torch.zeros_like(slope), slope, above)
        )
        flat = seen[None, None].expand(b, c, -1, -1).gather(-1, j).squeeze(-1)
        source = flat + low[0, 0].numel() * torch.arange(c, device=low.device)[None, :, None]
        return Planes((Term(0, one, slope, source.reshape(b, -1)),), zero, above)

    def roundings(self, op: ops.MaxPool) -> int:
        # A sum over the windows that chose the same entry: at most as many as the kernel has places.
        return 2 + math.prod(op.kernel)


def windows(op: ops.MaxPool, shape: Shape, input_shape: Shape, device: torch.device | str = "cpu") -> Tensor:
    """The flat spatial positions under each output's window, `outputs x window`; -1 for padding."""
    return _windows(input_shape[1:], shape[1:], op.kernel, op.stride, op.padding, op.dilation, torch.device(device))


@functools.lru_cache(maxsize=64)
def _windows(
    spatial: Shape, outputs: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, device: torch.device
) -> Tensor:
    with torch.inference_mode(False):  # what is kept must serve callers in any mode
        index = torch.zeros(1, 1, dtype=torch.long)
        for n, o, k, s, p, d in zip(spatial, outputs, kernel, stride, padding, dilation):
            at = torch.arange(o)[:, None] * s - p + torch.arange(k) * d  # o x k positions along this axis
            at = torch.where((at >= 0) & (at < n), at, -1)
            joint = index[:, None, :, None] * n + at[None, :, None, :]
            joint = torch.where((index[:, None, :, None] < 0) | (at[None, :, None, :] < 0), -1, joint)
            index = joint.reshape(index.shape[0] * o, index.shape[1] * k)
        return index.to(device)


def _under(t: Tensor, seen: Tensor) -> Tensor:
    """What each window sees of `t`, `b x c x *spatial`: `b x c x outputs x window`, minus infinity for padding."""
    flat = t.flatten(2)
    return torch.cat([flat, flat.new_full((*flat.shape[:2], 1), -torch.inf)], -1)[:, :, seen]


RELAXED: dict[type[ops.Operation], RelaxedRow] = {
    **dict.fromkeys(TABLE, _Activation()),
    ops.MaxPool: _MaxPool(),
}
