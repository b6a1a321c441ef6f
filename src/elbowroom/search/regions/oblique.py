"""Another shape in a rotated basis."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from elbowroom.arguments.tensors import tensor_of
from elbowroom.claim.space import Space
from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.box import Box


@dataclass(frozen=True, eq=False)
class Oblique(Region):
    """Another shape in a rotated basis (the paper's "oblique bounds").

    Extents, `frozen` and `importance` then belong to directions, not to features.

    Args:
        basis: Orthogonal, `n x n`; its columns are the directions.
        inner: The shape, with extents of its own.

    Raises:
        InputError: The basis is not orthogonal, or `inner` is no such shape.
    """

    basis: Tensor  # type: ignore[misc]
    inner: Region = field(default_factory=Box)

    @in_own_modes
    def __post_init__(self) -> None:
        basis = tensor_of(self.basis).detach()
        if basis.dim() != 2 or basis.shape[0] != basis.shape[1]:
            raise InputError(f"basis must be a square matrix, got shape {tuple(basis.shape)}")
        error = (basis.double().T @ basis.double() - torch.eye(len(basis)).to(basis.double())).abs().max()
        if not float(error) < 1e-4:
            raise InputError(f"basis must be orthogonal: its columns are off by {float(error):.1e}")
        object.__setattr__(self, "basis", basis)
        if not isinstance(self.inner, Region) or self.inner.one_radius or self.inner.basis is not None:
            raise InputError(f"inner must be a shape with extents of its own, such as Box(), got {self.inner!r:.80}")

    def place(self, x: Tensor, space: Space, shape: tuple[int, ...], dtype: torch.dtype) -> Placed:
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
