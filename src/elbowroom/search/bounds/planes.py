"""What a relaxation is: planes below and above an operation that is not affine, a sum of one term per input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Term:
    """One input's share in a relaxation: its slopes, `b x *shape` of the node's output.

    `input`: which of the node's inputs. `source`: the flat position in it that each output's slope belongs to
    (`b x size`), as in max-pooling; None where output i goes with entry i.
    """

    input: int
    lower_slope: Tensor
    upper_slope: Tensor
    source: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Planes:
    """A relaxation of one node around a point z: with x the inputs' deviations from z, and `f` the node's from `f(z)`,

        sum_t lower_slope_t x_t + lower  <=  f  <=  sum_t upper_slope_t x_t + upper.

    `lower`, `upper`: `b x *shape` of the node's output. *Parallel* planes have the same slopes below and above.
    """

    terms: tuple[Term, ...]
    lower: Tensor
    upper: Tensor

    @cached_property
    def pairs(self) -> Lines:
        """Upper slopes and how far the lower ones are from them, by term, and the same of the ends."""
        pairs = [*((t.upper_slope, t.lower_slope) for t in self.terms), (self.upper, self.lower)]
        with torch.no_grad():
            return Lines([t.detach() for upper, lower in pairs for t in (upper, lower - upper)])

    @cached_property
    def gaps(self) -> Lines:
        """Of parallel planes, slopes by term and half of the gap."""
        with torch.no_grad():
            return Lines([*(t.lower_slope.detach() for t in self.terms), (self.upper - self.lower).detach() / 2])


class Lines:
    """What rows meet at a node, constants to autograd: `every`, `b x *shape` each."""

    def __init__(self, every: Sequence[Tensor]) -> None:
        self.every = list(every)

    @cached_property
    def flat(self) -> Tensor:
        """All of them, `b x l x size`."""
        return torch.stack([t.flatten(1) for t in self.every], 1)

    @cached_property
    def channels_last(self) -> Tensor:
        """The same, of images, with channels last."""
        stacked = torch.stack(self.every, 1).flatten(3)
        return stacked.transpose(2, 3).flatten(2)

    def take(self, part: slice | Tensor) -> Lines:
        """Those of some inputs of the batch."""
        if isinstance(part, slice) and part.start in (None, 0) and (part.stop is None or part.stop >= len(self)):
            return self
        return Lines([t[part] for t in self.every])

    def in_units(self, unit: Tensor, ends: int) -> Lines:
        """With the last `ends` of them divided by `unit`, `b`."""
        divided = [t / unit.reshape(-1, *[1] * (t.dim() - 1)) for t in self.every[-ends:]]
        return Lines([*self.every[:-ends], *divided])

    def __len__(self) -> int:
        return len(self.every[0])


class Relaxed:
    """What the search knows of one type of operation that is not affine.

    `univariate`: each output is a function of one number, the entry of the only input in its place; `interval` is then
    its range. `zero_below`: it gives zero wherever its input is not positive. `straight`: where its planes
    are one, they stay so and do not move as intervals change a little. `smooth`: its planes move wherever its
    intervals do.
    """

    univariate = False
    zero_below = False
    straight = False
    smooth = False

    def interval(self, op: Any, lowers: Sequence[Tensor], uppers: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The smallest and the largest value, given those of the inputs; every tensor `b x *shape`."""
        raise NotImplementedError

    def planes(
        self, op: Any, lowers: Sequence[Tensor], uppers: Sequence[Tensor], values: Sequence[Tensor], parallel: bool
    ) -> Planes:
        """Planes on the inputs' intervals, around the `values` in them."""
        raise NotImplementedError


def ratio(numerator: Tensor, width: Tensor, otherwise: Tensor) -> Tensor:
    """`numerator / width`; `otherwise` where the width is zero, no gradient where it is next to zero."""
    safe = width > torch.finfo(width.dtype).eps ** 2
    result = numerator / torch.where(safe, width, 1.0)
    with torch.no_grad():
        positive = width > 0
        rough = torch.where(positive, numerator / torch.where(positive, width, 1.0), otherwise)
    return torch.where(safe, result, rough)
