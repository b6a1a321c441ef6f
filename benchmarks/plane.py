"""In two dimensions: asymmetric boxes beside the largest that a fine grid of points allows.

    python benchmarks/plane.py [--efforts fast,medium,high] [--points 20] [--spacing 0.004]

A 2-32-32-2 network of ReLUs is trained on a disc in [-1, 1]^2 (600 points, seed 0). The grid's box goes from the
nearest points of another class, or the domain's edge, on one side to those on the other, so it is too large by up to
two spacings along each axis: a share of 0.98 may well be all there is.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import Tensor, nn

import elbowroom as er


def trained() -> er.Network:
    torch.manual_seed(0)
    x = 2 * torch.rand(600, 2) - 1
    y = ((x**2).sum(1) < 0.45).long()
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    adam = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(600):
        adam.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        adam.step()
    return er.load(model, input_shape=(2,))


class Grid:
    def __init__(self, net: er.Network, spacing: float) -> None:
        self.line = torch.arange(-1, 1 + spacing / 2, spacing, dtype=torch.float64)
        points = torch.cartesian_prod(self.line, self.line)
        self.labels = net.decide(net(points)).reshape(len(self.line), -1).numpy()

    def largest(self, x: Tensor, label: int) -> float:
        """The area of the largest box around `x` without a point of another class inside."""
        line, (a, b) = self.line.numpy(), x.tolist()
        other = self.labels != label
        # Of each column, how far up and down one may go from x.
        up = np.where(other & (line >= b), line, 1.0).min(1)
        down = np.where(other & (line <= b), line, -1.0).max(1)
        left, right = np.nonzero(line <= a)[0][::-1], np.nonzero(line > a)[0]
        best = 0.0
        # Column after column to the left is taken in, and for each of these all to the right.
        tops = np.concatenate([[1.0], np.minimum.accumulate(up[right])])
        floors = np.concatenate([[-1.0], np.maximum.accumulate(down[right])])
        ends = np.concatenate([line[right], [1.0]])  # where a box stops that takes in none, one, two, ... of them
        top, floor = 1.0, -1.0
        for column in [*left.tolist(), None]:
            start = -1.0 if column is None else line[column]
            heights = (np.minimum(tops, top) - np.maximum(floors, floor)).clip(0)
            best = max(best, float(((ends - start) * heights).max()))
            if column is not None:
                top, floor = min(top, up[column]), max(floor, down[column])
        return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--efforts", default="fast,medium,high")
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--spacing", type=float, default=0.004)
    given = parser.parse_args()
    torch.set_num_threads(1)
    net = trained()
    grid = Grid(net, given.spacing)
    x = 2 * torch.rand(given.points, 2, generator=torch.Generator().manual_seed(5)).double() - 1
    for effort in given.efforts.split(","):
        started = time.thread_time()
        certs = er.certify(net, x, region=er.Box(asymmetric=True), domain=(-1, 1), effort=effort)
        taken = (time.thread_time() - started) / len(x)
        area = (certs.upper - certs.lower).prod(1).tolist()
        share = sorted(a / grid.largest(p, int(l)) for a, p, l in zip(area, x, certs.labels))
        report = er.check(certs, net)
        print(
            f"{effort}: {taken:.2f} CPU s per point; share of the grid's largest box: mean {np.mean(share):.3f}, least "
            f"{', '.join(f'{v:.2f}' for v in share[:4])}; {int(report.passed.sum())} of {len(x)} proved again"
        )


if __name__ == "__main__":
    main()
