"""The JSON of a saved program's calls, decoded: only what is on a list of ATen operations, nothing is evaluated."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from elbowroom.errors import UnsupportedError
from elbowroom.readers.torch import aten
from elbowroom.readers.torch.saved import Call, Name, Stated, names_in

# What programs hold before their operations are broken down to those with a bound here.
_ALSO = {
    "absolute", "alpha_dropout", "arange", "arctan", "broadcast_to", "clip", "concat", "concatenate",
    "divide", "expand_as", "feature_dropout", "full", "log_sigmoid_forward", "moveaxis", "movedim", "multiply",
    "narrow", "native_dropout", "negative", "ones", "reshape_as", "scalar_tensor", "subtract", "swapaxes", "swapdims",
    "sym_size", "tensor_split", "true_divide", "view_as", "zeros",
}  # fmt: skip

# They say what may be relied on, and compute nothing.
ASSERTIONS = {
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size",
}  # fmt: skip

# Arithmetic with sizes.
_OPERATORS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "getitem")
}

# The schema's numbers.
TYPES = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16, 7: torch.float32,
    8: torch.float64, 12: torch.bool, 13: torch.bfloat16,
}  # fmt: skip

_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}


def call_of(name: str, target: str, node: dict[str, Any]) -> Call:
    """A node of the graph as a call of torch's own function; `UnsupportedError` says why it is none."""
    given = [(arg["name"], _argument(arg["arg"])) for arg in node["inputs"]]
    results = [_argument(result) for result in node["outputs"]]
    if not target.startswith("torch.ops.aten."):
        function = _OPERATORS.get(target.removeprefix("_operator."))
        if function is None:
            hint = "; run_decompositions() before saving may resolve it" if "higher_order" in target else ""
            raise UnsupportedError(f"not supported{hint}")
        return Call(target, function, tuple(value for _, value in given), {}, results[0])
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
    return Call(name, overload, tuple(args), kwargs, results[0] if len(results) == 1 else results)


def _argument(arg: dict[str, Any]) -> Any:
    kind, value = only(arg)
    decode = ARGUMENTS.get(kind)
    if decode is None:
        raise UnsupportedError(f"takes a {kind.removeprefix('as_')}")
    return decode(value)


def _each(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: [decode(value) for value in values]


def _float(value: Any) -> float:
    return float(value)  # the schema writes infinity as text


def _name(value: dict[str, Any]) -> Name:
    return Name(str(value["name"]))


def _symbol(value: dict[str, Any]) -> Any:
    kind, found = only(value)
    return Name(found) if kind == "as_name" else found


ARGUMENTS: dict[str, Callable[[Any], Any]] = {
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
    "as_scalar_type": lambda value: TYPES[value],
    "as_memory_format": lambda value: _FORMATS[value],
    "as_layout": lambda _: torch.strided,
    "as_device": lambda _: torch.device("cpu"),  # wherever it was
}


def only(union: dict[str, Any]) -> tuple[str, Any]:
    """The schema writes a choice as an object with one key."""
    ((kind, value),) = union.items()
    return kind, value


def stated_of(meta: dict[str, Any]) -> Stated:
    """What the file says of a value."""
    return Stated([size_of(size) for size in meta["sizes"]], TYPES.get(meta["dtype"]))


def size_of(size: dict[str, Any]) -> int | None:
    """A size, or None where it is an expression (which is never evaluated)."""
    return number_of(size) if "as_int" in size else None


def number_of(size: dict[str, Any]) -> int:
    """A size that must be a number."""
    value = size["as_int"]
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a size")
    return value


def place_of(node: dict[str, Any]) -> str:
    """Where a node is, for people: its name, and its module where the file tells."""
    name = node.get("name") or next(iter(sorted(names_in([_argument(result) for result in node["outputs"]]))), "?")
    modules = str(node.get("metadata", {}).get("nn_module_stack", "")).split(";")[-1].split(",")
    return f"node {name!r}" + (f", module {modules[1]!r}" if len(modules) > 2 and modules[1] else "")
