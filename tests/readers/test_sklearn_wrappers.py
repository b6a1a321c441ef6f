"""Thresholds, calibration, and models that are not read: what each says of itself."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import ensemble, isotonic, naive_bayes, neighbors, svm
from sklearn import linear_model as lm
from sklearn import preprocessing as p
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from torch import nn

import elbowroom as er
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.operations import Linear
from sklearn_cases import assert_same, fitted, inputs_of, odd, people, target

NUMBERS = ["age", "balance", "rate"]


def numbers(classes: int = 2) -> tuple[Any, np.ndarray]:
    frame = people(missing=0)[NUMBERS]
    return frame, target(frame, classes)


# --- thresholds

THRESHOLDS: dict[str, Any] = {
    "low": FixedThresholdClassifier(lm.LogisticRegression(), threshold=0.3),
    "high, of the first class": FixedThresholdClassifier(lm.LogisticRegression(), threshold=0.9, pos_label="no"),
    "of scores": FixedThresholdClassifier(svm.LinearSVC(), threshold=-0.4),
    "of scores, asked for": FixedThresholdClassifier(
        lm.LogisticRegression(), threshold=0.4, response_method="decision_function", pos_label="no"
    ),
    "auto": FixedThresholdClassifier(lm.LogisticRegression()),
    "of a perceptron": FixedThresholdClassifier(MLPClassifier((4,), max_iter=20, random_state=0), threshold=0.2),
    "of a calibrated one": FixedThresholdClassifier(CalibratedClassifierCV(svm.LinearSVC(), cv=2), threshold=0.7),
    "twice": FixedThresholdClassifier(FixedThresholdClassifier(lm.LogisticRegression(), threshold=0.1), threshold=0.6),
    "tuned": TunedThresholdClassifierCV(lm.LogisticRegression(), cv=3, random_state=0),
}


@pytest.mark.parametrize("name", THRESHOLDS)
@pytest.mark.parametrize("inside", [True, False])
def test_thresholds(name: str, inside: bool) -> None:
    """The wrapper at the end of a pipeline, or the pipeline inside of it."""
    frame, y = numbers()
    wrapper = THRESHOLDS[name]
    if inside:
        model = make_pipeline(p.StandardScaler(), wrapper)
    else:
        model = wrapper.__class__(**{
            **wrapper.get_params(deep=False), "estimator": make_pipeline(p.StandardScaler(), wrapper.estimator)
        })  # fmt: skip
    model = fitted(model, frame, y)
    net = er.load(model)
    assert any("is decided where its" in note for note in net.about.notes)
    assert_same(net, model, odd(frame, 500, 1))


def test_thresholds_that_are_given() -> None:
    frame, y = numbers()
    model = fitted(make_pipeline(p.StandardScaler(), lm.LogisticRegression()), frame, y)
    net = er.load(model, threshold=0.3)
    x, _ = inputs_of(net, frame)
    expected = np.where(model.predict_proba(frame)[:, 1] >= 0.3, "yes", "no")
    assert np.array_equal(np.array(net.about.classes)[net.decide(net(x)).numpy()], expected)
    assert len(set(expected)) == 2 and not np.array_equal(expected, model.predict(frame))
    assert "the class 'yes' is decided where its probability is at least 0.3" in net.about.notes
    assert net.about.origin is not None and net.about.origin.options["threshold"] == 0.3
    net.must_agree(torch.from_numpy(x))  # the model behind the threshold
    for again in (net, fitted(make_pipeline(p.StandardScaler(), svm.LinearSVC()), frame, y)):
        with pytest.raises(InputError, match=r"threshold is for classifiers .*; this model's are not known"):
            er.load(again, threshold=0.3)
    three = fitted(lm.LogisticRegression(), frame, target(frame, 3))
    with pytest.raises(InputError, match=r"threshold is for classifiers with two classes .*; this one has 3 outputs"):
        er.load(three, threshold=0.3)
    for wrong in (0, 1, 1.5, -0.1, "0.3", True, float("nan")):
        with pytest.raises(InputError, match="threshold must be a probability"):
            er.load(model, threshold=wrong)


@pytest.mark.parametrize("end", [nn.Sigmoid(), nn.Softmax(1)])
def test_thresholds_of_torch_modules(end: nn.Module) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 1 if isinstance(end, nn.Sigmoid) else 2), end)
    net = er.load(module, (3,), threshold=0.8)
    x = 3 * torch.randn(200, 3)
    expected = module(x)[:, -1] >= 0.8
    assert 0 < int(expected.sum()) < 200 and torch.equal(net.decide(net(x)).bool(), expected)
    with pytest.raises(InputError, match="this model's are not known"):
        er.load(module[0], (3,), threshold=0.8)  # a logit, or something else


# --- calibration

CALIBRATED: dict[str, tuple[Any, int, str]] = {
    "one": (CalibratedClassifierCV(svm.LinearSVC(), cv=2, ensemble=False), 2, "the sigmoid"),
    "one, three classes": (CalibratedClassifierCV(svm.LinearSVC(), cv=2, ensemble=False), 3, "of each class"),
    "several": (CalibratedClassifierCV(lm.LogisticRegression(), cv=3), 2, "between two classes"),
    "several perceptrons": (
        CalibratedClassifierCV(MLPClassifier((3,), max_iter=10, random_state=0), cv=2), 2, "between two classes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALIBRATED)
def test_calibration(name: str) -> None:
    wrapper, classes, cut = CALIBRATED[name]
    frame, y = numbers(classes)
    model = fitted(make_pipeline(p.StandardScaler(), wrapper), frame, y)
    net = er.load(model)
    assert net.about.cut is not None and cut in net.about.cut
    assert_same(net, model, odd(frame, 500, 1))
    if name == "one":
        x, _ = inputs_of(net, frame)
        np.testing.assert_allclose(net(x)[:, 1].sigmoid(), model.predict_proba(frame)[:, 1], rtol=1e-9)
        assert er.load(model, threshold=0.4).n_outputs == 2


# --- what is not read

REFUSED: dict[str, tuple[Any, str]] = {
    "forest": (ensemble.RandomForestClassifier(3), "cannot load RandomForestClassifier: it is made of decision trees"),
    "boosting": (ensemble.HistGradientBoostingClassifier(max_iter=2), "is made of decision trees"),
    "neighbours": (neighbors.KNeighborsClassifier(), "answers by the nearest of stored inputs"),
    "kernel": (svm.SVC(), "by a kernel, which has no bound here; fit a LogisticRegression .* or LinearSVC"),
    "process": (GaussianProcessClassifier(), "by a kernel"),
    "bayes": (naive_bayes.GaussianNB(), "multiplies chances of single features"),
    "quadratic": (QuadraticDiscriminantAnalysis(), "squares its features.* use LinearDiscriminantAnalysis"),
    "voting": (ensemble.VotingClassifier([("a", lm.LogisticRegression())]), "joins several models; give one of them"),
    "isotonic": (CalibratedClassifierCV(svm.LinearSVC(), method="isotonic", cv=2), r"by a staircase \(isotonic\)"),
    "calibrated forest": (
        CalibratedClassifierCV(ensemble.RandomForestClassifier(2), cv=2), "RandomForestClassifier is made of .* trees",
    ),
    "poisson": (lm.PoissonRegressor(), "ends in an exponential function"),
    "threshold of all": (FixedThresholdClassifier(lm.LogisticRegression(), threshold=1.0), "it decides nothing"),
    "threshold of huber": (
        FixedThresholdClassifier(lm.SGDClassifier(loss="modified_huber"), threshold=0.3), "do not come from a sigmoid",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_are_refused(name: str) -> None:
    model, message = REFUSED[name]
    frame, y = numbers()
    x = (frame - frame.mean()) / frame.std()
    with pytest.raises(UnsupportedError, match=message):
        er.load(fitted(model, x, (y == "yes").astype(int)))


def test_calibrated_ensembles_of_several_classes_are_refused() -> None:
    frame, y = numbers(3)
    with pytest.raises(UnsupportedError, match=r"averages .* 2 models over 3 classes.*use ensemble=False"):
        er.load(fitted(make_pipeline(p.StandardScaler(), CalibratedClassifierCV(svm.LinearSVC(), cv=2)), frame, y))


def test_all_steps_that_are_not_read_are_named_at_once() -> None:
    frame = people()
    inner = Pipeline([("fill", KNNImputer()), ("poly", p.PolynomialFeatures())])
    union = FeatureUnion(
        [("bins", p.KBinsDiscretizer(3)), ("pca", PCA(1)), ("rank", p.QuantileTransformer(n_quantiles=20))]
    )
    columns = ColumnTransformer([
        ("numbers", inner, ["age", "balance"]), ("more", union, ["rate"]), ("job", p.OneHotEncoder(), ["job"])
    ])  # fmt: skip
    model = Pipeline([("columns", columns), ("norm", p.Normalizer()), ("forest", ensemble.RandomForestClassifier(2))])
    with pytest.raises(UnsupportedError) as error:
        er.load(fitted(model, frame, target(frame, 2)))
    said = str(error.value)
    assert said.startswith("the model has 6 parts that cannot be read: columns > numbers > fill: KNNImputer fills")
    for part in (
        "columns > numbers > poly: PolynomialFeatures multiplies features", "columns > more > bins: KBinsDiscretizer",
        "columns > more > rank: QuantileTransformer", "norm: Normalizer", "forest: RandomForestClassifier is made of",
    ):  # fmt: skip
        assert part in said
    assert "pca" not in said and "OneHot" not in said


def refused(frame: Any, *branches: Any) -> str:
    model = make_pipeline(make_column_transformer(*branches), lm.Ridge())
    with pytest.raises((UnsupportedError, InputError)) as error:
        er.load(fitted(model, frame, np.arange(float(len(frame)))))
    return str(error.value)


def test_columns_that_cannot_be_read() -> None:
    frame = people()
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(frame.grade, "D")
    frame["big"] = frame.grade + 2**60
    frame["tab"] = np.where(frame.grade > 2, "a\tb", "c")
    both = refused(frame, (p.OneHotEncoder(), ["grade"]), (p.StandardScaler(), ["grade"]))
    assert "reads the column 'grade' as a number, and onehotencoder as categories: it cannot be both" in both.replace(
        "columntransformer > ", ""
    )
    assert "encodes the column 'job' otherwise than" in refused(
        frame, (p.OneHotEncoder(), ["job"]), (p.OrdinalEncoder(encoded_missing_value=-1), ["job"])
    )
    assert "encodes what an earlier step computed" in refused(
        frame, (make_pipeline(p.StandardScaler(), p.OneHotEncoder()), ["grade"])
    )
    assert "only NaN is a missing value here" in refused(frame, (SimpleImputer(missing_values=-1), ["grade"]))
    assert "add_indicator" in refused(frame, (SimpleImputer(add_indicator=True), ["age"]))
    assert "is no finite number of type float64" in refused(frame, (p.OneHotEncoder(), ["big"]))
    assert "which cannot be shown" in refused(frame, (p.OneHotEncoder(), ["tab"]))
    assert "only text, numbers, true and false are read" in refused(frame, (p.OneHotEncoder(), ["day"]))
    empty = frame.assign(nothing=np.nan)
    assert "saw no values at all of 1 of its features" in refused(empty, (SimpleImputer(), ["nothing", "age"]))
    twins = frame.rename(columns={"rate": "job=admin"})
    assert "two entries of the network's input would be called 'job=admin'" in refused(
        twins, (p.OneHotEncoder(), ["job"]), (p.StandardScaler(), ["job=admin"])
    )
    mixed = pd.DataFrame({"c": pd.Series(["a", None, np.nan] * 4, dtype=object)})
    assert "both None and NaN" in refused(mixed, (p.OneHotEncoder(), ["c"]))


def test_nothing_is_put_in_front_of_a_table() -> None:
    frame = people()
    model = make_pipeline(make_column_transformer((p.OneHotEncoder(), ["job"]), (SimpleImputer(), ["age"])), lm.Ridge())
    model = fitted(model, frame, target(frame, 0))
    with pytest.raises(InputError, match="mean: nothing can be put in front of a model of tables, whose column 'age'"):
        er.load(model, mean=1.0)
    with pytest.raises(InputError, match="units: there is no feature 'Age'; there are 'age', 'job'"):
        er.load(model, units={"Age": "years"})
    with pytest.raises(InputError, match="units: 'job' has categories"):
        er.load(model, units={"job": "m"})
    with pytest.raises(InputError, match="units must be a mapping"):
        er.load(model, units=["years"])
    plain = er.Network.chain((2,), [Linear(torch.ones(2, 2))])
    with pytest.raises(InputError, match="units: the model does not name its features"):
        er.load(plain, units={"a": "m"})
    net = er.load(plain, features=["a", "b"], units={"a": "m"})
    assert net.about.table is not None and net.about.table.columns[0].unit == "m" and net.about.features == ("a", "b")


def test_other_libraries_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known by their module's name; neither needs to be here."""
    for library in ("xgboost", "lightgbm", "catboost"):
        module = ModuleType(f"{library}.core")
        module.Booster = type("Booster", (), {"__module__": module.__name__})
        monkeypatch.setitem(__import__("sys").modules, library, ModuleType(library))
        monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
        with pytest.raises(UnsupportedError, match="cannot load Booster: it is made of decision trees"):
            er.load(module.Booster())
        path = tmp_path / "model.pkl"
        path.write_bytes(pickle.dumps(module.Booster()))
        with pytest.raises(UnsupportedError, match="cannot load Booster"):
            er.load(path, trust_pickle=True)


def test_an_isotonic_model_alone() -> None:
    with pytest.raises(UnsupportedError, match="is a staircase"):
        er.load(isotonic.IsotonicRegression().fit(np.arange(5.0), np.arange(5.0)))
