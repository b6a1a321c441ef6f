"""The sets of inputs that bounds are computed over."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from elbowroom.claim.categories import Categories
from elbowroom.claim.stated import is_norm
from elbowroom.errors import InputError

_PART = 1 << 14  # entries of a long row that are added up at a time


@dataclass(frozen=True, eq=False)
class InputSet:
    """`{ center + Q (radius * v) : ||v||_p <= 1 }`, one set per input of a batch.

    A box with its own lower and upper extents is one whose centre is its midpoint: see `box`.

    Args:
        center: `b x *input_shape`.
        radius: `b x *input_shape`, not negative.
        p: From 1 to inf (a box).
        basis: Q, an orthogonal `n x n` matrix whose columns are the directions, or None for the coordinate axes.
        sharpness: Where it is smaller than the power of the dual norm, derivatives of `support` are smoothed. A maximum
            (p = 1) has one by its largest term alone, which says nothing about the others, and a high power is not much
            better; so all share in it, by the power `sharpness` of their size.
        categories: Whose entries are not in a ball but codes of levels; their radius is zero, their centre one of them.
        allowed: Which levels, `b x c`.

    Raises:
        InputError: p is no norm's, or the shapes do not fit.
    """

    center: Tensor
    radius: Tensor
    p: float = math.inf
    basis: Tensor | None = None
    sharpness: float = math.inf
    categories: Categories | None = None
    allowed: Tensor | None = None

    def __post_init__(self) -> None:
        if not is_norm(self.p):
            raise InputError(f"p must be a number from 1 to infinity, got {self.p}")
        if self.center.shape != self.radius.shape:
            raise InputError(
                f"center has shape {tuple(self.center.shape)}, radius {tuple(self.radius.shape)}; they must agree"
            )
        n = self.center[0].numel() if len(self.center) else None
        if self.basis is not None and n is not None and tuple(self.basis.shape) != (n, n):
            raise InputError(f"basis must be {n} x {n}, got {tuple(self.basis.shape)}")

    @staticmethod
    def box(lower: Tensor, upper: Tensor) -> InputSet:
        """The box `[lower, upper]`.

        Args:
            lower: The lower corners, `b x *input_shape`.
            upper: The upper corners, `b x *input_shape`.

        Returns:
            The set.
        """
        center = lower / 2 + upper / 2  # half of the sum may overflow
        # Not half of the width: on a box a few ulps wide the rounded centre is not in the middle.
        return InputSet(center, torch.maximum(upper - center, center - lower))

    @cached_property
    def _flat(self) -> Tensor:
        return self.radius.flatten(1)

    @property
    def is_box(self) -> bool:
        return self.p == math.inf and self.basis is None and self.categories is None

    def part(self, start: int, stop: int) -> InputSet:
        """The sets of some inputs of the batch.

        Args:
            start: The first of them.
            stop: The one after the last.

        Returns:
            Their sets.
        """
        return self.take(slice(start, stop))

    def take(self, index: slice | Tensor, radius: Tensor | None = None) -> InputSet:
        """The sets of some inputs of the batch.

        Args:
            index: Which ones, `m`.
            radius: Other radii for them, `m x *input_shape`.

        Returns:
            Their sets.
        """
        allowed = None if self.allowed is None else self.allowed[index]
        return replace(
            self, center=self.center[index], radius=self.radius[index] if radius is None else radius, allowed=allowed
        )

    def hull(self) -> tuple[Tensor, Tensor]:
        """The smallest box around the set: lower and upper corner, `b x *input_shape`."""
        extent = self.radius
        if self.basis is not None:
            rows = self.basis[None]
            extent = self._norm(rows, self._flat).reshape(self.radius.shape)
        lower, upper = self.center - extent, self.center + extent
        if self.categories is None or self.allowed is None:
            return lower, upper
        ends = self.categories.hull(self.allowed, lower.flatten(1), upper.flatten(1))
        return ends[0].reshape(lower.shape), ends[1].reshape(upper.shape)

    def support(self, a: Tensor, both: bool = False) -> Tensor:
        """`max -a . (x - center)` over the set, by the dual norm: how far rows fall below their value at the centre.
        Of sets without categories, which are symmetric, also how far they rise above it.

        Args:
            a: `b x r x n`, or `1 x r x n` for rows shared by the batch.
            both: Whether it must be enough for both, also of sets that are not symmetric.

        Returns:
            `b x r`.
        """
        found = self._norm(a if self.basis is None else a @ self.basis, self._flat)
        for _, values in self._levels(a, both):
            found = found + values.amax(-1)
        return found

    def _levels(self, a: Tensor, both: bool) -> Iterator[tuple[slice, Tensor]]:
        """Per category its entries, and by how much its levels lower rows, `b x r x l`; minus infinity where not
        allowed. `both`: or raise them."""
        if self.categories is None or self.allowed is None:
            return
        flat = self.center.flatten(1)
        for one, place in self.categories:
            steps = one.codes.to(flat) - flat[:, None, one.entries]
            values = a[..., one.entries].expand(len(flat), -1, -1) @ steps.transpose(1, 2)
            values = values.abs() if both else -values
            yield one.entries, torch.where(self.allowed[:, None, place], values, -torch.inf)

    def _norm(self, a: Tensor, radius: Tensor) -> Tensor:
        if self.p == math.inf:
            return dot(a.abs(), radius)
        if self.p == 2:
            # Scaled, lest squares overflow, or vanish and leave the set without extent. The gradient of the norm
            # at zero is taken as zero.
            size, reach = _scale(a), _scale(radius)
            square = dot((a / size).square(), (radius / reach).square())
            return torch.where(square > 0, square, 1.0).sqrt() * (square > 0) * size.squeeze(-1) * reach
        terms = (a * radius[:, None]).abs()
        return terms.amax(-1) if self._power == math.inf else (self._weights(terms) * terms).sum(-1)

    @property
    def _dual(self) -> float:
        """The power of the dual norm."""
        return math.inf if self.p == 1 else 1.0 if self.p == math.inf else self.p / (self.p - 1)

    @property
    def _power(self) -> float:
        """By which terms share in a derivative."""
        return min(self._dual, self.sharpness)

    def _weights(self, terms: Tensor) -> Tensor:
        """Weights under which the terms, `b x r x n`, add up to their dual norm; constants to autograd."""
        terms = terms.detach() / _scale(terms)
        weight = terms ** (self._power - 1)
        total = (weight * terms).sum(-1, keepdim=True)
        # Without smoothing the total is the sum of the powers, and at least 1 where not all is zero.
        powers = total if self._power == self._dual else (terms**self._dual).sum(-1, keepdim=True)
        norm = powers ** (1 / self._dual)
        return weight * norm / total.clamp_min(torch.finfo(terms.dtype).tiny)

    def support_gradient(self, a: Tensor, both: bool = False) -> tuple[Tensor, Tensor]:
        """Derivatives of `support(a)`.

        Args:
            a: `b x r x n`.
            both: As `support` was told.

        Returns:
            By `a` (the centre minus the point of the set at which the maximum is attained) and by `radius`, both `b x
            r x n`.
        """
        given = a
        if self.basis is not None:
            a = a @ self.basis
        radius = self._flat[:, None]
        if self.p == math.inf:
            at, by_radius = torch.copysign(radius, a), a.abs()
        elif self.p == 2:
            scaled = a * radius
            scaled = scaled / _scale(scaled)
            norm = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
            unit = scaled / torch.where(norm > 0, norm, 1.0)
            at, by_radius = unit * radius, unit * a
        elif self._power == math.inf:
            best = (a * radius).abs().argmax(-1, keepdim=True)
            chosen = torch.zeros_like(a).scatter(-1, best, 1.0)
            at, by_radius = chosen * torch.copysign(radius, a), chosen * a.abs()
        else:
            weight = self._weights((a * radius).abs())
            at, by_radius = weight * torch.copysign(radius, a), weight * a.abs()
        if self.basis is not None:
            at = at @ self.basis.T
        for (one, _), (entries, values) in zip(self.categories or (), self._levels(given, both)):
            chosen = self.center.flatten(1)[:, None, entries] - one.codes.to(at)[values.argmax(-1)]
            if both:
                raised = (given[..., entries] * chosen).sum(-1, keepdim=True) < 0
                chosen = torch.where(raised, -chosen, chosen)
            at = torch.cat([at[..., : entries.start], chosen, at[..., entries.stop :]], -1)
        return at, by_radius


def _scale(t: Tensor) -> Tensor:
    """The largest magnitude along the last axis (kept), 1 where all is zero; a constant to autograd."""
    largest = t.detach().abs().amax(-1, keepdim=True)
    return torch.where(largest > 0, largest, 1.0)


def dot(a: Tensor, v: Tensor) -> Tensor:
    """`sum_k a[b, r, k] v[b, k]` as a matrix product: `b x r`. `a` may be shared by the batch (`1 x r x n`)."""
    if a.shape[0] == 1:
        return v @ a[0].T
    return torch.bmm(a, v[:, :, None]).squeeze(-1)


def long_dot(a: Tensor, v: Tensor) -> Tensor:
    """The same for rows of any length, `b x r x n` by `b x n`, some entries at a time: one long product in float32 is
    off by more than a sub-problem's gap may be, and of many features nothing as large as `a` is to be written."""
    parts = zip(a.split(_PART, -1), v.split(_PART, -1))
    return torch.stack([(rows * own[:, None]).sum(-1) for rows, own in parts]).sum(0)
