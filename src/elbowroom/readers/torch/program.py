"""Reads programs that `torch.export.save` wrote (`.pt2`), without running code from the file.

`torch.export.load` would run some: it unpickles example inputs, older files' weights and custom objects, evaluates
symbolic sizes as Python expressions, takes operations from anywhere in torch, and loads compiled libraries. Here the
file gives two things only: a list of calls, in JSON, of which each must be on a list of ATen operations; and tensors,
raw or by torch's restricted unpickler. The calls (`calls.py`) are run as a module (`saved.py`), which is traced like
any other: this frees the program of its example's batch size as well.

The network is compared with these calls, at the batch size that the program was exported for (`guard.py`). This
shows that they were translated rightly and that the inputs of a batch are independent. It does not show that the calls
were decoded rightly (their values must have the shapes and types that the file states), nor anything of the module
that was exported: torch.export takes a batch for larger than 1, so that a module with a way of its own for a batch of
one loses it on the way into the file.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.files import Archive, parse_json
from elbowroom.network.file import LARGEST
from elbowroom.network.graph import Network
from elbowroom.readers.reading import first_line
from elbowroom.readers.torch.calls import ASSERTIONS, TYPES, call_of, number_of, only, place_of, size_of, stated_of
from elbowroom.readers.torch.modules import trace
from elbowroom.readers.torch.saved import DAMAGE, Call, RoomError, SavedProgram
from elbowroom.readers.torch.takes import Takes
from elbowroom.readers.torch.trace import WITHOUT_BOUND
from elbowroom.readers.torch.tracks import LOOKUPS

SCHEMA = 8  # the major version of the JSON schema that torch 2.6 and later write
_LOOKUPS = tuple(f"torch.ops.{operation}" for operation in LOOKUPS)  # as files name them
_STRIDED = 7  # its number for a plain tensor


def read_program(
    path: Path, task: str | None = None, trust_pickle: bool = False, names: Sequence[str] | None = None
) -> Network:
    """The saved program as a network, which takes inputs of the program's own shape (its first axis is the batch).

    `names`: of its columns, where some are codes that embeddings look up. Tensors that torch saved by pickle (of
    subclasses of its own) are read with `trust_pickle` only.
    """
    with Archive(path) as archive:
        try:
            program = _Reader(path, archive, trust_pickle).program()
        except DAMAGE as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is damaged, or of a kind unknown here: {type(error).__name__} {error}") from None
    try:
        program.must_be_sound()
        return trace(program, [program.takes], program.dtype, task, "the saved program", program.batch, names)
    except (InputError, UnsupportedError) as error:
        fixed = "" if program.batch is None else _FIXED.format(program.batch)
        kind = InputError if isinstance(error, InputError | RoomError) else UnsupportedError
        raise kind(f"{path}: {error}{fixed}") from None


_FIXED = (
    "\n(The program was exported for batches of {} alone. Where that is the trouble, export it for any batch: "
    "torch.export.export(model, (x,), dynamic_shapes=({{0: torch.export.Dim.DYNAMIC}},)))"
)


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
        takes, batch = self._takes(given, graph)
        reals = [kind for kind in (*takes.kinds, *(t.dtype for t in tensors.values())) if kind.is_floating_point]
        return SavedProgram(
            takes, batch, next(iter(reals), torch.float32), self._output(), self._calls(graph["nodes"]), tensors,
            {name: stated_of(about) for name, about in graph["tensor_values"].items()},
        )  # fmt: skip

    def _takes(self, given: list[str], graph: dict[str, Any]) -> tuple[Takes, int | None]:
        """How the program takes its inputs, and the only batch size that it is for, if any."""
        codes = any(node["target"] in _LOOKUPS for node in graph["nodes"])
        if not given or (len(given) != 1 and not codes):
            raise InputError(
                f"{self.path} takes {len(given)} inputs ({', '.join(given)}); export one that takes one tensor"
            )
        shapes, kinds, batches = [], [], set()
        for meta in (graph["tensor_values"][name] for name in given):
            sizes, dtype = [size_of(size) for size in meta["sizes"]], TYPES.get(meta["dtype"])
            if dtype is None or not (dtype.is_floating_point or codes):
                raise InputError(
                    f"{self.path} takes integers ({dtype}), which have no regions; export it for real numbers"
                )
            if not sizes or None in sizes[1:]:
                raise InputError(
                    f"{self.path}: the input has no batch axis, or another axis of any size; export it with all axes "
                    "but the first fixed"
                )
            shapes.append(tuple(n for n in sizes[1:] if n is not None))
            kinds.append(dtype)
            batches.add(sizes[0])
        if len(batches) != 1:
            raise InputError(f"{self.path}: its inputs have batches of different sizes; export it with one for all")
        return Takes(tuple(given), tuple(shapes), tuple(kinds)), batches.pop()

    def _inputs(self) -> dict[str, tuple[str, str]]:
        """What each input of the graph is: the user's, or a stored tensor by its name."""
        found = {}
        for spec in self.saved["graph_module"]["signature"]["input_specs"]:
            kind, about = only(spec)
            if kind == "constant_input":  # an argument left at its default, which the trace has used up
                continue
            if kind not in ("user_input", "parameter", "buffer", "tensor_constant"):
                raise InputError(f"{self.path} needs a {kind} ({str(about)[:80]}), which no network here has")
            arg = about["arg"]
            argument, named = only(arg) if kind == "user_input" else ("as_tensor", arg)
            if argument != "as_tensor":
                raise InputError(f"{self.path} takes something else than a tensor: {str(arg)[:80]}")
            found[named["name"]] = kind, "" if kind == "user_input" else about[f"{kind}_name"]
        return found

    def _output(self) -> str:
        specs = [only(spec) for spec in self.saved["graph_module"]["signature"]["output_specs"]]
        kinds = [kind for kind, _ in specs]
        if kinds != ["user_output"] or "as_tensor" not in specs[0][1]["arg"]:
            raise UnsupportedError(
                f"{self.path} does not just return one tensor, but gives {', '.join(kinds)}; export one that does"
            )
        name: str = specs[0][1]["arg"]["as_tensor"]["name"]
        return name

    def _calls(self, nodes: list[Any]) -> list[Call]:
        calls, problems = [], []
        for node in nodes:
            target = node["target"]
            name = target.removeprefix("torch.ops.aten.").partition(".")[0]
            if name in ASSERTIONS:
                continue
            try:
                calls.append(call_of(name, target, node))
            except UnsupportedError as error:
                problems.append(f"{target.removeprefix('torch.ops.')} ({place_of(node)}): {error}")
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
        sizes, strides = ([number_of(n) for n in meta[key]] for key in ("sizes", "strides"))
        start, dtype = number_of(meta["storage_offset"]), TYPES[meta["dtype"]]
        end = start + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True)) + 1
        count = len(data) // dtype.itemsize
        if meta["layout"] != _STRIDED or len(data) % dtype.itemsize or min(start, *sizes, *strides, 0) < 0:
            raise InputError(f"{self.path}: the entry {entry!r} is not a plain tensor")
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


__all__ = ["read_program"]
