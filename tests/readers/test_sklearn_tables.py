"""Pipelines of tables: the network read from one gives its very numbers, at rows of the table as encoded."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from sklearn import linear_model as lm
from sklearn import preprocessing as p
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.svm import LinearSVC, LinearSVR

import elbowroom as er
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.file import load_network, save_network
from sklearn_cases import assert_same, fitted, frames, inputs_of, odd, people, pipelines, target
from support import cases

ESTIMATORS: dict[str, tuple[Any, int]] = {
    "logistic": (lm.LogisticRegression(), 2),
    "logistic, three": (lm.LogisticRegression(), 3),
    "logistic, liblinear": (lm.LogisticRegression(solver="liblinear"), 2),
    "logistic, cv": (lm.LogisticRegressionCV(Cs=2, cv=2), 3),
    "svc": (LinearSVC(), 2),
    "svc, three": (LinearSVC(), 3),
    "svc, crammer": (LinearSVC(multi_class="crammer_singer"), 3),
    "sgd, hinge": (lm.SGDClassifier(random_state=0), 2),
    "sgd, log": (lm.SGDClassifier(loss="log_loss", random_state=0), 3),
    "sgd, huber": (lm.SGDClassifier(loss="modified_huber", random_state=0), 3),
    "perceptron": (lm.Perceptron(), 3),
    "ridge classifier": (lm.RidgeClassifier(), 2),
    "ridge classifier, cv": (lm.RidgeClassifierCV(), 3),
    "lda": (LinearDiscriminantAnalysis(), 2),
    "lda, three": (LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1), 3),
    "linear": (lm.LinearRegression(), 0),
    "linear, two": (lm.LinearRegression(), -2),
    "ridge": (lm.Ridge(), 0),
    "ridge, two": (lm.RidgeCV(), -2),
    "lasso": (lm.Lasso(0.01), 0),
    "lasso, cv": (lm.LassoCV(cv=2), 0),
    "elastic": (lm.ElasticNet(0.01), 0),
    "elastic, cv": (lm.ElasticNetCV(cv=2), 0),
    "elastic, two": (lm.MultiTaskElasticNet(0.01), -2),
    "lars": (lm.Lars(), 0),
    "bayes": (lm.BayesianRidge(), 0),
    "ard": (lm.ARDRegression(), 0),
    "huber": (lm.HuberRegressor(), 0),
    "quantile": (lm.QuantileRegressor(alpha=0.01), 0),
    "sgd regressor": (lm.SGDRegressor(random_state=0), 0),
    "svr": (LinearSVR(), 0),
    "no intercept": (lm.Ridge(fit_intercept=False), 0),
}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that they are on their way out of scikit-learn
    for name, classes in (("PassiveAggressiveClassifier", 2), ("PassiveAggressiveRegressor", 0)):
        if hasattr(lm, name):
            ESTIMATORS[name] = (getattr(lm, name)(), classes)


def columns() -> ColumnTransformer:
    """What people usually put in front of an estimator of `people`."""
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), p.StandardScaler()), ["age", "balance"]),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), p.OneHotEncoder(handle_unknown="ignore")), ["job"]),
        (p.OrdinalEncoder(), ["grade", "married"]),
    )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name: str) -> None:
    estimator, classes = ESTIMATORS[name]
    frame = people(missing=0)[["age", "rate", "balance"]]
    y = target(frame, max(classes, 0))
    if classes == -2:
        y = np.stack([y, np.cos(y)], 1)
    model = fitted(make_pipeline(p.StandardScaler(), estimator), frame, y)
    net = er.load(model)
    assert net.n_outputs == (abs(classes) or 1) and (net.about.classes is None) == (classes < 1)
    assert_same(net, model, odd(frame, 2000, 1), 2000)


@cases(0.2)
@given(st.data())
def test_pipelines(case: st.DataObject) -> None:
    """The network's values are the pipeline's, on rows with missing and unknown values, wherever it takes them."""
    frame = case.draw(frames())
    model, _ = case.draw(pipelines(frame))
    net = er.load(model)
    assert net.about.table is not None and net.about.features == net.about.table.entries
    rows = odd(frame, 1000, case.draw(st.integers(0, 99)))
    assert_same(net, model, rows, 100 if not rows.isna().any(axis=None) else 1)
    dropped = [name for name in frame.columns if name not in net.about.table.names]
    assert all(any(repr(name) in note for note in net.about.notes) for name in dropped)


# --- single cases


def test_the_table_of_a_pipeline() -> None:
    frame = people()
    model = fitted(make_pipeline(columns(), lm.LogisticRegression()), frame, target(frame, 2))
    net = er.load(model, units={"age": "years"})
    table = net.about.table
    assert table is not None and table.names == ("age", "balance", "job", "married", "grade")
    age, balance, job, married, grade = table.columns
    assert age.missing == pytest.approx(frame.age.median()) and (age.unit, balance.unit) == ("years", "")
    assert job.levels == ("admin", "none", "retired", "technician") and job.unknown == (0.0,) * 4
    assert job.missing == "admin" and married.levels == (False, True) and married.unknown is None
    assert grade.levels == (1.0, 2.0, 3.0, 4.0) and grade.codes == ((0.0,), (1.0,), (2.0,), (3.0,))
    assert net.about.features == (
        "age", "balance", "job=admin", "job=none", "job=retired", "job=technician", "married", "grade"
    )  # fmt: skip
    assert any("does not read these columns" in note and "'rate'" in note for note in net.about.notes)
    assert net.about.origin is not None and net.about.origin.options["units"] == {"age": "years"}
    assert "every category" in net.about.origin.compared[0]


def test_saved_and_loaded(tmp_path: Path) -> None:
    frame = people()
    model = fitted(make_pipeline(columns(), MLPClassifier((6,), max_iter=5)), frame, target(frame, 3))
    net = er.load(model, units={"balance": "EUR"}, features={"job": "work"})
    assert net.about.table is not None and net.about.table.names[2] == "work" and "work=admin" in net.about.features
    again = load_network(save_network(net, tmp_path / "net.elbowroom"))
    assert again.about == net.about
    x, taken = inputs_of(again, frame.rename(columns={"job": "work"}))
    assert taken.all()
    np.testing.assert_allclose(again(x).softmax(1), model.predict_proba(frame), rtol=1e-9)
    with pytest.raises(InputError, match="the model has no feature 'job=admin'"):
        er.load(model, features={"job=admin": "x"})


def test_ways_to_choose_columns() -> None:
    frame = people(missing=0)
    y = target(frame, 2)
    numbers = [name for name in frame.columns if frame[name].dtype.kind == "f"]
    ways: dict[str, Any] = {
        "selector": make_column_selector(dtype_include="float"),
        "mask": [name in numbers for name in frame.columns],
        "indices": [list(frame.columns).index(name) for name in numbers],
        "negative": [list(frame.columns).index(name) - len(frame.columns) for name in numbers],
        "callable": lambda x: numbers,
        "slice": slice("age", "balance"),
        "places": slice(0, 2),
        "other order": numbers[::-1],
    }
    for way in ways.values():
        model = make_pipeline(
            ColumnTransformer([("n", p.StandardScaler(), way), ("j", p.OneHotEncoder(), ["job"])]), lm.Ridge()
        )
        assert_same(er.load(fitted(model, frame, y == "yes")), model, odd(frame, 100, 1))


def test_what_is_left_over() -> None:
    frame = people(missing=0)[["rate", "job", "age", "grade"]]
    y = target(frame, 0)
    for remainder, expected in (
        ("drop", ("job",)),
        ("passthrough", ("rate", "job", "age", "grade")),
        (p.MinMaxScaler(), ("rate", "job", "age", "grade")),
        (SelectKBest(k=1), None),
    ):
        model = make_pipeline(
            ColumnTransformer([("j", p.OneHotEncoder(), ["job"]), ("d", "drop", [])], remainder=remainder), lm.Ridge()
        )
        net = er.load(fitted(model, frame, y))
        assert net.about.table is not None and (expected is None or net.about.table.names == expected)
        assert_same(net, model, odd(frame, 100, 1))


def test_the_same_column_in_two_branches_is_one_input() -> None:
    frame = people(missing=0)
    union = FeatureUnion([("a", p.StandardScaler()), ("b", PCA(1)), ("c", "passthrough"), ("d", "drop")])
    model = make_pipeline(
        ColumnTransformer([
            ("u", union, ["age", "rate"]),
            ("again", p.MinMaxScaler(), ["age"]),
            ("j", p.OneHotEncoder(), ["job"]),
            ("k", p.OneHotEncoder(), ["job"]),
        ], transformer_weights={"again": 3.0, "k": 0.5}),
        lm.Ridge(),
    )  # fmt: skip
    net = er.load(fitted(model, frame, target(frame, 0)))
    assert net.about.table is not None and net.about.table.names == ("age", "job", "rate")
    assert_same(net, model, odd(frame, 100, 1))


def test_columns_are_imputed_first_and_chosen_by_number_later() -> None:
    """The usual other order: everything is imputed, then columns are found by their places in what comes out."""
    frame = people()[["job", "age", "grade"]]
    model = make_pipeline(
        make_column_transformer(
            (SimpleImputer(strategy="mean"), ["age"]), (SimpleImputer(strategy="most_frequent"), ["job", "grade"])
        ),
        make_column_transformer((p.OneHotEncoder(), [1]), (p.StandardScaler(), [0]), remainder="passthrough"),
        lm.LogisticRegression(),
    )
    net = er.load(fitted(model, frame, target(frame, 2)))
    assert net.about.table is not None and net.about.table.names == ("job", "age", "grade")
    assert net.about.table.columns[2].levels is None
    assert_same(net, model, odd(frame, 300, 1), 300)


def test_arrays_without_names() -> None:
    """Numbers alone need no table; categories do."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=80), rng.integers(0, 3, 80), rng.normal(size=80)], 1)
    y = x[:, 0] + x[:, 1] > 1
    plain = fitted(make_pipeline(SelectKBest(k=1), lm.LogisticRegression()), x, y)
    net = er.load(plain)
    assert net.about.table is None and net.about.features is None and net.input_shape == (3,)
    np.testing.assert_allclose(net(x)[:, 1], plain.decision_function(x), rtol=1e-9, atol=1e-12)
    coded = make_pipeline(
        ColumnTransformer([("c", p.OneHotEncoder(), [1])], remainder=p.StandardScaler()), lm.LogisticRegression()
    )
    net = er.load(fitted(coded, x, y))
    assert net.about.features == ("x0", "x1=0", "x1=1", "x1=2", "x2")
    inputs, taken = inputs_of(net, pd.DataFrame(x, columns=["x0", "x1", "x2"]))
    assert taken.all()
    np.testing.assert_allclose(net(inputs)[:, 1], coded.decision_function(x), rtol=1e-9, atol=1e-12)
    texts = np.array([["a", 1.5], ["b", 2.5], ["a", -1.0], ["c", 0.5]] * 5, dtype=object)
    model = make_pipeline(ColumnTransformer([("c", p.OneHotEncoder(), [0])], remainder="passthrough"), lm.Ridge())
    net = er.load(fitted(model, texts, np.arange(20.0)))
    inputs, _ = inputs_of(net, pd.DataFrame(texts, columns=["x0", "x1"]))
    np.testing.assert_allclose(net(inputs)[:, 0], model.predict(texts), rtol=1e-9)


CATEGORIES: dict[str, tuple[list[Any], Any]] = {
    "text": (["b", "a", "c", "a"], p.OneHotEncoder(handle_unknown="ignore")),
    "numbers in text": (["1", "2", "10", "1"], p.OneHotEncoder()),
    "whole numbers": ([3, 1, 2, 1], p.OneHotEncoder(drop=[2])),
    "numbers": ([0.5, -1.0, 2.25, 0.5], p.OrdinalEncoder()),
    "truth": ([True, False, True, True], p.OneHotEncoder(drop="if_binary")),
    "NaN": ([0.5, np.nan, 1.5, 0.5], p.OneHotEncoder()),
    "NaN, ordinal": ([0.5, np.nan, 1.5, 0.5], p.OrdinalEncoder(encoded_missing_value=7)),
    "truth and NaN": ([True, np.nan, False, True], p.OneHotEncoder()),
    "None": (["a", None, "b", "a"], p.OneHotEncoder()),
    "None, first dropped": (["a", None, "b", "a"], p.OneHotEncoder(drop="first")),
    "rare": (["a", "a", "b", "c"], p.OneHotEncoder(min_frequency=2, handle_unknown="infrequent_if_exist")),
    "rare dropped": (["a", "a", "b", "c"], p.OneHotEncoder(min_frequency=2, drop=["b"])),
    "all rare": (["a", "b", "c", "d"], p.OneHotEncoder(max_categories=1)),
    "rare, ordinal": (["c", "a", "b", "c"], p.OrdinalEncoder(max_categories=2)),
    "own order": (["lo", "hi", "mid", "lo"], p.OrdinalEncoder(categories=[["lo", "mid", "hi"]])),
    "never seen": (["lo", "hi", "hi", "lo"], p.OneHotEncoder(categories=[["hi", "lo", "mid"]])),
    "spaces and signs": ([" a", "a ", "a=1", "\u00e4"], p.OneHotEncoder()),
}


@pytest.mark.parametrize("name", CATEGORIES)
def test_categories(name: str) -> None:
    values, encoder = CATEGORIES[name]
    frame = pd.DataFrame({"c": pd.Series(values * 4, dtype=object).infer_objects(), "n": np.arange(16.0)})
    if any(v is None for v in values):
        frame["c"] = pd.Series(values * 4, dtype=object)
    model = make_pipeline(make_column_transformer((encoder, ["c"]), (p.StandardScaler(), ["n"])), lm.Ridge())
    net = er.load(fitted(model, frame, np.arange(16.0) ** 2))
    assert_same(net, model, frame, 16)
    assert net.about.table is not None
    missing = net.about.table.columns[0].missing
    assert missing is None if frame.c.isna().any() else isinstance(missing, float) and math.isnan(missing)


def test_missing_values_are_as_the_pipeline_has_them_or_refused() -> None:
    frame = people()
    y = target(frame, 0)
    rows = frame.head(50).copy()
    rows.loc[:9, "age"], rows.loc[5:14, "job"] = np.nan, np.nan
    for numbers, texts, expected in (
        (SimpleImputer(), p.OneHotEncoder(), 50),
        (SimpleImputer(strategy="constant", fill_value=-1), p.OrdinalEncoder(encoded_missing_value=9), 50),
        (SimpleImputer(), make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), p.OneHotEncoder()), 50),
    ):
        model = make_pipeline(make_column_transformer((numbers, ["age"]), (texts, ["job"])), lm.Ridge())
        net = er.load(fitted(model, frame, y))
        assert_same(net, model, rows, expected)
    # Where no imputer says what to take, nothing is: of a scaler, and of categories without one for missing values.
    whole = people(missing=0)
    model = make_pipeline(
        make_column_transformer((p.StandardScaler(), ["age"]), (p.OneHotEncoder(handle_unknown="ignore"), ["job"])),
        lm.Ridge(),
    )
    net = er.load(fitted(model, whole, y))
    assert inputs_of(net, rows)[1].sum() == int((rows.age.notna() & rows.job.notna()).sum())
    # An imputer behind a scaler, two that differ: rows without the value are refused, all others are exact.
    late = make_pipeline(
        make_column_transformer(
            (make_pipeline(p.StandardScaler(), SimpleImputer(strategy="median")), ["age"]),
            (make_pipeline(SimpleImputer(strategy="constant", fill_value=0), p.MinMaxScaler()), ["age", "balance"]),
        ),
        lm.Ridge(),
    )
    net = er.load(fitted(late, frame, y))
    assert any("fill missing values of 'age' differently" in note for note in net.about.notes)
    assert inputs_of(net, rows)[1].sum() == int(rows.age.notna().sum())
    assert_same(net, late, rows)


def test_a_filling_that_the_encoder_never_saw() -> None:
    """Nothing was missing when it was fitted: "?" is then as unknown as any other text."""
    frame = people(missing=0)
    for unknown, taken in (("ignore", 50), ("error", 40)):
        texts = make_pipeline(
            SimpleImputer(strategy="constant", fill_value="?"), p.OneHotEncoder(handle_unknown=unknown)
        )
        model = make_pipeline(make_column_transformer((texts, ["job"]), (p.StandardScaler(), ["age"])), lm.Ridge())
        net = er.load(fitted(model, frame, target(frame, 0)))
        rows = frame.head(50).copy()
        rows.loc[:9, "job"] = np.nan
        assert inputs_of(net, rows)[1].sum() == taken
        assert_same(net, model, rows)


def test_one_category_that_is_dropped_is_no_input() -> None:
    frame = people(missing=0).assign(same="x")
    model = make_pipeline(
        make_column_transformer((p.OneHotEncoder(drop="first"), ["same", "job"]), (p.StandardScaler(), ["age"])),
        lm.Ridge(),
    )
    net = er.load(fitted(model, frame, target(frame, 0)))
    assert net.about.table is not None and net.about.table.names == ("age", "job")
    assert any("'same' has one category" in note for note in net.about.notes)
    assert_same(net, model, frame)


def test_more_categories_than_can_be_held() -> None:
    frame = pd.DataFrame({"c": [f"v{k}" for k in range(1100)]})
    model = make_pipeline(p.OneHotEncoder(), lm.SGDRegressor(max_iter=1, tol=None))
    with pytest.raises(UnsupportedError, match=r"makes 1,100 columns of the 1,100 categories .*max_categories"):
        er.load(fitted(model, frame, np.arange(1100.0)))


def test_inputs_that_stand_for_no_category_are_not_taken() -> None:
    frame = people(missing=0)
    model = make_pipeline(
        make_column_transformer((p.OneHotEncoder(), ["job"]), (p.StandardScaler(), ["age"])), lm.Ridge()
    )
    net = er.load(fitted(model, frame, target(frame, 0)))
    x = torch.from_numpy(inputs_of(net, frame.head(3))[0])
    net.must_agree(x)
    net.must_agree(x.float())
    x[1, 1:] = torch.tensor([0.5, 0.5, 0.0, 0.0])
    with pytest.raises(UnsupportedError, match=r"takes no such input: the entries 0.5, 0.5, 0, 0 of 'job' stand"):
        net.must_agree(x)


def test_certified_from_a_pipeline() -> None:
    """Categories stay as they are; the region in the numbers is in raw units."""
    frame = people(missing=0)
    y = target(frame, 2)
    model = make_pipeline(columns(), lm.LogisticRegression())
    net = er.load(fitted(model, frame, y))
    x, _ = inputs_of(net, frame.head(5))
    table = net.about.table
    assert table is not None
    frozen = [name for name, moves in zip(table.entries, table.moves) if not moves]
    certs = er.certify(net, x, frozen=frozen)
    assert bool(er.check(certs)) and set(certs.status) == {"certified"}
    rng = np.random.default_rng(0)
    low, high = certs.lower.numpy(), certs.upper.numpy()
    rows = frame.head(5).copy()
    for _ in range(20):
        for name in ("age", "balance"):
            k = table.entries.index(name)
            rows[name] = low[:, k] + (high[:, k] - low[:, k]) * rng.integers(0, 2, 5)
        decided = np.array(net.about.classes)[certs.labels.numpy()]
        assert np.array_equal(model.predict(rows), decided)
