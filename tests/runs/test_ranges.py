"""Ranges of the data: a domain, the default cap and what room is a share of, the same for a whole run."""

from __future__ import annotations

import csv
import json
import math
import pickle
import warnings
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import elbowroom as er
from commands import good, refused
from elbowroom.data.sources import open_data
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.runs.engines import transport
from elbowroom.runs.engines.worker import Part, Worker
from elbowroom.runs.runner import run_dataset
from elbowroom.runs.settings import Settings
from rows import TABLE, by_hand, network, rows
from runs.small import dataset, points
from runs.small import network as plain

NET = network()
MOVES = TABLE.moves


def frame_of(count: int = 14) -> pd.DataFrame:
    frame = pd.DataFrame(rows(count))
    frame.loc[1, "pay"] = None
    frame.loc[2, "age"] = None
    frame.loc[3, "job"] = "painter"
    return frame


def ranges(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest of the entries that move; ages that are missing are 40."""
    age = frame["age"].fillna(40.0)
    return np.array([age.min(), frame["pay"].min()]), np.array([age.max(), frame["pay"].max()])


def certify(net: Any, x: Any, **told: Any) -> er.Certificates:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", er.DataWarning)
        return er.certify(net, x, **{"solver": er.Sequential(gradients=1), **told})


# --- in Python


def test_the_range_of_a_frame_is_its_domain() -> None:
    frame = frame_of()
    low, high = ranges(frame)
    certs = certify(NET, frame, domain="observed")
    assert certs.lowest[0, MOVES].tolist() == low.tolist() and certs.highest[0, MOVES].tolist() == high.tolist()
    assert bool(certs.lowest[:, ~MOVES].isinf().all()) and len(certs.lowest) == 1
    assert certs.scale[MOVES].tolist() == (high - low).tolist() and not certs.scale[~MOVES].any()
    assert bool((certs.lower[certs.certified] >= certs.lowest).all())
    assert float(certs.room[:, MOVES].max()) <= 1 and er.check(certs).passed.sum() == certs.certified.sum()


def test_the_range_of_arrays_is_a_domain_too() -> None:
    x = torch.tensor(points(5))
    certs = er.certify(plain(), x, domain="observed")
    assert torch.equal(certs.lowest[0], x.min(0).values) and torch.equal(certs.highest[0], x.max(0).values)
    with pytest.raises(er.InputError, match="needs two rows at least; there is 1"):
        er.certify(plain(), x[:1], domain="observed")
    with pytest.warns(er.DataWarning, match="'feature 1' has the same value in all rows, and so no room"):
        constant = er.certify(plain(), torch.cat([x[:, :1], torch.ones(5, 1)], 1), domain="observed")
    assert not constant.eps[:, 1].any()


def test_without_a_domain_the_range_is_the_cap_of_a_table() -> None:
    frame = frame_of(14)
    low, high = ranges(frame)
    certs = certify(NET, frame)
    assert certs.lowest is None and certs.scale[MOVES].tolist() == (high - low).tolist()
    assert bool((certs.eps[:, MOVES] <= torch.from_numpy(high - low)).all())
    assert torch.equal(certs.eps, certify(NET, frame, max_eps={"age": high[0] - low[0], "pay": high[1] - low[1]}).eps)
    own = certify(NET, frame, room_scale={"age": 7.0})
    assert own.scale.tolist() == [7, 0, 0, 0, 0, 0] and bool((own.eps[:, MOVES] <= torch.from_numpy(high - low)).all())
    few = certify(NET, frame[:9])
    assert few.scale is None and not few.settings["shares"]


def test_uniform_regions_of_tables_have_equal_shares() -> None:
    frame = pd.DataFrame(rows(14))
    certs = certify(NET, frame, region=er.Uniform(), domain={"age": (-1e6, 1e6), "pay": (-1e9, 1e9)})
    good = certs.certified
    assert good.sum() > 8 and certs.settings["shares"]
    assert torch.allclose(certs.room[good][:, MOVES], 2 * certs.uniform[good][:, None], rtol=1e-3)
    own = certify(NET, frame, region=er.Uniform(torch.tensor([2.0, 1, 1, 900.0, 1, 1])))
    assert not own.settings["shares"] and own.scale is not None
    assert torch.allclose(own.eps[good][:, 3] / own.eps[good][:, 0], torch.tensor(450.0).double(), rtol=1e-3)
    box = certify(NET, frame, domain={"age": (-1e6, 1e6), "pay": (-1e9, 1e9)})
    assert torch.allclose(box.uniform, certs.uniform, rtol=1e-2) and bool((box.ratio[good] >= 0.99).all())


def test_a_unit_does_not_change_shares() -> None:
    """Wages in thousands: the same room, the same uniform share and ratio, another number."""
    x = torch.from_numpy(by_hand(rows(14)))
    told = {"domain": {"age": (0, 120), "pay": (0, 1e5)}}
    certs = certify(NET, x, **told)
    first, scale = NET.nodes[1].op, torch.tensor([1.0, 1, 1, 1000.0, 1, 1], dtype=torch.float64)
    graph = Graph((6,))
    node = graph.add(ops.Linear(first.weight * scale, first.bias), graph.input)
    for later in NET.nodes[2:]:
        node = graph.add(later.op, node)
    other = certify(graph.network(about=NET.about), x / scale, domain={"age": (0, 120), "pay": (0, 100)})
    assert certs.status == other.status and certs.certified.sum() > 8
    for name in ("uniform", "ratio"):
        assert torch.allclose(getattr(certs, name), getattr(other, name), rtol=0.02)
    assert torch.allclose(certs.room[:, MOVES], other.room[:, MOVES], rtol=0.05)


# --- runs


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranges")
    er.save_network(NET, folder / "net.elbowroom")
    frame_of().to_csv(folder / "data.csv", index=False)
    frame_of().to_parquet(folder / "data.parquet")
    return folder


def flags(place: Path, out: str, *more: str, data: str = "data.csv") -> list[Any]:
    quick = ("--device", "cpu", "--solver-option", "gradients=1")
    return ["certify", place / "net.elbowroom", place / data, *quick, "--out", place / out, *more]


def test_a_csv_is_certified_as_its_frame_is(place: Path) -> None:
    expected = certify(NET, frame_of(), domain="observed")
    for data in ("data.csv", "data.parquet"):
        good(*flags(place, data[-3:], "--domain", "observed", "--part-rows", "5", data=data))
        certs = er.Certificates.load(place / data[-3:])
        assert torch.equal(certs.lowest, expected.lowest) and torch.equal(certs.scale, expected.scale)
        assert np.array_equal(certs.x.numpy(), expected.x.numpy(), equal_nan=True)
        assert certs.status == expected.status and torch.equal(certs.imputed, expected.imputed)
        assert torch.allclose(certs.eps, expected.eps, rtol=1e-3) and certs.settings["shares"]
        assert "row 2" in certs.message[1] and certs.message[1].endswith("'pay' is missing")
        assert "proved" in good("check", place / data[-3:]).stdout
        good(*flags(place, data[-3:], "--domain", "observed", "--resume", data=data))


def test_the_whole_data_set_counts_and_a_resumed_run_has_the_same(place: Path) -> None:
    said = good(*flags(place, "some", "--indices", "4-6", "--part-rows", "1")).stdout
    assert "note: no domain was given, so that no feature may move by more than the width of its range" in said
    assert "cap on eps: the width of each feature's range in the data" in said
    assert "'age' is missing in 1 row, for which the model takes 40" in said and "'painter' in row 4" in said
    certs = er.Certificates.load(place / "some")
    low, high = ranges(frame_of())
    assert certs.scale[MOVES].tolist() == (high - low).tolist() and len(certs) == 3
    assert not bool(certs.imputed.any())
    (place / "some" / "parts" / "part-00001.parquet").unlink()
    good("certify", "--resume", "--device", "cpu", "--out", place / "some")
    again = er.Certificates.load(place / "some")
    assert torch.equal(again.eps, certs.eps) and torch.equal(again.scale, certs.scale)
    good(*flags(place, "some", "--indices", "4-6", "--resume"))
    assert "domain (then none, now {" in refused(
        *flags(place, "some", "--indices", "4-6", "--resume", "--domain", "observed")
    )


def elsewhere(net: Network, settings: Settings, work: Iterable[Part]) -> Generator[tuple[int, er.Certificates]]:
    """An engine: parts and results travel as they do to other processes and machines."""
    worker = Worker(transport.network_of(transport.network_bytes(net)), settings)
    for part in work:
        kind, content = transport.answer(worker, pickle.loads(pickle.dumps(vars(part))))
        assert kind == "done", content
        yield part.number, transport.unpacked(content, net)


def test_workers_elsewhere_have_the_same(place: Path) -> None:
    data = open_data(place / "data.csv", features=TABLE)
    told = Settings.of({"device": "cpu", "part_rows": 4, "domain": "observed", "solver_options": {"gradients": 1}})
    run_dataset(NET, data, place / "one", told)
    run_dataset(NET, data, place / "two", told, engine=elsewhere)
    one, two = (er.Certificates.load(place / name) for name in ("one", "two"))
    assert torch.equal(one.eps, two.eps) and torch.equal(one.imputed, two.imputed) and torch.equal(one.scale, two.scale)
    with pytest.raises(
        er.InputError, match=r"open data\.csv with `open_data\(\.\.\., features=network\.about\.table\)`"
    ):
        run_dataset(NET, open_data(place / "data.csv", feature_columns=["age", "pay"]), place / "no", Settings())


def test_features_by_the_names_of_columns(place: Path) -> None:
    said = json.loads(
        good(
            *flags(place, "named", "--limit", "1", "--frozen", "job", "--max-eps", "age=0.5", "--importance", "pay=2"),
            "--domain", "pay=0,100000", "--room-scale", "age=50", "--json",
        ).stdout
    )  # fmt: skip
    assert said["status"]["certified"] == 1
    certs = er.Certificates.load(place / "named")
    assert certs.scale.tolist() == [50, 0, 0, 0, 0, 0] and float(certs.eps[0, 0]) <= 0.5
    assert certs.lowest[0, 3] == 0 and math.isinf(certs.lowest[0, 0])
    assert "did you mean age" in refused(*flags(place, "wrong", "--max-eps", "ages=1"))


def test_plain_tables_of_models_without_one(place: Path, tmp_path: Path) -> None:
    """Any network that is given a table measures in shares of its ranges."""
    x = points(12) * np.array([1.0, 1000.0])
    data = dataset(x, features=("a", "b"))
    run_dataset(plain(), data, tmp_path / "run", Settings(device="cpu", part_rows=5))
    certs = er.Certificates.load(tmp_path / "run")
    assert certs.scale.tolist() == (x.max(0) - x.min(0)).tolist() and certs.settings["shares"]
    images = dataset(points(12))
    run_dataset(plain(), images, tmp_path / "other", Settings(device="cpu"))
    assert er.Certificates.load(tmp_path / "other").scale is None


# --- what is shown


def test_show_sorts_by_shares_and_says_units(place: Path) -> None:
    good(*flags(place, "shown", "--limit", "3", "--domain", "observed"))
    found = json.loads(good("show", place / "shown", "--index", "0", "--json").stdout)
    features = found["features"]
    assert [f["feature"] for f in features[2:]] == ["job", "size", "yes"]
    assert features[0]["share"] <= features[1]["share"] <= 1 and {f["unit"] for f in features[:2]} == {"years", "EUR"}
    assert features[2]["value"] == rows(14)["job"][0].replace("admin", "admin or none of the levels")
    assert features[2]["note"] == "as it is" and features[2]["lower"] is None
    said = good("show", place / "shown", "--index", "0").stdout
    for words in ("years", "EUR", " %", "as it is", "room: how much of its domain"):
        assert words in said
    said = good("show", place / "shown", "--index", "2").stdout
    assert (
        "imputed" in said and "and not proved: names, ratio, margin, what room is a share of, which values were" in said
    )


def test_all_certificates_in_a_file(place: Path) -> None:
    good(*flags(place, "tidy", "--part-rows", "5"))
    expected = er.Certificates.load(place / "tidy").to_frame()
    assert "70 rows written" in good("show", place / "tidy", "--frame", place / "tidy.csv").stdout
    good("show", place / "tidy", "--frame", place / "tidy.parquet")
    with open(place / "tidy.csv", newline="") as file:
        listed = list(csv.DictReader(file))
    table = pq.read_table(place / "tidy.parquet").to_pylist()
    assert len(listed) == len(table) == len(expected) == 70
    for k, row in enumerate(table):
        assert listed[k]["feature"] == row["feature"] == expected["feature"][k]
        assert listed[k]["status"] == row["status"] == expected["status"][k] and row["note"] == expected["note"][k]
        low = float(listed[k]["low"])
        assert (math.isnan(low) and math.isnan(row["low"])) or low == row["low"] == expected["low"][k]
    assert "must be one of .csv, .parquet" in refused("show", place / "tidy", "--frame", place / "tidy.txt")
    assert "goes without --index" in refused("show", place / "tidy", "--frame", place / "a.csv", "--index", "0")
