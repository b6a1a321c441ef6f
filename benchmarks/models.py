"""Networks nobody here wrote: read, compared with onnxruntime, certified, proved again. Prints docs/models.md's table.

    python benchmarks/models.py [--inputs 10] [--threads 2] [--only NAME] [--bounds adaptive]

Every network runs in a process of its own, whose peak memory is that of the whole process, PyTorch included. Needs the
data and models of ELBOWROOM_SHARED (default ../shared), onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

SHARED = Path(os.environ.get("ELBOWROOM_SHARED", Path(__file__).parents[2] / "shared"))
PIXELS = {"mean": [0.4914, 0.4822, 0.4465], "std": [0.2471, 0.2435, 0.2616]}
COMPARED = 1000


@dataclass(frozen=True)
class Model:
    file: str
    data: str
    words: str
    options: dict[str, Any] = field(default_factory=dict)  # of `load`


MODELS = {
    "mnist-net_256x2": Model("mnist-net_256x2.onnx", "mnist", "2 x 256, ReLU", {"input_shape": (1, 28, 28)}),
    "ffnnSIGMOID": Model("ffnnSIGMOID__Point_6x200.onnx", "mnist", "6 x 200, sigmoid"),
    "tansig_200_50": Model(
        "tansig_200_50_onnx.onnx", "mnist", "200-50, tanh, pixels 0..255", {"input_shape": (1, 28, 28), "scale": 255.0}
    ),
    "Convnet_maxpool": Model("Convnet_maxpool.onnx", "mnist", "convolution, ReLU, 4 x 4 max-pooling"),
    "resnet_2b": Model("resnet_2b.onnx", "cifar10", "two residual blocks, ReLU", PIXELS),
    "ACASXU_1_1": Model(
        "acasxu/ACASXU_run2a_1_1_batch_2000.onnx", "acasxu", "6 x 50, ReLU, the smallest output decides",
        {"input_shape": (5,), "decision": "min"},
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10, help="per network")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--bounds", default="adaptive")
    parser.add_argument("--only", choices=list(MODELS))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(MODELS[options.only], options)))
        return
    print(
        "| network | inputs | neurons | parameters | differs from onnxruntime | certified | uniform | geometric mean | "
        "ratio | seconds per input | proved again | peak memory |\n|---|" + "---:|" * 11
    )
    for name in [options.only] if options.only else MODELS:
        arguments = [sys.executable, __file__, "--worker", "--only", name, "--inputs", str(options.inputs)]
        arguments += ["--threads", str(options.threads), "--memory", options.memory, "--bounds", options.bounds]
        done = subprocess.run(arguments, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        print(line(name, json.loads(done.stdout.splitlines()[-1])), flush=True)


def line(name: str, r: dict[str, Any]) -> str:
    return (
        f"| `{name}`: {MODELS[name].words} | {r['shape']} | {r['neurons']:,} | {r['parameters']:,} | "
        f"{r['difference']:.1e} | {r['certified']} of {r['inputs']} | {r['uniform']:.4g} | {r['geomean']:.4g} | "
        f"{r['ratio']:.2f} (least {r['least_ratio']:.2f}) | {r['seconds']:.2g} | {r['proved']} of {r['certified']} | "
        f"{r['peak']:.2f} GiB |"
    )


def measure(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    import elbowroom as er

    torch.set_num_threads(options.threads)
    net = er.load(SHARED / "models" / model.file, **model.options)
    x, labels = inputs(model, net)
    difference = compare(model, net, x)
    chosen = [k for k in range(len(x)) if labels is None or int(net.decide(net(x[k : k + 1]))[0]) == labels[k]]
    x = x[chosen[: options.inputs]]
    started = time.perf_counter()
    certs = er.certify(net, x, bounds=options.bounds, memory=options.memory)
    seconds = (time.perf_counter() - started) / len(x)
    good = certs.certified
    return {
        "shape": " x ".join(map(str, net.input_shape)),
        "neurons": sum(net.nodes[i].size for i in net.relaxed),
        "parameters": net.n_parameters,
        "difference": difference,
        "inputs": len(x),
        "certified": int(good.sum()),
        "uniform": float(certs.uniform[good].mean()),
        "geomean": float(certs.geomean[good].mean()),
        "ratio": float(certs.ratio[good].mean()),
        "least_ratio": float(certs.ratio[good].min()),
        "seconds": seconds,
        "proved": er.check(certs, net).counts["proved"],
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
    }


def inputs(model: Model, net: Any) -> tuple[torch.Tensor, np.ndarray | None]:
    """At least `COMPARED` real inputs, and labels where the data has them."""
    if model.data == "acasxu":
        return acas_points(), None
    from elbowroom.data.standard import load_standard

    x, y = load_standard(model.data, "test", SHARED / "data")
    x = torch.from_numpy(x[:COMPARED]).double() / 255
    return x.reshape(len(x), *net.input_shape), y[:COMPARED]


def acas_points() -> torch.Tensor:
    """Points inside the boxes of properties 1 to 4, in the network's own units."""
    from elbowroom.vnnlib import read_query

    rng = np.random.default_rng(0)
    found = []
    for k in range(1, 5):
        for case in read_query(SHARED / "models" / "acasxu" / f"prop_{k}.vnnlib").cases:
            low, high = np.asarray(case.lower), np.asarray(case.upper)
            found.append(low + rng.random((COMPARED // 4, 5)) * (high - low))
    mixed = np.concatenate(found)
    return torch.from_numpy(mixed[rng.permutation(len(mixed))])


def compare(model: Model, net: Any, x: torch.Tensor) -> float:
    """The largest difference to onnxruntime's outputs, relative to the largest output; probabilities for a softmax."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(SHARED / "models" / model.file), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    mean, std = (np.asarray(model.options.get(k, v), dtype=np.float32) for k, v in (("mean", 0), ("std", 1)))
    raw = x.numpy().astype(np.float32) * np.float32(model.options.get("scale", 1))
    if mean.ndim:
        raw = (raw - mean[:, None, None]) / std[:, None, None]
    shape = [1 if not isinstance(n, int) else n for n in given.shape]
    theirs = np.concatenate([session.run(None, {given.name: one.reshape(shape)})[0].reshape(1, -1) for one in raw])
    ours = net(x)
    if any("Softmax" in note for note in net.about.notes):
        ours = ours.softmax(1)
    return float(np.abs(ours.numpy() - theirs).max() / np.abs(theirs).max())


if __name__ == "__main__":
    main()
