"""Kernels for a GPU in Triton's language, which looks like Python and is never run as such. See `fused`.

Rows are read and written in their own type, and computed with in float32.
"""

# mypy: disable-error-code="valid-type,name-defined,no-untyped-def"
# (Triton reads annotations, and knows its own only.)

from __future__ import annotations

from typing import Any

tl: Any = None  # Triton's language, once `compiled` was asked for


def compiled() -> dict[str, Any]:
    """The kernels by name, which are compiled where they are first used.

    Raises:
        ImportError: There is no Triton.
    """
    global tl
    import triton
    import triton.language

    tl = triton.language
    # None of these has kernels of its own for numbers that sixteen divides.
    sizes = {
        "rows", "step", "size", "own", "channels", "height", "width", "tall", "across", "step_y", "step_x", "shift_y",
        "shift_x", "wide", "few",
    }  # fmt: skip
    found = {}
    for kernel in (_past, _up, _take, _spread, _collect):
        names = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
        found[kernel.__name__[1:]] = triton.jit(kernel, do_not_specialize=[n for n in names if n in sizes])
    return found


def _past(
    a, lines, place, out, total,
    rows, count, step, size, own, channels, height, width, across,
    step_y, step_x, shift_y, shift_x,
    PATCH: tl.constexpr, PARALLEL: tl.constexpr, WRITE: tl.constexpr, ROWS: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Rows `a`, `b x rows x count` (`step` from one input to the next), past `lines`, `b x 2 or 4 x size`: numbers
    below, `out`, and what the ends add, `total`, `b x rows`. With `PATCH` rows are over windows, `across` wide, from
    `place`, `b x rows x 2`, on (`own`: rows from one input to the next), and lines with channels last."""
    b = tl.program_id(0).to(tl.int64)
    r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    here = r < rows
    a += b * step
    out += b * rows * count
    if PARALLEL:
        lines += b * size * 2
    else:
        lines += b * size * 4
    if PATCH:
        spot = place + (b * own + r) * 2
        top = tl.load(spot, mask=here, other=0).to(tl.int32) * step_y + shift_y
        left = tl.load(spot + 1, mask=here, other=0).to(tl.int32) * step_x + shift_x
    added = tl.zeros((ROWS,), tl.float32)
    for first in range(0, count, NUMBERS):
        n = first + tl.arange(0, NUMBERS)
        inside = here[:, None] & (n < count)[None, :]
        at = r[:, None] * count + n[None, :]
        v = tl.load(a + at, mask=inside, other=0.0).to(tl.float32)
        if PATCH:
            cell = n // channels
            y = top[:, None] + (cell // across)[None, :]
            x = left[:, None] + (cell % across)[None, :]
            known = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            on = (y * width + x) * channels + (n % channels)[None, :]
        else:
            known = (n < count)[None, :]
            on = n[None, :]
        if PARALLEL:
            slope = tl.load(lines + on, mask=known, other=0.0)
            gap = tl.load(lines + size + on, mask=known, other=0.0)
            added -= tl.sum(tl.abs(v) * gap, 1)
            below = v * slope
        else:
            upper = tl.load(lines + on, mask=known, other=0.0)
            lower = tl.load(lines + size + on, mask=known, other=0.0)
            upper_end = tl.load(lines + 2 * size + on, mask=known, other=0.0)
            lower_end = tl.load(lines + 3 * size + on, mask=known, other=0.0)
            # Of what is not a number nothing is known: it stays so.
            positive = tl.where(v < 0.0, 0.0, v)
            added += tl.sum(v * upper_end + positive * lower_end, 1)
            below = v * upper + positive * lower
        if WRITE:
            tl.store(out + at, below, mask=inside)
    tl.store(total + b * rows + r, added, mask=here)


def _up(
    a, g, lines, place, here_out, by_lower, by_upper, by_end,
    rows, count, size, own, channels, height, width, across, step_y, step_x, shift_y, shift_x,
    PATCH: tl.constexpr, PARALLEL: tl.constexpr, INPUT: tl.constexpr, ROWS: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """The way up past the same lines: from `g`, the derivatives of the rows' bounds by what is below, those by `a`,
    `here_out`, and by the lines: by slopes, the lower one and both together, and by the lower end; if `PARALLEL`, by
    the slope, `by_upper`, and the half-gap, `by_end`. `INPUT`: below is nothing."""
    b = tl.program_id(0).to(tl.int64)
    r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    here = r < rows
    first_at = b * rows * count
    if PARALLEL:
        lines += b * size * 2
    else:
        lines += b * size * 4
    if PATCH:
        spot = place + (b * own + r) * 2
        top = tl.load(spot, mask=here, other=0).to(tl.int32) * step_y + shift_y
        left = tl.load(spot + 1, mask=here, other=0).to(tl.int32) * step_x + shift_x
    for first in range(0, count, NUMBERS):
        n = first + tl.arange(0, NUMBERS)
        inside = here[:, None] & (n < count)[None, :]
        at = first_at + r[:, None] * count + n[None, :]
        v = tl.load(a + at, mask=inside, other=0.0).to(tl.float32)
        if not INPUT:
            below = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
        if PATCH:
            cell = n // channels
            y = top[:, None] + (cell // across)[None, :]
            x = left[:, None] + (cell % across)[None, :]
            known = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            on = (y * width + x) * channels + (n % channels)[None, :]
        else:
            known = (n < count)[None, :]
            on = n[None, :]
        if PARALLEL:
            gap = tl.load(lines + size + on, mask=known, other=0.0)
            gap = tl.abs(gap)
            found = tl.where(v.to(tl.int32, bitcast=True) < 0, gap, -gap)  # by the sign, of zeros, too
            if not INPUT:
                found += below * tl.load(lines + on, mask=known, other=0.0)
            tl.store(by_end + at, -tl.abs(v), mask=inside)
        else:
            upper = tl.load(lines + on, mask=known, other=0.0)
            lower = tl.load(lines + size + on, mask=known, other=0.0)
            upper_end = tl.load(lines + 2 * size + on, mask=known, other=0.0)
            lower_end = tl.load(lines + 3 * size + on, mask=known, other=0.0)
            above = tl.where(v > 0.0, 1.0, 0.0)
            found = upper_end + above * lower_end + below * (upper + above * lower)
            tl.store(by_lower + at, below * v * above, mask=inside)
            tl.store(by_end + at, tl.where(v < 0.0, 0.0, v), mask=inside)
        if not INPUT:
            tl.store(by_upper + at, below * v, mask=inside)
        tl.store(here_out + at, found, mask=inside)


def _take(
    matrix, index, columns, scale, out, tall, wide, rows, count,
    INDEXED: tl.constexpr, CHOSEN: tl.constexpr, SCALED: tl.constexpr, ROWS: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Rows and columns of a `matrix`, `tall x wide`, for each input: `out`, `b x rows x count`. Rows from `tall` on are
    negative ones; columns at -1 are zero."""
    b = tl.program_id(0).to(tl.int64)
    r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(2) * NUMBERS + tl.arange(0, NUMBERS)
    here = r < rows
    there = n < count
    if INDEXED:
        i = tl.maximum(tl.load(index + b * rows + r, mask=here, other=0), 0).to(tl.int32)
    else:
        i = r
    negative = i >= tall
    i = tl.where(negative, i - tall, i)
    if CHOSEN:
        j = tl.load(columns + b * count + n, mask=there, other=-1).to(tl.int32)
    else:
        j = n
    known = here[:, None] & (there & (j >= 0))[None, :]
    v = tl.load(matrix + i[:, None] * wide + j[None, :], mask=known, other=0.0)
    v = tl.where(negative[:, None], -v, v)
    if SCALED:
        v = v * tl.load(scale + b * count + n, mask=there, other=0.0)[None, :]
    tl.store(out + (b * rows + r)[:, None] * count + n[None, :], v, mask=here[:, None] & there[None, :])


def _spread(
    a, place, out, rows, count, own, channels, height, width, tall, across, step_y, step_x, shift_y, shift_x,
    ROWS: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Rows over windows, `tall x across` with channels last, as rows over all of a node, channels first: `out`, `b x
    rows x count`, zero outside of the windows."""
    b = tl.program_id(0).to(tl.int64)
    r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    here = r < rows
    spot = place + (b * own + r) * 2
    top = tl.load(spot, mask=here, other=0).to(tl.int32) * step_y + shift_y
    left = tl.load(spot + 1, mask=here, other=0).to(tl.int32) * step_x + shift_x
    row = b * rows + r
    for first in range(0, count, NUMBERS):
        n = first + tl.arange(0, NUMBERS)
        channel = n // (height * width)
        cell = n % (height * width)
        y = (cell // width)[None, :] - top[:, None]
        x = (cell % width)[None, :] - left[:, None]
        inside = here[:, None] & (n < count)[None, :]
        known = inside & (y >= 0) & (y < tall) & (x >= 0) & (x < across)
        at = (row * (tall * across))[:, None] + y * across + x
        v = tl.load(a + at * channels + channel[None, :], mask=known, other=0.0)
        tl.store(out + row[:, None] * count + n[None, :], v, mask=inside)


def _collect(
    weight, part, place, out, few, rows, count, own, channels, height, width, tall, across, step_y, step_x, shift_y,
    shift_x, FEW: tl.constexpr, ROWS: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Sums of such rows, `part`, weighted by `weight`, `b x few x rows`, over all of a node: `out`, `b x few x
    count`."""
    b = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * NUMBERS + tl.arange(0, NUMBERS)
    k = tl.arange(0, FEW)
    channel = n // (height * width)
    cell = n % (height * width)
    total = tl.zeros((FEW, NUMBERS), tl.float32)
    for first in range(0, rows, ROWS):
        r = first + tl.arange(0, ROWS)
        here = r < rows
        spot = place + (b * own + r) * 2
        top = tl.load(spot, mask=here, other=0).to(tl.int32) * step_y + shift_y
        left = tl.load(spot + 1, mask=here, other=0).to(tl.int32) * step_x + shift_x
        y = (cell // width)[None, :] - top[:, None]
        x = (cell % width)[None, :] - left[:, None]
        known = here[:, None] & (n < count)[None, :] & (y >= 0) & (y < tall) & (x >= 0) & (x < across)
        at = ((b * rows + r) * (tall * across))[:, None] + y * across + x
        v = tl.load(part + at * channels + channel[None, :], mask=known, other=0.0)
        of = (b * few + k)[:, None] * rows + r[None, :]
        w = tl.load(weight + of, mask=(k < few)[:, None] & here[None, :], other=0.0)
        total = tl.dot(w, v, total, input_precision="ieee")
    inside = (k < few)[:, None] & (n < count)[None, :]
    tl.store(out + (b * few + k)[:, None] * count + n[None, :], total, mask=inside)


__all__ = ["compiled"]
