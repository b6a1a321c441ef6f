"""Sets of levels filled up: every level that the proof allows beside those of a certified region is taken in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Trees
from elbowroom.claim.tree_bytes import as_bytes, unpack
from elbowroom.search.find import Inputs

_AT_ONCE = 256  # regions in one proof


def fill_up(
    inputs: Inputs,
    passed: Tensor,
    result: dict[str, Any],
    prove: Callable[[Stated, Specification, Trees | None], Tensor],
    passes: Callable[[Tensor], Tensor],
) -> None:
    """Adds to the sets of certified regions, those that `passed`, `b`, level after level that is proved, the one of
    largest margin first, and says of all of them that no further one is (`maximal`).

    `prove`: from regions, what must hold and trees to margins; `passes`: which of these are a certificate's.
    """
    space = inputs.space
    assert space.categories is not None and space.may is not None
    going = passed.nonzero().squeeze(1)
    while len(going):
        here = result["allowed"][going]
        of, level = (space.may[going] & ~here & space.categories.beside(here)).nonzero(as_tuple=True)
        of = going[of]
        allowed = result["allowed"][of].clone()
        allowed[torch.arange(len(of), device=of.device), level] = True
        margins = _margins(inputs, result, of, allowed, prove)
        good = passes(margins)
        least = torch.where(good, margins.amin(1), -torch.inf)
        going = of[good].unique()
        for k in going.tolist():
            best = torch.where(of == k, least, -torch.inf).argmax()
            lower, upper = space.categories.hull(
                allowed[best : best + 1], result["lower"][k : k + 1], result["upper"][k : k + 1]
            )
            result["allowed"][k], result["lower"][k], result["upper"][k] = allowed[best], lower[0], upper[0]
            result["margins"][k] = margins[best]
    result["maximal"] = passed.clone()


def _margins(
    inputs: Inputs,
    result: dict[str, Any],
    of: Tensor,
    allowed: Tensor,
    prove: Callable[[Stated, Specification, Trees | None], Tensor],
) -> Tensor:
    """What is proved of the regions of the inputs `of`, `m`, with these sets, `m x c`: `m x g`."""
    categories = inputs.space.categories
    assert categories is not None
    found = [result["margins"][:0]]
    for part in torch.arange(len(of), device=of.device).split(_AT_ONCE) if len(of) else ():
        here = of[part]
        corners = categories.hull(allowed[part], result["lower"][here], result["upper"][here])
        region = Stated(*corners, categories=categories, allowed=allowed[part])
        found.append(prove(region, inputs.spec.part(here), trees_in(result, here)))
    return torch.cat(found)


def trees_in(result: dict[str, Any], rows: Tensor) -> Trees | None:
    """Those of some inputs, as they are written; None where there are none."""
    if "trees" not in result:
        return None
    return [unpack(as_bytes(result["trees"][k])) if len(result["trees"][k]) else [] for k in rows.tolist()]


__all__ = ["fill_up", "trees_in"]
