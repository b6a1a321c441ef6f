"""Fitted scikit-learn perceptrons, alone and behind scalers: the same answers, names, and errors for people."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import elbowroom as er
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.file import load_network, network_hash, save_network
from elbowroom.readers.load import feature_names_of, load
from elbowroom.readers.reading import left_off

pytest.importorskip("sklearn")
from sklearn import preprocessing as p
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline

ACTIVATIONS = ["relu", "tanh", "logistic", "identity"]


def data(n: int = 60, features: int = 4, outputs: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features in different units, and values that depend on them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features)) * 10.0 ** rng.integers(-2, 3, features) + rng.normal(size=features)
    y = np.tanh((x - x.mean(0)) / x.std(0) @ rng.normal(size=(features, outputs)))
    return x, y


def fitted(model: Any, x: np.ndarray, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps are enough here, whether or not they converge
        return model.fit(x, y)


def classes_of(y: np.ndarray, n: int) -> np.ndarray:
    return np.digitize(y[:, 0], np.quantile(y[:, 0], np.arange(1, n) / n))


def some(x: np.ndarray, n: int = 1000) -> np.ndarray:
    """Inputs in the data's range and somewhat beyond."""
    rng = np.random.default_rng(1)
    low, high = x.min(0), x.max(0)
    return low + (high - low) * rng.uniform(-0.5, 1.5, size=(n, x.shape[1]))


def classifier(**options: Any) -> MLPClassifier:
    return MLPClassifier(hidden_layer_sizes=(8, 5), solver="lbfgs", max_iter=20, random_state=0, **options)


def regressor(**options: Any) -> MLPRegressor:
    return MLPRegressor(hidden_layer_sizes=(8, 5), solver="lbfgs", max_iter=20, random_state=0, **options)


def assert_same_classes(net: Any, model: Any, x: np.ndarray) -> None:
    outputs = net(x)
    assert outputs.dtype == torch.float64
    probabilities = model.predict_proba(x)
    np.testing.assert_allclose(outputs.softmax(1), probabilities, rtol=1e-7, atol=1e-12)
    decided = net.decide(outputs).numpy()
    assert np.array_equal(decided, probabilities.argmax(1))
    assert np.array_equal(np.array(net.about.classes)[decided], model.predict(x).astype(str))
    assert len(set(decided)) == len(net.about.classes), "a constant model proves little"


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("n", [2, 3])
def test_classifiers(activation: str, n: int) -> None:
    x, y = data()
    labels = np.array(["ill", "well", "unsure"])[classes_of(y, n)]
    model = fitted(make_pipeline(p.StandardScaler(), classifier(activation=activation)), x, labels)
    net = load(model)
    assert net.input_shape == (4,) and net.n_outputs == n and net.decision == "max"
    assert net.about.classes == tuple(sorted(set(labels))) and net.about.features is None
    assert ("two classes" if n == 2 else left_off("the softmax")) in net.about.notes[0]
    assert_same_classes(net, model, some(x))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_regressors(activation: str, outputs: int) -> None:
    x, y = data(outputs=outputs)
    model = fitted(make_pipeline(p.RobustScaler(), regressor(activation=activation)), x, y.squeeze())
    net = load(model)
    assert net.n_outputs == outputs and net.about.classes is None
    assert len(net.about.notes) == (outputs > 1) and all("for regression" in note for note in net.about.notes)
    np.testing.assert_allclose(net(some(x)), model.predict(some(x)).reshape(-1, outputs), rtol=1e-9, atol=1e-12)
    assert network_hash(load(model, task="regression")) == network_hash(net)


SCALERS: dict[str, tuple[Any, list[str]]] = {
    "standard": (p.StandardScaler(), ["Shift", "Divide"]),
    "standard, no mean": (p.StandardScaler(with_mean=False), ["Divide"]),
    "standard, no std": (p.StandardScaler(with_std=False), ["Shift"]),
    "standard, neither": (p.StandardScaler(with_mean=False, with_std=False), []),
    "min-max": (p.MinMaxScaler(), ["Scale", "Shift"]),
    "min-max, range": (p.MinMaxScaler((-3, 1.5)), ["Scale", "Shift"]),
    "min-max, clip": (p.MinMaxScaler(clip=True), ["Scale", "Shift", "Clip"]),
    "max-abs": (p.MaxAbsScaler(), ["Divide"]),
    "max-abs, clip": (p.MaxAbsScaler(clip=True), ["Divide", "Clip"]),
    "robust": (p.RobustScaler(), ["Shift", "Divide"]),
    "robust, no centre": (p.RobustScaler(with_centering=False), ["Divide"]),
    "robust, no scale": (p.RobustScaler(with_scaling=False), ["Shift"]),
    "robust, quantiles": (p.RobustScaler(quantile_range=(5, 95), unit_variance=True), ["Shift", "Divide"]),
}


@pytest.mark.parametrize("name", SCALERS)
def test_scalers(name: str) -> None:
    scaler, operations = SCALERS[name]
    x, y = data()
    x[:, 2] = 7.0  # a constant feature, which scalers divide by 1
    model = fitted(make_pipeline(scaler, regressor()), x, y.ravel())
    net = load(model)
    assert [n.op.name for n in net.nodes[1 : len(operations) + 1]] == operations
    inputs = some(x)
    inputs[:, 2] = np.linspace(5, 9, len(inputs))
    np.testing.assert_allclose(net(inputs)[:, 0], model.predict(inputs), rtol=1e-9, atol=1e-12)
    # The scaler itself, to the last bit.
    values = net.cast(torch.float64).values(torch.from_numpy(inputs))
    assert np.array_equal(values[len(operations)].numpy(), model[0].transform(inputs))


@given(st.data())
def test_pipelines(case: st.DataObject) -> None:
    features, n = case.draw(st.integers(1, 6)), case.draw(st.integers(2, 4))
    names = case.draw(st.lists(st.sampled_from(sorted(SCALERS)), max_size=3))
    hidden = case.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    dtype = case.draw(st.sampled_from([np.float32, np.float64]))
    options = {"hidden_layer_sizes": hidden, "activation": case.draw(st.sampled_from(ACTIVATIONS))}
    regress = case.draw(st.booleans())
    mlp = (MLPRegressor if regress else MLPClassifier)(**options, max_iter=3, random_state=0)
    x, y = data(40, features, seed=case.draw(st.integers(0, 99)))
    x = (x / np.abs(x).max(0)).astype(dtype)
    target = y.ravel() if regress else classes_of(y, n)
    model = fitted(make_pipeline(*(clone(SCALERS[name][0]) for name in names), mlp), x, target)
    net = load(model)
    inputs = some(x, 50).astype(np.float64)
    if regress:
        np.testing.assert_allclose(net(inputs)[:, 0], model.predict(inputs), rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_allclose(net(inputs).softmax(1), model.predict_proba(inputs), rtol=1e-5, atol=1e-5)


def test_a_perceptron_alone_and_nested_pipelines() -> None:
    x, y = data()
    x = (x - x.mean(0)) / x.std(0)
    labels = classes_of(y, 3)
    alone = fitted(classifier(), x, labels)
    assert_same_classes(load(alone), alone, some(x))
    nested = Pipeline([
        ("scale", make_pipeline(p.StandardScaler(), "passthrough", p.MinMaxScaler())),
        ("none", None),
        ("mlp", make_pipeline(p.MaxAbsScaler(), classifier())),
    ])  # fmt: skip
    fitted(nested, x, labels)
    net = load(nested)
    assert [n.op.name for n in net.nodes[1:6]] == ["Shift", "Divide", "Scale", "Shift", "Divide"]
    assert_same_classes(net, nested, some(x))


def test_parameters_are_as_stored_and_independent() -> None:
    x, y = data()
    model = fitted(make_pipeline(p.StandardScaler(), regressor()), x, y.ravel())
    before = model[1].coefs_[0].copy()
    net = load(model)
    model[1].coefs_[0][:] = 0
    model[0].mean_[:] = 0
    assert np.array_equal(net.nodes[3].op.tensors()["weight"].numpy(), before.T)
    assert net.nodes[1].op.tensors()["offset"].any()


def test_names_of_features_and_classes(tmp_path: Path) -> None:
    x, y = data()
    names = np.array(["mean radius", "größe", "a b", "c\nd"], dtype=object)
    model = fitted(make_pipeline(p.StandardScaler(), classifier()), x, classes_of(y, 2).astype(float))
    model[0].feature_names_in_ = names  # as fit leaves them for a data frame
    net = load(model)
    assert net.about.features == ("mean radius", "größe", "a b", "c\\nd")
    assert net.about.classes == ("0", "1")
    assert load_network(save_network(net, tmp_path / "net.elbowroom")).about == net.about
    assert feature_names_of(model) == net.about.features
    renamed = load(model, features={"a b": "height", "c\nd": "weight"}, classes=["benign", "malignant"])
    assert renamed.about.features == ("mean radius", "größe", "height", "weight")
    assert renamed.about.classes == ("benign", "malignant")


def test_normalisation_comes_before_the_pipeline() -> None:
    x, y = data()
    model = fitted(make_pipeline(p.StandardScaler(), regressor()), x, y.ravel())
    net = load(model, (2, 2), scale=1 / 2, mean=1.0)
    inputs = some(x)
    np.testing.assert_allclose(
        net(inputs.reshape(-1, 2, 2))[:, 0], model.predict(inputs / 2 - 1), rtol=1e-9, atol=1e-12
    )


# --- errors


def fit_for(model: Any, labels: Any = None) -> Any:
    x, y = data()
    return fitted(model, x, y.ravel() if labels is None else labels(y))


REFUSED: dict[str, tuple[Any, str]] = {
    "no estimator": (
        lambda: fit_for(make_pipeline(p.StandardScaler())), "standardscaler: StandardScaler is a step .* and no model",
    ),
    "empty": (lambda: make_pipeline("passthrough"), "cannot load Pipeline"),
    "not fitted": (MLPClassifier, "MLPClassifier is not fitted yet"),
    "pipeline not fitted": (lambda: make_pipeline(p.StandardScaler(), MLPClassifier()), "StandardScaler is not fitted"),
    "several labels": (
        lambda: fit_for(classifier(), lambda y: np.stack([classes_of(y, 2), 1 - classes_of(y, 2)], 1)),
        "several labels at once",
    ),
    "one class": (lambda: fit_for(classifier(), lambda y: np.zeros(len(y))), "fitted to the one class"),
    "poisson": (
        lambda: fit_for(MLPRegressor(max_iter=3, loss="poisson"), lambda y: y.ravel() + 2),
        r"ends in 'exp' \(loss='poisson'\)",
    ),
    "normaliser": (lambda: fit_for(make_pipeline(p.Normalizer(), regressor())), "normalizer: Normalizer divides"),
    "function": (
        lambda: fit_for(
            make_pipeline(p.FunctionTransformer(np.cbrt), p.PowerTransformer(), p.StandardScaler(), regressor())
        ),
        "2 parts .*: functiontransformer: FunctionTransformer calls a function .*; powertransformer: PowerTransformer ",
    ),
    "search": (
        lambda: fit_for(GridSearchCV(regressor(), {"alpha": [0.1]}, cv=2)), "GridSearchCV only holds.*best_estimator_",
    ),
    "target": (
        lambda: fit_for(TransformedTargetRegressor(regressor(), transformer=p.StandardScaler())), "give its regressor_",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_are_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises((InputError, UnsupportedError), match=message):
        load(make())


def test_a_task_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="MLPRegressor is for regression; leave task out"):
        load(fit_for(regressor()), task="classification")
    with pytest.raises(InputError, match="MLPClassifier is for classification"):
        load(fit_for(classifier(), lambda y: classes_of(y, 2)), task="regression")


class Doubled(MLPRegressor):
    def predict(self, X: Any) -> Any:
        return 2 * super().predict(X)


class Turned(p.StandardScaler):
    def transform(self, X: Any, copy: Any = None) -> Any:
        return -super().transform(X, copy)


class Backwards(Pipeline):
    def predict(self, X: Any) -> Any:
        return super().predict(X[:, ::-1])


def test_classes_derived_from_known_ones_are_refused() -> None:
    """They may compute anything; a subclass is unknown, never taken for its parent."""
    with pytest.raises(UnsupportedError, match=r"cannot load Doubled: it is derived from MLPRegressor, and may"):
        load(fit_for(Doubled(hidden_layer_sizes=(4,), max_iter=3)))
    with pytest.raises(UnsupportedError, match="turned: Turned is derived from StandardScaler"):
        load(fit_for(make_pipeline(Turned(), regressor())))
    with pytest.raises(UnsupportedError, match="cannot load Backwards"):
        load(fit_for(Backwards([("scale", p.StandardScaler()), ("mlp", regressor())])))


def _patched(model: Any, step: int | None, name: str, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The model, or a step of it, with a method of its own that changes what the class's gives."""
    target = model if step is None else model[step]
    method = getattr(target, name)
    setattr(target, name, lambda X, *more, **options: change(np.asarray(method(X, *more, **options))))
    return model


CHANGES: dict[str, tuple[bool, int | None, str, Callable[[np.ndarray], np.ndarray]]] = {
    # A millionth of a value, the order of classes behind the same labels, a batch that is seen as a whole, ...
    "values": (True, None, "predict", lambda y: y * (1 + 1e-6)),
    "large ones": (True, None, "predict", lambda y: np.clip(y, -50, 50)),
    "the scaler": (True, 0, "transform", lambda x: x + 1e-6),
    "the scaler, far out": (True, 0, "transform", lambda x: np.clip(x, -20, 20)),
    "probabilities": (False, None, "predict_proba", lambda y: y[:, ::-1]),
    "temperature": (False, None, "predict_proba", lambda y: y**1.001 / (y**1.001).sum(1, keepdims=True)),
    "small chances": (False, None, "predict_proba", lambda y: np.where(y < 1e-12, y / 2, y)),
    "labels alone": (False, None, "predict", lambda y: y[::-1]),
    "a batch of one": (False, None, "predict_proba", lambda y: y[:, ::-1] if len(y) == 1 else y),
    "a batch of three": (False, None, "predict_proba", lambda y: y[::-1] if len(y) == 3 else y),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_computes_something_else_is_noticed(name: str) -> None:
    regress, *what = CHANGES[name]
    if regress:
        model = fit_for(make_pipeline(p.StandardScaler(), regressor()))
    else:
        model = fit_for(make_pipeline(p.StandardScaler(), classifier()), lambda y: classes_of(y, 3))
    load(model)
    with pytest.raises(UnsupportedError, match=r"differs from the model itself: its predict|differs.*: predict gives"):
        load(_patched(model, *what))


def test_a_model_is_compared_at_the_users_inputs_and_cannot_change_under_way() -> None:
    """What differs far from all random inputs is found where the user looks."""
    model = fit_for(make_pipeline(p.StandardScaler(), regressor()))
    x, _ = data()
    inputs = torch.from_numpy(x[:3])
    net = load(model)
    net.must_agree(inputs)
    assert (
        net.about.origin is not None and "its outputs in float64, at 36 random inputs" in net.about.origin.compared[0]
    )
    weights = model[1].coefs_[0].copy()
    model[1].coefs_[0][:] = 0
    net.must_agree(inputs)  # with a copy of the model as it was
    model[1].coefs_[0][:] = weights
    far = 12345.0
    odd = load(_patched(model, 0, "transform", lambda z: np.where(np.abs(z) > 1e4, 0.0, z)))
    odd.must_agree(inputs)
    with pytest.raises(UnsupportedError, match=r"its predict gives .* where the network gives .*, in a batch of 1"):
        odd.must_agree(inputs + torch.tensor([0, far * model[0].scale_[1], 0, 0]))
    with pytest.raises(UnsupportedError, match="differs from the model itself"):
        er.certify(
            odd, inputs + torch.tensor([0, far * model[0].scale_[1], 0, 0]), spec=er.outputs_within(odd(inputs), 9)
        )
    shifted = load(odd, mean=-far * model[0].scale_[1] * np.eye(4)[1])  # the user's inputs, not the model's
    with pytest.raises(UnsupportedError, match="differs from the model itself"):
        shifted.must_agree(inputs)


def test_models_fitted_to_frames_are_compared_with_frames() -> None:
    pandas = pytest.importorskip("pandas")
    x, y = data()
    frame = pandas.DataFrame(x, columns=["a", "b", "c", "d"])
    seen: list[Any] = []
    model = fitted(make_pipeline(p.StandardScaler(), classifier()), frame, classes_of(y, 3))
    predict = model.predict
    model.predict = lambda X: seen.append(list(X.columns)) or predict(X)
    net = load(model)
    assert net.about.features == ("a", "b", "c", "d") and seen and all(names == ["a", "b", "c", "d"] for names in seen)
    model = make_pipeline(p.StandardScaler(), classifier()).set_output(transform="pandas")
    fitted(model, frame, classes_of(y, 3))
    np.testing.assert_allclose(load(model)(x).softmax(1), model.predict_proba(frame), rtol=1e-9, atol=1e-12)


def test_damaged_models() -> None:
    model = fit_for(make_pipeline(p.StandardScaler(), regressor()))
    model[1].coefs_[1][0, 0] = np.nan
    with pytest.raises(InputError, match="weight holds NaN"):
        load(model)
    del model[0].mean_
    with pytest.raises(
        UnsupportedError, match=r"standardscaler: StandardScaler cannot be looked into .* another version"
    ):
        load(model)


def test_scikit_learn_is_imported_only_for_its_models() -> None:
    code = (
        "import sys, torch, elbowroom as er; from elbowroom.network.operations import Linear;"
        "er.load(er.Network.chain((2,), [Linear(torch.ones(2, 2))]));"
        "assert not any(m.partition('.')[0] in ('sklearn', 'joblib') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
