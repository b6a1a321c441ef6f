"""Whether the values of one shape may be read as another: never across an order of axes.

Row-major order keeps every axis where one of the shapes is flat, or where they differ in axes of size 1 alone. Anything
else would mix values up: of 32 x 32 x 3 numbers read as 3 x 32 x 32 not one stands where it belongs.
"""

from __future__ import annotations

import math

Shape = tuple[int, ...]


def keeps_axes(found: Shape, wanted: Shape) -> bool:
    """Whether `found` may be read as `wanted` in row-major order."""
    plain, other = ([n for n in shape if n != 1] for shape in (found, wanted))
    return math.prod(found) == math.prod(wanted) and (plain == other or min(len(plain), len(other)) <= 1)


def moved_last(shape: Shape) -> Shape:
    """Channels first, `(c, h, w)`, transposed to channels last, `(h, w, c)`."""
    return (*shape[1:], *shape[:1])


def moved_first(shape: Shape) -> Shape:
    """Channels last, `(h, w, c)`, transposed to channels first, `(c, h, w)`."""
    return (*shape[-1:], *shape[:-1])


def channels_of(found: Shape, wanted: Shape) -> str | None:
    """Where images of shape `found` have their channels, "first" or "last", if it is clear from their sizes that
    `wanted` is the same with them at the other end; else None.

    Plain: three axes or more, and no other one has the size of the channels' axis, which is therefore known by it.
    """
    for name, turned, channels in (
        ("first", moved_last(found), found[:1]),
        ("last", moved_first(found), found[-1:]),
    ):
        if turned == wanted != found and len(found) > 2 and found.count(*channels) == 1:
            return name
    return None


def looks_channels_last(shape: Shape) -> bool:
    """Whether this is the shape of an image `(h, w, c)`, by its few channels at the end."""
    return len(shape) == 3 and shape[2] <= 4 < shape[0]


__all__ = ["channels_of", "keeps_axes", "looks_channels_last", "moved_first", "moved_last"]
