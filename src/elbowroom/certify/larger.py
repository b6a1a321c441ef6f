"""Effort: regions that plain bounds found, enlarged by branch and bound, with trees that prove them."""

from __future__ import annotations

import math
import re
import reprlib
from dataclasses import dataclass, replace

from elbowroom.claim.tree import MOST_NODES, Tree
from elbowroom.claim.tree_bytes import pack
from elbowroom.errors import InputError
from elbowroom.search.branching.enlarge import Effort

_LEAST_BYTES, _MOST_BYTES = 1_000, 1_000_000
_MOST_LEAVES = MOST_NODES // 2  # a tree has one node less than twice its leaves
_NAMED = {
    "medium": Effort(leaves=200, seconds=math.inf, rounds=1, starts=4, few=3000, work=4_000),
    "high": Effort(leaves=3000, seconds=math.inf, rounds=3, starts=16, few=12_000, work=30_000),
}
_WORK = 10  # times the leaves of a tree: all that are bounded
EFFORTS = ("fast", *_NAMED)


def effort_of(effort: str | int) -> Effort | None:
    """What may be spent, from a name, a number of leaves, or seconds per input ("30s"); None for "fast"."""
    text = effort.strip().lower() if isinstance(effort, str) else effort
    if text == "fast":
        return None
    if isinstance(text, str) and text in _NAMED:
        return _NAMED[text]
    seconds = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?s", text) if isinstance(text, str) else None
    if seconds is not None and float(seconds[1]) > 0:
        return replace(_NAMED["high"], seconds=float(seconds[1]))
    if isinstance(text, str) and re.fullmatch(r"[0-9]{1,9}", text):
        text = int(text)
    if isinstance(text, int) and not isinstance(text, bool) and 2 <= text <= _MOST_LEAVES:
        starts = min(_NAMED["high"].starts, text // 50)
        return replace(_NAMED["high"], leaves=text, starts=starts, few=text, work=_WORK * text)
    raise InputError(
        f"effort must be {', '.join(map(repr, EFFORTS))}, a number of leaves per tree (from 2 to {_MOST_LEAVES:,}), or "
        f'seconds per input such as "30s", got {reprlib.repr(effort)}'
    )


def check_proof_bytes(size: int) -> int:
    """The size, if trees may have it."""
    if not isinstance(size, int) or isinstance(size, bool) or not _LEAST_BYTES <= size <= _MOST_BYTES:
        raise InputError(f"proof_bytes must be between {_LEAST_BYTES:,} and {_MOST_BYTES:,}, got {size!r}")
    return size


@dataclass(frozen=True)
class Short:
    """Whether trees, by group, take at most so many bytes."""

    size: int

    def __call__(self, trees: dict[int, Tree]) -> bool:
        try:
            own = tuple(trees.items())
            return len(pack(own, quick=True)) <= self.size or len(pack(own)) <= self.size
        except InputError:  # far too long
            return False


__all__ = ["EFFORTS", "Short", "check_proof_bytes", "effort_of"]
