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
_Box = tuple[tuple[int, bool, float], ...]  # splits of the input: an entry, whether its high side is left, the value
_TENSORS = 8  # per node: ends of intervals, lines, weights and what is made of them


def trees_below(
    root: StrictBounds, b: int, hidden: bool, trees: Sequence[tuple[Tree, Sequence[Leaf]]], rows: Tensor, offset: Tensor
) -> list[Tensor]:
    """Numbers below the rows that leaves are about, each on its leaf, `l` per tree; infinity where a leaf is empty.

    `root`: bounds on the whole regions, sharpened as the trees say; `b`: which of them the trees cut; `hidden`: as
    `root` has it; `trees`: alike in this and in `again`, so that bounds of the inputs of a leaf are computed once for
    all; `rows`: `t x k`, `offset`: `t`, exact.
    """
    again = trees[0][0].again
    found = [rows.new_full((len(leaves),), -torch.inf) for _, leaves in trees]
    every = [(_box(leaf), t, k) for t, (_, leaves) in enumerate(trees) for k, leaf in enumerate(leaves)]
    every.sort(key=lambda one: one[0])  # leaves of the same inputs stand together
    numbers = _NUMBERS.get(rows.device.type, _NUMBERS["cpu"])
    step = max(1, numbers // (_TENSORS * sum(node.size for node in root.net.nodes)))
    for start in range(0, len(every), step):
        chunk = every[start : start + step]
        shared, place = root, dict[_Box, int]({(): b})
        if not again and any(box for box, _, _ in chunk):
            distinct = sorted({box for box, _, _ in chunk})
            shared = _bounds(root, b, hidden, distinct, None)
            place = {box: k for k, box in enumerate(distinct)}
        for t, (tree, leaves) in enumerate(trees):
            some = [(box, k) for box, own, k in chunk if own == t]
            if not some:
                continue
            here = [k for _, k in some]
            cuts = Cuts.of(tree, [leaves[k] for k in here], here, rows.device)
            if again:
                part = _bounds(root, b, hidden, [box for box, _ in some], cuts)
            else:
                part = shared.part(torch.tensor([place[box] for box, _ in some], device=rows.device), cuts)
            row = torch.tensor([leaves[k].row for k in here])
            found[t][here] = _leaves_below(part, cuts, row, rows, offset)
    return found


def _bounds(root: StrictBounds, b: int, hidden: bool, boxes: Sequence[_Box], cuts: Cuts | None) -> StrictBounds:
    """Bounds on parts of one region, cut by splits of the input; and, with `cuts`, by all splits of these parts."""
    region, gone = _cut(root.region.take(torch.tensor([b], device=root.lower[0].device)), boxes)
    bounds = StrictBounds(root.net, region, root.parallel, root.noise, hidden, cuts, root.sharpened, root.cases)
    bounds.empty = bounds.empty | gone
    return bounds


def _box(leaf: Leaf) -> _Box:
    """The splits of the input, those that others make idle left out: alike where leaves have the same inputs."""
    ends: dict[tuple[int, bool], float] = {}
    for node, entry, value, high in leaf.path:
        if node == 0:
            before = ends.get((entry, high), value)
            ends[entry, high] = max(before, value) if high else min(before, value)
    return tuple(sorted((entry, high, value) for (entry, high), value in ends.items()))


def _cut(region: Stated, boxes: Sequence[_Box]) -> tuple[Stated, Tensor]:
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
    """As `trees_below`, for leaves with these bounds; `row`: which row each is about, or `EMPTY`."""
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
