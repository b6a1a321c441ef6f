"""`load`: any model that can be read, as a `Network` that takes inputs as their user has them.

A reader gives the network of the model alone, in the model's own shape. What stands between the user's numbers and
the model's is put in front here, in this order: scale, mean, std, layout, shape.

Names are kept: where a model has names for its features, nothing gives them other ones by their place.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elbowroom.arguments.axes import channels_of, keeps_axes, looks_channels_last, moved_first, moved_last
from elbowroom.arguments.names import Names, class_names, feature_names
from elbowroom.arguments.tensors import tensor_of
from elbowroom.errors import InputError, ShapeError
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network import operations as ops
from elbowroom.network.file import SUFFIX, load_network
from elbowroom.network.graph import About, Graph, Network, Origin, Source
from elbowroom.network.operations import Shape
from elbowroom.readers.two_classes import two_classes

TASKS = ("classification", "regression")
LAYOUTS = ("NCHW", "NHWC")
_FILES = (".onnx", ".pt2", SUFFIX)
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib")


@in_own_modes
def load(
    model: Any,
    input_shape: Sequence[int] | None = None,
    mean: Any = None,
    std: Any = None,
    decision: str | None = None,
    *,
    scale: float | None = None,
    layout: str | None = None,
    task: str | None = None,
    features: Sequence[str] | Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
    trust_pickle: bool = False,
) -> Network:
    """Reads a model as a `Network`.

    Where the model takes `(scale * x - mean) / std`, give these three here: they become part of the network, and
    inputs, regions and results stay in the raw units of `x`. Mean and std are numbers, one number per channel (your
    first axis; your last one, where the model takes channels first and you have them last) or arrays that broadcast to
    `input_shape`, rounded to the type of the model's parameters (float32 for all but float64 models).

    Args:
        model: A `torch.nn.Module`, read in eval mode and left as it is; a fitted scikit-learn `MLPClassifier` or
            `MLPRegressor`, alone or in a pipeline behind scalers; a `Network`; or the path of a file: `.onnx`, `.pt2`
            (saved by `torch.export.save`), `.elbowroom` (saved by `save_network`).
        input_shape: The shape of one input as you have it, without the batch axis; needed for a module, which is then
            called with inputs of this shape (transposed for `layout` "NHWC"). By default the model's own shape. A model
            may take another shape of the same size that has the same axes: rows for images or images for rows, read in
            row-major order, and axes of size 1 more or less. Never across an order of axes: flatten inputs first if
            that is meant.
        mean: What is subtracted, see above.
        std: What is divided by, see above.
        decision: "max" where the largest output decides, "min" where the smallest does. By default "max", or the
            decision of the given `Network`.
        scale: What inputs are multiplied by first, see above. A scale of 1/255 is a division by 255.
        layout: "NHWC" where the model takes images with channels last and you have them first, or the reverse; "NCHW"
            where axes are to stay as they are. By default a model that takes `(H, W, C)` where you have `(C, H, W)`, or
            the reverse, gets them transposed where the sizes leave no doubt, and `network.about.notes` says so.
        task: "classification" or "regression"; by default what a scikit-learn model is for, nothing (the network as it
            is) for a `Network` and its file, and classification for all others. A classifier with one output, a logit
            or a probability, becomes one with two classes; a softmax at the end is left off, since it does not change
            which output is largest. Such changes are named in `network.about.notes`.
        features: Names of the inputs, flat, in your order, for tables and pictures: data with names are matched by
            them. A model that has names itself keeps them, and refuses others; a mapping {its name: yours} renames
            some.
        classes: Names, in the order of the model's outputs; by default those that the model has itself.
        trust_pickle: Read also files that run code when they are read (`.pt`, `.pth`, `.pkl`, `.joblib`): only from
            people you trust.

    Returns:
        The network, compared with the model at a few inputs.

    Raises:
        InputError: An argument does not fit the model, or the file cannot be read.
        UnsupportedError: The model has operations that are not covered (all are named), or computes something else than
            what was read.

    Example:
        >>> net = er.load("model.onnx", input_shape=(1, 28, 28), mean=0.5, std=0.5)
    """
    shape = None if input_shape is None else _shape(input_shape)
    for name, value, known in (("layout", layout, LAYOUTS), ("task", task, TASKS)):
        if value is not None and value not in known:
            raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    if layout == "NHWC" and shape is not None and len(shape) < 2:
        raise InputError(f"layout NHWC needs inputs with channels first, such as (3, 32, 32), got {shape}")
    own, task = _read(model, shape, layout, task, trust_pickle)
    if decision is None:
        decision = own.decision
    if task == "classification" and own.n_outputs == 1:
        if decision == "min":
            raise InputError("the model has one output, of which the smallest cannot decide; leave decision at max")
        own = two_classes(own)
    if shape is None:
        shape = own.input_shape
        if layout == "NHWC":
            if len(shape) < 2:
                raise InputError(f"layout NHWC needs input_shape, since the model takes inputs of shape {shape}")
            shape = moved_first(shape)
    if math.prod(shape) != own.n_inputs:
        raise ShapeError(f"inputs of shape {shape} do not fit the model, which takes {own.input_shape}")
    channels = _channels(shape, own.input_shape, layout)
    graph = Graph(shape)
    at = _prepare(graph, own, scale, mean, std, channels)
    notes = own.about.notes
    if layout is None or channels is not None:
        notes += _reading(shape, own.input_shape, channels)
    options = {
        "input_shape": shape, "mean": mean, "std": std, "decision": decision, "scale": scale, "layout": layout,
        "task": task,
    }  # fmt: skip
    about = About(
        origin=_origin(model, own, options),
        features=feature_names(_turned_names(own.about.features, shape, channels), features, math.prod(shape)),
        table=own.about.table,
        classes=class_names(own.about.classes, classes, own.n_outputs),
        notes=notes,
        cut=own.about.cut,
    )
    return graph.network(graph.append(own, at), decision, about, _prepared_source(graph, at, own))


def _origin(model: Any, own: Network, options: dict[str, Any]) -> Origin | None:
    """Where the network comes from: what was read, how, and what its reader compared it with."""
    told = {name: _plain(value) for name, value in options.items() if value is not None}
    compared = () if own.about.origin is None else own.about.origin.compared
    if isinstance(model, str | os.PathLike):
        with open(model, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return Origin(Path(model).name, sha256, told, compared)
    if isinstance(model, Network):  # the same one still, if nothing was put in front
        told.pop("task", None)
        same = told == {"input_shape": list(model.input_shape), "decision": model.decision}
        return model.about.origin if same else None
    return Origin(f"{type(model).__module__}.{type(model).__qualname__}", None, told, compared)


def _plain(value: Any) -> Any:
    """As JSON holds it; numbers exactly."""
    if isinstance(value, Tensor):
        return value.detach().tolist()  # numpy takes none with a gradient, none on a GPU, no bfloat16
    return value if isinstance(value, str) else np.asarray(value).tolist()


def _prepared_source(graph: Graph, at: int, own: Network) -> Source | None:
    """The model behind what stands between the user's inputs and its own, which is node `at`."""
    if own.source is None:
        return None
    differs = own.source.differs
    flat = graph.add(ops.Reshape((-1,)), at, name="prepared")
    prepare = graph.network(flat)
    return Source(lambda x: differs(prepare(x).reshape(-1, *own.input_shape)))


def _read(
    model: Any, shape: Shape | None, layout: str | None, task: str | None, trust_pickle: bool
) -> tuple[Network, str | None]:
    """The network of the model alone, in its own shape, and the task it is for."""
    if isinstance(model, Network):
        return model, task
    if isinstance(model, nn.Module):
        from elbowroom.readers.torch.modules import read_module

        if shape is None:
            raise InputError("input_shape is needed to read a torch module, e.g. input_shape=(1, 28, 28)")
        own = moved_last(shape) if layout == "NHWC" else shape
        return read_module(model, own, task), task or "classification"
    if isinstance(model, str | os.PathLike):
        return _read_file(Path(model), shape, layout, task, trust_pickle)
    if is_sklearn(model):
        from elbowroom.readers.sklearn import read_sklearn

        return read_sklearn(model, task)
    raise InputError(
        f"cannot load {type(model).__name__}: give a torch.nn.Module, a fitted scikit-learn MLP, a Network, or the "
        f"path of an .onnx, .pt2 or {SUFFIX} file"
    )


def _read_file(
    path: Path, shape: Shape | None, layout: str | None, task: str | None, trust_pickle: bool
) -> tuple[Network, str | None]:
    suffix = path.suffix.lower()
    if suffix not in (*_FILES, *_PICKLES):
        raise InputError(f"{path}: models are read from {', '.join(_FILES)} files, and by its name this is not one")
    if path.is_dir():
        raise InputError(f"{path} is a folder, and a model is read from a file")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if suffix == SUFFIX:
        return load_network(path), task
    if suffix == ".onnx":
        from elbowroom.readers.onnx.model import read_onnx

        return read_onnx(path, task), task or "classification"
    if suffix == ".pt2":
        from elbowroom.readers.torch.program import read_program

        return read_program(path, task, trust_pickle), task or "classification"
    if not trust_pickle:
        raise InputError(
            f"{path} is a pickle, which can run any code when it is read. Export the model to ONNX (or .pt2), or, if "
            "you trust who made the file, say `trust_pickle=True`"
        )
    from elbowroom.readers.pickles import unpickle

    return _read(unpickle(path), shape, layout, task, trust_pickle)


def is_sklearn(model: Any) -> bool:
    """Whether this is an estimator of scikit-learn or derived from one, without importing it."""
    return any(kind.__module__.partition(".")[0] == "sklearn" for kind in type(model).__mro__)


def feature_names_of(model: Any, trust_pickle: bool = False) -> Names | None:
    """The names that a model, or what a file of one holds, has for its features itself; None where it has none.

    Takes what `load` takes; quick, since nothing is translated.
    """
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        suffix = path.suffix.lower() if path.is_file() else ""
        if suffix in _PICKLES and trust_pickle:
            from elbowroom.readers.pickles import unpickle

            return feature_names_of(unpickle(path))
        return load_network(path).about.features if suffix == SUFFIX else None
    if isinstance(model, Network):
        return model.about.features
    if is_sklearn(model):
        from elbowroom.readers.sklearn import names_of

        return names_of(model)
    return None


# --- what is put in front


def _channels(shape: Shape, own: Shape, layout: str | None) -> str | None:
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


def _reading(shape: Shape, own: Shape, channels: str | None) -> tuple[str, ...]:
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


def _prepare(graph: Graph, own: Network, scale: float | None, mean: Any, std: Any, channels: str | None) -> int:
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


def _turned_names(names: Names | None, shape: Shape, channels: str | None) -> Names | None:
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


def _shape(shape: Any) -> Shape:
    valid = isinstance(shape, Sequence) and not isinstance(shape, str)
    if not valid or not all(isinstance(n, int | np.integer) and n >= 1 for n in shape):
        raise ShapeError(f"input_shape must be a tuple of positive sizes such as (784,), got {shape!r}")
    return tuple(int(n) for n in shape)


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


__all__ = ["LAYOUTS", "TASKS", "feature_names_of", "is_sklearn", "load"]
