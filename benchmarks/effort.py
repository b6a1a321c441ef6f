"""What effort buys: regions by branch and bound beside those of plain bounds, with what their proofs take.

    python benchmarks/effort.py [ROW ...] [--efforts medium,high | --times 3,10,30,100] [--inputs 10] [--skip 0]
        [--reach] [--regions box,asymmetric] [--device cuda] [--shared DIR] [--json FILE]

A ROW is a network: m100, m100pgd, 3x300, 3x300pgd (trained here: 10 epochs, seed 0, the latter against PGD of 0.1),
mnist-net_256x2, cifar_base_kw, cifar_deep_kw, resnet_2b, Convnet_maxpool, ffnnSIGMOID__Point_6x200, tansig_200_50_onnx,
acas, wine, cancer; all by default. DIR
(default: ELBOWROOM_SHARED, or ../shared) holds `models/`, `data/` and `reference/`.

Per network, shape and effort: the mean gain of the geometric mean of extents over `fast`; with --reach, the median
scaling at which a counterexample was found, and how many faces of boxes have one within 5 % of the width; seconds per
input to certify (with reach, if that is asked for) and to check, leaves and bytes of the proofs, and how many of the
certificates were proved again. Seconds are CPU time of one thread, or of the wall on a GPU. --times: efforts in
seconds, so many times what `fast` takes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import elbowroom as er
from elbowroom.claim.tree_bytes import as_bytes, unpack
from elbowroom.training.adversary import PGD
from elbowroom.training.sets import as_network, training_data
from elbowroom.training.train import train
from gpu import mnist, reference
from speed import PIXELS, SHARED, Bench

REGIONS: dict[str, er.Region] = {"box": er.Box(), "asymmetric": er.Box(asymmetric=True)}
Row = tuple[str, Callable[[], tuple[er.Network, Tensor]], dict[str, Any], bool]


def table(name: str) -> tuple[er.Network, Tensor]:
    """A pipeline of scikit-learn on every second row of a table, and some of the other rows."""
    from sklearn import datasets
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = getattr(datasets, f"load_{name}")()
    model = make_pipeline(StandardScaler(), MLPClassifier((64, 32), random_state=0, max_iter=500))
    return er.load(model.fit(data.data[::2], data.target[::2])), torch.from_numpy(data.data[1::12])


class Rows:
    def __init__(self, device: str, shared: Path, count: int) -> None:
        self.device, self.shared, self.count = device, shared, count
        self.bench = Bench(device, shared)

    def all(self) -> Iterator[Row]:
        for name in ("m100", "m100pgd"):
            yield name, lambda name=name: reference(self.shared / "reference" / f"mnist_{name}.npz")[:2], {}, True
        for name, adversary in (("3x300", None), ("3x300pgd", PGD(tau=0.1, steps=10))):
            yield name, lambda adversary=adversary: self.trained(adversary), {}, False
        yield "mnist-net_256x2", lambda: self.model("mnist-net_256x2"), {"domain": (0, 1)}, False
        for name in PIXELS:
            yield name, lambda name=name: self.image_model(name), {"domain": (0, 1)}, False
        for name in ("Convnet_maxpool", "ffnnSIGMOID__Point_6x200", "tansig_200_50_onnx"):
            yield name, lambda name=name: self.model(name), {"domain": (0, 1)}, False
        yield "acas", self.acas, {}, True
        yield "wine", lambda: table("wine"), {}, True
        yield "cancer", lambda: table("breast_cancer"), {}, True

    def trained(self, adversary: PGD | None) -> tuple[er.Network, Tensor]:
        data, names = training_data("mnist", self.shared / "data")
        model, _ = train(
            (300, 300, 300), data, epochs=10, rate=1e-3, batch=500, adversary=adversary, device=self.device
        )
        net = as_network(model.cpu(), data, names)
        x, y = mnist(self.shared / "data" / "MNIST" / "raw", "t10k", "cpu")
        x = x.reshape(-1, *net.input_shape)
        return net, x[net.decide(net(x)) == y]

    def model(self, name: str) -> tuple[er.Network, Tensor]:
        own_units = {"input_shape": (1, 28, 28), "scale": 255.0} if name.startswith("tansig") else {}
        net = er.load(self.shared / "models" / f"{name}.onnx", **own_units)
        return net, self.bench.digits(self.count).reshape(-1, *net.input_shape)

    def image_model(self, name: str) -> tuple[er.Network, Tensor]:
        return dict(self.bench.public())[name], self.bench.images(name, self.count)

    def acas(self) -> tuple[er.Network, Tensor]:
        net = er.load(self.shared / "models" / "acasxu" / "ACASXU_run2a_1_1_batch_2000.onnx")
        draw = torch.Generator().manual_seed(0)
        return net, 0.6 * torch.rand(64, *net.input_shape, generator=draw).double() - 0.3


def measure(
    name: str, net: er.Network, x: Tensor, region: er.Region, effort: str | float, given: Any, options: Any
) -> dict[str, Any]:
    """`effort`: as `certify` takes it, or a number: seconds, so many times those of `fast`."""
    gpu = given.device.startswith("cuda")
    clock = time.perf_counter if gpu else time.thread_time
    options = {**options, "region": region, "device": given.device}
    er.certify(net, x[:1], **options)  # the first call loads what is needed
    started = clock()
    fast = er.certify(net, x, **options)
    seconds_fast = clock() - started
    if isinstance(effort, float):
        effort = f"{max(0.01, effort * seconds_fast / len(x)):.3f}s"
    started = clock()
    certs = er.certify(net, x, effort=effort, reach=given.reach, **options)
    seconds = clock() - started
    started = clock()
    report = er.check(certs, net, device=given.device)
    checked = clock() - started
    good = certs.certified & fast.certified
    gain = (certs.geomean / fast.geomean)[good].log().mean().exp()
    least = (certs.geomean / fast.geomean)[good].min()
    trees = [unpack(as_bytes(words)) for words in certs.trees] if certs.trees is not None else []
    sizes = sorted(8 * len(words) for words in certs.trees) if certs.trees is not None else [0]
    found = {
        "network": name, "region": region.name, "effort": effort, "gain": float(gain), "least": float(least),
        "seconds": seconds / len(x), "times fast": seconds / seconds_fast, "check": checked / len(x),
        "leaves": sum(t.n_leaves for own in trees for _, t in own) / max(1, len(trees)),
        "bytes": sizes[len(sizes) // 2],
        "proved": f"{int(report.passed.sum())} of {int(good.sum())}",
    }  # fmt: skip
    if given.reach:
        found["reach"] = float(certs.reach[good].median())
        if certs.seen_lower is not None:
            found["faces"] = closed(certs, good)
    return found


def closed(certs: er.Certificates, good: Tensor) -> str:
    """How many faces of boxes have a counterexample within 5 % of the width beyond them; of a symmetric box, pairs of
    which one has. Of the others it is neither proved nor refuted that they could be farther out."""
    lower, upper, seen_lower, seen_upper = (
        t[good].flatten(1) for t in (certs.lower, certs.upper, certs.seen_lower, certs.seen_upper)
    )
    near = [gap <= 0.05 * (upper - lower) for gap in (lower - seen_lower, seen_upper - upper)]
    moves = upper > lower
    if certs.settings["region"] == "Box(asymmetric)":
        return f"{int((near[0] & moves).sum() + (near[1] & moves).sum())} of {2 * int(moves.sum())}"
    return f"{int(((near[0] | near[1]) & moves).sum())} of {int(moves.sum())}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--efforts", default="medium,high")
    parser.add_argument("--times", type=lambda text: [float(one) for one in text.split(",")])
    parser.add_argument("--regions", help="box, asymmetric; by default the first, and both where it is quick")
    parser.add_argument("--inputs", type=int, default=10)
    parser.add_argument("--skip", type=int, default=0, help="inputs that are left out before these")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--reach", action="store_true", help="look for counterexamples, too: another search each")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for name, make, options, both in Rows(given.device, given.shared, given.skip + given.inputs).all():
        if given.rows and name not in given.rows:
            continue
        net, x = make()
        x = x[given.skip : given.skip + given.inputs]
        asked = [REGIONS[name] for name in given.regions.split(",")] if given.regions else []
        for region in asked or list(REGIONS.values())[: 1 + both]:
            for effort in given.times or given.efforts.split(","):
                found.append(measure(name, net, x, region, effort, given, options))
                print(
                    "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in found[-1].items()),
                    flush=True,
                )
                if given.json:
                    given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
