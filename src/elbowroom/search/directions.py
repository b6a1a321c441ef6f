"""Directions found for rotated shapes: a basis whose first columns the margins depend on most, whose last not at all.

A region along directions q has room for extents eps with `sum_k |g . q_k| eps_k <= margin`, g being a margin's
derivative by the input. Over many inputs the sum of `log E (g . q_k)^2` is least along the eigenvectors of `E g g'`
(Hadamard's inequality), and volumes are then largest, as far as margins are linear. What the derivatives at the inputs
say nothing about is left to the neurons of the first layer, and what these do not see to the inputs: of directions
in which nothing changes, those come first along which the inputs differ most.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification, label_stays
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.network.operations import Affine

MOST = 4096  # features: of so many, a basis takes 128 MiB in float64, and finding it about a minute
_RIVALS = 9  # margins of an input that count, the least ones
_FIRST_LAYER = 1e-2  # what its neurons count, in all, beside the margins
_UNSEEN = 1e-12  # of the largest eigenvalue: what is less is zero, but for rounding
_AT_ONCE = 1 << 24  # numbers in a batch of forward passes
_MOST_CELLS = 1 << 27  # of the first layer as a matrix; larger ones are left out


def refuse_too_many(count: int) -> None:
    """Raises an `InputError` where a basis for so many features would be too large."""
    if count > MOST:
        raise InputError(
            f'Oblique("auto") finds directions for {MOST:,} features at most, and the network has {count:,}: its basis '
            f"would take {8 * count**2 / 2**30:.1f} GiB in each certificate's file and worker"
        )


def found_directions(net: Network, points: Tensor, spec: Specification | None, free: Tensor, unit: Tensor) -> Tensor:
    """A basis, `n x n` in float64 on the CPU, found from inputs `points`, `b x *input_shape`.

    `spec`: what must hold; None where it is what the network decides. `free`: `n`, features that may move: the others
    are directions by themselves, with their own numbers. `unit`: `n`, in what features are measured: the basis is
    `diag(d) Q` with Q orthogonal, d in proportion to `unit`, and of product 1.
    """
    refuse_too_many(net.n_inputs)
    finite = points.flatten(1).isfinite().all(1)
    if not bool(finite.any()):
        raise InputError('Oblique("auto") finds its directions from inputs, and none holds finite numbers alone')
    points = points[finite].double()
    spec = spec if spec is None or len(spec.rows) == 1 else spec.part(finite.nonzero().squeeze(1))
    net, unit = net.cast(torch.float64, points.device), unit.double().to(points.device)
    unit = torch.where(free.to(unit.device), unit, 0.0)
    seen = _share(_by_margins(net, points, spec, unit)) + _FIRST_LAYER * _share(_by_neurons(net, points, unit))
    keep = free.to(unit.device).nonzero().squeeze(1)
    inner = _ordered(seen[keep][:, keep], (points.flatten(1) / torch.where(unit > 0, unit, 1.0))[:, keep]).cpu()
    return _placed(inner, keep.cpu(), unit.cpu())


def _ordered(seen: Tensor, points: Tensor) -> Tensor:
    """Orthonormal directions, `m x m`: by how much `seen`, `m x m`, sees of them, and then by how much `points`,
    `b x m`, differ along them. Each with its largest entry positive, so that there is one answer."""
    if not bool(torch.isfinite(seen).all()):
        raise InputError('Oblique("auto"): the derivatives of the margins are not all finite')
    values, found = torch.linalg.eigh(seen)
    values, found = values.flip(0), found.flip(1)
    rank = int((values > _UNSEEN * values[0].clamp_min(torch.finfo(values.dtype).tiny)).sum())
    if rank < len(values):
        rest = found[:, rank:]
        moved = (points - points.mean(0)) @ rest
        found = torch.cat([found[:, :rank], rest @ torch.linalg.eigh(moved.T @ moved)[1].flip(1)], 1)
    largest = found.gather(0, found.abs().argmax(0, keepdim=True))
    signed: Tensor = found * torch.where(largest < 0, -1.0, 1.0)
    return signed


def _placed(inner: Tensor, keep: Tensor, unit: Tensor) -> Tensor:
    """The whole basis, `n x n`: directions of the features `keep` stand where these do, the others by themselves."""
    log = unit[keep].log()
    basis = torch.eye(len(unit), dtype=torch.float64)
    basis[keep[:, None], keep] = (log - log.mean()).exp()[:, None] * inner
    return basis


def _share(moments: Tensor) -> Tensor:
    total = moments.diagonal().sum()
    return moments / total if bool(total > 0) else moments


def _by_margins(net: Network, points: Tensor, spec: Specification | None, unit: Tensor) -> Tensor:
    """Second moments of the margins' derivatives, `n x n`, features in their units."""
    total = unit.new_zeros(len(unit), len(unit))
    step = max(1, _AT_ONCE // max(node.size for node in net.nodes))
    with torch.enable_grad():
        for first in range(0, len(points), step):
            part = points[first : first + step].clone().requires_grad_()
            outputs = net.values(part)[-1]
            if spec is None:
                own = label_stays(net.decide(outputs.detach()), net.n_outputs, net.decision)
            else:
                index = torch.arange(first, first + len(part), device=part.device)
                own = spec if len(spec.rows) == 1 else spec.part(index)
            margins = own.cast(torch.float64, part.device).margins(outputs)
            if not margins.requires_grad:  # nothing depends on the input
                continue
            least = margins.sort(1).values[:, :_RIVALS].sum(0)
            for k, one in enumerate(least):
                (slope,) = torch.autograd.grad(one, part, retain_graph=k + 1 < len(least))
                slope = slope.flatten(1) * unit
                total += slope.T @ slope
    return total


def _by_neurons(net: Network, points: Tensor, unit: Tensor) -> Tensor:
    """Second moments of what the first activations take, as far as it is affine in the input; zeros where there is
    none, or too much of it."""
    n = len(unit)
    affine: set[int] = {0}
    for k, node in enumerate(net.nodes[1:], 1):
        if isinstance(node.op, Affine) and set(node.inputs) <= affine:
            affine.add(k)
    first = [k for k in net.preactivations if k in affine and k > 0]
    total = unit.new_zeros(n, n)
    if not first or n * sum(net.nodes[k].size for k in first) > _MOST_CELLS:
        return total
    steps = torch.eye(n, dtype=torch.float64, device=points.device).reshape(n, *net.input_shape)
    at_zero = net.values(torch.zeros_like(steps[:1]))
    size = max(1, _AT_ONCE // max(node.size for node in net.nodes))
    parts: list[list[Tensor]] = []
    for start in range(0, n, size):
        values = net.values(steps[start : start + size])
        parts.append([values[k].flatten(1) for k in first])
    for k, blocks in zip(first, zip(*parts)):
        rows = torch.cat(blocks) - at_zero[k].flatten(1)  # n x neurons
        rows = rows.detach() * unit[:, None]
        total += rows @ rows.T
    return total


__all__ = ["MOST", "found_directions", "refuse_too_many"]
