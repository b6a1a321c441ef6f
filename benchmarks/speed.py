"""How fast bounds and certificates are, on this device, beside what its matrix products reach in the same minute.

    python benchmarks/speed.py [bounds] [activations] [certify] [classes] [wide] [evaluations] [mnist]
        [--device cuda] [--networks NAME ...] [--shared DIR] [--json FILE]

Without names, all but activations, evaluations and mnist. DIR (default: ELBOWROOM_SHARED, or ../shared) holds
`models/*.onnx`, `data/` and `reference/mnist_*.npz`; what is not there is left out.

- bounds: one evaluation, and one with the gradient of the smallest margin, on random and public networks. `Gflop` is
  what torch counts in its products, `share` the rate of that beside a plain product's. On a GPU also as a search has
  them, in half precision or replayed.
- activations: the same for a small network, 100-100-100-100-10, with each activation, where lines are much of a bound.
- certify: seconds per input, to certify and to prove again, evaluations and gradients, mean log geometric mean of the
  extents; on the reference networks, public ones, and a scikit-learn classifier of breast cancer.
- classes: 784-100-100-K networks for growing K. wide: 150,528 features, a box and an asymmetric one.
- evaluations: after how many of them a search reaches a given size. A search that may linearise 1, 2, ... times is run
  to its end, so that each has its own last scaling; `goal` is the size to reach, `reached` after how many evaluations
  it is if a part of the inputs linearise once more than the others.
- mnist: the whole test set on a 784-300-300-300-10 network trained here for a few epochs: the paper's bounds, and the
  defaults; meant for a GPU.

Times are the least of several, of the thread's own CPU clock on a CPU (one thread), of the wall on a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import elbowroom as er
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.machine.allocator import settle
from elbowroom.machine.recorder import Recorder
from elbowroom.network import operations
from elbowroom.search.bounds.propagate import OwnBounds, margins_of
from elbowroom.search.bounds.recorded import Passes
from elbowroom.search.bounds.rough import roughly
from elbowroom.search.regions.input_set import InputSet

SHARED = Path(os.environ.get("ELBOWROOM_SHARED", Path(__file__).parents[2] / "shared"))
PIXELS = {
    "resnet_2b": {"mean": [0.4914, 0.4822, 0.4465], "std": [0.2471, 0.2435, 0.2616]},
    "cifar_base_kw": {"mean": [0.485, 0.456, 0.406], "std": [0.225, 0.225, 0.225]},
    "cifar_deep_kw": {"mean": [0.485, 0.456, 0.406], "std": [0.225, 0.225, 0.225]},
}
EPS = {"resnet_2b": 1 / 255}
DIGITS = {"mnist-net_256x2": 1, "Convnet_maxpool": 1, "ffnnSIGMOID__Point_6x200": 1, "tansig_200_50_onnx": 255}  # up to
ACTIVATIONS = (
    operations.ReLU(), operations.LeakyReLU(0.1), operations.Clip(-1.0, 1.0), operations.Sigmoid(), operations.Tanh(),
    operations.Arctan(), operations.ELU(), operations.Softplus(), operations.SiLU(), operations.GELU(),
)  # fmt: skip
# Mean logs of the geometric mean of extents, of the first 32 images, that this program found with four linearisations
# of a search that stopped there (commit 550d2bb). Elsewhere the goal is what four linearisations find now.
GOALS = {"cifar_base_kw": -2.511, "cifar_deep_kw": -1.87}


def network(sizes: list[int], activation: operations.Operation | None = None) -> er.Network:
    """Random (He initialisation), of ReLUs unless told."""
    generator = torch.Generator().manual_seed(0)
    layers: list[operations.Operation] = []
    for into, out in itertools.pairwise(sizes):
        weight = torch.randn(out, into, generator=generator) * (2 / into) ** 0.5
        bias = 0.1 * torch.randn(out, generator=generator)
        layers += [operations.Linear(weight, bias), activation or operations.ReLU()]
    return er.Network.chain((sizes[0],), layers[:-1])


def breast_cancer() -> tuple[er.Network, Tensor]:
    """A pipeline of scikit-learn, and inputs that it was not trained on."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = load_breast_cancer()
    model = make_pipeline(StandardScaler(), MLPClassifier((64, 32), random_state=0, max_iter=200))
    return er.load(model.fit(data.data[:400], data.target[:400])), torch.from_numpy(data.data[400:464])


def bound_of(
    work: er.Network, x: Tensor, radius: Tensor, spec: Specification, rough: er.Network | None = None,
    method: str = "adaptive",
) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:  # fmt: skip
    """One bound, margins `b x g` on boxes around `x`, and the derivative of the smallest by the radius."""
    margins = margins_of(method)
    assert isinstance(margins, OwnBounds)

    def value() -> Tensor:
        with torch.no_grad():
            return margins(work, InputSet(x, radius), spec, rough=rough)

    def gradient() -> Tensor:
        at = radius.clone().requires_grad_()
        return torch.autograd.grad(margins(work, InputSet(x, at), spec, rough=rough).amin(1).sum(), at)[0]

    return value, gradient


class Bench:
    def __init__(self, device: str, shared: Path, networks: list[str] | None = None) -> None:
        self.device, self.shared, self.networks = torch.device(device), shared, networks
        self.gpu = self.device.type == "cuda"
        self.clock = time.perf_counter if self.gpu else time.thread_time
        self.found: list[dict[str, Any]] = []
        settle()  # as whatever users call has it

    def seconds(self, work: Callable[[], object], runs: int = 5) -> float:
        work()
        taken = []
        for _ in range(runs):
            self._wait()
            started = self.clock()
            work()
            self._wait()
            taken.append(self.clock() - started)
        return min(taken)

    def _wait(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()

    def product(self) -> float:
        """Flops per second of a plain product in float32."""
        n = 8192 if self.gpu else 1024
        a = torch.randn(n, n, device=self.device)
        return 2 * n**3 / self.seconds(lambda: a @ a)

    def say(self, **row: Any) -> None:
        self.found.append(row)
        print(
            "  ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{value}" for name, value in row.items())
        )

    # --- what there is

    def images(self, name: str, count: int) -> Tensor:
        """Of CIFAR-10, for public networks; random ones where there are none."""
        path = self.shared / "data" / "CIFAR10" / "test_first1000.npz"
        if not path.exists():
            return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        x = torch.from_numpy(np.load(path)["x"][:count]).double()
        x = x / 255 if float(x.max()) > 2 else x
        return x.permute(0, 3, 1, 2) if x.shape[-1] == 3 else x

    def digits(self, count: int) -> Tensor:
        """The first test images of MNIST, in [0, 1]."""
        from gpu import mnist

        return (mnist(self.shared / "data" / "MNIST" / "raw", "t10k", "cpu")[0][:count].double() + 1) / 2

    def public(self) -> Iterator[tuple[str, er.Network]]:
        for name, options in PIXELS.items():
            path = self.shared / "models" / f"{name}.onnx"
            if path.exists() and name in (self.networks or PIXELS):
                yield name, er.load(path, **options)

    # --- the parts

    def bounds(self) -> None:
        batch = 1024 if self.gpu else 16
        generator = torch.Generator().manual_seed(1)
        x = 2 * torch.rand(batch, 784, generator=generator) - 1
        self._bound(f"784-300x3-10, batch {batch}", network([784, 300, 300, 300, 10]), x, 0.01)
        for name, net in self.public():
            batch = 16 if self.gpu else 2
            self._bound(f"{name}, batch {batch}", net, self.images(name, batch), EPS.get(name, 2 / 255))

    def activations(self) -> None:
        batch, sizes = 64 if self.gpu else 16, [100, 100, 100, 100, 10]
        x = 2 * torch.rand(batch, 100, generator=torch.Generator().manual_seed(1)) - 1
        for op in ACTIVATIONS:
            self._bound(f"100-100x3-10, {op.name}, batch {batch}", network(sizes, op), x, 0.01)

    def _bound(self, name: str, net: er.Network, x: Tensor, eps: float) -> None:
        spec = label_stays(net.decide(net(x)), net.n_outputs).cast(torch.float32, self.device)
        work, x = net.cast(torch.float32, self.device), x.float().to(self.device)
        radius = torch.full_like(x, eps)
        rate, rough = self.product(), roughly(work)
        for carrier, how in ((None, ""), *(((rough, ", in half precision"),) if rough is not None else ())):
            value, gradient = bound_of(work, x, radius, spec, carrier)
            for kind, run in (("value", value), ("gradient", gradient)):
                with FlopCounterMode(display=False) as counter:
                    run()
                taken, flops = self.seconds(run), counter.get_total_flops()
                share = flops / taken / rate
                self.say(part="bounds", network=name, kind=kind + how, ms=1e3 * taken, Gflop=flops / 1e9, share=share)
        if self.gpu:
            self._replayed(name, work, InputSet(x, radius), spec)

    def _replayed(self, name: str, net: er.Network, sets: InputSet, spec: Specification) -> None:
        """The same as a search has it on a GPU, recorded, where a search would record it; nothing is remembered of
        which neurons are stable."""
        own, everyone = margins_of("adaptive"), torch.arange(len(sets.center), device=self.device)
        assert isinstance(own, OwnBounds)
        at_input = spec.margins(net(sets.center))
        # What is read is copied first: `begin` writes to it.
        held = replace(spec, rows=spec.rows.clone(), offset=spec.offset.clone())
        for kind in ("value", "gradient"):
            passes = Passes(net, own, held, len(everyone), Recorder(self.device))

            def run(passes: Passes = passes, kind: str = kind) -> object:
                passes.begin(spec)
                if kind == "value":
                    return passes.margins(sets, everyone)
                return passes.derivatives(sets, everyone, at_input, 0.0, 1)

            for _ in range(4):
                run()
            if not passes.given_up:
                self.say(part="bounds", network=name, kind=f"{kind}, replayed", ms=1e3 * self.seconds(run))

    def certify(self) -> None:
        for path in sorted((self.shared / "reference").glob("mnist_m100*.npz")):
            data = np.load(path)
            ops = [o for i in range(4) for o in (_linear(data, i), operations.ReLU())][:-1]
            right = data["correct"].astype(bool)
            x = torch.tensor(data["x"][right]).reshape(-1, 784)
            self._certify(path.stem, er.Network.chain((784,), ops), x, {})
        for name, net in self.public():
            x = self.images(name, 32 if self.gpu else 2)
            self._certify(name, net, x, {"domain": (0, 1)})
            few = er.Sequential(gradients=4)  # what the solver stopped at before it went on while that pays
            self._certify(f"{name}, 4 linearisations", net, x, {"domain": (0, 1), "solver": few})
        for name, top in DIGITS.items():
            path = self.shared / "models" / f"{name}.onnx"
            if path.exists():
                net = er.load(path)
                self._certify(name, net, top * self.digits(14).reshape(-1, *net.input_shape), {"domain": (0, top)})
        path = self.shared / "models" / "acasxu" / "ACASXU_run2a_1_1_batch_2000.onnx"
        if path.exists():
            net = er.load(path)
            draw = torch.Generator().manual_seed(0)
            self._in_both(path.stem, net, 0.6 * torch.rand(64, *net.input_shape, generator=draw).double() - 0.3)
        if importlib.util.find_spec("sklearn"):
            self._in_both("breast cancer (64, 32)", *breast_cancer())

    def _in_both(self, name: str, net: er.Network, x: Tensor) -> None:
        for region in (er.Box(), er.Box(asymmetric=True)):
            self._certify(f"{name}, {region.name}", net, x, {"region": region})

    def _certify(self, name: str, net: er.Network, x: Tensor, options: dict[str, Any]) -> None:
        # The first call loads kernels and, on a GPU, compiles those that sizes ask for.
        er.certify(net, x if self.gpu else x[:1], device=str(self.device), **options)
        started = self.clock()
        certs = er.certify(net, x, device=str(self.device), **options)
        taken = self.clock() - started
        started = self.clock()
        er.check(certs, net, device=str(self.device))
        checked = self.clock() - started
        good = certs.certified
        self.say(
            part="certify", network=name, seconds=taken / len(x), check=checked / len(x),
            evaluations=float(certs.evaluations.double().mean()), gradients=float(certs.gradients.double().mean()),
            size=float(certs.geomean[good].log().mean()), uniform=float(certs.uniform[good].log().mean()),
            certified=f"{int(good.sum())} of {len(x)}",
        )  # fmt: skip

    def evaluations(self) -> None:
        for name, net in self.public():
            x, found = self.images(name, 32), []
            for gradients in (1, 2, 3, 4, 6, 8, 12):
                started = self.clock()
                certs = er.certify(
                    net, x, domain=(0, 1), device=str(self.device), solver=er.Sequential(gradients=gradients)
                )
                taken, good = (self.clock() - started) / len(x), certs.certified
                size = float(certs.geomean[good].log().mean())
                found.append((gradients, float(certs.evaluations.double().mean()), size, taken))
            goal = GOALS.get(name, {row[0]: row[2] for row in found}[4])
            for gradients, evaluations, size, taken in found:
                self.say(
                    part="evaluations", network=name, at_most=gradients, evaluations=evaluations, size=size,
                    seconds=taken,
                )  # fmt: skip
            self.say(part="evaluations", network=name, goal=goal, reached=_reached([row[1:3] for row in found], goal))

    def classes(self) -> None:
        x = 2 * torch.rand(4, 784, generator=torch.Generator().manual_seed(1)) - 1
        for count in (10, 100, 785):
            self._certify(f"784-100-100-{count}", network([784, 100, 100, count]), x, {})

    def wide(self) -> None:
        x = torch.rand(1, 150528, generator=torch.Generator().manual_seed(1))
        net = network([150528, 64, 64, 10])
        few = {"region": er.Box(asymmetric=True), "solver": er.Sequential(gradients=4)}
        cases = {"Box": {"region": er.Box()}, "Box(asymmetric)": {"region": er.Box(asymmetric=True)}}
        for name, told in {**cases, "Box(asymmetric), 4 linearisations": few}.items():
            self._certify(f"150528-64-64-10, {name}", net, x, {"domain": (0, 1), **told})

    def mnist(self) -> None:
        from gpu import mnist, trained

        place = self.shared / "data" / "MNIST" / "raw"
        net = trained(*mnist(place, "train", str(self.device)), epochs=4)
        x, y = mnist(place, "t10k", str(self.device))
        x = x[net(x).argmax(1) == y]
        self._certify("mnist, paper's bounds", net, x, {"bounds": "combined", "margin": "logits"})
        self._certify("mnist, defaults", net, x, {})


def _reached(found: list[tuple[float, float]], goal: float) -> float:
    """After how many evaluations a size is reached, given pairs of these; between two, as inputs are shared out."""
    if found[0][1] >= goal:
        return found[0][0]
    for (before, small), (after, large) in itertools.pairwise(found):
        if small < goal <= large:
            return before + (after - before) * (goal - small) / (large - small)
    return float("nan")


def _linear(data: Any, i: int) -> operations.Linear:
    return operations.Linear(torch.tensor(data[f"W{i}"]).float(), torch.tensor(data[f"b{i}"]).float())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", choices=["bounds", "activations", "certify", "classes", "wide", "evaluations", "mnist", []]
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--networks", nargs="+", choices=list(PIXELS), help="of the public ones, only these")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(given.device, given.shared, given.networks)
    print(f"a product in float32 on {given.device}: {bench.product() / 1e9:.0f} Gflop/s")
    for part in given.parts or ("bounds", "certify", "classes", "wide"):
        getattr(bench, part)()
    if given.json:
        given.json.write_text(json.dumps(bench.found, indent=1))


if __name__ == "__main__":
    main()
