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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from elbowroom.arguments.axes import moved_first, moved_last
from elbowroom.arguments.kinds import declared, names_or_kinds
from elbowroom.arguments.names import Names, class_names, printable
from elbowroom.errors import InputError, ShapeError
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network import operations as ops
from elbowroom.network.file import SUFFIX, load_network
from elbowroom.network.graph import About, Graph, Network, Origin, Source
from elbowroom.network.operations import Shape
from elbowroom.readers.columns import refuse_in_front, with_names
from elbowroom.readers.front import channels_for, prepare, reading_notes, shape_of, shapes_of, turned_names
from elbowroom.readers.two_classes import thresholded, two_classes

TASKS = ("classification", "regression")
LAYOUTS = ("NCHW", "NHWC")
_FILES = (".onnx", ".pt2", SUFFIX)
_LIKE_SKLEARN = ("sklearn", "xgboost", "lightgbm", "catboost")
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib")
# Other libraries, by the packages that their classes lie in and by the endings of their files: what to call a model of
# theirs, and what to give instead.
_AS_ONNX = "export it to ONNX, and give that file"
_LIBRARIES = {
    "keras": ("a model of Keras", f"{_AS_ONNX}: model.export('model.onnx', format='onnx'), or tf2onnx"),
    "tensorflow": ("a model of TensorFlow", f"{_AS_ONNX}: tf2onnx"),
    "jax": ("a function of JAX", f"{_AS_ONNX}: jax2tf and tf2onnx"),
    "flax": ("a module of Flax", f"{_AS_ONNX}: jax2tf and tf2onnx"),
    "equinox": ("a module of Equinox", f"{_AS_ONNX}: jax2tf and tf2onnx"),
    "skorch": ("a net of skorch", "give its torch module, net.module_"),
    "fastai": ("a learner of fastai", "give its torch module, learn.model"),
    "onnx": ("an ONNX model in memory", "save it, and give that file: onnx.save(model, 'model.onnx')"),
    "onnxruntime": ("a session of onnxruntime", "give the path of its .onnx file"),
    "statsmodels": ("a model of statsmodels", "fit the same in scikit-learn, and give that"),
    "mxnet": ("a model of MXNet", _AS_ONNX),
    "paddle": ("a model of PaddlePaddle", f"{_AS_ONNX}: paddle2onnx"),
    "mlx": ("a module of MLX", "give the same network as a torch module, or as ONNX"),
}
_ENDINGS = {
    ".keras": "keras", ".h5": "keras", ".pb": "tensorflow", ".tflite": "tensorflow", ".pdmodel": "paddle",
}  # fmt: skip


@in_own_modes
def load(
    model: Any,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    mean: Any = None,
    std: Any = None,
    decision: str | None = None,
    *,
    scale: float | None = None,
    layout: str | None = None,
    task: str | None = None,
    features: Sequence[str] | Mapping[str, Any] | None = None,
    classes: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
    threshold: float | None = None,
    trust_pickle: bool = False,
) -> Network:
    """Reads a model as a `Network`.

    Where the model takes `(scale * x - mean) / std`, give these three here: they become part of the network, and
    inputs, regions and results stay in the raw units of `x`. Mean and std are numbers, one number per channel (your
    first axis; your last one, where the model takes channels first and you have them last) or arrays that broadcast to
    `input_shape`, rounded to the type of the model's parameters (float32 for all but float64 models).

    Columns of a module's inputs that an `Embedding` looks up are codes of categories: the network then takes rows of a
    table (`network.about.table`), and so it does where a module takes several tensors. Inputs are given as the module
    takes them: rows of its columns, or a tuple or mapping of its tensors.

    Args:
        model: A `torch.nn.Module`, read in eval mode and left as it is; a fitted scikit-learn model (linear, or a
            perceptron), alone or at the end of a pipeline of scalers, encoders and the like; a `Network`; or the path
            of a file: `.onnx`, `.pt2` (saved by `torch.export.save`), `.elbowroom` (saved by `save_network`).
        input_shape: The shape of one input as you have it, without the batch axis; needed for a module, which is then
            called with inputs of this shape (transposed for `layout` "NHWC"). By default the model's own shape. A model
            may take another shape of the same size that has the same axes: rows for images or images for rows, read in
            row-major order, and axes of size 1 more or less. Never across an order of axes: flatten inputs first if
            that is meant. Of a module that takes several tensors, the shape of each, such as `((2,), (3,))`.
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
        features: A list: names of the inputs, flat, in your order, for tables and pictures; data with names are matched
            by them. A model that has names itself keeps them, and refuses others; a mapping {its name: yours} renames
            some. Or declarations: a mapping from names to what features are, such as {"age": "whole number", "job":
            {"kind": "category", "columns": ["job_a", "job_b"]}}; see `certify` and docs/tables.md. A mapping that
            names a kind anywhere is one of declarations; for both, load the names and give `certify` the kinds.
        classes: Names, in the order of the model's outputs; by default those that the model has itself.
        units: Of features that are numbers, by their names, such as {"age": "years"}: for tables and pictures.
        threshold: Of a classifier with two classes that gives probabilities: decide the second one where its
            probability is at least this, instead of 1/2.
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
    several = shapes_of(input_shape)
    shape = None if input_shape is None or several else shape_of(input_shape)
    for name, value, known in (("layout", layout, LAYOUTS), ("task", task, TASKS)):
        if value is not None and value not in known:
            raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    if layout == "NHWC" and shape is not None and len(shape) < 2:
        raise InputError(f"layout NHWC needs inputs with channels first, such as (3, 32, 32), got {shape}")
    own, task = _read(model, _Told(shape, several, layout, task, features, trust_pickle))
    if decision is None:
        decision = own.decision
    if task == "classification" and own.n_outputs == 1:
        if decision == "min":
            raise InputError("the model has one output, of which the smallest cannot decide; leave decision at max")
        own = two_classes(own)
    if threshold is not None:
        own = thresholded(own, threshold, decision)
    given = several or shape
    shape = _own_shape(own, layout, shape)
    if math.prod(shape) != own.n_inputs:
        raise ShapeError(f"inputs of shape {shape} do not fit the model, which takes {own.input_shape}")
    channels = channels_for(shape, own.input_shape, layout)
    refuse_in_front(own.about.table, channels, scale=scale, mean=mean, std=std)
    graph = Graph(shape)
    at = prepare(graph, own, scale, mean, std, channels)
    notes = own.about.notes
    if layout is None or channels is not None:
        notes += reading_notes(shape, own.input_shape, channels)
    options = {
        "input_shape": given or shape, "mean": mean, "std": std, "decision": decision, "scale": scale, "layout": layout,
        "task": task, "units": units, "threshold": threshold,
    }  # fmt: skip
    names = turned_names(own.about.features, shape, channels)
    called, kinds = names_or_kinds(features)
    names, table = with_names(names, own.about.table, called, units, math.prod(shape))
    about = About(
        origin=_origin(model, own, options),
        features=names,
        table=table,
        classes=class_names(own.about.classes, classes, own.n_outputs),
        notes=notes,
        cut=own.about.cut,
    )
    found = graph.network(graph.append(own, at), decision, about, _prepared_source(graph, at, own))
    return found if kinds is None else declared(found, kinds)


@dataclass(frozen=True)
class _Told:
    """What a reader is told: of `load`'s arguments those that it needs. `several`: a shape for each of several
    inputs."""

    shape: Shape | None
    several: tuple[Shape, ...]
    layout: str | None
    task: str | None
    features: Any
    trust_pickle: bool

    @property
    def names(self) -> list[str] | None:
        """Of columns, for a model that has none itself."""
        listed = isinstance(self.features, Sequence) and not isinstance(self.features, str)
        return list(printable(self.features)) if listed else None


def _own_shape(own: Network, layout: str | None, given: Shape | None) -> Shape:
    """The shape of one input: as given, else as a user has it who gave none. Of a table that is of its columns, which
    take as many entries as they have codes."""
    table = own.about.table
    if given is not None and (table is None or given != (len(table.columns),)):
        return given
    if layout != "NHWC":
        return own.input_shape
    if len(own.input_shape) < 2:
        raise InputError(f"layout NHWC needs input_shape, since the model takes inputs of shape {own.input_shape}")
    return moved_first(own.input_shape)


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
    if isinstance(value, Mapping):
        return {str(name): str(unit) for name, unit in value.items()}
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return [list(shape) for shape in value]
    return value if isinstance(value, str) else np.asarray(value).tolist()


def _prepared_source(graph: Graph, at: int, own: Network) -> Source | None:
    """The model behind what stands between the user's inputs and its own, which is node `at`."""
    if own.source is None:
        return None
    differs = own.source.differs
    flat = graph.add(ops.Reshape((-1,)), at, name="prepared")
    prepare = graph.network(flat)
    return Source(lambda x: differs(prepare(x).reshape(-1, *own.input_shape)))


def _read(model: Any, told: _Told) -> tuple[Network, str | None]:
    """The network of the model alone, in its own shape, and the task it is for."""
    shape, task = told.shape, told.task
    if isinstance(model, nn.Module) and told.several:
        from elbowroom.readers.torch.modules import read_module

        return read_module(model, told.several, task, told.names), task or "classification"
    if told.several and not (isinstance(model, str | os.PathLike) and Path(model).suffix.lower() in _PICKLES):
        raise InputError(f"input_shape: one shape is needed; several are for torch modules, got {told.several}")
    if isinstance(model, Network):
        return model, task
    if isinstance(model, nn.Module):
        from elbowroom.readers.torch.modules import read_module

        if shape is None:
            raise InputError("input_shape is needed to read a torch module, e.g. input_shape=(1, 28, 28)")
        own = moved_last(shape) if told.layout == "NHWC" else shape
        return read_module(model, own, task, told.names), task or "classification"
    if isinstance(model, str | os.PathLike):
        return _read_file(Path(model), told)
    if is_sklearn(model):
        from elbowroom.readers.sklearn.model import read_sklearn

        return read_sklearn(model, task)
    for kind in type(model).__mro__:
        known = _LIBRARIES.get(kind.__module__.partition(".")[0])
        if known is not None:
            raise InputError(f"{type(model).__name__} is {known[0]}, which is not read: {known[1]}")
    raise InputError(
        f"cannot load {type(model).__qualname__}: give a torch.nn.Module, a fitted scikit-learn model, a Network, or "
        f"the path of an .onnx, .pt2 or {SUFFIX} file"
    )


def _read_file(path: Path, told: _Told) -> tuple[Network, str | None]:
    suffix, task = path.suffix.lower(), told.task
    if suffix in _ENDINGS:
        what, instead = _LIBRARIES[_ENDINGS[suffix]]
        raise InputError(f"{path}: by its name this is {what}, which is not read: {instead}")
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

        return read_program(path, task, told.trust_pickle, told.names), task or "classification"
    if not told.trust_pickle:
        raise InputError(
            f"{path} is a pickle, which can run any code when it is read. Export the model to ONNX (or .pt2), or, if "
            "you trust who made the file, say `trust_pickle=True`"
        )
    from elbowroom.readers.pickles import held_by, unpickle

    model = unpickle(path)
    with held_by(path):
        return _read(model, told)


def is_sklearn(model: Any) -> bool:
    """Whether this is an estimator of scikit-learn, derived from one or used like one, without importing it."""
    return any(kind.__module__.partition(".")[0] in _LIKE_SKLEARN for kind in type(model).__mro__)


def feature_names_of(model: Any, trust_pickle: bool = False) -> Names | None:
    """The names that a model, or what a file of one holds, has for its features itself; None where it has none.

    Takes what `load` takes; quick, since nothing is translated.
    """
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        suffix = path.suffix.lower() if path.is_file() else ""
        if suffix in _PICKLES and trust_pickle:
            from elbowroom.readers.pickles import held_by, unpickle

            model = unpickle(path)
            with held_by(path):
                return feature_names_of(model)
        return load_network(path).about.features if suffix == SUFFIX else None
    if isinstance(model, Network):
        return model.about.features
    if is_sklearn(model):
        from elbowroom.readers.sklearn.model import names_of

        return names_of(model)
    return None


__all__ = ["LAYOUTS", "TASKS", "feature_names_of", "is_sklearn", "load"]
