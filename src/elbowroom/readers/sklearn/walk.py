"""The way of a row through a model: pipelines, branches, steps, and the estimator at the end.

Parts are known by their exact types, since a class derived from one may compute something else. What is not known does
not end the walk: every part is looked at, so that all that is not read can be said at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.readers.flow import Flow, Plan, chain, entries, tensor
from elbowroom.readers.reading import RefusalError, first_line, refuse
from elbowroom.readers.sklearn.encoders import encoders
from elbowroom.readers.sklearn.heads import Head, Reading, estimators
from elbowroom.readers.sklearn.refusals import why
from elbowroom.readers.sklearn.steps import Step, steps
from elbowroom.readers.sklearn.wrappers import wrappers

T = TypeVar("T")
_NOT_READ = 12  # parts that are named


class _Lost(Exception):
    """What comes next depends on a part that is not read."""


@dataclass(eq=False)
class Walk:
    """Walks through a fitted model. `faults`: the parts that are not read, each with its path and why."""

    plan: Plan
    faults: list[tuple[str, Any, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._steps: dict[type, Step] = {**steps(), **encoders()}
        self._estimators: dict[type, Reading] = estimators()
        self._wrappers = wrappers()

    def read(self, model: Any) -> Head:
        """The end of the model, or an `UnsupportedError` that names every part that is not read."""
        head = self._head(self.plan.start(), model, "")
        if head is None or self.faults:
            _refuse_all(self.faults)
        return head

    # --- the end of a model

    def _head(self, flow: Flow | None, model: Any, path: str) -> Head | None:
        """`flow` is None where an earlier part is not read."""
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.model_selection._search import BaseSearchCV
        from sklearn.pipeline import Pipeline

        if isinstance(model, BaseSearchCV | TransformedTargetRegressor):
            inside = "best_estimator_" if isinstance(model, BaseSearchCV) else "regressor_"
            raise InputError(f"{type(model).__name__} only holds the model: give its {inside}")
        if type(model) is Pipeline:
            *first, last = _kept(model.steps) or [("", model)]
            if last[1] is model:
                self.faults.append((path, model, "holds no model"))
                return None
            for name, step in first:
                flow = self._step(flow, step, _join(path, name))
            return self._head(flow, last[1], _join(path, last[0]))
        if type(model) in self._wrappers:
            return self._wrapped(flow, model, path)

        def read() -> Head:
            if type(model) in self._steps:
                refuse("is a step of a pipeline and no model: it decides nothing")
            if type(model) not in self._estimators:
                refuse(why(model))
            self._fitted(model, flow)
            return self._estimators[type(model)](self.plan, _there(flow), model, path or type(model).__name__)

        return self._tried(read, model, path)

    def _wrapped(self, flow: Flow | None, model: Any, path: str) -> Head | None:
        def inner(own: Any) -> Head:
            head = self._head(flow, own, _join(path, type(own).__name__))
            if head is None:
                raise _Lost
            return head

        def read() -> Head:
            self._fitted(model, None)
            return self._wrappers[type(model)](model, inner)

        return self._tried(read, model, path)

    # --- steps

    def _step(self, flow: Flow | None, step: Any, path: str) -> Flow | None:
        from sklearn.compose import ColumnTransformer
        from sklearn.pipeline import FeatureUnion, Pipeline

        if _is(step, "passthrough"):
            return flow
        if type(step) is Pipeline:
            for name, one in _kept(step.steps):
                flow = self._step(flow, one, _join(path, name))
            return flow
        if type(step) in (ColumnTransformer, FeatureUnion):
            return self._branches(flow, step, path)

        def read() -> Flow:
            if type(step) in self._estimators:
                refuse("is a model, and used as a step that transforms: only the last one may be a model")
            if type(step) not in self._steps:
                refuse(why(step))
            self._fitted(step, flow)
            return self._steps[type(step)](self.plan, _there(flow), step, path)

        return self._tried(read, step, path)

    def _branches(self, flow: Flow | None, step: Any, path: str) -> Flow | None:
        """A `ColumnTransformer` or a `FeatureUnion`: what each branch makes of its columns, side by side."""
        if not self._tried(lambda: self._fitted(step, flow), step, path):
            flow = None
        found: Flow | None = ()
        for name, branch, places in _branches_of(step, 0 if flow is None else len(flow)):
            part = None if flow is None else tuple(flow[place] for place in places)
            part = self._step(part, branch, _join(path, name))
            weight = (step.transformer_weights or {}).get(name)
            if part and weight is not None:
                value = self.plan.numbers(part, _join(path, name))
                part = entries(chain(value, [ops.Scale(tensor([float(weight)] * value.width))]))
            found = None if part is None or found is None else found + part
        return found

    # --- what all have in common

    def _fitted(self, part: Any, flow: Flow | None) -> bool:
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

        try:
            check_is_fitted(part)
        except NotFittedError:
            raise InputError(f"{type(part).__name__} is not fitted yet; call fit on the model first") from None
        count = getattr(part, "n_features_in_", None)
        if flow is not None and count is not None and count != len(flow):
            refuse(f"was fitted to {count} features, but gets {len(flow)}")
        return True

    def _tried(self, read: Callable[[], T], part: Any, path: str) -> T | None:
        """What `read` gives; None, and a fault more, where it refuses."""
        try:
            return read()
        except _Lost:
            return None
        except RefusalError as reason:
            self.faults.append((path, part, str(reason)))
            return None
        except (InputError, UnsupportedError):
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # of a part that lacks what `fit` leaves
            made = f"cannot be looked into ({first_line(error)[:120]}): was it made by another version of scikit-learn?"
            self.faults.append((path, part, made))
            return None


def _there(flow: Flow | None) -> Flow:
    if flow is None:
        raise _Lost
    return flow


def _kept(named: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(name, step) for name, step in named if step is not None and not _is(step, "passthrough")]


def _is(step: Any, word: str) -> bool:
    return isinstance(step, str) and step == word


def _branches_of(step: Any, width: int) -> Iterator[tuple[str, Any, list[int]]]:
    """Every branch that gives something: its name, its step, and the places of its columns."""
    if hasattr(step, "transformers_"):
        for name, branch, _ in step.transformers_:
            places = [int(place) for place in step._transformer_to_input_indices[name]]
            if places and not _is(branch, "drop"):
                yield name, branch, places
        return
    for name, branch in step.transformer_list:
        if not _is(branch, "drop"):
            yield name, "passthrough" if branch is None else branch, list(range(width))


def _join(path: str, name: str) -> str:
    return f"{path} > {name}" if path else name


def _refuse_all(faults: list[tuple[str, Any, str]]) -> NoReturn:
    told = []
    for path, part, reason in faults[:_NOT_READ]:
        kind = repr(part) if isinstance(part, str) else type(part).__name__
        if not path and len(faults) == 1:
            raise UnsupportedError(f"cannot load {kind}: it {reason}")
        told.append(f"{path}: {kind} {reason}" if path else f"{kind} {reason}")
    more = f"; and {len(faults) - _NOT_READ} more" if len(faults) > _NOT_READ else ""
    parts = "a part" if len(faults) == 1 else f"{len(faults)} parts"
    raise UnsupportedError(f"the model has {parts} that cannot be read: {'; '.join(told)}{more}")


__all__ = ["Walk"]
