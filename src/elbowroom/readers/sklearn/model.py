"""Reads fitted models of scikit-learn: estimators, alone or at the end of pipelines of tables.

What was read is compared with the model's own methods, at random rows here and at the user's later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elbowroom.arguments.names import Names, printable
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network
from elbowroom.readers.flow import Plan, apply, tensor
from elbowroom.readers.reading import left_off
from elbowroom.readers.rows import Rows
from elbowroom.readers.sklearn.compared import compared
from elbowroom.readers.sklearn.heads import EACH, SIGMOID, SOFTMAX, Head
from elbowroom.readers.sklearn.walk import Walk
from elbowroom.readers.two_classes import two_classes

_COMPARED = (
    "the model is for regression: with a tolerance (within) its outputs are certified to stay, without one only which "
    "of them is the largest"
)


def read_sklearn(model: Any, task: str | None = None) -> tuple[Network, str]:
    """The network of a fitted model, and its task.

    A classifier's network gives what the model decides by, one number per class (0 and the one number for two
    classes), and names its classes. A model that was fitted to a data frame, or that encodes categories, has a table
    (`About.table`); all others take rows as the model does.
    """
    names = _first(model, "feature_names_in_")
    plan = Plan(int(_first(model, "n_features_in_") or 0), None if names is None else printable(names))
    head = Walk(plan).read(model)
    found = "regression" if head.classes is None else "classification"
    if task not in (None, found):
        raise InputError(f"{type(model).__name__} is for {found}; leave task out")
    table = plan.table()
    about = About(features=None if table is None else table.entries, table=table, notes=tuple(plan.notes) + head.notes)
    net = _network(plan, head, about)
    return compared(net, model, head, Rows(plan, table, names)), found


def names_of(model: Any) -> Names | None:
    """The names of the columns that the model was fitted to, as they can be shown; None where it saw none."""
    names = _first(model, "feature_names_in_")
    return None if names is None else printable(names)


def _first(model: Any, name: str) -> Any:
    """What the first part of the model that has it says of what it was fitted to."""
    if hasattr(model, name):
        return getattr(model, name)
    for _, step in getattr(model, "steps", ()):
        if step is not None and not isinstance(step, str):
            return _first(step, name)
    inner = [getattr(model, each) for each in ("estimator_", "estimator") if hasattr(model, each)]
    return _first(inner[0], name) if inner else None


def _network(plan: Plan, head: Head, about: About) -> Network:
    if head.classes is None:
        graph, at = plan.graph(head.value)
        notes = about.notes + ((_COMPARED,) if head.value.width > 1 else ())
        return graph.network(at, about=replace(about, notes=notes))
    classes = printable(head.classes)
    if head.binary:
        value = head.value
        if head.threshold != 0:
            value = apply(ops.Shift(tensor([-head.threshold])), value)
        elif head.link == SIGMOID:
            value = apply(ops.Sigmoid(), value)
        graph, at = plan.graph(value)
        return two_classes(graph.network(at, about=about), classes, logit=True)
    graph, at = plan.graph(head.value)
    cut = {SOFTMAX: "the softmax", EACH: "the sigmoid of each class"}.get(head.link or "")
    notes = about.notes if cut is None else (*about.notes, left_off(cut))
    return graph.network(at, about=replace(about, classes=classes, notes=notes, cut=cut))


__all__ = ["names_of", "read_sklearn"]
