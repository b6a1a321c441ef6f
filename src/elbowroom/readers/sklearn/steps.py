"""Steps of a pipeline that compute numbers from numbers, and imputers.

Every number is the one that scikit-learn computes with: a scaler stays a subtraction and a division (or a product and
a sum) of its own, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from elbowroom.network import operations as ops
from elbowroom.network.table import key_of
from elbowroom.readers.flow import NOTHING, Flow, Plan, Raw, chain, entries, tensor
from elbowroom.readers.reading import refuse

Step = Callable[[Plan, Flow, Any, str], Flow]


def steps() -> dict[type, Step]:
    """How each kind of step is read, by its exact type, since a class derived from one may compute something else."""
    from sklearn import decomposition, feature_selection, impute
    from sklearn import preprocessing as p

    choosing = ("SelectKBest", "SelectPercentile", "SelectFpr", "SelectFdr", "SelectFwe", "GenericUnivariateSelect",
                "VarianceThreshold", "SelectFromModel", "RFE", "RFECV", "SequentialFeatureSelector")  # fmt: skip
    return {
        p.StandardScaler: _scaler(lambda s: _centred(s.with_mean, "mean_", s.with_std, s)),
        p.RobustScaler: _scaler(lambda s: _centred(s.with_centering, "center_", s.with_scaling, s)),
        p.MinMaxScaler: _scaler(_min_max),
        p.MaxAbsScaler: _scaler(_max_abs),
        p.FunctionTransformer: _function,
        impute.SimpleImputer: _imputed,
        decomposition.PCA: _pca,
        decomposition.TruncatedSVD: lambda plan, flow, s, where: _linear(plan, flow, where, s.components_),
        **{getattr(feature_selection, name): _chosen for name in choosing},
    }


# --- scalers


def _scaler(read: Callable[[Any], list[ops.Operation]]) -> Step:
    def step(plan: Plan, flow: Flow, scaler: Any, where: str) -> Flow:
        for k, item in enumerate(flow):
            if isinstance(item, Raw):
                centre, width = _typical(scaler, k)
                plan.typical.setdefault(item.column, (centre, width))
        return entries(chain(plan.numbers(flow, where), read(scaler)))

    return step


def _centred(centre: bool, name: str, scale: bool, scaler: Any) -> list[ops.Operation]:
    """`(x - centre) / scale`, either of which may be left out."""
    found: list[ops.Operation] = [ops.Shift(-tensor(getattr(scaler, name)))] if centre else []
    return [*found, ops.Divide(tensor(scaler.scale_))] if scale else found


def _min_max(scaler: Any) -> list[ops.Operation]:
    clip = [ops.Clip(*map(float, scaler.feature_range))] if scaler.clip else []
    return [ops.Scale(tensor(scaler.scale_)), ops.Shift(tensor(scaler.min_)), *clip]


def _max_abs(scaler: Any) -> list[ops.Operation]:
    return [ops.Divide(tensor(scaler.scale_)), *([ops.Clip(-1.0, 1.0)] if getattr(scaler, "clip", False) else [])]


def _typical(scaler: Any, k: int) -> tuple[float, float]:
    """Around what, and how far, the values of feature `k` lay that a scaler was fitted to."""
    if hasattr(scaler, "data_range_"):
        low, high = float(scaler.data_min_[k]), float(scaler.data_max_[k])
        return (low + high) / 2, max((high - low) / 2, abs(high) * 1e-9) or 1.0
    centre = getattr(scaler, "mean_", None) if hasattr(scaler, "mean_") else getattr(scaler, "center_", None)
    width = getattr(scaler, "scale_", None)
    return 0.0 if centre is None else float(centre[k]), 1.0 if width is None else float(width[k])


# --- others


def _function(plan: Plan, flow: Flow, step: Any, where: str) -> Flow:
    if step.func is not None:
        refuse("calls a function of its own, which may do anything; apply it to the data before the pipeline")
    return flow


def _chosen(plan: Plan, flow: Flow, step: Any, where: str) -> Flow:
    return tuple(item for item, kept in zip(flow, step.get_support()) if kept)


def _pca(plan: Plan, flow: Flow, step: Any, where: str) -> Flow:
    components = np.asarray(step.components_)
    found = _linear(plan, flow, where, components, -np.reshape(step.mean_, (1, -1)) @ components.T)
    if not step.whiten:
        return found
    scale = np.sqrt(step.explained_variance_)
    least = np.finfo(scale.dtype).eps  # as scikit-learn does with components of no variance
    return entries(chain(plan.numbers(found, where), [ops.Divide(tensor(np.maximum(scale, least)))]))


def _linear(plan: Plan, flow: Flow, where: str, weight: Any, offset: Any = None) -> Flow:
    bias = None if offset is None else tensor(np.ravel(offset))
    return entries(chain(plan.numbers(flow, where), [ops.Linear(tensor(weight), bias)]))


def _imputed(plan: Plan, flow: Flow, step: Any, where: str) -> Flow:
    """Columns that come as they are, with what stands for their missing values. Of numbers that were computed none may
    be missing: there an imputer does nothing."""
    if not isinstance(step.missing_values, float) or not np.isnan(step.missing_values):
        refuse(f"fills in for {step.missing_values!r}: only NaN is a missing value here (missing_values=np.nan)")
    if step.add_indicator:
        refuse(
            "adds columns that say which values were missing (add_indicator), which no input could say: leave it off"
        )
    statistics = np.asarray(step.statistics_)
    empty = [k for k, value in enumerate(statistics) if key_of(_plain(value)) is None]
    if empty:
        refuse(
            f"saw no values at all of {len(empty)} of its features, and drops or blanks them: leave these columns out"
        )
    kind = getattr(step, "_fill_dtype", statistics.dtype)
    fills = [_plain(value) for value in statistics.astype(kind)]
    return tuple(
        Raw(item.column, fill if item.fill is NOTHING else item.fill) if isinstance(item, Raw) else item
        for item, fill in zip(flow, fills)
    )


def _plain(value: Any) -> Any:
    """A number of numpy's as Python has it."""
    return value.item() if isinstance(value, np.generic) else value


__all__ = ["Step", "steps"]
