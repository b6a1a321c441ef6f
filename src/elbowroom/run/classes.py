"""The network's classes and the data's: matched by their names where both have them, else by their numbers."""

from __future__ import annotations

import dataclasses

import numpy as np

from elbowroom.data.dataset import Dataset, counted
from elbowroom.data.selection import class_numbers
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.run.settings import Settings


def matched(net: Network, data: Dataset, settings: Settings) -> tuple[Network, Dataset, Settings]:
    """The network with names for its classes, and the data with the network's numbers for them.

    A network that has no names takes the data's. Where it has some, a label that is a number is its own name. Refused
    where labels would mean something else to the network than to the data.
    """
    if settings.within is not None:
        return net, data, settings
    known = net.about.classes
    if known is None or len(known) != net.n_outputs:
        return _named(net, data, settings), data, settings
    if settings.predicted or data.labels is None:
        return net, data, settings
    present = np.unique(data.labels).tolist()
    chosen = present if settings.classes is None else class_numbers(settings.classes, data)
    names = {k: str(k) if data.classes is None else data.classes[k] for k in {*present, *chosen}}
    if not set(names.values()) & set(known):  # names of another kind
        return _named(net, data, settings), data, settings
    if not {names[k] for k in chosen} <= set(known):
        shown = f"{', '.join(known[:-1])} and {known[-1]}" if len(known) > 1 else known[0]
        both = ",".join(name for name in known if name in names.values())
        raise InputError(
            f"{data.name} has {counted(len(present), 'class', 'classes')}, but the network knows {shown} alone; choose "
            f"among what both have: --classes {both}"
        )
    number = {k: known.index(name) if name in known else -1 for k, name in names.items()}
    if all(number[k] == k for k in chosen):
        return net, data, settings
    labels = np.array([number[k] for k in data.labels.tolist()], dtype=np.int64)
    by_name = None if settings.classes is None else [names[k] for k in chosen]
    return (
        net, dataclasses.replace(data, labels=labels, classes=known), dataclasses.replace(settings, classes=by_name),
    )  # fmt: skip


def _named(net: Network, data: Dataset, settings: Settings) -> Network:
    """The network with the data's names, by number."""
    if data.classes is None or (settings.predicted and len(data.classes) != net.n_outputs):
        return net
    if len(data.classes) == net.n_outputs:
        return Network(net.nodes, net.decision, dataclasses.replace(net.about, classes=data.classes), net.source)
    shown = ", ".join(data.classes[:5]) + (", ..." if len(data.classes) > 5 else "")
    number = counted(len(data.classes), "class", "classes")
    raise InputError(
        f"{data.name} has {number} ({shown}), but the network tells {net.n_outputs} apart, so their "
        "numbers would mean something else; --predicted goes without labels"
    )
