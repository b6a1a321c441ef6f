"""Trees of splits in balls: the bound of each leaf, from the tree alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from elbowroom.claim.tree import EMPTY, STEPS, USUAL, Leaf, Split, Tree
from elbowroom.proof.arb.balls import Balls, flint, float_below, largest
from elbowroom.proof.arb.bounds import Bounds, Cut


def tree_below(
    root: Bounds, tree: Tree, leaves: Sequence[Leaf], rows: list[list[float]], offset: list[float]
) -> list[float]:
    """Numbers below the rows that the leaves are about, each on its leaf; infinity where a leaf is empty."""
    arb = flint().arb
    multipliers = tree.multipliers.tolist()
    by_inputs: dict[tuple[Split, ...], Bounds] = {(): root}
    found = []
    for number, leaf in enumerate(leaves):
        of_input = tuple(split for split in leaf.path if split.node == 0)
        region = root.region.cut(of_input)
        if region is None:
            found.append(math.inf)
            continue
        places = zip(tree.neurons.tolist(), tree.slopes[number].tolist())
        given = {(node, entry): arb(slope) / STEPS for (node, entry), slope in places if slope != USUAL}
        cut = Cut(leaf.path, given)
        if tree.again:
            bounds = Bounds(root.net, root.layers, region, root.hints, cut, tree.sharpened, tree.cases)
        else:
            if of_input not in by_inputs:
                by_inputs[of_input] = Bounds(
                    root.net, root.layers, region, root.hints, None, tree.sharpened, tree.cases
                )
            bounds = by_inputs[of_input].part(cut)
        betas = multipliers[leaf.first : leaf.first + len(leaf.path)]
        found.append(_leaf_below(bounds, leaf, betas, rows, offset))
    return found


def _leaf_below(
    bounds: Bounds, leaf: Leaf, betas: Sequence[float], rows: list[list[float]], offset: list[float]
) -> float:
    """A number below the leaf's row on the leaf; infinity where that is empty."""
    if bounds.empty:
        return math.inf
    arb, net = flint().arb, bounds.net
    last = len(net.nodes) - 1
    others: dict[int, Balls] = {}
    constant = arb(0)
    for split, beta in zip(leaf.path, betas):
        # On the leaf, sign (z - value) is not negative; so many times that is taken away.
        own = others.setdefault(split.node, [arb(0)] * net.nodes[split.node].size)
        share = arb(beta) if split.high else -arb(beta)
        own[split.entry] -= share
        constant += share * arb(split.value)
    if leaf.row == EMPTY:
        zeros = [arb(0)] * net.nodes[last].size
        return math.inf if float_below(bounds.rows_below(last, [zeros], others=others)[0] + constant) > 0 else -math.inf
    row, start = [arb(v) for v in rows[leaf.row]], arb(offset[leaf.row])
    (lines,), (plain,) = bounds.rows_below(last, [row], others=others), bounds.rows_below(last, [row], intervals=True)
    finite = [v.lower() for v in (lines + constant + start, plain + start) if v.is_finite()]
    return float_below(largest(finite)) if finite else -math.inf
