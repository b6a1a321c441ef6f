"""What certifying costs, against width, depth, input size, number of inputs and batch; and the model behind it.

    python benchmarks/scaling.py [--device cpu] [--quick]

Random ReLU networks (He's initial weights, small biases), random inputs, the default setting, one thread on a CPU. The
model: an evaluation of the bounds takes `2 * 2 * sum_l rows_l * sum_{k <= l} w_k w_{k-1}` floating-point operations per
input (two rows per neuron that is not inactive, each carried back through all earlier layers); the last column is the
rate that this makes of the time spent, evaluations with gradient counted three times. Peak memory is that of the
process or, on a GPU, of the device. Prints docs/scaling.md's tables.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time

import torch

import elbowroom as er
from elbowroom.network.operations import Linear, ReLU

BASE = (784, 100, 3)  # features, width, hidden layers
CASES = {
    "width": [(784, w, 3) for w in (50, 100, 200, 400)],
    "depth": [(784, 100, d) for d in (2, 3, 5, 8)],
    "input size": [(n, 100, 3) for n in (50, 200, 784, 3072)],
}


def network(features: int, width: int, depth: int) -> er.Network:
    generator = torch.Generator().manual_seed(0)
    sizes = [features, *[width] * depth, 10]
    layers: list[Linear | ReLU] = []
    for into, out in itertools.pairwise(sizes):
        weight = torch.randn(out, into, generator=generator) * (2 / into) ** 0.5
        layers += [Linear(weight, 0.1 * torch.randn(out, generator=generator)), ReLU()]
    return er.Network.chain((features,), layers[:-1])


def operations(features: int, width: int, depth: int, active: float = 0.75) -> float:
    """Of one evaluation for one input; `active`: the share of neurons whose rows are computed."""
    sizes = [features, *[width] * depth, 10]
    products = [a * b for a, b in itertools.pairwise(sizes)]
    hidden = sum(2 * active * width * sum(products[: layer + 1]) for layer in range(1, depth))
    return 2 * (hidden + 9 * sum(products))


def measure(case: tuple[int, int, int], inputs: int, device: str, batch: int | None = None) -> str:
    net = network(*case)
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(inputs, case[0], generator=generator, dtype=torch.float64).to(device)
    er.certify(net, x if device != "cpu" else x[:2], batch=batch)  # kernels are compiled for sizes
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    started = clock(device)
    certs = er.certify(net, x, batch=batch)
    seconds = clock(device) - started
    work = float((certs.evaluations + 2 * certs.gradients).double().mean())
    rate = inputs * work * operations(*case) / seconds / 1e9
    process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    peak = process if device == "cpu" else torch.cuda.max_memory_allocated() / 1024**3
    many = f"{inputs:,}" if batch is None else f"{inputs:,} by {batch:,}"
    return (
        f"| {case[0]}-{case[1]}x{case[2]}-10 | {many} | {seconds / inputs * 1e3:.3g} | "
        f"{certs.evaluations.double().mean():.1f} + {certs.gradients.double().mean():.1f} | "
        f"{operations(*case) / 1e6:.3g} | {rate:.3g} | {peak:.2f} |"
    )


def clock(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer inputs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    inputs = 8 if options.quick else 32
    head = "| network | inputs | ms per input | evaluations + gradients | Mflop per evaluation | Gflop/s | peak GiB |"
    for name, cases in CASES.items():
        print(f"\nBy {name}:\n\n{head}\n|---|---:|---:|---:|---:|---:|---:|")
        for case in cases:
            print(measure(case, inputs, options.device), flush=True)
    on_cpu = options.device == "cpu"
    print(f"\nBy number of inputs:\n\n{head}\n|---|---:|---:|---:|---:|---:|---:|")
    for count in (1, 8, 64) if options.quick else (1, 16, 64, 256, 1024) if on_cpu else (1, 16, 256, 1024, 8192):
        print(measure(BASE, count, options.device), flush=True)
    print(f"\nBy batch:\n\n{head}\n|---|---:|---:|---:|---:|---:|---:|")
    for batch in (1, 8) if options.quick else (1, 4, 16, 64) if on_cpu else (64, 256, 1024, 4096):
        print(measure(BASE, 2 * inputs if on_cpu else 4096, options.device, batch), flush=True)


if __name__ == "__main__":
    main()
