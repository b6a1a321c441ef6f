"""Another shape in a rotated basis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.tensors import tensor_of
from elbowroom.claim.directions import how_crooked, is_straight
from elbowroom.claim.space import Space
from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.box import Box

AUTO = "auto"


@dataclass(frozen=True, eq=False)
class Oblique(Region):
    """Another shape in a rotated basis (the paper's "oblique bounds").

    Extents, `max_eps`, `frozen` and `importance` then belong to directions, not to features. A domain does not limit
    them.

    With "auto" the directions are found from the inputs, one basis for all of them: those first that the margins depend
    on most, those last that nothing depends on. It is orthogonal where each feature is measured in its own unit: the
    width of its domain, of a table else that of its range; and no direction is longer than one such unit, where
    `max_eps` does not say otherwise (one number for all directions). `frozen` is then about features, which stay where
    they are; `importance` is refused.

    Args:
        basis: `n x n`; its columns are the directions. Orthogonal, or so with each feature in a unit of its own, the
            product of all of them being 1: `diag(d) Q`. Or "auto".
        inner: The shape, with extents of its own.

    Raises:
        InputError: The basis is not orthogonal, or `inner` is no such shape.

    Example:
        >>> certs = er.certify(net, x, region=er.Oblique("auto"), domain=(0, 1))
        >>> certs.basis[:, 0]                # the direction that the decisions depend on most
    """

    basis: Tensor | Any  # type: ignore[misc]
    inner: Region = field(default_factory=Box)

    @in_own_modes
    def __post_init__(self) -> None:
        if isinstance(self.basis, str) and self.basis != AUTO:
            raise InputError(f'basis must be a square matrix or "{AUTO}", got {self.basis!r:.80}')
        if not self.is_to_be_found:
            basis = tensor_of(self.basis).detach()
            if basis.dim() != 2 or basis.shape[0] != basis.shape[1]:
                raise InputError(f"basis must be a square matrix, got shape {tuple(basis.shape)}")
            if not is_straight(basis):
                raise InputError(
                    "basis must be orthogonal, at least with features in other units, whose product is 1: its columns "
                    f"are off by {how_crooked(basis):.1e}"
                )
            object.__setattr__(self, "basis", basis)
        if not isinstance(self.inner, Region) or self.inner.one_radius or self.inner.basis is not None:
            raise InputError(f"inner must be a shape with extents of its own, such as Box(), got {self.inner!r:.80}")

    @property
    def is_to_be_found(self) -> bool:
        """Whether there is no basis yet."""
        return isinstance(self.basis, str)

    def along(self, basis: Tensor) -> Oblique:
        """The same shape along these directions.

        Args:
            basis: As `Oblique` takes it.

        Returns:
            The shape.
        """
        return Oblique(basis, self.inner)

    def place(self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype) -> Placed:
        if self.is_to_be_found:
            raise InputError(f'the directions of Oblique("{AUTO}") are not found yet; `certify` does so')
        if len(self.basis) != x.shape[1]:
            raise InputError(f"basis is for {len(self.basis)} features, the network has {x.shape[1]}")
        return self.placed(x, space, shape, dtype, self.basis)

    def binding(self, space: Space) -> Space:
        """A domain limits features, not the directions of a rotated shape: those have their caps alone."""
        return space.without_domain()

    def theta(self, down: Tensor, up: Tensor) -> Tensor:
        return self.inner.theta(down, up)

    @property
    def placed(self) -> type[Placed]:  # type: ignore[override]
        return self.inner.placed

    @property
    def name(self) -> str:
        return f"Oblique({self.inner.name})"
