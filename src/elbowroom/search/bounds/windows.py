"""Windows: the places of an image-like node (`c x *spatial`) that some places of a later one depend on."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

Window = tuple[slice, ...]  # a slice per spatial axis


def margins(inner: Sequence[slice], outer: Sequence[slice]) -> list[int]:
    """What `F.pad` must add to get from one window to another (or, negative, cut off)."""
    ends = [(i.start - o.start, o.stop - i.stop) for i, o in zip(inner, outer)]
    return [n for pair in reversed(ends) for n in pair]


def hull(one: Window, other: Window) -> Window:
    """The smallest window around both."""
    return tuple(slice(min(s.start, t.start), max(s.stop, t.stop)) for s, t in zip(one, other))


def cut_constant(t: Tensor, at: Window) -> Tensor:
    """Of a constant that broadcasts from the right, the places `at`."""
    spatial = min(t.dim(), len(at))
    chosen = [s if n > 1 else slice(None) for s, n in zip(at[len(at) - spatial :], t.shape[t.dim() - spatial :])]
    return t[(slice(None),) * (t.dim() - spatial) + tuple(chosen)]
