"""`load`: any model that can be read, as a `Network`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elbowroom.errors import InputError
from elbowroom.network.files import SUFFIX, load_network
from elbowroom.network.from_torch import dtype_of, from_torch
from elbowroom.network.graph import Graph, Network
from elbowroom.network.operations import Divide, Shape, Shift


def load(
    model: nn.Module | Network | str | os.PathLike[str],
    input_shape: Sequence[int] | None = None,
    mean: Any = None,
    std: Any = None,
    decision: str | None = None,
) -> Network:
    """Reads a model as a `Network`.

    `model`: a `torch.nn.Module`, read in eval mode and left as it is, a `Network`, or the path of a file that
    `save_network` wrote.
    `input_shape`: the shape of one input, without the batch axis; needed for a module.
    `mean`, `std`: where the model was trained on `(x - mean) / std`, give them here: the division becomes
    part of the network, and inputs, regions and results stay in the raw units of `x`. A number, one
    number per channel (the first axis) or an array that broadcasts to `input_shape`; rounded to the type of
    the model's parameters (float32 for all but float64 models).
    `decision`: "max" where the largest output decides, "min" where the smallest does. By default "max", or
    the decision of the given `Network`.
    """
    shape = None if input_shape is None else _shape(input_shape)
    if isinstance(model, str | os.PathLike) and os.fspath(model).endswith(SUFFIX):
        model = load_network(model)
    if isinstance(model, Network):
        if shape not in (None, model.input_shape):
            raise InputError(f"input_shape is {shape}, but the network takes {model.input_shape}")
        graph = Graph(model.input_shape)
        at = _normalise(graph, mean, std, model.dtype)
        numbers = [at]
        for node in model.nodes[1:]:
            numbers.append(graph.add(node.op, *(numbers[j] for j in node.inputs), name=node.name))
        return graph.network(numbers[-1], model.decision if decision is None else decision)
    if isinstance(model, nn.Module):
        if shape is None:
            raise InputError("input_shape is needed to read a torch module, e.g. input_shape=(1, 28, 28)")
        graph = Graph(shape)
        at = _normalise(graph, mean, std, torch.promote_types(dtype_of(model), torch.float32))
        return graph.network(from_torch(model, graph, at), "max" if decision is None else decision)
    what = f"the file {os.fspath(model)!r}" if isinstance(model, str | os.PathLike) else type(model).__name__
    raise InputError(f"cannot load {what}: only torch.nn.Module and Network objects and {SUFFIX} files are read so far")


def _shape(shape: Any) -> Shape:
    valid = isinstance(shape, Sequence) and not isinstance(shape, str)
    if not valid or not all(isinstance(n, int | np.integer) and n >= 1 for n in shape):
        raise InputError(f"input_shape must be a tuple of positive sizes such as (784,), got {shape!r}")
    return tuple(int(n) for n in shape)


def _normalise(graph: Graph, mean: Any, std: Any, dtype: torch.dtype) -> int:
    at = graph.input
    if mean is not None:
        at = graph.add(Shift(-_constant("mean", mean, graph, dtype)), at, name="normalise_mean")
    if std is not None:
        divisor = _constant("std", std, graph, dtype)
        if not bool((divisor > 0).all()):
            raise InputError(f"std must be positive everywhere, got {std!r}")
        at = graph.add(Divide(divisor), at, name="normalise_std")
    return at


def _constant(name: str, value: Any, graph: Graph, dtype: torch.dtype) -> Tensor:
    shape = graph.nodes[graph.input].shape
    try:
        constant = torch.as_tensor(np.asarray(value, dtype=np.float64)).to(dtype)
    except (TypeError, ValueError):
        raise InputError(f"{name} must hold numbers, got {value!r}") from None
    if not bool(constant.isfinite().all()):
        raise InputError(f"{name} holds NaN or infinite values")
    if constant.dim() == 1 and len(shape) > 1 and constant.shape[0] == shape[0]:
        constant = constant.reshape(-1, *[1] * (len(shape) - 1))  # one number per channel
    try:
        fits = torch.broadcast_shapes(constant.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise InputError(
            f"{name} of shape {tuple(constant.shape)} does not fit inputs of shape {shape}; give a number, one "
            "number per channel (the first axis) or an array that broadcasts to the input"
        )
    return constant
