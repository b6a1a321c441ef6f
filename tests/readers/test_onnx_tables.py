"""Models of tables exported by skl2onnx: read as the pipeline that they were exported from."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from onnx import helper
from skl2onnx import convert_sklearn
from skl2onnx.common import data_types as types
from sklearn import linear_model as lm
from sklearn import preprocessing as p
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

import elbowroom as er
from elbowroom.errors import InputError, UnsupportedError
from sklearn_cases import fitted, inputs_of, odd, people, target

KINDS = {"f": types.FloatTensorType, "i": types.Int64TensorType}


def table() -> pd.DataFrame:
    frame = people(missing=0)
    frame["edu"] = np.where(frame.grade > 2, "high", "low")
    return frame.drop(columns="married")


def exported(model: Any, frame: Any, path: Path, **options: Any) -> Path:
    """The file of a fitted model: an input per column, or one for an array."""
    if isinstance(frame, pd.DataFrame):
        kinds = [
            (name, KINDS.get(column.dtype.kind, types.StringTensorType)([None, 1])) for name, column in frame.items()
        ]
    else:
        kinds = [("X", types.FloatTensorType([None, frame.shape[1]]))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what skl2onnx uses of scikit-learn is on its way out
        made = convert_sklearn(model, initial_types=kinds, **options)
    path.write_bytes(made.SerializeToString())
    return path


def columns(encoder: Any) -> Any:
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), p.StandardScaler()), ["age", "balance"]),
        (encoder, ["job", "edu"]),
    )


MODELS: dict[str, tuple[Any, Any, int]] = {
    "logistic": (p.OneHotEncoder(handle_unknown="ignore"), lm.LogisticRegression(), 2),
    "logistic, three": (p.OneHotEncoder(drop="first"), lm.LogisticRegression(), 3),
    "lda": (p.OneHotEncoder(), LinearDiscriminantAnalysis(), 2),
    "ordinal, ridge": (p.OrdinalEncoder(), lm.Ridge(), 0),
    "scaled, perceptron": (
        make_pipeline(p.OneHotEncoder(sparse_output=False), p.StandardScaler(), PCA(3)),
        MLPClassifier((5,), max_iter=9, random_state=0), 3,
    ),
    "perceptron, two": (p.OrdinalEncoder(), MLPClassifier((5,), max_iter=9, random_state=0), 2),
    "perceptron": (
        p.OneHotEncoder(), MLPRegressor(hidden_layer_sizes=(5,), activation="tanh", max_iter=9, random_state=0), 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_pipelines_of_tables(name: str, tmp_path: Path) -> None:
    encoder, estimator, classes = MODELS[name]
    frame = table()[["balance", "job", "edu", "age"]]
    y = target(frame, classes)
    model = fitted(make_pipeline(columns(encoder), estimator), frame, y)
    path = exported(model, frame, tmp_path / "model.onnx")
    net = er.load(path, task=None if classes else "regression", units={"age": "years"})
    assert net.about.table is not None and net.about.table.names == ("balance", "job", "edu", "age")
    assert net.about.table.columns[3].unit == "years"
    assert net.about.table.columns[3].missing == pytest.approx(frame.age.median())
    assert net.about.origin is not None and "every category: labels and outputs agree" in net.about.origin.compared[-1]
    rows = odd(frame, 2000, 1)
    x, taken = inputs_of(net, rows)
    assert taken.all()
    net.must_agree(torch.from_numpy(x[:5]))
    outputs = net(x).numpy()
    if not classes:
        expected = model.predict(rows)[:, None]
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        return
    assert net.about.classes == tuple(model.classes_) and net.n_outputs == classes
    best = np.sort(outputs, 1)
    clear = best[:, -1] - best[:, -2] > 1e-4
    decided = np.array(net.about.classes)[outputs.argmax(1)]
    assert clear.mean() > 0.9 and np.array_equal(decided[clear], model.predict(rows)[clear])


def test_unknown_categories_are_what_the_file_says(tmp_path: Path) -> None:
    frame = table()[["job", "age"]]
    y = target(frame, 0)
    for encoder, unknown in ((p.OneHotEncoder(handle_unknown="ignore"), (0.0,) * 4), (p.OneHotEncoder(), None)):
        model = make_pipeline(make_column_transformer((encoder, ["job"]), (p.StandardScaler(), ["age"])), lm.Ridge())
        net = er.load(exported(fitted(model, frame, y), frame, tmp_path / "model.onnx"), task="regression")
        assert net.about.table is not None and net.about.table.columns[0].unknown == unknown
        rows = odd(frame, 200, 1, unknown=True)
        x, taken = inputs_of(net, rows)
        assert taken.sum() == (200 if unknown else (rows.job != "never seen").sum()) > 100
        np.testing.assert_allclose(net(x)[:, 0], model.predict(rows[taken]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_whole_numbers(classes: int, tmp_path: Path) -> None:
    """As a number, and as a category."""
    frame = table()[["grade", "age", "rate"]]
    y = target(frame, classes)
    for encoder, levels in ((p.MinMaxScaler(), None), (p.OneHotEncoder(), (1.0, 2.0, 3.0, 4.0))):
        first = make_column_transformer((encoder, ["grade"]), (p.RobustScaler(), ["rate", "age"]))
        model = fitted(make_pipeline(first, lm.LogisticRegression()), frame, y)
        net = er.load(exported(model, frame, tmp_path / "model.onnx"))
        assert net.about.table is not None and net.about.table.columns[0].levels == levels
        assert (levels is None) == any("'grade' is declared as int64" in note for note in net.about.notes)
        x, _ = inputs_of(net, frame)
        assert np.array_equal(np.array(net.about.classes)[net.decide(net(x))], model.predict(frame))


ARRAYS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "logistic": (lm.LogisticRegression(), 2, {}),
    "logistic, numbers for classes": (lm.LogisticRegression(), -2, {}),
    "logistic, no map": (lm.LogisticRegression(), 3, {"options": {"zipmap": False}}),
    "svc": (LinearSVC(), 2, {}),
    "svc, three": (LinearSVC(), 3, {}),
    "ridge": (lm.Ridge(), 0, {}),
    "lasso": (make_pipeline(p.MaxAbsScaler(), lm.Lasso(0.01)), 0, {}),
    "ridge classifier": (lm.RidgeClassifier(), 2, {}),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name: str, tmp_path: Path) -> None:
    """One input of numbers: no table, and names of classes as the file has them."""
    estimator, classes, options = ARRAYS[name]
    frame = table()[["age", "rate", "balance"]]
    x = ((frame - frame.mean()) / frame.std()).to_numpy(np.float32)
    y = target(frame, abs(classes))
    y = (y == "yes").astype(int) + 4 if classes < 0 else y
    # In a pipeline, skl2onnx does not take classifiers without probabilities.
    plain = classes > 0 and not hasattr(estimator, "predict_proba")
    model = fitted(estimator if plain else make_pipeline(p.StandardScaler(), estimator), x, y)
    net = er.load(exported(model, x, tmp_path / "model.onnx", **options), task=None if classes else "regression")
    assert net.about.table is None and net.about.features is None
    if classes:
        assert net.about.classes == tuple(map(str, model.classes_))
        assert np.array_equal(np.array(net.about.classes)[net.decide(net(x))], model.predict(x).astype(str))
    else:
        np.testing.assert_allclose(net(x)[:, 0], model.predict(x), rtol=1e-4, atol=1e-4)


def test_a_batch_of_one(small: Path, tmp_path: Path) -> None:
    """A model that is made for one row at a time is compared so."""
    path = tmp_path / "model.onnx"
    path.write_bytes(small.read_bytes())

    def fix(model: Any) -> None:
        for one in (*model.graph.input, *model.graph.output):
            if one.type.WhichOneof("value") == "tensor_type" and len(one.type.tensor_type.shape.dim):
                one.type.tensor_type.shape.dim[0].dim_value = 1

    net = er.load(changed(path, fix))
    assert torch.equal(net.nodes[-2].op.tensors()["offset"], er.load(small).nodes[-2].op.tensors()["offset"])


def test_thresholds(tmp_path: Path) -> None:
    frame = table()[["age", "balance"]]
    model = fitted(make_pipeline(p.StandardScaler(), lm.LogisticRegression()), frame, target(frame, 2))
    path = exported(model, frame, tmp_path / "model.onnx")
    net = er.load(path, threshold=0.8)
    x, _ = inputs_of(net, frame)
    expected = np.where(model.predict_proba(frame)[:, 1] >= 0.8, "yes", "no")
    assert np.array_equal(np.array(net.about.classes)[net.decide(net(x))], expected) and len(set(expected)) == 2
    with pytest.raises(InputError, match="the model ends in a linear classifier"):
        er.load(path, task="regression")


# --- what is not read


def test_what_is_refused(tmp_path: Path) -> None:
    frame = table()[["age", "balance"]]
    x, y = frame.to_numpy(np.float32), target(frame, 2)
    for model, message in (
        (RandomForestClassifier(2), "TreeEnsembleClassifier .*: decision trees jump"),
        (SVC(), "SVMClassifier .*: a kernel"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            er.load(exported(fitted(model, x, y), x, tmp_path / "model.onnx"))


def changed(path: Path, change: Any) -> Path:
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    return path


def node(model: Any, operator: str) -> Any:
    return next(n for n in model.graph.node if n.op_type == operator)


def attribute(operator: str, name: str, value: Any) -> Any:
    def change(model: Any) -> None:
        found = node(model, operator)
        kept = [a for a in found.attribute if a.name != name]
        del found.attribute[:]
        found.attribute.extend([*kept, helper.make_attribute(name, value)])

    return change


def texts_added(model: Any) -> None:
    found = node(model, "OneHotEncoder")
    found.CopyFrom(helper.make_node("Neg", list(found.input), list(found.output), name="turned"))


CHANGES: dict[str, tuple[Any, str]] = {
    "a number is missing": (attribute("Imputer", "replaced_value_float", -1.0), "only NaN can be missing"),
    "too few fillings": (attribute("Imputer", "imputed_value_floats", [1.0, 2.0, 3.0]), "3 values for 2 columns"),
    "two categories alike": (attribute("OneHotEncoder", "cats_strings", ["a", "a", "b", "c"]), "'job': two of"),
    "not shown": (attribute("OneHotEncoder", "cats_strings", ["a\n", "a", "b", "c"]), "which cannot be shown"),
    "fewer categories": (attribute("OneHotEncoder", "cats_strings", ["a", "b"]), "."),
    "numbers of a text": (attribute("OneHotEncoder", "cats_int64s", [1, 2, 3, 4]), "."),
    "one class": (attribute("LinearClassifier", "classlabels_strings", ["a"]), "."),
    "probit": (attribute("LinearClassifier", "post_transform", "PROBIT"), "'PROBIT' is not supported"),
    "fewer weights": (attribute("LinearClassifier", "coefficients", [1.0, 2.0, 3.0]), "3 coefficients"),
    "texts": (texts_added, r"Neg \(node 'turned'\): computes with texts"),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frame = table()[["age", "balance", "job"]]
    first = make_column_transformer((SimpleImputer(), ["age", "balance"]), (p.OneHotEncoder(), ["job"]))
    model = fitted(make_pipeline(first, lm.LogisticRegression()), frame, target(frame, 2))
    return exported(model, frame, tmp_path_factory.mktemp("onnx") / "model.onnx")


@pytest.mark.parametrize("name", CHANGES)
def test_damaged_models(name: str, small: Path, tmp_path: Path) -> None:
    er.load(small)
    change, message = CHANGES[name]
    path = tmp_path / "model.onnx"
    path.write_bytes(small.read_bytes())
    with pytest.raises((UnsupportedError, InputError), match=message):
        er.load(changed(path, change))


def test_a_model_that_answers_otherwise_is_noticed(small: Path, tmp_path: Path) -> None:
    """A misreading here is seen by comparing with the file as it stands: labels that are turned round in it."""
    path = tmp_path / "model.onnx"
    path.write_bytes(small.read_bytes())

    def turn(model: Any) -> None:
        next(o for o in model.opset_import if o.domain == "ai.onnx.ml").version = 2
        last = node(model, "Identity")
        label, last.output[0] = last.output[0], "turned"
        model.graph.node.append(
            helper.make_node(
                "LabelEncoder", ["turned"], [label], domain="ai.onnx.ml", keys_strings=["no", "yes"],
                values_strings=["yes", "no"],
            )
        )  # fmt: skip

    er.load(changed(path, lambda model: None))
    with pytest.raises(
        UnsupportedError, match=r"its output 'output_label' is the label '(no|yes)' where the network decides"
    ):
        er.load(changed(path, turn))
