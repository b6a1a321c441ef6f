"""How fast bounds are, against the rate of a plain matrix product on the same machine in the same minute.

`python benchmarks/bounds.py`

A 784-300-300-300-10 ReLU network (He initialisation), 16 random inputs, direct margins; with and without the gradient
of the smallest margin by eps; on one thread and two. Times are the least of several runs. Runs of the matrix product,
(4800 x 300) @ (300 x 784), lie in between those of the bounds, since the machine may be busy elsewhere as well.

Columns: `Gflop` is what torch counts in the products of one evaluation, and `share` its rate relative to the product's.
`closed form` is what the products should come to (with the gradient of adaptive bounds, at most: a neuron met by its
lower line alone, which does not move, needs no derivative). `least` is what the problem itself asks for: the rows' way
down to the input, and with the gradient as much again for the way back. `useful` is the share if only those flops
counted. Exits with 0 whether or not the goals are met.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from elbowroom.claim.specification import label_stays
from elbowroom.network.graph import Network
from elbowroom.network.operations import Linear, ReLU
from elbowroom.search.bounds.methods import METHODS
from elbowroom.search.bounds.propagate import Propagation, margins_of
from elbowroom.search.regions.input_set import InputSet

PIXELS, WIDTH, CLASSES, BATCH = 784, 300, 10, 16
GOALS = {False: 0.5, True: 0.4}  # share of the matrix product's rate, without the gradient and with it


def network(seed: int) -> Network:
    generator = torch.Generator().manual_seed(seed)

    def linear(n_out: int, n_in: int) -> Linear:
        return Linear(torch.randn(n_out, n_in, generator=generator) * (2 / n_in) ** 0.5, torch.zeros(n_out))

    sizes = [PIXELS, WIDTH, WIDTH, WIDTH, CLASSES]
    layers = [op for n_in, n_out in pairwise(sizes) for op in (linear(n_out, n_in), ReLU())]
    return Network.chain((PIXELS,), layers[:-1])


def closed_form(method: str, differentiated: Sequence[int] | None = None) -> int:
    """Flops of the rows' products: the second and third hidden layer's down to the input, and the margins'.

    `differentiated`: with the gradient, how many neurons of each hidden layer are unstable (in the input of the batch
    that has most). Their rows go down once more and the derivative comes up again; of the margins one row does.
    """
    to_second, to_third = WIDTH * PIXELS, WIDTH * PIXELS + WIDTH * WIDTH  # products per row
    to_outputs = to_third + WIDTH * WIDTH
    sides = 1 if METHODS[method].parallel else 2
    total = sides * WIDTH * (to_second + to_third) + (CLASSES - 1) * (to_outputs + CLASSES * WIDTH)
    if differentiated is not None:
        _, second, third = differentiated
        total += 2 * (sides * (second * to_second + third * to_third) + to_outputs)
    return 2 * BATCH * total


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def count(work: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=9, help="runs of which the fastest counts")
    parser.add_argument("--eps", type=float, default=0.01)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()

    net = network(seed=0)
    generator = torch.Generator().manual_seed(1)
    x = 2 * torch.rand(BATCH, PIXELS, generator=generator) - 1
    eps = torch.full_like(x, given.eps)
    spec = label_stays(net.decide(net(x)), CLASSES).cast(torch.float32, "cpu")
    left, right = torch.randn(BATCH * WIDTH, WIDTH), torch.randn(WIDTH, PIXELS)
    product_flops = 2 * left.numel() * PIXELS

    def evaluation(method: str, gradient: bool) -> Callable[[], Tensor]:
        margins = margins_of(method, "direct")

        def value() -> Tensor:
            with torch.no_grad():
                return margins(net, InputSet(x, eps), spec)

        def value_and_gradient() -> Tensor:
            at = eps.clone().requires_grad_()
            least = margins(net, InputSet(x, at), spec).amin(1)
            return torch.autograd.grad(least.sum(), at)[0]

        return value_and_gradient if gradient else value

    print(f"784-300-300-300-10, batch {BATCH}, eps {given.eps}, float32, least of {given.runs} runs")
    differentiated = {}
    for method in ("combined", "adaptive"):
        with torch.no_grad():
            found = Propagation(net, InputSet(x, eps), METHODS[method])
        unstable = [(found.lower[i] < 0) & (found.upper[i] > 0) for i in net.preactivations]
        differentiated[method] = [int(layer.sum(1).max()) for layer in unstable]
        print(
            f"unstable neurons per layer, {method}: " + ", ".join(f"{layer.float().mean():.0%}" for layer in unstable)
        )
    print()
    head = {
        "threads": 7, "method": 10, "gradient": 10, "ms": 8, "Gflop": 8, "closed form": 13, "least": 8,
        "Gflop/s": 9, "product's": 11, "share": 7, "goal": 13, "useful": 8,
    }  # fmt: skip
    print("".join(f"{name:>{width}}" for name, width in head.items()))
    met = []
    for threads in given.threads:
        torch.set_num_threads(threads)
        for method in ("combined", "adaptive"):
            for gradient in (False, True):
                work = evaluation(method, gradient)
                flops = count(work)  # also the warm-up
                took, product = [], []
                for _ in range(given.runs):
                    product += [seconds(lambda: left @ right) for _ in range(2)]
                    took.append(seconds(work))
                rate, full = flops / min(took), product_flops / min(product)
                expected = closed_form(method, differentiated[method] if gradient else None)
                least = closed_form(method) * (2 if gradient else 1)
                met.append(rate / full >= GOALS[gradient])
                row = (
                    f"{threads}",
                    method,
                    "yes" if gradient else "no",
                    f"{1e3 * min(took):.1f}",
                    f"{flops / 1e9:.2f}",
                    f"{expected / 1e9:.2f}",
                    f"{least / 1e9:.2f}",
                    f"{rate / 1e9:.1f}",
                    f"{full / 1e9:.1f}",
                    f"{rate / full:.0%}",
                    f"{GOALS[gradient]:.0%} {'met' if met[-1] else 'missed'}",
                    f"{least / min(took) / full:.0%}",
                )
                print("".join(f"{cell:>{width}}" for cell, width in zip(row, head.values())))
    print()
    print(f"goals met: {sum(met)} of {len(met)}")
    if hasattr(os, "getloadavg"):
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; a busy machine blurs the shares")


if __name__ == "__main__":
    main()
