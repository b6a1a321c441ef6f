"""Operations of every type, with fields that make sense and fields that do not."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.file import OPERATIONS

SHAPES = ((1,), (4,), (1, 5), (3, 4), (2, 4, 5), (1, 3, 3), (1, 2, 3, 2))
ODD: tuple[Any, ...] = (
    None, True, "1", 1.5, -1, 0, 10**30, math.nan, math.inf, (), [], (1,), (0,), (-1,), (2, 1), (1.5,), (True,),
    (1, 1, 1), torch.zeros(0), torch.tensor(1), torch.tensor([True]), torch.tensor([1j]), torch.tensor([math.nan]),
)  # fmt: skip


def numbers(*shape: int) -> st.SearchStrategy[Tensor]:
    def make(seed: int) -> Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    return st.integers(0, 999).map(make)


def shapes(rank: st.SearchStrategy[int] | int, low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
    ranks = st.just(rank) if isinstance(rank, int) else rank
    return ranks.flatmap(lambda n: st.tuples(*[st.integers(low, high)] * n))


def tensors(least: int = 0, most: int = 3, high: int = 4) -> st.SearchStrategy[Tensor]:
    return shapes(st.integers(least, most), 1, high).flatmap(lambda s: numbers(*s))


WINDOW = shapes(st.integers(0, 3), 0, 3)
# Per type of field: what may make sense somewhere.
PLAUSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "Tensor": tensors(),
    "Tensor | None": st.none() | tensors(0, 1),
    "int": st.integers(-3, 4),
    "bool": st.booleans(),
    "float": st.floats(-2, 2, width=32),
    "float | Tensor": st.floats(-2, 2, width=32) | tensors(),
    "Shape": WINDOW | shapes(st.integers(1, 4), -2, 6),
    "tuple[float, ...]": st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=3).map(tuple),
}


@st.composite
def fitting(draw: Callable[..., Any], kind: type[ops.Operation], shape: ops.Shape) -> dict[str, Any]:
    """Fields of which most fit an input of this shape; one may be anything."""
    found = {f.name: draw(PLAUSIBLE[str(f.type)]) for f in dataclasses.fields(kind)}
    rank, dims = len(shape), max(len(shape) - 1, 1)
    if draw(st.integers(0, 3)):
        window = {
            "kernel": shapes(dims, 1, 3), "stride": shapes(dims, 1, 3), "padding": shapes(dims, 0, 2),
            "dilation": shapes(dims, 1, 2),
        }  # fmt: skip
        found.update({name: draw(value) for name, value in window.items() if name in found})
        lead = shape[0] if shape else 1
        if kind is ops.Linear:
            out = draw(st.integers(1, 3))
            found.update(weight=draw(numbers(out, shape[-1] if shape else 1)), bias=draw(st.none() | numbers(out)))
        elif kind is ops.Conv:
            out, groups = draw(st.integers(1, 2)) * lead, draw(st.sampled_from([1, 1, lead]))
            kernel = draw(shapes(dims, 1, 3))
            found.update(weight=draw(numbers(out, lead // groups, *kernel)), groups=groups)
            found["bias"] = draw(st.none() | numbers(out))
        elif kind is ops.BatchNorm:
            found.update({name: draw(numbers(lead)) for name in ("mean", "weight", "bias")})
            found.update(var=draw(numbers(lead)).abs(), eps=draw(st.sampled_from([0.0, 1e-5])))
        elif kind is ops.Transpose:
            found["axes"] = tuple(draw(st.permutations(range(rank))))
        elif kind is ops.Mean:
            found["axes"] = tuple(draw(st.permutations(range(rank))))[: draw(st.integers(1, 3))]
        elif kind is ops.Slice:
            found.update(axis=draw(st.integers(0, max(rank - 1, 0))), start=draw(st.integers(0, 2)), stop=4, step=1)
        elif kind is ops.Reshape:
            found["shape"] = draw(st.sampled_from([(-1,), shape, (1, *shape), (*shape, 1), (-1, *shape)]))
        elif kind is ops.Clip:
            found.update(low=draw(st.sampled_from([-math.inf, -1.0, 0.0])), high=draw(st.sampled_from([math.inf, 0.5])))
    if draw(st.integers(0, 3)) == 0 and found:
        found[draw(st.sampled_from(sorted(found)))] = draw(st.sampled_from(ODD))
    return found


KINDS = sorted((kind for kind in OPERATIONS.values() if kind is not ops.Input), key=lambda kind: kind.__name__)
