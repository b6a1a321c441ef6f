"""A network in one file, and its hash.

The file is an archive (see `elbowroom.files`): `graph.json`, which can be read by people, and one .npy per parameter
under `parameters/`. The same network gives the same bytes. Reading it runs no code: operations come from the table
below, every field has a declared type, and whatever is unknown, missing or does not fit is refused by name.

The hash says *which function in real arithmetic* is meant. It covers the operations, their fields, their parameters as
exact numbers, how they are connected, and which output decides. It leaves out names of nodes, the order in which
they were added, whether a number is held in float32 or float64, and the names of features and classes.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.files import TYPES, Archive, canonical_json, digest, parse_json, write_archive
from elbowroom.network import operations as ops
from elbowroom.network.encoding import DECODE, decode_shape, exact, hash_of, plain_fields
from elbowroom.network.graph import About, Graph, Network, Node, Origin
from elbowroom.network.table_file import read_table, written_table

SUFFIX = ".elbowroom"
FORMAT, VERSION = "elbowroom-network", 4
LARGEST = 1 << 28  # numbers in one layer of a network that is read; more is taken for a damaged file
_GRAPH = "graph.json"
_NAMES = ("features", "classes", "notes")

OPERATIONS: dict[str, type[ops.Operation]] = {
    name: kind
    for name, kind in vars(ops).items()
    if isinstance(kind, type)
    and issubclass(kind, ops.Operation)
    and not name.startswith("_")
    and kind not in (ops.Operation, ops.Affine, ops.Activation)
}


def network_hash(net: Network) -> str:
    """The network's hash, 64 hexadecimal digits; equal for equal operations on equal numbers, however built."""
    found: list[str] = []
    for node in net.nodes:
        parameters = {
            field: {"shape": list(t.shape), "sha256": hash_of(t, node, field)} for field, t in node.op.tensors().items()
        }
        # A node is known by what it computes from what, which does not depend on its number.
        described = [node.op.name, plain_fields(node), parameters, [found[j] for j in node.inputs]]
        found.append(digest(described))
    return digest([FORMAT, found[-1], net.decision])


def save_network(net: Network, path: str | os.PathLike[str]) -> Path:
    """Writes a network into one file, its parameters exact.

    Args:
        net: The network.
        path: The file, by custom `.elbowroom`; read it with `load_network` or `load`.

    Returns:
        The file's path.

    Raises:
        InputError: The network cannot be written, or the file.
    """
    target = Path(path)
    arrays, nodes = {}, []
    names: set[str] = set()
    _refuse_dead_ends(net.nodes, "the network")
    for k, node in enumerate(net.nodes):
        name = _printable(node.name)
        while name in names:
            name = f"{name}_{k}"
        names.add(name)
        if OPERATIONS.get(node.op.name) is not type(node.op):
            raise InputError(f"node {node.name}: the operation {node.op.name} has no place in a network file")
        parameters = {}
        for field, t in node.op.tensors().items():
            # Types NumPy lacks, and integers, are held exactly by a wider one.
            small = t.dtype in (torch.float16, torch.bfloat16, torch.float32)
            array = exact(t, node, field).astype(np.float32 if small else np.float64)
            arrays[_entry_of(k, field)] = array
            parameters[field] = {"type": array.dtype.name, "shape": list(array.shape)}
        nodes.append(
            {
                "name": name,
                "operation": node.op.name,
                "inputs": list(node.inputs),
                "shape": list(node.shape),
                "fields": plain_fields(node),
                "parameters": parameters,
            }
        )
    head = {
        "format": FORMAT, "version": VERSION, "hash": network_hash(net), "decision": net.decision,
        **_written_about(net.about),
    }  # fmt: skip
    lines = ",\n".join(json.dumps(node, allow_nan=False) for node in nodes)  # for people: a line per node
    text = f'{json.dumps(head, indent=1)[:-2]},\n "nodes": [\n{lines}\n]}}\n'
    write_archive(target, {_GRAPH: text.encode()}, arrays)
    return target


def about_hash(net: Network) -> str:
    """Of what is not part of the network's hash: names, notes and origin, as its file holds them."""
    return digest(_written_about(net.about))


def _written_about(about: About) -> dict[str, Any]:
    names = {what: _written_names(what, getattr(about, what)) for what in _NAMES}
    cut = None if about.cut is None else _printable(about.cut)
    return {**names, "origin": _written_origin(about.origin), "cut": cut, "table": written_table(about.table)}


def _written_names(what: str, given: tuple[str, ...] | None) -> list[str] | None:
    """Names as the file holds them; refused where different ones would become one."""
    if given is None:
        return None
    written = [_printable(name) for name in given]
    if what != "notes" and len(set(written)) < len(set(given)):
        found = sorted(ascii(name) for name in set(given) if written.count(_printable(name)) > 1)
        raise InputError(f"{what}: {' and '.join(found[:5])} would be written alike in the file; rename all but one")
    return written


def _written_origin(origin: Origin | None) -> dict[str, Any] | None:
    if origin is None:
        return None
    try:
        options = json.loads(canonical_json(dict(origin.options)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the options the model was read with cannot be saved: {error}") from None
    compared = [_printable(text) for text in origin.compared]
    return {"model": _printable(origin.model), "sha256": origin.sha256, "options": options, "compared": compared}


def _read_origin(found: dict[str, Any] | None, where: str) -> Origin | None:
    if found is None:
        return None
    hashed = str if found.get("sha256") is not None else type(None)
    _must_be(found, {"model": str, "sha256": hashed, "options": dict, "compared": list}, where)
    (model,) = _read_names([found["model"]], f"{where}: model")
    if found["sha256"] is not None and not re.fullmatch("[0-9a-f]{64}", found["sha256"]):
        raise InputError(f"{where}: sha256 must be 64 hexadecimal digits, got {found['sha256']!r}")
    return Origin(model, found["sha256"], found["options"], _read_names(found["compared"], f"{where}: compared"))


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def load_network(path: str | os.PathLike[str]) -> Network:
    """Reads what `save_network` wrote. Never runs code from the file.

    Args:
        path: The file.

    Returns:
        The network; its hash is the one that the file states.

    Raises:
        InputError: The file is damaged, was changed, or holds something unknown; the message names it.
    """
    source = Path(path)
    with Archive(source) as archive:
        where = f"{source}: {_GRAPH}"
        graph = parse_json(archive.read(_GRAPH), where)
        if graph.get("format") != FORMAT:
            raise InputError(f"{where}: the format is {graph.get('format')!r}, not {FORMAT!r}")
        if graph.get("version") != VERSION:
            raise InputError(f"{where}: version {graph.get('version')!r} is unknown; this program reads {VERSION}")
        names = {name: graph.get(name) for name in _NAMES}
        kinds: dict[str, type] = {"format": str, "version": int, "hash": str, "decision": str, "nodes": list}
        kinds |= {name: list if value is not None else type(None) for name, value in names.items()}
        optional = {"origin": dict, "cut": str, "table": list}
        kinds |= {name: kind if graph.get(name) is not None else type(None) for name, kind in optional.items()}
        _must_be(graph, kinds, where)
        about = About(
            **{name: _read_names(value, f"{where}: {name}") for name, value in names.items()},
            origin=_read_origin(graph["origin"], f"{where}: origin"),
            cut=None if graph["cut"] is None else _read_names([graph["cut"]], f"{where}: cut")[0],
            table=None if graph["table"] is None else read_table(graph["table"], f"{where}: table"),
        )
        net = _read_nodes(archive, graph["nodes"], graph["decision"], about, where)
    found = network_hash(net)
    if found != graph["hash"]:
        raise InputError(f"{source} was changed: its content has the hash {found}, not {graph['hash']!r} as it says")
    return net


def _entry_of(node: int, field: str) -> str:
    return f"parameters/{node}.{field}.npy"


# --- reading


def _must_be(found: Any, kinds: dict[str, type], where: str) -> None:
    """`found` is an object with exactly these keys, of these types."""
    if not isinstance(found, dict):
        raise InputError(f"{where} is damaged: an object was expected, not {found!r}")
    for name in found:
        if name not in kinds:
            raise InputError(f"{where}: the field {name!r} is unknown")
    for name, kind in kinds.items():
        if name not in found:
            raise InputError(f"{where}: the field {name!r} is missing")
        if type(found[name]) is not kind:
            raise InputError(f"{where}: the field {name!r} cannot be {found[name]!r}")


_NODE: dict[str, type] = {
    "name": str,
    "operation": str,
    "inputs": list,
    "shape": list,
    "fields": dict,
    "parameters": dict,
}


def _read_names(found: Any, where: str) -> Any:
    if found is None and not where.endswith("notes"):
        return None
    if not isinstance(found, list) or not all(isinstance(name, str) and name.isprintable() for name in found):
        raise InputError(f"{where} must be a list of printable texts, got {str(found)[:80]!r}")
    return tuple(found)


def _read_nodes(archive: Archive, nodes: list[Any], decision: str, about: About, where: str) -> Network:
    graph: Graph | None = None
    names: set[str] = set()
    entries = {_GRAPH}
    for k, found in enumerate(nodes):
        at = f"{where}: node {k}"
        _must_be(found, _NODE, at)
        name = found["name"]
        if name in names or not name.isprintable():
            raise InputError(f"{at}: the name {name!r} is used twice or cannot be printed")
        names.add(name)
        at = f"{at} ({name})"
        op = _read_operation(archive, k, found, entries, at)
        shape, inputs = decode_shape(found["shape"], f"{at}: shape"), found["inputs"]
        if not all(type(j) is int and 0 <= j < k for j in inputs) or bool(inputs) != bool(k):
            raise InputError(f"{at}: inputs must be numbers of earlier nodes, got {inputs!r}")
        if isinstance(op, ops.Input) != (k == 0):
            raise InputError(f"{at}: the first node must be the input, and no other")
        if graph is None:
            if op.output_shape() != shape or any(n < 1 for n in shape) or math.prod(shape) > LARGEST:
                raise InputError(f"{at}: the network cannot have inputs of shape {shape}")
            graph = Graph(shape)
            graph.nodes[0] = Node(graph.nodes[0].op, (), shape, name)
            continue
        shapes = [graph.nodes[j].shape for j in inputs]
        try:
            if most_numbers(op, shapes) > LARGEST:
                raise InputError(f"it may give more than {LARGEST} numbers, for which this program has no room")
            graph.add(op, *inputs, name=name)
            if graph.nodes[-1].shape != shape:
                raise InputError(f"the shape is given as {shape}, but it computes {graph.nodes[-1].shape}")
        except (InputError, RuntimeError, TypeError, ValueError, OverflowError, IndexError) as error:
            raise InputError(f"{at}: {str(error).removeprefix(f'node {name}: ')}") from None
    if graph is None:
        raise InputError(f"{where}: there are no nodes")
    archive.must_hold_only(entries)
    _refuse_dead_ends(graph.nodes, where)
    try:
        return Network(tuple(graph.nodes), decision, about)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _read_operation(archive: Archive, k: int, found: dict[str, Any], entries: set[str], at: str) -> ops.Operation:
    kind = OPERATIONS.get(found["operation"])
    if kind is None:
        raise InputError(f"{at}: the operation {found['operation']!r} is unknown")
    declared = {f.name: f for f in fields(kind)}
    values: dict[str, Any] = {}
    for group in ("fields", "parameters"):
        for name, value in found[group].items():
            field, where = declared.get(name), f"{at}: {name}"
            if field is None or name in values or ("Tensor" not in str(field.type) and group == "parameters"):
                raise InputError(f"{at}: {found['operation']} has no {name!r} among its {group}")
            if group == "parameters":
                values[name] = _read_parameter(archive, _entry_of(k, name), value, where)
                entries.add(_entry_of(k, name))
            elif str(field.type) not in DECODE:
                raise InputError(f"{where} must be a parameter, got {value!r}")
            else:
                values[name] = DECODE[str(field.type)](value, where)
    for name, field in declared.items():
        optional = "None" in str(field.type) and field.default is not MISSING
        if name not in values and not optional:
            raise InputError(f"{at}: the field {name!r} is missing")
    for name, value in values.items():
        if isinstance(value, float) and math.isinf(value) and kind is not ops.Clip:
            raise InputError(f"{at}: {name} must be finite")
    try:
        return kind(**values)
    except (InputError, ValueError, RuntimeError, TypeError) as error:
        raise InputError(f"{at}: {error}") from None


def _read_parameter(archive: Archive, entry: str, found: Any, where: str) -> Tensor:
    _must_be(found, {"type": str, "shape": list}, where)
    if found["type"] not in TYPES:
        raise InputError(f"{where}: the type {found['type']!r} is unknown; parameters are {' or '.join(TYPES)}")
    array = archive.array(entry, found["type"], decode_shape(found["shape"], f"{where}: shape"))
    if not np.isfinite(array).all():
        raise InputError(f"{where} holds NaN or infinite values")
    return torch.from_numpy(array)


def most_numbers(op: ops.Operation, shapes: list[ops.Shape]) -> int:
    """No fewer than the operation's output has: a file may ask for terabytes of padding in a few bytes."""
    shape = shapes[0]
    match op:
        case ops.Linear():
            return math.prod(shape[:-1]) * len(op.weight)
        case ops.Conv() | ops.AvgPool() | ops.MaxPool():
            channels = len(op.weight) if isinstance(op, ops.Conv) else shape[0]
            return channels * math.prod(n + 2 * max(0, *op.padding) for n in shape[1:])
        case ops.Pad():
            return math.prod(n + sum(map(abs, op.pads)) for n in shape)
        case _ if type(op).output_shape is not ops.Operation.output_shape:
            return math.prod(op.output_shape(*shapes))  # from the shapes alone
        case _:
            return sum(map(math.prod, shapes))


def _refuse_dead_ends(nodes: Sequence[Node], where: str) -> None:
    used = {j for node in nodes for j in node.inputs} | {len(nodes) - 1}
    for k, node in enumerate(nodes):
        if k not in used:
            raise InputError(f"{where}: node {k} ({node.name}) leads nowhere")


__all__ = ["OPERATIONS", "SUFFIX", "about_hash", "load_network", "network_hash", "save_network"]
