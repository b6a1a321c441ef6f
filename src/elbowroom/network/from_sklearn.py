"""Reads fitted scikit-learn multi-layer perceptrons, alone or in a pipeline behind scalers.

Every number is the one that scikit-learn computes with: a scaler stays a subtraction and a division (or a product and
a sum) of its own, in float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Graph, Network
from elbowroom.network.load import printable, two_classes
from elbowroom.network.reading import left_off

_COMPARED = (
    "the model is for regression: with a tolerance (within) its outputs are certified to stay, without one only which "
    "of them is the largest"
)
_ACTIVATIONS: dict[str, ops.Operation | None] = {
    "identity": None,
    "relu": ops.ReLU(),
    "tanh": ops.Tanh(),
    "logistic": ops.Sigmoid(),
}


def read_sklearn(model: Any, task: str | None = None) -> tuple[Network, str]:
    """The network of a fitted `MLPClassifier` or `MLPRegressor`, or of a pipeline of scalers before one; its task.

    A classifier's network gives logits, one per class (0 and the logit for two classes), and names its classes;
    features have the names of the data frame the model was fitted to, if any.
    """
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    *scalers, mlp = _steps(model)
    if not isinstance(mlp, MLPClassifier | MLPRegressor):
        raise InputError(
            f"cannot load {type(mlp).__name__} of scikit-learn: only MLPClassifier and MLPRegressor are read"
        )
    found = "classification" if isinstance(mlp, MLPClassifier) else "regression"
    if task not in (None, found):
        raise InputError(f"{type(mlp).__name__} is for {found}; leave task out")
    kinds = _scalers()
    unknown = [type(s).__name__ for s in scalers if type(s) not in kinds]
    if unknown:
        raise UnsupportedError(
            f"the pipeline holds steps without a bound here: {', '.join(unknown)}. Only "
            f"{', '.join(kind.__name__ for kind in kinds)} are read; prepare the data before the pipeline instead"
        )
    for step in (*scalers, mlp):
        if not hasattr(step, "n_features_in_"):
            raise InputError(f"{type(step).__name__} is not fitted yet; call fit on the model first")
    first = (*scalers, mlp)[0]
    graph = Graph((int(first.n_features_in_),))
    at = graph.input
    for scaler in scalers:
        for op in kinds[type(scaler)](scaler):
            at = graph.add(op, at)
    net = _perceptron(graph, at, mlp, getattr(first, "feature_names_in_", None))
    x = np.random.default_rng(0).normal(size=(8, net.n_inputs))
    _must_agree(net, model, found, x if first is mlp else first.inverse_transform(x))
    return net, found


def _steps(model: Any) -> list[Any]:
    """The estimators that the data passes through, one after the other."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.pipeline import Pipeline

    if isinstance(model, BaseSearchCV | TransformedTargetRegressor):
        inside = "best_estimator_" if isinstance(model, BaseSearchCV) else "regressor_"
        raise InputError(f"{type(model).__name__} only holds the model: give its {inside}")
    if not isinstance(model, Pipeline):
        return [model]
    steps = [step for _, step in model.steps if step not in (None, "passthrough")]
    return [inner for step in steps for inner in _steps(step)] or [model]


def _perceptron(graph: Graph, at: int, mlp: Any, features: Any) -> Network:
    for k, (weight, bias) in enumerate(zip(mlp.coefs_, mlp.intercepts_)):
        at = graph.add(ops.Linear(_tensor(weight.T), _tensor(bias)), at)
        activation = _ACTIVATIONS[mlp.activation]
        if activation is not None and k < len(mlp.coefs_) - 1:
            at = graph.add(activation, at)
    names = None if features is None else printable(features)
    out, classes = mlp.out_activation_, getattr(mlp, "classes_", None)
    if classes is None:
        if out != "identity":
            raise UnsupportedError(f"{type(mlp).__name__} ends in {out!r} (loss={mlp.loss!r}), which has no bound here")
        several = (_COMPARED,) if mlp.n_outputs_ > 1 else ()
        return graph.network(at, about=About(names, notes=several))
    if out == "logistic" and mlp.n_outputs_ > 1:
        raise UnsupportedError(
            f"{type(mlp).__name__} gives several labels at once, each of them yes or no; certify one label at a time"
        )
    if len(classes) < 2:
        raise InputError(f"{type(mlp).__name__} was fitted to the one class {classes[0]!r}, so it decides nothing")
    if out == "logistic":
        graph.add(ops.Sigmoid(), at)
        return two_classes(graph.network(about=About(names)), printable(classes))
    return graph.network(at, about=About(names, printable(classes), (left_off("the softmax"),)))


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, order="C"))  # a copy, so that nobody else holds it


# --- scalers


def _scalers() -> dict[type, Callable[[Any], list[ops.Operation]]]:
    from sklearn import preprocessing as p

    return {
        p.StandardScaler: lambda s: _centred(s.with_mean, "mean_", s.with_std, s),
        p.RobustScaler: lambda s: _centred(s.with_centering, "center_", s.with_scaling, s),
        p.MinMaxScaler: lambda s: [
            ops.Scale(_tensor(s.scale_)),
            ops.Shift(_tensor(s.min_)),
            *([ops.Clip(*map(float, s.feature_range))] if s.clip else []),
        ],
        p.MaxAbsScaler: lambda s: [
            ops.Divide(_tensor(s.scale_)),
            *([ops.Clip(-1.0, 1.0)] if getattr(s, "clip", False) else []),
        ],
    }


def _centred(centre: bool, name: str, scale: bool, scaler: Any) -> list[ops.Operation]:
    """`(x - centre) / scale`, either of which may be left out."""
    found: list[ops.Operation] = [ops.Shift(-_tensor(getattr(scaler, name)))] if centre else []
    return [*found, ops.Divide(_tensor(scaler.scale_))] if scale else found


def _must_agree(net: Network, model: Any, task: str, x: np.ndarray) -> None:
    """A guard against misreading: the network must give at `x` what the model's own methods give."""
    found = net(x).detach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that `x` comes without the names of features
        if task == "regression":
            expected = np.asarray(model.predict(x)).reshape(found.shape)
        else:
            found, expected = found.softmax(-1), model.predict_proba(x)
    if not np.allclose(found.numpy(), expected, rtol=1e-3, atol=1e-4):
        raise UnsupportedError(
            f"the network read from {type(model).__name__} differs from the model itself at a random input; does it "
            "compute something of its own?"
        )


__all__ = ["read_sklearn"]
