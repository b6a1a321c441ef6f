"""What the regions of many inputs have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.errors import InputError


def cosine_similarity(eps: Tensor, block: int = 1024) -> tuple[float, float]:
    """Mean and minimum of the cosine between the extents of two inputs, over all pairs (the paper's table of cosines).

    `eps`: `b x *s`, not negative, each input with at least one extent above zero: pass certified inputs only,
    `certs.eps[certs.certified]`. At most `block x block` cosines are held at a time.
    """
    if eps.dim() < 2 or len(eps) < 2:
        raise InputError(f"cosines need at least two inputs, got eps of shape {tuple(eps.shape)}")
    directions = eps.detach().flatten(1).double()
    # Scaled by the largest first: squares of tiny extents would underflow.
    largest = directions.abs().amax(1, keepdim=True)
    if not bool(((largest > 0) & largest.isfinite()).all()):
        bad = int((~((largest > 0) & largest.isfinite())).sum())
        raise InputError(f"{bad} of {len(eps)} inputs have no extent (or NaN); pass certs.eps[certs.certified]")
    directions = directions / largest
    directions = directions / directions.norm(dim=1, keepdim=True)
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


__all__ = ["cosine_similarity"]
