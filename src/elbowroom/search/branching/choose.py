"""Where to split a leaf that is not proved: the neurons whose lines cost it most, the best few of them tried.

At the row's coefficients, a line that is not exact costs at most its gap times the coefficient: that ranks all neurons
at once. The first few are then split on trial, both sides bounded once with the slopes and multipliers at hand, and the
one whose sides gain most is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from elbowroom.claim.tree import STEPS
from elbowroom.search.branching.carry import Carrier, Lines, Rectified, Sweep
from elbowroom.search.branching.climb import Prepare
from elbowroom.search.branching.leaves import Leaves, rounded_multipliers, rounded_slopes

_LEAST_GAIN = 1e-3  # of what is missing: lest a side that gains nothing make the other's gain count for nothing


class Choice(NamedTuple):
    """One split per leaf, `l` each: node, entry, value, and multipliers of the low and the high side to start with.
    `found`: whether there is anything to split."""

    node: Tensor
    entry: Tensor
    value: Tensor
    low: Tensor
    high: Tensor
    found: Tensor

    def take(self, index: Tensor) -> Choice:
        return Choice(*(t[index] for t in self))


def candidates(carrier: Carrier, sweep: Sweep, reached: dict[int, Tensor], slope: Tensor, count: int) -> list[Choice]:
    """The most promising splits of each leaf, the best guess first: `count` of them or fewer."""
    scores, tables = [], []
    for i, lines in carrier.lines.items():
        j = carrier.net.nodes[i].inputs[0]
        if j == 0:
            continue  # the input is split as a whole, not under a neuron
        if isinstance(lines, Rectified):
            score, table = _of_rectifier(carrier, lines, sweep.coefficients[i], i, slope)
        else:
            score, table = _of_others(carrier, lines, sweep, i)
        scores.append(torch.nan_to_num(score, 0.0, 0.0, 0.0))
        tables.append(table)
    if not scores:
        return []
    score = torch.cat(scores, 1)
    every = [torch.cat([table[k] for table in tables], 1) for k in range(5)]
    best, at = score.topk(min(count, score.shape[1]), 1)
    found = []
    for k in range(best.shape[1]):
        node, entry, value, low, high = (t.gather(1, at[:, k : k + 1]).squeeze(1) for t in every)
        found.append(Choice(node.long(), entry.long(), value.double(), low, high, best[:, k] > 0))
    return found


_Table = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # node, entry, value, multipliers: all `l x size`


def _of_rectifier(carrier: Carrier, lines: Rectified, a: Tensor, i: int, slope: Tensor) -> tuple[Tensor, _Table]:
    """What each entry of a ReLU costs, and how it would be split: at zero.

    Multipliers are such that no side starts with a worse bound than the leaf has: where the lower line was taken,
    they leave the coefficient below as it was.
    """
    j = carrier.net.nodes[i].inputs[0]
    below = carrier.neurons.of(carrier.net, i, slope)
    a, bent, l, u, k = (t.flatten(1) for t in (a, lines.bent, carrier.lower[j], carrier.upper[j], below))
    positive = a.clamp_min(0)
    by_upper = -a.clamp_max(0) * lines.offset.flatten(1)
    by_lower = positive * torch.minimum(-k * l, (1 - k) * u)
    score = torch.where(bent, by_upper + by_lower, 0.0)
    entry = torch.arange(a.shape[1], device=a.device).expand_as(a)
    return score, (torch.full_like(entry, j), entry, torch.zeros_like(a), positive * k, positive * (1 - k))


def _of_others(carrier: Carrier, lines: Lines, sweep: Sweep, i: int) -> tuple[Tensor, _Table]:
    """The same for other activations, split in the middle of their interval, and max-pooling, whose entry of largest
    lower end is split where the others end, or in the middle."""
    j = carrier.net.nodes[i].inputs[0]
    l, u, z = (t.flatten(1) for t in (carrier.lower[j], carrier.upper[j], carrier.values[j]))
    entry = torch.arange(l.shape[1], device=l.device).expand_as(l) if lines.source is None else lines.source
    l, u, z = (t.gather(1, entry) for t in (l, u, z))
    middle = l / 2 + u / 2
    steps, ends = ((pair[1] - pair[0]).flatten(1) for pair in (lines.slopes, lines.ends))
    gap = steps * (middle - z) + ends
    value = middle
    if lines.source is not None:
        # The upper plane's value at the lower end is where the others end.
        others = (lines.slopes[1].flatten(1) * (l - z) + lines.ends[1].flatten(1)) + carrier.values[i].flatten(1)
        value = torch.where((l < others) & (others < u), others, middle)
    splittable = (l < value) & (value < u)
    score = torch.where(splittable, sweep.coefficients[i].flatten(1).abs() * gap, 0.0)
    none = torch.zeros_like(value)
    return score, (torch.full_like(entry, j), entry, value, none, none)


def choose(prepare: Prepare, leaves: Leaves, count: int) -> Choice | None:
    """A split for each leaf, `count` candidates tried; None where no neuron of the network can be split."""
    carrier, need = prepare(leaves)
    slope = rounded_slopes(leaves.slope.to(need.dtype) / STEPS)
    sweep = carrier.down(slope, rounded_multipliers(leaves.multiplier.to(need.dtype)))
    reached = carrier.up(sweep)
    found = candidates(carrier, sweep, reached, slope, count)
    if len(found) < 2:
        return found[0] if found else None
    missing = (need - sweep.bound).clamp_min(torch.finfo(need.dtype).tiny)
    best: Choice | None = None
    for choice in found:
        sides = leaves.halves(choice.node, choice.entry, choice.value, (choice.low, choice.high))
        side_carrier, _ = prepare(sides)
        again = slope.repeat(2, 1)
        bound = side_carrier.down(again, sides.multiplier.to(need.dtype)).bound
        bound = torch.where(side_carrier.empty, torch.inf, bound)
        gains = ((bound.reshape(2, -1) - sweep.bound) / missing).clamp(_LEAST_GAIN, 1.0)
        merit = torch.where(choice.found, gains[0] * gains[1], -1.0)
        if best is None:
            best, most = choice, merit
            continue
        better = merit > most
        best = Choice(*(torch.where(better, new, old) for new, old in zip(choice, best)))
        most = torch.where(better, merit, most)
    return best
