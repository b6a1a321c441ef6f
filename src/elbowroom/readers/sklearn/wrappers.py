"""Models that hold a model: other thresholds than one half, and probabilities calibrated by a sigmoid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from elbowroom.network import operations as ops
from elbowroom.readers.flow import Value, apply, chain, tensor
from elbowroom.readers.reading import refuse
from elbowroom.readers.sklearn.heads import CHANCE, EACH, SIGMOID, Head
from elbowroom.readers.two_classes import logit

_TIES = (
    "where the calibrated probabilities of several classes are all rounded to 1 (or 0), the model itself decides the "
    "first of these; what is certified is the largest of the numbers before the sigmoids"
)
Inner = Callable[[Any], Head]  # how the model inside is read


def wrappers() -> dict[type, Callable[[Any, Inner], Head]]:
    """How each kind is read, by its exact type."""
    from sklearn import calibration, model_selection

    found: dict[type, Callable[[Any, Inner], Head]] = {calibration.CalibratedClassifierCV: _calibrated}
    for name, read in (("FixedThresholdClassifier", _fixed), ("TunedThresholdClassifierCV", _tuned)):
        if hasattr(model_selection, name):  # since scikit-learn 1.5
            found[getattr(model_selection, name)] = read
    try:
        from sklearn.frozen import FrozenEstimator  # since scikit-learn 1.6
    except ImportError:
        return found
    return {**found, FrozenEstimator: lambda model, inner: inner(model.estimator)}


# --- thresholds


def _fixed(model: Any, inner: Inner) -> Head:
    own = getattr(model, "estimator_", model.estimator)
    method = _method(model, own)
    threshold = model.threshold
    if threshold == "auto":
        threshold = 0.5 if method == "predict_proba" else 0.0
    return _thresholded(inner(own), float(threshold), model.pos_label, method)


def _tuned(model: Any, inner: Inner) -> Head:
    method = _method(model, model.estimator_)
    positive = model._curve_scorer._get_pos_label()
    return _thresholded(inner(model.estimator_), float(model.best_threshold_), positive, method)


def _method(model: Any, own: Any) -> str:
    """Which of the inner model's methods the threshold is for."""
    if model.response_method != "auto":
        return str(model.response_method)
    return "predict_proba" if hasattr(own, "predict_proba") else "decision_function"


def _thresholded(head: Head, threshold: float, positive: Any, method: str) -> Head:
    """The same with the class `positive` (None: the second) where what `method` gives of it reaches the threshold."""
    if not head.binary:
        refuse("has a threshold, but not two classes")
    second = positive is None or positive == head.classes[1]
    if method == "decision_function":
        if not head.scores:
            refuse("has a threshold of a decision_function that is not known here")
        limit = threshold if second else -threshold
    elif not 0 < threshold < 1:
        refuse(f"has the threshold {threshold:g} of a probability, so that it decides nothing")
    elif head.link == SIGMOID:
        limit = logit(threshold) if second else -logit(threshold)
    elif head.link == CHANCE:
        limit = threshold if second else 1 - threshold
    else:
        refuse("has a threshold of probabilities that do not come from a sigmoid")
    name = head.classes[1] if second else head.classes[0]
    what = "probability" if method == "predict_proba" else "decision_function"
    note = f"the class {str(name)!r} is decided where its {what} is at least {threshold!r}"
    return replace(head, threshold=limit, notes=(*head.notes, note))


# --- calibration


def _calibrated(model: Any, inner: Inner) -> Head:
    if model.method != "sigmoid":
        kind = "a staircase (isotonic)" if model.method == "isotonic" else repr(model.method)
        refuse(f"calibrates by {kind}, which is not read; use method='sigmoid'")
    members, classes = model.calibrated_classifiers_, model.classes_
    heads = [inner(member.estimator) for member in members]
    if any(len(head.classes) != len(classes) for head in heads):
        refuse("was fitted to parts of the data of which some lack a class; give fewer folds (cv)")
    if len(members) > 1 and len(classes) > 2:
        refuse(
            f"averages the probabilities of {len(members)} models over {len(classes)} classes, which has no bound "
            "here; use ensemble=False"
        )
    values = [_score(head, member) for head, member in zip(heads, members)]
    if len(values) == 1:
        notes = () if len(classes) == 2 else (_TIES,)
        return Head(values[0], classes, SIGMOID if len(classes) == 2 else EACH, notes=notes)
    chances = [apply(ops.Sigmoid(), value) for value in values]
    total = apply(ops.Add((1.0,) * len(chances)), *chances)
    mean = apply(ops.Divide(tensor([float(len(chances))])), total)
    note = f"the probability is the mean of {len(chances)} calibrated models'; the second class where it is above 1/2"
    return Head(mean, classes, CHANCE, threshold=0.5, notes=(note,))


def _score(head: Head, member: Any) -> Value:
    """The logit of a calibrated probability, for each class: `-(a t + b)`."""
    if hasattr(member.estimator, "decision_function"):
        value = head.value if head.scores else None
    elif head.binary and head.link == SIGMOID:
        value = apply(ops.Sigmoid(), head.value)
    else:
        value = head.value if head.link == CHANCE else None
    if value is None:
        refuse("calibrates probabilities that do not come from a sigmoid, which has no bound here")
    a = [float(c.a_) for c in member.calibrators]
    b = [float(c.b_) for c in member.calibrators]
    if len(a) != value.width:
        refuse("has another number of calibrators than of classes")
    return chain(value, [ops.Scale(-tensor(a)), ops.Shift(-tensor(b))])


__all__ = ["wrappers"]
