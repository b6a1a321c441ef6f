"""What stands between a user's inputs and a model's own: scale, mean, std, layout, shape, in this order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.axes import channels_of, keeps_axes, looks_channels_last, moved_first, moved_last
from elbowroom.arguments.names import Names
from elbowroom.arguments.tensors import tensor_of
from elbowroom.errors import InputError, ShapeError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.network.operations import Shape


def channels_for(shape: Shape, own: Shape, layout: str | None) -> str | None:
    """Where the user's images have their channels, "first" or "last", if the model has them at the other end; None
    where nothing is to be transposed. Refuses what would mix values up."""
    moved = {"first": moved_last(shape), "last": moved_first(shape)}
    fits = {end: keeps_axes(turned, own) for end, turned in moved.items()}
    if layout == "NHWC":
        # Axes of size 1 make more readings than one possible: the model's very shape first, then plain channels.
        ways = [end for end in fits if moved[end] == own] or [end for end in fits if fits[end]]
        if len(ways) == 2 and len(shape) > 2:
            flat = sum(n > 1 for n in own) <= 1  # then the model's own order is channels last
            last = looks_channels_last(shape)
            ways = ["first"] if (flat or shape[0] == 1) and not last else ["last"] if last and not flat else ways
        if len(ways) == 2 and len(shape) > 2:
            raise InputError(
                f"layout NHWC: from their sizes, {shape}, it is not clear at which end inputs have their channels; "
                "transpose them yourself, as the model takes them, and leave layout out"
            )
        if ways:
            return ways[0]
        raise InputError(
            f"layout NHWC makes inputs of shape {moved_last(shape)} of yours, {shape}, but the model takes {own}; "
            "check input_shape and layout"
        )
    if keeps_axes(shape, own):
        return None
    plain = channels_of(shape, own) if layout is None else None
    if plain is None:
        turn = '`layout="NHWC"` transposes their axes; ' if any(fits.values()) else ""
        raise ShapeError(
            f"inputs of shape {shape} do not fit the model, which takes {own}: read in row-major order their values "
            f"would be mixed up. {turn}if that order is meant, give them as rows: "
            f"`input_shape=({math.prod(shape)},)`"
        )
    return plain


def reading_notes(shape: Shape, own: Shape, channels: str | None) -> tuple[str, ...]:
    """What was taken for granted about the order of an input's values."""
    if channels is not None:
        other = "last" if channels == "first" else "first"
        return (f"the model takes channels {other}, {own}; inputs of shape {shape} are transposed for it",)
    rank, own_rank = (sum(n > 1 for n in s) for s in (shape, own))
    if rank <= 1 and own_rank > 2:
        return (f"the model takes {own}; rows of {math.prod(shape)} numbers are read as that in row-major order",)
    if rank > 2 and own_rank <= 1 and looks_channels_last(shape):
        return (f"the model takes rows of {math.prod(own)} numbers; inputs of shape {shape} are read in that order, "
                "the channels of a pixel side by side",)  # fmt: skip
    return ()


def prepare(graph: Graph, own: Network, scale: float | None, mean: Any, std: Any, channels: str | None) -> int:
    """Adds what stands between the user's inputs and the model's; returns its last node."""
    shape, at, dtype = graph.nodes[graph.input].shape, graph.input, own.dtype
    if scale is not None:
        at = graph.add(_scale(scale, dtype), at, name="scale")
    if mean is not None:
        at = graph.add(ops.Shift(-_constant("mean", mean, shape, channels, dtype)), at, name="normalise_mean")
    if std is not None:
        divisor = _constant("std", std, shape, channels, dtype)
        if not bool((divisor > 0).all()):
            raise InputError(f"std must be positive everywhere, got {std!r}")
        at = graph.add(ops.Divide(divisor), at, name="normalise_std")
    if channels is not None:
        move, name = (moved_last, "channels_last") if channels == "first" else (moved_first, "channels_first")
        at = graph.add(ops.Transpose(move(tuple(range(len(shape))))), at, name=name)
    if graph.nodes[at].shape != own.input_shape:
        at = graph.add(ops.Reshape(own.input_shape), at, name="own_shape")
    return at


def turned_names(names: Names | None, shape: Shape, channels: str | None) -> Names | None:
    """The names of the model's inputs in the user's order."""
    if names is None or channels is None:
        return names
    own, axes = (moved_last(shape), (-1, 0)) if channels == "first" else (moved_first(shape), (0, -1))
    return tuple(np.moveaxis(np.array(names, object).reshape(own), *axes).ravel())


def _scale(scale: Any, dtype: torch.dtype) -> ops.Operation:
    is_number = isinstance(scale, int | float | np.number) and not isinstance(scale, bool)
    factor = torch.tensor(float(scale) if is_number else 0.0, dtype=dtype)
    if not bool(factor.isfinite()) or factor == 0:
        raise InputError(f"scale must be a number that is not 0, got {scale!r}")
    whole = round(1 / float(scale))
    if abs(whole) > 1 and float(scale) == 1 / whole:  # 1/255 is not a floating-point number, 255 is
        return ops.Divide(torch.tensor(whole, dtype=dtype))
    return ops.Scale(factor)


def shape_of(shape: Any) -> Shape:
    valid = isinstance(shape, Sequence) and not isinstance(shape, str)
    if not valid or not all(isinstance(n, int | np.integer) and n >= 1 for n in shape):
        raise ShapeError(f"input_shape must be a tuple of positive sizes such as (784,), got {shape!r}")
    return tuple(int(n) for n in shape)


def shapes_of(shape: Any) -> tuple[Shape, ...]:
    """The shapes of several inputs; none where this is one shape. An input of one number each has the shape ()."""
    if not isinstance(shape, Sequence) or not shape or not all(isinstance(one, Sequence) for one in shape):
        return ()
    return tuple(shape_of(one) if len(one) else () for one in shape)


def _constant(name: str, value: Any, shape: Shape, channels: str | None, dtype: torch.dtype) -> Tensor:
    try:
        constant = tensor_of(value).detach().to(dtype)
    except InputError:
        raise InputError(f"{name} must hold numbers, got {value!r}") from None
    if not bool(constant.isfinite().all()):
        raise InputError(f"{name} holds NaN or infinite values")
    if constant.dim() == 1 and len(shape) > 1 and constant.shape[0] == shape[0] and channels != "last":
        constant = constant.reshape(-1, *[1] * (len(shape) - 1))  # one number per channel
    try:
        fits = torch.broadcast_shapes(constant.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise InputError(
            f"{name} of shape {tuple(constant.shape)} does not fit inputs of shape {shape}; give a number, one "
            f"number per channel (the {channels or 'first'} axis) or an array that broadcasts to the input"
        )
    return constant


__all__ = ["channels_for", "prepare", "reading_notes", "shape_of", "shapes_of", "turned_names"]
