"""`bounds`: what a network can compute on a given set of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.inputs import at_least_float32, corners_of
from elbowroom.arguments.tensors import Array
from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import in_own_modes, recordable
from elbowroom.network.graph import Network
from elbowroom.readers.given import network_for
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.memory import Budget
from elbowroom.search.regions.input_set import InputSet


@dataclass(frozen=True, eq=False)
class Interval:
    """Lower and upper bound of one layer, `b x *shape` each."""

    lower: Tensor
    upper: Tensor


@dataclass(frozen=True, eq=False)
class Bounds:
    """What the network can compute on a set of inputs.

    Attributes:
        lower: Of the outputs, `b x k`.
        upper: Of the outputs, `b x k`.
        layers: Every node by name, in the order of computation; the nodes that feed an activation have the method's
            bound, the others the interval that follows from it.
    """

    lower: Tensor
    upper: Tensor
    layers: Mapping[str, Interval]


@in_own_modes
def bounds(
    net: Network | Any,
    lower: Array | InputSet | Any,
    upper: Array | Any | None = None,
    method: str = "combined",
    memory: int | str | None = None,
) -> Bounds:
    """Bounds of every layer when the input lies in `[lower, upper]`.

    Computed in the inputs' own precision (float32 for anything shorter), and differentiable by them. Bounds are right
    in real arithmetic; floating point may move them by rounding.

    Args:
        net: The network, see `load`; or a model that `load` reads as it is, as in `certify`.
        lower: The lower corners, `b x *input_shape` or `*input_shape`, or a data frame, whose columns are matched by
            name with the network's features; or one `InputSet` (balls, rotated boxes) in place of both corners.
        upper: The upper corners, likewise.
        method: "simple", "quadratic", "combined" (the paper's), "adaptive" or "fast".
        memory: What the work may take, in bytes or as "4GiB"; default, half of what is free.

    Returns:
        The bounds of the outputs, and of every layer.

    Raises:
        InputError: An argument cannot be used as it is.

    Example:
        >>> out = er.bounds(net, x - 0.1, x + 0.1)
        >>> out.lower, out.upper            # the logits
        >>> list(out.layers)                # the names of the layers, in order
    """
    chosen = method_named(method)
    net = network_for(net, lower.center if isinstance(lower, InputSet) else lower)
    inputs = set_of(net, lower) if isinstance(lower, InputSet) else box_of(net, lower, upper)
    work = net.cast(inputs.center.dtype, inputs.center.device)
    found = Propagation(work, inputs, chosen, Budget.of(memory, inputs.center.device))
    layers = {n.name: Interval(l, u) for n, l, u in zip(net.nodes, found.lower, found.upper)}
    return Bounds(found.lower[-1], found.upper[-1], MappingProxyType(layers))


def set_of(net: Network, inputs: InputSet) -> InputSet:
    """The set, after checking that it can be one of the network's inputs; in one type, at least float32."""
    if tuple(inputs.center.shape[1:]) != net.input_shape:
        raise InputError(
            f"the set's center must have shape (batch, {', '.join(map(str, net.input_shape))}), "
            f"got {tuple(inputs.center.shape)}"
        )
    for name, t in (("center", inputs.center), ("radius", inputs.radius)):
        if not bool(torch.isfinite(t).all()):
            raise InputError(f"the set's {name} holds NaN or infinite values")
    if bool((inputs.radius < 0).any()):
        raise InputError("the set's radius must not be negative")
    dtype = at_least_float32(inputs.center.dtype, inputs.radius.dtype)
    basis = None if inputs.basis is None else recordable(inputs.basis.to(dtype))
    center, radius = (recordable(t.to(dtype)) for t in (inputs.center, inputs.radius))
    return replace(inputs, center=center, radius=radius, basis=basis)


def box_of(net: Network, lower: Array, upper: Array | None, dtype: torch.dtype | None = None) -> InputSet:
    """The boxes `[lower, upper]` as an input set, after checking what was given."""
    return InputSet.box(*corners_of(net, lower, upper, dtype))
