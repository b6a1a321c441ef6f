"""What the regions of many inputs have in common: the measures of the paper, as `er.analyse`.

`regions` below are `Certificates`, of which those count that are certified; or extents, `b x *s`, of `b` inputs that
have a certificate (a tensor or an array): `certs.eps[certs.certified]`, or some of these.

>>> certs = er.Certificates.load("run")
>>> mean, least = er.analyse.cosine_similarity(certs)
>>> er.analyse.feature_robustness(certs).order[:10]  # the features with the least room
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.tensors import tensor_of
from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError

Regions = Certificates | Tensor | np.ndarray


def cosine_similarity(regions: Regions, block: int = 1024) -> tuple[float, float]:
    """How similar regions are: the cosine between the extents of two inputs (the paper's table of cosines).

    Args:
        regions: Of two inputs or more, see above.
        block: At most `block x block` cosines are held at a time.

    Returns:
        Mean and minimum over all pairs.

    Raises:
        InputError: There are fewer than two inputs, or some have no extent.
    """
    directions = _directions(_extents(regions))
    total, least = 0.0, 1.0
    parts = directions.split(block)
    for i, rows in enumerate(parts):
        for j in range(i, len(parts)):
            cosines = rows @ parts[j].T
            if i == j:
                cosines = cosines[tuple(torch.triu_indices(len(rows), len(rows), 1, device=rows.device))]
            if cosines.numel():
                total += float(cosines.sum())
                least = min(least, float(cosines.min()))
    n = len(directions)
    return total / (n * (n - 1) / 2), least


@dataclass(frozen=True, eq=False)
class Spectrum:
    """How many directions the regions of a model need.

    Attributes:
        shares: Of the squared length of all unit directions, what each principal direction holds; the largest first.
        participation: `1 / sum(shares^2)`: the number of directions that would hold as much if all held the same; 1
            where all regions are collinear.
        entropy: `exp(-sum(shares log shares))`: the same, by entropy.
    """

    shares: Tensor
    participation: float
    entropy: float

    def needed(self, share: float) -> int:
        """The least number of principal directions that hold a share of the squared length.

        Args:
            share: The share, from 0 to 1.

        Returns:
            That number.
        """
        return int((self.shares.cumsum(0) < share - 1e-12).sum()) + 1


def spectrum(regions: Regions) -> Spectrum:
    """The effective dimension of the regions' directions, about the origin.

    The paper argues from their similarity that most directions of a decision boundary lie in a subspace of few
    dimensions, fewer for a robust model; this counts them. Extents are positive, so all directions have a large part in
    common: the first principal direction is nearly their mean, and holds the mean cosine or more.

    Args:
        regions: Of two inputs or more, see above.

    Returns:
        The shares of the principal directions, and how many there are in effect.

    Raises:
        InputError: There are fewer than two inputs, or some have no extent.
    """
    directions = _directions(_extents(regions))
    narrow = directions if len(directions) <= directions.shape[1] else directions.T
    values = torch.linalg.eigvalsh(narrow @ narrow.T).flip(0).clamp_min(0)
    shares = (values / values.sum()).cpu()
    entropy = float(torch.special.entr(shares).sum())
    return Spectrum(shares, 1 / float(shares.square().sum()), math.exp(entropy))


@dataclass(frozen=True, eq=False)
class FeatureRobustness:
    """Which features may move far, over many inputs.

    Attributes:
        score: The feature's extent as a multiple of the geometric mean of its input's extents; the geometric mean of
            that over the inputs, `*s`.
        spread: By what factor it varies from input to input (exp of the standard deviation of its log; 1: not at all),
            `*s`.
        order: The features, flat, least room first.
    """

    score: Tensor
    spread: Tensor
    order: Tensor


def feature_robustness(regions: Regions) -> FeatureRobustness:
    """Ranks the features by their room: the paper's "data-agnostic metric" of features' robustness.

    Features that must not move (extent 0) have no rank; leave them out. Certificates of rotated shapes have no extents
    of features.

    Args:
        regions: Of two inputs or more, see above.

    Returns:
        Scores and the order of features.

    Raises:
        InputError: An extent is zero, the regions are rotated, or there are fewer than two inputs.
    """
    _must_be_of_features(regions)
    eps = _extents(regions)
    _directions(eps)  # the same demands
    logs = eps.detach().flatten(1).double().log()
    if not bool(logs.isfinite().all()):
        raise InputError("some extents are zero; leave frozen features out")
    relative = logs - logs.mean(1, keepdim=True)
    score, spread = relative.mean(0), relative.std(0, correction=0)
    shape = eps.shape[1:]
    return FeatureRobustness(score.exp().reshape(shape), spread.exp().reshape(shape), score.argsort(stable=True))


def neighbour_correlation(maps: Regions) -> float:
    """How smooth maps are: the correlation of a pixel with the one below or beside it.

    Noise has 0 and a smooth picture nearly 1.

    Args:
        maps: `b x h x w` or `b x c x h x w`; or certificates: their maps are the logs of their extents, which differ by
            factors. For extents, pass their logs.

    Returns:
        Per map and channel over all pairs of neighbours, then the mean.

    Raises:
        InputError: These are no such maps, or an extent of certificates is zero.
    """
    if isinstance(maps, Certificates):
        _must_be_of_features(maps)
        maps = _extents(maps).log()
        if not bool(maps.isfinite().all()):
            raise InputError("some extents are zero; leave frozen features out")
    else:
        maps = tensor_of(maps)
    if maps.dim() not in (3, 4) or min(maps.shape[-2:]) < 2:
        raise InputError(f"maps must be b x h x w or b x c x h x w with sides of 2 or more, got {tuple(maps.shape)}")
    flat = maps.detach().double().reshape(-1, *maps.shape[-2:])
    first = torch.cat([flat[:, :-1].flatten(1), flat[:, :, :-1].flatten(1)], 1)
    second = torch.cat([flat[:, 1:].flatten(1), flat[:, :, 1:].flatten(1)], 1)
    return float(correlation(first, second).mean())


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's correlation, row by row.

    Args:
        a: Rows, `b x n` or `1 x n`.
        b: Rows, likewise.

    Returns:
        `b`; zero where a row is constant.
    """
    a, b = (t.detach().double() - t.detach().double().mean(1, keepdim=True) for t in (a, b))
    scale = a.norm(dim=1) * b.norm(dim=1)
    return torch.where(scale > 0, (a * b).sum(1) / scale.clamp_min(1e-300), 0.0)


def _extents(regions: Regions) -> Tensor:
    """The extents of the inputs that have a certificate, `b x *s`."""
    return regions.eps[regions.certified] if isinstance(regions, Certificates) else tensor_of(regions)


def _must_be_of_features(regions: Regions) -> None:
    if isinstance(regions, Certificates) and regions.basis is not None:
        raise InputError(
            "these regions are rotated: their extents are those of directions, not of features; "
            "pass certs.eps[certs.certified] where directions are meant"
        )


def _directions(eps: Tensor) -> Tensor:
    """The extents as unit vectors, `b x n`, float64."""
    if eps.dim() < 2 or len(eps) < 2:
        raise InputError(f"at least two inputs are needed, got eps of shape {tuple(eps.shape)}")
    directions = eps.detach().flatten(1).double()
    # Scaled by the largest first: squares of tiny extents would underflow.
    largest = directions.abs().amax(1, keepdim=True)
    if not bool(((largest > 0) & largest.isfinite()).all()):
        bad = int((~((largest > 0) & largest.isfinite())).sum())
        raise InputError(f"{bad} of {len(eps)} inputs have no extent (or NaN); pass certs.eps[certs.certified]")
    directions = directions / largest
    unit: Tensor = directions / directions.norm(dim=1, keepdim=True)
    return unit


__all__ = [
    "FeatureRobustness", "Regions", "Spectrum", "correlation", "cosine_similarity", "feature_robustness",
    "neighbour_correlation", "spectrum",
]  # fmt: skip
