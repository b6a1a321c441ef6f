"""ONNX files as data: the model, and its tensors as numpy arrays. Nothing here knows what an operator means.

A file may be damaged or made to do harm. Sizes are checked before memory is taken for them, and what a tensor keeps
in another file is read from the model's own folder only.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.file import LARGEST
from elbowroom.readers.reading import first_line

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

OLDEST, NEWEST = 7, 28  # opsets: broadcasting as in numpy came with 7; 28 is the last one looked through
MOST_AXES = 64
_MOST_NODES = 1_000_000  # in all functions written out

# ONNX's number of a type: its name, how raw bytes hold it, and the field that holds it otherwise.
_TYPES: dict[int, tuple[str, str, str]] = {
    1: ("float32", "<f4", "float_data"),
    2: ("uint8", "u1", "int32_data"),
    3: ("int8", "i1", "int32_data"),
    4: ("uint16", "<u2", "int32_data"),
    5: ("int16", "<i2", "int32_data"),
    6: ("int32", "<i4", "int32_data"),
    7: ("int64", "<i8", "int64_data"),
    9: ("bool", "?", "int32_data"),
    10: ("float16", "<f2", "int32_data"),
    11: ("float64", "<f8", "double_data"),
    12: ("uint32", "<u4", "uint64_data"),
    13: ("uint64", "<u8", "uint64_data"),
    16: ("bfloat16", "<u2", "int32_data"),
}
_OTHER_TYPES = {8: "string", 14: "complex64", 15: "complex128"}
FLOATS = (1, 10, 11, 16)
INTEGERS = (2, 3, 4, 5, 6, 7, 12, 13)


def type_name(number: int) -> str:
    """A type by the name people know."""
    return _TYPES[number][0] if number in _TYPES else _OTHER_TYPES.get(number, f"number {number}")


def read_model(path: Path) -> tuple[ModelProto, int]:
    """The model in a file, its functions written out, and its opset. Tensors in other files are not read yet."""
    onnx = import_onnx()
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError, MemoryError):
        raise InputError(f"{path} is not an ONNX model, or it is damaged; a download may have ended early") from None
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if model.ir_version < 1 or not model.graph.output or not opset:
        raise InputError(f"{path} is not an ONNX model, or it is damaged: there is no graph with outputs and an opset")
    if not OLDEST <= opset <= NEWEST:
        raise UnsupportedError(
            f"{path} is written in opset {opset}; opsets {OLDEST} to {NEWEST} are read. Export it again with "
            "opset_version=17, or convert it with onnx.version_converter"
        )
    return (_written_out(model, path) if model.functions else model), opset


def import_onnx() -> Any:
    """The package onnx, which is optional."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise InputError(
            "ONNX files need the package onnx, which is not installed: pip install 'elbowroom[onnx]'"
        ) from None
    return onnx


def _written_out(model: ModelProto, path: Path) -> ModelProto:
    """The model with every call of a function of its own replaced by what the function does."""
    functions = {(f.domain, f.name): f for f in model.functions}
    for domain, name in functions:
        if domain in ("", "ai.onnx", "ai.onnx.ml"):
            raise UnsupportedError(
                f"{path} defines a function with the name of a standard operator, {name!r}; runtimes disagree on which "
                "of the two is meant"
            )
    counted: dict[tuple[str, str], int] = {}

    def count(nodes: Any, above: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in above or len(above) > 50:
                raise InputError(f"{path}: the function {node.op_type!r} calls itself, or calls are nested too deep")
            if key in functions and key not in counted:
                counted[key] = count(functions[key].node, (*above, key))
            total += counted.get(key, 1)
        return total

    if count(model.graph.node, ()) > _MOST_NODES:
        raise InputError(f"{path}: its functions, written out, have more than {_MOST_NODES} nodes; it may be damaged")
    try:
        from onnx import inliner

        return inliner.inline_local_functions(model)
    except (ImportError, ValueError, RuntimeError) as error:
        raise UnsupportedError(f"{path} defines functions that cannot be written out: {first_line(error)}") from None


def read_tensor(tensor: TensorProto, folder: Path) -> np.ndarray:
    """The tensor's numbers, exactly; float16 and bfloat16 as float32, which holds them all.

    `folder`: the model's, for tensors kept in other files.
    """
    if tensor.data_type not in _TYPES:
        raise UnsupportedError(f"holds values of type {type_name(tensor.data_type)}")
    name, raw, field = _TYPES[tensor.data_type]
    shape = tuple(tensor.dims)
    count = checked_size(shape)
    size = count * np.dtype(raw).itemsize
    if tensor.HasField("segment"):
        raise UnsupportedError("is stored in segments")
    if tensor.data_location == 1:
        data: bytes | None = _external(tensor, folder, size)
    else:
        data = tensor.raw_data if tensor.HasField("raw_data") else None
    if data is not None:
        if len(data) != size:
            raise InputError(f"has {len(data)} bytes where {size} are needed for shape {shape} of {name}")
        array = np.frombuffer(data, dtype=raw)
    else:
        values = getattr(tensor, field)
        if len(values) != count:
            raise InputError(f"has {len(values)} numbers where {count} are needed for shape {shape}")
        if name == "float16":  # its bits, as whole numbers
            array = np.array(values, dtype=np.int64).astype(np.uint16).view(np.float16)
        else:
            array = np.array(values).astype(raw)
    if name == "bfloat16":  # the upper half of a float32
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return widened(array).reshape(shape)


def with_data(tensor: TensorProto, folder: Path) -> TensorProto:
    """The same tensor, with its numbers in it if they are kept in another file."""
    if tensor.data_location != 1:
        return tensor
    found = type(tensor)(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    size = checked_size(tuple(tensor.dims)) * np.dtype(_TYPES[tensor.data_type][1]).itemsize
    found.raw_data = _external(tensor, folder, size)
    return found


def widened(array: np.ndarray) -> np.ndarray:
    """The same numbers, in a type this program computes with."""
    small = array.dtype.kind == "f" and array.dtype.itemsize < 4
    return array.astype(np.float32) if small or array.dtype.name == "bfloat16" else array


def checked_size(shape: tuple[int, ...]) -> int:
    """How many numbers an array of this shape has; refused where it cannot be one."""
    if len(shape) > MOST_AXES:
        raise InputError(f"cannot have {len(shape)} axes; at most {MOST_AXES} are read")
    if any(n < 0 for n in shape) or math.prod(shape) > LARGEST:
        raise InputError(f"cannot have the shape {shape}; at most {LARGEST} numbers are read")
    return math.prod(shape)


def _external(tensor: TensorProto, folder: Path, size: int) -> bytes:
    """The bytes of a tensor that is kept in another file of the model's folder."""
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    where = f"is kept in the file {location!r}"
    relative = Path(location)
    if not location or relative.is_absolute() or ".." in relative.parts or "\\" in location or "\0" in location:
        raise InputError(f"{where}, and such a path may lead out of the model's folder; it is not followed")
    offset, length = (_number(entries, key, where) for key in ("offset", "length"))
    if length is not None and length != size:
        raise InputError(f"{where}, with {length} bytes where {size} are needed")
    try:
        home = folder.resolve(strict=True)
        file = (home / relative).resolve(strict=True)
        if not file.is_relative_to(home):
            raise InputError(f"{where}, a link that leads out of the model's folder; it is not followed")
        if not file.is_file():
            raise InputError(f"{where}, which is not a plain file")
        if file.stat().st_size < (offset or 0) + size:
            raise InputError(f"{where}, which ends too early: {(offset or 0) + size} bytes are needed")
        with open(file, "rb") as stream:
            stream.seek(offset or 0)
            return stream.read(size)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InputError(f"{where}, which cannot be read: {reason}") from None


def _number(entries: dict[str, str], key: str, where: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InputError(f"{where}, with the {key} {text!r}, which is not a size")
    return int(text)
