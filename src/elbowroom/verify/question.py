"""Questions about a model: the network that a query is about, and the query that a box stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.axes import keeps_axes
from elbowroom.claim.query import Query, box_query
from elbowroom.claim.specification import label_stays
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.readers.load import load


def load_for(query: Query, model: Any, trust_pickle: bool = False) -> Network:
    """The model as a query means it: its own inputs, and its own outputs.

    A softmax at the end may be left off where the query only compares outputs, and only there.

    Args:
        query: The query.
        model: The model, as in `load`.
        trust_pickle: Read also files that run code when they are read, as in `load`.

    Returns:
        The network.
    """
    return load(model, task=None if query.only_compares else "regression", trust_pickle=trust_pickle)


def about_box(net: Network, lower: Tensor, upper: Tensor, label: int | None = None) -> tuple[Query, int]:
    """Is the decision `label` on the whole box? The query, and the label: by default what is decided at the midpoint.

    `lower`, `upper`: corners, `*input_shape`. The model that the network was read from is compared with it there.
    """
    middle = lower / 2 + upper / 2
    if label is None:
        with torch.no_grad():
            label = int(net.decide(net(middle[None])))
    query = box_query(lower, upper, label_stays(torch.tensor([label]), net.n_outputs, net.decision))
    net.must_agree(torch.stack([middle, lower, upper]))
    return query, label


def corner(net: Network, text: str, name: str) -> Tensor:
    """A corner as a user types it: a number for all features, numbers with commas between them, or the path of a .npy
    file; `*input_shape`. `name`: what to call it in a message."""
    try:
        if Path(text).suffix == ".npy":
            values = np.load(text, allow_pickle=False).astype(np.float64)
        else:
            values = np.array([float(part) for part in text.split(",")])
    except OSError as error:
        raise InputError(f"cannot read {text}: {error.strerror or error}") from None
    except (ValueError, EOFError):
        raise InputError(
            f"{name} must be a number, numbers with commas between them or a .npy file, got {text[:60]!r}"
        ) from None
    if values.size not in (1, net.n_inputs):
        raise InputError(f"{name} has {values.size} numbers; the network takes {net.n_inputs}")
    if values.size > 1 and not keeps_axes(values.shape, net.input_shape):
        raise InputError(
            f"{name} has the shape {values.shape}; as {net.input_shape}, which the network takes, its values would be "
            f"mixed up: `input_shape={values.shape}` reads the model for inputs of that layout"
        )
    return torch.from_numpy(np.broadcast_to(values.reshape(-1), net.n_inputs).copy()).reshape(net.input_shape)
