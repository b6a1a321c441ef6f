"""Sequential against the paper's augmented Lagrangian and the authors' own results: size and time per image.

    python benchmarks/solvers.py [--shared DIR] [--larger]

On the authors' networks and images (reference/*.npz under DIR, default ELBOWROOM_SHARED or ../shared), with the
paper's bounds ("combined") and margin ("logits") for both solvers, one thread, both measured in turn in one run.
--larger: also the seconds per image of the first solver on a 784-300-300-300-10 network, trained here for 4 epochs on
MNIST (data/MNIST/raw under DIR), 32 test images.
"""

import argparse
import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

import elbowroom as er
from elbowroom.network.operations import Linear, ReLU
from gpu import mnist, trained

PAPER = {"bounds": "combined", "margin": "logits", "delta": 1e-4}


def reference(place: Path, name: str):
    data = np.load(place / "reference" / f"mnist_{name}.npz")
    layers = [Linear(torch.tensor(data[f"W{i}"]).float(), torch.tensor(data[f"b{i}"]).float()) for i in range(4)]
    net = er.Network.chain((784,), [layers[0], ReLU(), layers[1], ReLU(), layers[2], ReLU(), layers[3]])
    right = data["correct"].astype(bool)
    x = torch.tensor(data["x"][right]).reshape(-1, 784)
    return net, x, torch.tensor(data["y"][right]).long(), data["gm_authors"][right]


def timed(function):
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def product_rate() -> float:
    a, b = torch.randn(2000, 100), torch.randn(100, 784)
    best = min(timed(lambda: [a @ b for _ in range(20)])[1] for _ in range(5))
    return 20 * 2 * 2000 * 100 * 784 / best / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("ELBOWROOM_SHARED", "../shared")))
    parser.add_argument("--larger", action="store_true", help="3x300, too")
    given = parser.parse_args()
    place = given.shared
    torch.set_num_threads(1)
    print(f"one thread, matrix products at {product_rate():.0f} Gflop/s; CPU seconds, bounds combined, margin logits\n")
    print("network         solver                 s/image   / authors: mean  min    evaluations  gradients")
    for name in ("m100", "m100pgd", "m100pgd_best10"):
        net, x, y, authors = reference(place, name)
        solvers = {f"sequential, {k}": er.Sequential(gradients=k) for k in (1, 2, 4)}
        solvers["augmented Lagrangian"] = er.AugmentedLagrangian()
        er.certify(net, x[:2], y[:2], **PAPER)  # warm up
        took = {}
        for label, solver in solvers.items():
            runs = 1 if "Lagrangian" in label else 3
            run = partial(er.certify, net, x, y, solver=solver, **PAPER)
            results = [timed(run) for _ in range(runs)]
            certs, took[label] = results[0][0], min(t for _, t in results) / len(x)
            ratio = certs.geomean.numpy() / authors
            mean = float(certs.geomean.mean()) / authors.mean()
            print(
                f"{name:15} {label:22} {took[label]:7.4f}   {mean:13.4f}  {ratio.min():.4f}"
                f"  {certs.evaluations.double().mean():8.1f}  {certs.gradients.double().mean():8.1f}"
            )
        for label in list(solvers)[:-1]:
            print(f"{'':15} augmented Lagrangian / {label}: {took['augmented Lagrangian'] / took[label]:.1f} times")
    if given.larger:
        raw = place / "data" / "MNIST" / "raw"
        net = trained(*mnist(raw, "train", "cpu"), epochs=4)
        x, y = mnist(raw, "t10k", "cpu")
        x = x[net(x).argmax(1) == y][:32]
        er.certify(net, x[:2], **PAPER)
        for k in (1, 2, 4):
            run = partial(er.certify, net, x, solver=er.Sequential(gradients=k), **PAPER)
            certs, taken = min((timed(run) for _ in range(3)), key=lambda one: one[1])
            size = float(certs.geomean.log().mean())
            print(f"{'3x300':15} sequential, {k}{'':9} {taken / len(x):7.4f}   mean log of extents {size:.4f}")
    print(f"\nproducts at the end: {product_rate():.0f} Gflop/s")


if __name__ == "__main__":
    main()
