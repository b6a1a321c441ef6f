"""Data that needs no download: scikit-learn's 8x8 digits, and the paper's synthetic points in the plane."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from elbowroom.data.standard import digits_pixels
from elbowroom.errors import InputError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels, split once and for all.

    `x_train`, `x_test`: `n x f`, float32, every feature in `[low, high]`. `y_train`, `y_test`: `n`, classes 0 to k-1.
    `shape`: of one input seen as an image, `(f,)` where it is none.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    low: float
    high: float
    shape: tuple[int, ...]

    @property
    def n_features(self) -> int:
        return self.x_train.shape[1]

    @property
    def n_classes(self) -> int:
        return int(max(self.y_train.max(), self.y_test.max())) + 1

    def to(self, device: torch.device) -> Self:
        """The same data on a device."""
        parts = {name: getattr(self, name).to(device) for name in ("x_train", "y_train", "x_test", "y_test")}
        return replace(self, **parts)

    def __repr__(self) -> str:
        sizes = f"{len(self.x_train)} train, {len(self.x_test)} test"
        shape = "x".join(map(str, self.shape))
        return f"{type(self).__name__}({self.name}: {sizes}, {shape} in [{self.low:g}, {self.high:g}])"


@dataclass(frozen=True, eq=False, repr=False)
class Voronoi(Dataset):
    """Points of the square labelled by the closest of `seeds`, `k x 2`."""

    seeds: Tensor


def digits(n_test: int = 397, seed: int = 0) -> Dataset:
    """scikit-learn's 1797 handwritten digits of 8x8 pixels, scaled from 0..16 to [-1, 1], `n x 64`.

    The split is drawn with `seed`: `n_test` for testing, the others for training.
    """
    pixels, classes = digits_pixels()
    if not 0 < n_test < len(pixels):
        raise InputError(f"n_test must be between 1 and {len(pixels) - 1}, got {n_test}")
    x = torch.from_numpy(pixels.reshape(-1, 64).astype(np.float32) / 8 - 1)  # exact: multiples of 1/8
    y = torch.from_numpy(classes)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    test, train = order[:n_test], order[n_test:]
    return Dataset("digits 8x8", x[train], y[train], x[test], y[test], -1.0, 1.0, (8, 8))


def voronoi(seed: int = 0, n_points: int = 10_000, n_seeds: int = 10, share_train: float = 0.9) -> Voronoi:
    """The paper's synthetic data: random points of [-1, 1]^2, each with the label of the closest of 10 random seeds."""
    if n_seeds < 2 or n_points < 2 or not 0 < share_train < 1:
        given = f"{n_seeds}, {n_points} and {share_train}"
        raise InputError(f"voronoi needs two seeds, two points and a share between 0 and 1, got {given}")
    generator = torch.Generator().manual_seed(seed)
    seeds = 2 * torch.rand(n_seeds, 2, generator=generator) - 1
    x = 2 * torch.rand(n_points, 2, generator=generator) - 1
    y = torch.cdist(x.double(), seeds.double()).argmin(1)
    n = round(share_train * n_points)
    return Voronoi(f"voronoi {seed}", x[:n], y[:n], x[n:], y[n:], -1.0, 1.0, (2,), seeds)
