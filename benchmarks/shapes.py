"""Other norms and other objectives, on MNIST: the tables of docs/shapes.md.

    python benchmarks/shapes.py [norms] [smallest] [free] [oblique] [--rows m100,m100pgd,32,32pgd] [--inputs 10]
        [--norms 1,1.5,2,3,inf] [--efforts fast] [--shared DIR] [--figure FILE]

Rows: m100 and m100pgd, the reference networks of DIR/reference, pixels in [-1, 1]; 32 and 32pgd, 784-32-10 networks
trained here (10 epochs, seed 0, the latter against PGD of 0.1), pixels in [0, 1]. All regions are proved again. For
oblique also cancer and wine: perceptrons of 32 neurons trained on scikit-learn's sets, features standardised in the
model, certified in their own units.

norms: per norm and effort, the mean log-volume per feature and the median scaling at which a counterexample was found.
smallest: the least half-width of uniform boxes, of boxes of largest volume, and of those with objective="smallest", as
    means over images, and the gain over the uniform box on the image where it is least.
free: how many of 784 features may take any value, are needed, and are not decided: medians. --figure: and pictures.
oblique: boxes along the axes and along directions, all held to the same cap per feature or direction (of images a half
    and a tenth of a pixel's range; of tables, the range of each feature, which directions are measured in): the
    singular vectors of the first layer, those of Oblique("auto"), found from 1,000 training inputs, and these after
    descent on rotations (see benchmarks/directions.py). Log-volume per feature, directions at the cap, how far a
    feature can be moved in all (in caps, median), counterexamples. --figure: pictures of directions.

Seconds are CPU time of one thread per image, network and images not counted.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import elbowroom as er
from directions import draw_directions, oblique, tables
from elbowroom.certificates.result import NEEDED, UNDECIDED
from elbowroom.report.plot.free_map import free_maps
from elbowroom.training.adversary import PGD
from elbowroom.training.sets import as_network, training_data
from elbowroom.training.train import train
from gpu import mnist, reference
from speed import SHARED

TABLES = ("norms", "smallest", "free", "oblique")


def network(name: str, shared: Path, count: int) -> tuple[er.Network, Tensor, tuple[float, float]]:
    """A row's network, images that it gets right, `count x ...`, and the ends of a pixel."""
    if name.startswith("m100"):
        net, x = reference(shared / "reference" / f"mnist_{name}.npz")[:2]
        return net, x[:count].double(), (-1.0, 1.0)
    adversary = PGD(tau=0.1, steps=10) if name.endswith("pgd") else None
    data, names = training_data("mnist", shared / "data")
    model, _ = train((32,), data, epochs=10, rate=1e-3, batch=500, adversary=adversary, device="cpu")
    net = as_network(model, data, names, 0.0, 1.0)
    x, y = mnist(shared / "data" / "MNIST" / "raw", "t10k", "cpu")
    x = (x.double().reshape(-1, *net.input_shape)[: 4 * count] + 1) / 2
    return net, x[net.decide(net(x)) == y[: 4 * count]][:count], (0.0, 1.0)


def certified(net: er.Network, x: Tensor, **told: Any) -> tuple[er.Certificates, float]:
    """Certificates of all inputs, proved again, and CPU seconds per input."""
    started = time.process_time()
    certs = er.certify(net, x, **told)
    seconds = (time.process_time() - started) / len(x)
    report = er.check(certs)
    assert not report.failures, report
    return certs, seconds


def norms(net: er.Network, x: Tensor, ends: tuple[float, float], options: argparse.Namespace) -> None:
    print("| p | effort | log-volume per feature | counterexample at | seconds |\n|---|---|---|---|---|")
    for p in options.norms:
        for effort in options.efforts:
            certs, seconds = certified(net, x, region=er.Ball(p), effort=effort, reach=True)
            good = certs.certified
            size, reach = (certs.log_volume[good] / net.n_inputs).mean(), certs.reach[good].median()
            print(f"| {p:g} | {effort} | {size:.3f} | {reach:.3f} | {seconds:.2g} |", flush=True)


def smallest(net: er.Network, x: Tensor, ends: tuple[float, float], options: argparse.Namespace) -> None:
    def least(certs: er.Certificates) -> Tensor:
        return certs.eps.flatten(1).amin(1)

    uniform = least(certified(net, x, region=er.Uniform(), domain=ends)[0])
    print(f"uniform, cut to the domain: {uniform.mean():.4f}\n")
    print("| box | objective | effort | least half-width | gain, least | gain, mean | seconds |\n" + 7 * "|---" + "|")
    for box in (er.Box(), er.Box(asymmetric=True)):
        for objective in ("volume", "smallest"):
            for effort in options.efforts:
                certs, seconds = certified(net, x, region=box, objective=objective, domain=ends, effort=effort)
                gain = (least(certs) / uniform)[certs.certified]
                row = (f"{least(certs).mean():.4f}", f"{gain.min():.3f}", f"{gain.mean():.3f}", f"{seconds:.2g}")
                print(f"| {box.name} | {objective} | {effort} | {' | '.join(row)} |", flush=True)


def free(net: er.Network, x: Tensor, ends: tuple[float, float], options: argparse.Namespace) -> None:
    print("| effort | free | needed | not decided | seconds |\n|---|---|---|---|---|")
    for effort in options.efforts:
        certs, seconds = certified(net, x, objective="free", domain=ends, effort=effort)
        assert certs.kept is not None
        counts = [certs.eps > 0, certs.kept == NEEDED, certs.kept == UNDECIDED]
        medians = [f"{t[certs.certified].flatten(1).sum(1).double().median():g}" for t in counts]
        print(f"| {effort} | {' | '.join(medians)} | {seconds:.2g} |", flush=True)
    if options.figure is not None:
        chosen = certs.certified.nonzero().flatten().tolist()[:4]
        free_maps(options.figure, certs, chosen, (28, 28), [f"decided: {int(certs.labels[k])}" for k in chosen])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=[])
    parser.add_argument("--rows", default="m100,m100pgd,32,32pgd")
    parser.add_argument("--inputs", type=int, default=10)
    parser.add_argument("--norms", default="1,1.5,2,3,inf")
    parser.add_argument("--efforts", default="fast")
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    options.norms = [float(p) for p in options.norms.split(",")]
    options.efforts = options.efforts.split(",")
    torch.set_num_threads(1)
    for name in options.rows.split(","):
        if name in ("cancer", "wine"):
            tables(name, options, certified)
            continue
        net, x, ends = network(name, options.shared, options.inputs)
        for table in options.tables or TABLES:
            print(f"\n{name}, {len(x)} images, {table}\n", flush=True)
            if table == "oblique":
                images = mnist(options.shared / "data" / "MNIST" / "raw", "train", "cpu")[0][:1000].double()
                images = images if ends[0] < 0 else (images + 1) / 2
                basis = oblique(net, x, ends, images.reshape(-1, *net.input_shape), options, certified)
                if options.figure is not None:
                    draw_directions(options.figure, net, basis, name)
            else:
                {"norms": norms, "smallest": smallest, "free": free}[table](net, x, ends, options)


if __name__ == "__main__":
    main()
