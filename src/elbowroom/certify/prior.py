"""What earlier certificates of the same network say about the shape of regions."""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.claim.directions import coordinates
from elbowroom.errors import InputError
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from elbowroom.search.regions.base import Region


def mean_shape(prior: Certificates, net: Network, region: Region, shares: bool) -> Tensor:
    """The mean of earlier regions' extents as multiples of their uniform radii, `d`."""
    if not isinstance(prior, Certificates):
        raise InputError(f"prior must be Certificates of other inputs, got {type(prior).__name__}")
    if prior.settings.get("network_hash") != network_hash(net):
        raise InputError("prior is about another network; its regions say nothing about this one's")
    if prior.settings.get("region") != region.name:
        raise InputError(f"prior holds regions of shape {prior.settings.get('region')}, not {region.name}")
    if prior.basis is not None and (region.basis is None or not torch.equal(prior.basis, region.basis.double().cpu())):
        raise InputError("prior holds regions along other directions: give its own, as `Oblique(prior.basis)`")
    if prior.settings.get("shares", False) != shares:
        raise InputError("prior has other uniform regions: one of the two is measured in shares of a scale")
    good = prior.certified & (prior.uniform > 0)
    if not bool(good.any()):
        raise InputError("prior holds no certificate")
    if prior.lower is not None and prior.upper is not None:
        down, up = (prior.x - prior.lower).flatten(1), (prior.upper - prior.x).flatten(1)
    else:
        shift, eps = (prior.center - prior.x).flatten(1), prior.eps.flatten(1)
        shift = shift if prior.basis is None else coordinates(prior.basis, shift)
        down, up = (eps - shift).clamp_min(0), (eps + shift).clamp_min(0)
    extents = region.theta(down, up)
    return (extents[good] / prior.uniform[good][:, None]).mean(0)


__all__ = ["mean_shape"]
