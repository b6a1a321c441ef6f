"""Slopes of ReLUs' lower lines for each row of a hidden node, and the ReLUs that it takes by cases: found in floating
point, to be proved in balls.

Any slope from 0 to 1 is right, and any ReLUs may be taken by cases, so nothing here needs care. A row is carried back
along its lines; where it is least, a ReLU's input tells whether a steeper or a flatter line would be better; a few
steps, and the best slopes of each row. Upper lines cost a row their constants, at its coefficients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.proof.arb.balls import Balls, rows_of

if TYPE_CHECKING:
    from elbowroom.proof.arb.bounds import Bounds

_STEP = 3.0


def floats(balls: Balls) -> Tensor:
    return torch.tensor([float(v) for v in balls], dtype=torch.float64)


class Proposals:
    """For some of the entries of node i, then of their negatives, `m` rows; `index`: which of the `2 n`."""

    def __init__(self, bounds: Bounds, i: int, index: list[int]) -> None:
        self.bounds, self.net, self.i = bounds, bounds.net, i
        self.ops = [node.op.map_tensors(lambda t: t.detach().double().cpu()) for node in self.net.nodes]
        unit = torch.eye(self.net.nodes[i].size, dtype=torch.float64)
        self.rows = torch.cat([unit, -unit])[index]
        self.relus = [k for k in bounds.lines if k < i and type(self.net.nodes[k].op) is ops.ReLU]
        self.ends = {k: [floats(of[self.net.nodes[k].inputs[0]]) for of in (bounds.lower, bounds.upper)]
                     for k in self.relus}  # fmt: skip
        self.slopes = {k: floats(bounds.lines[k].k_l).expand(len(self.rows), -1) for k in self.relus}
        self.bent = {k: (low < 0) & (high > 0) for k, (low, high) in self.ends.items()}

    def best(self, rounds: int) -> dict[int, list[list[float]]]:
        """By ReLU node, for each row the slopes of all entries."""
        least = torch.full((len(self.rows),), -math.inf, dtype=torch.float64)
        kept = dict(self.slopes)
        for t in range(rounds + 1):
            taken = self._back()
            reached = self._forth(taken)
            value = (self.rows * reached[self.i]).sum(1)
            better = value > least
            least = torch.maximum(least, value)
            for k in self.relus:
                kept[k] = torch.where(better[:, None], self.slopes[k], kept[k])
                low, high = self.ends[k]
                step = _STEP * (t + 1) ** -0.5 * reached[self.net.nodes[k].inputs[0]] / (high - low)
                moved = torch.nan_to_num(self.slopes[k] + step, 0.0, 1.0, 0.0).clamp(0, 1)
                self.slopes[k] = torch.where(self.bent[k], moved, self.slopes[k])
        self.slopes = kept
        return {k: t.tolist() for k, t in kept.items()}

    def worst(self, most: int) -> list[list[tuple[int, int]]]:
        """For each row the ReLUs, by node and entry, whose upper lines cost it most with the best slopes."""
        taken = self._back()
        costs = [taken[k].clamp_max(0) * torch.where(self.bent[k], -self._lines(k)[3], 0.0)
                 for k in self.relus if k in taken]  # fmt: skip
        places = [(k, c) for k in self.relus if k in taken for c in range(self.net.nodes[k].size)]
        if not places:
            return [[] for _ in self.rows]
        cost, at = torch.cat(costs, 1).topk(min(most, len(places)), 1)
        return [[places[c] for c, v in zip(*row) if v > 0] for row in zip(at.tolist(), cost.tolist())]

    def _lines(self, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        k_l, m_l, k_u, m_u = (floats(t) for t in self.bounds.lines[k][:4])
        if k not in self.slopes:
            return k_l, m_l, k_u, m_u
        return self.slopes[k], torch.where(self.bent[k], 0.0, m_l), k_u, m_u

    def _back(self) -> dict[int, Tensor]:
        """Coefficients over the input and over every node that is not affine, `m x size`."""
        waiting, found = {self.i: self.rows}, {}
        while waiting:
            k = max(waiting)
            a, node = waiting.pop(k), self.net.nodes[k]
            if k == 0 or k in self.bounds.lines:
                found[k] = a
            if k == 0:
                break
            if k in self.bounds.lines:
                k_l, _, k_u, _ = self._lines(k)
                at = torch.tensor(self.bounds.lines[k].source).expand(len(a), -1)
                below = torch.zeros(len(a), self.net.nodes[node.inputs[0]].size, dtype=torch.float64)
                parts = [below.scatter_add(1, at, a.clamp_min(0) * k_l + a.clamp_max(0) * k_u)]
            else:
                with torch.enable_grad():
                    zeros = [torch.zeros(len(a), *self.net.nodes[j].shape, dtype=torch.float64) for j in node.inputs]
                    out = self.ops[k](*(z.requires_grad_() for z in zeros))
                    parts = [g.flatten(1) for g in torch.autograd.grad(out, zeros, a.reshape(out.shape))]
            for j, part in zip(node.inputs, parts):
                waiting[j] = waiting[j] + part if j in waiting else part
        return found

    def _forth(self, taken: dict[int, Tensor]) -> list[Tensor]:
        """Every node up to i, `m x size`, where each row is least, along the lines that it took."""
        reached = [self._point(taken.get(0, torch.zeros(len(self.rows), self.net.n_inputs, dtype=torch.float64)))]
        for k in range(1, self.i + 1):
            node = self.net.nodes[k]
            if k not in self.bounds.lines:
                given = [reached[j].reshape(-1, *self.net.nodes[j].shape) for j in node.inputs]
                reached.append(self.ops[k](*given).flatten(1))
                continue
            k_l, m_l, k_u, m_u = self._lines(k)
            x = reached[node.inputs[0]][:, self.bounds.lines[k].source]
            positive = taken[k] > 0 if k in taken else torch.zeros_like(x, dtype=torch.bool)
            reached.append(torch.where(positive, k_l * x + m_l, k_u * x + m_u))
        return reached

    def _point(self, a: Tensor) -> Tensor:
        """The points of the region where rows over the input are least, about."""
        region = self.bounds.region
        if region.center is None:
            point = torch.where(a > 0, floats(region.lower), floats(region.upper))
            for first, codes in region.levels:
                own = torch.tensor(codes, dtype=torch.float64)
                entries = slice(first, first + own.shape[1])
                point[:, entries] = own[(a[:, entries] @ own.T).argmin(1)]
            return point
        basis = torch.eye(a.shape[1], dtype=torch.float64)
        if region.basis is not None:
            basis = torch.stack([floats(row) for row in rows_of(region.basis)])
        radius = floats(region.radius)
        turned = (a @ basis) * radius
        size = turned.abs() / turned.abs().amax(1, keepdim=True).clamp_min(1e-300)
        if region.p == 1:
            unit = (size == 1).double()
            unit = unit / unit.sum(1, keepdim=True).clamp_min(1)
        else:
            q = 1.0 if region.p == math.inf else region.p / (region.p - 1)
            norm = (size**q).sum(1, keepdim=True).clamp_min(1e-300)
            unit = size ** (q - 1) / norm ** ((q - 1) / q)
        return floats(region.center) - (turned.sign() * unit * radius) @ basis.T
