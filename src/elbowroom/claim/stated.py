"""Where an input may be, as a certificate states it: exact numbers, of which something is proved."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from elbowroom.claim.categories import Categories, must_fit
from elbowroom.errors import InputError


def is_norm(p: object) -> bool:
    """Whether p is a number from 1 to infinity, so that `||v||_p` is a norm."""
    return isinstance(p, int | float) and not isinstance(p, bool) and p >= 1


@dataclass(frozen=True, eq=False)
class Stated:
    """A region per input, in float64, taken as exact numbers; all `b x n`.

    A box by its corners: `lower`, `upper`. Otherwise `center + basis (radius * v)`, `||v||_p <= 1`; `basis`: `n x n`,
    its columns are directions, or None for the axes. Of a box with `categories` their entries are codes of the levels
    that are `allowed`, `b x c`, and of no others; its corners are there the hull of these.
    """

    lower: Tensor | None = None
    upper: Tensor | None = None
    center: Tensor | None = None
    radius: Tensor | None = None
    p: float = math.inf
    basis: Tensor | None = None
    categories: Categories | None = None
    allowed: Tensor | None = None

    def __len__(self) -> int:
        return len(self._ends[0])

    @property
    def is_box(self) -> bool:
        return self.lower is not None and self.upper is not None

    @property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """The corners, or centre and radius."""
        ends = (self.lower, self.upper) if self.is_box else (self.center, self.radius)
        assert ends[0] is not None and ends[1] is not None
        return ends[0], ends[1]

    def _with(self, first: Tensor, second: Tensor) -> Stated:
        if self.is_box:
            return replace(self, lower=first, upper=second)
        return replace(self, center=first, radius=second)

    def take(self, index: Tensor | slice) -> Stated:
        """The regions of some inputs."""
        first, second = self._ends
        allowed = None if self.allowed is None else self.allowed[index]
        return replace(self._with(first[index], second[index]), allowed=allowed)

    def put(self, index: Tensor, other: Stated) -> None:
        """Replaces some of the regions by those of `other`, in place."""
        for own, new in zip(self._ends, other._ends):
            own[index] = new
        if self.allowed is not None and other.allowed is not None:
            self.allowed[index] = other.allowed

    def sensible(self) -> Tensor:
        """Which inputs' regions are what they say, `b`: corners in order, radii that are not negative, no NaN; of every
        category a level, and corners to match."""
        first, second = self._ends
        good = (first <= second if self.is_box else torch.isfinite(first) & (second >= 0)).all(1)
        if self.categories is not None and self.allowed is not None:
            low, high = self.categories.hull(self.allowed, first, second)
            good &= self.categories.sensible(self.allowed) & (low == first).all(1) & (high == second).all(1)
        return good

    def executable(self) -> Tensor:
        """Which inputs' regions have only levels whose codes are float32 numbers, `b`: others are no inputs of a
        network that is executed in float32, and nothing would be said of them."""
        if self.categories is None or self.allowed is None:
            return torch.ones(len(self), dtype=torch.bool, device=self._ends[0].device)
        return (self.categories.of_float32().to(self.allowed.device) | ~self.allowed).all(1)

    def middle(self) -> Tensor:
        """The centre; of a box, rounded, but inside."""
        first, second = self._ends
        # Halves of subnormal numbers are rounded, and may leave the box.
        return torch.minimum(torch.maximum(first / 2 + second / 2, first), second) if self.is_box else first

    def half_widths(self) -> Tensor:
        """Half the width of a box, rounded inwards; the radii of the others."""
        first, second = self._ends
        if not self.is_box:
            return second
        half = second / 2 - first / 2
        return torch.where(half > 0, torch.nextafter(half, torch.zeros_like(half)), 0.0)

    def scaled(self, x: Tensor, factor: Tensor, free: Tensor | None = None) -> Stated:
        """The regions shrunk about their inputs `x`, `b x n`, by `factor`, `b`, at most 1: all sides alike, those cut
        to the domain included; of a box, where given, those of features that are `free`, `b x n`. They lie in the
        regions they were, whatever rounding does."""
        f = factor[:, None]
        first, second = self._ends

        # Sets of levels stay what they are.
        moves = None if self.categories is None else self.categories.moves.to(first.device)

        def towards(t: Tensor) -> Tensor:
            found = torch.where(f < 1, x + f * (t - x), t)
            found = found if free is None or not self.is_box else torch.where(free, found, t)
            return found if moves is None else torch.where(moves, found, t)

        if self.is_box:
            return self._with(torch.maximum(towards(first), first), torch.minimum(towards(second), second))
        return self._with(towards(first), f * second)

    def thinnest(self, x: Tensor, free: Tensor) -> Tensor:
        """By how many powers of 2 the regions can shrink before float64 holds no number beside `x`, `b`: of boxes. (The
        extents of the others are numbers by themselves.)"""
        if not self.is_box:
            return torch.full_like(x[:, 0], torch.inf)
        grain = (torch.finfo(x.dtype).eps * x.abs()).clamp_min(torch.finfo(x.dtype).tiny)
        return torch.where(free, self.half_widths() / grain, torch.inf).amin(1).log2()

    def to(self, device: torch.device | str) -> Stated:
        """In another place."""
        first, second = (t.to(device) for t in self._ends)
        basis, allowed = (None if t is None else t.to(device) for t in (self.basis, self.allowed))
        categories = None if self.categories is None else self.categories.to(device)
        return replace(self._with(first, second), basis=basis, categories=categories, allowed=allowed)


def well_formed(
    region: Stated, rows: Tensor, offset: Tensor, group: Tensor, n_inputs: int, n_outputs: int
) -> tuple[Stated, Tensor, Tensor]:
    """Region, rows and offset in float64, after a look at all shapes; raises `InputError` where they make no claim.

    `rows`: `b x t x k` (or `1 x ...`), `offset`: `b x t`, `group`: `t`; see `Specification`.
    """
    pair = ("lower", "upper") if region.is_box else ("center", "radius")
    batch = -1 if getattr(region, pair[0]) is None else len(getattr(region, pair[0]))
    for name in pair:
        t = getattr(region, name)
        if t is None or tuple(t.shape) != (batch, n_inputs) or not t.is_floating_point():
            raise InputError(f"the region needs {name}: numbers, one row of {n_inputs} per input")
    if not is_norm(region.p):
        raise InputError(f"a region has a norm p from 1 to infinity, not {region.p}")
    if region.is_box and (region.basis is not None or region.p != math.inf):
        raise InputError("a box given by its corners has no basis, and no other norm")
    if region.basis is not None and tuple(region.basis.shape) != (n_inputs, n_inputs):
        raise InputError(f"the basis has shape {tuple(region.basis.shape)}, not {(n_inputs, n_inputs)}")
    if region.categories is not None and not region.is_box:
        raise InputError("only boxes have sets of categories")
    must_fit(region.categories, region.allowed, batch, n_inputs)
    if rows.dim() != 3 or rows.shape[0] not in (1, batch) or rows.shape[2] != n_outputs or not rows.shape[1]:
        raise InputError(f"rows of shape {tuple(rows.shape)} do not fit {batch} inputs and {n_outputs} outputs")
    if offset.shape != rows.shape[:2]:
        raise InputError(f"offsets of shape {tuple(offset.shape)} do not fit rows of shape {tuple(rows.shape)}")
    if group.shape != rows.shape[1:2] or bool((group < 0).any()):
        raise InputError("group needs one number per row, counted from 0")
    first, second = (t.double() for t in region._ends)
    basis = None if region.basis is None else region.basis.double()
    return replace(region._with(first, second), basis=basis), rows.double(), offset.double()
