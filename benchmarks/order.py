"""How often a bound that is usually better is worse after all, on random classifiers.

`python benchmarks/order.py`

Networks of 1 to 3 hidden layers, 4 to 40 neurons each, 2 to 30 inputs, 3 to 8 classes; 16 inputs per network, each
in the middle of a box whose half-widths are drawn between 0.1 and 1 times a scale from 0.003 to 1 per network; the
label is what the network decides. For each pair of bounds: how many margins are lower by the bound expected to be
better, and by how much, relative to the width `upper - lower` that it proves for the margin. `gain` is the mean over
all margins of what the bound expected to be better is better by. The first four pairs are theorems: they must show 0.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from elbowroom.claim.specification import Specification, label_stays
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.regions.input_set import InputSet

BATCH = 16
ROUNDING = 1e-10  # reversals of less than this share of the width are rounding
KINDS: dict[str, tuple[ops.Activation, ...]] = {
    "ReLU": (ops.ReLU(),),
    "smooth activations (tanh, sigmoid, softplus, GELU)": (ops.Tanh(), ops.Sigmoid(), ops.Softplus(), ops.GELU()),
}

# (expected better, expected worse), each a method and a kind of margin.
PAIRS = (
    (("simple", "direct"), ("simple", "logits")),
    (("quadratic", "direct"), ("quadratic", "logits")),
    (("combined", "direct"), ("simple", "direct")),
    (("adaptive", "direct"), ("simple", "direct")),
    (("combined", "direct"), ("combined", "logits")),
    (("adaptive", "direct"), ("adaptive", "logits")),
    (("combined", "direct"), ("quadratic", "direct")),
    (("adaptive", "direct"), ("quadratic", "direct")),
    (("adaptive", "direct"), ("combined", "direct")),
)


@dataclass
class Count:
    """Margins seen, and the reversed ones' amounts relative to the width."""

    margins: int = 0
    gain: float = 0.0
    amounts: tuple[float, ...] = ()

    def add(self, better: Tensor, worse: Tensor, width: Tensor) -> None:
        # Where the width is zero (every path dead) both bounds are exact.
        amount = torch.where(width > 0, (worse - better) / torch.where(width > 0, width, 1.0), 0.0).flatten()
        self.margins += amount.numel()
        self.gain -= float(amount.sum())
        self.amounts += tuple(amount[amount > ROUNDING].tolist())

    def row(self, name: str) -> str:
        n = len(self.amounts)
        largest, mean = (max(self.amounts), sum(self.amounts) / n) if n else (0.0, 0.0)
        share = f"{100 * n / self.margins:.2f} %"
        gain = self.gain / self.margins
        return f"| {name} | {self.margins:,} | {n:,} | {share} | {largest:.4f} | {mean:.4f} | {gain:+.4f} |"


def classifier(rng: np.random.Generator, activation: ops.Activation) -> Network:
    hidden = [int(n) for n in rng.integers(4, 41, rng.integers(1, 4))]
    sizes = [int(rng.integers(2, 31)), *hidden, int(rng.integers(3, 9))]
    layers: list[ops.Operation] = []
    for n, m in pairwise(sizes):
        weight = torch.from_numpy(rng.standard_normal((m, n))) * math.sqrt(2 / n)
        layers += [ops.Linear(weight, torch.from_numpy(rng.standard_normal(m)) * 0.1), activation]
    return Network.chain((sizes[0],), layers[:-1])


def boxes(rng: np.random.Generator, n: int) -> InputSet:
    scale = 10 ** rng.uniform(math.log10(0.003), 0)
    center = torch.from_numpy(rng.standard_normal((BATCH, n)))
    return InputSet(center, torch.from_numpy(rng.uniform(0.1, 1, (BATCH, n))) * scale)


def both_signs(spec: Specification) -> Specification:
    """Every row followed by its negative, whose lower bound is minus the row's upper bound."""
    rows = torch.cat([spec.rows, -spec.rows], 1)
    return Specification(rows, torch.cat([spec.offset, -spec.offset], 1), torch.arange(rows.shape[1]))


def compare(net: Network, inputs: InputSet, counts: dict[tuple, Count]) -> None:
    spec = both_signs(label_stays(net.decide(net(inputs.center)), net.n_outputs))
    lower: dict[tuple[str, str], Tensor] = {}
    width: dict[tuple[str, str], Tensor] = {}
    for method in ("simple", "quadratic", "combined", "adaptive"):
        found = Propagation(net, inputs, method_named(method))
        for margin in ("direct", "logits"):
            low, minus_high = found.margins(spec, margin).chunk(2, dim=1)
            lower[method, margin], width[method, margin] = low, -minus_high - low
    for better, worse in PAIRS:
        counts[better, worse].add(lower[better], lower[worse], width[better])


def name_of(pair: tuple[tuple[str, str], tuple[str, str]]) -> str:
    (method, margin), (other, other_margin) = pair
    if method == other:
        return f"{margin} against {other_margin}, {method}"
    return f"{method} against {other}, {margin}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--margins", type=int, default=40_000, help="at least so many margins per pair")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for kind, activations in KINDS.items():
        rng = np.random.default_rng(args.seed)
        counts = {pair: Count() for pair in PAIRS}
        networks = 0
        while counts[PAIRS[0]].margins < args.margins:
            net = classifier(rng, activations[networks % len(activations)])
            with torch.no_grad():
                compare(net, boxes(rng, net.n_inputs), counts)
            networks += 1
        print(f"{kind}, {networks} networks, seed {args.seed}:\n")
        print("| better against worse | margins | reversed | share | largest | mean | gain |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for pair in PAIRS:
            print(counts[pair].row(name_of(pair)))
        print()


if __name__ == "__main__":
    main()
