"""Is a certificate's region what its numbers say? Before anything is proved of it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates, norm_of
from elbowroom.claim.categories import Categories
from elbowroom.claim.directions import units_of
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Tree, leaves_of
from elbowroom.claim.tree_bytes import as_bytes, unpack
from elbowroom.errors import InputError
from elbowroom.network.graph import Network

_NEAR = 1e-9  # relative: how far an input may be outside a rotated region; it is then proved by itself
_ROUNDED = 2.0**-50  # relative: what rounding a corner's half or middle costs at most
_SAME = 1e-9  # relative: sizes that differ by no more are the same, computed in another order


def faults(certs: Certificates, net: Network) -> list[str]:
    """Per input why its certificate cannot be right, before anything is proved; "" where nothing speaks against it."""
    x, eps, center = (t.flatten(1) for t in (certs.x, certs.eps, certs.center))
    good: list[tuple[str, Tensor]] = []
    for name in ("x", "eps", "center", "lower", "upper"):
        value = getattr(certs, name)
        if value is not None:
            good.append((f"{name} holds NaN or infinite values", torch.isfinite(value.flatten(1)).all(1)))
    if certs.spec_rows is not None:
        good.append(("it states a label beside its specification", certs.labels == -1))
    elif net.n_outputs < 2:
        good.append(("the network has one output, of which a label says nothing", torch.zeros(len(x)).bool()))
    else:
        right = (certs.labels >= 0) & (certs.labels < net.n_outputs)
        good.append((f"its label is not one of the classes 0 to {net.n_outputs - 1}", right))
    good.append(("an extent (eps) is negative", (eps >= 0).all(1)))
    if certs.lowest is not None and certs.highest is not None:
        lowest, highest = certs.lowest.flatten(1), certs.highest.flatten(1)
        good.append(("the input lies outside its domain", ((lowest <= x) & (x <= highest)).all(1)))
        if certs.lower is not None and certs.upper is not None:  # other shapes are not cut to the domain
            within = (lowest <= certs.lower.flatten(1)) & (certs.upper.flatten(1) <= highest)
            good.append(("the box sticks out of its domain", within.all(1)))
    size = _size(certs, net)
    if certs.lower is not None and certs.upper is not None:
        lower, upper = certs.lower.flatten(1), certs.upper.flatten(1)
        categories = Categories.of(net.about.table) if certs.allowed is not None else None
        if categories is not None and certs.allowed is not None:
            good.extend(_faults_of_levels(categories, certs.allowed, x, lower, upper))
            # What is said below of corners and extents is about numbers.
            lower, upper = (torch.where(categories.moves, t, x) for t in (lower, upper))
        good.append(("the lower corner is above the upper one", (lower <= upper).all(1)))
        good.append(("the input lies outside the region", ((lower <= x) & (x <= upper)).all(1)))
        good.append(("the centre lies outside the region", ((lower <= center) & (center <= upper)).all(1)))
        good.append(("an extent (eps) is more than half the box's width", _at_most_half(eps, lower, upper).all(1)))
        good.extend(size)
        middle, half = lower / 2 + upper / 2, upper / 2 - lower / 2
        tiny = torch.finfo(eps.dtype).tiny  # halves of subnormal numbers are rounded
        in_the_middle = (center - middle).abs() <= _SAME * half + _ROUNDED * middle.abs() + tiny
        good.append(("the centre is not the middle of the box", in_the_middle.all(1)))
        whole = eps >= half * (1 - _ROUNDED) - torch.finfo(eps.dtype).tiny
        good.append(("an extent (eps) is less than half the box's width", whole.all(1)))
    else:
        straight = certs.orthogonal
        good.append(("the basis is not orthogonal, so extents mean nothing", torch.full((len(x),), straight)))
        if straight:
            inside = _is_near(x, center, eps, norm_of(certs.settings["p"]), certs.basis)
            good.append(("the input lies outside the region", inside))
        if certs.settings["p"] != "inf":  # extents are read as those around the input
            good.append(("the input is not the region's centre", (x == center).all(1)))
        good.extend(size)
    message = [_fault_of_trees(certs, net, k) for k in range(len(x))]
    for why, ok in reversed(good):
        message = [old if fine else why for old, fine in zip(message, ok.tolist())]
    return [why if s == "certified" else f"no certificate: {s}" for why, s in zip(message, certs.status)]


def _faults_of_levels(
    categories: Categories, allowed: Tensor, x: Tensor, lower: Tensor, upper: Tensor
) -> list[tuple[str, Tensor]]:
    """What may be wrong about sets of levels, and where it is right, `b`."""
    low, high = categories.hull(allowed, lower, upper)
    return [
        ("a category has no level", categories.sensible(allowed)),
        ("the input's own level of a category is not among those allowed", categories.holds(allowed, x)),
        ("the corners are not those of the levels allowed", ((low == lower) & (high == upper)).all(1)),
    ]


def _fault_of_trees(certs: Certificates, net: Network, k: int) -> str:
    """Why the trees of one certificate are none, in words."""
    if certs.trees is None or not len(certs.trees[k]):
        return ""
    group = torch.arange(net.n_outputs - 1) if certs.spec_group is None else certs.spec_group
    try:
        leaves_of([trees_of(certs, k)], group, net, region_of(certs, net, torch.tensor([k])))
    except InputError as error:
        return str(error)
    return ""


def trees_of(certs: Certificates, k: int) -> list[tuple[int, Tree]]:
    return [] if certs.trees is None else unpack(as_bytes(certs.trees[k]))


def _size(certs: Certificates, net: Network) -> list[tuple[str, Tensor]]:
    """What may be wrong about a region's stated size, and where it is right, `b`."""
    eps = certs.eps.flatten(1)
    # Features that must not move have no extent, and do not count.
    free = eps > 0
    table = (certs.network or net).about.table
    if certs.stuck is not None and table is not None:  # values count: k of them are k steps wide, k - 1 from end to end
        steps = [column.step for column in table.columns for _ in range(column.width)]
        eps = eps + torch.tensor(steps, dtype=torch.float64) / 2
    n = free.sum(1).double()
    log = torch.where(n > 0, torch.where(free, eps, 1.0).log().sum(1) / n, -torch.inf)
    p = norm_of(certs.settings["p"])
    unit = n * (math.log(2) + math.lgamma(1 + 1 / p)) - torch.lgamma(1 + n / p)
    good = []
    for name, stated, right in (
        ("geometric mean", certs.geomean.log(), log),
        ("log-volume", torch.where(n > 0, certs.log_volume / n, certs.log_volume), log + unit / n.clamp_min(1)),
    ):
        slack = _SAME * (1 + right.abs().nan_to_num(posinf=0.0))
        good.append((f"its {name} is more than its extents give", stated <= right + slack))
        good.append((f"its {name} is less than its extents give", stated >= right - slack))
    return good


def _at_most_half(eps: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Whether `eps <= (upper - lower) / 2` in real arithmetic."""
    width = upper - lower
    other = width - upper
    error = (upper - (width - other)) - (lower + other)  # what rounding took from the width, exactly (Knuth)
    return (2 * eps < width) | ((2 * eps == width) & (error >= 0))


def _is_near(x: Tensor, center: Tensor, eps: Tensor, p: float, basis: Tensor | None) -> Tensor:
    """Which inputs lie in the region up to the rounding of its centre: along each direction by what that is there,
    however far others reach. The basis is straight."""
    moved, size = x - center, x.abs() + center.abs()
    if basis is not None:
        moved, size = torch.linalg.solve(basis, moved.T).T, (size / units_of(basis).square()) @ basis.abs()
    slack = (x.shape[1] + 16) * _ROUNDED * size
    scaled = moved / (eps + slack.clamp_min(torch.finfo(x.dtype).tiny))
    inside: Tensor = torch.linalg.vector_norm(scaled, ord=p, dim=1) <= 1 + _NEAR
    return inside


def region_of(certs: Certificates, net: Network, index: Tensor) -> Stated:
    """The regions of some inputs; `net`: whose table says what the codes of categories are."""
    if certs.lower is not None and certs.upper is not None:
        corners = certs.lower[index].flatten(1), certs.upper[index].flatten(1)
        if certs.allowed is None:
            return Stated(*corners)
        return Stated(*corners, categories=Categories.of(net.about.table), allowed=certs.allowed[index])
    center, radius = certs.center[index].flatten(1), certs.eps[index].flatten(1)
    return Stated(center=center, radius=radius, p=norm_of(certs.settings["p"]), basis=certs.basis)


__all__ = ["faults", "region_of", "trees_of"]
