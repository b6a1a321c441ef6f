"""Certificates as a tidy table: nothing is lost, and nothing is said that the certificates do not say."""

from __future__ import annotations

import builtins
import math
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import elbowroom as er
from elbowroom.network.graph import About, Network
from rows import TABLE, network, rows
from support import mlp

ORDER = [
    "input", "label", "status", "feature", "value", "levels", "low", "high", "room", "alone_low", "alone_high",
    "seen_low", "seen_high", "unit", "note",
]  # fmt: skip
NET = network()


def raw() -> pd.DataFrame:
    frame = pd.DataFrame(rows(12))
    frame.loc[1, "pay"] = None
    frame.loc[2, "age"] = None
    return frame


def certified(count: int = 12, **told: Any) -> er.Certificates:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", er.DataWarning)
        return er.certify(NET, raw()[:count], **told)


def test_a_row_per_input_and_column() -> None:
    certs, frame = certified(4, reach=True, domain={"age": (0, 120), "pay": (0, 1e5)}), raw()
    found = certs.to_frame()
    assert list(found.columns) == ORDER and len(found) == 4 * 5
    for k in range(4):
        here = found[found["input"] == k].set_index("feature")
        assert list(here.index) == list(TABLE.names) and set(here["status"]) == {certs.status[k]}
        good = certs.status[k] == "certified"
        for name, entry in (("age", 0), ("pay", 3)):
            row = here.loc[name]
            if k not in (1, 2):
                assert row["value"] == frame.loc[k, name]
            assert row["unit"] == {"age": "years", "pay": "EUR"}[name]
            if good:
                assert row["low"] == float(certs.lower[k, entry]) < row["high"] == float(certs.upper[k, entry])
                assert row["room"] == float(certs.room[k, entry])
                for side, end in (("seen_low", certs.seen_lower), ("seen_high", certs.seen_upper)):
                    seen = float(end[k, entry])
                    assert row[side] == seen if math.isfinite(seen) else math.isnan(row[side])
            else:
                assert here.loc[:, "low":"seen_high"].isna().all(axis=None)
        said = {"admin": "admin or none of the levels"}.get(frame.loc[k, "job"], frame.loc[k, "job"])
        assert here.loc["job", "value"] == said and here.loc["job", "note"].startswith(("as it is", "any of "))
        if good:
            assert said.split(" or ")[0] in here.loc["job", "levels"].split(" | ")
        assert here.loc["yes", "value"] == str(frame.loc[k, "yes"])
    assert found[(found["input"] == 2) & (found["feature"] == "age")]["note"].item() == "imputed"
    missing = found[found["input"] == 1]
    assert set(missing["label"]) == {""} and all("'pay' is missing" in note for note in missing["note"])
    assert math.isnan(missing[missing["feature"] == "pay"]["value"].item())


def test_notes_say_what_holds_a_feature() -> None:
    found = certified(frozen=["pay"], max_eps={"age": 0.1}).to_frame()
    good = found[found["status"] == "certified"]
    assert set(good[good["feature"] == "pay"]["note"]) == {"frozen"}
    assert {note.partition(";")[0] for note in good[good["feature"] == "age"]["note"]} == {"at its cap"}


def test_alone_beside_the_regions() -> None:
    certs = certified()
    ends = {name: certs.x + k for k, name in enumerate(("lower", "upper", "seen_lower", "seen_upper"))}
    ends["seen_lower"][:, 0] = -math.inf
    found = certs.to_frame(alone=SimpleNamespace(**ends))
    row = found[(found["input"] == 0) & (found["feature"] == "pay")].iloc[0]
    assert [row[n] - row["value"] for n in ("alone_low", "alone_high", "seen_low", "seen_high")] == [0, 1, 2, 3]
    assert found[found["feature"] == "age"]["seen_low"].isna().all()
    assert found[found["feature"] == "job"]["alone_low"].isna().all()
    with pytest.raises(er.InputError, match="alone is about"):
        certs.rows(0, 3).to_frame(alone=SimpleNamespace(**ends))


def test_arrow_has_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    certs = certified()
    frame, table = certs.to_frame(), certs.to_arrow()
    assert table.column_names == ORDER and str(table.schema.field("value").type) == "string"
    ages = [v for v, f in zip(table.column("value").to_pylist(), table.column("feature").to_pylist()) if f == "age"]
    assert [float(v) for v in ages] == frame[frame["feature"] == "age"]["value"].tolist()
    assert np.array_equal(table.column("low").to_numpy(), frame["low"].to_numpy(), equal_nan=True)
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(er.InputError, match=r"to_frame needs pandas: pip install 'elbowroom\[data\]'; to_arrow"):
        certs.to_frame()


def test_networks_without_a_table() -> None:
    net = mlp(np.random.default_rng(0), [3, 6, 2])
    x = torch.tensor(np.random.default_rng(1).normal(size=(4, 3)))
    certs = er.certify(net, x)
    assert certs.scale is None and certs.room is None
    found = certs.to_frame()
    assert found["feature"].tolist()[:3] == ["feature 0", "feature 1", "feature 2"]
    assert found["value"].tolist() == x.flatten().tolist() and found["room"].isna().all()
    assert str(certs.to_arrow().schema.field("value").type) == "double"
    named = er.certify(Network(net.nodes, about=About(features=("a", "b", "c"), classes=("x", "y"))), x, domain=(-9, 9))
    assert set(named.to_frame()["label"]) <= {"x", "y"} and named.scale.tolist() == [18, 18, 18]
    balls = er.certify(net, x, region=er.Ellipsoid(), room_scale=2.0).to_frame()
    assert balls["low"].isna().all() and balls["room"].notna().any()
    with pytest.raises(er.InputError, match="other directions"):
        er.certify(net, x, region=er.Oblique(torch.eye(3))).to_frame()
    with pytest.raises(er.InputError, match="do not know their network"):
        replace(certs, network=None).to_frame()
    assert len(certs.rows(0, 0).to_frame()) == 0
