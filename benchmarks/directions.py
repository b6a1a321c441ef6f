"""Regions along directions against boxes along the axes: the part of benchmarks/shapes.py that is about `Oblique`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.network.operations import Linear
from elbowroom.report.plot.drawing import save
from elbowroom.search.directions import found_directions

HEAD = "| region, effort | log-volume per feature | at the cap | a feature in all | counterexample at | seconds |"
Certify = Callable[..., tuple[er.Certificates, float]]


def first_weight(net: er.Network) -> Tensor:
    return next(node.op.weight for node in net.nodes if isinstance(node.op, Linear)).double()


def slopes(net: er.Network, points: Tensor) -> Tensor:
    """Derivatives of the nearest margin per input, per unit of it, `b x n`."""
    points = points.clone().requires_grad_()
    top = net.cast(torch.float64, "cpu").values(points)[-1].topk(2, 1).values
    margin = top[:, 0] - top[:, 1]
    (slope,) = torch.autograd.grad(margin.sum(), points)
    return (slope.flatten(1) / margin.detach().clamp_min(1e-3)[:, None]).detach()


def descended(basis: Tensor, slope: Tensor, rank: int, cap: float, steps: int = 200) -> Tensor:
    """The basis with its first `rank` directions rotated among themselves, by descent on the manifold of rotations, so
    that the mean of `sum_k log sqrt((slope . q_k)^2 + c^2)` falls, with c the slope at which a direction is at its cap:
    minus the log-volume of regions under linear margins."""
    z = slope @ basis[:, :rank]
    c = 1 / (rank * cap)
    turn, length = torch.eye(rank).double(), 0.5

    def value(r: Tensor) -> Tensor:
        return ((z @ r).square() + c * c).log().sum(1).mean() / 2

    best = value(turn)
    for _ in range(steps):
        y = z @ turn
        step = turn.T @ (z.T @ (y / (y.square() + c * c)) / len(z))
        step = (step - step.T) / (step - step.T).norm().clamp_min(1e-30)
        while length > 1e-6:
            trial = turn @ torch.matrix_exp(-length * step)
            if value(trial) < best:
                turn, best, length = trial, value(trial), 1.3 * length
                break
            length /= 2
    return torch.cat([basis[:, :rank] @ turn, basis[:, rank:]], 1)


def line(label: str, certs: er.Certificates, seconds: float, cap: Tensor) -> None:
    """One row of the table. `cap`: `n`, how far features may move by themselves."""
    good, n = certs.certified, cap.numel()
    extent = certs.eps[good].flatten(1)
    at_cap = certs.capped[good].flatten(1).sum(1).double().mean()
    in_all = extent if certs.basis is None else extent @ certs.basis.abs().T  # of a feature, all directions together
    assert certs.reach is not None
    row = (
        f"{(certs.log_volume[good] / n - cap.log().mean()).mean():.3f}", f"{at_cap:.0f} of {n}",
        f"{(in_all / cap).median():.2g}", f"{certs.reach[good].median():.3f}", f"{seconds:.2g}",
    )  # fmt: skip
    print(f"| {label} | {' | '.join(row)} |", flush=True)


def oblique(
    net: er.Network, x: Tensor, ends: tuple[float, float], images: Tensor, options: argparse.Namespace, certify: Certify
) -> Tensor:
    """Prints the table of a network of images; gives the directions that were found from `images`."""
    every, one = torch.ones(net.n_inputs, dtype=torch.bool), torch.ones(net.n_inputs)
    basis = found_directions(net, images, None, every, one)
    weight = first_weight(net)
    rank = int(torch.linalg.matrix_rank(weight))
    singular = torch.linalg.svd(weight, full_matrices=True).Vh.T.contiguous()
    for share in (0.5, 0.1):
        cap = share * (ends[1] - ends[0])
        print(f"cap {cap:g} per feature or direction; the first layer sees {rank} directions\n")
        print(HEAD + "\n" + 6 * "|---" + "|")
        turned = descended(basis, slopes(net, images), rank, cap)
        for label, region in (
            ("Box()", er.Box()), ("Oblique(singular vectors)", er.Oblique(singular)),
            ('Oblique("auto")', er.Oblique(basis)), ("the same, descended", er.Oblique(turned)),
        ):  # fmt: skip
            for effort in options.efforts:
                certs, seconds = certify(net, x, region=region, max_eps=cap, reach=True, effort=effort)
                line(f"{label}, {effort}", certs, seconds, cap * one.double())
        print(flush=True)
    return basis


def tables(name: str, options: argparse.Namespace, certify: Certify) -> None:
    """Prints the table of a model of scikit-learn's set `name`, in the units of its columns."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = {"cancer": datasets.load_breast_cancer, "wine": datasets.load_wine}[name](as_frame=True)
    train, test, labels, _ = train_test_split(data.data, data.target, random_state=0, test_size=0.3)
    model = make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=2000, random_state=0)).fit(train, labels)
    net, x = er.load(model), test[:50]
    cap = torch.from_numpy((x.max() - x.min()).to_numpy(np.float64, copy=True))
    print(f"\n{name}, {len(x)} rows, {net.n_inputs} features, capped at the width of their range in them\n")
    print(HEAD + "\n" + 6 * "|---" + "|")
    for label, region in (("Box()", er.Box()), ('Oblique("auto")', er.Oblique("auto"))):
        for effort in options.efforts:
            certs, seconds = certify(net, x, region=region, reach=True, effort=effort)
            line(f"{label}, {effort}", certs, seconds, cap)


def draw_directions(path: Path, net: er.Network, basis: Tensor, name: str) -> None:
    """The directions that margins depend on most, and of those that nothing depends on the ones along which images
    differ most: each as an image, 0 being grey, so that it is read without colours."""
    rank = int(torch.linalg.matrix_rank(first_weight(net)))
    picked = {"fragile": range(6), "free": range(rank, rank + 6)}

    def draw(figure: Any) -> None:
        axes = figure.subplots(2, 6)
        for row, (kind, numbers) in enumerate(picked.items()):
            for ax, k in zip(axes[row], numbers):
                image = basis[:, k].reshape(28, 28)
                most = float(image.abs().max())
                ax.imshow(image.numpy(), cmap="gray", vmin=-most, vmax=most)
                ax.set_title(f"direction {k}", fontsize=10)
                ax.set_xticks([])
                ax.set_yticks([])
            axes[row, 0].set_ylabel(kind, fontsize=11)
        figure.suptitle(
            f"{name}: what decisions depend on most, and not at all (grey: 0, black and white: the extremes)"
        )

    save(path, (10.5, 4.2), draw)
