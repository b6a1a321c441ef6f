"""A model in the place of a network: read as `load` reads it, without options."""

from __future__ import annotations

import os
from typing import Any

from torch import nn

from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.readers.load import is_sklearn, load


def network_for(model: Any, x: Any) -> Network:
    """The network of a model that is to be used with the inputs `x`, `b x ...` or a frame; a network as it is.

    Options of `load` (units, names, a task) need `load` itself.
    """
    if isinstance(model, Network):
        return model
    if isinstance(model, nn.Module):
        shape = tuple(getattr(x, "shape", ()))
        if len(shape) < 2:
            raise InputError(
                "of a torch module, the shape of one input is that of `x` without its first axis, so that `x` must be "
                "a batch; or read the module with er.load(module, input_shape=...)"
            )
        return load(model, input_shape=shape[1:])
    if isinstance(model, str | os.PathLike) or is_sklearn(model):
        return load(model)
    raise InputError(
        f"the first argument must be a Network, or a model that er.load reads as it is; got {type(model).__name__}"
    )


__all__ = ["network_for"]
