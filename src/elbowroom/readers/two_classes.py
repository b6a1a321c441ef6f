"""Classifiers with one output, read as two classes; and where between two classes the line is drawn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.readers import compare
from elbowroom.readers.reading import left_off

_PROBABILITIES = ("the sigmoid", "the softmax", "Softmax", "Softmax and ZipMap")  # left off, of which logits are left


def two_classes(net: Network, classes: tuple[str, ...] | None = None, logit: bool = False) -> Network:
    """A classifier with one output, a logit or a probability, as one with two: the second class where it is high.

    The outputs are 0 and the logit; a sigmoid at the end, which is above 1/2 where its input is above 0, is left off.
    `logit`: that without a sigmoid it decides at 0 is known.
    """
    graph = Graph(net.input_shape)
    at, high = graph.append(net), "above 0"
    ends: tuple[str, ...] = ()
    while isinstance(graph.nodes[at].op, ops.Reshape):
        at = graph.nodes[at].inputs[0]
    if isinstance(graph.nodes[at].op, ops.Sigmoid):
        at, high, ends = graph.nodes[at].inputs[0], "above 1/2", (left_off("the sigmoid"),)
    elif not logit:
        _refuse_probability(net)
    if graph.nodes[at].shape != (1,):
        at = graph.add(ops.Reshape((1,)), at)
    at = graph.add(ops.Linear(torch.tensor([[0.0], [1.0]], dtype=net.dtype)), at, name="two_classes")
    note = f"the model has one output; it is read as two classes, the second where that output is {high}"
    cut = "the sigmoid" if ends else "the one output's place between two classes"
    about = replace(net.about, classes=classes, notes=(*net.about.notes, note, *ends), cut=cut)
    return graph.network(at, about=about, source=net.source)


def _refuse_probability(net: Network) -> None:
    """A probability decides at 1/2, not at 0 as a logit does; one that does not come from a plain sigmoid can be told
    from a logit only by its values."""
    y = net(compare.inputs(net.input_shape, 32))
    if bool(((y >= 0) & (y <= 1)).all()) and bool((y != y[0]).any()):
        raise InputError(
            "the model has one output, which lies between 0 and 1 at all inputs tried, as a probability does, but does "
            "not end in a sigmoid, so that its decision is not known: give the model that ends in the logit, or in a "
            'sigmoid; or read its values with `task="regression"` (in a run, with `within`)'
        )


def thresholded(net: Network, threshold: Any, decision: str = "max") -> Network:
    """A classifier that decides its second class where the probability of that reaches a threshold.

    The logit is shifted, so that the largest output still decides. Only of networks whose probabilities are known:
    where a sigmoid or a softmax over two classes was left off.
    """
    is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not is_number or not 0 < threshold < 1:
        raise InputError(f"threshold must be a probability, above 0 and below 1, got {threshold!r}")
    if net.n_outputs != 2 or decision != "max" or net.about.cut not in _PROBABILITIES:
        what = f"this one has {net.n_outputs} outputs" if net.n_outputs != 2 else "this model's are not known"
        raise InputError(
            f"threshold is for classifiers with two classes whose probabilities a sigmoid or softmax at the end gives; "
            f"{what}"
        )
    graph = Graph(net.input_shape)
    shift = torch.tensor([0.0, -logit(threshold)], dtype=torch.float64)
    at = graph.add(ops.Shift(shift), graph.append(net), name="threshold")
    second = "the second class" if net.about.classes is None else f"the class {net.about.classes[1]!r}"
    note = f"{second} is decided where its probability is at least {threshold!r}"
    cut = f"{net.about.cut}, with a threshold,"
    about = replace(net.about, notes=(*net.about.notes, note), cut=cut)
    return graph.network(at, net.decision, about, net.source)


def logit(probability: float) -> float:
    """Where a sigmoid has this value."""
    return math.log(probability) - math.log1p(-probability)
