"""Named sets of images to train on, and what was trained as a network of such images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from elbowroom.data.embedded import Dataset, digits
from elbowroom.data.standard import SETS, load_standard
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.readers.load import load

DATA = ("digits", "mnist", "fashion-mnist", "svhn")


def training_data(
    name: str, data_dir: str | os.PathLike[str] | None = None, classes: Sequence[str | int] | None = None
) -> tuple[Dataset, tuple[str, ...]]:
    """Images of a set with pixels in [-1, 1], as the paper has them.

    Args:
        name: "digits", "mnist", "fashion-mnist" or "svhn".
        data_dir: Where the set's files are; "digits" needs none.
        classes: Only these, by name or number; they are then numbered 0, 1, ... in the order given.

    Returns:
        The data, and the names of their classes.

    Raises:
        InputError: There is no such set or class, or its files cannot be read.
    """
    if name not in DATA:
        raise InputError(f"networks are trained on {', '.join(DATA)}; {name!r} is none of these")
    if name == "digits":
        data, names = digits(), tuple(str(k) for k in range(10))
    else:
        data, names = _standard(name, data_dir)
    if classes is None:
        return data, names
    chosen = [_number_of(c, names) for c in classes]
    if len(chosen) < 2 or len(set(chosen)) < len(chosen):
        raise InputError(
            f"a network tells two classes or more apart, each named once; got {', '.join(map(str, classes))}"
        )
    new = torch.full((len(names),), -1)
    new[chosen] = torch.arange(len(chosen))
    train_kept, test_kept = new[data.y_train] >= 0, new[data.y_test] >= 0
    part = replace(
        data,
        name=f"{data.name} ({', '.join(names[k] for k in chosen)})",
        x_train=data.x_train[train_kept],
        y_train=new[data.y_train[train_kept]],
        x_test=data.x_test[test_kept],
        y_test=new[data.y_test[test_kept]],
    )
    return part, tuple(names[k] for k in chosen)


def _standard(name: str, data_dir: str | os.PathLike[str] | None) -> tuple[Dataset, tuple[str, ...]]:
    def read(split: str) -> tuple[Tensor, Tensor]:
        x, y = load_standard(name, split, data_dir)
        return torch.from_numpy(x).flatten(1).float() / 127.5 - 1, torch.from_numpy(y)

    known = SETS[name]
    data = Dataset(known.title, *read("train"), *read("test"), -1.0, 1.0, known.shape)
    return data, known.classes or tuple(str(k) for k in range(10))


def _number_of(given: str | int, names: Sequence[str]) -> int:
    text = str(given).strip()
    folded = [n.casefold() for n in names]
    if text.casefold() in folded:
        return folded.index(text.casefold())
    if text.isdecimal() and int(text) < len(names):
        return int(text)
    raise InputError(f"there is no class {text!r}; the classes are {', '.join(names)}")


def as_network(
    model: nn.Module, data: Dataset, classes: Sequence[str], low: float = -1.0, high: float = 1.0
) -> Network:
    """A trained model as a network that takes images of the data's shape, and knows its classes.

    Args:
        model: Trained on flat images with pixels in [-1, 1]; other pixels are brought there in front of it.
        data: What it was trained on.
        classes: Their names.
        low: The lowest value of a pixel that the network takes.
        high: The highest.

    Returns:
        The network.
    """
    flat = load(model, input_shape=(data.n_features,))
    middle, half = (None, None) if (low, high) == (-1, 1) else ((low + high) / 2, (high - low) / 2)
    net = load(flat, input_shape=data.shape, mean=middle, std=half, classes=classes)
    about = replace(net.about, notes=(*net.about.notes, f"takes pixels in [{low:g}, {high:g}]"))
    return Network(net.nodes, net.decision, about)
