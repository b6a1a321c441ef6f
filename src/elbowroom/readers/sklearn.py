"""Reads fitted scikit-learn multi-layer perceptrons, alone or in a pipeline behind scalers.

Every number is the one that scikit-learn computes with: a scaler stays a subtraction and a division (or a product and
a sum) of its own, in float64. Steps are known by their exact types, since a class derived from one may compute
something else. What was read is compared with the model's own methods, at random inputs here and at the user's later.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.names import Names, printable
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Graph, Network, Origin, Source
from elbowroom.readers.reading import left_off
from elbowroom.readers.two_classes import two_classes

_COMPARED = (
    "the model is for regression: with a tolerance (within) its outputs are certified to stay, without one only which "
    "of them is the largest"
)
_SCALES = (0.01, 1.0, 100.0)  # of the random inputs that network and model are compared at
_ROWS = 6  # of each kind
_BATCHES = (1, 2, 3)
_TOLERANCE = 1e-9  # relative to the outputs, above what rounding may cost
_ROUNDOFF = 2.0**-53
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
    if type(mlp) not in (MLPClassifier, MLPRegressor):
        raise InputError(
            f"cannot load {type(mlp).__name__} of scikit-learn: only MLPClassifier and MLPRegressor are read, and "
            "nothing derived from them, which may compute something else"
        )
    found = "classification" if type(mlp) is MLPClassifier else "regression"
    if task not in (None, found):
        raise InputError(f"{type(mlp).__name__} is for {found}; leave task out")
    kinds = _scalers()
    unknown = [type(s).__name__ for s in scalers if type(s) not in kinds]
    if unknown:
        raise UnsupportedError(
            f"the pipeline holds steps without a bound here: {', '.join(unknown)}. Only "
            f"{', '.join(kind.__name__ for kind in kinds)} are read, and nothing derived from them; prepare the data "
            "before the pipeline instead"
        )
    for step in (*scalers, mlp):
        if not hasattr(step, "n_features_in_"):
            raise InputError(f"{type(step).__name__} is not fitted yet; call fit on the model first")
    graph = Graph((int((*scalers, mlp)[0].n_features_in_),))
    at = graph.input
    for scaler in scalers:
        for op in kinds[type(scaler)](scaler):
            at = graph.add(op, at)
    net = _perceptron(graph, at, mlp, names_of(model))
    return _compared(net, model, scalers, found), found


def names_of(model: Any) -> Names | None:
    """The names of the columns that the model was fitted to, as they can be shown; None where it saw none."""
    names = _fitted_names(model)
    return None if names is None else printable(names)


def _fitted_names(model: Any) -> Any:
    return getattr(_steps(model)[0], "feature_names_in_", None)


def _steps(model: Any) -> list[Any]:
    """The estimators that the data passes through, one after the other."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.pipeline import Pipeline

    if isinstance(model, BaseSearchCV | TransformedTargetRegressor):
        inside = "best_estimator_" if isinstance(model, BaseSearchCV) else "regressor_"
        raise InputError(f"{type(model).__name__} only holds the model: give its {inside}")
    if type(model) is not Pipeline:
        return [model]
    steps = [step for _, step in model.steps if step not in (None, "passthrough")]
    return [inner for step in steps for inner in _steps(step)] or [model]


def _perceptron(graph: Graph, at: int, mlp: Any, names: Names | None) -> Network:
    for k, (weight, bias) in enumerate(zip(mlp.coefs_, mlp.intercepts_)):
        at = graph.add(ops.Linear(_tensor(weight.T), _tensor(bias)), at)
        activation = _ACTIVATIONS[mlp.activation]
        if activation is not None and k < len(mlp.coefs_) - 1:
            at = graph.add(activation, at)
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
    about = About(names, printable(classes), (left_off("the softmax"),), cut="the softmax")
    return graph.network(at, about=about)


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


# --- comparison with the model itself


def _compared(net: Network, model: Any, scalers: list[Any], task: str) -> Network:
    """The network, compared with a copy of the model that nobody else can change, and kept with it."""
    try:
        own = _Model(copy.deepcopy(model), task, _fitted_names(model))
    except Exception as error:  # whatever a part of somebody's model raises
        raise UnsupportedError(f"{type(model).__name__} cannot be copied, to be compared with: {error}") from None
    source = Source(lambda x: own.differs(net, x))
    rng = np.random.default_rng(0)
    for scale in _SCALES:
        x = scale * rng.normal(size=(_ROWS, net.n_inputs))
        for inputs in (x, _before(scalers, x)):  # in raw units, and around what the perceptron was fitted to
            difference = source.differs(torch.from_numpy(inputs))
            if difference is not None:
                raise UnsupportedError(difference)
    values = "its outputs" if task == "regression" else "its probabilities and labels"
    words = (
        f"compared with the model itself, {values} in float64, at {2 * len(_SCALES) * _ROWS} random inputs of scale "
        f"{', '.join(f'{scale:g}' for scale in _SCALES)} in raw units and around the scalers' centre, in batches of "
        f"{', '.join(map(str, _BATCHES))}; they agree to {_TOLERANCE:g}"
    )
    origin = Origin(type(model).__name__, compared=(words,))
    return Network(net.nodes, net.decision, replace(net.about, origin=origin), source)


def _before(scalers: list[Any], x: np.ndarray) -> np.ndarray:
    """Inputs of the pipeline of which the scalers make `x`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that `x` comes without the names of features
        for scaler in reversed(scalers):
            x = np.asarray(scaler.inverse_transform(x))
    return x


@dataclass(frozen=True, eq=False)
class _Model:
    """A fitted model of scikit-learn; `names`: of the columns it was fitted to, if it was fitted to a data frame."""

    model: Any
    task: str
    names: Any

    def differs(self, net: Network, x: Tensor) -> str | None:
        """Where the network and the model give something else at inputs `b x n`, in words."""
        x = x[x.isfinite().all(1)]
        outputs, allowed = _with_rounding(net, x)
        for rows in _batches(len(x)):
            where = self._differs(x[rows].numpy(), outputs[rows], allowed[rows])
            if where is not None:
                return (
                    f"the network read from {type(self.model).__name__} differs from the model itself: {where}, in a "
                    f"batch of {len(x[rows])}; does it compute something of its own?"
                )
        return None

    def _differs(self, x: np.ndarray, outputs: Tensor, allowed: Tensor) -> str | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that arrays do not have, where pandas is not installed
            inputs = self._as_fitted(x)
            if self.task == "regression":
                expected = _float64(self.model.predict(inputs)).reshape(outputs.shape)
                return _first("predict gives", expected, outputs, allowed)
            chances = _float64(self.model.predict_proba(inputs))
            labels = np.asarray(self.model.predict(inputs))
        found, most = outputs.log_softmax(1), 2 * allowed.amax(1, keepdim=True)
        where = _first("predict_proba gives", chances, found.exp(), most.expand_as(found))
        if where is not None:
            return where
        # A small chance tells the logits apart where a large one is 1 in any case. Of two, the first is 1 minus the
        # second, and tells nothing.
        telling = (chances > 1e-290) & (chances < 0.5)
        if chances.shape[1] == 2:
            telling[:, 0] = False
        logs = torch.where(telling, chances, 1.0).log()
        most = most + _TOLERANCE * (1 + logs.abs())
        where = _first("predict_proba gives, as logarithms,", logs, torch.where(telling, found, 0.0), most)
        if where is not None:
            return where
        best = outputs.topk(2, 1).values
        plain = (best[:, 0] - best[:, 1] > 2 * allowed.amax(1)).numpy()
        decided = np.asarray(self.model.classes_)[outputs.argmax(1).numpy()]
        for k in np.flatnonzero(plain & (labels != decided))[:1]:
            return f"predict gives {labels[k]!r}, the network {decided[k]!r}"
        return None

    def _as_fitted(self, x: np.ndarray) -> Any:
        """With the names that the model expects, where it was fitted to a frame."""
        if self.names is None:
            return x
        try:
            import pandas
        except ImportError:
            return x
        return pandas.DataFrame(x, columns=self.names)


def _batches(count: int) -> list[slice]:
    """All rows, in batches of each size that there is."""
    ends = list(itertools.accumulate(itertools.chain([0], itertools.islice(itertools.cycle(_BATCHES), count))))
    found = [slice(a, min(b, count)) for a, b in itertools.pairwise(ends) if a < count]
    return found + [slice(0, n) for n in _BATCHES if n <= count and n not in {s.stop - s.start for s in found}]


def _float64(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, np.float64, order="C"))


def _first(what: str, expected: Tensor, found: Tensor, allowed: Tensor) -> str | None:
    """The worst place where two values are farther apart than allowed, in words."""
    numbers, same = expected.isfinite() & found.isfinite(), expected.isfinite() == found.isfinite()
    excess = torch.where(numbers, (expected - found).abs() - allowed, torch.where(same, -1.0, torch.inf))
    if not excess.numel() or float(excess.max()) <= 0:
        return None
    row, column = divmod(int(excess.argmax()), excess.shape[1])
    return f"its {what} {float(expected[row, column]):.17g} where the network gives {float(found[row, column]):.17g}"


def _with_rounding(net: Network, x: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs at `x`, float64, and by how much another way of computing them may differ, `b x k` each.

    The tolerance, and what the roundings of every layer may cost: for activations of slope 1 at most.
    """
    values = net.cast(torch.float64).values(x)
    errors = [torch.zeros_like(x)]
    for node, value in zip(net.nodes[1:], values[1:]):
        before, error = values[node.inputs[0]], errors[node.inputs[0]]
        match node.op:
            case ops.Linear():
                weight = node.op.weight.detach().double().abs()
                size = before.abs() @ weight.T + (0 if node.op.bias is None else node.op.bias.double().abs())
                error = error @ weight.T + (weight.shape[1] + 2) * _ROUNDOFF * size
            case ops.Scale():
                error = error * node.op.factor.double().abs()
            case ops.Divide():
                error = error / node.op.divisor.double().abs()
        errors.append(error.reshape(value.shape) + 8 * _ROUNDOFF * value.abs())
    outputs = values[-1]
    return outputs, _TOLERANCE * outputs.abs().clamp(min=1) + 2 * errors[-1]


__all__ = ["names_of", "read_sklearn"]
