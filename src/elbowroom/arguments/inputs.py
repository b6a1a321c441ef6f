"""Inputs, boxes and labels as users give them, as tensors that fit a network."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.axes import channels_of
from elbowroom.arguments.frames import Taken, inputs_of
from elbowroom.arguments.names import by_value, few
from elbowroom.arguments.tensors import Array, tensor_of
from elbowroom.errors import InputError, warn
from elbowroom.network.graph import Network
from elbowroom.network.levels import words
from elbowroom.network.table import Table

_EXACT = 2.0**53  # from here on float64 does not tell whole numbers apart


def labels_of(net: Network, labels: Array, batch: int) -> Tensor:
    """Labels as a vector of `batch` numbers of outputs, or an `InputError`; text is the name of a class.

    Numbers are those of outputs; where they cannot be, and all are names of classes (as -1 and 1 are), these.
    """
    known = net.about.classes or ()
    named = None if not known or isinstance(labels, Tensor) else _by_class(known, labels)
    given = tensor_of(labels if named is None else named)
    if given.is_floating_point() and not bool((given == given.round()).all()):
        raise InputError("labels must be whole numbers")
    if given.numel() and not bool((given.abs() < _EXACT).all()):
        raise InputError("labels must be smaller than 2^53: give names of classes as text")
    given = given.to(torch.long).reshape(-1)
    if named is None and given.numel():
        if not 0 <= int(given.min()) <= int(given.max()) < net.n_outputs:
            given = _numbers_as_names(known, given, net.n_outputs)
        else:
            _say_what_numbers_are(known, given, _is_boolean(labels))
    if len(given) not in (1, batch):
        raise InputError(f"got {len(given)} labels for {batch} inputs")
    return given.expand(batch)


def _is_boolean(labels: Array) -> bool:
    return labels.dtype == torch.bool if isinstance(labels, Tensor) else np.asarray(labels).dtype == np.bool_


def _say_what_numbers_are(known: tuple[str, ...], given: Tensor, boolean: bool) -> None:
    """Warns where labels, which are numbers of outputs, are the names of other outputs' classes as well."""
    present = given.unique().tolist()
    texts = [str(bool(k)) if boolean else str(k) for k in present]
    meant = {text: text for text in texts if text in known} if boolean else by_value(texts, known)
    if len(meant) == len(texts) and any(known.index(meant[text]) != k for text, k in zip(texts, present)):
        warn(
            f"labels that are numbers are those of outputs, 0 to {max(len(known) - 1, 0)}; the network's classes are "
            f"called {few(known)}: give these names as text if they are meant"
        )


def _numbers_as_names(known: tuple[str, ...], given: Tensor, n_outputs: int) -> Tensor:
    """Numbers of which some are none of an output, as those of the outputs whose classes have these names, if all do
    and none is the number of another output as well (what a number means must not depend on the others); else as they
    are, which is refused elsewhere."""
    present = given.unique().tolist()
    meant = by_value([str(k) for k in present], known)
    if len(meant) < len(present):
        return given
    number = {k: known.index(meant[str(k)]) for k in present}
    if any(0 <= k < n_outputs and number[k] != k for k in present):
        return given
    warn(
        f"labels that are numbers are those of outputs, 0 to {n_outputs - 1}; these are not, and were taken as the "
        f"names of classes that they are, {few(known)}: give names as text to say so"
    )
    return torch.tensor([number[k] for k in given.tolist()], dtype=torch.long, device=given.device)


def _by_class(known: tuple[str, ...], labels: Array) -> np.ndarray | None:
    """Names of classes as the numbers of their outputs; None where labels are not text."""
    try:
        names = np.asarray(labels).reshape(-1).tolist()
    except ValueError:  # rows of different lengths, which is said elsewhere
        return None
    if not names or not all(isinstance(name, str) for name in names):
        return None
    for name in names:
        if name not in known:
            raise InputError(f"there is no class {name!r}; the network's classes are {few(known)}")
    return np.array([known.index(name) for name in names], dtype=np.int64)


def corners_of(
    net: Network, lower: Array, upper: Array | None, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """The corners, `b x *input_shape`, after checking what was given. `dtype`: default, the wider one's, at least
    float32."""
    if upper is None:
        raise InputError("bounds need a lower and an upper corner (or one InputSet)")
    ends = _corner(net, lower, "lower"), _corner(net, upper, "upper")
    low, high = (tensor_of(end.values) for end in ends)
    dtype = dtype or at_least_float32(low.dtype, high.dtype)
    low, high = batched(net, low.to(dtype), "lower"), batched(net, high.to(dtype), "upper")
    if low.shape != high.shape:
        raise InputError(f"lower has shape {tuple(low.shape)}, upper {tuple(high.shape)}")
    for name, t in (("lower", low), ("upper", high)):
        if not bool(torch.isfinite(t).all()):
            raise InputError(f"{name} holds NaN or infinite values")
    if net.about.table is not None and any(end.encoded for end in ends):
        _refuse_ranges_of_categories(net.about.table, low.flatten(1), high.flatten(1))
    crossed = (low > high).nonzero()
    if len(crossed):
        raise InputError(f"lower is above upper at {len(crossed)} places, first at {crossed[0].tolist()}")
    return low, high


def _corner(net: Network, value: Array, name: str) -> Taken:
    found = inputs_of(net, value, name, points=False)
    for why in found.faults.values():
        raise InputError(f"{name}: {why}")
    return found


def _refuse_ranges_of_categories(table: Table, low: Tensor, high: Tensor) -> None:
    """Between two categories there is nothing; corners `b x n`, of which those of numbers may differ."""
    for column, place in zip(table.columns, table.places):
        differ = (low[:, place] != high[:, place]).any(1).nonzero() if column.levels is not None else ()
        for row in [int(k) for k in differ][:1]:
            a, b = (words(column, t[row, place].tolist()) for t in (low, high))
            raise InputError(
                f"row {row}: {column.name!r} is {a!r} in lower and {b!r} in upper, and between categories there is no "
                "range: give the same one in both corners, and a box for each that is meant. (er.certify finds which "
                "categories leave the decision as it is.)"
            )


def at_least_float32(*dtypes: torch.dtype) -> torch.dtype:
    return functools.reduce(torch.promote_types, dtypes, torch.float32)


def points_of(net: Network, x: Any, where: torch.device) -> tuple[Taken, Tensor]:
    """What was given as `x`, and the inputs in it, at least one, `b x *input_shape`, in float64 where work is done."""
    given = inputs_of(net, x, "x")
    points = batched(net, tensor_of(given.values).detach(), "x").to(device=where, dtype=torch.float64)
    if not len(points):
        raise InputError("x holds no inputs")
    return given, points


def batched(net: Network, t: Tensor, name: str) -> Tensor:
    """`t` with a batch axis, or an `InputError` where its shape is not the network's."""
    if not isinstance(net, Network):
        raise InputError(f"the first argument must be a Network; make one with er.load, got {type(net).__name__}")
    if tuple(t.shape) == net.input_shape:
        t = t[None]
    if tuple(t.shape[1:]) != net.input_shape or t.dim() == 0:
        one = next((s for s in (tuple(t.shape[1:]), tuple(t.shape)) if channels_of(s, net.input_shape)), None)
        hint = "" if one is None else f"; er.load(net, input_shape={one}) takes inputs of that layout"
        raise InputError(
            f"{name} must have shape {net.input_shape} or (batch, "
            f"{', '.join(map(str, net.input_shape))}), got {tuple(t.shape)}{hint}"
        )
    return t
