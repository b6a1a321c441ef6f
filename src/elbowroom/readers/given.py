"""A model in the place of a network: read as `load` reads it, without options."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

from torch import nn

from elbowroom.arguments.frames import BY_PLACE, names_of
from elbowroom.arguments.names import few
from elbowroom.errors import InputError, warn
from elbowroom.network.graph import Network
from elbowroom.readers.load import is_sklearn, load


def network_for(model: Any, x: Any) -> Network:
    """The network of a model that is to be used with the inputs `x`, `b x ...`, a frame, or several of a module; a
    network as it is.

    Options of `load` (units, names, a task) need `load` itself.
    """
    if isinstance(model, Network):
        return model
    if isinstance(model, nn.Module):
        return _of_module(model, x)
    if isinstance(model, str | os.PathLike) or is_sklearn(model):
        return load(model)
    raise InputError(
        f"the first argument must be a Network, or a model that er.load reads as it is; got {type(model).__name__}"
    )


def _of_module(model: nn.Module, x: Any) -> Network:
    several = list(x) if isinstance(x, tuple) else []
    if isinstance(x, Mapping):
        parameters = list(inspect.signature(model.forward).parameters)
        if strange := [str(key) for key in x if key not in parameters]:
            raise InputError(f"x: the forward of {type(model).__name__} takes {few(parameters)}, not {few(strange)}")
        several = [x[name] for name in parameters if name in x]
    if several and all(len(getattr(one, "shape", ())) > 0 for one in several):
        return load(model, input_shape=tuple(tuple(one.shape[1:]) for one in several))
    shape = tuple(getattr(x, "shape", ()))
    if len(shape) < 2:
        raise InputError(
            "of a torch module, the shape of one input is that of `x` without its first axis, so that `x` must be "
            "a batch; or read the module with er.load(module, input_shape=...)"
        )
    net = load(model, input_shape=shape[1:])
    names = names_of(x)
    if names is None or net.about.table is None:
        return net
    warn(BY_PLACE.format("x"))
    return load(model, input_shape=shape[1:], features=names)


__all__ = ["network_for"]
