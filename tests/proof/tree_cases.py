"""Random trees of splits, and what is so on their leaves without rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.claim.tree import EMPTY, USUAL, Leaf, Tree
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.cuts import Cuts
from elbowroom.proof.kernel.walk import StrictBounds
from proof.exact import objects, without_offset

F64 = torch.float64


def random_tree(
    rng: np.random.Generator, net: Network, values: Sequence[Sequence[float]], rows: Sequence[int], box: bool
) -> Tree:
    """A tree of up to some ten leaves. `values`: of every node at some point of the region, near which splits are."""
    nodes: list[int] = []
    entries: list[int] = []
    cuts: list[float] = []
    depths: list[int] = []
    splittable = [i for i in range(0 if box else 1, len(net.nodes)) if net.nodes[i].size]
    before = [j for j in net.preactivations if j or box]

    def value_of(node: int, entry: int) -> float:
        about = float(values[node][entry])
        found = rng.choice([0.0, about, about * (1 + 1e-3 * rng.normal()), about + rng.normal(), 1e3 * rng.normal()],
                           p=[0.3, 0.25, 0.2, 0.2, 0.05])  # fmt: skip
        return float(found) if math.isfinite(found) else 0.0

    def grow(depth: int, seen: list[tuple[int, int]]) -> None:
        if rng.random() < (0.1 if depth < 2 else 0.5) or depth == 6:
            nodes.append(-1)
            entries.append(EMPTY if rng.random() < 0.1 else int(rng.choice(rows)))
            cuts.append(0.0)
            depths.append(depth)
            return
        node = int(rng.choice(before if before and rng.random() < 0.8 else splittable))
        entry = int(rng.integers(net.nodes[node].size))
        if seen and rng.random() < 0.1:
            node, entry = seen[int(rng.integers(len(seen)))]
        nodes.append(node)
        entries.append(entry)
        cuts.append(value_of(node, entry))
        for _ in range(2):
            grow(depth + 1, [*seen, (node, entry)])

    grow(0, [])
    size = 10.0 ** rng.choice([-12, -3, -1, 0, 1, 6], p=[0.05, 0.1, 0.3, 0.4, 0.1, 0.05])
    betas = rng.uniform(0, 1, sum(depths)) * (rng.random(sum(depths)) < 0.7) * size
    relus = [(i, k) for i, n in enumerate(net.nodes) if type(n.op) is ops.ReLU for k in range(n.size)]
    listed = [pair for pair in relus if rng.random() < 0.4]
    slopes = rng.integers(0, USUAL + 1, (len(depths), len(listed)))
    return Tree(
        torch.tensor(nodes), torch.tensor(entries), torch.tensor(cuts, dtype=F64), torch.from_numpy(betas),
        torch.tensor(listed, dtype=torch.long).reshape(-1, 2), torch.from_numpy(slopes).to(torch.uint8),
        again=bool(rng.random() < 0.3), sharpened=int(rng.choice([0, 0, 1, 4])), cases=int(rng.choice([0, 0, 1, 3])),
    )  # fmt: skip


def on_leaf(leaf: Leaf, exact: Sequence[Any], number: Any) -> bool:
    """Whether a point with these values lies on the leaf, for sure."""
    return all(
        exact[s.node][s.entry] >= number(s.value) if s.high else exact[s.node][s.entry] <= number(s.value)
        for s in leaf.path
    )


def matrix_of(net: Network, i: int, j: int) -> np.ndarray:
    """The exact coefficients of an affine operation over its j-th input, `in x out`, in fractions."""
    op, shapes = net.nodes[i].op, [net.nodes[k].shape for k in net.nodes[i].inputs]
    size = math.prod(shapes[j])
    given = [torch.zeros(size, *s, dtype=F64) for s in shapes]
    given[j] = torch.eye(size, dtype=F64).reshape(size, *shapes[j])
    plain = without_offset(op)
    if isinstance(op, ops.Shift):
        plain = ops.Shift(torch.zeros_like(op.offset))
    return objects(Fraction, plain(*given).flatten(1))


def offset_of(net: Network, i: int) -> np.ndarray:
    node = net.nodes[i]
    shapes = [net.nodes[k].shape for k in node.inputs]
    return objects(Fraction, node.op(*(torch.zeros(1, *s, dtype=F64) for s in shapes)).flatten())


def exact_bound(part: StrictBounds, cuts: Cuts, k: int, row: Tensor, offset: float) -> Fraction:
    """The bound of leaf k by the kernel's lines, which are exact numbers, and the multipliers: without any rounding."""
    net = part.net
    total = Fraction(offset)
    coefficients = {len(net.nodes) - 1: objects(Fraction, row)}
    for i, splits in cuts.splits.items():
        for p, entry, value, sign, beta in zip(*(t.tolist() for t in splits)):
            if p == k:
                own = coefficients.setdefault(i, np.array([Fraction(0)] * net.nodes[i].size, dtype=object))
                own[entry] -= Fraction(beta) * Fraction(sign)
                total += Fraction(beta) * Fraction(sign) * Fraction(value)
    while coefficients:
        i = max(coefficients)
        a, node = coefficients.pop(i), net.nodes[i]

        def give(j: int, more: np.ndarray) -> None:
            coefficients[j] = coefficients[j] + more if j in coefficients else more

        if i == 0:
            low, high = (objects(Fraction, t[k]) for t in (part.region.lower, part.region.upper))
            total += sum((c * (l if c > 0 else u) for c, l, u in zip(a, low, high)), Fraction(0))
        elif i in part.planes:
            (term,), m_l, m_u = part.planes[i]
            k_l, k_u, m_l, m_u = (objects(Fraction, t[k].flatten()) for t in (term.lower, term.upper, m_l, m_u))
            source = range(node.size) if term.source is None else term.source[k].tolist()
            below = np.array([Fraction(0)] * net.nodes[node.inputs[0]].size, dtype=object)
            for s, c, low, up, const_l, const_u in zip(source, a, k_l, k_u, m_l, m_u):
                below[s] += c * (low if c > 0 else up)
                total += c * (const_l if c > 0 else const_u)
            give(node.inputs[0], below)
        else:
            total += a.dot(offset_of(net, i))
            for j, source in enumerate(node.inputs):
                give(source, matrix_of(net, i, j).dot(a))
    return total
