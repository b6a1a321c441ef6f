"""Models of tables on the command line: read with a threshold and units, certified, shown, and proved again."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import elbowroom as er
from commands import good, refused
from sklearn_cases import fitted, people, target


def test_a_pickled_pipeline(tmp_path: Path) -> None:
    frame = people(missing=0)[["age", "balance", "rate"]]
    frame = frame.assign(paid=target(frame, 2))
    pipeline = fitted(
        make_pipeline(StandardScaler(), PCA(2), LogisticRegression()), frame[["age", "balance", "rate"]], frame.paid
    )
    model, data, out = tmp_path / "model.pkl", tmp_path / "people.csv", tmp_path / "run"
    model.write_bytes(pickle.dumps(pipeline))
    frame[["rate", "paid", "age", "balance"]].to_csv(data, index=False)
    given = [
        "certify",
        model,
        data,
        "--label-column",
        "paid",
        "--out",
        out,
        "--limit",
        4,
        "--max-eps",
        "5",
        "--predicted",
    ]
    read = ["--trust-pickle", "--threshold", "0.7", "--unit", "age=years", "--unit", "balance=EUR"]
    assert "decided where its probability is at least 0.7" in good(*given, *read).output
    net = er.load_network(out / "network.elbowroom")
    assert net.about.table is not None and [c.unit for c in net.about.table.columns] == ["years", "EUR", ""]
    certs = er.Certificates.load(out)
    decided = np.where(pipeline.predict_proba(frame.head(4)[["age", "balance", "rate"]])[:, 1] >= 0.7, "yes", "no")
    assert np.array_equal(np.array(net.about.classes)[certs.labels.numpy()], decided)
    again = good("check", out, "--model", model, "--trust-pickle").output
    assert "threshold 0.7" in again and "units age=years,balance=EUR" in again
    assert json.loads(good("check", out, "--json").stdout)["origin"]["options"]["threshold"] == 0.7
    assert "threshold must be a number above 0 and below 1" in refused(*given[:-1], "--threshold", "2")
    forest = fitted(RandomForestClassifier(2), frame[["age", "balance", "rate"]], frame.paid)
    model.write_bytes(pickle.dumps(forest))
    said = refused("certify", model, data, "--label-column", "paid", "--out", tmp_path / "other", "--trust-pickle")
    assert "RandomForestClassifier: it is made of decision trees" in said
