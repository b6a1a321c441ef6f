"""Numbers per feature, from one number, one per channel, one per feature, or names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.frames import by_name
from elbowroom.arguments.tensors import tensor_of
from elbowroom.errors import InputError
from elbowroom.network.graph import Network


def named(net: Network, frozen: Any) -> Any:
    """Booleans for a list of feature names; anything else as it is."""
    names = [frozen] if isinstance(frozen, str) else frozen
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        return frozen
    known = net.about.features
    if known is None:
        raise InputError("features are frozen by name, but the network's features have none; see load(features=...)")
    for name in names:
        if name not in known:
            raise InputError(f"there is no feature {name!r}; the features are {', '.join(known)}")
    return torch.tensor([name in names for name in known]).reshape(net.input_shape)


def spread(net: Network, points: Tensor, value: Any, name: str) -> Tensor:
    """`b x n` numbers from one, one per channel (the first axis), one per feature (matched by name where they have
    names), or one per feature and input."""
    value = by_name(net, value, name)
    try:
        t = tensor_of(value).detach().to(points.device)
    except InputError:
        raise InputError(f"{name} must be numbers, got {str(value)[:60]!r}") from None
    shape = net.input_shape
    if t.dim() == 1 and len(shape) > 1:
        if len(t) == shape[0]:
            t = t.reshape(-1, *[1] * (len(shape) - 1))
        elif len(t) == net.n_inputs:
            t = t.reshape(shape)
    try:
        return t.expand(points.shape).flatten(1)
    except RuntimeError:
        raise InputError(f"{name} of shape {tuple(t.shape)} does not fit inputs of shape {shape}") from None
