"""On a GPU, what is done to every number of the rows, in one pass over memory.

Past the lines of a node rows are multiplied, cut, added and summed up, each of which reads and writes all of them: more
than half of the time of a bound. Here one kernel does it all, where Triton is there, which comes with torch. Where it
is not, or where a kernel does not give what plain torch gives (each is compared once), plain torch does it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from elbowroom.machine.failures import is_out_of_memory
from elbowroom.machine.recorder import is_recording
from elbowroom.network.operations import Shape
from elbowroom.search.bounds import coefficients, kernels
from elbowroom.search.bounds.coefficients import (
    Coefficients,
    Columns,
    Patch,
    columns_of,
    cut,
    dotted,
    numbers,
    part_of,
    wide,
)  # fmt: skip
from elbowroom.search.bounds.planes import Lines

_LEAST = 1 << 20  # numbers: of fewer, plain torch is about as fast, and nothing has to be compiled
_ROWS, _NUMBERS = 16, 128  # of a block
_FEW = 16  # sums at a time
_NEAR = {torch.float16: 2e-3}  # of the largest: how far kernels may be from plain torch
_NEAR_ELSE = 1e-4

Way = Callable[[], tuple[Tensor, ...]]
_GOOD: dict[tuple[Any, ...], bool] = {}  # by kernel and kind: whether it gave what plain torch gave


def past_lines(
    c: Coefficients, lines: Lines, parallel: bool, look: Callable[[], list[Tensor]]
) -> tuple[list[Tensor], Tensor]:
    """Rows past lines: `b x r x ...` below for every term, like those of `c`, and what the ends add, `b x r`.

    `lines`: `Planes.gaps` of the node, if `parallel`, else `Planes.pairs`. `look`: what `lines_at` gives for them.
    """

    def plain() -> tuple[Tensor, ...]:
        dtype, a, every = numbers(c).dtype, wide(numbers(c)), look()
        if parallel:
            return -dotted(c, a.abs(), every[-1]), *((a * slope).to(dtype) for slope in every[:-1])
        positive = a.clamp_min(0)
        below = (torch.addcmul(a * upper, positive, step) for upper, step in zip(every[:-2:2], every[1:-2:2]))
        return dotted(c, a, every[-2]) + dotted(c, positive, every[-1]), *(t.to(dtype) for t in below)

    def fused() -> tuple[Tensor, ...]:
        return _past(c, lines, parallel, True)

    fits = len(lines.every) == (2 if parallel else 4) and _fits(c, len(lines))  # one term
    added, *below = _better(("past", *_kind(c), parallel), plain, fused) if fits else plain()
    return below, added


def past_planes(
    c: Coefficients, below: Sequence[Tensor], lines: Lines, parallel: bool, look: Callable[[], list[Tensor]],
    few: int | None = None,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """On the way up past the same lines: from the derivatives of rows' bounds by the numbers `below`, per term, those
    by the numbers of `c`, and by the slope of every term and the half-gap, if `parallel`; else by the lower slope and
    both slopes together, per term, and the same of the ends. `few`: all but the first are of so many entries only, the
    first ones of `Columns`."""
    a = numbers(c)

    def plain() -> tuple[Tensor, ...]:
        found = in_full(wide(a), [wide(g) for g in below])
        return tuple(t.to(a.dtype) for t in found)

    def in_full(a: Tensor, below: Sequence[Tensor]) -> tuple[Tensor, ...]:
        every, by, own = look(), [], a if few is None else a[..., :few]
        if parallel:
            here, by_ends = -torch.copysign(every[-1], a), [-own.abs()]
        else:
            above = (a > 0).to(a.dtype)
            here, by_ends = torch.addcmul(every[-2], above, every[-1]), [own.clamp_min(0), own]
        for t, g in enumerate(below):
            by_slope = (g if few is None else g[..., :few]) * own
            if parallel:
                by += [by_slope]
                here = torch.addcmul(here, g, every[t])
            else:
                upper, step = every[2 * t : 2 * t + 2]
                by += [by_slope * (above if few is None else above[..., :few]), by_slope]
                here = torch.addcmul(here, g, torch.addcmul(upper, above, step))
        return here, *by, *by_ends

    def fused() -> tuple[Tensor, ...]:
        here, by_lower, by_upper, by_end = _up(c, below[0], lines, parallel)
        return (here, by_upper, by_end) if parallel else (here, by_lower, by_upper, by_end, a)

    one = len(below) == 1 and below[0].shape == a.shape and len(a) == len(lines)
    fits = one and few is None and _fits(c, len(a))
    here, *by = _better(("up", *_kind(c), parallel), plain, fused) if fits else plain()
    return here, by


def attained(c: Coefficients, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of minus the `support` of rows, by their numbers and by the radius that each meets: like those of
    `c`."""
    a = numbers(c)

    def plain() -> tuple[Tensor, ...]:
        return torch.copysign(cut(radius, c), a).neg_().to(a.dtype), a.abs().neg_()

    def fused() -> tuple[Tensor, ...]:
        return _up(c, None, Lines((radius, radius)), True)[::3]

    fits = len(a) == len(radius) and _fits(c, len(a))
    at, by_radius = _better(("attained", *_kind(c)), plain, fused) if fits else plain()
    return at, by_radius


def whole(c: Coefficients, shape: Shape) -> Tensor:
    """As `coefficients.whole`: coefficients over all of a node of this shape."""
    if not isinstance(c, Patch) or not _fits(c, len(c.a)):
        return coefficients.whole(c, shape)

    def fused() -> tuple[Tensor]:
        a, place, count = c.a.contiguous(), c.place.place.contiguous(), math.prod(shape)
        out = a.new_empty(*a.shape[:2], count)
        grid = len(a), -(-a.shape[1] // _ROWS)
        _compiled()["spread"][grid](a, place, out, a.shape[1], count, *_geometry(c, shape, True), _ROWS, _NUMBERS)
        return (out.reshape(*a.shape[:2], *shape),)

    return _better(("spread",), lambda: (coefficients.whole(c, shape),), fused)[0]


def collected(weight: Tensor, c: Coefficients, shape: Shape) -> Tensor:
    """As `coefficients.collected`: `sum_s weight[b, k, s] c[b, s]` over all of a node, `b x k x *shape`."""
    if not isinstance(c, Patch) or not _fits(c, len(c.a)) or weight.shape[1] > _FEW:
        return coefficients.collected(weight, c, shape)

    def fused() -> tuple[Tensor]:
        (batch, few), rows, count = weight.shape[:2], c.a.shape[1], math.prod(shape)
        out = weight.new_empty(batch, few, *shape)
        _compiled()["collect"][batch, -(-count // _NUMBERS)](
            weight.contiguous(), c.a.contiguous(), c.place.place.contiguous(), out, few, rows, count,
            *_geometry(c, shape, True), _FEW, _ROWS, _NUMBERS,
        )  # fmt: skip
        return (out,)

    return _better(("collect",), lambda: (coefficients.collected(weight, c, shape),), fused)[0]


def support(c: Coefficients, radius: Tensor) -> Tensor:
    """`sum |a| radius` of rows over a node, `b x r`; `radius`: `b x *shape`."""

    def plain() -> tuple[Tensor]:
        return (dotted(c, wide(numbers(c)).abs(), cut(radius, c)),)

    def fused() -> tuple[Tensor]:
        return (_past(c, Lines((radius, radius)), True, False)[0].neg_(),)

    return (_better(("support", *_kind(c)), plain, fused) if _fits(c, len(radius)) else plain())[0]


def rows_of(
    matrix: Tensor, index: Tensor | None, columns: Tensor | None = None, scale: Tensor | None = None,
    signed: bool = False,
) -> Tensor:  # fmt: skip
    """Rows and columns of a matrix for each input, `b x m x k`, see `coefficients.part_of`; columns times `scale`, `b x
    k`. `signed`: rows past the last are those of minus the matrix."""
    some, tall = (index, columns, scale), len(matrix)

    def plain() -> tuple[Tensor]:
        found = part_of(matrix, index % tall if signed and index is not None else index, columns)
        if signed and index is not None:
            found = found * torch.where(index < tall, 1.0, -1.0).to(found)[..., None]
        return (found if scale is None else (found * scale[:, None]).to(found.dtype),)

    batch = max((len(t) for t in some if t is not None), default=0)
    rows, count = tall if index is None else index.shape[1], matrix.shape[1] if columns is None else columns.shape[1]
    has = [t is not None for t in some]

    def fused() -> tuple[Tensor]:
        out = matrix.new_empty(batch, rows, count)
        given = [matrix if t is None else t.expand(batch, -1).contiguous() for t in some]
        grid = batch, -(-rows // _ROWS), -(-count // _NUMBERS)
        sizes = tall, matrix.shape[1], rows, count
        _compiled()["take"][grid](matrix.contiguous(), *given, out, *sizes, *has, _ROWS, _NUMBERS)
        return (out,)

    large = _can(matrix) and batch * rows * count >= _LEAST
    return (_better(("take", matrix.dtype, *has), plain, fused) if large else plain())[0]


def lines_at(c: Coefficients, lines: Lines) -> list[Tensor]:
    """Lines where the coefficients are, with an axis for the rows."""
    # All of them in one go, where they have to be looked up.
    if isinstance(c, Patch):
        return list(cut(torch.cat(lines.every, 1), c).chunk(len(lines.every), -1))
    if isinstance(c, Columns):
        return [t[:, None] for t in columns_of(lines.flat, c.index).unbind(1)]
    return [cut(t, c) for t in lines.every]


# --- whether, and how


def _can(like: Tensor) -> bool:
    return like.is_cuda and like.dtype in (torch.float32, torch.float16)


def _kind(c: Coefficients) -> tuple[Any, ...]:
    """Of which rows a kernel is another."""
    return isinstance(c, Patch), numbers(c).dtype


def _fits(c: Coefficients, batch: int) -> bool:
    a = numbers(c)
    flat_or_image = not isinstance(c, Patch) or len(c.at.size) == 2
    return _can(a) and flat_or_image and batch * a[0].numel() >= _LEAST


def _better(key: tuple[Any, ...], plain: Way, fused: Way) -> tuple[Tensor, ...]:
    """What a kernel gives, if it gave what plain torch gives when it was first used; else that."""
    if not _GOOD.get(key, not is_recording()):  # then there is nothing to compare
        return plain()
    try:
        found = fused()
    except Exception as error:  # whatever is wrong with a compiler that we could do without
        if is_out_of_memory(error):
            raise
        _GOOD[key] = False
        return plain()
    if key not in _GOOD:
        expected = plain()
        _GOOD[key] = all(map(_same, found, expected))
        return expected
    return found


def _same(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    size = torch.where(expected.isfinite(), expected, 0.0).abs().max()
    near = (found - expected).abs() <= _NEAR.get(expected.dtype, _NEAR_ELSE) * size
    return bool((near | (found == expected) | ~expected.isfinite()).all())


@cache
def _compiled() -> dict[str, Any]:
    return kernels.compiled()


def _geometry(c: Patch, shape: Shape, both: bool) -> list[int]:
    """Where windows lie, as the kernels take it. `both`: also how tall they are."""
    channels, height, width = shape
    own, tall = 0 if len(c.place) == 1 else c.place.rows, [c.at.size[0]] if both else []
    return [own, channels, height, width, *tall, c.at.size[1], *c.at.step, *c.at.shift]


def _looked_up(c: Coefficients, lines: Lines) -> tuple[Tensor, Tensor | None, list[int]]:
    """Lines, places and geometry as the kernels take them."""
    if isinstance(c, Patch):
        shape = tuple(lines.every[0].shape[1:])
        return lines.channels_last, c.place.place.contiguous(), _geometry(c, shape, False)
    return columns_of(lines.flat, c.index) if isinstance(c, Columns) else lines.flat, None, [0] * 9


def _past(c: Coefficients, lines: Lines, parallel: bool, write: bool) -> tuple[Tensor, Tensor]:
    a, batch = numbers(c).contiguous(), len(lines)
    rows, count = a.shape[1], a[0, 0].numel()
    stacked, place, geometry = _looked_up(c, lines)
    out = a.new_empty(batch, *a.shape[1:]) if write else a
    total = a.new_empty(batch, rows, dtype=torch.float32)
    _compiled()["past"][batch, -(-rows // _ROWS)](
        a, stacked, a if place is None else place, out, total, rows, count, 0 if len(a) == 1 else rows * count,
        stacked.shape[2], *geometry, place is not None, parallel, write, _ROWS, _NUMBERS,
    )  # fmt: skip
    return total, out


def _up(c: Coefficients, below: Tensor | None, lines: Lines, parallel: bool) -> tuple[Tensor, ...]:
    """Derivatives by the numbers, by the lower slope, by both (or the slope), and by the lower end (or half-gap)."""
    a = numbers(c).contiguous()
    stacked, place, geometry = _looked_up(c, lines)
    here, by_end = torch.empty_like(a), torch.empty_like(a)
    by_upper = here if below is None else torch.empty_like(a)
    by_lower = here if parallel else torch.empty_like(a)
    rows, count = a.shape[1], a[0, 0].numel()
    _compiled()["up"][len(a), -(-rows // _ROWS)](
        a, a if below is None else below.contiguous(), stacked, a if place is None else place, here, by_lower, by_upper,
        by_end, rows, count, stacked.shape[2], *geometry, place is not None, parallel, below is None, _ROWS,
        _NUMBERS,
    )  # fmt: skip
    return here, by_lower, by_upper, by_end


__all__ = ["attained", "collected", "lines_at", "past_lines", "past_planes", "rows_of", "support", "whole"]
