"""Many leaves at once, of any inputs and groups, as tensors."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.claim.tree import STEPS


@dataclass(frozen=True, eq=False)
class Leaves:
    """`l` leaves, with paths of at most `d` splits.

    Attributes:
        problem: `l`: which input and group of the specification, numbered together.
        root: `l`: the set of inputs whose bounds serve, see `Roots`.
        place: `l`: the node of its problem's tree.
        row: `l`: which row of the specification is to be positive.
        node: `l x d`: nodes of the network that are split, 0 for the input, -1 where a path has ended.
        entry: `l x d`: their entries.
        value: `l x d`, float64: where they are split.
        sign: `l x d`: 1 on the high side, -1 on the low one, 0 where a path has ended.
        multiplier: `l x d`, float32: of each split.
        slope: `l x u`, uint8: the lower slopes of all ReLUs, in fifteenths.
    """

    problem: Tensor
    root: Tensor
    place: Tensor
    row: Tensor
    node: Tensor
    entry: Tensor
    value: Tensor
    sign: Tensor
    multiplier: Tensor
    slope: Tensor

    def __len__(self) -> int:
        return len(self.problem)

    @property
    def depth(self) -> Tensor:
        """How many splits each path has, `l`."""
        return (self.node >= 0).sum(1)

    @staticmethod
    def whole(problem: Tensor, root: Tensor, row: Tensor, slope: Tensor) -> Leaves:
        """The sets of inputs themselves, not split."""
        count, device = len(problem), problem.device
        whole = torch.zeros(count, 0, dtype=torch.long, device=device)
        real = torch.zeros(count, 0, dtype=torch.float64, device=device)
        return Leaves(problem, root, torch.zeros_like(problem), row, whole, whole, real, real, real.float(), slope)

    def take(self, index: Tensor | slice) -> Leaves:
        return Leaves(*(getattr(self, f.name)[index] for f in fields(self)))

    def trimmed(self) -> Leaves:
        """With paths no longer than the longest."""
        longest = int(self.depth.max()) if len(self) else 0
        return self.with_(**{name: getattr(self, name)[:, :longest] for name in _PATH})

    def with_(self, **changed: Tensor) -> Leaves:
        return Leaves(**{f.name: changed.get(f.name, getattr(self, f.name)) for f in fields(self)})

    def halves(self, node: Tensor, entry: Tensor, value: Tensor, multiplier: tuple[Tensor, Tensor]) -> Leaves:
        """The low sides of one more split each, `l` numbers, then the high ones: `2 l`. Multipliers: of both sides."""
        depth, longest = self.depth[:, None], self.node.shape[1]
        room = int(depth.max()) + 1 - longest if len(self) else 0
        wide = {name: F.pad(getattr(self, name), (0, room), value=-1 if name == "node" else 0) for name in _PATH}

        def side(sign: float, beta: Tensor) -> Leaves:
            new = {"node": node, "entry": entry, "value": value, "sign": torch.full_like(value, sign)}
            new["multiplier"] = beta.to(torch.float32)
            return self.with_(**{name: wide[name].scatter(1, depth, new[name][:, None]) for name in _PATH})

        return joined([side(-1.0, multiplier[0]), side(1.0, multiplier[1])])


_BITS = 2.0**11  # what half precision tells apart between a power of 2 and the next
_PATH = ("node", "entry", "value", "sign", "multiplier")


def joined(parts: list[Leaves]) -> Leaves:
    """Leaves one after the other; at least one part."""
    longest = max(p.node.shape[1] for p in parts)
    found = {}
    for f in fields(Leaves):
        tensors = [getattr(p, f.name) for p in parts]
        if f.name in _PATH:
            ended = -1 if f.name == "node" else 0
            tensors = [F.pad(t, (0, longest - t.shape[1]), value=ended) for t in tensors]
        found[f.name] = torch.cat(tensors)
    return Leaves(**found)


def stored_slopes(slope: Tensor) -> Tensor:
    """Slopes in [0, 1] as they are stored."""
    return (slope * STEPS).round().to(torch.uint8)


def rounded_slopes(slope: Tensor) -> Tensor:
    """Slopes in [0, 1] as they come back from storage."""
    return (slope * STEPS).round() / STEPS


def rounded_multipliers(multiplier: Tensor) -> Tensor:
    """Multipliers as they come back from storage: with the 11 bits of half precision, in any unit."""
    mantissa, exponent = torch.frexp(multiplier)
    return torch.ldexp((mantissa * _BITS).round() / _BITS, exponent)


def worst_first(problem: Tensor, bound: Tensor) -> Tensor:
    """The order by problem (or anything numbered), and within by bound; all `l`."""
    by_bound = torch.argsort(bound, stable=True)
    return by_bound[torch.argsort(problem[by_bound], stable=True)]


def rank(problem: Tensor) -> Tensor:
    """How many of the same problem stand before each, `l`; those of a problem in any order."""
    order = torch.argsort(problem, stable=True)
    sorted_ = problem[order]
    first = torch.searchsorted(sorted_, sorted_)
    found = torch.empty_like(order)
    found[order] = torch.arange(len(order), device=order.device) - first
    return found
