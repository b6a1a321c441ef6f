"""Shared by the tests of reports: runs of several kinds, among them one whose every name is an attack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elbowroom.certificates.store import Run
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network, Origin
from elbowroom.runs.runner import run_dataset
from elbowroom.runs.settings import Settings
from runs.small import dataset, labels_for, network, points

HOSTILE = "</script><img src=x onerror=alert(1)><!--'\"&{{7*7}}"
TURNED = "abc\u202edef\u2028\x00\x1b[31m"
SMALL, OTHER = network(0, (2, 6, 3)), network(1, (2, 6, 3))


def run_of(
    net: Network, folder: Path, x: np.ndarray, labels: np.ndarray | None = None, data: Any = None, **settings: Any
) -> Run:
    """A run over these inputs; `data`: what else the data set is told."""
    told = Settings.of({"part_rows": 5, "device": "cpu", **settings})
    return run_dataset(net, dataset(x, labels, **(data or {})), folder, told).run


def plane_run(folder: Path, net: Network = SMALL, count: int = 17, **settings: Any) -> Run:
    """Points of the plane: the third is labelled wrongly, the fifth is no number."""
    x = points(count)
    labels = None if "within" in settings else labels_for(SMALL, x, wrong=(2,))
    x[4, 0] = np.nan
    return run_of(net, folder, x, labels, **{"domain": [-2, 2], **settings})


def hostile_run(folder: Path) -> Run:
    """Features, classes, inputs, messages, the data, the model and its notes, and the folder have hostile names."""
    names = tuple(f"{HOSTILE}{k}" for k in range(2))
    classes = (HOSTILE, f"{HOSTILE}{TURNED}", "plain")
    about = About(names, classes, (HOSTILE,), Origin(HOSTILE, "0" * 64, {}, (HOSTILE,)))
    net = Network(SMALL.nodes, SMALL.decision, about)
    x = points(7)
    x[5] = np.nan
    return run_of(
        net, folder / "a<" / "script><img src=x onerror=alert(1)>", x, labels_for(SMALL, x, wrong=(2,)),
        {
            "features": names, "classes": classes, "name": HOSTILE, "ids": lambda k: f"{HOSTILE}{k}",
            "fault": lambda k: f"{HOSTILE}{TURNED}" if k == 5 else None,
        },
        domain=[-2, 2],
    )  # fmt: skip


def image_run(folder: Path, seed: int = 0, shape: tuple[int, ...] = (1, 6, 5), **settings: Any) -> Run:
    """Three small images, with counterexamples beyond their regions."""
    flat = network(seed, (int(np.prod(shape)), 8, 3))
    net = Network.chain(shape, [ops.Reshape((-1,)), *(node.op for node in flat.nodes[1:])])
    x = np.random.default_rng(0).random((3, *shape)).round(2)
    return run_of(net, folder, x, **{"domain": [0, 1], "reach": True, **settings})
