"""Reads programs that `torch.export.save` wrote (`.pt2`), without running code from the file.

`torch.export.load` would run some: it unpickles example inputs, older files' weights and custom objects, evaluates
symbolic sizes as Python expressions, takes operations from anywhere in torch, and loads compiled libraries. Here the
file gives two things only: a list of calls, in JSON, of which each must be on a list of ATen operations; and tensors,
raw or by torch's restricted unpickler. The calls are run as a module, which is traced like any other: this frees the
program of its example's batch size as well.

The network is compared with these calls, at the batch size that the program was exported for (`torch_guard.py`). This
shows that they were translated rightly and that the inputs of a batch are independent. It does not show that the calls
were decoded rightly (their values must have the shapes and types that the file states), nor anything of the module
that was exported: torch.export takes a batch for larger than 1, so that a module with a way of its own for a batch of
one loses it on the way into the file.
"""

from __future__ import annotations

import contextlib
import io
import math
import operator
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.files import Archive, parse_json
from elbowroom.network.file import LARGEST
from elbowroom.network.graph import Network
from elbowroom.network.operations import Shape
from elbowroom.readers.reading import first_line
from elbowroom.readers.torch import aten
from elbowroom.readers.torch.modules import trace
from elbowroom.readers.torch.trace import WITHOUT_BOUND

SCHEMA = 8  # the major version of the JSON schema that torch 2.6 and later write

# What programs hold before their operations are broken down to those with a bound here.
_ALSO = {
    "absolute", "alpha_dropout", "arange", "arctan", "batch_norm", "broadcast_to", "clip", "concat", "concatenate",
    "divide", "expand_as", "feature_dropout", "full", "log_sigmoid_forward", "moveaxis", "movedim", "multiply",
    "narrow", "native_dropout", "negative", "ones", "reshape_as", "scalar_tensor", "subtract", "swapaxes", "swapdims",
    "sym_size", "tensor_split", "to", "true_divide", "view_as", "zeros",
}  # fmt: skip
# They say what may be relied on, and compute nothing.
_ASSERTIONS = {
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size",
}  # fmt: skip
# Arithmetic with sizes.
_OPERATORS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "getitem")
}
_GIVES_SIZE = {"view", "_unsafe_view", "reshape", "expand"}

# The schema's numbers.
_TYPES = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16, 7: torch.float32,
    8: torch.float64, 12: torch.bool, 13: torch.bfloat16,
}  # fmt: skip
_STRIDED = 7
_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}

# What reading a file of another make than torch's raises.
_DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError)


def read_program(path: Path, task: str | None = None, trust_pickle: bool = False) -> Network:
    """The saved program as a network, which takes inputs of the program's own shape (its first axis is the batch).

    Tensors that torch saved by pickle (of subclasses of its own) are read with `trust_pickle` only.
    """
    with Archive(path) as archive:
        try:
            program = _Reader(path, archive, trust_pickle).program()
        except _DAMAGE as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is damaged, or of a kind unknown here: {type(error).__name__} {error}") from None
    try:
        program.must_be_sound()
        return trace(program, program.shape, program.dtype, task, "the saved program", program.batch)
    except (InputError, UnsupportedError) as error:
        fixed = "" if program.batch is None else _FIXED.format(program.batch)
        kind = InputError if isinstance(error, InputError | _RoomError) else UnsupportedError
        raise kind(f"{path}: {error}{fixed}") from None


_FIXED = (
    "\n(The program was exported for batches of {} alone. Where that is the trouble, export it for any batch: "
    "torch.export.export(model, (x,), dynamic_shapes=({{0: torch.export.Dim.DYNAMIC}},)))"
)


class _RoomError(UnsupportedError):
    """A value of the program has too many numbers."""


@dataclass(frozen=True)
class _Name:
    """A value of the program."""

    name: str


@dataclass(frozen=True)
class _Stated:
    """What the file says of a value: None where that is nothing."""

    sizes: list[int | None]
    dtype: torch.dtype | None

    def fits(self, value: Tensor) -> bool:
        sizes = len(self.sizes) == value.dim() and all(n in (None, m) for n, m in zip(self.sizes, value.shape))
        return sizes and self.dtype in (None, value.dtype)


@dataclass(frozen=True)
class _Call:
    """One operation: arguments are constants, `_Name`s, and lists of them; `results` likewise."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any


class SavedProgram(nn.Module):
    """Runs the calls one after the other. `shape`: of one input; `batch`: the only batch size it is for, if any.

    `stated`: what the file says of its values, by name: their sizes (None for one that is an expression) and types.
    """

    def __init__(
        self, shape: Shape, batch: int | None, dtype: torch.dtype, names: tuple[str, str], calls: list[_Call],
        tensors: Mapping[str, Tensor], stated: Mapping[str, _Stated],
    ) -> None:  # fmt: skip
        super().__init__()
        self.shape, self.batch, self.dtype, self.names, self.calls = shape, batch, dtype, names, calls
        self.stated = stated
        self.buffer_names = {name: f"t{i}" for i, name in enumerate(tensors)}
        for name, tensor in tensors.items():
            self.register_buffer(self.buffer_names[name], tensor)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self._values(x)[self.names[1]]
        return outputs

    def _values(self, x: Tensor) -> dict[str, Any]:
        values: dict[str, Any] = {name: getattr(self, buffer) for name, buffer in self.buffer_names.items()}
        values[self.names[0]] = x
        computed = {self.names[0]}
        for call in self.calls:
            args = [_replace(arg, values) for arg in call.args]
            kwargs = {key: _replace(arg, values) for key, arg in call.kwargs.items()}
            inputs = _names([*call.args, *call.kwargs.values()])
            if inputs & computed:
                computed |= _names(call.results)
                # A size of the example's batch means the batch. (Where it does not, the trace finds the batch mixed.)
                if self.batch is not None and call.name in _GIVES_SIZE and args[1][:1] == [self.batch]:
                    args[1] = [x.shape[0], *args[1][1:]]
            result = call.function(*args, **kwargs)
            _assign(call.results, result, values)
            for value in result if isinstance(result, tuple | list) else [result]:
                count = value.numel() if isinstance(value, Tensor) else 0
                if type(count) is int and count > LARGEST:  # a trace counts in symbols
                    raise _RoomError(f"{call.name} would give {count} numbers, for which there is no room")
        return values

    def must_be_sound(self) -> None:
        """Refuses a program whose values would not fit into memory (a few bytes can ask for that) or are not as stated.

        The sizes and types that torch stated when it saved the program are the one thing in the file that calls which
        are read wrongly can be told by.
        """
        values: dict[str, Any] = {}
        with contextlib.suppress(*_DAMAGE), FakeTensorMode(allow_non_fake_inputs=True):
            values = self._values(torch.empty(self.batch or 2, *self.shape, dtype=self.dtype))
        for name, value in values.items():
            if name in self.stated and isinstance(value, Tensor) and not self.stated[name].fits(value):
                raise InputError(
                    f"the file states another shape or type for its value {name!r} than its calls give, which is "
                    f"{tuple(value.shape)} of {value.dtype}; the file is damaged, or read wrongly here"
                )


def _replace(arg: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(arg, list):
        return [_replace(a, values) for a in arg]
    return values[arg.name] if isinstance(arg, _Name) else arg


def _names(arg: Any) -> set[str]:
    if isinstance(arg, list):
        return {name for a in arg for name in _names(a)}
    return {arg.name} if isinstance(arg, _Name) else set()


def _assign(names: Any, result: Any, values: dict[str, Any]) -> None:
    if isinstance(names, _Name):
        values[names.name] = result
    elif isinstance(names, list):
        for name, value in zip(names, result, strict=True):
            _assign(name, value, values)


class _Reader:
    """Puts a `SavedProgram` together from the archive."""

    def __init__(self, path: Path, archive: Archive, trust_pickle: bool) -> None:
        self.path, self.archive, self.trust = path, archive, trust_pickle
        self.root = ""
        if "serialized_exported_program.json" in archive.sizes:  # torch before 2.8
            graph = "serialized_exported_program.json"
            self.weights = self._pickled("serialized_state_dict.pt")
            self.constants = self._pickled("serialized_constants.pt")
        else:
            graph = "models/model.json"
            self.root = next((name[: -len(graph)] for name in archive.sizes if name.endswith("/" + graph)), "")
            if self.root + graph not in archive.sizes:
                raise InputError(f"{path} holds no program by the name of model; save one with torch.export.save")
            if f"{self.root}byteorder" in archive.sizes and archive.read(f"{self.root}byteorder") != b"little":
                raise InputError(f"{path} was saved on a machine with the other byte order, and is not read here")
            self.weights = self._tensors("data/weights/", "weights")
            self.constants = self._tensors("data/constants/", "constants")
        self.saved = parse_json(archive.read(self.root + graph), f"{path}: {graph}")

    def program(self) -> SavedProgram:
        version = self.saved["schema_version"]["major"]
        if version != SCHEMA:
            raise InputError(
                f"{self.path}: schema version {version} is unknown; {SCHEMA} is read, of torch 2.6 and later"
            )
        graph = self.saved["graph_module"]["graph"]
        names, tensors = self._inputs(), {}
        for name, (kind, target) in names.items():
            if kind != "user_input":
                tensors[name] = self._stored(target)
        given = [name for name, (kind, _) in names.items() if kind == "user_input"]
        if len(given) != 1:
            raise InputError(
                f"{self.path} takes {len(given)} inputs ({', '.join(given)}); export one that takes one tensor"
            )
        meta = graph["tensor_values"][given[0]]
        sizes, dtype = [_size(size) for size in meta["sizes"]], _TYPES.get(meta["dtype"])
        if dtype is None or not dtype.is_floating_point:
            raise InputError(f"{self.path} takes integers ({dtype}), which have no regions; export it for real numbers")
        if not sizes or None in sizes[1:]:
            raise InputError(
                f"{self.path}: the input has no batch axis, or another axis of any size; export it with all axes but "
                "the first fixed"
            )
        return SavedProgram(
            tuple(n for n in sizes[1:] if n is not None), sizes[0], dtype, (given[0], self._output()),
            self._calls(graph["nodes"]), tensors,
            {name: _stated(about) for name, about in graph["tensor_values"].items()},
        )  # fmt: skip

    def _inputs(self) -> dict[str, tuple[str, str]]:
        """What each input of the graph is: the user's, or a stored tensor by its name."""
        found = {}
        for spec in self.saved["graph_module"]["signature"]["input_specs"]:
            kind, about = _only(spec)
            if kind == "constant_input":  # an argument left at its default, which the trace has used up
                continue
            if kind not in ("user_input", "parameter", "buffer", "tensor_constant"):
                raise InputError(f"{self.path} needs a {kind} ({str(about)[:80]}), which no network here has")
            arg = about["arg"]
            argument, named = _only(arg) if kind == "user_input" else ("as_tensor", arg)
            if argument != "as_tensor":
                raise InputError(f"{self.path} takes something else than a tensor: {str(arg)[:80]}")
            found[named["name"]] = kind, "" if kind == "user_input" else about[f"{kind}_name"]
        return found

    def _output(self) -> str:
        specs = [_only(spec) for spec in self.saved["graph_module"]["signature"]["output_specs"]]
        kinds = [kind for kind, _ in specs]
        if kinds != ["user_output"] or "as_tensor" not in specs[0][1]["arg"]:
            raise UnsupportedError(
                f"{self.path} does not just return one tensor, but gives {', '.join(kinds)}; export one that does"
            )
        name: str = specs[0][1]["arg"]["as_tensor"]["name"]
        return name

    def _calls(self, nodes: list[Any]) -> list[_Call]:
        calls, problems = [], []
        for node in nodes:
            target = node["target"]
            name = target.removeprefix("torch.ops.aten.").partition(".")[0]
            if name in _ASSERTIONS:
                continue
            try:
                calls.append(_call(name, target, node))
            except UnsupportedError as error:
                problems.append(f"{target.removeprefix('torch.ops.')} ({_place(node)}): {error}")
        if problems:
            raise UnsupportedError("\n  ".join([f"{self.path}: {WITHOUT_BOUND}", *problems]))
        return calls

    # --- tensors

    def _stored(self, name: str) -> Tensor:
        tensor = (self.weights if name in self.weights else self.constants).get(name)
        if callable(tensor):
            tensor = tensor()
        if not isinstance(tensor, Tensor):
            raise InputError(f"{self.path}: the tensor {name!r} is missing, or no tensor")
        return tensor.detach()

    def _tensors(self, folder: str, what: str) -> dict[str, Any]:
        """How to read each tensor, by its name in the program."""
        if f"{self.root}{folder}model.pt" in self.archive.sizes:  # torch 2.8
            return self._pickled(f"{self.root}{folder}model.pt")
        entry = f"{self.root}{folder}model_{what}_config.json"
        config = parse_json(self.archive.read(entry), f"{self.path}: {entry}")["config"]
        return {name: lambda about=about: self._tensor(self.root + folder, about) for name, about in config.items()}

    def _tensor(self, folder: str, about: dict[str, Any]) -> Any:
        entry = folder + about["path_name"]
        if about["use_pickle"]:
            return self._unpickle(entry)
        data, meta = self.archive.read(entry), about["tensor_meta"]
        sizes, strides = ([_number(n) for n in meta[key]] for key in ("sizes", "strides"))
        start, dtype = _number(meta["storage_offset"]), _TYPES[meta["dtype"]]
        end = start + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True)) + 1
        count = len(data) // dtype.itemsize
        if meta["layout"] != _STRIDED or len(data) % dtype.itemsize or min(start, *sizes, *strides, 0) < 0:
            raise InputError(f"{self.path}: the entry {entry!r} is no plain tensor")
        if (math.prod(sizes) and end > count) or math.prod(sizes) > LARGEST:
            raise InputError(f"{self.path}: the entry {entry!r} holds {count} numbers, too few for a tensor of {sizes}")
        flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        return flat.as_strided(sizes, strides, start).clone()

    def _pickled(self, entry: str) -> dict[str, Any]:
        found = self._unpickle(entry)
        if not isinstance(found, dict):
            raise InputError(f"{self.path}: the entry {entry!r} holds no tensors by name")
        return found

    def _unpickle(self, entry: str) -> Any:
        data = self.archive.read(entry)
        if not data:
            return {}
        try:
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=not self.trust)
        except Exception as error:
            if self.trust or not isinstance(error, pickle.UnpicklingError):
                raise InputError(f"{self.path}: the entry {entry!r} cannot be read: {first_line(error)}") from None
            raise InputError(
                f"{self.path}: the entry {entry!r} is a pickle of more than tensors, which can run any code when it is "
                "read. If you trust who made the file, say `trust_pickle=True`"
            ) from None


# --- the JSON of a call


def _call(name: str, target: str, node: dict[str, Any]) -> _Call:
    given = [(arg["name"], _argument(arg["arg"])) for arg in node["inputs"]]
    results = [_argument(result) for result in node["outputs"]]
    if not target.startswith("torch.ops.aten."):
        function = _OPERATORS.get(target.removeprefix("_operator."))
        if function is None:
            hint = "; run_decompositions() before saving may resolve it" if "higher_order" in target else ""
            raise UnsupportedError(f"not supported{hint}")
        return _Call(target, function, tuple(value for _, value in given), {}, results[0])
    plain = name[:-1] if name.endswith("_") else name  # add_ is add, in place
    if plain not in aten.NAMES | _ALSO:
        raise UnsupportedError("not supported")
    overload = getattr(getattr(torch.ops.aten, name, None), target.rpartition(".")[2], None)
    if not isinstance(overload, torch._ops.OpOverload):
        raise UnsupportedError("unknown to this version of torch")
    # Arguments by the names of torch's own schema: by place until one is left out.
    values = dict(given)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in overload._schema.arguments:
        if argument.name not in values:
            continue
        if argument.kwarg_only or len(args) + len(kwargs) < overload._schema.arguments.index(argument):
            kwargs[argument.name] = values.pop(argument.name)
        else:
            args.append(values.pop(argument.name))
    if values:
        raise UnsupportedError(f"has no argument {', '.join(values)} in this version of torch")
    return _Call(name, overload, tuple(args), kwargs, results[0] if len(results) == 1 else results)


def _argument(arg: dict[str, Any]) -> Any:
    kind, value = _only(arg)
    decode = _ARGUMENTS.get(kind)
    if decode is None:
        raise UnsupportedError(f"takes a {kind.removeprefix('as_')}")
    return decode(value)


def _each(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: [decode(value) for value in values]


def _float(value: Any) -> float:
    return float(value)  # the schema writes infinity as text


def _name(value: dict[str, Any]) -> _Name:
    return _Name(str(value["name"]))


def _symbol(value: dict[str, Any]) -> Any:
    kind, found = _only(value)
    return _Name(found) if kind == "as_name" else found


_ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "as_none": lambda _: None,
    "as_tensor": _name,
    "as_tensors": _each(_name),
    "as_optional_tensor": lambda value: _argument(value),
    "as_optional_tensors": _each(lambda value: _argument(value)),
    "as_int": int,
    "as_ints": _each(int),
    "as_float": _float,
    "as_floats": _each(_float),
    "as_bool": bool,
    "as_bools": _each(bool),
    "as_string": str,
    "as_sym_int": _symbol,
    "as_sym_ints": _each(_symbol),
    "as_sym_float": _symbol,
    "as_sym_bool": _symbol,
    "as_scalar_type": lambda value: _TYPES[value],
    "as_memory_format": lambda value: _FORMATS[value],
    "as_layout": lambda _: torch.strided,
    "as_device": lambda _: torch.device("cpu"),  # wherever it was
}


def _only(union: dict[str, Any]) -> tuple[str, Any]:
    """The schema writes a choice as an object with one key."""
    ((kind, value),) = union.items()
    return kind, value


def _stated(meta: dict[str, Any]) -> _Stated:
    return _Stated([_size(size) for size in meta["sizes"]], _TYPES.get(meta["dtype"]))


def _size(size: dict[str, Any]) -> int | None:
    """A size, or None where it is an expression (which is never evaluated)."""
    return _number(size) if "as_int" in size else None


def _number(size: dict[str, Any]) -> int:
    value = size["as_int"]
    if type(value) is not int:
        raise ValueError(f"{value!r} is no size")
    return value


def _place(node: dict[str, Any]) -> str:
    name = node.get("name") or next(iter(sorted(_names([_argument(result) for result in node["outputs"]]))), "?")
    modules = str(node.get("metadata", {}).get("nn_module_stack", "")).split(";")[-1].split(",")
    return f"node {name!r}" + (f", module {modules[1]!r}" if len(modules) > 2 and modules[1] else "")


__all__ = ["read_program"]
