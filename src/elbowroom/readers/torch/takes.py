"""How a module takes its inputs: one tensor or several, each with a batch axis, of real or of whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from elbowroom.network.operations import Shape


@dataclass(frozen=True)
class Takes:
    """The inputs of a module in the order of its parameters: what they are called, the shape of one, without the batch
    axis, and their types. All their numbers, flat and one after the other, are its columns."""

    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    kinds: tuple[torch.dtype, ...]

    @property
    def places(self) -> tuple[slice, ...]:
        """Which columns are of each input."""
        return tuple(slice(a, b) for a, b in pairwise(accumulate(map(math.prod, self.shapes), initial=0)))

    @property
    def count(self) -> int:
        """Of columns."""
        return sum(map(math.prod, self.shapes))

    @property
    def is_plain(self) -> bool:
        """Whether it is one tensor of real numbers, which a network takes as it is."""
        return len(self.shapes) == 1 and self.kinds[0].is_floating_point

    def kind_of(self, column: int) -> torch.dtype:
        """The type in which a column comes."""
        return next(kind for kind, place in zip(self.kinds, self.places) if place.start <= column < place.stop)

    def split(self, columns: Tensor, kind: torch.dtype) -> tuple[Tensor, ...]:
        """The inputs of a module whose real numbers are of type `kind`, from its columns, `b x n`."""
        return tuple(
            columns[:, place].reshape(len(columns), *shape).to(kind if own.is_floating_point else own)
            for place, shape, own in zip(self.places, self.shapes, self.kinds)
        )

    def default_names(self) -> tuple[str, ...]:
        """What columns are called where nobody has said so."""
        if len(self.shapes) == 1:
            return tuple(f"x{k}" for k in range(self.count))
        sizes = [math.prod(shape) for shape in self.shapes]
        return tuple(
            name if size == 1 else f"{name}[{j}]" for name, size in zip(self.names, sizes) for j in range(size)
        )


def ways_to_take(names: Sequence[str], shapes: Sequence[Shape], kind: torch.dtype) -> Iterator[Takes]:
    """Inputs of real numbers of type `kind` first; then with more and more that hold whole ones, as codes may."""
    n = len(shapes)
    for whole in sorted(range(1 << n), key=lambda k: (k.bit_count(), k)):
        kinds = tuple(torch.int64 if whole >> i & 1 else kind for i in range(n))
        yield Takes(tuple(names), tuple(shapes), kinds)


__all__ = ["Takes", "ways_to_take"]
