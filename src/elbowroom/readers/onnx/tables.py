"""Models of tables in ONNX, as exported from scikit-learn, written as plain ones: one input, plain operators.

Such a model takes a column each as an input, of numbers or of texts, and encodes categories itself. Here the columns
become entries of one input (see `network.table`): what only moves columns about is followed by name, encoders become
their codes, and linear models a product and a sum. The rest is left to the reader as it stands. The model as it was is
what the network is compared with in the end (`originals.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from elbowroom.arguments.names import printable
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.table import Table
from elbowroom.readers.flow import NOTHING, Coding, Plan, Raw, level_of, refuse_many
from elbowroom.readers.onnx.ends import Outputs, described, dims_of
from elbowroom.readers.onnx.file import FLOATS, INTEGERS, checked_size, read_tensor, type_name
from elbowroom.readers.onnx.linear import Classifier, linear_classifier, linear_regressor
from elbowroom.readers.onnx.lookups import Lookups, attribute, coding_of
from elbowroom.readers.onnx.step import Place
from elbowroom.readers.reading import RefusalError, refuse

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto, NodeProto, ValueInfoProto

ML = "ai.onnx.ml"
_OURS = {"LinearClassifier", "LinearRegressor", "Imputer", "OneHotEncoder", "LabelEncoder"}
_FLOAT, _STRING, _BOOL, _DOUBLE = 1, 8, 9, 11
_CONVERTS = {"Scaler", "LinearClassifier", "LinearRegressor"}  # whole numbers to real ones, of their own accord
_MOST_COLUMNS = 100_000


@dataclass(frozen=True)
class Plain:
    """A model of tables as a plain one. `names`: of the input each column comes from, and its place in it;
    `classifier`: what it ends in, if that is a linear classifier."""

    model: ModelProto
    plan: Plan
    table: Table | None
    columns: tuple[tuple[str, int], ...]
    classifier: Classifier | None
    notes: tuple[str, ...]


def plain_model(model: ModelProto, folder: Path) -> Plain | None:
    """The model as a plain one; None where it is one already, which all are that have one input of numbers and none of
    the operators for tables."""
    held = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in held]
    ours = any(node.domain == ML and node.op_type in _OURS for node in model.graph.node)  # labels may be mapped, too
    used = {name for node in model.graph.node for name in node.input}
    inputs = [i for i in inputs if i.name in used]
    ours = ours or _looks_up(model, folder, inputs)
    if not inputs or not (ours or len(inputs) > 1):
        return None
    if not ours and any((dims_of(i) or [0, 0])[1:] != [1] for i in inputs):
        return None  # several inputs that are no columns: the reader says so
    return _Writing(model, folder, inputs).plain


def _looks_up(model: ModelProto, folder: Path, inputs: Sequence[ValueInfoProto]) -> bool:
    """Whether it looks up codes that are columns of its inputs."""
    columns = {}
    for one in inputs:
        dims = dims_of(one)
        if dims is not None and len(dims) == 2 and isinstance(dims[1], int) and 0 < dims[1] <= _MOST_COLUMNS:
            columns[one.name] = np.arange(dims[1])
    found = Lookups(model.graph, columns, _Constants(model.graph, folder).get)
    return any(found.looked_up(node) is not None for node in model.graph.node)


class _Constants:
    """A model's fixed values, by name: those that it holds, and those that stand as nodes in it."""

    def __init__(self, graph: Any, folder: Path) -> None:
        self.folder, self.held = folder, {t.name: t for t in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and not node.domain and (value := attribute(node, "value")) is not None:
                self.held[node.output[0]] = value

    def get(self, name: str) -> np.ndarray | None:
        return read_tensor(self.held[name], self.folder) if name in self.held else None


@dataclass(frozen=True)
class _Item:
    """A column on its way, and its type by ONNX's number."""

    raw: Raw
    kind: int


@dataclass
class _Take:
    """Stands for a node that takes the entries of some columns out of the one input."""

    name: str
    columns: list[int]


@dataclass
class _Writing:
    model: ModelProto
    folder: Path
    inputs: Sequence[ValueInfoProto]
    nodes: list[Any] = field(default_factory=list)  # as they will be, and `_Take`s
    values: dict[str, list[_Item]] = field(default_factory=dict)  # that are columns still
    tensors: list[Any] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)  # columns that are numbers now, by the name of the value
    problems: dict[str, str] = field(default_factory=dict)
    classifier: Classifier | None = None

    def __post_init__(self) -> None:
        self.graph = self.model.graph
        self.constants = _Constants(self.graph, self.folder)
        self.kinds = {i.name: i.type.tensor_type.elem_type for i in self.inputs}
        self.columns: list[tuple[str, int]] = []
        names: list[str] = []
        for one in self.inputs:
            kind, count = self._declared(one)
            start = len(self.columns)
            self.columns += [(one.name, j) for j in range(count)]
            own = [one.name] if count == 1 else [f"{one.name}[{j}]" for j in range(count)]
            names += [f"x{j}" for j in range(count)] if len(self.inputs) == 1 and count > 1 else own
            self.values[one.name] = [_Item(Raw(start + j), kind) for j in range(count)]
        single = len(self.inputs) == 1
        self.plan = Plan(len(self.columns), None if single and len(names) > 1 else printable(names))
        if single and len(names) > 1:
            self.plan.names = tuple(names)
        columns = {name: np.array([item.raw.column for item in items]) for name, items in self.values.items()}
        self.lookups = Lookups(self.graph, columns, self.constants.get)
        outputs = Outputs(self.graph)
        self.ends = [o.name for o in outputs.read]
        for node in self._needed():
            try:
                self._node(node)
            except RefusalError as refusal:
                self.problems[str(Place.of(node))] = str(refusal)
        if self.problems:
            told = "\n  ".join(f"{place}: {reason}" for place, reason in self.problems.items())
            raise UnsupportedError(f"the model holds operators that are not read:\n  {told}")
        self.plain = self._written(outputs)

    def _needed(self) -> list[NodeProto]:
        """The nodes that the outputs which are read depend on, in order: labels are not among these."""
        wanted, needed = set(self.ends), []
        for node in reversed(self.graph.node):
            if wanted & set(filter(None, node.output)):
                # What leads to codes that are looked up are columns.
                wanted.update(node.input if self.lookups.looked_up(node) is None else node.input[:1])
                needed.append(node)
        return needed[::-1]

    def _declared(self, one: ValueInfoProto) -> tuple[int, int]:
        """The type of an input, and how many columns it has."""
        kind, dims = one.type.tensor_type.elem_type, dims_of(one)
        if kind not in (*FLOATS, *INTEGERS, _STRING, _BOOL) or dims is None or len(dims) != 2:
            raise UnsupportedError(f"the input {described(one)} is neither a column nor rows of numbers or texts")
        count = dims[1]
        if not isinstance(count, int) or count > _MOST_COLUMNS:
            raise UnsupportedError(f"the input {described(one)} does not say how many columns it has")
        return kind, count

    # --- one node

    def _node(self, node: NodeProto) -> None:
        raw = [self.values.get(name) for name in node.input]
        if (codes := self.lookups.looked_up(node)) is not None:
            return self._look_up(node, codes)
        if node.domain == ML and node.op_type == "Imputer":
            return self._imputer(node, raw[0])
        if raw and raw[0] is not None and self._moves(node, raw):
            return None
        if node.domain == ML and node.op_type in ("OneHotEncoder", "LabelEncoder"):
            return self._encoder(node, raw[0])
        for name, items in zip(node.input, raw):
            if items is not None:
                self._take(node, name, items)
        if node.domain == ML and node.op_type == "LinearClassifier":
            made, tensors, found = linear_classifier(node, self.graph, self.ends)
            if found is not None:
                self.classifier, self.ends = found, [found.output]
            self.nodes += made
            self.tensors += tensors
        elif node.domain == ML and node.op_type == "LinearRegressor":
            made, tensors = linear_regressor(node)
            self.nodes += made
            self.tensors += tensors
        else:
            self.nodes.append(node)
        return None

    def _moves(self, node: NodeProto, raw: list[list[_Item] | None]) -> bool:
        """Follows columns through a node that only moves them; whether it is one."""
        first = raw[0]
        assert first is not None
        moved: list[_Item] | None = None
        match node.op_type:
            case "Identity":
                moved = first
            case "Concat" if all(items is not None for items in raw) and attribute(node, "axis") in (1, -1):
                moved = [item for items in raw for item in items or ()]
            case "Gather" if attribute(node, "axis", 0) in (1, -1):
                moved = self._chosen(node, first)
            case "Slice" if (places := self.lookups.of(node.output[0])) is not None and places.ndim == 1:
                moved = [next(item for item in first if item.raw.column == place) for place in places.tolist()]
            case "FeatureVectorizer" if all(items is not None for items in raw):
                moved = [_Item(item.raw, _FLOAT) for items in raw for item in items or () if item.kind != _STRING]
                if len(moved) != sum(attribute(node, "inputdimensions", ())):
                    moved = None
            case "ArrayFeatureExtractor":
                moved = self._chosen(node, first)
            case "Reshape" if self._constant(node.input[1]).tolist() in ([-1, len(first)], [0, len(first)]):
                moved = first
            case "Cast":
                to = attribute(node, "to", 0)
                if all(item.kind in (*INTEGERS, _BOOL) for item in first) and to in (_FLOAT, _DOUBLE, *INTEGERS[-4:]):
                    moved = [_Item(item.raw, to if to in FLOATS else item.kind) for item in first]
        if moved is not None:
            self.values[node.output[0]] = moved
        return moved is not None

    def _chosen(self, node: NodeProto, items: list[_Item]) -> list[_Item] | None:
        places = self._constant(node.input[1])
        if places.ndim != 1 and node.op_type == "Gather":
            return None
        flat = [int(place) for place in places.reshape(-1)]
        if any(not -len(items) <= place < len(items) for place in flat):
            raise InputError(f"{Place.of(node)}: it takes columns that are not there")
        return [items[place] for place in flat]

    def _constant(self, name: str) -> np.ndarray:
        found = self.constants.get(name)
        return refuse("chooses columns by what it computes") if found is None else found

    def _imputer(self, node: NodeProto, items: list[_Item] | None) -> None:
        """What stands for missing values of columns; of numbers that were computed none may be missing."""
        if attribute(node, "replaced_value_int64") is not None and not attribute(node, "imputed_value_floats"):
            refuse("fills in for a whole number, which is a value like any other here: only NaN can be missing")
        if not math.isnan(attribute(node, "replaced_value_float", 0.0)):
            refuse("fills in for a number, which is a value like any other here: only NaN can be missing")
        fills = [float(v) for v in attribute(node, "imputed_value_floats", ())]
        if items is None:
            from onnx import helper

            self.nodes.append(helper.make_node("Identity", node.input[:1], node.output[:1], name=node.name))
            return
        if len(fills) not in (1, len(items)):
            raise InputError(f"{Place.of(node)}: it has {len(fills)} values for {len(items)} columns")
        fills = fills * len(items) if len(fills) == 1 else fills
        self.values[node.output[0]] = [
            _Item(Raw(item.raw.column, fill if item.raw.fill is NOTHING else item.raw.fill), item.kind)
            for item, fill in zip(items, fills)
        ]

    def _take(self, node: NodeProto, name: str, items: list[_Item]) -> None:
        """Columns become numbers, under the name that the model has for them."""
        for item in items:
            if item.kind == _STRING:
                refuse("computes with texts, and only encoders of categories are read")
            if item.kind not in FLOATS and not (node.domain == ML and node.op_type in _CONVERTS):
                refuse("computes with whole numbers; they must be converted to real ones first")
            self.plan.use(item.raw, None, str(Place.of(node)))
            kind = self.kinds[self.columns[item.raw.column][0]]
            if kind not in FLOATS:
                self.plan.notes.append(
                    f"{self.plan.names[item.raw.column]!r} is declared as {type_name(kind)}; it is read as real numbers"
                )
        if name not in self.taken:
            self.taken.add(name)
            self.nodes.append(_Take(name, [item.raw.column for item in items]))

    def _encoder(self, node: NodeProto, items: list[_Item] | None) -> None:
        if items is None:
            refuse("encodes what an earlier operator computed, and categories are those of the table")
        if len(items) != 1:
            refuse(f"encodes {len(items)} columns at once; only one each is read")
        coding = _one_hot(node) if node.op_type == "OneHotEncoder" else _labels(node)
        texts = any(isinstance(level, str) for level in coding.levels)
        if texts != (items[0].kind == _STRING):
            refuse("encodes texts of a column of numbers, or the reverse")
        self.plan.use(items[0].raw, coding, str(Place.of(node)))
        self.nodes.append(_Take(node.output[0], [items[0].raw.column]))

    def _look_up(self, node: NodeProto, codes: np.ndarray) -> None:
        """The rows that codes look up, as a product of their entries."""
        from onnx import helper, numpy_helper

        rows = self._constant(node.input[0])
        coding, columns = coding_of(len(rows)), codes.flatten().tolist()
        if codes.ndim > 1:
            refuse("looks up codes in more than one axis")
        for column in columns:
            if self.kinds[self.columns[column][0]] not in (*FLOATS, *INTEGERS):
                refuse("looks up what is no number")
            self.plan.use(Raw(column), coding, str(Place.of(node)))
        taken, out = f"{node.output[0]} codes", node.output[0]
        self.nodes.append(_Take(taken, columns))
        if codes.ndim:
            shape = numpy_helper.from_array(np.array([-1, len(columns), len(rows)], np.int64), f"{taken} shape")
            self.tensors.append(shape)
            self.nodes.append(helper.make_node("Reshape", [taken, shape.name], [f"{taken} each"], name=f"{out} each"))
            taken = f"{taken} each"
        self.nodes.append(helper.make_node("MatMul", [taken, node.input[0]], [out], name=node.name))

    # --- the end

    def _written(self, outputs: Outputs) -> Plain:
        from onnx import helper, numpy_helper

        for end in self.ends:
            if end in self.values:
                raise UnsupportedError("the model gives its columns back as they are, and computes nothing")
        table = self.plan.table()
        widths = {c: coding.width if (coding := self.plan.coding(c)) else 1 for c in self.plan.columns}
        starts = dict(zip(widths, np.cumsum([0, *widths.values()]).tolist()))
        checked_size((sum(widths.values()),))
        rows = "rows"
        while any(rows in (*node.input, *node.output) for node in self.graph.node):
            rows += "_"
        nodes, tensors = [], [*self.graph.initializer, *self.tensors]
        for k, node in enumerate(self.nodes):
            if not isinstance(node, _Take):
                nodes.append(node)
                continue
            places = [starts[c] + j for c in node.columns for j in range(widths[c])]
            tensors.append(numpy_helper.from_array(np.array(places, dtype=np.int64), f"{rows}_{k}"))
            nodes.append(
                helper.make_node("Gather", [rows, f"{rows}_{k}"], [node.name], axis=1, name=f"{node.name} taken")
            )
        wide = any(i.type.tensor_type.elem_type == _DOUBLE for i in self.inputs)
        source = helper.make_tensor_value_info(rows, _DOUBLE if wide else _FLOAT, ["N", sum(widths.values())])
        ends = [o for o in outputs.all if o.name in self.ends] or [
            helper.make_tensor_value_info(end, _FLOAT, None) for end in self.ends
        ]
        graph = helper.make_graph(nodes, "plain", [source], ends, tensors)
        plain = type(self.model)(ir_version=self.model.ir_version, opset_import=self.model.opset_import, graph=graph)
        return Plain(
            plain, self.plan, table, tuple(self.columns), self.classifier, tuple(dict.fromkeys(self.plan.notes))
        )


# --- encoders


def _one_hot(node: NodeProto) -> Coding:
    texts, numbers = attribute(node, "cats_strings"), attribute(node, "cats_int64s")
    if texts and numbers:
        refuse("has categories that are texts and others that are numbers")
    levels = tuple(level_of(_text(v) if texts else int(v)) for v in texts or numbers or ())
    if not levels:
        refuse("has no categories")
    refuse_many(len(levels), len(levels))
    codes = tuple(tuple(float(j == k) for j in range(len(levels))) for k in range(len(levels)))
    unknown = (0.0,) * len(levels) if attribute(node, "zeros", 1) else None
    return Coding(levels, codes, unknown, levels)


def _labels(node: NodeProto) -> Coding:
    texts, numbers = attribute(node, "keys_strings"), attribute(node, "keys_int64s")
    values = attribute(node, "values_int64s") or attribute(node, "values_floats")
    whole = attribute(node, "values_int64s") is not None
    if texts and numbers:
        refuse("has categories that are texts and others that are numbers")
    levels = tuple(level_of(_text(v) if texts else int(v)) for v in texts or numbers or ())
    if not levels or values is None or len(values) != len(levels):
        refuse("maps something else than texts or whole numbers to numbers")
    other = attribute(node, "default_int64", -1) if whole else attribute(node, "default_float", -0.0)
    if not all(math.isfinite(float(v)) for v in (*values, other)):
        refuse("has codes that are not finite")
    return Coding(levels, tuple((float(v),) for v in values), (float(other),), levels)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return refuse("has a category that is no text")


__all__ = ["Plain", "plain_model"]
