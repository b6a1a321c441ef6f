"""Tables, pipelines of scikit-learn fitted to them, and networks compared with both."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
from sklearn import linear_model as lm
from sklearn import preprocessing as p
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
from sklearn.svm import LinearSVC, LinearSVR

from elbowroom.arguments.encoding import encode
from elbowroom.network.graph import Network


def fitted(model: Any, x: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps are enough here, whether or not they converge
        return model.fit(x, y)


def people(n: int = 200, seed: int = 0, missing: float = 0.1) -> pd.DataFrame:
    """A table of numbers in different units, and categories of several kinds."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "age": rng.normal(40, 12, n),
        "balance": rng.normal(1e4, 3e3, n),
        "job": rng.choice(["admin", "technician", "retired", "none"], n, p=[0.5, 0.3, 0.17, 0.03]),
        "married": rng.choice([True, False], n),
        "grade": rng.integers(1, 5, n),
        "rate": rng.normal(0, 1e-3, n),
    })  # fmt: skip
    for name in ("age", "job"):
        frame[name] = frame[name].where(rng.random(n) >= missing, np.nan)
    return frame


def target(frame: pd.DataFrame, classes: int, seed: int = 0) -> np.ndarray:
    """Labels that depend on the table, all of them there; numbers where `classes` is 0."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=len(frame)) * 0.5
    for name in frame.columns:
        codes = pd.factorize(frame[name])[0] if frame[name].dtype.kind not in "fi" else frame[name].fillna(0)
        codes = np.asarray(codes, dtype=float)
        score += (codes - codes.mean()) / (codes.std() or 1.0)
    if classes == 0:
        return score
    labels = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    return np.array(["no", "yes", "maybe"])[labels] if classes > 1 else labels


def odd(frame: pd.DataFrame, n: int, seed: int, unknown: bool = False) -> pd.DataFrame:
    """Rows of the table mixed anew, numbers in their range and beyond; with categories that are unknown, if wanted."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in frame.columns:
        column = frame[name].iloc[rng.integers(len(frame), size=n)].reset_index(drop=True)
        if column.dtype.kind == "f":
            column = column * rng.choice([1.0, 1.5, -1.0], n)
        elif unknown and column.dtype.kind not in "biu":
            column = column.where(rng.random(n) > 0.2, "never seen")
        found[name] = column
    return pd.DataFrame(found)


def inputs_of(net: Network, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The inputs of the network for the rows that it takes, and which these are."""
    table = net.about.table
    assert table is not None
    found = encode(table, [frame[name] for name in table.names])
    taken = np.isfinite(found.values).all(1)
    return found.values[taken], taken


def assert_same(net: Network, model: Any, frame: pd.DataFrame, least: int = 1) -> None:
    """The network's outputs are the model's own numbers, at every row that the network takes."""
    x, taken = inputs_of(net, frame)
    assert len(x) >= least, "a test of nothing"
    frame = frame[taken]
    outputs = net(x).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unknown categories
        predicted = np.asarray(model.predict(frame))
        scores = model.decision_function(frame) if hasattr(model, "decision_function") else None
        chances = model.predict_proba(frame) if hasattr(model, "predict_proba") else None
    if net.about.classes is None:
        np.testing.assert_allclose(outputs, predicted.reshape(outputs.shape), rtol=1e-8, atol=1e-8)
        return
    decided = np.array(net.about.classes)[outputs.argmax(1)]
    best = np.sort(outputs, 1)
    clear = best[:, -1] - best[:, -2] > 1e-7
    assert np.array_equal(decided[clear], predicted.astype(str)[clear])
    if any("is decided where" in note or "mean of" in note or "rounded to 1" in note for note in net.about.notes):
        return  # of a threshold or a calibration: other numbers, the same decisions
    if scores is not None:
        expected = np.stack([0 * scores, scores], 1) if scores.ndim == 1 else scores
        np.testing.assert_allclose(outputs, expected, rtol=1e-8, atol=1e-8)
    elif chances is not None:
        expected = np.exp(outputs - outputs.max(1, keepdims=True))
        np.testing.assert_allclose(expected / expected.sum(1, keepdims=True), chances, rtol=1e-7, atol=1e-9)


# --- pipelines, made by hypothesis

CLASSIFIERS = {
    "logistic": lambda: lm.LogisticRegression(max_iter=20),
    "svc": lambda: LinearSVC(max_iter=50),
    "sgd": lambda: lm.SGDClassifier(loss="log_loss", max_iter=5, random_state=0),
    "ridge": lm.RidgeClassifier,
    "lda": LinearDiscriminantAnalysis,
    "mlp": lambda: MLPClassifier((5,), max_iter=3, random_state=0),
    "threshold": lambda: FixedThresholdClassifier(lm.LogisticRegression(max_iter=20), threshold=0.3),
    "calibrated": lambda: CalibratedClassifierCV(lm.LogisticRegression(max_iter=20), cv=2, ensemble=False),
}
REGRESSORS = {
    "ridge": lm.Ridge,
    "lasso": lambda: lm.Lasso(0.01),
    "svr": lambda: LinearSVR(max_iter=50),
    "mlp": lambda: MLPRegressor(hidden_layer_sizes=(5,), max_iter=3, random_state=0),
}
NUMERIC = {
    "nothing": lambda: "passthrough",
    "standard": p.StandardScaler,
    "min-max": lambda: p.MinMaxScaler(clip=True),
    "robust": p.RobustScaler,
    "max-abs": p.MaxAbsScaler,
    "pca": lambda: PCA(1, whiten=True),
    "svd": lambda: make_pipeline(make_union("passthrough", p.StandardScaler()), TruncatedSVD(2)),
    "twice": lambda: FeatureUnion(
        [("a", p.StandardScaler()), ("b", p.MinMaxScaler())], transformer_weights={"a": 2.0, "b": -0.5}
    ),
    "chosen": VarianceThreshold,
}
ENCODERS = {
    "one-hot": lambda: p.OneHotEncoder(handle_unknown="ignore"),
    "dense": lambda: p.OneHotEncoder(sparse_output=False),
    "first": lambda: p.OneHotEncoder(drop="first", handle_unknown="ignore"),
    "binary": lambda: p.OneHotEncoder(drop="if_binary"),
    "rare": lambda: p.OneHotEncoder(min_frequency=0.1, handle_unknown="infrequent_if_exist"),
    "few": lambda: p.OneHotEncoder(max_categories=2, drop="first", handle_unknown="infrequent_if_exist"),
    "ordinal": p.OrdinalEncoder,
    "ordinal, unknown": lambda: p.OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
    ),
    "scaled": lambda: make_pipeline(p.OneHotEncoder(sparse_output=False), p.StandardScaler()),
}


LEVELS: list[list[Any]] = [["a", "b", "c"], [1, 2, 7], [True, False], ["x=1", "1", ""], [0.5, -3.0]]


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """A table of numbers and categories (text, whole numbers, truth values), some of them missing, in any order."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    n, columns = 60, {}
    for k in range(draw(st.integers(1, 3))):
        columns[f"n{k}"] = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4) + rng.normal()
        if draw(st.booleans()):
            columns[f"n{k}"][rng.random(n) < 0.1] = np.nan
    for k in range(draw(st.integers(1, 3))):
        levels: list[Any] = draw(
            st.sampled_from([["a", "b", "c"], [1, 2, 7], [True, False], ["x=1", "1", ""], [0.5, -3.0]])
        )
        values = np.array(levels, dtype=object)[rng.integers(len(levels), size=n)]
        values[: len(levels)] = levels
        column = pd.Series(values).infer_objects()
        if column.dtype.kind not in "bi" and draw(st.booleans()):
            column = column.where(rng.random(n) >= 0.15, np.nan)
        columns[f"c{k}"] = column
    order = draw(st.permutations(list(columns)))
    return pd.DataFrame({name: columns[name] for name in order})


@st.composite
def pipelines(draw: st.DrawFn, frame: pd.DataFrame) -> tuple[Any, np.ndarray]:
    """A fitted pipeline over a table, and its target."""
    branches: list[tuple[str, Any, Any]] = []
    for name in frame.columns:
        imputed = bool(frame[name].isna().any()) or draw(st.booleans())
        number = name.startswith("n")
        if draw(st.integers(0, 9)) == 0 and len(frame.columns) > 2 and branches:
            continue  # dropped
        strategy = draw(st.sampled_from(["mean", "median", "constant"] if number else ["most_frequent", "constant"]))
        fill = None if number or frame[name].dtype.kind in "fi" else "missing"
        imputer = SimpleImputer(strategy=strategy, fill_value=fill if strategy == "constant" else None)
        kind = draw(st.sampled_from(sorted(NUMERIC if number else ENCODERS)))
        step = (NUMERIC if number else ENCODERS)[kind]()
        keeps = number or kind in ("one-hot", "dense", "first", "ordinal, unknown")  # missing is a category of its own
        if frame[name].dtype.kind != "b" and (imputed and (number or not keeps or draw(st.booleans()))):
            step = make_pipeline(imputer, step)
        branches.append((name, step, draw(st.sampled_from([[name], [list(frame.columns).index(name)]]))))
    if not branches:
        branches.append(("n0", SimpleImputer(), ["n0"]))
    columns = ColumnTransformer(branches, sparse_threshold=draw(st.sampled_from([0.0, 0.3])))
    after = draw(st.sampled_from([None, p.StandardScaler(with_mean=False), p.MaxAbsScaler()]))
    classes = draw(st.sampled_from([0, 2, 3]))
    known = REGRESSORS if classes == 0 else CLASSIFIERS
    kind = draw(st.sampled_from(sorted(k for k in known if not (classes == 3 and k == "threshold"))))
    y = target(frame, classes)
    dense = p.FunctionTransformer() if kind != "lda" else p.FunctionTransformer(accept_sparse=True)
    steps = [columns, *([after] if after is not None else []), dense, known[kind]()]
    if kind == "lda":
        columns.sparse_threshold = 0.0
    return fitted(make_pipeline(*steps), frame, y), y
