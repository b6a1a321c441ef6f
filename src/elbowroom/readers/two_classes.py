"""Classifiers with one output, read as two classes."""

from __future__ import annotations

from dataclasses import replace

import torch

from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.readers import compare
from elbowroom.readers.reading import left_off


def two_classes(net: Network, classes: tuple[str, ...] | None = None) -> Network:
    """A classifier with one output, a logit or a probability, as one with two: the second class where it is high.

    The outputs are 0 and the logit; a sigmoid at the end, which is above 1/2 where its input is above 0, is left off.
    """
    graph = Graph(net.input_shape)
    at, high = graph.append(net), "above 0"
    ends: tuple[str, ...] = ()
    while isinstance(graph.nodes[at].op, ops.Reshape):
        at = graph.nodes[at].inputs[0]
    if isinstance(graph.nodes[at].op, ops.Sigmoid):
        at, high, ends = graph.nodes[at].inputs[0], "above 1/2", (left_off("the sigmoid"),)
    else:
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
