"""One GPU: does it give what the CPU gives, and how fast is the whole MNIST test set?

    PYTHONPATH=src python benchmarks/gpu.py --mnist DIR [--reference DIR] [--images N]

DIR holds MNIST's four gzip idx files. Trains a 784-300-300-300-10 network (a few epochs, plain), then
certifies every test image it gets right, with the paper's bounds and with the defaults: time, mean uniform radius,
geometric mean, ratio.
Needs torch and numpy only.
"""

import argparse
import gzip
import itertools
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import elbowroom as er
from elbowroom.network.operations import Linear, ReLU


def idx(path: Path) -> np.ndarray:
    raw = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(raw, ">u4", raw[3], 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def mnist(place: Path, kind: str, device: str):
    x = torch.from_numpy(idx(place / f"{kind}-images-idx3-ubyte.gz").copy()).float().flatten(1) / 127.5 - 1
    return x.to(device), torch.from_numpy(idx(place / f"{kind}-labels-idx1-ubyte.gz").copy()).long().to(device)


def trained(x: torch.Tensor, y: torch.Tensor, width: int = 300, epochs: int = 15) -> er.Network:
    torch.manual_seed(0)
    sizes = [784, width, width, width, 10]
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    model = nn.Sequential(*[m for l in layers for m in (l, nn.ReLU())][:-1]).to(x.device)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    for _ in range(epochs):
        for part in torch.randperm(len(x), device=x.device).split(256):
            adam.zero_grad()
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            adam.step()
    ops = [o for l in layers for o in (Linear(l.weight.detach().cpu(), l.bias.detach().cpu()), ReLU())][:-1]
    return er.Network.chain((784,), ops)


def reference(path: Path):
    data = np.load(path)
    layers = [Linear(torch.tensor(data[f"W{i}"]).float(), torch.tensor(data[f"b{i}"]).float()) for i in range(4)]
    net = er.Network.chain((784,), [o for l in layers for o in (l, ReLU())][:-1])
    right = data["correct"].astype(bool)
    return net, torch.tensor(data["x"][right]).reshape(-1, 784), torch.tensor(data["y"][right]).long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", type=Path, required=True)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--images", type=int, default=10000)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    paper = {"bounds": "combined", "margin": "logits"}
    choices = [
        ("paper's bounds", paper),
        ("adaptive, direct", {}),
        ("in the domain", {"domain": (-1, 1)}),
        ("asymmetric in the domain", {"domain": (-1, 1), "region": er.Box(asymmetric=True)}),
    ]
    if args.reference:
        print("the same on both devices (largest relative difference of geometric means; statuses equal):")
        for name in ("m100", "m100pgd"):
            net, x, y = reference(args.reference / f"mnist_{name}.npz")
            for label, options in choices:
                here, there = er.certify(net, x, y, **options), er.certify(net, x, y, device=args.device, **options)
                worst = float((there.geomean / here.geomean - 1).abs().max())
                print(f"  {name:8} {label:26} {worst:.1e}  {here.status == there.status}", flush=True)
    x, y = mnist(args.mnist, "train", args.device)
    net = trained(x, y)
    x, y = mnist(args.mnist, "t10k", args.device)
    right = net(x).argmax(1) == y
    print(f"784-300-300-300-10, test accuracy {right.float().mean():.4f}; all test images it gets right")
    x, y = x[right][: args.images], y[right][: args.images]
    er.certify(net, x[:64], y[:64])
    print("                            images   seconds  certified  uniform  geomean  ratio  evaluations  peak GiB")
    for label, options in choices:
        if args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        certs = er.certify(net, x, y, **options)
        took = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated() / 2**30 if args.device == "cuda" else float("nan")
        good = certs.certified
        print(
            f"  {label:25} {len(x):6}  {took:8.1f}  {int(good.sum()):9}  {certs.uniform[good].mean():7.4f}  "
            f"{certs.geomean[good].mean():7.4f}  {certs.ratio[good].mean():5.3f}  "
            f"{certs.evaluations.double().mean():11.1f}  {peak:8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
