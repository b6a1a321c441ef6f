"""How tables are described, and kept in a network's file."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.network import operations as ops
from elbowroom.network.file import load_network, save_network
from elbowroom.network.graph import About, Graph, Network
from elbowroom.network.table import Column, Table, key_of

JOB = Column("job", ("admin", "clerk", None), ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)), unknown=(0.0, 0.0), missing=None)
SIZE = Column("size", (1.0, 2.0, 3.0), ((0.0,), (1.0,), (2.0,)))
AGE = Column("age", missing=40.0, unit="years")
TABLE = Table((AGE, JOB, SIZE))


def network(table: Table = TABLE) -> Network:
    graph = Graph((table.width,))
    graph.add(ops.Linear(torch.ones(2, table.width), torch.tensor([0.0, 1.0])), graph.input)
    return graph.network(about=About(features=table.entries, table=table))


def test_entries_and_places() -> None:
    assert TABLE.entries == ("age", "job=clerk", "job=None", "size")
    assert TABLE.places == (slice(0, 1), slice(1, 3), slice(3, 4))
    assert TABLE.moves.tolist() == [True, False, False, False]
    assert TABLE.width == 4 and TABLE.names == ("age", "job", "size")
    assert JOB.level_of((1.0, 0.0)) == 1 and JOB.level_of((1.0, 1.0)) is None


def test_a_file_keeps_them(tmp_path: Path) -> None:
    path = save_network(network(), tmp_path / "a.elbowroom")
    found = load_network(path).about.table
    assert found is not None
    assert found.names == TABLE.names and found.entries == TABLE.entries
    for ours, theirs in zip(TABLE.columns[:2], found.columns[:2]):
        assert ours == theirs
    assert math.isnan(found.columns[2].missing)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("levels", ["a", "a", "b"]),
        ("levels", ["a"]),
        ("levels", [["a"], "b", "c"]),
        ("codes", [[0.0, 0.0], [1.0], [0.0, 1.0]]),
        ("codes", "none"),
        ("codes", [[True, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        ("unknown", [0.0]),
        ("missing", ["painter"]),
        ("name", 3),
        ("name", "age"),
        ("unit", None),
    ],
)
def test_a_changed_file_is_refused(tmp_path: Path, field: str, value: object) -> None:
    path, other = save_network(network(), tmp_path / "a.elbowroom"), tmp_path / "b.elbowroom"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "graph.json":
                graph = json.loads(content)
                graph["table"][1][field] = value
                content = json.dumps(graph).encode()
            new.writestr(name, content)
    with pytest.raises(er.InputError, match="table"):
        load_network(other)


def test_names_that_are_not_the_tables_are_refused() -> None:
    graph = Graph((4,))
    graph.add(ops.Linear(torch.ones(2, 4), None), graph.input)
    with pytest.raises(er.InputError, match="table"):
        graph.network(about=About(features=("a", "b", "c", "d"), table=TABLE))


def test_levels_are_told_apart_by_value() -> None:
    assert key_of(True) == key_of(1) == key_of(np.float32(1)) != key_of("1")
    assert key_of(None) is key_of(math.nan) is None
    with pytest.raises(er.InputError, match="the same"):
        Column("a", (1.0, True), ((0.0,), (1.0,)))


def test_entries_of_other_codes_are_numbered() -> None:
    assert Column("a", ("x", "y"), ((0.0, 1.0), (2.0, 3.0))).entries == ("a[0]", "a[1]")
    assert Column("a", ("x", "y", "z"), ((0.0, 0.0), (1.0, 0.0), (1.0, 0.0))).entries == ("a=y or z", "a[1]")
    assert Column("a", ("x", "y", "z"), ((1.0, 0.0), (0.0, 1.0), (0.0, 1.0))).entries == ("a=x", "a=y or z")
