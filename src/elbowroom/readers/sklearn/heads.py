"""What a model ends in: the numbers it decides by, and what its own methods make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.readers.flow import Flow, Plan, Value, apply, chain, tensor
from elbowroom.readers.reading import refuse

# How probabilities follow from the numbers: a sigmoid of the one, a softmax of all, a sigmoid of each divided by their
# sum, or the one number is itself a probability.
SIGMOID, SOFTMAX, EACH, CHANCE = "sigmoid", "softmax", "each", "chance"
_ACTIVATIONS: dict[str, ops.Operation | None] = {
    "identity": None,
    "relu": ops.ReLU(),
    "tanh": ops.Tanh(),
    "logistic": ops.Sigmoid(),
}


@dataclass(frozen=True, eq=False)
class Head:
    """The end of a model.

    `value`: what it decides by: a number per output of a regression or per class; one number for two classes, the
    second where it is above `threshold`. `classes`: as the model has them, None for a regression. `link`: how its
    probabilities follow from `value`, None where it has none. `scores`: whether `value` is what its
    `decision_function` gives. `notes`: for people.
    """

    value: Value
    classes: Any = None
    link: str | None = None
    scores: bool = False
    threshold: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def ties(self) -> bool:
        """Whether `predict` compares sigmoids of each class, several of which may be rounded to 1."""
        return self.link == EACH and not self.scores

    @property
    def binary(self) -> bool:
        return self.classes is not None and len(self.classes) == 2


Reading = Callable[[Plan, Flow, Any, str], Head]


def estimators() -> dict[type, Reading]:
    """How each kind of estimator is read, by its exact type."""
    from sklearn import discriminant_analysis, linear_model, neural_network, svm

    classifiers: dict[str, Callable[[Any], str | None]] = {
        "LogisticRegression": _logistic,
        "LogisticRegressionCV": _logistic,
        "SGDClassifier": lambda model: _sigmoids(model) if model.loss == "log_loss" else None,
        "Perceptron": lambda model: None,
        "PassiveAggressiveClassifier": lambda model: None,
        "RidgeClassifier": lambda model: None,
        "RidgeClassifierCV": lambda model: None,
    }
    regressors = (
        "LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV", "MultiTaskLasso",
        "MultiTaskLassoCV", "MultiTaskElasticNet", "MultiTaskElasticNetCV", "Lars", "LarsCV", "LassoLars",
        "LassoLarsCV", "LassoLarsIC", "OrthogonalMatchingPursuit", "OrthogonalMatchingPursuitCV", "BayesianRidge",
        "ARDRegression", "HuberRegressor", "TheilSenRegressor", "QuantileRegressor", "SGDRegressor",
        "PassiveAggressiveRegressor",
    )  # fmt: skip
    found: dict[type, Reading] = {
        neural_network.MLPClassifier: _perceptron,
        neural_network.MLPRegressor: _perceptron,
        svm.LinearSVC: _linear_classifier(lambda model: None),
        svm.LinearSVR: _linear_regressor,
        discriminant_analysis.LinearDiscriminantAnalysis: _linear_classifier(_softmax_or_sigmoid),
    }
    for name, link in classifiers.items():
        if hasattr(linear_model, name):  # a few are on their way out of scikit-learn
            found[getattr(linear_model, name)] = _linear_classifier(link)
    found.update({getattr(linear_model, n): _linear_regressor for n in regressors if hasattr(linear_model, n)})
    return found


# --- linear models


def _softmax_or_sigmoid(model: Any) -> str:
    return SIGMOID if len(model.classes_) == 2 else SOFTMAX


def _sigmoids(model: Any) -> str:
    return SIGMOID if len(model.classes_) == 2 else EACH


def _logistic(model: Any) -> str:
    one_by_one = getattr(model, "multi_class", None) == "ovr" or model.solver == "liblinear"
    return _sigmoids(model) if one_by_one else _softmax_or_sigmoid(model)


def _affine(model: Any) -> ops.Linear:
    """`coef_` and `intercept_`: `k x n` and `k`."""
    weight = model.coef_.toarray() if hasattr(model.coef_, "toarray") else model.coef_
    weight = np.atleast_2d(np.asarray(weight, dtype=np.float64))  # also of float32: the same numbers
    bias = np.broadcast_to(np.ravel(np.asarray(model.intercept_, dtype=np.float64)), (len(weight),))
    return ops.Linear(tensor(weight), tensor(bias))


def _linear_classifier(link: Callable[[Any], str | None]) -> Reading:
    def read(plan: Plan, flow: Flow, model: Any, where: str) -> Head:
        classes = _several(model)
        weights = _affine(model)
        if len(weights.weight) != (1 if len(classes) == 2 else len(classes)):
            refuse("gives several labels at once, each of them yes or no; certify one label at a time")
        return Head(apply(weights, plan.numbers(flow, where)), classes, link(model), scores=True)

    return read


def _several(model: Any) -> Any:
    """The classes, if there are two or more to decide between."""
    classes = model.classes_
    if isinstance(classes, list) or np.ndim(classes) != 1:
        refuse("gives several labels at once, each of them yes or no; certify one label at a time")
    if len(classes) < 2:
        raise InputError(
            f"{type(model).__name__} was fitted to the one class {str(classes[0])!r}, so it decides nothing"
        )
    return classes


def _linear_regressor(plan: Plan, flow: Flow, model: Any, where: str) -> Head:
    return Head(apply(_affine(model), plan.numbers(flow, where)))


# --- perceptrons


def _perceptron(plan: Plan, flow: Flow, mlp: Any, where: str) -> Head:
    layers: list[ops.Operation] = []
    for k, (weight, bias) in enumerate(zip(mlp.coefs_, mlp.intercepts_)):
        layers.append(ops.Linear(tensor(weight.T), tensor(bias)))
        activation = _ACTIVATIONS[mlp.activation]
        if activation is not None and k < len(mlp.coefs_) - 1:
            layers.append(activation)
    value, out = chain(plan.numbers(flow, where), layers), mlp.out_activation_
    if not hasattr(mlp, "classes_"):
        if out != "identity":
            refuse(f"ends in {out!r} (loss={mlp.loss!r}), which has no bound here")
        return Head(value)
    if out == "logistic" and mlp.n_outputs_ > 1:
        refuse("gives several labels at once, each of them yes or no; certify one label at a time")
    return Head(value, _several(mlp), SIGMOID if out == "logistic" else SOFTMAX)


__all__ = ["CHANCE", "EACH", "SIGMOID", "SOFTMAX", "Head", "Reading", "estimators"]
