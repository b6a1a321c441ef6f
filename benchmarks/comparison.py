"""Elbowroom beside others, as far as a program can be run: the tables of docs/comparison.md.

    python benchmarks/comparison.py [authors] [marabou] [edges] [--inputs 10] [--seconds 9] [--shared DIR]

authors: the results that the authors' program published for its networks and images (DIR/reference, 400 gradient steps,
    9 CPU seconds per image as they state), beside ours with their bounds, with our own, and with as many seconds.
marabou: on networks of scikit-learn's iris, wine and breast cancer (two hidden layers of 8 neurons): the largest
    uniform radius by bisection with a complete verifier (Marabou, `pip install maraboupy`), and our boxes, which also
    have an extent per feature. Features are standardised. Gain: the geometric mean of extents over that radius.
edges: 784-32-10 networks trained here (`benchmarks/shapes.py`: 32 and 32pgd): the least edge of boxes in [0, 1] with
    objective="smallest", and of boxes of largest volume, per effort.

Seconds are CPU time of one thread per input. All our boxes are proved again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.readers.onnx.write import write_onnx
from shapes import certified, network
from solvers import PAPER, reference
from speed import SHARED

TABLES = ("authors", "marabou", "edges")
EDGES = (("volume", "fast"), ("smallest", "fast"), ("smallest", "medium"), ("smallest", "high"))
_BISECTIONS = 12
_MOST = 8.0  # standard deviations: farther no radius is looked for


def authors(options: argparse.Namespace) -> None:
    print("| network | who | geometric mean / authors' | least | CPU s per image |\n|---|---|---|---|---|")
    ours = {
        "their bounds, one gradient": {**PAPER, "solver": er.Sequential(gradients=1)},
        "their bounds": PAPER,
        "our bounds (the default)": {"delta": 1e-4},
        f"our bounds, {options.seconds:g} s": {"delta": 1e-4, "effort": f"{options.seconds:g}s"},
    }
    for name in ("m100", "m100pgd", "m100pgd_best10"):
        net, x, y, theirs = reference(options.shared, name)
        x, y, theirs = x[: options.inputs], y[: options.inputs], torch.tensor(theirs[: options.inputs])
        print(f"| {name}, {len(x)} images | the authors' program | 1 | 1 | 9 |", flush=True)
        for what, told in ours.items():
            certs, seconds = certified(net, x, labels=y, **told)
            size = certs.geomean.double() / theirs
            print(f"| | {what} | {size.mean():.3f} | {size.min():.3f} | {seconds:.2g} |", flush=True)


def marabou(options: argparse.Namespace) -> None:
    from maraboupy import Marabou
    from sklearn.datasets import load_breast_cancer, load_iris, load_wine
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    print("| data | features | radius: Marabou | ours | ours, high | gain, asymmetric box, high | ", end="")
    print("CPU s per input: Marabou | ours | ours, high | the box |\n" + 10 * "|---" + "|")
    for load in (load_iris, load_wine, load_breast_cancer):
        data = load()
        x = StandardScaler().fit_transform(data.data)
        model = MLPClassifier((8, 8), max_iter=2000, random_state=0).fit(x, data.target)
        right = model.predict(x) == data.target
        chosen = np.random.default_rng(0).permutation(np.flatnonzero(right))[: options.inputs]
        points = torch.tensor(x[chosen])
        net = er.load(model)
        labels = net.decide(net(points))
        started = time.process_time()
        radii = torch.tensor([_radius(Marabou, net, p, int(k)) for p, k in zip(points, labels)])
        took = (time.process_time() - started) / len(points)
        told: dict[str, Any] = {"max_eps": _MOST}
        plain, one = certified(net, points, region=er.Uniform(), **told)
        split, two = certified(net, points, region=er.Uniform(), effort="high", **told)
        boxes, three = certified(net, points, region=er.Box(asymmetric=True), effort="high", **told)
        gain = (boxes.geomean.double() / radii).median()
        row = [*(_radii(c) for c in (plain, split)), f"{gain:.2f}", *(f"{s:.2g}" for s in (took, one, two, three))]
        print(f"| {load.__name__[5:]} | {x.shape[1]} | {radii.mean():.4f} | {' | '.join(row)} |", flush=True)


def _radii(certs: er.Certificates) -> str:
    return f"{certs.geomean.double().mean():.4f}"


def _radius(module: Any, net: er.Network, point: Tensor, label: int) -> float:
    """The largest uniform radius at which a complete verifier finds no other decision, by bisection."""
    low, high = 0.0, _MOST
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        write_onnx(net, path)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if _holds(module, path, point, middle, label) else (low, middle)
    return low


def _holds(module: Any, path: Path, point: Tensor, radius: float, label: int) -> bool:
    """Whether no other output reaches the label's within the radius, by one query for each."""
    count = len(module.read_onnx(str(path)).outputVars[0].flatten())
    for other in range(count):
        if other == label:
            continue
        query = module.read_onnx(str(path))
        for variable, value in zip(query.inputVars[0].flatten(), point.tolist()):
            query.setLowerBound(variable, value - radius)
            query.setUpperBound(variable, value + radius)
        outputs = query.outputVars[0].flatten()
        query.addInequality([outputs[label], outputs[other]], [1.0, -1.0], 0.0)
        answer, _, _ = query.solve(verbose=False, options=module.createOptions(verbosity=0, timeoutInSeconds=60))
        if answer != "unsat":
            return False
    return True


def edges(options: argparse.Namespace) -> None:
    print(
        "| network | objective | effort | least edge of [0, 1], mean | largest | CPU s per image |\n" + 6 * "|---" + "|"
    )
    for name in ("32", "32pgd"):
        net, x, ends = network(name, options.shared, options.inputs)
        for objective, effort in (
            ("volume", "fast"),
            ("smallest", "fast"),
            ("smallest", "medium"),
            ("smallest", "high"),
        ):
            told = {"region": er.Box(asymmetric=True), "objective": objective, "effort": effort, "domain": ends}
            certs, seconds = certified(net, x, **told)
            edge = 2 * certs.eps[certs.certified].flatten(1).amin(1)
            row = f"{edge.mean():.4f} | {edge.max():.4f} | {seconds:.2g}"
            print(f"| {name}, {len(edge)} images | {objective} | {effort} | {row} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=[])
    parser.add_argument("--inputs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=9.0)
    parser.add_argument("--shared", type=Path, default=SHARED)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for table in options.tables or TABLES:
        print(f"\n{table}\n", flush=True)
        {"authors": authors, "marabou": marabou, "edges": edges}[table](options)


if __name__ == "__main__":
    main()
