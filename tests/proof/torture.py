"""Networks made to break floating point, and where to look for their counter-examples."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from elbowroom.claim.stated import Stated
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network


@dataclass(frozen=True)
class Case:
    """A network, a box (`n` each), rows over its outputs (`t x k`) with offsets, and a name."""

    kind: str
    net: Network
    lower: Tensor
    upper: Tensor
    rows: Tensor
    offset: Tensor

    @property
    def area(self) -> Stated:
        return Stated(self.lower[None], self.upper[None])


def tensor(a: np.ndarray | list) -> Tensor:
    return torch.from_numpy(np.asarray(a, dtype=np.float64).copy())


def _uneven(rng: np.random.Generator, *shape: int, low: float = -20, high: float = 20) -> np.ndarray:
    return rng.choice([-1, 1], shape) * rng.uniform(1, 10, shape) * 10.0 ** rng.uniform(low, high, shape)


def _spread(rng: np.random.Generator) -> Network:
    """Weights from 1e-20 to 1e20 in one layer."""
    n, h = rng.integers(1, 4), rng.integers(1, 5)
    layers = [ops.Linear(tensor(_uneven(rng, h, n)), tensor(_uneven(rng, h))), _kinked(rng)]
    return Network.chain((int(n),), [*layers, ops.Linear(tensor(_uneven(rng, 2, h)), tensor(_uneven(rng, 2)))])


def _kinked(rng: np.random.Generator) -> ops.Activation:
    kinds = [ops.ReLU(), ops.ReLU(), ops.LeakyReLU(0.1), ops.LeakyReLU(-0.3), ops.Clip(-1.0, 1e10)]
    return kinds[rng.integers(len(kinds))]


def _cancel(rng: np.random.Generator) -> Network:
    """`(big + 1) x - big x`, twice: what remains is far below the terms."""
    big = 10.0 ** rng.integers(6, 17)
    w = np.array([[big, 1.0, -big], [big, rng.normal(), big]])
    first = ops.Linear(tensor([[1.0], [rng.normal()], [1.0 + rng.integers(0, 2) * 2.0**-52]]))
    back = np.array([[1.0, -0.1], [0.1, 1 / 3]])
    return Network.chain((1,), [first, ops.Linear(tensor(w), tensor(_uneven(rng, 2, low=-3, high=3))),
                                _kinked(rng), ops.Linear(tensor(back))])  # fmt: skip


def _order(rng: np.random.Generator) -> Network:
    """A long sum whose result depends on the order, its terms nearly in pairs of opposite sign."""
    n = 40
    w = _uneven(rng, 2, n, low=0, high=float(rng.choice([3, 10, 17])))
    w[:, 1::2] = -w[:, ::2] * (1 + rng.integers(-2, 3, (2, n // 2)) * 2.0**-52)
    spread = ops.Linear(tensor(np.ones((n, 1)) + rng.integers(-1, 2, (n, 1)) * 2.0**-52))
    return Network.chain((1,), [spread, ops.Linear(tensor(w[:, rng.permutation(n)]), tensor(rng.normal(size=2)))])


def _ulp(rng: np.random.Generator) -> Network:
    """Two outputs that differ by one unit in the last place of their biases, or by none."""
    n, h = 2, 3
    w, b = rng.normal(size=(1, h)), float(_uneven(rng, 1, low=-8, high=8)[0])
    other = [math.nextafter(b, math.inf), math.nextafter(b, -math.inf), b][rng.integers(3)]
    layers = [ops.Linear(tensor(rng.normal(size=(h, n))), tensor(rng.normal(size=h))), ops.ReLU()]
    return Network.chain((n,), [*layers, ops.Linear(tensor(np.vstack([w, w])), tensor([b, other]))])


def _deep(rng: np.random.Generator) -> Network:
    """Fifty layers."""
    layers: list[ops.Operation] = []
    for _ in range(50):
        turn = rng.uniform(0, 2 * math.pi)
        w = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]]) * rng.uniform(0.9, 1.2)
        layers += [ops.Linear(tensor(w), tensor(rng.normal(size=2) * 0.1)), ops.LeakyReLU(0.9)]
    return Network.chain((2,), layers[:-1])


def _underflow(rng: np.random.Generator) -> Network:
    """Values that underflow half-way and grow again."""
    small, n = 10.0 ** rng.uniform(-324, -290), 3
    layers: list[ops.Operation] = [ops.Scale(tensor(rng.uniform(0.5, 2, n) * small))]
    for _ in range(rng.integers(1, 6)):
        layers += [
            ops.Linear(tensor(rng.normal(size=(n, n)))),
            ops.ReLU() if rng.random() < 0.5 else ops.LeakyReLU(0.1),
        ]
    gain = 10.0 ** rng.choice([0, 20, 100, 290])
    bias = tensor(rng.normal(size=2) * small * gain * 1e-2)
    return Network.chain((n,), [*layers, ops.Linear(tensor(rng.normal(size=(2, n)) * gain), bias)])


def _vanish(rng: np.random.Generator) -> Network:
    """Forty products, each of which rounds to nothing, and a sum of them that does not."""
    n = 40
    w = np.full((2, n), 3e-163) * rng.uniform(0.3, 1, (2, n)) * rng.choice([-1, 1], (2, 1))
    first = ops.Linear(tensor(np.full((n, 1), 3e-162)))
    last = ops.Linear(tensor(rng.normal(size=(2, 2)) * 1e300))
    return Network.chain((1,), [first, ops.Linear(tensor(w)), ops.LeakyReLU(0.5), last])


def _overflow(rng: np.random.Generator) -> Network:
    """Partial sums over the largest number, in pairs that cancel; then an activation that forgets the size."""
    n = int(rng.choice([2, 8, 32, 64]))
    w = np.full((2, n), 1.0) * 10.0 ** rng.uniform(306, 308.2)
    w[:, n // 2 :] *= -1
    w = w[:, rng.permutation(n)] if rng.random() < 0.5 else w
    rest = [ops.Linear(tensor(w), tensor(rng.normal(size=2) * 5)), ops.Clip(),
            ops.Linear(tensor(rng.normal(size=(2, 2))), tensor(rng.normal(size=2)))]  # fmt: skip
    if rng.random() < 0.5:
        return Network.chain((n,), rest)  # an interval alone
    return Network.chain((1,), [ops.Linear(tensor(np.ones((n, 1)))), *rest])


def _explode(rng: np.random.Generator) -> Network:
    """Values up to 1e300, or 1e340, that a last layer brings back."""
    big = 10.0 ** rng.choice([150, 170])
    up, down = rng.normal(size=(3, 2)) * big, rng.normal(size=(2, 3)) / big
    return Network.chain((2,), [ops.Linear(tensor(up)), ops.ReLU(), ops.Linear(tensor(rng.normal(size=(3, 3)) * big)),
                                ops.ReLU(), ops.Linear(tensor(down), tensor(rng.normal(size=2)))])  # fmt: skip


def _biases(rng: np.random.Generator) -> Network:
    """Biases of 1e16 that cancel in the next layer, next to tiny ones."""
    big = 10.0 ** rng.uniform(8, 17)
    b = np.array([big, big * (1 + 2.0**-52), 1e-12])
    first = ops.Linear(tensor(rng.normal(size=(3, 2))), tensor(b))
    second = ops.Linear(tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, rng.normal()]]), tensor(_uneven(rng, 2, low=-9, high=3)))
    return Network.chain((2,), [first, ops.ReLU(), second])


def _pool(rng: np.random.Generator) -> Network:
    """Max-pooling with padding over values of all sizes, and a path around it."""
    g = Graph((4,))
    h = g.add(ops.Linear(tensor(_uneven(rng, 8, 4, low=-6, high=6)), tensor(_uneven(rng, 8, low=-6, high=6))), g.input)
    p = g.add(ops.MaxPool((3,), (2,), (1,)), g.add(ops.Reshape((2, 4)), h))
    flat = g.add(ops.Reshape((-1,)), p)
    joined = g.add(ops.Add((1.0, -1.0)), flat, g.add(ops.Slice(0, 0, 4), h))
    return g.network(g.add(ops.Linear(tensor(_uneven(rng, 2, 4, low=-3, high=3)), tensor(_uneven(rng, 2))), joined))


def _shared(rng: np.random.Generator) -> Network:
    """`s x + t x - (s + t) x` through forks: coefficients that should cancel and nearly do."""
    s, t = _uneven(rng, 2, low=-2, high=9)
    g = Graph((2,))
    a, b, c = (g.add(ops.Scale(tensor([v, v])), g.input) for v in (s, t, s + t))
    all_of = g.add(ops.Add((1.0, 1.0, -1.0)), a, b, c)
    h = g.add(_kinked(rng), all_of)
    out = g.add(ops.Add((0.1, 3.0)), h, g.add(ops.Shift(tensor(rng.normal(size=2))), g.input))
    return g.network(g.add(ops.Linear(tensor(rng.normal(size=(2, 2)))), out))


KINDS = {
    "spread": _spread, "cancel": _cancel, "order": _order, "ulp": _ulp, "deep": _deep, "underflow": _underflow,
    "vanish": _vanish, "overflow": _overflow, "explode": _explode, "biases": _biases, "pool": _pool, "shared": _shared,
}  # fmt: skip


def case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    net = KINDS[kind](rng)
    n = net.n_inputs
    center = rng.normal(size=n) if kind != "overflow" else np.ones(n)
    width = rng.choice([0.0, 2.0**-52, 1e-12, 1e-6, 1e-3, 0.1]) * np.abs(center) * rng.random((2, n))
    lower, upper = tensor(center - width[0]), tensor(center + width[1])
    return _with_rows(rng, Case(kind, net, lower, upper, torch.zeros(0), torch.zeros(0)))


def _with_rows(rng: np.random.Generator, bare: Case) -> Case:
    """The label at the centre stays, and rows with offsets that leave next to nothing of the margin."""
    from proof.exact import values

    z = values(bare.net, bare.lower / 2 + bare.upper / 2)[-1]
    sign = 1.0 if z[0] >= z[1] else -1.0
    rows = [[sign, -sign], [-sign, sign], list(rng.normal(size=2))]
    offsets = [0.0, 0.0, 0.0]
    for share in (0.0, 1e-15, 1e-9, 0.1):
        row = rng.normal(size=2)
        margin = sum((Fraction(float(c)) * v for c, v in zip(row, z)), Fraction(0))
        offset = -margin * (1 - Fraction(share)) if margin > 0 else -margin * (1 + Fraction(share))
        if abs(offset) < 1e300:
            rows.append(list(row))
            offsets.append(float(offset))
    return Case(bare.kind, bare.net, bare.lower, bare.upper, tensor(rows), tensor(offsets))


def points(case: Case, rng: np.random.Generator, count: int) -> list[Tensor]:
    """Corners (all of up to eight, or some), the middle, random points, and the corners a gradient points to."""
    low, high = case.lower, case.upper
    n = len(low)
    corners = list(itertools.product([False, True], repeat=n)) if n <= 3 else list(rng.random((8, n)) < 0.5)
    found = [torch.where(tensor(c).bool(), high, low) for c in corners]
    inside = [low + tensor(rng.random(n)) * (high - low) for _ in range(count)] + [low / 2 + high / 2]
    return [torch.minimum(torch.maximum(p, low), high) for p in [*found, *inside]]
