"""The data as the network takes them: columns by the names of its features, labels by the names of its classes.

A network without names takes the data's for its features, by their places, which is said; never for its classes where
these were numbered along the alphabet, since that says nothing about its outputs.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from elbowroom.arguments.names import Names, by_value, class_names, feature_names, few, whole_of
from elbowroom.data.dataset import Dataset
from elbowroom.data.selection import class_numbers
from elbowroom.errors import InputError
from elbowroom.network.graph import About, Network
from elbowroom.network.names import counted
from elbowroom.runs.settings import Settings

_WITHOUT = "`predicted=True` goes without labels"


def matched(net: Network, data: Dataset, settings: Settings) -> tuple[Network, Dataset, Settings]:
    """The network with names, and the data with its features in their order and its numbers for the classes."""
    net, data = columns_of(net, data, settings)
    if settings.within is not None or net.n_outputs < 2:  # no labels to stay
        return net, data, settings
    known = class_names(net.about.classes, settings.class_names, net.n_outputs, "class_names")
    if known is not None and all(map(str.isdecimal, net.about.classes or ())):  # numbers are poor names
        net = _called(net, classes=known)
    if data.labels is None:
        return net, data, settings
    if known is None and data.own_numbers and data.classes is not None:
        return _named(net, data, settings), data, settings
    if settings.predicted:
        return net, data, settings
    return (net, *_labels(net, data, settings, known))


def columns_of(net: Network, data: Dataset, settings: Settings) -> tuple[Network, Dataset]:
    """The network with names for its features, and the data with their columns in its order."""
    if data.features is None:
        return net, data
    if net.about.table is not None and not set(net.about.features or ()) <= set(data.features):
        raise InputError(
            f"the network takes rows of a table, whose values have to be read as it takes them: open {data.name} with "
            "`open_data(..., features=network.about.table)`"
        )
    if net.about.features is not None:
        return net, data.with_features(net.about.features)
    if len(data.features) != net.n_inputs:
        return net, data  # which do not fit: that is said elsewhere
    net = _called(net, features=feature_names(None, data.features, net.n_inputs))
    if settings.feature_columns is not None:
        return net, data
    return net, dataclasses.replace(data, notes=(*data.notes, by_place(data.name)))


def by_place(data: str) -> str:
    """A note."""
    return f"the model does not name its features: the columns of {data} are taken in the order they stand in"


def _labels(net: Network, data: Dataset, settings: Settings, known: Names | None) -> tuple[Dataset, Settings]:
    """The data with the numbers of the network's outputs as labels; refused where they would mean something else.

    A label that is a number is its own name, and the classes of a network without names are its outputs' numbers.
    Numbers that are written otherwise, 01 for 1, are matched by their value, where that is one of no other.
    """
    assert data.labels is not None
    given = data.labels.tolist()
    present = sorted(set(given))
    chosen = present if settings.classes is None else class_numbers(settings.classes, data)
    numbers = {k: str(k) for k in {*present, *chosen}}
    names = numbers if data.classes is None else {k: data.classes[k] for k in numbers}
    if known is None:
        if not data.own_numbers and whole_of([names[k] for k in present]) is None:
            raise InputError(_unknown_order(data, net, [names[k] for k in present]))
        known = tuple(str(k) for k in range(net.n_outputs))
    if data.own_numbers and not {names[k] for k in chosen} <= set(known):
        names = numbers  # a published set has both
    if not {names[k] for k in chosen} <= set(known):
        meant = by_value(list(names.values()), known)
        if {names[k] for k in chosen} <= set(meant):
            data = dataclasses.replace(data, notes=(*data.notes, _matched_by_value(data, meant)))
            names = {k: meant.get(name, name) for k, name in names.items()}
    if not {names[k] for k in chosen} <= set(known):
        raise InputError(_misfit(data, net, known, [names[k] for k in present]))
    number = {k: known.index(name) if name in known else -1 for k, name in names.items()}
    if all(number[k] == k for k in chosen):
        return data, settings
    labels = np.array([number[k] for k in given], dtype=np.int64)
    by_name = None if settings.classes is None else [names[k] for k in chosen]
    called = known if net.about.classes is None else net.about.classes
    if by_name is not None:
        by_name = [called[known.index(name)] for name in by_name]
    return (
        dataclasses.replace(data, labels=labels, classes=called, own_numbers=True),
        dataclasses.replace(settings, classes=by_name),
    )


def _matched_by_value(data: Dataset, meant: dict[str, str]) -> str:
    """A note."""
    label, name = next((label, name) for label, name in meant.items() if label != name)
    return f"the labels of {data.name} were matched with the classes by their values as numbers: {label!r} is {name!r}"


def _unknown_order(data: Dataset, net: Network, labels: list[str]) -> str:
    given = f"as in `class_names={labels}`" if len(labels) == net.n_outputs else "by `class_names`"
    return (
        f"the labels of {data.name} are names ({few(labels)}), and the model does not say which of its {net.n_outputs} "
        f"outputs is which class: list the names in the order of its outputs, {given}; {_WITHOUT}{_alike(labels)}"
    )


def _misfit(data: Dataset, net: Network, known: Names, labels: list[str]) -> str:
    both = [name for name in known if name in labels]
    named = net.about.classes is not None
    what = _all(known) if named else f"its outputs, 0 to {net.n_outputs - 1},"
    found = counted(len(labels), "class", "classes")
    if not both:
        told = f"the labels of {data.name} ({few(labels)}) are none of the classes that the network knows, {few(known)}"
        usual = all(map(str.isdecimal, labels)) and len(labels) == net.n_outputs
        given = f"as in `class_names={_span(labels)!r}`" if usual else "by `class_names`"
        return f"{told}: list what they call its outputs, in order, {given}; {_WITHOUT}{_alike(labels)}"
    told = f"{data.name} has {found}, but the network knows {what} alone"
    if not named and labels == [str(k) for k in range(1, net.n_outputs + 1)]:
        return f"{told}: where labels begin with 1, say `class_names={_span(labels)!r}`; {_WITHOUT}"
    if not named and len(labels) == net.n_outputs:
        given = f"as in `class_names={_span(labels)!r}`"
        return f"{told}: list what the labels call these, in order, {given}; {_WITHOUT}"
    return (
        f"{told}; choose among what both have: `classes={both}` (its labels: {few(labels)}); {_WITHOUT}{_alike(labels)}"
    )


def _alike(labels: list[str]) -> str:
    """A word on labels that are one number, written in two ways."""
    for k, one in enumerate(labels):
        for other in labels[:k]:
            if whole_of([one]) is not None and whole_of([one]) == whole_of([other]):
                return f". {other!r} and {one!r} are one number: where they are one class, write it one way"
    return ""


def _span(labels: list[str]) -> str:
    """As a setting takes them in one text, numbers in a row as 1..10."""
    if len(labels) > 2 and labels == [str(int(labels[0]) + k) for k in range(len(labels)) if labels[0].isdecimal()]:
        return f"{labels[0]}..{labels[-1]}"
    return ",".join(labels)


def _all(known: Names) -> str:
    return f"{', '.join(known[:-1])} and {known[-1]}" if len(known) > 1 else known[0]


def _called(net: Network, features: Names | None = None, classes: Names | None = None) -> Network:
    about = net.about
    named: About = dataclasses.replace(about, features=features or about.features, classes=classes or about.classes)
    return Network(net.nodes, net.decision, named, net.source)


def _named(net: Network, data: Dataset, settings: Settings) -> Network:
    """The network with the names of a published set, by number."""
    assert data.classes is not None
    if len(data.classes) == net.n_outputs:
        return _called(net, classes=class_names(None, data.classes, net.n_outputs))
    if settings.predicted:
        return net
    raise InputError(
        f"{data.name} has {counted(len(data.classes), 'class', 'classes')} ({few(data.classes)}), but the network "
        f"tells {net.n_outputs} apart, so their numbers would mean something else; {_WITHOUT}"
    )
