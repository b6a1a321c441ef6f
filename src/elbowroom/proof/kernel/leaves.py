"""Trees of splits: a group proved leaf by leaf. The leaves of a tree cover the region, whatever is split."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Leaf, Tree
from elbowroom.proof.kernel.cuts import Cuts
from elbowroom.proof.kernel.rounding import U
from elbowroom.proof.kernel.walk import StrictBounds

_NUMBERS = {"cpu": 1 << 24, "cuda": 1 << 28}  # in flight per chunk of leaves
_TENSORS = 8  # per node: ends of intervals, lines, weights and what is made of them


def tree_below(
    root: StrictBounds, b: int, hidden: bool, tree: Tree, leaves: Sequence[Leaf], rows: Tensor, offset: Tensor
) -> Tensor:
    """Numbers below the rows that the leaves are about, each on its leaf, `l`; infinity where a leaf is empty.

    `root`: bounds on the whole regions; `b`: which of them the tree cuts; `hidden`: as `root` has it; `rows`: `t x k`,
    `offset`: `t`, exact.
    """
    found = rows.new_full((len(leaves),), -torch.inf)
    boxes = [_box(leaf) for leaf in leaves]
    order = sorted(range(len(leaves)), key=lambda k: boxes[k])  # leaves of the same inputs stand together
    numbers = _NUMBERS.get(rows.device.type, _NUMBERS["cpu"])
    step = max(1, numbers // (_TENSORS * sum(node.size for node in root.net.nodes)))
    for start in range(0, len(order), step):
        some = order[start : start + step]
        cuts = Cuts.of(tree, [leaves[k] for k in some], some, rows.device)
        here = [boxes[k] for k in some]
        distinct = here if tree.again else sorted(set(here))
        base, of = root, torch.full((len(some),), b, device=rows.device)
        if tree.again or distinct != [()]:
            region, gone = _cut(root.region.take(of[:1]), distinct)
            base = StrictBounds(
                root.net, region, root.parallel, root.noise, hidden, cuts if tree.again else None, tree.sharpened
            )
            base.empty = base.empty | gone
            place = {box: k for k, box in enumerate(distinct)}
            of = torch.tensor([place[box] for box in here], device=rows.device)
        part = base if tree.again else base.part(of, cuts)
        found[some] = _leaves_below(part, cuts, torch.tensor([leaves[k].row for k in some]), rows, offset)
    return found


def _box(leaf: Leaf) -> tuple[tuple[int, bool, float], ...]:
    """The splits of the input, those that others make idle left out: alike where leaves have the same inputs."""
    ends: dict[tuple[int, bool], float] = {}
    for node, entry, value, high in leaf.path:
        if node == 0:
            before = ends.get((entry, high), value)
            ends[entry, high] = max(before, value) if high else min(before, value)
    return tuple(sorted((entry, high, value) for (entry, high), value in ends.items()))


def _cut(region: Stated, boxes: Sequence[tuple[tuple[int, bool, float], ...]]) -> tuple[Stated, Tensor]:
    """One box, cut by splits: a box for each, and which of them have no level of a category left, `m`. Where nothing
    is left a box stays whole (and `Cuts.clamped` finds it so)."""
    parts = region.take(torch.zeros(len(boxes), dtype=torch.long, device=region.middle().device))
    none = torch.zeros(len(boxes), dtype=torch.bool, device=region.middle().device)
    if parts.lower is None or parts.upper is None:
        return parts, none
    flat = [(k, *split) for k, box in enumerate(boxes) for split in box]
    part, entry, above, value = list(zip(*flat)) or [()] * 4
    at = torch.tensor(part, dtype=torch.long) * parts.lower.shape[1] + torch.tensor(entry, dtype=torch.long)
    high, values = torch.tensor(above, dtype=torch.bool), torch.tensor(value, dtype=torch.float64)
    ends = []
    for corner, here, how in ((parts.lower, high, "amax"), (parts.upper, ~high, "amin")):
        index, new = (t[here].to(corner.device) for t in (at, values))
        ends.append(corner.flatten().scatter_reduce(0, index, new, how).reshape(corner.shape))
    lower, upper = ends
    left = (lower <= upper).all(1)
    if parts.categories is None or parts.allowed is None:
        left = left[:, None]
        return Stated(torch.where(left, lower, parts.lower), torch.where(left, upper, parts.upper)), none
    # Of a split through the codes of a category the levels are left whose codes are on its side.
    allowed = parts.categories.inside(parts.allowed, lower, upper)
    gone = ~parts.categories.sensible(allowed)
    left = (left & ~gone)[:, None]
    lower, upper = parts.categories.hull(allowed, lower, upper)
    lower, upper = torch.where(left, lower, parts.lower), torch.where(left, upper, parts.upper)
    allowed = torch.where(left, allowed, parts.allowed)
    return Stated(lower, upper, categories=parts.categories, allowed=allowed), gone


def _leaves_below(bounds: StrictBounds, cuts: Cuts, row: Tensor, rows: Tensor, offset: Tensor) -> Tensor:
    """As `tree_below`, for leaves with these bounds; `row`: which row each is about, or `EMPTY`."""
    row = row.to(rows.device)
    real = row >= 0
    rows = torch.where(real[:, None], rows[row.clamp_min(0)], 0.0)
    offset = torch.where(real, offset[row.clamp_min(0)], 0.0)
    constant, error, others = cuts.multiplied(bounds.net, bounds.size)
    value = offset[:, None] + constant
    error = error + U * value.abs()
    last = len(bounds.net.nodes) - 1
    found = bounds.rows_below(last, rows[:, None], slice(None), value, error, others=others)
    plain = bounds.rows_below(last, rows[:, None], slice(None), offset[:, None], intervals=True)
    found = torch.maximum(found, plain)[:, 0]
    # What is positive and, as all splits hold, not: there is no such point.
    found = torch.where(real, found, torch.where(found > 0, torch.inf, -torch.inf))
    found = torch.where(bounds.empty, torch.inf, found)
    # Where execution may overflow its values need not be on either side of a split, and there nothing is proved.
    return torch.where(bounds.overflowed, -torch.inf, found)
