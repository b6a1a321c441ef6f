"""A small network that takes rows of a table, made by hand, and rows for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Graph, Network
from elbowroom.network.table import Column, Table

AGE = Column("age", missing=40.0, unit="years")
JOB = Column("job", ("admin", "clerk", "cook"), ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)), unknown=(0.0, 0.0))
PAY = Column("pay", unit="EUR")
SIZE = Column("size", (1.0, 2.0, 3.0), ((0.0,), (1.0,), (2.0,)))
YES = Column("yes", (False, True), ((-1.0,), (1.0,)), missing=False)
TABLE = Table((AGE, JOB, PAY, SIZE, YES))
SCALES = np.array([20.0, 1.0, 1.0, 9000.0, 1.0, 1.0])  # of the entries: ages and wages are not alike


def network(table: Table = TABLE, seed: int = 0) -> Network:
    rng = np.random.default_rng(seed)
    graph = Graph((table.width,))
    first = torch.tensor(rng.normal(size=(8, table.width)) / np.resize(SCALES, table.width))
    node = graph.add(ops.Linear(first, torch.tensor(rng.normal(size=8) - 1.0)), graph.input)
    node = graph.add(ops.ReLU(), node)
    graph.add(ops.Linear(torch.tensor(rng.normal(size=(2, 8))), torch.tensor([0.3, 0.0])), node)
    return graph.network(about=About(features=table.entries, table=table, classes=("no", "yes")))


def rows(count: int, seed: int = 1) -> dict[str, list[Any]]:
    """Raw values by column, in another order than the network's."""
    rng = np.random.default_rng(seed)
    return {
        "pay": rng.normal(30_000, 9_000, count).round(2).tolist(),
        "yes": [bool(k) for k in rng.integers(0, 2, count)],
        "size": rng.integers(1, 4, count).tolist(),
        "job": rng.choice(["admin", "clerk", "cook"], count).tolist(),
        "age": rng.integers(18, 90, count).astype(float).tolist(),
    }


def by_hand(raw: dict[str, list[Any]]) -> np.ndarray:
    """The entries of rows without holes, computed apart."""
    job = {"admin": (0, 0), "clerk": (1, 0), "cook": (0, 1)}
    return np.array(
        [
            [age, *job[j], pay, size - 1, 1 if yes else -1]
            for age, j, pay, size, yes in zip(raw["age"], raw["job"], raw["pay"], raw["size"], raw["yes"])
        ],
        dtype=np.float64,
    )
